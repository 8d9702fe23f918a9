"""What a deployed rule achieves: with clean OOD rows exactly, without any OOD label through the mixture identity.

Convention: every number comes with an interval, and rows must be fresh: rows that nothing was fitted on.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.metrics import Interval, binomial_interval
from poscod.metrics._intervals import mean_loss_interval
from poscod.problem import ScodProblem
from poscod.ratio import PRIORS, estimate_prior
from poscod.ratio._gate import prior_interval
from poscod.ratio._prior import acceptance
from poscod.selector import UnlabeledFPR, unlabeled_fpr

Mask = NDArray[np.bool_]


class Evaluation(NamedTuple):
    """A rule on fresh ID rows and clean OOD rows.

    Attributes
    ----------
    tpr, fpr : Interval
        Share of ID and of OOD rows accepted, with exact binomial intervals.
    selective_risk : Interval
        Mean loss on accepted ID rows; exact for 0/1 loss, Student's t otherwise.
    risk : Interval
        SCOD risk (1 - alpha) R_S + alpha FPR.
    """

    tpr: Interval
    fpr: Interval
    selective_risk: Interval
    risk: Interval


class UnlabeledEvaluation(NamedTuple):
    """A rule on fresh labelled ID rows and unlabelled traffic.

    Attributes
    ----------
    tpr : Interval
        Share of ID rows accepted.
    selective_risk : Interval
        Mean loss on accepted ID rows.
    accepted : Interval
        Share of the traffic accepted.
    ood_prior : Interval
        Share of OOD inputs in the traffic.
    fpr : UnlabeledFPR
        Share of OOD inputs accepted, from ``accepted = (1 - pi) TPR + pi FPR``; see its ``informative`` and ``reason``.
    risk : Interval
        SCOD risk; NaN where FPR is not informative.
    """

    tpr: Interval
    selective_risk: Interval
    accepted: Interval
    ood_prior: Interval
    fpr: UnlabeledFPR
    risk: Interval


def evaluate(
    accept_id: Mask, loss: Floats, accept_ood: Mask, alpha: float, level: float, *, loss_values: Floats
) -> Evaluation:
    """Evaluate decisions on ID and OOD rows.

    Parameters
    ----------
    accept_id, accept_ood : ndarray of bool
    loss : ndarray
        Loss of the answers on the ID rows.
    alpha : float
    level : float
    loss_values : ndarray
        Every value that the loss can have.

    Returns
    -------
    evaluation : Evaluation
    """
    tpr, fpr = (binomial_interval(int(a.sum()), len(a), level=level) for a in (accept_id, accept_ood))
    selective = mean_loss_interval(loss[accept_id], level=level, values=loss_values)
    return Evaluation(tpr, fpr, selective, scod_risk(selective, fpr, alpha))


def evaluate_unlabeled(
    accept_id: Mask,
    loss: Floats,
    log_ratio_id: Floats,
    accept_traffic: Mask,
    log_ratio_traffic: Floats,
    alpha: float,
    level: float,
    pi: float | Interval | None,
    *,
    loss_values: Floats,
) -> UnlabeledEvaluation:
    """Evaluate decisions on ID rows and unlabelled traffic.

    Parameters
    ----------
    accept_id, accept_traffic : ndarray of bool
    loss : ndarray
        Loss of the answers on the ID rows.
    log_ratio_id, log_ratio_traffic : ndarray
        Scores from which the OOD prior of this traffic is estimated.
    alpha, level : float
    pi : float, Interval or None
        OOD prior, known or estimated before; None estimates it on these rows.
    loss_values : ndarray
        Every value that the loss can have.

    Returns
    -------
    evaluation : UnlabeledEvaluation
    """
    if isinstance(pi, Interval):
        prior = pi
    else:
        prior = estimate_share(log_ratio_id, log_ratio_traffic, level) if pi is None else Interval(pi, pi, pi, level)
    counts = int(accept_id.sum()), len(accept_id), int(accept_traffic.sum()), len(accept_traffic)
    fpr = unlabeled_fpr(*counts, prior.estimate, pi_interval=(prior.low, prior.high), level=level)
    selective = mean_loss_interval(loss[accept_id], level=level, values=loss_values)
    return UnlabeledEvaluation(
        binomial_interval(*counts[:2], level=level),
        selective,
        binomial_interval(*counts[2:], level=level),
        prior,
        fpr,
        scod_risk(selective, Interval(fpr.estimate, fpr.low, fpr.high, level), alpha),
    )


def label_free_risk(
    accept: Mask,
    loss: Floats,
    accept_traffic: Mask | None,
    weights: tuple[Floats | None, Floats | None],
    alpha: float,
    worst: float,
) -> float:
    """Return a bound of the SCOD risk as one number to choose models by.

    Parameters
    ----------
    accept, loss : ndarray
        Of the labelled rows.
    accept_traffic : ndarray of bool or None
        Of the unlabelled rows; their share accepted bounds FPR for every OOD prior. A model's own estimate of the prior
        must not enter: models that find less OOD would look better. Without unlabelled rows FPR counts as zero.
    weights : pair of ndarray or None
        Sample weights of labelled and unlabelled rows.
    alpha : float
    worst : float
        Risk of a rule that accepts no ID row.

    Returns
    -------
    risk : float
    """
    tpr = float(np.average(accept, weights=weights[0]))
    if tpr == 0.0:
        return worst
    fpr = 0.0 if accept_traffic is None else float(np.average(accept_traffic, weights=weights[1]))
    return ScodProblem(alpha).risk(float(np.average(loss * accept, weights=weights[0])) / tpr, fpr)


def scod_risk(selective: Interval, fpr: Interval, alpha: float) -> Interval:
    """Return the SCOD risk; the two parts come from different rows, so the distances to their ends add in squares."""
    problem = ScodProblem(alpha)
    value = problem.risk(selective.estimate, fpr.estimate)
    below, above = (
        float(
            np.hypot(
                (1 - alpha) * abs(selective.estimate - a) if alpha < 1 else 0.0,
                alpha * abs(fpr.estimate - b) if alpha > 0 else 0.0,
            )
        )
        for a, b in ((selective.low, fpr.low), (selective.high, fpr.high))
    )
    return Interval(value, max(0.0, value - below), value + above, selective.level)


def estimate_share(id_: Floats, traffic: Floats, level: float) -> Interval:
    """Estimate the OOD prior of fresh rows; its interval joins sampling error and what overlap can hide."""
    every = np.concatenate([id_, traffic])
    if min(len(id_), len(traffic)) < 2 or every.min() == every.max():
        return Interval(0.0, 0.0, 1.0, level)  # no ratio was learned, or nothing to compare: any share is possible
    estimate = float(estimate_prior(id_, traffic))
    low, high = prior_interval(acceptance(id_, traffic), PRIORS["mean"], estimate, level)
    return Interval(estimate, float(low), float(high), level)
