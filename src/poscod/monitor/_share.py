# SPDX-License-Identifier: BSD-3-Clause
"""The OOD share of a window, whatever its class mix, from what was rejected and from the likelihood ratio.

Convention: a function of cells with mean 0 in every class says the OOD share alone: with D its mean in a window and U its mean in the second sample, whose OOD share is pi_0,
``pi = pi_0 D / U``. Neither FPR nor the class mix is needed, and the error of pi_0 only scales the answer. An interval holds every pi that a test at level
1 - level does not reject, with the noise of the window, of the ID rows of each class and of the second sample in the test; so it is honest where D says little, where it grows to [0, 1].

References
----------
.. [1] E. C. Fieller, "Some Problems in Interval Estimation", JRSS B 16(2), 1954.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from poscod._validation import Floats
from poscod.metrics import Interval
from poscod.monitor._laws import Laws
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


class _Moments(NamedTuple):
    """The first three moments of a function in each class (last row: in the second sample), and rows behind them."""

    raw: Floats
    n: Floats

    def cumulants(self) -> tuple[Floats, Floats]:
        """Return the second and third cumulant of the mean of each sample."""
        first, second, third = self.raw.T
        return (second - first**2) / self.n, (third - 3.0 * first * second + 2.0 * first**3) / self.n**2


def ood_share(counts: Counts, laws: Laws, f: Floats, mixes: Floats, prior: Interval, level: float) -> Shares:
    """Estimate the OOD share of windows from the mean of a function that is large on OOD inputs.

    Parameters
    ----------
    counts : ndarray of shape (W, B)
        Rows of each window in each cell.
    laws : Laws
        Of these cells; without a second sample every share is a lower bound.
    f : ndarray of shape (B,)
        The function; it is made neutral to the class mix.
    mixes : ndarray of shape (W, K)
        About the class mix of each window: only variances depend on it.
    prior : Interval
        OOD share of the second sample.
    level : float in (0, 1)

    Returns
    -------
    shares : Shares

    Notes
    -----
    The interval is the score test's: it holds every pi with ``|D - (1 - pi) q m - pi m_O| <= z sqrt(V_pi / N + sum_k a_k^2 V_k / n_k + eta^2 V_u / n_u)`` (Fieller [1]_),
    m the class means (0 but for rounding), ``m_O = (U - (1 - pi_0) q0 m) / pi_0``, ``eta = pi / pi_0``, ``a = (1 - pi) q - eta (1 - pi_0) q0``, V_pi the variance under the window's law at pi, and z
    moved by skewness (the first term of Cornish and Fisher). The variance is that of the tested pi, so the interval is right at pi = 0, too.
    """
    blind = not laws.n_mixed or prior.estimate <= 0.0
    phi, size = laws.neutral(f), counts.sum(axis=1).astype(np.float64)
    pi_0 = 1.0 if blind else prior.estimate
    moments, ood = _moments(laws, phi, pi_0, blind)
    variance, third = moments.cumulants()
    if not blind and ood[0] <= 0.0:
        nothing = np.full(len(size), np.nan)
        return _finish(nothing, nothing, nothing, size, prior)
    pi, eta = _GRID, _GRID / pi_0
    # The law of the window at every pi: moments of phi, windows by grid.
    known = mixes @ moments.raw[:-1]
    first, second, cube = (np.outer(known[:, i], 1.0 - pi) + ood[i] * pi for i in range(3))
    own = eta * (1.0 - pi_0)
    v_fixed = eta**2 * variance[-1] + _power(mixes, laws.mix, 1.0 - pi, own, variance[:-1], 2)
    k_fixed = -(eta**3) * third[-1] - _power(mixes, laws.mix, 1.0 - pi, own, third[:-1], 3)
    with np.errstate(invalid="ignore", divide="ignore"):
        n = size[:, None]
        spread = (second - first**2) / n + v_fixed
        z = (counts @ phi / size)[:, None] - first
        z = z / np.sqrt(spread)
        skew = ((cube - 3.0 * first * second + 2.0 * first**3) / n**2 + k_fixed) / spread**1.5
    bound = float(ndtri(0.5 + level / 2.0))
    # First term of Cornish and Fisher; a larger skewness than this is beyond its reach.
    shift = np.clip(skew, -2.0, 2.0) * (bound**2 - 1.0) / 6.0
    # The first pi that is not rejected from below, and the last one that is not from above.
    estimate = _crossing(np.minimum.accumulate(z, axis=1), 0.0)
    low = np.minimum(_crossing(np.minimum.accumulate(z - shift, axis=1), bound), estimate)
    high = np.maximum(_crossing(np.maximum.accumulate((z - shift)[:, ::-1], axis=1)[:, ::-1], -bound), estimate)
    return _finish(estimate, low, np.ones(len(size)) if blind else high, size, prior)


def direction(laws: Laws, n_bins: int, pi: float) -> Floats:
    """Return the weights of cells that tell pi from a little more pi best: those of the likelihood on bins of log g; bounded."""
    k = laws.n_answers + 1
    # Accepted and rejected rows of a bin count alike, and so do all answers.
    place = np.arange(len(laws.u)) // k % n_bins
    known, mixed = (np.bincount(place, part, n_bins).astype(np.float64) for part in (laws.mix @ laws.p, laws.u))
    p, u = smooth(known, laws.n.sum()), smooth(mixed, laws.n_mixed)
    q = ood_shares(p, u, laws.prior, laws.n_mixed)
    pi = min(max(pi, _WEIGHTS_FROM), 0.5)
    return np.asarray(((q - p) / ((1.0 - pi) * p + pi * q))[place])


def smooth(shares: Floats, rows: float) -> Floats:
    """Return cell shares with half a row added to each cell, so that none is zero."""
    return np.asarray((shares * rows + 0.5) / (rows + 0.5 * len(shares)))


def ood_shares(p: Floats, u: Floats, prior: float, rows: float) -> Floats:
    """Return the OOD shares of cells from those of ID rows and of a mixture with known OOD share.

    Examples
    --------
    >>> ood_shares(np.array([0.9, 0.1]), np.array([0.74, 0.26]), 0.2, 1000).round(2)
    array([0.1, 0.9])
    """
    q = u
    if prior < 1.0:
        for _ in range(_EM_STEPS):
            part = u * prior * q / ((1.0 - prior) * p + prior * q)
            q = part / part.sum()
        # A share that EM drives to zero is not known to be zero.
        q = np.maximum(q, 0.5 / (prior * rows + 1.0))
        q = q / q.sum()
    return q


def _moments(laws: Laws, phi: Floats, pi_0: float, blind: bool) -> tuple[_Moments, Floats]:
    """Return the moments of phi in each sample, and on OOD inputs."""
    powers = np.stack([phi, phi**2, phi**3], axis=1)
    # The mean is that of the rows themselves; around it, what was not seen is not impossible.
    mean, (first, second, third) = laws.p @ phi, (laws.smooth @ powers).T
    spread, tilt = second - first**2, third - 3.0 * first * second + 2.0 * first**3
    known = np.stack([mean, spread + mean**2, tilt + 3.0 * mean * spread + mean**3], axis=1)
    if blind:
        # Any OOD inputs at all: those that say most. So the share is bounded from below.
        ood = np.float64(phi.max()) ** np.arange(1, 4)
        return _Moments(np.vstack([known, ood]), np.append(laws.n, np.inf)), ood
    mixed = laws.u @ powers
    ood = (mixed - (1.0 - pi_0) * (laws.mix @ laws.p @ powers)) / pi_0
    # Moments of a difference of laws need not be those of a law.
    ood[1] = max(ood[1], ood[0] ** 2)
    return _Moments(np.vstack([known, mixed]), np.append(laws.n, laws.n_mixed)), ood


def _power(q: Floats, own: Floats, a: Floats, b: Floats, weight: Floats, power: int) -> Floats:
    """Return ``sum_k weight_k (a q_k - b own_k)^power`` for every window and every value of a and b."""
    terms = []
    for i in range(power + 1):
        sign = 1.0 if i % 2 == 0 else -1.0
        times = 1.0 if i in (0, power) else float(power)
        terms.append(sign * times * np.outer(q ** (power - i) * own**i @ weight, a ** (power - i) * b**i))
    return np.asarray(sum(terms))


def _crossing(z: Floats, bound: float) -> Floats:
    """Return where each row of z, which falls along the grid, comes down to a bound; an end of the grid where it does not."""
    return np.array([np.interp(-bound, -row, _GRID) for row in z])


def _finish(estimate: Floats, low: Floats, high: Floats, size: Floats, prior: Interval) -> Shares:
    """Add the error of pi_0 (distances to the ends add in squares) and empty the windows that say nothing."""
    if prior.estimate <= 0.0:  # nothing is known of OOD rows: shares are bounds from below
        high = np.ones(len(high))
    elif prior.low < prior.high:
        rate = estimate / prior.estimate
        low = estimate - np.hypot(estimate - low, rate * (prior.estimate - prior.low))
        high = estimate + np.hypot(high - estimate, rate * (prior.high - prior.estimate))
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    empty = (size == 0) | np.isnan(estimate)
    return Shares(
        np.where(empty, np.nan, estimate), np.where(empty, 0.0, low), np.where(empty, 1.0, np.maximum(low, high))
    )
