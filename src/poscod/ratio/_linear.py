# SPDX-License-Identifier: BSD-3-Clause
"""A fitted linear u on standardised features, and fits that need nothing but features.

Convention: coefficients belong to standardised columns; ``log g = u - log(pi_U / (1 - pi_U)) - log pi``. `Joint` is what a fit
reads of rows that may be elsewhere, `LinearData` the same in memory. Folds need their rows in memory: a penalty is chosen on at most `L2_ROWS`
of each side.
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
from poscod.ratio._likelihood import STARTS, Fit, fit_likelihood, log_a, loss_sums
from poscod.ratio._rows import Rows, content_folds, independent_rows, number_copies, pair_weights

FOLDED_MEAN = 100.0  # in standard deviations
# Priors that a warm start may begin with: near the edges the likelihood is flat in the prior.
WARM_PRIORS = (0.02, 0.9)
L2_ROWS = 20_000
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
        odds, parts = self.log_odds_u, np.split(self.weight, [len(self.sides[0])])
        # The sum of the squared weights of all groups: a side holds its squared weight divided by its independent rows.
        noise = sum(
            float(part.sum()) ** 2 / independent_rows(part, rows.group)
            for part, rows in zip(parts, self.sides, strict=True)
        )
        size = 1.0 / noise
        return Joint(self.scaler, odds, size, self.loss, lambda fit: information(fit, self.design, self.weight, odds))

    def folds(self, k: int, seed: int) -> NDArray[np.int64]:
        """Return the fold of every row; equal rows share one."""
        hash_id, hash_u = (rows.keys(seed) for rows in self.sides)
        return np.concatenate(content_folds(hash_id, hash_u, k))

    def fit(
        self, l2: float, *, pi: float | None, weight: Floats | None = None, warm: Fit | None = None, max_iter: int = 300
    ) -> Fit:
        """Fit u with one penalty for all columns, on all rows or with other weights."""
        share = self.weight if weight is None else weight / weight.sum()
        penalty = np.full(self.design.n_columns, float(l2))
        starts = STARTS if warm is None else (float(np.clip(warm.pi, *WARM_PRIORS)),)
        return fit_likelihood(
            self.design, self.unlabeled, share, penalty, pi=pi, starts=starts, warm=warm, max_iter=max_iter
        )

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
    """Choose the penalty by held-out likelihood, along a warm-started path."""
    total = np.zeros(len(L2_GRID))
    path = list(enumerate(L2_GRID))  # from strong to weak
    if pi is None:
        path.reverse()  # a strong penalty leaves a free prior at its edge, from where nothing leads back
    for k in np.unique(fold):
        warm: Fit | None = None
        for index, l2 in path:
            warm = data.fit(l2, pi=pi, weight=data.weight * (fold != k), warm=warm, max_iter=100)
            total[index] += data.loss(np.r_[warm.theta, warm.intercept], warm.pi, data.weight * (fold == k))[0]
    return L2_GRID[int(np.argmin(total))]


@dataclass(frozen=True)
class Chosen:
    """A penalty and, where it was chosen on a part of the rows, the fit of that part, from which that of all rows starts."""

    l2: float
    ratio: LinearRatio | None = None
    pi: float = 0.0

    def start(self, data: Joint) -> Fit | None:
        """Return u of the part in the columns of all rows."""
        if self.ratio is None:
            return None
        part, scaler = self.ratio.scaler, data.scaler
        weights = self.ratio.theta / part.scale
        theta = np.where(np.isfinite(scaler.scale), weights * scaler.scale, 0.0)
        intercept = self.ratio.intercept + float(weights @ (scaler.mean - part.mean))
        return Fit(theta, intercept + data.log_odds_u + float(np.log(self.pi)), self.pi, float("nan"))


def choose_l2(
    lengths: tuple[int, int],
    hashes: Callable[[int], NDArray[np.uint64]],
    bring: Callable[[list[NDArray[np.intp]]], tuple[tuple[Rows, Rows], tuple[Floats | None, Floats | None]]],
    *,
    pi: float | None,
    n_folds: int,
    seed: int,
) -> Chosen:
    """Choose the penalty on at most `L2_ROWS` rows of each side, wherever they are.

    ``hashes(side)`` are those of `row_hash` and are asked for where a side has more rows; ``bring(places)`` returns rows and weights of
    some places of each side. Rows are drawn by content: in whatever order and place, the same ones.
    """
    places = []
    for side, n in enumerate(lengths):
        if n <= L2_ROWS:
            places.append(np.arange(n, dtype=np.intp))
        else:
            # Copies are drawn one by one: a row that is half of the table is half of the draw.
            places.append(np.sort(np.argpartition(number_copies(hashes(side)), L2_ROWS)[:L2_ROWS]))
    (rows_id, rows_u), weights = bring(places)
    data = linear_data(rows_id, rows_u, *pair_weights(*weights, len(rows_id), len(rows_u)))
    l2 = select_l2(data, data.folds(n_folds, seed), pi)
    if max(lengths) <= L2_ROWS:
        return Chosen(l2)
    fit = data.fit(l2, pi=pi)
    # Beside the sum over rows, not their mean, a penalty stands for what is known before: that does not grow with the rows.
    shrunk = l2 * (len(rows_id) + len(rows_u)) / sum(lengths)
    return Chosen(shrunk, to_ratio(fit, data.scaler, data.log_odds_u), fit.pi)


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
