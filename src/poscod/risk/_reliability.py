# SPDX-License-Identifier: BSD-3-Clause
"""Is r(x) honest? Compare the predicted risk with the loss that happened.

Convention: everything is in units of the loss; a calibrated r has mean loss = mean r in every bin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from poscod._validation import Floats, check_count, check_number, check_vector, check_weight
from poscod.exceptions import InvalidInputError
from poscod.metrics import Interval, mean_loss_interval, share_interval


class Reliability(NamedTuple):
    """Data of a reliability plot and two summaries.

    Attributes
    ----------
    predicted : ndarray of shape (b,)
        Mean predicted risk in each bin, increasing.
    observed : ndarray of shape (b,)
        Mean loss in each bin.
    low, high : ndarray of shape (b,)
        Confidence interval of the mean loss in each bin: exact binomial for 0/1 loss, Student's t for other losses.
    n : ndarray of shape (b,)
        Rows in each bin.
    error : float
        Expected calibration error: mean over rows, with their weights, of |observed - predicted| of their bin.
    p_value : float
        Two-sided test of "the mean loss is the mean predicted risk" (normal approximation); a small value says that r
        is wrong on average, a large one does not say that it is right everywhere.
    """

    predicted: Floats
    observed: Floats
    low: Floats
    high: Floats
    n: NDArray[np.int64]
    error: float
    p_value: float


def reliability(
    risk: Any, loss: Any, *, sample_weight: Any = None, n_bins: int = 15, level: float = 0.95
) -> Reliability:
    """Compare predicted conditional risk with observed loss on held-out ID rows.

    Parameters
    ----------
    risk : array-like of shape (n,)
        Predicted conditional risk r(x).
    loss : array-like of shape (n,)
        Loss of the classifier's answers.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows, such as those with which they have the class mix that r is for; bins still hold equal numbers of rows.
    n_bins : int, default=15
        Bins with equal numbers of rows; rows with equal r stay together, so there may be fewer bins.
    level : float in (0, 1), default=0.95
        Coverage of each bin's interval.

    Returns
    -------
    reliability : Reliability

    Examples
    --------
    >>> result = reliability([0.1, 0.1, 0.5, 0.5], [0, 0, 1, 0], n_bins=2)
    >>> result.predicted, result.observed
    (array([0.1, 0.5]), array([0. , 0.5]))
    """
    risk = check_vector(risk, "risk", allow_inf=False, minimum=0.0)
    loss = check_vector(loss, "loss", n=len(risk), like="risk", allow_inf=False, minimum=0.0)
    n_bins = check_count(n_bins, "n_bins")
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    if len(risk) == 0:
        raise InvalidInputError("risk must hold at least one row to check its calibration, got none.")
    weight = check_weight(sample_weight, "sample_weight", len(risk), like="risk")
    order = np.argsort(risk, kind="stable")
    risk, loss = risk[order], loss[order]
    own = np.ones(len(risk)) if weight is None else weight[order]
    # A bin ends where its share of rows ends, moved to the end of the group of equal predictions.
    ends = np.unique(np.searchsorted(risk, risk[np.arange(1, n_bins + 1) * len(risk) // n_bins - 1], side="right"))
    ends = ends[ends > 0]
    starts = np.append(0, ends[:-1])
    n, mass = ends - starts, np.maximum(np.add.reduceat(own, starts), 1e-300)
    predicted, observed = np.add.reduceat(own * risk, starts) / mass, np.add.reduceat(own * loss, starts) / mass
    # With a dearer loss a sample may by chance hold zeros and ones only; a risk above one gives it away.
    zero_one = bool(np.isin(loss, (0.0, 1.0)).all()) and bool(risk[-1] <= 1.0)
    parts = [slice(a, b) for a, b in zip(starts, ends, strict=True)]
    if weight is None:
        values = np.array([0.0, 1.0]) if zero_one else None
        bins = [mean_loss_interval(loss[part], level=level, values=values) for part in parts]
    else:
        bins = [_weighted(loss[part], own[part], zero_one, level) for part in parts]
    low, high = (np.array([getattr(interval, end) for interval in bins]) for end in ("low", "high"))
    error = float(np.average(np.abs(observed - predicted), weights=mass))
    # The variance of the sum of losses given r is known for 0/1 loss and estimated otherwise.
    variance = float(np.sum(own**2 * (risk * (1.0 - risk) if zero_one else (loss - risk) ** 2)))
    excess = float(np.sum(own * (loss - risk)))
    p_value = float(2.0 * stats.norm.sf(abs(excess) / np.sqrt(variance))) if variance > 0 else float(excess == 0.0)
    return Reliability(predicted, observed, low, high, n, error, p_value)


def _weighted(loss: Floats, weight: Floats, zero_one: bool, level: float) -> Interval:
    """Return the interval of a weighted mean loss: that of as many equal rows as say as much."""
    rows = float(weight.sum() ** 2 / np.maximum(weight @ weight, 1e-300))
    mean = float(np.average(loss, weights=weight)) if rows > 0.0 else float("nan")
    if zero_one:
        return share_interval(mean, rows, level=level)
    if rows < 2.0:
        return Interval(mean, 0.0, float("inf"), level)
    spread = float(np.sqrt(np.average((loss - mean) ** 2, weights=weight) / (rows - 1.0)))
    half = float(stats.t.isf((1.0 - level) / 2.0, rows - 1.0)) * spread
    return Interval(mean, max(0.0, mean - half), mean + half, level)
