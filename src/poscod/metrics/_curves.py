# SPDX-License-Identifier: BSD-3-Clause
"""Curves: rates at each distinct threshold, by arithmetic on counts.

Convention: TPR = share of ID accepted, FPR = share of OOD accepted, selective risk = mean loss of accepted ID rows.
A rate without a denominator is NaN: FPR and its curves without OOD rows, selective risk where no ID row is accepted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from poscod._validation import Floats
from poscod.metrics._counts import count
from poscod.problem import ScodProblem


class ScodCurve(NamedTuple):
    """Operating points of a score, from strict to loose.

    Attributes
    ----------
    threshold : ndarray of shape (k,)
        Distinct scores of ID and OOD rows, increasing.
    tpr, fpr : ndarray of shape (k,)
        Share of ID and of OOD accepted at ``score <= threshold``.
    selective_risk : ndarray of shape (k,)
        Mean loss of the accepted ID rows; NaN where none is accepted.
    """

    threshold: Floats
    tpr: Floats
    fpr: Floats
    selective_risk: Floats

    def risk(self, alpha: float = 0.5) -> Floats:
        """Return the SCOD risk (1 - alpha) R_S + alpha FPR at each threshold.

        Parameters
        ----------
        alpha : float, default=0.5
            Relative cost of accepting an OOD input.

        Returns
        -------
        risk : ndarray of shape (k,)
        """
        return ScodProblem(alpha=alpha).risk(self.selective_risk, self.fpr)


class SelectiveRiskCurve(NamedTuple):
    """Risk against coverage on ID data alone.

    Attributes
    ----------
    threshold : ndarray of shape (k,)
        Distinct scores, increasing.
    tpr : ndarray of shape (k,)
        Share of ID accepted ("coverage" in selective classification).
    selective_risk : ndarray of shape (k,)
        Mean loss of the accepted ID rows.
    """

    threshold: Floats
    tpr: Floats
    selective_risk: Floats


def scod_curve(
    score_id: Any, loss_id: Any, score_ood: Any, *, weight_id: Any = None, weight_ood: Any = None
) -> ScodCurve:
    """Compute TPR, FPR and selective risk at every distinct threshold.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows, any non-negative numbers.
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    curve : ScodCurve
        Named tuple (threshold, tpr, fpr, selective_risk).

    Examples
    --------
    >>> curve = scod_curve([0.1, 0.2, 0.4], [0, 1, 1], [0.3, 0.2])
    >>> curve.threshold
    array([0.1, 0.2, 0.3, 0.4])
    >>> curve.fpr
    array([0. , 0.5, 1. , 1. ])
    """
    counts = count(score_id, loss_id, score_ood, weight_id=weight_id, weight_ood=weight_ood)
    return ScodCurve(counts.threshold, counts.tpr, counts.fpr, counts.selective_risk)


def selective_risk_curve(score_id: Any, loss_id: Any, *, weight_id: Any = None) -> SelectiveRiskCurve:
    """Compute the selective risk against the share of ID rows accepted.

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
    curve : SelectiveRiskCurve
        Named tuple (threshold, tpr, selective_risk).

    Examples
    --------
    >>> selective_risk_curve([0.1, 0.2, 0.4, 0.4], [0, 1, 1, 0]).selective_risk
    array([0. , 0.5, 0.5])
    """
    counts = count(score_id, loss_id, weight_id=weight_id)
    return SelectiveRiskCurve(counts.threshold, counts.tpr, counts.selective_risk)
