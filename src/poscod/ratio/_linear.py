# SPDX-License-Identifier: BSD-3-Clause
"""A fitted linear u on standardised features, and fits that need nothing but features.

Convention: coefficients belong to standardised columns; ``log g = u - log(pi_U / (1 - pi_U)) - log pi``. `Joint` is what a fit
reads of rows that may be elsewhere, `LinearData` the same in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from poscod._validation import Floats
from poscod.ratio._design import Columns, Design, Scaler, cache_blocks, fit_scaler
from poscod.ratio._likelihood import Fit, fit_likelihood, log_a, loss_sums
from poscod.ratio._rows import Rows, content_folds, row_hash

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
class Joint:
    """Rows of both sides, in memory or elsewhere, as a joint fit reads them: sums over all rows.

    Attributes
    ----------
    scaler : Scaler
        Of the columns.
    log_odds_u : float
        log(pi_U / (1 - pi_U)).
    size : float
        Effective number of rows: the squared sum of weights over the sum of squared weights.
    loss : callable
        (params, pi) -> mean negative log-likelihood and its gradient, see `loss_sums`.
    information : callable
        fit -> mean information of a row, see `information`.
    """

    scaler: Scaler
    log_odds_u: float
    size: float
    loss: Callable[[Floats, float | None], tuple[float, Floats]]
    information: Callable[[Fit], Floats]


@dataclass(frozen=True)
class LinearData:
    """Both sides, stacked and standardised in memory; weights sum to one."""

    sides: tuple[Rows, Rows]
    design: Design
    scaler: Scaler
    unlabeled: NDArray[np.bool_]
    weight: Floats

    @property
    def log_odds_u(self) -> float:
        """log(pi_U / (1 - pi_U))."""
        return float(logit(self.weight[self.unlabeled].sum()))

    @property
    def joint(self) -> Joint:
        """What a joint fit reads."""
        odds, size = self.log_odds_u, 1.0 / float(np.sum(self.weight**2))
        return Joint(self.scaler, odds, size, self.loss, lambda fit: information(fit, self.design, self.weight, odds))

    def folds(self, k: int, seed: int) -> NDArray[np.int64]:
        """Return the fold of every row; equal rows share one."""
        hash_id, hash_u = (row_hash(rows.features, seed) for rows in self.sides)
        return np.concatenate(content_folds(hash_id, hash_u, k))

    def fit(
        self, l2: float, *, pi: float | None, weight: Floats | None = None, warm: Fit | None = None, max_iter: int = 300
    ) -> Fit:
        """Fit u with one penalty for all columns, on all rows or with other weights."""
        share = self.weight if weight is None else weight / weight.sum()
        penalty = np.full(self.design.n_columns, float(l2))
        return fit_likelihood(self.design, self.unlabeled, share, penalty, pi=pi, warm=warm, max_iter=max_iter)

    def loss(self, params: Floats, pi: float | None, weight: Floats | None = None) -> tuple[float, Floats]:
        """Return the negative log-likelihood and its gradient, weighted as the rows are or otherwise."""
        mass = self.weight if weight is None else weight
        return loss_sums(params, self.design, self.unlabeled, mass, self.log_odds_u, pi)


def linear_data(rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> LinearData:
    """Standardise and stack both sides."""
    scaler = fit_scaler([rows_id.features, rows_u.features], [weight_id, weight_u])
    # Sums of a fit that is the same wherever its rows are, in memory or on a cluster, are made in float64.
    design = Design([(rows_id.features,), (rows_u.features,)], (scaler,), dtype=np.float64)
    unlabeled = np.repeat([False, True], [len(rows_id), len(rows_u)])
    return LinearData((rows_id, rows_u), design, scaler, unlabeled, np.concatenate([weight_id, weight_u]))


def to_ratio(fit: Fit, scaler: Scaler, log_odds_u: float) -> LinearRatio:
    """Turn a fit into log g."""
    return LinearRatio(scaler, fit.theta, fit.intercept - log_odds_u - float(np.log(fit.pi)))


def select_l2(data: LinearData, fold: NDArray[Any], pi: float | None) -> float:
    """Choose the penalty by held-out likelihood, along a warm-started path from strong to weak."""
    total = np.zeros(len(L2_GRID))
    for k in np.unique(fold):
        warm: Fit | None = None
        for index, l2 in enumerate(L2_GRID):
            fit = data.fit(l2, pi=pi, weight=data.weight * (fold != k), warm=warm, max_iter=100)
            total[index] += data.loss(np.r_[fit.theta, fit.intercept], fit.pi, data.weight * (fold == k))[0]
            warm = fit if pi is not None else None
    return L2_GRID[int(np.argmin(total))]


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
