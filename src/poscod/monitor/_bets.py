# SPDX-License-Identifier: BSD-3-Clause
"""Evidence against "nothing has changed" that may be watched all the time.

Convention: a payoff gives every cell a number of at least -1 whose mean is at most 0 as long as nothing is wrong. A gambler who
stakes on it multiplies the capital by ``1 + payoff`` at every row; capital of 1 / alpha is an alarm at level alpha. Capital
depends on counts alone, so it does not matter who counted, in which order, or how often anyone looked.

Notes
-----
Capital ``M = sum_j w_j sum_d v_d prod_{i >= j} prod_b (1 + f_d(b))^{c_ib}``: a gambler for every window j in which a change may begin and
for every payoff f_d, with shares w_j and v_d of the initial capital, ``sum w = sum v = 1``; c_ib are rows of window i in cell b.
Windows are counted from an origin that is fixed before any row is seen, j = ..., -1, 0, 1, ..., and ``w_j = 1 / (2 k (k + 1))`` with k = j + 1
from the origin on and k = -j before it. Proof that ``P(M ever reaches 1 / alpha) <= alpha``: a row that arrives, in whatever window and
order, multiplies terms by factors of conditional mean at most 1, and the w_j do not depend on rows, so M is a non-negative
supermartingale that starts at 1; that is Ville's inequality [1]_. Dropping old windows takes away whole terms, none negative.

References
----------
.. [1] J. Ville, "Etude critique de la notion de collectif", 1939; A. Ramdas, P. Grunwald, V. Vovk, G. Shafer,
   "Game-Theoretic Statistics and Safe Anytime-Valid Inference", Statistical Science 38(4), 2023.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtri

from poscod._validation import Floats
from poscod.monitor._partitions import Counts

STAKES = (0.01, 0.03, 0.1, 0.25, 0.6, 0.95)
"""Shares of the largest possible stake that gamblers take; which is best depends on the size of the change."""


class Laws(NamedTuple):
    """What windows look like while nothing is wrong: ``(1 - eta) p + eta u``, eta from 0 to eta_max.

    Attributes
    ----------
    p, u : ndarray of shape (B,)
        Shares of cells among ID rows and in the second sample.
    n_p, n_u : float
        Rows behind them; infinite for what is known.
    eta_max : float
        1 / pi_0: traffic that is OOD alone.
    """

    p: Floats
    u: Floats
    n_p: float
    n_u: float
    eta_max: float

    def mean(self, f: Floats, eta: float) -> float:
        """Return the mean of f in a window."""
        return float((1.0 - eta) * (self.p @ f) + eta * (self.u @ f))

    def margins(self, f: Floats, delta: float) -> tuple[float, float]:
        """Return how far the means of f under p and under u may be from their estimates, each with probability delta."""
        z = -float(ndtri(delta))
        return _margin(self.p, self.n_p, f, z), _margin(self.u, self.n_u, f, z)


def _margin(shares: Floats, rows: float, f: Floats, z: float) -> float:
    if rows == np.inf:
        return 0.0
    # Half a row in every cell: what was not seen is not impossible.
    law = (shares * rows + 0.5) / (rows + 0.5 * len(shares))
    spread = float(law @ f**2 - (law @ f) ** 2)
    return z * float(np.sqrt(spread / rows)) + z**2 * float(np.ptp(f)) / (6.0 * rows)


def above(laws: Laws, f: Floats, eta: float, delta: float) -> Floats:
    """Return a payoff for "eta is larger than a limit", from a function that grows with eta."""
    from_p, from_u = laws.margins(f, delta / 2.0)
    # The mean grows with eta, and the margin is convex in eta: both ends of [0, limit] must be at most 0.
    at_limit = laws.mean(f, eta) + abs(1.0 - eta) * from_p + eta * from_u
    return _scale(f - max(at_limit, laws.mean(f, 0.0) + from_p))


def unexplained(laws: Laws, f: Floats, control: Floats, delta: float) -> Floats:
    """Return a payoff for "the mean of f is larger than the mean of a control lets expect, whatever eta is".

    Notes
    -----
    ``f - kappa control`` with kappa such that its mean is the same under p and u has that mean for every eta. The margin
    ``|1 - eta| e_p + eta e_u`` for the errors of the samples is convex in eta; a line through its ends bounds it, and a line in eta is a
    mean of a + b control.
    """
    c_p, c_u = float(laws.p @ control), float(laws.u @ control)
    gap = c_u - c_p
    # A rule that rejects nothing has no control: then OOD inputs are not allowed for.
    kappa = float(laws.u @ f - laws.p @ f) / gap if gap > 0.0 else 0.0
    rest = f - kappa * control
    rest = rest - float(laws.p @ rest)
    from_p, from_u = laws.margins(rest, delta / 2.0)
    end = abs(laws.eta_max - 1.0) * from_p + laws.eta_max * from_u
    slope = max(0.0, (end - from_p) / (laws.eta_max * gap)) if gap > 0.0 else 0.0
    return _scale(rest - from_p - slope * (control - c_p))


def log_gains(counts: Counts, payoffs: list[Floats]) -> Floats:
    """Return what every gambler wins in each window: one for every payoff and every member of `STAKES`."""
    bets = np.concatenate([np.multiply.outer(np.array(STAKES), payoff) for payoff in payoffs])
    return np.asarray(counts @ np.log1p(bets).T)


def log_capital(gains: Floats, index: Any, *, dropped: bool = False) -> Floats:
    """Return the logarithm of all capital after each window.

    Examples
    --------
    >>> payoff = [np.array([-1.0, 1.0])]
    >>> honest, crooked = np.array([[50, 50]] * 3), np.array([[50, 50], [20, 80], [20, 80]])
    >>> bool(log_capital(log_gains(honest, payoff), [0, 1, 2]).max() < 0)
    True
    >>> bool(log_capital(log_gains(crooked, payoff), [0, 1, 2])[-1] > np.log(1000))
    True
    """
    number = np.asarray(index, dtype=np.float64)
    before = np.concatenate([[number[0] - 1.0 if dropped else -np.inf], number[:-1]])
    total = np.cumsum(gains, axis=0)
    # A gambler who begins in window j has won total[t] - total[j - 1] after window t.
    begin = np.log(shares(before, number))[:, None] - (total - gains)
    capital = total + np.logaddexp.accumulate(begin, axis=0)
    return np.asarray(logsumexp(capital, axis=1) - np.log(gains.shape[1]))


def shares(after: Any, upto: Any) -> Floats:
    """Return the shares of the initial capital for the windows after one and up to another: a telescoping sum.

    Examples
    --------
    >>> shares([-np.inf, -1, 0], [-1, 0, 1e9]).round(6).tolist()
    [0.5, 0.25, 0.25]
    """
    low, high = np.asarray(after, dtype=np.float64), np.asarray(upto, dtype=np.float64)
    early = 1.0 / np.minimum(low, -1.0) - 1.0 / np.minimum(high, -1.0)
    low, high = np.maximum(low, -1.0), np.maximum(high, -1.0)
    return np.asarray(0.5 * (early + (high - low) / ((low + 2.0) * (high + 2.0))))


def likely_begin(gains: Floats, index: Any) -> int:
    """Return the position of the window from which on the last capital grew most."""
    later = np.cumsum(gains[::-1], axis=0)[::-1]
    j = np.asarray(index, dtype=np.float64)
    return int(np.argmax((later + np.log(shares(j - 1.0, j))[:, None]).max(axis=1)))


def _scale(payoff: Floats) -> Floats:
    """Scale so that nobody can lose more than the stake."""
    worst = -float(payoff.min())
    return payoff / worst if worst > 0.0 else np.zeros(payoff.shape)
