# SPDX-License-Identifier: BSD-3-Clause
"""What a rule achieves on fresh rows: with clean OOD rows exactly, without any OOD label through the mixture identity.

Convention: every number comes with an interval, and rows must be fresh: rows that nothing was fitted on. Rows are scored once (`Sample`);
counts (`Tally`) of parts add up, so that rows in chunks are measured alike.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator

from poscod import _show
from poscod._validation import Floats, check_choice, check_number
from poscod.activations import Activations
from poscod.decision import Decisions
from poscod.exceptions import InvalidInputError, PoscodWarning
from poscod.labels import as_labels, codes_of
from poscod.metrics import Interval
from poscod.mix import ClassMix
from poscod.model._drift import column_names, named_columns
from poscod.model._groups import near_copies
from poscod.model._mix import fresh_mix, mix_weights, prior_spread
from poscod.model._rows import n_rows, take
from poscod.model._tally import Mask, Tally, tally
from poscod.problem import ScodProblem
from poscod.ratio import PRIORS, Acceptance, Diagnosis, acceptance, diagnose_rows, prior_interval
from poscod.rule import Rule
from poscod.selector import MAY_BE, Calibration, UnlabeledFPR, check_prior, fpr_from_rates, without_stillness

# Rows of each side that the ratio is diagnosed on: enough for every check, and the default ratio is slow.
_DIAGNOSED = 5000

NOT_STILL = {
    "seen_by_classifier": "the labeled rows look like rows the classifier was trained on",
    "maybe_seen_by_classifier": "the labeled rows may be rows the classifier was trained on",
    "inputs_drifted": "known inputs of this traffic seem to have moved",
    "drift_undecided": "known inputs of this traffic may have moved, which cannot be told from OOD inputs",
}
"""Findings with which known inputs of the traffic are not like the labeled rows, or may not be: what rests on that is withdrawn."""


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

    def __repr__(self) -> str:
        return f"Evaluation({_show.line(self._asdict())}; {100 * self.tpr.level:g} % intervals)"

    def _repr_html_(self) -> str:
        return _show.quantities(self._asdict(), self.tpr.level)


class UnlabeledEvaluation(NamedTuple):
    """A rule on fresh labeled ID rows and unlabeled traffic.

    Attributes
    ----------
    tpr : Interval
        Share of ID rows accepted.
    selective_risk : Interval
        Mean loss on accepted ID rows.
    accepted : Interval
        Share of the traffic accepted.
    ood_prior : Interval
        Share of OOD inputs in the traffic; its interval starts at 0 where known inputs have moved, or may have.
    fpr : UnlabeledFPR
        Share of OOD inputs accepted, from ``accepted = (1 - pi) TPR + pi FPR``; see its ``informative`` and ``reason``. Where known inputs of the traffic have moved, or may have,
        only ``upper_any_prior`` holds.
    risk : Interval
        SCOD risk; NaN where FPR is not informative.
    """

    tpr: Interval
    selective_risk: Interval
    accepted: Interval
    ood_prior: Interval
    fpr: UnlabeledFPR
    risk: Interval

    def __repr__(self) -> str:
        return f"UnlabeledEvaluation({_show.line(self._asdict())}; {100 * self.tpr.level:g} % intervals)"

    def _repr_html_(self) -> str:
        note = "" if self.fpr.informative else _show.paragraph(self.fpr.reason)
        return _show.quantities(self._asdict(), self.tpr.level) + note


@dataclass(frozen=True, eq=False)
class Sample:
    """Fresh rows as a fitted model sees them, and the model's rule.

    Parameters
    ----------
    rule : Rule
        The model's own.
    calibration : Calibration
        What thresholds of rival rules are chosen on.
    delta : float or None
        Error probability of guaranteed thresholds; None where they are order statistics.
    has_ratio : bool
        Whether a ratio was learned.
    groups : dict of str to Decisions
        Decisions on labeled ID rows under "id" and, where there are such rows, on clean OOD rows under "ood" and on traffic under
        "unlabeled".
    loss : ndarray of shape (n,)
        Loss of the answers on the ID rows.
    prior : Interval or None
        Share of OOD inputs in this traffic.
    level : float
        Coverage of intervals.
    codes : ndarray of shape (n,) or None, default=None
        Class indices of the ID rows.
    mix : ClassMix or None, default=None
        Class mix of the ID inputs that rates are for; None takes the rows as they come.
    diagnosis : dict or None, default=None
        What `check_ratio` found on these rows; None without traffic or without a ratio.
    """

    rule: Rule
    calibration: Calibration
    delta: float | None
    has_ratio: bool
    groups: dict[str, Decisions]
    loss: Floats
    prior: Interval | None
    level: float
    codes: NDArray[np.integer] | None = None
    mix: ClassMix | None = None
    diagnosis: Diagnosis | None = None

    @property
    def not_still(self) -> str:
        """Why known inputs of this traffic are not like the labeled rows, or may not be; empty where nothing shows it."""
        return not_still(self.diagnosis)

    @property
    def weight_id(self) -> Floats | None:
        """Weights with which the ID rows have the class mix that rates are for; None where they are taken as they come."""
        if self.mix is None or self.codes is None:
            return None
        return mix_weights(self.mix, self.codes)

    @property
    def known(self) -> Decisions:
        """Decisions on the ID rows."""
        return self.groups["id"]

    @property
    def tally_id(self) -> Tally:
        """What the model's own rule did on the ID rows."""
        return tally(self.known.accept, self.loss, self.loss_values, self.codes, len(self.calibration.classes))

    @property
    def alpha(self) -> float:
        """Relative cost by which rules are judged."""
        return self.rule.problem.alpha

    @property
    def loss_values(self) -> Floats:
        """Every value that the loss can have, increasing."""
        return loss_values_of(self.rule, self.calibration)

    @property
    def zero_one(self) -> bool:
        """Whether a mistake always costs 1."""
        return set(self.loss_values) <= {0.0, 1.0}

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each group."""
        return {name: len(rows) for name, rows in self.groups.items()}


class Measured(NamedTuple):
    """What a rule achieves on a `Sample`; None where the rows for it are missing."""

    tpr: Interval
    selective_risk: Interval
    with_ood: Evaluation | None
    without: UnlabeledEvaluation | None


def loss_values_of(rule: Rule, calibration: Calibration) -> Floats:
    """Return every value that the loss of a rule can have, increasing."""
    return np.unique(rule.problem.loss_matrix(len(calibration.classes)))


def judge(model: Any, X: Any, y: Any) -> tuple[Decisions, Floats, NDArray[np.intp]]:
    """Decide on labeled rows; return also the losses of the answers, and the class indices."""
    decisions = model.decide(X)
    y = as_labels(y)
    if len(y) != len(decisions):
        raise InvalidInputError(
            "{y} must have as many rows as {X} ({allowed}), got {got}.", allowed=len(decisions), got=len(y)
        )
    classes = model.calibration_.classes
    truth, answer = known_codes(classes, y), codes_of(classes, decisions.label)
    return decisions, model.rule_.problem.losses(truth, answer, len(classes)), truth


def known_codes(classes: NDArray[Any], y: NDArray[Any]) -> NDArray[np.intp]:
    """Return labels as class indices; one that is no class is refused."""
    codes = codes_of(classes, y)
    if (codes < 0).any():
        raise InvalidInputError(
            "{y} must hold labels seen at fit, got {got!r}: OOD rows are passed apart, as {X_ood}.",
            got=y[codes < 0].tolist()[0],
        )
    return codes


def read_sample(
    model: Any,
    X: Any,
    y: Any,
    X_ood: Any,
    X_unlabeled: Any,
    *,
    pi: float | None = None,
    level: float = 0.95,
    class_mix: str = "traffic",
) -> Sample:
    """Decide once on every group of fresh rows; pi is the share of OOD inputs in the traffic where it is known."""
    known, loss, codes = judge(model, X, y)
    others = {"ood": X_ood, "unlabeled": X_unlabeled}
    groups = {"id": known, **{name: model.decide(rows) for name, rows in others.items() if rows is not None}}
    mix = mix_for(model, class_mix)
    # Without a ratio nothing tells OOD rows from a class that became more frequent.
    if "unlabeled" in groups and class_mix == "traffic" and model.scorer_.ratio is not None:
        ratios = known.log_ratio, groups["unlabeled"].log_ratio
        mix = fresh_mix(model, (X, X_unlabeled), codes, ratios, pi)
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    found = None if X_unlabeled is None else check_ratio(model, X, y, X_unlabeled, mix=mix, level=level)
    return sample_of(model, groups, loss, codes, mix, found, pi=pi, level=level)


def not_still(found: Diagnosis | None) -> str:
    """Return why known inputs of the traffic are not like the labeled rows, or may not be, in words; empty where nothing was found."""
    return next((words for name, words in NOT_STILL.items() if found is not None and name in found["findings"]), "")


def not_still_at_fit(calibration: Calibration) -> str:
    """Return the same of the traffic of the fit; what verdicts have settled is still."""
    if calibration.trained_on:
        return NOT_STILL["maybe_seen_by_classifier" if calibration.trained_on == MAY_BE else "seen_by_classifier"]
    drift = calibration.drift
    if drift is None or drift.verdicts:
        return ""
    return NOT_STILL["inputs_drifted" if drift.said == "drift" else "drift_undecided"]


def mix_for(model: Any, class_mix: str) -> ClassMix | None:
    """Return the class mix that a model's rates are for: "traffic" is the one that it serves, "labeled" that of the rows as they come."""
    check_choice(class_mix, "class_mix", {"traffic": 0, "labeled": 1})
    mix: ClassMix | None = model.calibration_.mix
    return mix if class_mix == "traffic" and mix is not None and mix.changed else None


def sample_of(
    model: Any,
    groups: dict[str, Decisions],
    loss: Floats,
    codes: NDArray[np.integer] | None = None,
    mix: ClassMix | None = None,
    found: Diagnosis | None = None,
    *,
    pi: float | None = None,
    level: float = 0.95,
) -> Sample:
    """Return decisions on fresh rows as a sample; without pi the share of OOD inputs in the traffic is estimated, and certain only where these rows were found still."""
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    pi = None if pi is None else check_number(pi, "pi", 0.0, 1.0, closed="right")
    prior = None if pi is None else Interval(pi, pi, pi, level)
    if "unlabeled" not in groups:
        prior = None
    elif prior is None:
        prior = estimate_share(groups["id"].log_ratio, groups["unlabeled"].log_ratio, level, codes, mix)
        if not_still(found):
            prior = prior._replace(low=0.0)
    # Rivals are guaranteed their TPR where the rule is: one that was set for a budget has no TPR to compare by.
    promise = model.rule_.promise
    guaranteed = promise is not None and promise.quantity == "tpr" and promise.confidence is not None
    delta = model.delta / promise.rules if guaranteed else None
    has_ratio = model.ratio_ is not None
    return Sample(model.rule_, model.calibration_, delta, has_ratio, groups, loss, prior, level, codes, mix, found)


def measured_of(tallies: Mapping[str, Tally], sample: Any) -> Measured:
    """Return what a rule achieves from its counts on the groups of a sample, or of anything with prior, alpha, level, loss_values, mix and not_still."""
    known, alpha, level, values, mix = tallies["id"], sample.alpha, sample.level, sample.loss_values, sample.mix
    with_ood = without = None
    if "ood" in tallies:
        with_ood = evaluation_of(known, tallies["ood"], alpha, level, loss_values=values, mix=mix)
    if "unlabeled" in tallies:
        without = unlabeled_evaluation_of(
            known, tallies["unlabeled"], sample.prior, alpha, level, loss_values=values, mix=mix, why=sample.not_still
        )
    return Measured(known.rate(level, mix), known.mean_loss(level, values, mix), with_ood, without)


def measure_masks(accept: Mapping[str, Mask], sample: Sample) -> Measured:
    """Measure decisions on the groups of a sample."""
    tallies = {name: tally(mask) for name, mask in accept.items()}
    known = tally(accept["id"], sample.loss, sample.loss_values, sample.codes, len(sample.calibration.classes))
    return measured_of({**tallies, "id": known}, sample)


def measure_own(sample: Sample) -> Measured:
    """Measure the model's own rule."""
    return measure_masks({name: rows.accept for name, rows in sample.groups.items()}, sample)


def measure_promise(sample: Sample) -> Measured:
    """Measure what the rule promises something about, in the class mix that the promise speaks of."""
    promise, mix = sample.rule.promise, sample.mix
    if promise is not None and promise.over == "all":
        mix = sample.calibration.mix if promise.mix == "traffic" else None
    known = sample.tally_id
    return Measured(known.rate(sample.level, mix), known.mean_loss(sample.level, sample.loss_values, mix), None, None)


def check_ratio(
    model: Any, X: Any, y: Any, X_unlabeled: Any, *, mix: ClassMix | None = None, level: float = 0.95
) -> Diagnosis | None:
    """Check a model's g, and whether inputs have moved, on at most some thousand fresh rows of each kind; None where there is no ratio, or too few rows.

    The mix is that of the fresh traffic's ID part, as `Sample` has it: another one than is served is a finding, and no drift.
    """
    scorer = model.scorer_
    few = min(n_rows(X), n_rows(X_unlabeled)) < 2
    if scorer.ratio is None or few or not 0.0 <= model.ood_prior_ <= 1.0:
        return None
    rows = scorer.prepared(_some(X)), scorer.prepared(_some(X_unlabeled))
    known, traffic = map(scorer.view, rows)
    codes = codes_of(scorer.classes, as_labels(_some(np.asarray(y))))
    if scorer.network or isinstance(scorer.classifier, FrozenEstimator):
        # Only an outside classifier may have been trained on rows that are called fresh; labels tell.
        known = Activations(known.features, known.logits, codes, table=known.table)
    # g is against ID inputs in the class mix that is served, whatever that of these rows is.
    served = mix_for(model, "traffic")
    weight, now = (None if m is None else mix_weights(m, codes) for m in (served, mix))
    made = column_names(rows[0], scorer.classifier, bool(scorer.transforms), known)
    names = named_columns(made, model.schema_.numbers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoscodWarning)  # the findings say the same
        found = diagnose_rows(scorer.ratio, known, traffic, weight, now, names, level=level)
        copies = near_copies(rows[0], rows[1], codes) is not None
    if mix is not None and (served is None or not np.allclose(mix.traffic, served.traffic)):
        found["findings"].append("class_mix_differs")
    if copies:
        # Copies make everything else look strange.
        found["findings"] = [*(name for name in found["findings"] if name != "strangers"), "near_copies"]
    return found


def diagnosed(n: int) -> NDArray[np.intp]:
    """Return which of n rows a ratio is checked on: all, or every k-th."""
    return np.arange(0, n, max(1, -(-n // _DIAGNOSED)), dtype=np.intp)


def _some(X: Any) -> Any:
    n = n_rows(X)
    return X if n <= _DIAGNOSED else take(X, diagnosed(n))


def evaluation_of(
    known: Tally, ood: Tally, alpha: float, level: float, *, loss_values: Floats, mix: ClassMix | None = None
) -> Evaluation:
    """Evaluate decisions from counts on ID and OOD rows."""
    fpr, selective = ood.rate(level), known.mean_loss(level, loss_values, mix)
    return Evaluation(known.rate(level, mix), fpr, selective, scod_risk(selective, fpr, alpha))


def unlabeled_evaluation_of(
    known: Tally,
    traffic: Tally,
    prior: Interval,
    alpha: float,
    level: float,
    *,
    loss_values: Floats,
    mix: ClassMix | None = None,
    why: str = "",
) -> UnlabeledEvaluation:
    """Evaluate decisions from counts on ID rows and traffic; `why` says why known inputs of the traffic are not like these ID rows, if they are not."""
    tpr, rows = known.in_mix(mix)
    share = check_prior(prior.estimate, None, (prior.low, prior.high), level)
    fpr = fpr_from_rates(tpr, rows, traffic.accepted, traffic.rows, share, level)
    fpr = without_stillness(fpr, why) if why else fpr
    selective = known.mean_loss(level, loss_values, mix)
    return UnlabeledEvaluation(
        known.rate(level, mix),
        selective,
        traffic.rate(level),
        prior,
        fpr,
        scod_risk(selective, Interval(fpr.estimate, fpr.low, fpr.high, level), alpha),
    )


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


# In units of the quartiles' distance of ID rows: where "far beyond ID rows" begins.
FENCE = 6.0


def estimate_share(
    id_: Floats,
    traffic: Floats,
    level: float,
    codes: NDArray[np.integer] | None = None,
    mix: ClassMix | None = None,
) -> Interval:
    """Estimate the OOD prior of fresh rows; its interval joins sampling error, the error of the class mix, and what overlap can hide."""
    every = np.concatenate([id_, traffic])
    if min(len(id_), len(traffic)) < 2 or every.min() == every.max():
        return share_of(None, level)
    if np.isfinite(id_).all():
        # Rows far outside of what was seen have a log g of hundreds, which is no slope: beyond ID rows all are the same.
        first, third = np.quantile(id_, [0.25, 0.75])
        id_, traffic = (np.minimum(values, third + FENCE * (third - first)) for values in (id_, traffic))
    if mix is None or codes is None:
        return share_of(acceptance(id_, traffic), level)
    curve = acceptance(id_, traffic, mix_weights(mix, codes))
    return share_of(curve._replace(spread=prior_spread(id_, codes, traffic, mix)), level)


def share_of(curve: Acceptance | None, level: float) -> Interval:
    """Estimate the OOD prior with its interval from the shares accepted at each threshold; see `estimate_share`."""
    if curve is None:
        return Interval(0.0, 0.0, 1.0, level)  # no ratio was learned, or nothing to compare: any share is possible
    estimate = float(PRIORS["mean"](curve))
    low, high = prior_interval(curve, PRIORS["mean"], estimate, level)
    return Interval(estimate, float(low), float(high), level)
