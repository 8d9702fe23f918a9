# SPDX-License-Identifier: BSD-3-Clause
"""Evidence that something is larger than it was before, in the stream itself: no OOD sample, limit or calibration is needed for it.

Convention: a function of cells is watched. For every window j in which a rise may begin, the windows before j bound its mean from above, and a gambler stakes on more than
that bound from j on. Both sides are bets on counts, as in `poscod.monitor._bets`.

Notes
-----
Let v be the function, scaled to [0, 1]. *Before*: capital of a gambler who stakes against "the mean is at least m" with payoff ``(m - v) / (1 - m)`` grows with m, and the bound U_j is the m
at which it reaches 1 / delta on the windows before j; by Ville's inequality all bounds of a stream whose mean is constant hold at once with probability 1 - delta. *After*: payoff
``(v - c_j) / c_j`` with ``c_j = U_j + slack``; given the bounds it has a mean of at most 0 as long as nothing rises, so the sum of capitals over j, with the shares of `poscod.monitor._bets.shares`, is a
supermartingale, and 1 / alpha is reached with probability at most alpha. The union of both is the level of the alarm. Payoffs of j depend on windows before j alone. Rows that arrive late, in windows that others have
already bet on, and windows that are no longer kept change the bounds; then the level is approximate.

References
----------
.. [1] I. Waudby-Smith, A. Ramdas, "Estimating Means of Bounded Random Variables by Betting", JRSS B 86(1), 2024.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from poscod._validation import Floats
from poscod.monitor._bets import STAKES, shares
from poscod.monitor._partitions import Counts

LEVELS = 40
"""Values that a function is rounded to: any function of cells may be watched, and few values are quick."""
_HALVINGS = 25


class Rise(NamedTuple):
    """Evidence for a rise.

    Attributes
    ----------
    capital : ndarray of shape (W,)
        Logarithm of all capital after each window.
    starts : ndarray of shape (W, W)
        Of the gambler who begins in window j (row) after each window; -inf where there is none.
    """

    capital: Floats
    starts: Floats

    def begin_before(self, last: int) -> int:
        """Return the window from which on capital grew most, as seen before a window."""
        return int(np.argmax(self.starts[:, last - 1]))


def joined(parts: list[Rise]) -> Rise:
    """Return the evidence of several functions that share the capital."""
    share = np.log(len(parts))
    capital, starts = (logsumexp(np.stack(values), axis=0) - share for values in zip(*parts, strict=True))
    return Rise(np.asarray(capital), np.asarray(starts))


def rise(counts: Counts, f: Floats, index: Any, *, delta: float, slack: float = 0.0) -> Rise:
    """Watch the mean of a function of cells.

    Parameters
    ----------
    counts : ndarray of shape (W, B)
        Rows of each window in each cell, in the order of time.
    f : ndarray of shape (B,)
        The function.
    index : array-like of shape (W,)
        Numbers of the windows, from an origin that is fixed before any row is seen.
    delta : float in (0, 1)
        Probability that a bound of the past is too low.
    slack : float, default=0.0
        A rise of the mean that is none.

    Examples
    --------
    >>> calm, more = [[95, 5]] * 12, [[95, 5]] * 10 + [[80, 20]] * 2
    >>> [bool(rise(np.array(rows), np.array([0.0, 1.0]), range(12), delta=0.01).capital[-1] > np.log(100)) for rows in (calm, more)]
    [False, True]
    """
    number, width = np.asarray(index, dtype=np.float64), float(np.ptp(f))
    nothing = np.full((len(counts), len(counts)), -np.inf)
    if width <= 0.0 or len(counts) < 2:
        return Rise(np.full(len(counts), -np.inf), nothing)
    place = np.rint((f - f.min()) / width * (LEVELS - 1)).astype(np.int64)
    rows = np.zeros((len(counts), LEVELS))
    np.add.at(rows.T, place, counts.T)
    v = np.arange(LEVELS) / (LEVELS - 1)
    edge = _upper(np.cumsum(rows, axis=0) - rows, v, delta) + slack / width
    stakes = np.array(STAKES)
    weight = np.log(shares(number - 1.0, number)) - np.log(len(stakes))
    starts = nothing
    for j in np.flatnonzero(edge < 1.0).tolist():
        gains = rows[j:] @ np.log1p(np.multiply.outer(v / edge[j] - 1.0, stakes))
        starts[j, j:] = weight[j] + logsumexp(np.cumsum(gains, axis=0), axis=1)
    return Rise(np.asarray(logsumexp(starts, axis=0)), starts)


def _upper(rows: Floats, v: Floats, delta: float) -> Floats:
    """Return an upper bound of the mean for each line of counts: the least mean that a gambler refutes; 1 where none is."""
    need, stakes = -np.log(delta), np.array(STAKES)
    low, high = rows @ v / np.maximum(rows.sum(axis=1), 1.0), np.ones(len(rows))
    for _ in range(_HALVINGS):
        middle = np.minimum((low + high) / 2.0, 1.0 - 1e-9)
        payoff = (middle[:, None] - v) / (1.0 - middle[:, None])
        won = np.einsum("wl,wls->ws", rows, np.log1p(np.multiply.outer(payoff, stakes)))
        refuted = logsumexp(won, axis=1) - np.log(len(stakes)) >= need
        low, high = np.where(refuted, low, middle), np.where(refuted, middle, high)
    return np.asarray(high)
