# SPDX-License-Identifier: BSD-3-Clause
"""Rates that hold with a stated probability: a threshold with a certain TPR, and exact bounds of TPR and FPR.

Convention: delta is the probability, over the draw of the calibration rows, that a promise is broken; a promise is about
the **true** rate of the rule on fresh data. Rows must be independent draws that no part of the rule was fitted on. Nothing
is assumed about the distribution of scores; ties with lambda are accepted.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from poscod._validation import check_number, check_vector
from poscod.exceptions import InfeasibleProblemError
from poscod.metrics import binomial_interval


class GuaranteedThreshold(NamedTuple):
    """A threshold whose true TPR is at least tpr_min with probability at least 1 - delta.

    Attributes
    ----------
    threshold : float
        lambda: the rank-th smallest calibration score.
    tau : float
        Always 1: ties are accepted, so that the rule is deterministic.
    tpr : float
        Share of the calibration sample accepted; larger than tpr_min by the price of the promise.
    rank : int
        Which order statistic lambda is, counted from 1.
    confidence : float
        Probability with which the promise holds for scores without ties; at least 1 - delta, more with ties.
    """

    threshold: float
    tau: float
    tpr: float
    rank: int
    confidence: float


def guaranteed_threshold(score_id: Any, tpr_min: float, *, delta: float = 0.05) -> GuaranteedThreshold:
    """Choose lambda so that at least tpr_min of fresh ID inputs are accepted, with probability at least 1 - delta.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Rejection scores of ID rows that nothing was fitted or tuned on; infinities are allowed.
    tpr_min : float in (0, 1]
        Required share of fresh ID inputs; 1 cannot be promised and is refused.
    delta : float in (0, 1), default=0.05
        Probability, over the draw of these m rows, that the promise is broken.

    Returns
    -------
    threshold : GuaranteedThreshold
        Named tuple (threshold, tau, tpr, rank, confidence).

    Raises
    ------
    InfeasibleProblemError
        If m is smaller than `rows_needed`.

    Notes
    -----
    lambda is the k-th smallest of the m scores, with k the smallest whole number such that
    ``P(Bin(m, tpr_min) >= k) <= delta``, where Bin(m, p) counts successes in m trials of probability p.

    Proof. Let q be the smallest number with ``P(s <= q) >= tpr_min``. The TPR at lambda falls short only if lambda < q,
    i.e. if at least k of the m scores are below q. Each is, with probability ``P(s < q) <= tpr_min``, so the chance is at
    most ``P(Bin(m, tpr_min) >= k)``, with equality for continuous scores. Ties can only help.

    There are no sample weights: the number of weighted rows below q is not binomial, and no order statistic has a known
    law without knowing how weights and scores go together.

    Examples
    --------
    >>> import numpy as np
    >>> chosen = guaranteed_threshold(np.arange(500.0), 0.95)
    >>> chosen.threshold, chosen.rank, round(chosen.confidence, 3)
    (483.0, 484, 0.966)
    >>> guaranteed_threshold(np.arange(50.0), 0.95)
    Traceback (most recent call last):
        ...
    poscod.exceptions.InfeasibleProblemError: tpr_min = 0.95 with probability 0.95 needs at least 59 held-out ID rows, got 50: hold out more rows, lower tpr_min or raise delta.
    """
    score = check_vector(score_id, "score_id")
    k = guaranteed_rank(len(score), tpr_min, delta=delta)
    threshold = float(np.partition(score, k - 1)[k - 1])
    confidence = 1.0 - shortfall(k, len(score), tpr_min)
    return GuaranteedThreshold(threshold, 1.0, int(np.sum(score <= threshold)) / len(score), k, confidence)


def guaranteed_rank(m: int, tpr_min: float, *, delta: float = 0.05) -> int:
    """Return which of m scores keeps the promise: the smallest k with ``P(Bin(m, tpr_min) >= k) <= delta``."""
    needed = rows_needed(tpr_min, delta=delta)
    if m < needed:
        raise InfeasibleProblemError(
            "{parameter} = {asked:g} with probability {probability:g} needs at least {needed} held-out ID rows, got {got}: hold out "
            "more rows, lower {tpr_min} or raise {delta}.",
            parameter="tpr_min",
            asked=tpr_min,
            probability=1.0 - delta,
            needed=needed,
            got=m,
        )
    return _smallest_rank(m, tpr_min, delta)


def rows_needed(tpr_min: float, *, delta: float = 0.05) -> int:
    """Return the smallest calibration sample from which a TPR can be promised.

    Parameters
    ----------
    tpr_min : float in (0, 1]
        Required share of fresh ID inputs; 1 cannot be promised and is refused.
    delta : float in (0, 1), default=0.05
        Probability that the promise is broken.

    Returns
    -------
    m : int

    Notes
    -----
    The largest of m scores is too small with probability ``tpr_min**m``, so m is the smallest whole number with
    ``tpr_min**m <= delta``, i.e. ln(delta) / ln(tpr_min) rounded up. With just that many rows lambda is the largest
    score; four times as many leave room to reject.

    Examples
    --------
    >>> [rows_needed(t) for t in (0.8, 0.95, 0.99)]
    [14, 59, 299]
    """
    tpr_min = check_number(tpr_min, "tpr_min", 0.0, 1.0, closed="right")
    delta = check_number(delta, "delta", 0.0, 1.0, closed="neither")
    if tpr_min == 1.0:
        raise InfeasibleProblemError(
            "{parameter} = 1 cannot be promised from any number of rows: choose a smaller one, e.g. 0.99, or accept everything.",
            parameter="tpr_min",
        )
    m = max(1, math.ceil(math.log(delta) / math.log(tpr_min)))
    # The quotient of two rounded logarithms may be off by one row; the power decides.
    while m > 1 and tpr_min ** (m - 1) <= delta:
        m -= 1
    while tpr_min**m > delta:
        m += 1
    return m


def certified_tpr(n_accepted: int, n: int, *, delta: float = 0.05) -> float:
    """Return a lower bound of the TPR of a given rule that holds with probability at least 1 - delta.

    Parameters
    ----------
    n_accepted : int
        Number of ID rows that the rule accepts.
    n : int
        Number of ID rows, none of which the rule was chosen on.
    delta : float in (0, 1), default=0.05
        Probability that the bound is too high.

    Returns
    -------
    tpr : float
        Clopper-Pearson lower bound; 0 without rows.

    Notes
    -----
    The bound is the share t with ``P(Bin(n, t) >= n_accepted) = delta``. It is the mirror image of
    `guaranteed_threshold`, whose rank is the smallest k with ``certified_tpr(k, m) >= tpr_min``.

    Examples
    --------
    >>> round(certified_tpr(970, 1000), 4)
    0.9595
    """
    return binomial_interval(n_accepted, n, level=_level(delta), side="lower").low


def fpr_bound(n_accepted_ood: int, n_ood: int, *, delta: float = 0.05) -> float:
    """Return an upper bound of the FPR of a given rule, from clean OOD rows, that holds with probability at least 1 - delta.

    Parameters
    ----------
    n_accepted_ood : int
        Number of OOD rows that the rule accepts.
    n_ood : int
        Number of OOD rows, none of which the rule was chosen on.
    delta : float in (0, 1), default=0.05
        Probability that the bound is too low.

    Returns
    -------
    fpr : float
        Clopper-Pearson upper bound; 1 without rows.

    Notes
    -----
    The bound is the share f with ``P(Bin(n_ood, f) <= n_accepted_ood) = delta``. It speaks of OOD inputs like these
    rows; other OOD inputs may be accepted more often.

    Examples
    --------
    >>> round(fpr_bound(0, 59), 4)
    0.0495
    """
    return binomial_interval(n_accepted_ood, n_ood, level=_level(delta), side="upper").high


def shortfall(k: int, m: int, tpr_min: float) -> float:
    """Return P(Bin(m, tpr_min) >= k): how often the k-th smallest of m continuous scores has TPR < tpr_min."""
    if k == m:  # the same expression as in `rows_needed`: both must agree to the last bit
        return tpr_min**m
    return float(special.betainc(k, m - k + 1, tpr_min))


def _smallest_rank(m: int, tpr_min: float, delta: float) -> int:
    """Return the smallest k with shortfall <= delta by bisection on the tail itself; at k = m `rows_needed` made sure."""
    return 1 + bisect_left(range(1, m), True, key=lambda k: shortfall(k, m, tpr_min) <= delta)


def _level(delta: float) -> float:
    return 1.0 - check_number(delta, "delta", 0.0, 1.0, closed="neither")
