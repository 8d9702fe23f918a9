# SPDX-License-Identifier: BSD-3-Clause
"""Cross-fitted fits of the corrected sigmoid: every row gets a u from a model that has not seen it.

Convention: rows are ID rows, then unlabeled ones. Column k of a fit is the model of the rows outside fold k, the last column that of all rows; all of them
are fitted at once, so that a pass over the rows serves every fold. Columns of the matrix are ``[consensus | evidence | features]``; a candidate uses a
run of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import logit

from poscod._validation import Floats
from poscod.ratio._design import Columns, cache_blocks
from poscod.ratio._likelihood import log_a

# A fit ends when one more step should win less than this in the log-likelihood of all rows together, by the curvature where it began. What is left to
# win (below one half in the tests) is what a single parameter wins by chance; a second look at the curvature made fits dearer and no better.
ENOUGH = 0.01
ITERATIONS = 30
MEMORY = 8
# Standard deviation of log kappa, see `recalibrate`.
SPREAD = 0.5
# Products that one estimate of the curvature may cost; it is a metric, so some rows will do.
METRIC_PRODUCTS = 4e8
METRIC_ROWS = 2000
LEAST_INFORMATION = 0.1
# Beyond this the exponential of u is left alone and the loss continued by its asymptote.
FAR = 600.0
# Columns up to which products of a matrix with a few vectors are made at once, and the curvature is a matrix.
WIDE, DENSE = 128, 768

Metric: TypeAlias = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Table:
    """Rows to fit on: columns, number of ID rows, weight and fold of each row, and what people said of it (see `side_losses`), if they did."""

    design: Columns
    n_id: int
    weight: Floats
    fold: NDArray[np.int64]
    n_folds: int
    said: NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def log_odds_u(self) -> float:
        """log(pi_U / (1 - pi_U))."""
        return float(logit(self.weight[self.n_id :].sum() / self.weight.sum()))

    def masses(self) -> Floats:
        """Return the weight of each row in each fit; a side counts the same in all of them, so that a is one number."""
        mass = self.weight[:, None] * (self.fold[:, None] != np.arange(self.n_folds + 1))
        for side in (slice(None, self.n_id), slice(self.n_id, None)):
            total = mass[side].sum(axis=0)
            mass[side] *= self.weight[side].sum() / np.where(total > 0.0, total, 1.0)
        return np.asarray(mass / self.weight.sum())


class InMemory:
    """A matrix that is there, with a run of its columns as the columns."""

    def __init__(self, matrix: NDArray[Any], columns: slice = slice(None)) -> None:
        self.matrix = matrix[:, columns]
        self.n_columns = self.matrix.shape[1]

    def blocks(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Iterate over (rows, block)."""
        first = 0
        for block in cache_blocks(self.matrix):
            yield slice(first, first + len(block)), block
            first += len(block)


@dataclass(frozen=True)
class CrossFit:
    """One candidate: models of the folds and of all rows on a run of columns, the out-of-sample u and the held-out log-loss (sums, one a fold).

    ``params`` has a row per column and one for the intercept, and a column per model; u is ``kappa * (that of the model) + shift``, see `recalibrate`, and
    ``raw_loss`` the held-out log-loss without that.
    """

    params: Floats
    u: Floats
    losses: Floats
    l2: Floats
    first: int
    raw_loss: float
    kappa: float = 1.0
    shift: float = 0.0

    @property
    def loss(self) -> float:
        """Held-out log-loss of all rows."""
        return float(self.losses.sum())

    @property
    def theta(self) -> Floats:
        """Coefficients of the model of all rows."""
        return np.asarray(self.params[:-1, -1])

    @property
    def intercept(self) -> float:
        """Intercept of the model of all rows."""
        return float(self.params[-1, -1])


def start_from(table: Table, pi: float, offset: Floats, first: int) -> CrossFit:
    """Return the candidate that is its offset and nothing else."""
    losses = held_out_losses(offset, table, pi)
    return CrossFit(np.zeros((1, table.n_folds + 1)), offset, losses, np.zeros(0), first, float(losses.sum()))


def cross_fit(table: Table, l2: Floats, pi: float, offset: Floats, warm: CrossFit) -> CrossFit:
    """Fit one candidate, on the rows outside each fold and on all, from where another one ended."""
    size = len(warm.params) - 1
    params = np.zeros((len(l2) + 1, table.n_folds + 1))
    params[:size], params[-1] = warm.params[:-1], warm.params[-1]
    columns = slice(warm.first, warm.first + len(l2))
    if isinstance(table.design, InMemory):
        table = replace(table, design=InMemory(table.design.matrix, columns))
    problem = _Problem(table, np.r_[l2, 0.0], pi, offset)
    params = problem.minimise(params, problem.metric((warm.u - warm.shift) / warm.kappa))
    raw = problem.own(params)
    kappa, shift = recalibrate(raw, table, pi)
    u = kappa * raw + shift
    raw_loss = float(held_out_losses(raw, table, pi).sum())
    return CrossFit(params, u, held_out_losses(u, table, pi), l2, warm.first, raw_loss, kappa, shift)


class _Problem:
    """Penalised likelihoods of several models that differ in the weights of the rows."""

    def __init__(self, table: Table, l2: Floats, pi: float, offset: Floats) -> None:
        self._table, self._l2, self._offset = table, l2, offset
        self._la, self._null = log_a(pi, table.log_odds_u), table.log_odds_u + np.log(pi)
        self._mass = table.masses()

    def minimise(self, params: Floats, metric: Metric) -> Floats:
        """Return the minimiser of each column: L-BFGS whose first metric is the expected curvature."""
        value, slope = self._evaluate(params)
        steps: list[tuple[Floats, Floats, Floats]] = []
        longest = np.ones(params.shape[1])
        for _ in range(ITERATIONS):
            direction = _direction(slope, steps, metric)
            gain = np.einsum("ij,ij->j", slope, direction)
            worse = gain >= 0.0  # curvature of another place: forget it
            if worse.any():
                steps = []
                direction = -metric(slope)
                gain = np.einsum("ij,ij->j", slope, direction)
            open_ = -gain * len(self._table) > 2.0 * ENOUGH
            if not open_.any():
                break
            length = np.where(open_, longest, 0.0)
            for _ in range(12):
                new_params = params + length * direction
                new_value, new_slope = self._evaluate(new_params)
                short = open_ & ~(new_value <= value + 1e-4 * length * gain)
                if not short.any():
                    break
                length = np.where(short, 0.4 * length, length)
            else:
                new_params = np.where(short, params, new_params)
                new_value, new_slope = self._evaluate(new_params)
                if (open_ & ~short).sum() == 0:
                    break
            longest = np.where(open_, np.minimum(1.0, 2.5 * length), longest)
            move, turn = new_params - params, new_slope - slope
            curvature = np.einsum("ij,ij->j", move, turn)
            inverse = np.where(curvature > 1e-12 * np.einsum("ij,ij->j", turn, turn), 1.0, 0.0)
            inverse /= np.where(inverse > 0.0, curvature, 1.0)
            steps = [*steps[-MEMORY + 1 :], (move, turn, inverse)]
            params, value, slope = new_params, new_value, new_slope
        return params

    def own(self, params: Floats) -> Floats:
        """Return u of each row by the model of its own fold."""
        out = np.empty(len(self._table))
        for rows, block in self._table.design.blocks():
            u = block @ params[:-1].astype(block.dtype)
            fold = self._table.fold[rows]
            out[rows] = u[np.arange(len(u)), fold] + params[-1, fold]
        return out + self._offset

    def metric(self, u: Floats) -> Metric:
        """Return what divides by the expected curvature where rows have these u; from some of the rows where there are many."""
        table, c = self._table, self._table.design.n_columns
        step = max(1, int(len(table) // max(METRIC_ROWS, METRIC_PRODUCTS // (c * c))))
        # Where rows say nothing a step would have no limit: they count at least a little of what they say at g = 1.
        null = _information(np.array(self._null), self._la)
        weight = self._mass[:, -1] * np.maximum(_information(u, self._la), LEAST_INFORMATION * null) * step
        if c > DENSE:
            return self._diagonal(weight, step)
        gram = np.zeros((c + 1, c + 1))
        for rows, block in table.design.blocks():
            part = slice(-rows.start % step, None, step)
            w = weight[rows][part]
            scaled = block[part] * np.sqrt(w).astype(block.dtype)[:, None]
            gram[:-1, :-1] += scaled.T @ scaled
            gram[-1, :-1] += w.astype(block.dtype) @ block[part]
            gram[-1, -1] += w.sum()
        gram[:-1, -1] = gram[-1, :-1]
        gram[np.diag_indices(c + 1)] += self._l2 + 1e-6 * np.trace(gram) / (c + 1) + 1e-15
        factor = cho_factor(gram, overwrite_a=True, check_finite=False)
        return lambda slope: cho_solve(factor, slope, check_finite=False)

    def _diagonal(self, weight: Floats, step: int) -> Metric:
        """Return the same without products of columns, for very many of them."""
        diagonal = np.zeros(self._table.design.n_columns + 1)
        for rows, block in self._table.design.blocks():
            part = slice(-rows.start % step, None, step)
            w = weight[rows][part].astype(block.dtype)
            diagonal[:-1] += w @ np.square(block[part])
            diagonal[-1] += w.sum()
        diagonal += self._l2 + 1e-6 * diagonal.mean() + 1e-15
        return lambda slope: np.asarray(slope / diagonal[:, None])

    def _evaluate(self, params: Floats) -> tuple[Floats, Floats]:
        """Return the objective of each model and its gradient."""
        value, slope = np.zeros(params.shape[1]), np.zeros_like(params)
        for rows, block in self._table.design.blocks():
            u = _times(block, params[:-1])
            u += params[-1]
            u += self._offset[rows, None]
            said = None if self._table.said is None else self._table.said[rows]
            loss, by_u = side_losses(u, min(max(self._table.n_id - rows.start, 0), len(u)), self._la, said)
            mass = self._mass[rows]
            by_u *= mass
            value += np.einsum("ij,ij->j", mass, loss)
            slope[:-1] += _times(block.T, by_u)
            slope[-1] += by_u.sum(axis=0)
        penalty = self._l2[:, None] * params
        return value + 0.5 * np.einsum("ij,ij->j", penalty, params), slope + penalty


def _times(matrix: NDArray[Any], columns: Floats) -> Floats:
    """Return the product with a few columns, in the type of the matrix; libraries pad a few columns to many, so wide rows take them one by one."""
    narrow = columns.astype(matrix.dtype, order="F")
    if min(matrix.shape) < WIDE:
        return (matrix @ narrow).astype(np.float64)
    return np.stack([matrix @ narrow[:, k] for k in range(narrow.shape[1])], axis=1).astype(np.float64)


def _direction(slope: Floats, steps: list[tuple[Floats, Floats, Floats]], metric: Metric) -> Floats:
    """Return the quasi-Newton direction of each column (two loops over the last steps)."""
    q = slope.copy()
    back = []
    for move, turn, inverse in reversed(steps):
        share = inverse * np.einsum("ij,ij->j", move, q)
        q -= share * turn
        back.append(share)
    r = metric(q)
    for (move, turn, inverse), share in zip(steps, reversed(back), strict=True):
        r += (share - inverse * np.einsum("ij,ij->j", turn, r)) * move
    return np.asarray(-r)


def side_losses(u: Floats, n_id: int, la: float, said: NDArray[np.int8] | None = None) -> tuple[Floats, Floats]:
    """Return loss and slope like `row_losses`, for a block whose first n_id rows are ID: one exponential and one logarithm a row.

    An unlabeled row has the likelihood (a + e^u) / (1 + a + e^u). Where people said that it is OOD (1) or known (-1), only that part of the sum is left: e^u or a.
    """
    a = np.exp(la)
    far = bool(np.abs(u).max(initial=0.0) > FAR)
    near = np.clip(u, -FAR, FAR) if far else u
    e = np.exp(near)
    top = e + (1.0 + a)
    slope = e / top
    loss = np.empty_like(u)
    np.log(top[:n_id], out=loss[:n_id])
    inverse = 1.0 / (e[n_id:] + a)
    np.log1p(inverse, out=loss[n_id:])
    slope[n_id:] *= -inverse
    if far:
        loss[:n_id] += np.maximum(u[:n_id] - FAR, 0.0)
        if a == 0.0:
            loss[n_id:] += np.maximum(-FAR - u[n_id:], 0.0)
    if said is not None:
        for at, part in ((np.flatnonzero(said > 0), u), (np.flatnonzero(said < 0), np.full_like(u, la))):
            loss[at] = np.log(top[at]) + np.maximum(u[at] - FAR, 0.0) - part[at]
            slope[at] = e[at] / top[at] - float(part is u)
    return loss, slope


def _information(u: Floats, la: float) -> Floats:
    """Return the expected information of a row about its u: (dp / du)^2 / (p (1 - p)) with p = (a + e^u) / (1 + a + e^u)."""
    a, e = np.exp(la), np.exp(np.clip(u, -FAR / 2.0, FAR / 4.0))
    return np.asarray((e / (1.0 + a + e)) ** 2 / (a + e))


def held_out_losses(u: Floats, table: Table, pi: float) -> Floats:
    """Return the log-loss of u summed over the rows of each fold, weights scaled to a mean of one."""
    loss, _ = side_losses(u, table.n_id, log_a(pi, table.log_odds_u), table.said)
    return np.bincount(table.fold, table.weight * loss, table.n_folds) / float(table.weight.sum()) * len(u)


def recalibrate(u: Floats, table: Table, pi: float) -> tuple[float, float]:
    """Return (kappa, shift) of the two-parameter map kappa * u + shift with the best held-out likelihood.

    A penalty shrinks u, all the more where OOD rows are few: the direction may be right and the scale far too small. Held-out rows tell. log kappa has a
    normal prior with standard deviation `SPREAD`, and a map that wins no more than its two parameters would by chance is not used.
    """
    n, la = len(u), log_a(pi, table.log_odds_u)
    weight = table.weight / table.weight.sum() * n

    def loss(q: Floats) -> tuple[float, Floats]:
        kappa = np.exp(q[0])
        value, slope = side_losses(kappa * u + q[1], table.n_id, la, table.said)
        slope *= weight
        total = float(weight @ value) + 0.5 * (q[0] / SPREAD) ** 2
        return total / n, np.array([kappa * float(slope @ u) + q[0] / SPREAD**2, float(slope.sum())]) / n

    before, _ = loss(np.zeros(2))
    result = minimize(
        loss,
        np.zeros(2),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-2.0, 2.0), (-20.0, 20.0)],
        options={"ftol": 0.1 * ENOUGH / n, "gtol": 1e-6},
    )
    if n * (before - float(result.fun)) <= 2.0:
        return 1.0, 0.0
    return float(np.exp(result.x[0])), float(result.x[1])
