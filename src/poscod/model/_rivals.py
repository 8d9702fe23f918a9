# SPDX-License-Identifier: BSD-3-Clause
"""Rules that compete on the same r and g: the fitted rule, either term alone, and SIRC.

Convention: every rule is a score and a threshold that is chosen on the same calibration rows for the same required TPR, in the same way
(empirical or guaranteed). Nothing is tuned on the rows that are measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from poscod._validation import Floats
from poscod.decision import Scored, rejection_score
from poscod.model._evaluate import Measured, Sample, measure_masks
from poscod.problem import ScodProblem
from poscod.rule import Rule
from poscod.selector import Task
from poscod.strategies import sirc, sirc_parameters

# Second score of SIRC is g itself, as in the paper; beyond e^300 its square, which the spread needs, overflows.
_LARGEST_LOG = 300.0

Score = Callable[[Any], Floats]
"""From anything with columns ``risk`` and ``log_ratio`` to a rejection score."""
Edge = Callable[[Floats], Floats]
"""From log g to the largest r that is accepted there; NaN where r does not matter."""


class Competitor(NamedTuple):
    """A score with its threshold: accept iff score <= threshold; its name is a key of `RULES`."""

    name: str
    score: Score
    threshold: float
    edge: Edge


def own_rule(rule: Rule) -> Competitor:
    """Return a fitted rule as a competitor."""
    return Competitor("poscod", rule.score, rule.threshold, _line_edge(rule.slope, rule.threshold))


def rules_of(sample: Sample) -> list[Competitor]:
    """Return a model's own rule and its rivals at the same required TPR; those that use g only where a ratio was learned."""
    names = [name for name in RULES if name != "poscod" and (sample.has_ratio or name == "risk")]
    found = [rule_at(name, sample, required_tpr(sample)) for name in names]
    return [own_rule(sample.rule), *(rule for rule in found if rule is not None)]


def required_tpr(sample: Sample) -> float:
    """Return the TPR that is promised; where none is, what the rule reaches on the calibration rows."""
    rule, rows = sample.rule, sample.calibration
    if rule.tpr_promised is not None:
        return rule.tpr_promised
    scored, weight = rows.standing(rule.problem.loss)
    return max(float(np.average(rule.score(scored) <= rule.threshold, weights=weight)), 1.0 / len(rows))


def rule_at(name: str, sample: Sample, tpr_min: float) -> Competitor | None:
    """Return a rule by its name with the threshold that reaches a TPR as the model's own does; None where SIRC has no spread of g to work with."""
    rows, problem = sample.calibration, sample.rule.problem
    task = Task(rows, problem.loss, sample.delta, getattr(sample.rule.promise, "over", "all"))
    made = RULES[name](task.known, ScodProblem(problem.alpha, tpr_min))
    if made is None:
        return None
    threshold = task.threshold(made.score, tpr_min)
    return Competitor(name, made.score, threshold, made.edge_at(threshold))


def measure(rule: Competitor, sample: Sample) -> Measured:
    """Measure a rule on fresh rows."""
    return measure_masks({name: rule.score(rows) <= rule.threshold for name, rows in sample.groups.items()}, sample)


class _Made(NamedTuple):
    score: Score
    edge_at: Callable[[float], Edge]


def _line_edge(slope: float, threshold: float) -> Edge:
    """Return the edge of ``r + slope g <= threshold``; with g alone, everything or nothing of r."""
    if slope == float("inf"):
        return lambda log_ratio: np.full(len(log_ratio), np.nan)
    return lambda log_ratio: threshold - rejection_score(np.zeros(len(log_ratio)), log_ratio, slope)


def _linear(slope: float) -> _Made:
    return _Made(
        lambda rows: rejection_score(rows.risk, rows.log_ratio, slope), lambda threshold: _line_edge(slope, threshold)
    )


def _ratio(log_ratio: Floats) -> Floats:
    return np.exp(np.minimum(log_ratio, _LARGEST_LOG))


def _sirc(known: Scored, _: ScodProblem) -> _Made | None:
    second = _ratio(known.log_ratio)
    if len(second) == 0 or float(second.std()) == 0.0:
        return None
    a, b = sirc_parameters(second)

    def edge_at(threshold: float) -> Edge:
        # The score is log r + h(g), and h(g) is the score of r = 1.
        return lambda log_ratio: np.exp(threshold - sirc(np.ones(len(log_ratio)), _ratio(log_ratio), a, b))

    return _Made(lambda rows: sirc(rows.risk, _ratio(rows.log_ratio), a, b), edge_at)


RULES: dict[str, Callable[[Scored, ScodProblem], _Made | None]] = {
    "poscod": lambda _, problem: _linear(problem.beta),
    "risk": lambda *_: _linear(0.0),
    "ratio": lambda *_: _linear(float("inf")),
    "sirc": _sirc,
}
"""Rules by name: the optimal line; r alone, which is 1 - MSP for 0/1 loss; g alone; SIRC of r and g."""
