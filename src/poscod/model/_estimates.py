# SPDX-License-Identifier: BSD-3-Clause
"""What a fitted rule is expected to do, from the rows that the model keeps of its fit: the one place where everybody gets these numbers from.

Convention: ID rows are those that thresholds are set on, one of each group, in the class mix that is served; traffic is that of the fit; no OOD label is used. Every rate has an
interval at one level. `poscod.model.unlabeled_evaluation_of` turns counts into rates, here as on fresh rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from poscod import _show
from poscod._json import plain
from poscod._validation import check_number
from poscod.decision import REASONS
from poscod.metrics import Interval
from poscod.mix import ClassMix
from poscod.model._evaluate import (
    UnlabeledEvaluation,
    loss_values_of,
    mix_for,
    not_still_at_fit,
    unlabeled_evaluation_of,
)
from poscod.model._tally import Mask, tally

# What a mistake costs where mistakes are counted.
_WRONG = np.array([0.0, 1.0])
FEW_WRONG = 20
"""Fewer wrong answers than this say nothing about how many a rule catches."""
PER = 10_000
"""Inputs that workloads are told for."""


@dataclass(frozen=True, eq=False, repr=False)
class Estimates:
    """What a rule is expected to do on inputs like those of its fit.

    Parameters
    ----------
    rows, traffic_rows : int
        Labeled rows (one of each group) and unlabeled rows behind the numbers.
    unseen : bool
        Whether each unlabeled row was scored by a ratio that has not seen it; otherwise FPR is a little too small.
    accuracy : Interval
        Share of ID inputs that the classifier answers rightly, accepted or not.
    majority : tuple of object and float
        The most frequent class and its share: the accuracy of always answering it.
    tpr : Interval
        Share of ID inputs accepted.
    error, selective_risk : Interval
        Share of wrong answers among accepted ID inputs, and their mean loss, which is the same for 0/1 loss.
    wrong, caught : int, Interval
        Wrong answers among the labeled rows, and the share of such answers that the rule rejects.
    reasons : dict of str to float
        Share of the traffic (without traffic: of ID inputs) that is accepted, or rejected for each reason.
    free : UnlabeledEvaluation or None
        OOD share, share of the traffic accepted, FPR and SCOD risk; None without a ratio.
    price : Interval or None
        How many wrong answers one accepted OOD input counts as, see Notes; None without OOD inputs.
    reject_price : float
        How many wrong answers the rule pays rather than reject one more ID input: lambda.
    zero_one : bool
        Whether every mistake costs 1.
    trained_on : bool
        Whether the labeled rows look like rows that the classifier was trained on: all numbers are too good then.
    level : float
        Coverage of the intervals.

    Notes
    -----
    Among N inputs with OOD share pi, accepting at x adds N (1 - pi) p_I r wrong answers and N pi p_O accepted OOD inputs. The rule compares r + mu g = r + mu p_O / p_I with lambda,
    so it counts an accepted OOD input as ``mu (1 - pi) / pi`` wrong answers, mu the slope of the rule; for `ScodProblem` mu = alpha tpr_min / (1 - alpha).
    """

    rows: int
    traffic_rows: int
    unseen: bool
    accuracy: Interval
    majority: tuple[Any, float]
    tpr: Interval
    error: Interval
    selective_risk: Interval
    wrong: int
    caught: Interval
    reasons: Mapping[str, float]
    free: UnlabeledEvaluation | None
    price: Interval | None
    reject_price: float
    zero_one: bool
    trained_on: bool
    level: float

    def __repr__(self) -> str:
        return f"Estimates({_show.line(self._main())}; {100 * self.level:g} % intervals)"

    def _repr_html_(self) -> str:
        return _show.quantities(self._main(), self.level)

    def _main(self) -> dict[str, Any]:
        """Return the numbers that are shown first."""
        free = {} if self.free is None else {"ood_prior": self.free.ood_prior, "fpr": self.free.fpr}
        return {"accuracy": self.accuracy, "tpr": self.tpr, "error": self.error, "caught": self.caught, **free}

    @property
    def near_chance(self) -> bool:
        """Whether the classifier is not shown to be better than always answering the most frequent class."""
        return self.accuracy.low <= self.majority[1]

    @property
    def catches(self) -> bool | None:
        """Whether the rule rejects twice as many of the wrong answers as of all, and surely more; None where there are too few of them to tell."""
        chance = 1.0 - self.tpr.estimate
        enough = self.caught.estimate >= 2.0 * chance and self.caught.low > chance
        return None if self.wrong < FEW_WRONG else enough

    @property
    def workload(self) -> dict[str, float]:
        """Of 10,000 inputs like the traffic: how many are answered (of these ID inputs wrongly, and OOD inputs) and rejected, by reason."""
        shares = dict(self.reasons)
        ood = 0.0 if self.free is None else self.free.ood_prior.estimate
        wrong = (1.0 - ood) * self.tpr.estimate * self.error.estimate
        found = {"answered": shares.pop("accepted"), "answered_wrongly": 0.0 if math.isnan(wrong) else wrong}
        found["answered_ood"] = math.nan if self.free is None else ood * self.free.fpr.estimate
        if self.free is not None:  # FPR grows with the OOD share, so their ends go together
            share, fpr = self.free.ood_prior, self.free.fpr
            found |= {"answered_ood_low": share.low * fpr.low, "answered_ood_high": share.high * fpr.high}
        return {name: PER * value for name, value in {**found, "rejected": sum(shares.values()), **shares}.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain values, ready for JSON.

        Returns
        -------
        document : dict
        """
        free = self.free
        of_ood = dict.fromkeys(("ood_prior", "accepted", "fpr", "fpr_note", "risk"))
        if free is not None:
            fpr = Interval(*free.fpr[:4])
            note = None if free.fpr.informative else free.fpr.reason
            of_ood = {
                "ood_prior": free.ood_prior,
                "accepted": free.accepted,
                "fpr": fpr,
                "fpr_note": note,
                "risk": free.risk,
            }
        document: dict[str, Any] = plain(
            {
                "rows": self.rows,
                "traffic_rows": self.traffic_rows,
                "level": self.level,
                "accuracy": self.accuracy,
                "majority": {"class": self.majority[0], "share": self.majority[1]},
                "tpr": self.tpr,
                "error": self.error,
                "selective_risk": self.selective_risk,
                "wrong": {"rows": self.wrong, "caught": self.caught},
                **of_ood,
                "per_10000": self.workload,
                "price": self.price,
                "reject_price": self.reject_price,
            },
            infinity=None,
        )
        return document


def share_at_fit(model: Any, level: float = 0.95) -> Interval:
    """Return the OOD share in the traffic of the fit; where no ratio was learned, any share is possible."""
    if model.scorer_.ratio is None:
        return Interval(0.0, 0.0, 1.0, level)
    low, high = model.scorer_.ratio.ood_prior_interval(level)
    value = float(model.calibration_.ood_prior)
    return Interval(value, min(float(low), value), max(float(high), value), level)


def estimates_of(model: Any, level: float = 0.95, prior: Interval | None = None) -> Estimates:
    """Return what a fitted model's rule is expected to do; the OOD share of the fit is asked for once where several rules of a model are compared."""
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    rule, rows = model.rule_, model.calibration_.independent()
    loss, k = rule.problem.loss, len(rows.classes)
    known, values = rule.decide(rows.known(loss)), loss_values_of(rule, rows)
    wrong, mix, weight = known.label != rows.classes[rows.codes], mix_for(model, "traffic"), rows.weight
    shares = (
        mix.traffic
        if mix is not None
        else np.bincount(rows.codes, weight, k) / (len(rows) if weight is None else weight.sum())
    )
    if weight is not None and mix is None:  # weights are counts then, and a share of counts is one in a class mix
        mix = ClassMix.unchanged(shares)

    def mean(of: Mask, what: Any, steps: Any = _WRONG) -> Interval:
        """Return the mean of a value over some of the rows."""
        return tally(of, np.asarray(what, dtype=np.float64), steps, rows.codes, k, weight).mean_loss(level, steps, mix)

    everything = np.ones(len(rows), dtype=bool)
    mistakes = mean(everything, wrong)
    accepted = tally(known.accept, rows.losses(rule.problem), values, rows.codes, k, weight)
    traffic, free = rule.decide(rows.traffic(loss)), None
    tpr = accepted.rate(level, mix)
    if (
        rows.traffic_known is not None
    ):  # known inputs have moved: rows of the traffic, by their chance to be known, say how many are answered
        tpr = tally(traffic.accept, weight=rows.traffic_known).rate(level, ClassMix.unchanged(np.ones(1)))
    prior = share_at_fit(model, level) if prior is None else prior
    if model.scorer_.ratio is not None and len(traffic):
        counted = tally(traffic.accept)
        why, alpha = not_still_at_fit(rows), rule.problem.alpha
        free = unlabeled_evaluation_of(accepted, counted, prior, alpha, level, loss_values=values, mix=mix, why=why)
    of = traffic if len(traffic) else known
    largest = int(np.argmax(shares))
    return Estimates(
        len(rows),
        len(traffic),
        bool(rows.traffic_held),
        Interval(1.0 - mistakes.estimate, 1.0 - mistakes.high, 1.0 - mistakes.low, level),
        (model.schema_.labels(rows.classes).tolist()[largest], float(shares[largest])),
        tpr,
        mean(known.accept, wrong),
        accepted.mean_loss(level, values, mix),
        int(wrong.sum()),
        mean(wrong, ~known.accept),
        {reason: float(np.mean(of.reason == reason)) for reason in REASONS},
        free,
        _price(rule, prior, level),
        float(rule.threshold),
        set(values) <= {0.0, 1.0},
        bool(rows.trained_on),
        level,
    )


def _price(rule: Any, prior: Interval, level: float) -> Interval | None:
    """Return how many wrong answers a rule counts one accepted OOD input as, with what the error of the OOD share makes of it."""
    own = getattr(rule.problem, "pi", None)
    if own is not None:  # the problem says for which share it is
        prior = Interval(own, own, own, level)
    if prior.estimate == 0.0:
        return None

    def price(pi: float) -> float:
        if pi == 0.0:
            return math.inf if rule.slope > 0.0 else 0.0
        return 0.0 if pi == 1.0 else rule.slope * (1.0 - pi) / pi

    return Interval(price(prior.estimate), price(prior.high), price(prior.low), level)
