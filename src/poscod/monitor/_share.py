# SPDX-License-Identifier: BSD-3-Clause
"""The OOD share of a window, from what was accepted and from the likelihood ratio.

Convention: p are cell shares of ID rows, u those of a second sample with OOD share pi_0, and a window with OOD share pi has shares
``(1 - eta) p + eta u`` with ``eta = pi / pi_0``: FPR is not needed to find eta, and the error of pi_0 only scales it. An interval
holds every pi that a test at level 1 - level does not reject, with the noise of the window, of p and of u in the test;
so it is honest where TPR and FPR are close, where it grows to [0, 1].

References
----------
.. [1] E. C. Fieller, "Some Problems in Interval Estimation", JRSS B 16(2), 1954.
.. [2] E. L. Korn, B. I. Graubard, "Confidence Intervals for Proportions with Small Expected Number of Positive Counts Estimated from
   Survey Data", Survey Methodology 24(2), 1998.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainc, ndtri

from poscod._validation import Floats
from poscod.metrics import Interval
from poscod.monitor._partitions import Counts

_GRID = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 240)])
_EM_STEPS = 500
# Weights are those of the likelihood at this pi or more: at pi = 0 they are unbounded, and one row decides.
_WEIGHTS_FROM = 0.05


class Shares(NamedTuple):
    """OOD shares of several windows.

    Attributes
    ----------
    estimate, low, high : ndarray of shape (W,)
        NaN and [0, 1] for windows without rows.
    """

    estimate: Floats
    low: Floats
    high: Floats

    def intervals(self, level: float) -> list[Interval]:
        """Return the interval of each window."""
        return [Interval(pi, low, high, level) for pi, low, high in np.transpose(self).tolist()]


def adjusted_count(
    accepted: Any, n: Any, known: tuple[int, int], mixed: tuple[int, float], prior: Interval, level: float
) -> Shares:
    """Estimate the OOD share of windows from how many rows they accept.

    Parameters
    ----------
    accepted, n : array-like of shape (W,)
        Accepted rows and all rows of each window.
    known, mixed : pair of int
        Accepted rows and all rows among ID rows and in the second sample.
    prior : Interval
        OOD share of the second sample; 1 for clean OOD rows.
    level : float in (0, 1)

    Returns
    -------
    shares : Shares

    Notes
    -----
    ``a = (1 - eta) T + eta A`` gives ``eta = (T - a) / (T - A)``; T, A and a are the shares accepted of ID rows, of the second
    sample and of the window. The test of a given eta: the window's count is binomial with a share that varies, with mean ``(1 - eta) T +
    eta A`` and the variance ``(1 - eta)^2 T (1 - T) / m + eta^2 A (1 - A) / n`` from the two samples; each tail gets half of the
    error (Korn and Graubard's way). Without a second sample FPR = 0 is assumed for estimate and lower end, and the upper end is 1.

    Examples
    --------
    >>> clean = Interval(1.0, 1.0, 1.0, 0.95)
    >>> share = adjusted_count([905], [1000], (1900, 2000), (20, 400), clean, 0.95)
    >>> share.estimate.round(3), share.low.round(3), share.high.round(3)
    (array([0.05]), array([0.028]), array([0.074]))
    """
    k, size = np.asarray(accepted, dtype=np.float64), np.asarray(n, dtype=np.float64)
    blind = mixed[1] == 0 or prior.estimate == 0.0
    if blind:
        mixed, prior = (0, math.inf), Interval(1.0, 1.0, 1.0, level)
    t, a, pi_0 = known[0] / known[1], mixed[0] / mixed[1], prior.estimate
    var_t, var_a = _variance(t, known[1]), _variance(a, mixed[1])
    tail = (1.0 - level) / 2.0

    def tails(pi: Floats) -> tuple[Floats, Floats]:
        eta = pi / pi_0
        mean = np.clip((1.0 - eta) * t + eta * a, 1e-9, 1.0 - 1e-9)
        return _tails(k, size, mean, (1.0 - eta) ** 2 * var_t + eta**2 * var_a)

    with np.errstate(invalid="ignore", divide="ignore"):
        estimate = np.clip((t - k / size) / (t - a) * pi_0, 0.0, 1.0) if t > a else np.full(k.shape, np.nan)
    low = _bisect(lambda pi: tails(pi)[0] < tail, k.shape)
    high = 1.0 - _bisect(lambda pi: tails(1.0 - pi)[1] < tail, k.shape)
    return _finish(estimate, low, np.ones(k.shape) if blind else high, size, prior)


def likelihood_share(counts: Counts, known: Counts, mixed: Counts, prior: Interval, level: float) -> Shares:
    """Estimate the OOD share of windows by maximum likelihood on cells.

    Parameters
    ----------
    counts : ndarray of shape (W, B)
        Rows of each window in each cell.
    known, mixed : ndarray of shape (B,)
        ID rows and rows of the second sample in each cell.
    prior : Interval
        OOD share of the second sample.
    level : float in (0, 1)

    Returns
    -------
    shares : Shares

    Notes
    -----
    With q the OOD shares of cells (from u at pi_0, see `ood_shares`), the log-likelihood ``sum_b c_b log((1 - pi) p_b + pi q_b)`` is
    concave in pi. Its derivative is the mean over the window of ``h_b = (q_b - p_b) / ((1 - pi) p_b + pi q_b)``, less its
    expectation. The estimate is its root; the interval is the score test's: it holds every pi with ``|mean_W(h) - (1 - eta)
    mean_p(h) - eta mean_u(h)| <= z sqrt(V_pi(h) / N + (1 - eta)^2 V_p(h) / m + eta^2 V_u(h) / n)`` (Fieller [1]_), V the
    variance of h under the window's law at pi, under p and under u, and z moved by skewness (the first term of Cornish and
    Fisher). The variance is that of the tested pi, so the interval is right at pi = 0, too. Below pi = 0.05 the weights h
    are those of 0.05: at 0 they are unbounded, and a single row would decide.

    References
    ----------
    .. [1] E. C. Fieller, "Some Problems in Interval Estimation", JRSS B 16(2), 1954.

    Examples
    --------
    >>> clean = Interval(1.0, 1.0, 1.0, 0.95)
    >>> share = likelihood_share(np.array([[700, 200, 100]]), np.array([800, 180, 20]), np.array([20, 50, 230]), clean, 0.95)
    >>> share.estimate.round(3), share.low.round(3), share.high.round(3)
    (array([0.11]), array([0.084]), array([0.141]))
    """
    size = counts.sum(axis=1).astype(np.float64)
    p, u, q = *(smooth(c) for c in (known, mixed)), ood_shares(known, mixed, prior.estimate)
    pi, eta = _GRID, _GRID / prior.estimate
    law = (1.0 - pi)[:, None] * p + pi[:, None] * q
    at = np.maximum(pi, _WEIGHTS_FROM)[:, None]
    h = (q - p) / ((1.0 - at) * p + at * q)
    known_mean, mixed_mean = h @ known / known.sum(), h @ mixed / mixed.sum()
    base = (1.0 - eta) * known_mean + eta * mixed_mean
    # Second and third cumulant of the difference, as functions of 1/N: those of the window's mean, and those of the samples.
    parts = [(law, 1.0, 1.0), (p, eta - 1.0, known.sum()), (u, -eta, mixed.sum())]
    (v_window, k_window), *others = (_cumulants(shares, h, factor, rows) for shares, factor, rows in parts)
    v_fixed, k_fixed = (sum(part[i] for part in others) for i in (0, 1))
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = v_window / size[:, None] + v_fixed
        z = (counts @ h.T / size[:, None] - base) / np.sqrt(variance)
        skew = (k_window / size[:, None] ** 2 + k_fixed) / variance**1.5
    bound = float(ndtri(0.5 + level / 2.0))
    # First term of Cornish and Fisher; a larger skewness than this is beyond its reach.
    shift = np.clip(skew, -2.0, 2.0) * (bound**2 - 1.0) / 6.0
    # The first pi that is not rejected from below, and the last one that is not from above.
    estimate = _crossing(np.minimum.accumulate(z, axis=1), 0.0)
    low = np.minimum(_crossing(np.minimum.accumulate(z - shift, axis=1), bound), estimate)
    high = np.maximum(_crossing(np.maximum.accumulate((z - shift)[:, ::-1], axis=1)[:, ::-1], -bound), estimate)
    return _finish(estimate, low, high, size, prior)


def smooth(counts: Counts) -> Floats:
    """Return cell shares with half a row added to each cell, so that none is zero."""
    return np.asarray((counts + 0.5) / (counts.sum() + 0.5 * len(counts)))


def ood_shares(known: Counts, mixed: Counts, prior: float) -> Floats:
    """Return the OOD shares of cells from a mixture with known OOD share.

    Examples
    --------
    >>> ood_shares(np.array([900, 100]), np.array([740, 260]), 0.2).round(2)
    array([0.1, 0.9])
    """
    p, u = smooth(known), smooth(mixed)
    q = u
    if prior < 1.0:
        for _ in range(_EM_STEPS):
            part = u * prior * q / ((1.0 - prior) * p + prior * q)
            q = part / part.sum()
        # A share that EM drives to zero is not known to be zero.
        q = np.maximum(q, 0.5 / (prior * mixed.sum() + 1.0))
        q = q / q.sum()
    return q


def _cumulants(shares: Floats, h: Floats, factor: Any, rows: Any) -> tuple[Floats, Floats]:
    """Return the second and third cumulant of factor times a mean of h over rows."""
    centred = h - (shares * h).sum(axis=-1, keepdims=True)
    return (
        factor**2 * (shares * centred**2).sum(axis=-1) / rows,
        factor**3 * (shares * centred**3).sum(axis=-1) / rows**2,
    )


def _variance(rate: float, rows: float) -> float:
    """Return the variance of a share; half a row on either side, because a share of exactly 0 or 1 is not known exactly."""
    inside = min(max(rate, 0.5 / rows), 1.0 - 0.5 / rows)
    return inside * (1.0 - inside) / rows


def _tails(k: Floats, n: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return P(X <= k) and P(X >= k) for a count whose share has a mean and a variance of its own.

    Notes
    -----
    Its variance is that of a binomial count times an effect; k and n are divided by it (Korn and Graubard [2]_), and the beta integral
    that gives the binomial tails takes the quotients. Without variance of the share the tails are exact.
    """
    effect = 1.0 + np.maximum(n - 1.0, 0.0) * variance / (mean * (1.0 - mean))
    k, rest = k / effect, (n - k) / effect
    below = np.where(rest > 0.0, betainc(np.maximum(rest, 1e-300), k + 1.0, 1.0 - mean), 1.0)
    above = np.where(k > 0.0, betainc(np.maximum(k, 1e-300), rest + 1.0, mean), 1.0)
    return below, above


def _bisect(reject: Any, shape: tuple[int, ...]) -> Floats:
    """Return the smallest pi in [0, 1] that is not rejected; 1 where all are."""
    low, high = np.zeros(shape), np.ones(shape)
    start = ~reject(low)
    for _ in range(40):
        middle = 0.5 * (low + high)
        out = reject(middle)
        low, high = np.where(out, middle, low), np.where(out, high, middle)
    return np.where(start, 0.0, high)


def _crossing(z: Floats, bound: float) -> Floats:
    """Return where each row of z, which falls along the grid, comes down to a bound; an end of the grid where it does not."""
    return np.array([np.interp(-bound, -row, _GRID) for row in z])


def _finish(estimate: Floats, low: Floats, high: Floats, size: Floats, prior: Interval) -> Shares:
    """Add the error of pi_0 (distances to the ends add in squares) and empty the windows that say nothing."""
    if prior.low < prior.high:
        rate = estimate / prior.estimate
        low = estimate - np.hypot(estimate - low, rate * (prior.estimate - prior.low))
        high = estimate + np.hypot(high - estimate, rate * (prior.high - prior.estimate))
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    empty = (size == 0) | np.isnan(estimate)
    return Shares(
        np.where(empty, np.nan, estimate), np.where(empty, 0.0, low), np.where(empty, 1.0, np.maximum(low, high))
    )
