# SPDX-License-Identifier: BSD-3-Clause
"""The class mix of a window, from the answers that its accepted rows got.

Convention: q is the mix of the ID part. Accepted rows are nearly all ID; ``s_a = (1 - pi) sum_k q_k C[k, a] + pi o_a`` is the share of rows that are accepted with the answer a, with C and o from the
reference (confusion by class, and OOD inputs that are accepted). So ``(1 - pi) q = (s - pi o) C^-1``, no label needed (Lipton et al., ICML 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2

from poscod._validation import Floats
from poscod.mix import LEAST_EXPECTED, groups_of, interval_of
from poscod.monitor._laws import Laws
from poscod.monitor._partitions import Counts
from poscod.monitor._share import Shares

# More rows than that say no more, and 1 - 1 / n is 1.
_MOST = 1e12
STEADY = 50.0
"""Rows of the served mix that are added to a window's where only a variance depends on its mix."""


class Mixes(NamedTuple):
    """Class mixes of several windows.

    Attributes
    ----------
    estimate, low, high : ndarray of shape (W, K)
        NaN and [0, 1] for windows that accepted nothing and for classes without ID rows.
    """

    estimate: Floats
    low: Floats
    high: Floats


class _Answers(NamedTuple):
    """What the reference knows of accepted answers: C, its rows, its inverse, and those of OOD inputs."""

    c: Floats
    n: Floats
    inverse: Floats
    ood: Floats


def rough_mixes(counts: Counts, laws: Laws) -> Floats:
    """Return about the class mix of each window, OOD inputs not allowed for: enough for variances."""
    answers, size = _answers(laws), counts[:, :-2].sum(axis=1, keepdims=True)
    share = np.clip(counts[:, :-2] / np.maximum(size, 1) @ answers.inverse, 0.0, None)
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1e-12)
    return np.asarray((size * share + STEADY * laws.mix) / (size * (share.sum(axis=1, keepdims=True) > 0) + STEADY))


def class_mixes(counts: Counts, laws: Laws, pi: Shares, level: float) -> Mixes:
    """Estimate the class mix of windows.

    Parameters
    ----------
    counts : ndarray of shape (W, K + 2)
        Rows of each window in the cells of "label".
    laws : Laws
        Of these cells.
    pi : Shares
        OOD shares of the windows, with intervals of the level.
    level : float in (0, 1)
        Coverage of each interval.

    Returns
    -------
    mixes : Mixes

    Notes
    -----
    Wilson's intervals of as many labels as there are ID rows, widened by what else there is (delta method): answers that are not labels, noise of C in each
    class, of o and of pi.
    """
    answers = _answers(laws)
    size = np.maximum(counts.sum(axis=1, keepdims=True), 1).astype(np.float64)
    s = counts[:, :-2] / size
    share = np.where(np.isnan(pi.estimate), 0.0, pi.estimate)[:, None]
    x = (s - share * answers.ood) @ answers.inverse
    square = answers.inverse**2
    variance = (s @ square - (s @ answers.inverse) ** 2) / size
    error = (pi.high - pi.low)[:, None] / (2.0 * float(ndtri(0.5 + level / 2.0)))
    variance = variance + (error * (answers.ood @ answers.inverse)) ** 2
    # An error of C in class j moves all shares, as far as the class has rows here or in the second sample, whose own noise is in o.
    each = (answers.c @ square - (answers.c @ answers.inverse) ** 2) / answers.n[:, None]
    x = np.clip(x, 0.0, None)
    rows = x**2
    if laws.known:
        eta, u = share / laws.prior, laws.u[:-2]
        variance = variance + eta**2 * (u @ square - (u @ answers.inverse) ** 2) / laws.n_mixed
        rows = (x + eta * (1.0 - laws.prior) * laws.mix) ** 2
    total = x.sum(axis=1, keepdims=True)
    empty = (counts[:, :-2].sum(axis=1, keepdims=True) == 0) | (total <= 0.0)
    total = np.where(empty, 1.0, total)
    variance = np.maximum(variance + rows @ np.maximum(each, 0.0), 0.0) / total**2
    estimate = x / total
    n = np.clip(size * total, 1.0, _MOST)
    low, high = interval_of(estimate, np.zeros_like(variance), n, level)
    # What the variance is more than that of n labels; distances to the ends add in squares.
    more = float(ndtri(0.5 + level / 2.0)) * np.sqrt(np.maximum(variance - estimate * (1.0 - estimate) / n, 0.0))
    low = np.clip(estimate - np.hypot(estimate - low, more), 0.0, 1.0)
    high = np.clip(estimate + np.hypot(high - estimate, more), 0.0, 1.0)
    full = [np.full((len(counts), laws.n_answers), value) for value in (np.nan, 0.0, 1.0)]
    for whole, part in zip(full, (estimate, low, high), strict=True):
        whole[:, laws.classes] = np.where(empty, whole[:, laws.classes], part)
    return Mixes(*full)


def unchanged(counts: Counts, laws: Laws, pi: Shares, level: float, covariance: Floats | None) -> float:
    """Return the p-value of "the class mix is the served one" for rows in the cells of "label".

    Notes
    -----
    Pearson's test of the answers of accepted rows, with the noise of C, of the served mix and of pi in the covariance; answers of fewer than 5 expected rows are
    compared together.
    """
    answers, seen = _answers(laws), counts[:-2].astype(np.float64)
    n = float(seen.sum())
    share = 0.0 if np.isnan(pi.estimate[0]) else float(pi.estimate[0])
    expected = (1.0 - share) * (laws.mix @ answers.c) + share * answers.ood
    total = float(expected.sum())
    if n < 2.0 * LEAST_EXPECTED or total <= 0.0:
        return 1.0
    # Shares among accepted rows: d(e / total) = (I - e 1' / total) de / total.
    share_of = expected / total
    turn = (np.eye(len(expected)) - np.outer(share_of, np.ones(len(expected)))) / total
    noise = np.zeros((len(expected), len(expected)))
    for k, (q, rows) in enumerate(zip(laws.mix, answers.n, strict=True)):
        noise += q**2 / rows * (np.diag(answers.c[k]) - np.outer(answers.c[k], answers.c[k]))
    if covariance is not None:
        noise += answers.c.T @ covariance @ answers.c
    slope = answers.ood - laws.mix @ answers.c
    width = float(pi.high[0] - pi.low[0])
    error = (width if np.isfinite(width) else 1.0) / (2.0 * float(ndtri(0.5 + level / 2.0)))
    noise = turn @ (noise + error**2 * np.outer(slope, slope)) @ turn.T
    pooled = (n * share_of + seen) / (2.0 * n)
    noise += (np.diag(pooled) - np.outer(pooled, pooled)) / n
    member = groups_of(pooled * n)
    gap, noise = member.T @ (seen / n - share_of), member.T @ noise @ member
    values, vectors = np.linalg.eigh(noise)
    kept = values > 1e-9 * values[-1]
    kept[0] = False
    if not kept.any():
        return 1.0
    return float(chi2.sf(np.sum((vectors.T @ gap)[kept] ** 2 / values[kept]), int(kept.sum())))


def _answers(laws: Laws) -> _Answers:
    """Return what is known of accepted answers, from the laws of "label"; each class has one row more that gets its own answer."""
    k = laws.p[:, :-2]
    own = np.zeros(k.shape)
    own[np.arange(len(own)), np.flatnonzero(laws.classes)] = k.sum(axis=1)
    inverse = np.linalg.pinv((laws.n[:, None] * k + own) / (laws.n[:, None] + 1.0), rcond=1e-6)
    ood = np.zeros(k.shape[1])
    if laws.known:
        ood = np.maximum(laws.u[:-2] - (1.0 - laws.prior) * (laws.mix @ k), 0.0) / laws.prior
    return _Answers(k, laws.n, np.asarray(inverse, dtype=np.float64), ood)
