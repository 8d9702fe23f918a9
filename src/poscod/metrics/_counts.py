# SPDX-License-Identifier: BSD-3-Clause
"""Sort once, group ties, count: the only place where scores are ordered.

Convention: a score is an uncertainty, accept ``score <= threshold``; rows with equal scores are accepted together, so
there is one threshold per distinct score. Everything here is a count or a sum of weights; rates are made in `_curves`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import UndefinedMetricWarning

from poscod._validation import Floats, check_vector, check_weight
from poscod.exceptions import warn_caller

Indices = NDArray[np.intp]
ABSENT: Any = object()  # not None: a forgotten loss must not be scored as a perfect classifier
_NO_ROWS: Indices = np.zeros(0, dtype=np.intp)
_FEW_ROWS = 1000  # below, one sort by comparison is as fast as preparing another


class Counts(NamedTuple):
    """What is accepted at each distinct threshold.

    Attributes
    ----------
    threshold : ndarray of shape (k,)
        Distinct pooled scores, increasing.
    n_id, n_ood : ndarray of shape (k,)
        Weight of the ID and OOD rows with score <= threshold; whole numbers where there are no weights.
    loss : ndarray of shape (k,)
        Weighted loss of the accepted ID rows.
    total_id, total_ood : float
        Weight of all ID and OOD rows; 0 when there are none.
    rounding : float
        Relative error of the sums of weights; see `required`.
    first_row : float
        Mean weight of the ID rows at the first threshold that accepts any; 1 where there are no weights.
    """

    threshold: Floats
    n_id: NDArray[Any]
    n_ood: NDArray[Any]
    loss: Floats
    total_id: float
    total_ood: float
    rounding: float
    first_row: float = 1.0

    @property
    def tpr(self) -> Floats:
        """Share of ID accepted; NaN without ID rows."""
        return _share(self.n_id, self.total_id)

    @property
    def fpr(self) -> Floats:
        """Share of OOD accepted; NaN without OOD rows."""
        return _share(self.n_ood, self.total_ood)

    @property
    def selective_risk(self) -> Floats:
        """Mean loss of the accepted ID rows; NaN where no ID row is accepted."""
        with np.errstate(invalid="ignore"):  # no loss over no rows
            return self.loss / self.n_id

    def scod_risk(self, alpha: float) -> Floats:
        """SCOD risk at each threshold, as `ScodProblem.risk` has it, in place."""
        if alpha == 1.0:
            return self.fpr
        risk = self.selective_risk
        if alpha > 0.0:  # a term of weight zero may be undefined
            risk *= 1.0 - alpha
            risk += self.n_ood * (alpha / self.total_ood)
        return risk


class Ranking(NamedTuple):
    """The order of two samples on one score: everything that does not depend on losses and weights.

    Attributes
    ----------
    threshold : ndarray of shape (k,)
        Distinct pooled scores, increasing.
    order_id, order_ood : ndarray of shape (m,) and (n,)
        Row numbers by increasing score.
    rank_id, rank_ood : ndarray of shape (k,)
        How many rows of each sample have score <= threshold.
    """

    threshold: Floats
    order_id: Indices
    order_ood: Indices
    rank_id: Indices
    rank_ood: Indices

    def counts(
        self, loss: Floats | None = None, weight_id: Floats | None = None, weight_ood: Floats | None = None
    ) -> Counts:
        """Accumulate losses and weights along the order."""
        n_id = _accumulate(weight_id, self.order_id, self.rank_id)
        n_ood = _accumulate(weight_ood, self.order_ood, self.rank_ood)
        cost = loss if loss is None or weight_id is None else loss * weight_id
        lost = np.zeros(len(n_id)) if cost is None else _accumulate(cost, self.order_id, self.rank_id)
        total_id = float(n_id[-1]) if len(n_id) else 0.0
        total_ood = float(n_ood[-1]) if len(n_ood) else 0.0
        rounding = rounding_of(weight_id, weight_ood)
        first_row = 1.0
        if weight_id is not None and total_id > 0.0:
            first = int(np.argmax(n_id > 0.0))
            rows = self.order_id[: self.rank_id[first]]  # those before the first threshold that counts weigh nothing
            first_row = float(n_id[first]) / np.count_nonzero(weight_id[rows])
        return Counts(self.threshold, n_id, n_ood, lost, total_id, total_ood, rounding, first_row)


def rank(
    score_id: Floats, score_ood: Floats | None = None, *, order_id: bool = True, order_ood: bool = True
) -> Ranking:
    """Order two samples on one score and group ties; the rows of a sample with equal scores keep their order."""
    m = len(score_id)
    if score_ood is None or not len(score_ood):
        by_id, ordered = _order(score_id)
        by_ood, rank_id = _NO_ROWS, np.arange(1, m + 1)
    else:
        rows, ordered = _order(np.concatenate([score_id, score_ood]))
        is_id = rows < m
        rank_id = np.cumsum(is_id)
        by_id = rows[is_id] if order_id else _NO_ROWS
        by_ood = rows[~is_id] - m if order_ood else _NO_ROWS
    rank_ood = np.arange(1, len(ordered) + 1)
    rank_ood -= rank_id
    is_end = ordered[1:] != ordered[:-1]
    if is_end.all():
        return Ranking(ordered, by_id, by_ood, rank_id, rank_ood)
    last = np.flatnonzero(np.append(is_end, True))
    return Ranking(ordered[last], by_id, by_ood, rank_id[last], rank_ood[last])


def count(
    score_id: Any,
    loss_id: Any = ABSENT,
    score_ood: Any = ABSENT,
    *,
    weight_id: Any = None,
    weight_ood: Any = None,
) -> Counts:
    """Validate, sort and count: the first step of every metric."""
    score_id, loss_id, score_ood, weight_id, weight_ood = check_sample(
        score_id, loss_id, score_ood, weight_id, weight_ood
    )
    ranking = rank(
        score_id,
        score_ood,
        order_id=loss_id is not None or weight_id is not None,
        order_ood=weight_ood is not None,
    )
    return ranking.counts(loss_id, weight_id, weight_ood)


def check_sample(
    score_id: Any, loss_id: Any = ABSENT, score_ood: Any = ABSENT, weight_id: Any = None, weight_ood: Any = None
) -> tuple[Floats, Floats | None, Floats | None, Floats | None, Floats | None]:
    """Check the arrays that metrics share; see `count`."""
    score_id = check_vector(score_id, "score_id")
    m = len(score_id)
    if loss_id is ABSENT:
        loss_id = None
    else:
        loss_id = check_vector(loss_id, "loss_id", n=m, like="score_id", allow_inf=False, minimum=0.0)
    score_ood = None if score_ood is ABSENT else check_vector(score_ood, "score_ood")
    weight_id = check_weight(weight_id, "weight_id", m, like="score_id")
    weight_ood = check_weight(weight_ood, "weight_ood", 0 if score_ood is None else len(score_ood), like="score_ood")
    return score_id, loss_id, score_ood, weight_id, weight_ood


def is_defined(counts: Counts, name: str, *, ood: bool = True) -> bool:
    """Tell whether a metric has rows to speak of; warn and let the caller return NaN where it has none."""
    missing = "ID" if counts.total_id == 0 else "OOD" if ood and counts.total_ood == 0 else None
    if missing is not None:
        message = f"{name} is undefined without {missing} rows and is set to NaN: pass at least one {missing} score."
        warn_caller(UndefinedMetricWarning(message))
    return missing is None


def rounding_of(*weights: Floats | None) -> float:
    """Return the relative error that running sums of these weights may carry; None is one each, summed exactly."""
    return max(1e-14, *(len(w) * float(np.finfo(np.float64).eps) for w in weights if w is not None), 0.0)


def required(total: float, share: Any, rounding: float = 1e-14) -> Any:
    """Return the smallest accepted weight that counts as `share` of `total`.

    Notes
    -----
    The allowance is far below one row in any sample and above rounding: ``57 >= 100 * 0.57`` is false in floating point,
    ``np.linspace(0, 1, 101)[57]`` is larger than 0.57, and a running sum of n weights is off by up to n times 2.2e-16.
    """
    return share * total * (1.0 - rounding)


def _share(part: NDArray[Any], total: float) -> Floats:
    """Divide by a total that may be zero, where every share is undefined."""
    return part / total if total > 0 else np.full(len(part), np.nan)


def _order(score: Floats) -> tuple[Indices, Floats]:
    """Return the row numbers by increasing score, equal scores by row number, and the sorted score.

    Notes
    -----
    numpy sorts 16-bit numbers by radix, in linear time, when the sort has to be stable. Two such sorts order the rows by 32 bits
    of the score, after which a merge sort finds long runs: two to three times cheaper than one sort by comparison. The
    order does not depend on which of the two ways is taken.
    """
    if len(score) < _FEW_ROWS:
        rows = np.argsort(score, kind="stable")
        return rows, score[rows]
    low, high = _halves(score)
    rows = np.argsort(low, kind="stable")
    rows = rows[np.argsort(high[rows], kind="stable")]
    nearly = score[rows]
    finish = np.argsort(nearly, kind="stable")
    return rows[finish], nearly[finish]


def _halves(score: Floats) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the lower and upper half of whole numbers with 32 bits that never fall where the score rises."""
    bits = (score + 0.0).view(np.int64)  # -0.0, which equals 0.0, gets its bits
    # Negative numbers have their sign bit and count backwards: whole numbers in the order of the scores.
    sign = bits >> 63
    sign &= np.iinfo(np.int64).max
    bits ^= sign
    bits -= bits.min()  # may pass the largest signed number, and is right as an unsigned one
    key = bits.view(np.uint64)
    key >>= np.uint64(max(int(key.max()).bit_length() - 32, 0))
    low = key.astype(np.uint16)
    key >>= np.uint64(16)
    return low, key.astype(np.uint16)


def _accumulate(values: Floats | None, order: Indices, ranks: Indices) -> NDArray[Any]:
    """Sum the values of the first `ranks` rows along the order; None counts rows, exactly, in whole numbers."""
    if values is None:
        return ranks
    sums = np.zeros(len(order) + 1)
    np.cumsum(values[order], out=sums[1:])
    return sums[ranks]
