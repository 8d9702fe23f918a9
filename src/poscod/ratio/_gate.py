# SPDX-License-Identifier: BSD-3-Clause
"""The gate: a test of "no OOD at all", before anything is learned from OOD rows.

Convention: a score is an uncertainty and out of sample. Under pi = 0 the two sides of a fold are exchangeable, so labels are permuted within folds. Weights stay
with their rows and need not be alike on both sides, so every statistic is divided by its own standard error, the permuted ones too: studentised, a
permutation test holds its level where the sides differ in weight.

References
----------
.. [1] E. Chung, J. P. Romano, "Exact and Asymptotically Robust Permutation Tests", Annals of Statistics 41(2), 2013.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from poscod._validation import Floats

TARGETS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.995)
FEW = (0.8, 0.95)
MAX_ROWS = 20000
LEAST_EXCEEDING = 5.0
"""Weighted rows, as so many equal ones, that a side must have beyond a quantile in expectation."""


def gate_p_value(
    scores: Sequence[Floats],
    unlabeled: NDArray[np.bool_],
    fold: NDArray[Any],
    weight: Floats,
    *,
    learned: Sequence[bool],
    few: Sequence[bool] | None = None,
    permutations: int = 399,
    seed: int = 0,
) -> float:
    """Test pi = 0 against "unlabeled rows have higher scores than ID rows have".

    The statistic is the largest difference of the weighted means of both sides, over ranks and exceedances of every score, in standard errors. Scores that were
    learned from the sides of the other folds are not given: with a_k the contrast of the sides in fold k, the score of fold k follows the sum of the other
    a_j, so the statistic holds every product a_j a_k twice, and its variance is twice that of the permutations. A learned score therefore counts by its
    statistic over sqrt(2). That is exact for scores that are linear in the contrasts and more than enough for others, such as trees: fold scores that answer to each other
    in full are the worst case (with trees alone a level of 0.05 is 0.00 to 0.02; undivided it would be 0.07 to 0.11). Every comparison costs the others power: a score that is there for what others cannot see is compared at `FEW` quantiles.
    """
    rng = np.random.default_rng(seed)
    keep = np.arange(len(unlabeled))
    if len(keep) > MAX_ROWS:
        keep = np.sort(rng.choice(keep, MAX_ROWS, replace=False))
    z, groups, w = unlabeled[keep], fold[keep], weight[keep] / weight[keep].mean()
    # Weighted rows are no normal mean where few of them exceed; equal ones are exchangeable however few.
    rows = min((_rows(w[side]) for side in (z, ~z) if np.ptp(w[side]) > 0.0), default=np.inf)
    targets = [target for target in TARGETS if (1.0 - target) * rows >= LEAST_EXCEEDING]
    columns: list[Floats] = []
    divisor: list[float] = []
    for score, own, brief in zip(scores, learned, few or [False] * len(scores), strict=True):
        s = score[keep]
        made = [(s > np.quantile(s, target)).astype(np.float64) for target in targets if target in FEW or not brief]
        columns += made if brief and made else [rankdata(s) / len(s), *made]
        divisor += [2.0**0.5 if own else 1.0] * (len(columns) - len(divisor))
    table = np.stack(columns, axis=1)
    top, variance = np.zeros((2, permutations + 1, table.shape[1]))
    for group in np.unique(groups):
        place = np.flatnonzero(groups == group)
        if z[place].all() or not z[place].any():
            continue
        labels = np.empty((permutations + 1, len(place)), dtype=np.float32)
        labels[0] = z[place]
        labels[1:] = rng.permuted(np.tile(labels[0], (permutations, 1)), axis=1)
        gap, noise = _contrast(labels, w[place], table[place])
        top += len(place) * gap
        variance += len(place) ** 2 * noise
    # Rounding of float32 sums is no spread.
    t = np.where(variance > 1e-9 * variance.max(initial=1e-300), top / np.sqrt(np.maximum(variance, 1e-300)), 0.0)
    t[0] /= divisor
    if not t.any():
        return 1.0
    statistic = t.max(axis=1)
    # Equal statistics count against the observed one.
    return float(np.mean(statistic >= statistic[0] - 1e-4))


def _rows(weight: Floats) -> float:
    """Return the number of equal rows that say as much as rows with these weights."""
    return float(weight.sum() ** 2 / max(float(np.sum(weight**2)), 1e-300))


def _contrast(labels: NDArray[np.float32], weight: Floats, table: Floats) -> tuple[Floats, Floats]:
    """Return the difference of the weighted means of both sides and its variance, for every assignment of rows to sides."""
    width = table.shape[1]
    s = table - np.average(table, axis=0, weights=weight)
    square = (weight**2)[:, None]
    sums = np.concatenate([weight[:, None], weight[:, None] * s, square, square * s, square * s**2], axis=1)
    inner = (labels @ sums.astype(np.float32)).astype(np.float64)
    means, variances = [], []
    for side in (inner, sums.sum(axis=0) - inner):
        total, first, total2, first2, second2 = np.split(side, np.cumsum([1, width, 1, width]), axis=1)
        mean = first / total
        means.append(mean)
        variances.append(np.maximum(second2 - 2.0 * mean * first2 + mean**2 * total2, 0.0) / total**2)
    return means[0] - means[1], variances[0] + variances[1]
