# SPDX-License-Identifier: BSD-3-Clause
"""Cross-fitted fits of the corrected sigmoid: every row gets a u from a model that has not seen it.

Convention: rows are sorted by fold, so that the rows outside a fold are two slices and no matrix is ever copied.
The columns are ``[consensus | evidence | features]``; a candidate uses a run of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logit

from poscod._validation import Floats
from poscod.ratio._design import cache_blocks
from poscod.ratio._likelihood import Fit, fit_likelihood, log_a, row_losses


@dataclass(frozen=True)
class Table:
    """Training rows sorted by fold: columns, side, weight, fold borders and the known part of u."""

    matrix: NDArray[Any]
    unlabeled: NDArray[np.bool_]
    weight: Floats
    borders: NDArray[np.int64]

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return len(self.borders) - 1

    @property
    def log_odds_u(self) -> float:
        """log(pi_U / (1 - pi_U))."""
        return float(logit(self.weight[self.unlabeled].sum() / self.weight.sum()))


class _Outside:
    """The rows outside one fold, as two views of the sorted matrix, with the interface of `Design`."""

    def __init__(self, matrix: NDArray[Any], columns: slice, start: int, stop: int) -> None:
        self._views = [matrix[:start, columns], matrix[stop:, columns]]
        self.n_columns = columns.stop - columns.start

    def blocks(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        first = 0
        for view in self._views:
            for block in cache_blocks(view):
                yield slice(first, first + len(block)), block
                first += len(block)


@dataclass(frozen=True)
class CrossFit:
    """One candidate: its fold models on a run of columns, the out-of-sample u and the held-out log-loss (a sum)."""

    fits: tuple[Fit, ...]
    u: Floats
    loss: float
    l2: Floats
    first: int

    @property
    def theta(self) -> Floats:
        """Mean coefficients of the fold models."""
        return np.asarray(np.mean([fit.theta for fit in self.fits], axis=0))

    @property
    def intercept(self) -> float:
        """Mean intercept of the fold models."""
        return float(np.mean([fit.intercept for fit in self.fits]))


def cross_fit(table: Table, l2: Floats, pi: float, offset: Floats, warm: CrossFit) -> CrossFit:
    """Fit one candidate on the rows outside each fold and score the fold."""
    columns = slice(warm.first, warm.first + len(l2))
    u = np.empty(len(offset))
    fits: list[Fit] = []
    for k in range(table.n_folds):
        start, stop = int(table.borders[k]), int(table.borders[k + 1])
        inside = slice(start, stop)
        z, w = np.delete(table.unlabeled, inside), np.delete(table.weight, inside)
        known = np.delete(offset, inside)
        theta = np.zeros(len(l2))
        theta[: len(warm.fits[k].theta)] = warm.fits[k].theta
        fit = fit_likelihood(
            _Outside(table.matrix, columns, start, stop),
            z,
            w / w.sum(),
            l2,
            pi=pi,
            warm=Fit(theta, warm.fits[k].intercept, pi, np.inf),
            offset=known,
            max_iter=100,
        )
        fits.append(fit)
        block = table.matrix[inside, columns]
        u[inside] = block @ fit.theta.astype(block.dtype) + fit.intercept + offset[inside]
    return CrossFit(tuple(fits), u, held_out_loss(u, table, pi), l2, warm.first)


def start_from(table: Table, pi: float, offset: Floats, first: int) -> CrossFit:
    """Return the candidate that is its offset and nothing else."""
    fit = Fit(np.zeros(0), 0.0, pi, np.inf)
    return CrossFit((fit,) * table.n_folds, offset, held_out_loss(offset, table, pi), np.zeros(0), first)


def held_out_loss(u: Floats, table: Table, pi: float) -> float:
    """Return the log-loss of u summed over rows, weights scaled to a mean of one."""
    loss, _ = row_losses(u, table.unlabeled, log_a(pi, table.log_odds_u))
    return float(table.weight @ loss) / float(table.weight.sum()) * len(u)


def recalibrate(u: Floats, table: Table, pi: float, *, spread: float = 0.5) -> tuple[float, float]:
    """Return (kappa, shift) of the two-parameter map kappa * u + shift with the best held-out likelihood."""
    n = len(u)
    weight = table.weight / table.weight.sum() * n
    la = log_a(pi, table.log_odds_u)

    def loss(q: Floats) -> tuple[float, Floats]:
        kappa = np.exp(q[0])
        value, slope = row_losses(kappa * u + q[1], table.unlabeled, la)
        slope *= weight
        total = float(weight @ value) + 0.5 * (q[0] / spread) ** 2
        return total / n, np.array([kappa * float(slope @ u) + q[0] / spread**2, float(slope.sum())]) / n

    before, _ = loss(np.zeros(2))
    result = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(-2.0, 2.0), (-20.0, 20.0)])
    if n * (before - float(result.fun)) <= 2.0:
        return 1.0, 0.0
    return float(np.exp(result.x[0])), float(result.x[1])
