# SPDX-License-Identifier: BSD-3-Clause
"""One threshold at which every class reaches a required TPR, and so every mix of the classes does.

Convention: TPR of a class is the share of its inputs accepted; a mix of classes has a mean of these shares as its TPR, so none has less than the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.exceptions import InfeasibleProblemError
from poscod.selector._guarantee import guaranteed_threshold, rows_needed
from poscod.selector._threshold import tpr_threshold

Indices = NDArray[np.intp]


def rows_by_class(codes: NDArray[np.int64], n_classes: int) -> list[Indices]:
    """Return the positions of the rows of each class.

    Examples
    --------
    >>> [rows.tolist() for rows in rows_by_class(np.array([2, 0, 2]), 3)]
    [[1], [], [0, 2]]
    """
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=n_classes))[:-1])


def every_class_threshold(
    score: Floats,
    rows: Sequence[Indices],
    tpr_min: float,
    *,
    labels: NDArray[Any],
    weight: Floats | None = None,
    delta: float | None = None,
) -> float:
    """Choose lambda so that every class is accepted with a share of at least tpr_min.

    Parameters
    ----------
    score : ndarray of shape (m,)
        Rejection scores of ID rows.
    rows : sequence of K arrays
        Positions of the rows of each class.
    tpr_min : float in (0, 1]
        Required share of each class.
    labels : ndarray of shape (K,)
        Names of the classes, for refusals.
    weight : ndarray of shape (m,), default=None
        Sample weights, without a guarantee.
    delta : float in (0, 1), default=None
        Probability that the promise is broken for any class; None is the plain order statistic.

    Returns
    -------
    threshold : float

    Notes
    -----
    lambda is the largest of the K thresholds that the rows of one class ask for. With delta each of them is the guaranteed order
    statistic at delta / K. Proof: TPR of a class grows with lambda, so class k misses tpr_min only if its own threshold was too small, which has
    probability at most delta / K; some class does with probability at most delta, and without it any mix of the classes has TPR >= tpr_min.
    Class k needs ``m_k >= ln(delta / K) / ln(tpr_min)`` rows.

    Examples
    --------
    >>> score, rows = np.array([0.1, 0.2, 0.3, 0.5, 0.6, 0.9]), [np.arange(3), np.arange(3, 6)]
    >>> every_class_threshold(score, rows, 0.6, labels=np.array(["a", "b"]))
    0.6
    >>> every_class_threshold(score, rows, 0.5, labels=np.array(["a", "b"]), delta=0.1)
    Traceback (most recent call last):
        ...
    poscod.exceptions.InfeasibleProblemError: tpr_min = 0.5 for every class with probability 0.9 needs at least 5 held-out rows of each class, got 3 of class 'a' (2 classes have too few): hold out more rows, lower tpr_min, raise delta or use tpr_over='all'.
    """
    if weight is not None:
        rows = [own[weight[own] > 0.0] for own in rows]  # rows without weight stand for nothing
    sizes = np.array([len(own) for own in rows])
    if delta is not None:
        each = delta / len(rows)
        needed = rows_needed(tpr_min, delta=each)
        _refuse(
            sizes < needed,
            sizes,
            labels,
            "{parameter} = {asked:g} for every class with probability {probability:g} needs at least {needed} held-out rows of each class, got {got} "
            "of class {label!r}{others}: hold out more rows, lower {tpr_min}, raise {delta} or use {tpr_over}='all'.",
            parameter="tpr_min",
            asked=tpr_min,
            probability=1.0 - delta,
            needed=needed,
        )
        return max(guaranteed_threshold(score[own], tpr_min, delta=each).threshold for own in rows)
    _refuse(
        sizes == 0,
        sizes,
        labels,
        "{parameter}='classes' needs labeled rows of every class that set the threshold, got none of class {label!r}{others}: add rows or use {parameter}='all'.",
        parameter="tpr_over",
    )
    return max(
        tpr_threshold(score[own], tpr_min, weight=None if weight is None else weight[own]).threshold for own in rows
    )


def _refuse(short: NDArray[np.bool_], sizes: Indices, labels: NDArray[Any], message: str, **facts: Any) -> None:
    """Raise where classes have too few rows; the first of them is named."""
    if not short.any():
        return
    first, count = int(np.argmax(short)), int(short.sum())
    others = f" ({count} classes have too few)" if count > 1 else ""
    got = int(sizes[first])
    raise InfeasibleProblemError(
        message, **facts, got=got, label=labels.tolist()[first], classes_short=count, others=others
    )
