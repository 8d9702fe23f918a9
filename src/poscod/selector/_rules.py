# SPDX-License-Identifier: BSD-3-Clause
"""One family of rules, several problems: accept iff r + mu g <= lambda.

Convention: a rule is a slope mu and a threshold lambda (mu = inf means g alone, lambda in units of g then). Every problem
object has one solver in `SOLVERS`; they read arrays on held-out ID rows and, where a problem is about the traffic, on
unlabelled rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from poscod._validation import Floats
from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.problem import (
    BoundedProblem,
    CostProblem,
    CoverageProblem,
    GeneralisedProblem,
    PrecisionProblem,
    Problem,
    ScodProblem,
)
from poscod.selector._threshold import Threshold, tpr_threshold
from poscod.strategies import rejection_score

# Slopes that the bisections try, as powers of ten: below and above them one of the two terms is lost in rounding.
_LOG10_SLOPES = (-12.0, 12.0)


class Rule(NamedTuple):
    """A fitted rule: accept iff r + mu g <= threshold.

    Attributes
    ----------
    mu : float
        Slope; infinite means g alone.
    threshold : float
        lambda.
    tau : float
        Acceptance probability at a tie that makes the randomised rule exact on the calibration rows.
    """

    mu: float
    threshold: float
    tau: float


class CalibrationArrays(NamedTuple):
    """What a rule is calibrated on.

    Attributes
    ----------
    risk, log_ratio : ndarray of shape (m,)
        r and log g of ID rows that trained neither the classifier nor the ratio.
    weight : ndarray of shape (m,) or None
        Sample weights of the ID rows.
    traffic_risk, traffic_log_ratio : ndarray of shape (n,)
        r and log g of unlabelled rows; empty where there are none.
    pi : float
        Estimated OOD prior of the traffic.
    threshold_of : callable
        (score, tpr_min, weight) -> Threshold: the plain order statistic or a guaranteed one.
    """

    risk: Floats
    log_ratio: Floats
    weight: Floats | None = None
    traffic_risk: Floats = np.zeros(0)
    traffic_log_ratio: Floats = np.zeros(0)
    pi: float = 0.0
    threshold_of: Callable[..., Threshold] = tpr_threshold

    def at_tpr(self, mu: float, tpr_min: float) -> Rule:
        """Return the rule of slope mu that accepts tpr_min of the ID rows."""
        chosen = self.threshold_of(rejection_score(self.risk, self.log_ratio, mu), tpr_min, weight=self.weight)
        return Rule(mu, chosen.threshold, chosen.tau)

    def fpr(self, rule: Rule) -> float:
        """Estimate FPR = E_I[g c] on the ID rows: where a rule accepts, g is bounded, so the mean is well behaved."""
        accepted = rejection_score(self.risk, self.log_ratio, rule.mu) <= rule.threshold
        ratio = np.exp(np.minimum(self.log_ratio, 600.0)) * accepted
        return min(1.0, float(np.average(ratio, weights=self.weight)))


def fit_rule(problem: Problem, arrays: CalibrationArrays) -> Rule:
    """Solve a problem on calibration rows.

    Parameters
    ----------
    problem : Problem
        One of the classes in `poscod.problem`.
    arrays : CalibrationArrays

    Returns
    -------
    rule : Rule
        Named tuple (mu, threshold, tau).

    Examples
    --------
    >>> arrays = CalibrationArrays(risk=np.array([0.1, 0.2, 0.3, 0.4]), log_ratio=np.full(4, -np.inf))
    >>> fit_rule(ScodProblem(alpha=0.5, tpr_min=0.75), arrays)
    Rule(mu=0.75, threshold=0.3, tau=1.0)
    """
    for kind, solve in SOLVERS.items():
        if type(problem) is kind:
            return solve(problem, arrays)
    names = ", ".join(sorted(kind.__name__ for kind in SOLVERS))
    raise InvalidInputError(f"problem must be one of {names}, got {type(problem).__name__}.")


def _scod(problem: ScodProblem, arrays: CalibrationArrays) -> Rule:
    return arrays.at_tpr(problem.beta, problem.tpr_min)


def _generalised(problem: GeneralisedProblem, arrays: CalibrationArrays) -> Rule:
    return arrays.at_tpr(problem.mu, problem.tpr_min)


def _cost(problem: CostProblem, arrays: CalibrationArrays) -> Rule:
    return Rule(problem.mu(arrays.pi), problem.reject_id, 1.0)


def _bounded(problem: BoundedProblem | PrecisionProblem, arrays: CalibrationArrays) -> Rule:
    """Find the smallest slope whose FPR meets the bound; FPR falls with the slope at fixed TPR."""
    limit = problem.fpr_limit(arrays.pi)
    rules = {mu: arrays.at_tpr(mu, problem.tpr_min) for mu in (0.0, float("inf"))}
    if arrays.fpr(rules[0.0]) <= limit:
        return rules[0.0]
    if (best := arrays.fpr(rules[float("inf")])) > limit:
        raise InfeasibleProblemError(
            f"No rule with TPR >= {problem.tpr_min:g} has FPR <= {limit:.3g}: the smallest estimated FPR is {best:.3g}; allow a "
            "smaller tpr_min or a larger FPR."
        )
    low, high = _LOG10_SLOPES
    for _ in range(60):
        middle = (low + high) / 2.0
        if arrays.fpr(arrays.at_tpr(10.0**middle, problem.tpr_min)) <= limit:
            high = middle
        else:
            low = middle
    return arrays.at_tpr(10.0**high, problem.tpr_min)


def _coverage(problem: CoverageProblem, arrays: CalibrationArrays) -> Rule:
    """Find the smallest multiplier with which no more than the allowed share of traffic is rejected."""
    if len(arrays.traffic_risk) == 0:
        raise InvalidInputError("CoverageProblem is about the share of rejected traffic: fit with unlabelled rows.")

    def rejected(nu: float) -> tuple[float, Rule]:
        mu, threshold = problem.line(nu, arrays.pi)
        score = rejection_score(arrays.traffic_risk, arrays.traffic_log_ratio, mu)
        return float(np.mean(score > threshold)), Rule(mu, threshold, 1.0)

    low, high = 0.0, 1.0
    while rejected(high)[0] > problem.reject_max and high < 1e12:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (low, middle) if rejected(middle)[0] <= problem.reject_max else (middle, high)
    return rejected(high)[1]


SOLVERS: dict[type[Problem], Callable[[Any, CalibrationArrays], Rule]] = {
    ScodProblem: _scod,
    GeneralisedProblem: _generalised,
    CostProblem: _cost,
    BoundedProblem: _bounded,
    PrecisionProblem: _bounded,
    CoverageProblem: _coverage,
}
