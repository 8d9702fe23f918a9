# SPDX-License-Identifier: BSD-3-Clause
"""What a deployed rule achieves: with clean OOD rows exactly, without any OOD label through the mixture identity.

Convention: every number comes with an interval, and rows must be fresh: rows that nothing was fitted on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.metrics import Interval, binomial_interval
from poscod.metrics._intervals import counted_loss_interval
from poscod.problem import ScodProblem
from poscod.ratio import PRIORS
from poscod.ratio._gate import prior_interval
from poscod.ratio._prior import Acceptance, acceptance
from poscod.selector import UnlabeledFPR, unlabeled_fpr

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Tally:
    """What a rule did on some rows: counts, so those of parts add up.

    Parameters
    ----------
    rows, accepted : int
        All rows, and those accepted.
    losses : ndarray of shape (k,), int
        Of the accepted rows, how many have each value that the loss can have; empty where there are no labels.
    """

    rows: int
    accepted: int
    losses: NDArray[np.int64]

    def __add__(self, other: Tally) -> Tally:
        """Return the counts of both parts together."""
        return Tally(self.rows + other.rows, self.accepted + other.accepted, self.losses + other.losses)

    def rate(self, level: float) -> Interval:
        """Return the share of rows accepted, with its exact interval."""
        return binomial_interval(self.accepted, self.rows, level=level)

    def mean_loss(self, level: float, loss_values: Floats) -> Interval:
        """Return the mean loss of the accepted rows with its interval."""
        return counted_loss_interval(loss_values, self.losses, level=level, values=loss_values)


def tally(accept: Mask, loss: Floats | None = None, loss_values: Floats | None = None) -> Tally:
    """Count what a rule did on some rows.

    Examples
    --------
    >>> tally(np.array([True, False, True]), np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0])).losses
    array([1, 1])
    """
    accepted = int(np.count_nonzero(accept))
    if loss is None or loss_values is None:
        return Tally(len(accept), accepted, np.zeros(0, dtype=np.int64))
    place = np.searchsorted(loss_values, loss[accept])
    return Tally(len(accept), accepted, np.bincount(place, minlength=len(loss_values)).astype(np.int64))


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
    """Evaluate decisions on ID and OOD rows."""
    known = tally(accept_id, loss, loss_values)
    return evaluation_of(known, tally(accept_ood), alpha, level, loss_values=loss_values)


def evaluation_of(known: Tally, ood: Tally, alpha: float, level: float, *, loss_values: Floats) -> Evaluation:
    """Evaluate decisions from counts on ID and OOD rows; see `evaluate`."""
    fpr, selective = ood.rate(level), known.mean_loss(level, loss_values)
    return Evaluation(known.rate(level), fpr, selective, scod_risk(selective, fpr, alpha))


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
    """Evaluate decisions on ID rows and unlabelled traffic."""
    if isinstance(pi, Interval):
        prior = pi
    else:
        prior = estimate_share(log_ratio_id, log_ratio_traffic, level) if pi is None else Interval(pi, pi, pi, level)
    known = tally(accept_id, loss, loss_values)
    return unlabeled_evaluation_of(known, tally(accept_traffic), prior, alpha, level, loss_values=loss_values)


def unlabeled_evaluation_of(
    known: Tally, traffic: Tally, prior: Interval, alpha: float, level: float, *, loss_values: Floats
) -> UnlabeledEvaluation:
    """Evaluate decisions from counts on ID rows and traffic; see `evaluate_unlabeled`."""
    counts = known.accepted, known.rows, traffic.accepted, traffic.rows
    fpr = unlabeled_fpr(*counts, prior.estimate, pi_interval=(prior.low, prior.high), level=level)
    selective = known.mean_loss(level, loss_values)
    return UnlabeledEvaluation(
        known.rate(level),
        selective,
        traffic.rate(level),
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
    """Return a bound of the SCOD risk as one number to choose models by."""
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
        return share_of(None, level)
    return share_of(acceptance(id_, traffic), level)


def share_of(curve: Acceptance | None, level: float) -> Interval:
    """Estimate the OOD prior with its interval from the shares accepted at each threshold; see `estimate_share`."""
    if curve is None:
        return Interval(0.0, 0.0, 1.0, level)  # no ratio was learned, or nothing to compare: any share is possible
    estimate = float(PRIORS["mean"](curve))
    low, high = prior_interval(curve, PRIORS["mean"], estimate, level)
    return Interval(estimate, float(low), float(high), level)
