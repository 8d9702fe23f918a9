# SPDX-License-Identifier: BSD-3-Clause
"""Rules that compete on the same r and g: the fitted rule, either term alone, and SIRC.

Convention: every rule is a score and a threshold that is chosen on the same calibration rows for the same required TPR, in the
same way (empirical or guaranteed). Nothing is tuned on the rows that are measured.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator

from poscod._evaluation import (
    Evaluation,
    Tally,
    UnlabeledEvaluation,
    estimate_share,
    evaluation_of,
    tally,
    unlabeled_evaluation_of,
)
from poscod._inputs import NetworkHead, n_rows, take, view
from poscod._validation import Floats, check_number
from poscod.activations import Activations
from poscod.decision import Decisions
from poscod.exceptions import PoscodWarning
from poscod.metrics import Interval
from poscod.problem import ScodProblem
from poscod.ratio import diagnose
from poscod.ratio._diagnose import Diagnosis
from poscod.selector import CalibrationArrays
from poscod.strategies import rejection_score, sirc, sirc_parameters

# Second score of SIRC is g itself, as in the paper; beyond e^300 its square, which the spread needs, overflows.
_LARGEST_LOG = 300.0
# Rows of each side that the ratio is diagnosed on: enough for every check, and the default ratio is slow.
_DIAGNOSED = 5000

Score = Callable[[Any], Floats]
"""From anything with columns ``risk`` and ``log_ratio`` to a rejection score."""


class Competitor(NamedTuple):
    """A score with its threshold: accept iff score <= threshold.

    Attributes
    ----------
    name : str
        A key of `RULES`.
    score : callable
        Rows with ``risk`` and ``log_ratio`` -> ndarray of shape (n,).
    threshold : float
    edge : callable
        log g -> the largest r that is accepted there; NaN where r does not matter.
    """

    name: str
    score: Score
    threshold: float
    edge: Callable[[Floats], Floats]


class Sample(NamedTuple):
    """Fresh rows as a fitted model sees them.

    Attributes
    ----------
    known : Decisions
        On labelled ID rows.
    loss : ndarray of shape (n,)
        Loss of the answers on them.
    ood, traffic : Decisions or None
        On clean OOD rows and on unlabelled rows.
    prior : Interval or None
        Share of OOD inputs in this traffic.
    calibration : CalibrationArrays
        What thresholds are chosen on.
    alpha, level : float
    loss_values : ndarray
        Every value that the loss can have.
    """

    known: Decisions
    loss: Floats
    ood: Decisions | None
    traffic: Decisions | None
    prior: Interval | None
    calibration: CalibrationArrays
    alpha: float
    level: float
    loss_values: Floats

    @property
    def zero_one(self) -> bool:
        """Whether a mistake always costs 1."""
        return set(self.loss_values) <= {0.0, 1.0}

    @property
    def groups(self) -> dict[str, Decisions]:
        """The groups of rows that are there: "id", "ood", "unlabelled"."""
        named = {"id": self.known, "ood": self.ood, "unlabelled": self.traffic}
        return {name: rows for name, rows in named.items() if rows is not None}

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each group."""
        return {name: len(rows) for name, rows in self.groups.items()}


class Measured(NamedTuple):
    """What a rule achieves on a `Sample`; None where the rows for it are missing.

    Attributes
    ----------
    tpr, selective_risk : Interval
    with_ood : Evaluation or None
        From clean OOD rows.
    without : UnlabeledEvaluation or None
        From unlabelled rows.
    """

    tpr: Interval
    selective_risk: Interval
    with_ood: Evaluation | None
    without: UnlabeledEvaluation | None


def read_sample(
    model: Any, X: Any, y: Any, X_ood: Any, X_unlabeled: Any, *, pi: float | None = None, level: float = 0.95
) -> Sample:
    """Decide once on every group of rows."""
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    pi = None if pi is None else check_number(pi, "pi", 0.0, 1.0, closed="right")
    known, loss = model._judge(X, y)
    ood, traffic = (None if rows is None else model.decide(rows) for rows in (X_ood, X_unlabeled))
    prior = None if pi is None else Interval(pi, pi, pi, level)
    if traffic is None:
        prior = None
    elif prior is None:
        prior = estimate_share(known.log_ratio, traffic.log_ratio, level)
    arrays = model._arrays(model.problem_)
    return Sample(known, loss, ood, traffic, prior, arrays, model._alpha(), level, model._loss_values())


def check_ratio(model: Any, X: Any, y: Any, X_unlabeled: Any, *, level: float = 0.95) -> Diagnosis | None:
    """Check a model's g on fresh rows."""
    few = min(n_rows(X), n_rows(X_unlabeled)) < 2
    if model.ratio_ is None or few or not 0.0 <= model.ood_prior_ <= 1.0:
        return None
    known, traffic = (
        view(model.classifier_, _some(rows), with_features=model.uses_features_) for rows in (X, X_unlabeled)
    )
    if isinstance(model.classifier_, NetworkHead | FrozenEstimator):
        # Only an outside classifier may have been trained on rows that are called fresh; labels tell.
        codes = np.searchsorted(model.classes_, _some(np.asarray(y)))
        known = Activations(known.features, known.logits, codes, table=known.table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoscodWarning)  # the findings say the same
        return diagnose(model.ratio_, known, traffic, level=level)


def diagnosed(n: int) -> NDArray[np.intp]:
    """Return which of n rows a ratio is checked on: all, or every k-th."""
    return np.arange(0, n, max(1, -(-n // _DIAGNOSED)), dtype=np.intp)


def _some(X: Any) -> Any:
    n = n_rows(X)
    return X if n <= _DIAGNOSED else take(X, diagnosed(n))


def own_rule(model: Any) -> Competitor:
    """Return the rule a model decides by."""
    return Competitor("poscod", _line(model.beta_), model.threshold_, _line_edge(model.beta_, model.threshold_))


def rules_of(model: Any, sample: Sample) -> list[Competitor]:
    """Return a model's own rule and its competitors at the same required TPR."""
    own = own_rule(model)
    others = [name for name in RULES if name != "poscod" and (model.ratio_ is not None or name == "risk")]
    target = required_tpr(model, sample)
    found = [rule_at(name, sample.calibration, sample.alpha, target) for name in others]
    return [own, *(rule for rule in found if rule is not None)]


def required_tpr(model: Any, sample: Sample) -> float:
    """Return the TPR a model was asked for; where it was asked for something else, what it reaches on calibration rows."""
    if keeps_tpr(model, sample):
        return float(model.problem_.tpr_min)
    arrays = sample.calibration
    accepted = own_rule(model).score(arrays) <= model.threshold_
    return max(float(np.average(accepted, weights=arrays.weight)), 1.0 / len(arrays.risk))


def keeps_tpr(model: Any, sample: Sample) -> bool:
    """Tell whether the threshold is the one that its problem's tpr_min asks for (budgets and risk bounds move it)."""
    return promised_tpr(model, sample.calibration) is not None


def promised_tpr(model: Any, calibration: CalibrationArrays) -> float | None:
    """Return the TPR that a model's threshold promises."""
    tpr_min = getattr(model.problem_, "tpr_min", None)
    chosen = promised_on(model) is not None or sets_threshold(model, calibration)
    return float(tpr_min) if tpr_min is not None and chosen else None


def promised_on(model: Any) -> int | None:
    """Return how many held-out rows a threshold was chosen on where the model keeps only a part of them (on a cluster)."""
    return int(model.tpr_rows_) if model.threshold_ == getattr(model, "tpr_threshold_", None) else None


def sets_threshold(model: Any, calibration: CalibrationArrays) -> bool:
    """Tell whether these very rows give a model's threshold for the TPR that its problem asks for."""
    tpr_min = getattr(model.problem_, "tpr_min", None)
    if tpr_min is None:
        return False
    threshold = calibration.at_tpr(model.beta_, tpr_min).threshold
    return math.isclose(
        threshold, model.threshold_, rel_tol=1e-9
    )  # the model may come from a machine that rounds otherwise


def rule_at(name: str, calibration: CalibrationArrays, alpha: float, tpr_min: float) -> Competitor | None:
    """Return a rule with the threshold that reaches a TPR on the calibration rows.

    Examples
    --------
    >>> arrays = CalibrationArrays(np.array([0.1, 0.2, 0.3, 0.4]), np.log([2.0, 1.0, 1.0, 1.0]))
    >>> rule_at("risk", arrays, 0.5, 0.75).threshold
    0.3
    """
    made = RULES[name](calibration, ScodProblem(alpha, tpr_min))
    if made is None:
        return None
    score, edge_at = made
    threshold = calibration.threshold_of(score(calibration), tpr_min, weight=calibration.weight).threshold
    return Competitor(name, score, threshold, edge_at(threshold))


def measure(rule: Competitor, sample: Sample) -> Measured:
    """Measure a rule on fresh rows."""
    accept = {name: rule.score(rows) <= rule.threshold for name, rows in sample.groups.items()}
    known = tally(accept.pop("id"), sample.loss, sample.loss_values)
    return measured_of({"id": known, **{name: tally(mask) for name, mask in accept.items()}}, sample)


def measured_of(tallies: Mapping[str, Tally], sample: Any) -> Measured:
    """Return what a rule achieves from its counts."""
    known, alpha, level, values = tallies["id"], sample.alpha, sample.level, sample.loss_values
    with_ood = without = None
    if "ood" in tallies:
        with_ood = evaluation_of(known, tallies["ood"], alpha, level, loss_values=values)
    if "unlabelled" in tallies:
        without = unlabeled_evaluation_of(known, tallies["unlabelled"], sample.prior, alpha, level, loss_values=values)
    return Measured(known.rate(level), known.mean_loss(level, values), with_ood, without)


_Made = tuple[Score, Callable[[float], Callable[[Floats], Floats]]] | None


def _line(mu: float) -> Score:
    return lambda rows: rejection_score(rows.risk, rows.log_ratio, mu)


def _line_edge(mu: float, threshold: float) -> Callable[[Floats], Floats]:
    """Return the edge of ``r + mu g <= threshold``; with g alone, everything or nothing of r."""
    if mu == float("inf"):
        return lambda log_ratio: np.full(len(log_ratio), np.nan)
    return lambda log_ratio: threshold - rejection_score(np.zeros(len(log_ratio)), log_ratio, mu)


def _linear(mu: float) -> _Made:
    return _line(mu), lambda threshold: _line_edge(mu, threshold)


def _ratio(log_ratio: Floats) -> Floats:
    return np.exp(np.minimum(log_ratio, _LARGEST_LOG))


def _sirc(calibration: CalibrationArrays, _: ScodProblem) -> _Made:
    second = _ratio(calibration.log_ratio)
    if len(second) == 0 or float(second.std()) == 0.0:
        return None
    a, b = sirc_parameters(second)

    def edge_at(threshold: float) -> Callable[[Floats], Floats]:
        # The score is log r + h(g), and h(g) is the score of r = 1.
        return lambda log_ratio: np.exp(threshold - sirc(np.ones(len(log_ratio)), _ratio(log_ratio), a, b))

    return (lambda rows: sirc(rows.risk, _ratio(rows.log_ratio), a, b)), edge_at


RULES: dict[str, Callable[[CalibrationArrays, ScodProblem], _Made]] = {
    "poscod": lambda _, problem: _linear(problem.beta),
    "risk": lambda *_: _linear(0.0),
    "ratio": lambda *_: _linear(float("inf")),
    "sirc": _sirc,
}
"""Rules by name: the optimal line; r alone, which is 1 - MSP for 0/1 loss; g alone; SIRC of r and g."""
