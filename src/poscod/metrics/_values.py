# SPDX-License-Identifier: BSD-3-Clause
"""Areas under the curves and values at one operating point, each by one formula on counts, and the list of them all.

Convention: values are shares in [0, 1] (or in units of the loss), never percentages. A target TPR is met by the **smallest
reachable TPR >= target**; tied scores are accepted together, so not every TPR is reachable. Every docstring states the exact
definition, because public implementations of the same name differ in the third digit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_choice, check_number, check_vector
from poscod.metrics._counts import Counts, count, is_defined, required


def auroc(score_id: Any, score_ood: Any, *, weight_id: Any = None, weight_ood: Any = None) -> float:
    """Compute the probability that an OOD row scores higher than an ID row, ties counted half.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    area : float

    Examples
    --------
    >>> auroc([0.1, 0.2, 0.4], [0.3, 0.4])
    0.75
    """
    return auroc_of(count(score_id, score_ood=score_ood, weight_id=weight_id, weight_ood=weight_ood))


def aupr(
    score_id: Any,
    score_ood: Any,
    *,
    positive: str = "id",
    area: str = "step",
    weight_id: Any = None,
    weight_ood: Any = None,
) -> float:
    """Compute the area under precision against recall, for accepting ID or for rejecting OOD rows.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    positive : {"id", "ood"}, default="id"
        Which rows are to be found ("AUPR-IN" and "AUPR-OUT" elsewhere).
    area : {"step", "trapezoid"}, default="step"
        "step" is average precision: precision times the increase in recall, summed over distinct thresholds.
        "trapezoid" joins the points by lines from (recall 0, precision 1), which is too high by a little; OpenOOD and
        pytorch-ood do this.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    area : float

    Examples
    --------
    >>> round(aupr([0.1, 0.2, 0.4], [0.3, 0.5]), 6)
    0.916667
    """
    counts = count(score_id, score_ood=score_ood, weight_id=weight_id, weight_ood=weight_ood)
    return aupr_of(counts, positive=positive, area=area)


def aurc(score_id: Any, loss_id: Any, *, area: str = "step", weight_id: Any = None) -> float:
    """Compute the area under the selective risk as a function of the share of ID rows accepted.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows.
    area : {"step", "trapezoid"}, default="step"
        "step" is the mean of the selective risk over k = 1, ..., m accepted rows, where a group of tied rows counts
        with the risk at its end. "trapezoid" joins the reachable points by lines and starts at the first row, so that a strip
        of width 1/m is missing; the reference implementation and fd-shifts do this. Rows tied with the first one are there: in
        whatever order they come, their risk is that of the group on average.
    weight_id : array-like of shape (m,), default=None
        Sample weights. The missing strip is as wide as a row of the first group is heavy, so that a row of weight 2 and two tied rows
        have the same area by "step" only.

    Returns
    -------
    area : float

    Examples
    --------
    >>> aurc([0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1])
    1.0
    >>> aurc([0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1], area="trapezoid")
    0.75
    >>> aurc([0.1, 0.1, 0.1, 0.4], [1, 1, 1, 1], area="trapezoid")
    0.75
    """
    return aurc_of(count(score_id, loss_id, weight_id=weight_id), area=area)


def augrc(score_id: Any, loss_id: Any, *, weight_id: Any = None) -> float:
    """Compute the area under the generalised risk: the mean over **all** ID rows of loss on accepted ones.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows.
    weight_id : array-like of shape (m,), default=None
        Sample weights.

    Returns
    -------
    area : float
        Lines between the reachable points, from (0, 0).

    Notes
    -----
    For 0/1 loss with error rate e it equals ``(1 - AUROC_f) e (1 - e) + e**2 / 2``, where AUROC_f is that of
    separating right from wrong answers [1]_.

    References
    ----------
    .. [1] J. Traub et al., "Overcoming Common Flaws in the Evaluation of Selective Classification Systems",
       NeurIPS 2024.

    Examples
    --------
    >>> augrc([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    0.125
    """
    return augrc_of(count(score_id, loss_id, weight_id=weight_id))


def ausrt(
    score_id: Any,
    loss_id: Any,
    score_ood: Any,
    *,
    alpha: float = 0.5,
    envelope: bool = True,
    weight_id: Any = None,
    weight_ood: Any = None,
) -> float:
    """Compute the area under the SCOD risk as a function of the required TPR.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows.
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input.
    envelope : bool, default=True
        True is the definition of [1]_: R(t) is the minimum over thresholds with TPR >= t, and the area is the integral
        of that step function over t in (0, 1]. False is what the single-score tables of [1]_ contain: the raw curve
        over all thresholds, joined by lines, from the first ID row on; rows tied with it count as in `aurc` and `auroc`.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    area : float

    Notes
    -----
    With ``envelope=False`` the area is ``(1 - alpha) AURC + alpha (1 - AUROC)``, AURC by trapezoid, up to alpha times the FPR in the
    strip of width 1/m before the first ID row; with ties, too.

    References
    ----------
    .. [1] V. Franc, J. Paplham, D. Prusa, "SCOD: From Heuristics to Theory", ECCV 2024, Section 6.1.

    Examples
    --------
    >>> round(ausrt([0.1, 0.2, 0.4, 0.6], [0, 0, 1, 1], [0.3, 0.5], alpha=0.25), 6)
    0.25
    """
    counts = count(score_id, loss_id, score_ood, weight_id=weight_id, weight_ood=weight_ood)
    return ausrt_of(counts, alpha=alpha, envelope=envelope)


def oscr(score_id: Any, loss_id: Any, score_ood: Any, *, weight_id: Any = None, weight_ood: Any = None) -> float:
    """Compute the area under the open-set classification rate curve.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows; a row is right iff its loss is zero.
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    area : float
        Share of all ID rows that are accepted and right, integrated over FPR, ties counted half. It equals accuracy
        times the AUROC between the rightly answered ID rows and the OOD rows.

    Examples
    --------
    >>> round(oscr([0.1, 0.2, 0.4], [0, 1, 0], [0.3, 0.5]), 6)
    0.5
    """
    wrong = mistakes(check_vector(loss_id, "loss_id", allow_inf=False, minimum=0.0))
    return oscr_of(count(score_id, wrong, score_ood, weight_id=weight_id, weight_ood=weight_ood))


def mistakes(loss: Floats) -> Floats:
    """Mark the rows with a loss: a right answer costs nothing and a wrong one something."""
    return np.asarray(loss != 0, dtype=np.float64)


def auroc_of(counts: Counts) -> float:
    """Compute `auroc` from counts."""
    if not is_defined(counts, "auroc"):
        return float("nan")
    return _lines(counts.n_ood, counts.n_id) / (counts.total_id * counts.total_ood)


def aupr_of(counts: Counts, *, positive: str = "id", area: str = "step") -> float:
    """Compute `aupr` from counts."""
    found, other = check_choice(positive, "positive", _POSITIVE)(counts)
    check_choice(area, "area", _AREAS)
    if not is_defined(counts, "aupr"):
        return float("nan")
    # Rows of weight zero can leave a threshold with nothing accepted: no recall is gained there.
    precision = np.divide(found, found + other, out=np.zeros(len(found)), where=found > 0)
    if area == "trapezoid":
        precision = (precision + np.append(1.0, precision[:-1])) / 2.0
    return _steps(found, precision) / float(found[-1])


def aurc_of(counts: Counts, *, area: str = "step") -> float:
    """Compute `aurc` from counts."""
    integrate = check_choice(area, "area", _AREAS)
    if not is_defined(counts, "aurc", ood=False):
        return float("nan")
    return integrate(counts, counts.selective_risk) / counts.total_id


def augrc_of(counts: Counts) -> float:
    """Compute `augrc` from counts."""
    if not is_defined(counts, "augrc", ood=False):
        return float("nan")
    return _lines(counts.n_id, counts.loss) / counts.total_id**2


def ausrt_of(counts: Counts, *, alpha: float = 0.5, envelope: bool = True) -> float:
    """Compute `ausrt` from counts."""
    alpha = check_number(alpha, "alpha", 0.0, 1.0)
    if not is_defined(counts, "ausrt", ood=alpha > 0):
        return float("nan")
    risk = counts.scod_risk(alpha)
    if envelope:
        np.minimum.accumulate(risk[::-1], out=risk[::-1])
        return _steps(counts.n_id, risk) / counts.total_id
    return _lines_from_first_row(counts, risk, alpha) / counts.total_id


def oscr_of(counts: Counts) -> float:
    """Compute `oscr` from counts whose loss marks mistakes."""
    if not is_defined(counts, "oscr"):
        return float("nan")
    # The loss of a row is 1 where the answer is wrong: what is left of those accepted are the right ones.
    right = counts._replace(n_id=counts.n_id - counts.loss)
    return _lines(counts.fpr, right.tpr)


def _lines(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Area under the lines through (0, 0) and the points: the trapezoid rule, which counts ties half."""
    return float(x[0] * y[0]) / 2.0 + _trapezoids(x, y)


def _lines_from_first_row(counts: Counts, risk: Floats, alpha: float = 0.0) -> float:
    """Area under the lines through the points that accept an ID row, from the first row on.

    Accepted in random order, the rows tied with the first one have the risk of the group at every step, and the OOD rows tied with them come in evenly.
    """
    first = int(np.argmax(counts.n_id > 0))
    height = float(risk[first])
    if alpha > 0.0:
        before = float(counts.n_ood[first - 1]) if first else 0.0
        height -= alpha * (float(counts.n_ood[first]) - before) / counts.total_ood / 2.0
    tied = max(float(counts.n_id[first]) - counts.first_row, 0.0) * height
    return tied + _trapezoids(counts.n_id[first:], risk[first:])


def _steps(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Area under the step function that takes the value y[k] on (x[k-1], x[k]]."""
    first = int(np.argmax(x > 0))  # y is undefined while nothing is accepted
    return float(x[first] * y[first]) + sum(
        float(np.sum(np.diff(widths) * heights[1:])) for widths, heights in _blocks(x[first:], y[first:])
    )


def _trapezoids(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Trapezoid rule by pairwise sums: exact for whole numbers, better than BLAS on long arrays, and no threads start."""
    return sum(float(np.sum(np.diff(a) * (b[1:] + b[:-1]))) for a, b in _blocks(x, y)) / 2.0


def _blocks(x: NDArray[Any], y: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Cut points into pieces that share their ends: what is computed of a piece stays in the processor's cache."""
    for start in range(0, len(x) - 1, _BLOCK):
        piece = slice(start, start + _BLOCK + 1)
        yield x[piece], y[piece]


_BLOCK = 8192
_AREAS: dict[str, Callable[[Counts, Floats], float]] = {
    "step": lambda counts, risk: _steps(counts.n_id, risk),
    "trapezoid": _lines_from_first_row,
}
_POSITIVE: dict[str, Callable[[Counts], tuple[NDArray[Any], NDArray[Any]]]] = {
    "id": lambda c: (c.n_id, c.n_ood),
    # From the most OOD-like score down: what is rejected at or above each threshold.
    "ood": lambda c: (
        np.append((c.total_ood - c.n_ood)[-2::-1], c.total_ood),
        np.append((c.total_id - c.n_id)[-2::-1], c.total_id),
    ),
}


def scod_risk(
    score_id: Any,
    loss_id: Any,
    score_ood: Any,
    *,
    alpha: float = 0.5,
    tpr_min: float = 0.95,
    envelope: bool = True,
    weight_id: Any = None,
    weight_ood: Any = None,
) -> float:
    """Compute the SCOD risk (1 - alpha) R_S + alpha FPR under TPR >= tpr_min.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows.
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input.
    tpr_min : float in (0, 1], default=0.95
        Required share of ID rows accepted.
    envelope : bool, default=True
        True takes the minimum over all thresholds with TPR >= tpr_min, which is the paper's definition. False takes
        the threshold with the smallest such TPR, which is what a deployed rule does.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    risk : float

    Examples
    --------
    >>> scod_risk([0.1, 0.2, 0.4, 0.6], [0, 0, 1, 1], [0.3, 0.5], alpha=0.25, tpr_min=0.75)
    0.375
    """
    counts = count(score_id, loss_id, score_ood, weight_id=weight_id, weight_ood=weight_ood)
    return scod_risk_of(counts, alpha=alpha, tpr_min=tpr_min, envelope=envelope)


def fpr_at_tpr(
    score_id: Any, score_ood: Any, *, tpr_min: float = 0.95, weight_id: Any = None, weight_ood: Any = None
) -> float:
    """Compute the share of OOD rows accepted when at least tpr_min of the ID rows are.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    tpr_min : float in (0, 1], default=0.95
        Required share of ID rows accepted.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    fpr : float

    See Also
    --------
    fpr_at_tpr_ood_positive : The "FPR@95" of OpenOOD and pytorch-ood, where OOD is the positive class.

    Examples
    --------
    >>> fpr_at_tpr([0.1, 0.2, 0.4, 0.6], [0.3, 0.5], tpr_min=0.75)
    0.5
    """
    counts = count(score_id, score_ood=score_ood, weight_id=weight_id, weight_ood=weight_ood)
    return fpr_at_tpr_of(counts, tpr_min=tpr_min)


def fpr_at_tpr_ood_positive(
    score_id: Any, score_ood: Any, *, tpr_min: float = 0.95, weight_id: Any = None, weight_ood: Any = None
) -> float:
    """Compute the share of ID rows **rejected** when at least tpr_min of the OOD rows are: OpenOOD's "FPR@95".

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    tpr_min : float in (0, 1], default=0.95
        Required share of OOD rows rejected. OOD is the positive class here, against the convention of this library.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    rejected : float
        A share of ID rows: one minus a TPR in the sense of the rest of the library.

    Examples
    --------
    >>> fpr_at_tpr_ood_positive([0.1, 0.2, 0.4, 0.6], [0.3, 0.5], tpr_min=0.5)
    0.25
    """
    counts = count(score_id, score_ood=score_ood, weight_id=weight_id, weight_ood=weight_ood)
    return fpr_at_tpr_ood_positive_of(counts, tpr_min=tpr_min)


def scod_risk_of(counts: Counts, *, alpha: float = 0.5, tpr_min: float = 0.95, envelope: bool = True) -> float:
    """Compute `scod_risk` from counts."""
    alpha = check_number(alpha, "alpha", 0.0, 1.0)
    first = first_reaching(counts, tpr_min)
    if not is_defined(counts, "scod_risk", ood=alpha > 0):
        return float("nan")
    tail = counts._replace(n_id=counts.n_id[first:], n_ood=counts.n_ood[first:], loss=counts.loss[first:])
    risk = tail.scod_risk(alpha)
    return float(risk.min() if envelope else risk[0])


def fpr_at_tpr_of(counts: Counts, *, tpr_min: float = 0.95) -> float:
    """Compute `fpr_at_tpr` from counts."""
    first = first_reaching(counts, tpr_min)
    if not is_defined(counts, "fpr_at_tpr"):
        return float("nan")
    return float(counts.n_ood[first] / counts.total_ood)


def fpr_at_tpr_ood_positive_of(counts: Counts, *, tpr_min: float = 0.95) -> float:
    """Compute `fpr_at_tpr_ood_positive` from counts."""
    tpr_min = check_number(tpr_min, "tpr_min", 0.0, 1.0, closed="right")
    if not is_defined(counts, "fpr_at_tpr_ood_positive"):
        return float("nan")
    rejected_ood = counts.total_ood - counts.n_ood
    accepted_id = counts.n_id[rejected_ood >= required(counts.total_ood, tpr_min, counts.rounding)]
    return float(1.0 - (accepted_id[-1] if len(accepted_id) else 0.0) / counts.total_id)


def first_reaching(counts: Counts, tpr_min: float) -> int:
    """Position of the smallest threshold with TPR >= tpr_min; 0 where there are no ID rows."""
    tpr_min = check_number(tpr_min, "tpr_min", 0.0, 1.0, closed="right")
    return int(np.searchsorted(counts.n_id, required(counts.total_id, tpr_min, counts.rounding)))


class Metric(NamedTuple):
    """One member of `METRICS`.

    Attributes
    ----------
    function : callable
        The public function.
    of_counts : callable
        The same metric on `Counts`.
    inputs : tuple of str
        Positional arrays of the function, in order.
    higher_is_better : bool
    prepare_loss : callable or None
        What the metric counts instead of the loss itself.
    """

    function: Callable[..., float]
    of_counts: Callable[..., float]
    inputs: tuple[str, ...]
    higher_is_better: bool
    prepare_loss: Callable[[Floats], Floats] | None = None


_PAIR = ("score_id", "score_ood")
_SELECTIVE = ("score_id", "loss_id")
_FULL = ("score_id", "loss_id", "score_ood")
METRICS: dict[str, Metric] = {
    "aupr": Metric(aupr, aupr_of, _PAIR, True),
    "augrc": Metric(augrc, augrc_of, _SELECTIVE, False),
    "aurc": Metric(aurc, aurc_of, _SELECTIVE, False),
    "auroc": Metric(auroc, auroc_of, _PAIR, True),
    "ausrt": Metric(ausrt, ausrt_of, _FULL, False),
    "fpr_at_tpr": Metric(fpr_at_tpr, fpr_at_tpr_of, _PAIR, False),
    "fpr_at_tpr_ood_positive": Metric(fpr_at_tpr_ood_positive, fpr_at_tpr_ood_positive_of, _PAIR, False),
    "oscr": Metric(oscr, oscr_of, _FULL, True, mistakes),
    "scod_risk": Metric(scod_risk, scod_risk_of, _FULL, False),
}
