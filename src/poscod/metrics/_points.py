# SPDX-License-Identifier: BSD-3-Clause
"""Points: the value of a metric at one operating point.

Convention: a target TPR is met by the **smallest reachable TPR >= target**; tied scores are accepted together, so not
every TPR is reachable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poscod._validation import check_number
from poscod.metrics._counts import Counts, count, is_defined, required


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
    return fpr_at_tpr_of(
        count(score_id, score_ood=score_ood, weight_id=weight_id, weight_ood=weight_ood), tpr_min=tpr_min
    )


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
    first = _first_reaching(counts, tpr_min)
    if not is_defined(counts, "scod_risk", ood=alpha > 0):
        return float("nan")
    risk = counts.scod_risk(alpha)[first:]
    return float(risk.min() if envelope else risk[0])


def fpr_at_tpr_of(counts: Counts, *, tpr_min: float = 0.95) -> float:
    """Compute `fpr_at_tpr` from counts."""
    first = _first_reaching(counts, tpr_min)
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


def _first_reaching(counts: Counts, tpr_min: float) -> int:
    """Position of the smallest threshold with TPR >= tpr_min; 0 where there are no ID rows."""
    tpr_min = check_number(tpr_min, "tpr_min", 0.0, 1.0, closed="right")
    if counts.total_id == 0:
        return 0
    return int(np.searchsorted(counts.n_id, required(counts.total_id, tpr_min, counts.rounding)))
