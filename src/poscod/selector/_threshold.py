# SPDX-License-Identifier: BSD-3-Clause
"""The threshold lambda and the tie probability tau that reach a required share of ID inputs.

Convention: accept ``score < threshold``, accept a tie ``score == threshold`` with probability tau, reject the rest. The
deterministic rule is tau = 1, and it is the default: then TPR >= tpr_min, with equality where there are no ties.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from poscod._validation import Floats, check_number, check_vector, check_weight
from poscod.exceptions import InvalidInputError
from poscod.metrics import required, rounding_of


class Threshold(NamedTuple):
    """A threshold and what it does on the sample it was chosen on.

    Attributes
    ----------
    threshold : float
        lambda: the smallest score whose acceptance region holds at least tpr_min of the sample.
    tau : float in (0, 1]
        Probability of accepting a tie with which the randomised selector accepts exactly tpr_min of the sample.
    tpr : float
        Share of the sample accepted by the deterministic rule ``score <= threshold``.
    """

    threshold: float
    tau: float
    tpr: float


def tpr_threshold(score_id: Any, tpr_min: float, *, weight: Any = None) -> Threshold:
    """Choose lambda as the order statistic that accepts at least tpr_min of a sample.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Rejection scores of ID rows the classifier and the ratio were **not** fitted on; infinities are allowed.
    tpr_min : float in (0, 1]
        Required share.
    weight : array-like of shape (m,), default=None
        Sample weights.

    Returns
    -------
    threshold : Threshold
        Named tuple (threshold, tau, tpr).

    Notes
    -----
    lambda is the k-th smallest score with k the smallest integer such that ``k / m >= tpr_min``, and tau solves
    ``P(s < lambda) + tau P(s = lambda) = tpr_min`` on the sample (Theorem 2 of the paper with the empirical p_I). This
    is the plug-in rule: TPR on fresh data follows a Beta(k, m + 1 - k) law, so tpr_min is reached in fewer than half of all
    samples (in 38 % at m = 100 and tpr_min = 0.95).

    Examples
    --------
    >>> tpr_threshold([0.4, 0.1, 0.3, 0.2], 0.75)
    Threshold(threshold=0.3, tau=1.0, tpr=0.75)
    >>> tpr_threshold([0.1, 0.2, 0.2, 0.2], 0.5).tau
    0.3333333333333333
    """
    score = check_vector(score_id, "score_id")
    tpr_min = check_number(tpr_min, "tpr_min", 0.0, 1.0, closed="right")
    if len(score) == 0:
        raise InvalidInputError("score_id must hold at least one ID score to choose a threshold from, got none.")
    weight = check_weight(weight, "weight", len(score), like="score_id")
    if weight is None:
        k = tpr_rank(len(score), tpr_min)
        threshold = float(np.partition(score, k - 1)[k - 1])
        below, tied, total = float(np.sum(score < threshold)), float(np.sum(score == threshold)), float(len(score))
    else:
        order = np.argsort(score)
        running = np.cumsum(weight[order])
        total = float(running[-1])
        # All of the mass is all of it, however small the last row's share.
        floor = required(total, tpr_min, rounding_of(weight))
        first = np.flatnonzero(weight[order])[-1] if tpr_min == 1.0 else np.searchsorted(running, floor)
        threshold = float(score[order[first]])
        below, tied = float(weight[score < threshold].sum()), float(weight[score == threshold].sum())
    tau = 1.0 if tpr_min == 1.0 else min(1.0, max(0.0, (tpr_min * total - below) / tied))
    return Threshold(threshold, tau, min(1.0, (below + tied) / total))


def tpr_rank(m: int, tpr_min: float) -> int:
    """Return which order statistic lambda is: the smallest whole k with k / m >= tpr_min."""
    return max(1, math.ceil(required(m, tpr_min)))


def accept_probability(score: Any, threshold: float, tau: float = 1.0) -> Floats:
    """Return the probability with which each input is accepted.

    Parameters
    ----------
    score : array-like of shape (n,)
        Rejection scores.
    threshold : float
        lambda.
    tau : float in [0, 1], default=1.0
        Acceptance probability at a tie; 1 is the deterministic rule ``score <= threshold``.

    Returns
    -------
    probability : ndarray of shape (n,)
        Values in {0, tau, 1}.

    Examples
    --------
    >>> accept_probability([0.1, 0.2, 0.3], 0.2, tau=0.25)
    array([1.  , 0.25, 0.  ])
    """
    score = check_vector(score, "score")
    threshold = check_number(threshold, "threshold", -float("inf"), float("inf"))
    tau = check_number(tau, "tau", 0.0, 1.0)
    return np.where(score == threshold, tau, np.where(score < threshold, 1.0, 0.0))
