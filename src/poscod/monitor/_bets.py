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

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtri

from poscod._validation import Floats
from poscod.monitor._laws import ROUNDS, Laws
from poscod.monitor._partitions import Counts

STAKES = (0.01, 0.03, 0.1, 0.25, 0.6, 0.95)
"""Shares of the largest possible stake that gamblers take; which is best depends on the size of the change."""


def above(laws: Laws, f: Floats, limit: float, delta: float, *, known: bool) -> Floats:
    """Return a payoff for "more than a limit is OOD", whatever the class mix: from a function that is large on OOD inputs.

    Notes
    -----
    Its mean is at most 0 in every class, and in every class with the limit of OOD inputs added: those of the second sample, or, where that is not
    known, any at all. Means are linear in the share, so both ends of [0, limit] are enough.
    """
    z, none = -float(ndtri(delta)), np.zeros(len(laws.n))
    eta = limit / laws.prior if known else 0.0
    common = -eta * (1.0 - laws.prior) * laws.mix

    def excess(f: Floats) -> tuple[Floats, float]:
        beyond = laws.bounds(f, 1.0 - limit, common, eta, z) + (0.0 if known else limit * float(f.max()))
        return np.maximum(laws.bounds(f, 1.0, none, 0.0, z), beyond), -np.inf

    return _fair(laws, f, excess)


def unexplained(laws: Laws, f: Floats, delta: float, plus: Floats | None = None) -> Floats:
    """Return a payoff for "the mean of f is larger than any class mix and any OOD share let expect".

    Notes
    -----
    Its mean is at most 0 in every class and on OOD inputs, hence in every window. Where OOD inputs are not known they are taken to be rejected ones of any
    kind. ``plus`` is added where classes are bounded: then the mean is at most that of -plus, for whatever classes there are.
    """
    z, none = -float(ndtri(delta)), np.zeros(len(laws.n))
    add = np.zeros(len(f)) if plus is None else plus
    eta = 1.0 / laws.prior if laws.known else 0.0
    ood = -eta * (1.0 - laws.prior) * laws.mix

    def excess(f: Floats) -> tuple[Floats, float]:
        rejected = f[laws.layout.rejected].max(initial=-np.inf)
        beyond = laws.bounds(f, 0.0, ood, eta, z)[0] if laws.known else rejected
        return laws.bounds(f + add, 1.0, none, 0.0, z), float(beyond)

    return _fair(laws, f, excess)


def _fair(laws: Laws, f: Floats, excess: Callable[[Floats], tuple[Floats, float]]) -> Floats:
    """Take off what is too much, class by class where answers tell the class, and what is left from all."""
    control = laws.control if laws.known else laws.rejected
    gap = laws.ood_mean(control) if laws.known else 1.0
    for _ in range(ROUNDS):
        by_class, beyond = excess(f)
        f = f - laws.on_answers(by_class)
        beyond = excess(f)[1]
        if beyond > 0.0:
            f = f - beyond / gap * control
    by_class, beyond = excess(f)
    f = f - max(0.0, float(by_class.max()), beyond)
    # Whoever answers what the reference does not know is another model: nobody wins by that.
    return _scale(np.where(laws.layout.answer == laws.n_answers, np.minimum(f, 0.0), f))


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
