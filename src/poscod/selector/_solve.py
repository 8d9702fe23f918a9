# SPDX-License-Identifier: BSD-3-Clause
"""From a problem and calibration rows to a rule: one family of rules, accept iff r + mu g <= lambda.

Convention: every kind of problem has one solver in `SOLVERS`, which returns a slope mu (infinite means g alone, lambda in units of g then),
a threshold lambda, and the quantity that is promised, if any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from poscod._validation import Floats, check_choice, check_count
from poscod.decision import Scored, rejection_score
from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.problem import (
    BoundedProblem,
    Budget,
    CostProblem,
    CoverageProblem,
    GeneralisedProblem,
    PrecisionProblem,
    Problem,
    RiskBound,
    ScodProblem,
)
from poscod.rule import Promise, Rule
from poscod.selector._calibration import MAY_BE, Calibration, Standing
from poscod.selector._every_class import Indices, every_class_threshold, rows_by_class
from poscod.selector._guarantee import guaranteed_threshold
from poscod.selector._risk_control import risk_controlled_threshold
from poscod.selector._threshold import tpr_threshold

# Slopes that the bisections try, as powers of ten: below and above them one of the two terms is lost in rounding.
_LOG10_SLOPES = (-12.0, 12.0)

TPR_OVER: dict[str, str] = {"all": "all ID inputs together", "classes": "the ID inputs of every class"}
"""What a required TPR is asked of."""

TRAINED_ON: dict[bool | str, str] = {
    True: "the labeled rows look like rows the classifier was trained on",
    MAY_BE: "the labeled rows may be rows the classifier was trained on, which cannot be told",
}


def solve(
    problem: Problem,
    calibration: Calibration,
    *,
    delta: float | None = None,
    rules: int = 1,
    chosen_later: bool = False,
    tpr_over: str = "all",
) -> Rule:
    """Solve a problem on calibration rows.

    Parameters
    ----------
    problem : Problem
        One of the classes in `poscod.problem`.
    calibration : Calibration
        Rows that thresholds are set on.
    delta : float in (0, 1), default=None
        Error probability of a guaranteed threshold; None is the plain order statistic.
    rules : int, default=1
        Number of rules that are compared: a guarantee then holds for all of them at once, at delta / rules each.
    chosen_later : bool, default=False
        Whether the problem was chosen after the fit; the promise says so.
    tpr_over : {"all", "classes"}, default="all"
        Whether tpr_min is asked of all ID inputs together or of those of every class; problems without tpr_min do not look at it.

    Returns
    -------
    rule : Rule

    Notes
    -----
    Where the traffic has another class mix than the labeled rows (``calibration.mix.changed``), order statistics and means weigh rows by it, so that
    tpr_min is met for the traffic. A guarantee counts rows, so it speaks of the class mix of the labeled rows; with tpr_over="classes" it speaks
    of every mix. The promise says which. Where rows have groups, order statistics and means count every group once, and a guarantee counts one row of each: rows of
    different groups are independent, and a row drawn from each is a random row of a random group, which is what the promise is about.

    Examples
    --------
    >>> logits = np.log([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    >>> rows = Calibration(np.arange(2), logits, np.full(4, -np.inf), np.zeros(4, int), None, logits[:0], np.zeros(0), 0.0)
    >>> rule = solve(ScodProblem(alpha=0.5, tpr_min=0.75), rows)
    >>> rule.slope, round(rule.threshold, 6), rule.promise.bound, rule.rows
    (0.75, 0.3, 0.75, 4)
    """
    if type(problem) not in SOLVERS:
        names = ", ".join(sorted(kind.__name__ for kind in SOLVERS))
        raise InvalidInputError(f"problem must be one of {names}, got {type(problem).__name__}.")
    rules, _ = check_count(rules, "rules"), check_choice(tpr_over, "tpr_over", TPR_OVER)
    if delta is not None and problem.tpr_min is not None:
        _check_guarantee(problem, calibration)
    groups = calibration.n_groups
    original = calibration
    if delta is not None or isinstance(problem, RiskBound):
        calibration = calibration.independent()
    task = Task(calibration, problem.loss, None if delta is None else delta / rules, tpr_over)
    n = len(original) if task.counted else len(task.standing.scored.risk)
    changed = calibration.mix is not None and calibration.mix.changed
    moved = None if calibration.drift is None or calibration.settled else calibration.drift.said
    asked = problem.replace(delta=problem.delta / rules) if isinstance(problem, RiskBound) else problem
    try:
        line = SOLVERS[type(problem)](asked, task)
    except InfeasibleProblemError as error:
        if groups is None:
            raise
        raise InfeasibleProblemError(f"{error.message} A group counts as one row.", **error.facts) from error
    if isinstance(problem, RiskBound):
        mix = "labeled" if changed else None
        bound = Promise(
            "selective_risk",
            problem.risk_max,
            1.0 - problem.delta,
            rules,
            chosen_later,
            mix=mix,
            moved=moved,
            groups=groups,
            settled=calibration.settled,
        )
        return _rule(problem, line, bound, calibration, n)
    promise = None
    if problem.tpr_min is not None:
        confidence = None if delta is None else 1.0 - delta
        mix = None if not changed or tpr_over == "classes" else "traffic" if delta is None else "labeled"
        how: dict[str, Any] = {"groups": groups, "settled": calibration.settled}
        promise = Promise("tpr", problem.tpr_min, confidence, rules, chosen_later, tpr_over, mix, moved, **how)
    return _rule(problem, line, promise, calibration, n)


class Line(NamedTuple):
    """Slope and threshold of a rule."""

    slope: float
    threshold: float


def _rule(problem: Problem, line: Line, promise: Promise | None, calibration: Calibration, rows: int) -> Rule:
    """Return a rule; from rows that the classifier was trained on nothing is promised."""
    void = TRAINED_ON.get(calibration.trained_on, "")
    return Rule(problem, line.slope, line.threshold, None if void else promise, rows, void, calibration.verdicts)


@dataclass(frozen=True)
class Task:
    """The calibration rows under one loss, and how thresholds are chosen on them."""

    calibration: Calibration
    loss: Any
    delta: float | None
    over: str = "all"

    def at_tpr(self, slope: float, tpr_min: float) -> Line:
        """Return the line that accepts tpr_min of the ID rows, or of fresh ID inputs with probability 1 - delta."""
        return Line(slope, self.threshold(lambda rows: rejection_score(rows.risk, rows.log_ratio, slope), tpr_min))

    def threshold(self, score: Callable[[Any], Floats], tpr_min: float) -> float:
        """Return the threshold of any score of rows for a required TPR."""
        rows = self.calibration
        if self.over == "classes":  # within a class the weights of the mix are equal
            how: dict[str, Any] = {"labels": rows.classes, "weight": rows.own_weight, "delta": self.delta}
            return every_class_threshold(score(self.known), self._by_class, tpr_min, **how)
        if self.delta is not None:
            return guaranteed_threshold(score(self.known), tpr_min, delta=self.delta).threshold
        return tpr_threshold(score(self.standing.scored), tpr_min, weight=self.standing.weight).threshold

    def fpr(self, line: Line) -> float:
        """Estimate FPR = E_I[g c] on known inputs: where a rule accepts, g is bounded, so the mean is well behaved."""
        rows, weight = self.standing
        accepted = rejection_score(rows.risk, rows.log_ratio, line.slope) <= line.threshold
        ratio = np.exp(np.minimum(rows.log_ratio, 600.0)) * accepted
        return min(1.0, float(np.average(ratio, weights=weight)))

    def slope_of(self, ranking: Problem) -> float:
        """Return the slope by which a problem ranks inputs; its guarantee, if any, is not asked for."""
        return SOLVERS[type(ranking)](ranking, Task(self.calibration, self.loss, None, self.over)).slope

    @property
    def counted(self) -> bool:
        """Whether thresholds count labeled rows, whatever the traffic holds."""
        return self.over == "classes" or self.delta is not None

    @cached_property
    def known(self) -> Scored:
        """The ID rows."""
        return self.calibration.known(self.loss)

    @cached_property
    def standing(self) -> Standing:
        """The rows that stand for known inputs of the traffic."""
        return self.calibration.standing(self.loss)

    @cached_property
    def _by_class(self) -> list[Indices]:
        return rows_by_class(self.calibration.codes, len(self.calibration.classes))


def _check_guarantee(problem: Problem, calibration: Calibration) -> None:
    """Refuse guarantees that would not hold."""
    if isinstance(problem, (BoundedProblem, PrecisionProblem)):
        raise InvalidInputError(
            "threshold='guaranteed' does not cover this problem: its slope is chosen on the rows that set the threshold."
        )
    if not calibration.held_out:
        raise InvalidInputError(
            "{threshold}='guaranteed' needs rows that nothing was fitted on: fit with {threshold}='guaranteed' or with a share as {calibration}.",
            parameter="calibration",
        )
    _refuse_moved(calibration)
    if calibration.weight is not None:
        raise InvalidInputError("threshold='guaranteed' takes no sample_weight: a guarantee counts rows.")


def _refuse_moved(calibration: Calibration) -> None:
    """Refuse to guarantee anything about known inputs that have moved: no labeled row is one of them, and reviewed rows are not a random sample."""
    if calibration.settled:
        raise InvalidInputError(
            "Verdicts say that known inputs of the traffic have moved, and nothing is guaranteed about them: use a threshold that is met on average, or label "
            "rows of today and fit with them."
        )


def _scod(problem: ScodProblem, task: Task) -> Line:
    return task.at_tpr(problem.beta, problem.tpr_min)


def _generalised(problem: GeneralisedProblem, task: Task) -> Line:
    return task.at_tpr(problem.mu, problem.tpr_min)


def _cost(problem: CostProblem, task: Task) -> Line:
    return Line(problem.mu(task.calibration.ood_prior), problem.reject_id)


def _bounded(problem: BoundedProblem | PrecisionProblem, task: Task) -> Line:
    """Find the smallest slope whose FPR meets the bound; FPR falls with the slope at fixed TPR."""
    limit = problem.fpr_limit(task.calibration.ood_prior)
    least, most = (task.at_tpr(slope, problem.tpr_min) for slope in (0.0, float("inf")))
    if task.fpr(least) <= limit:
        return least
    if (best := task.fpr(most)) > limit:
        raise InfeasibleProblemError(
            f"No rule with TPR >= {problem.tpr_min:g} has FPR <= {limit:.3g}: the smallest estimated FPR is {best:.3g}; allow a "
            "smaller tpr_min or a larger FPR."
        )
    low, high = _LOG10_SLOPES
    for _ in range(60):
        middle = (low + high) / 2.0
        if task.fpr(task.at_tpr(10.0**middle, problem.tpr_min)) <= limit:
            high = middle
        else:
            low = middle
    return task.at_tpr(10.0**high, problem.tpr_min)


def _coverage(problem: CoverageProblem, task: Task) -> Line:
    """Find the smallest multiplier with which no more than the allowed share of traffic is rejected."""
    traffic = _traffic(problem, task)

    def rejected(nu: float) -> tuple[float, Line]:
        line = Line(*problem.line(nu, task.calibration.ood_prior))
        score = rejection_score(traffic.risk, traffic.log_ratio, line.slope)
        return float(np.mean(score > line.threshold)), line

    low, high = 0.0, 1.0
    while rejected(high)[0] > problem.reject_max and high < 1e12:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (low, middle) if rejected(middle)[0] <= problem.reject_max else (middle, high)
    return rejected(high)[1]


def _budget(problem: Budget, task: Task) -> Line:
    """Accept all but the share of the traffic that the ranking puts last."""
    traffic, slope = _traffic(problem, task), task.slope_of(problem.ranking)
    score = rejection_score(traffic.risk, traffic.log_ratio, slope)
    return Line(slope, tpr_threshold(score, 1.0 - problem.share).threshold)


def _risk_bound(problem: RiskBound, task: Task) -> Line:
    """Find the loosest threshold whose selective risk is bounded with the asked probability."""
    rows = task.calibration
    _refuse_moved(rows)
    if not rows.held_out or rows.weight is not None:
        raise InvalidInputError(
            "A bound of the risk needs unweighted rows that nothing was fitted on: fit with {threshold}='guaranteed' or with a share as {calibration}.",
            parameter="calibration",
        )
    if isinstance(problem.ranking, (BoundedProblem, PrecisionProblem)):
        raise InvalidInputError("A bound of the risk needs a ranking whose slope is not chosen on the same rows.")
    slope = task.slope_of(problem.ranking)
    matrix = problem.loss_matrix(len(rows.classes))
    rule = risk_controlled_threshold(
        rejection_score(task.known.risk, task.known.log_ratio, slope),
        rows.losses(problem),
        problem.risk_max,
        delta=problem.delta,
        method=problem.method,
        loss_max=None if set(np.unique(matrix)) <= {0.0, 1.0} else float(matrix.max()),
    )
    return Line(slope, rule.threshold)


def _traffic(problem: Problem, task: Task) -> Scored:
    if len(task.calibration.traffic_log_ratio) == 0:
        raise InvalidInputError(
            f"{type(problem).__name__} is about the share of rejected traffic: fit with unlabeled rows."
        )
    return task.calibration.traffic(problem.loss)


SOLVERS: dict[type[Problem], Callable[[Any, Task], Line]] = {
    ScodProblem: _scod,
    GeneralisedProblem: _generalised,
    CostProblem: _cost,
    BoundedProblem: _bounded,
    PrecisionProblem: _bounded,
    CoverageProblem: _coverage,
    Budget: _budget,
    RiskBound: _risk_bound,
}
