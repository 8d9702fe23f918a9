# SPDX-License-Identifier: BSD-3-Clause
"""A fitted linear u on standardised features, and fits that need nothing but features.

Convention: coefficients belong to standardised columns; ``log g = u - log(pi_U / (1 - pi_U)) - log pi``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from poscod._validation import Floats
from poscod.ratio._design import Columns, Design, Scaler, cache_blocks, fit_scaler
from poscod.ratio._likelihood import Fit, fit_likelihood, log_a, objective
from poscod.ratio._rows import Rows

FOLDED_MEAN = 100.0  # in standard deviations
L2_GRID = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001, 0.00001)


@dataclass(frozen=True)
class LinearRatio:
    """log g as a linear function of features."""

    scaler: Scaler
    theta: Floats
    intercept: float

    def __call__(self, rows: Rows) -> Floats:
        """Return log g of some rows."""
        x = np.asarray(rows.features)
        weights = self.theta / self.scaler.scale
        # Standardisation goes into the weights: no copy of the rows. With far larger means the sums would cancel.
        folded = bool(np.max(np.abs(self.scaler.mean) / self.scaler.scale, initial=0.0) <= FOLDED_MEAN)
        shift = self.intercept - self.scaler.mean @ weights if folded else self.intercept
        out = np.empty(len(x))
        first = 0
        for block in cache_blocks(x):
            # In float64 a row's value does not depend on which rows it is scored with.
            wide = np.asarray(block, dtype=np.float64)
            out[first : first + len(block)] = wide @ weights if folded else self.scaler.transform(wide) @ self.theta
            first += len(block)
        return out + shift


@dataclass(frozen=True)
class LinearData:
    """Both sides stacked for a linear fit."""

    design: Design
    scaler: Scaler
    unlabeled: NDArray[np.bool_]
    weight: Floats

    @property
    def log_odds_u(self) -> float:
        """log(pi_U / (1 - pi_U))."""
        return float(logit(self.weight[self.unlabeled].sum()))


def linear_data(rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> LinearData:
    """Standardise and stack both sides."""
    scaler = fit_scaler([rows_id.features, rows_u.features], [weight_id, weight_u])
    # Sums of a fit that is the same wherever its rows are, in one memory or in many, are made in float64.
    design = Design([(rows_id.features,), (rows_u.features,)], (scaler,), dtype=np.float64)
    unlabeled = np.repeat([False, True], [len(rows_id), len(rows_u)])
    return LinearData(design, scaler, unlabeled, np.concatenate([weight_id, weight_u]))


def to_ratio(fit: Fit, scaler: Scaler, log_odds_u: float) -> LinearRatio:
    """Turn a fit into log g."""
    return LinearRatio(scaler, fit.theta, fit.intercept - log_odds_u - float(np.log(fit.pi)))


def select_l2(data: LinearData, fold: NDArray[Any], pi: float | None, grid: tuple[float, ...] = L2_GRID) -> float:
    """Choose the penalty by held-out likelihood, along a warm-started path from strong to weak."""
    d = data.design.n_columns
    total = np.zeros(len(grid))
    for k in np.unique(fold):
        inside = data.weight * (fold != k)
        outside = data.weight * (fold == k)
        warm: Fit | None = None
        for index, l2 in enumerate(grid):
            fit = fit_likelihood(
                data.design, data.unlabeled, inside / inside.sum(), np.full(d, l2), pi=pi, warm=warm, max_iter=100
            )
            total[index] += mean_loss(fit, data, outside)
            warm = fit if pi is not None else None
    return grid[int(np.argmin(total))]


def mean_loss(fit: Fit, data: LinearData, weight: Floats) -> float:
    """Return the weighted log-loss of a fit."""
    params = np.r_[fit.theta, fit.intercept]
    value, _ = objective(params, data.design, data.unlabeled, weight, np.zeros(len(fit.theta)), data.log_odds_u, fit.pi)
    return value


def information(fit: Fit, design: Columns, weight: Floats, log_odds_u: float) -> Floats:
    """Return the expected information of one row about (theta, intercept, logit(pi)): a sum, so that of parts adds up."""
    d = design.n_columns
    la = log_a(fit.pi, log_odds_u)
    info = np.zeros((d + 2, d + 2))
    for rows, block in design.blocks():
        u = (block @ fit.theta.astype(block.dtype)).astype(np.float64) + fit.intercept
        top = np.logaddexp(np.logaddexp(0.0, la), u)  # log(1 + a + e^u)
        log_p = np.logaddexp(la, u) - top
        # d p / d u = e^u / (1 + a + e^u)^2, d p / d logit(pi) = -a pi / (1 + a + e^u)^2; p (1 - p) is the variance.
        half = 0.5 * (log_p - top) + top
        by_u = np.exp(u - top - half)
        by_pi = -fit.pi * np.exp(la - top - half)
        root = np.sqrt(weight[rows])
        jacobian = np.concatenate(
            [
                block * (by_u * root).astype(block.dtype)[:, None],
                np.stack([by_u * root, by_pi * root], axis=1).astype(block.dtype),
            ],
            axis=1,
        )
        info += jacobian.T @ jacobian
    return info


def prior_standard_error(info: Floats, n: float) -> float:
    """Return the standard error of logit(pi) in a joint fit, from the expected information."""
    info = n * info
    size = len(info)
    info[np.diag_indices(size)] += 1e-9 * np.trace(info) / size
    try:
        variance = float(np.linalg.inv(info)[-1, -1])
    except np.linalg.LinAlgError:
        return float("inf")
    return float(np.sqrt(variance)) if variance > 0 else float("inf")


def wald_interval(pi: float, se: float, z: float) -> tuple[float, float]:
    """Return an interval on the logit scale."""
    if not np.isfinite(se) or se > 50.0 or pi >= 1.0:
        return 0.0, 1.0
    centre = float(logit(pi))
    return float(expit(centre - z * se)), float(expit(centre + z * se))
