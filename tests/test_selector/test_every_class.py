"""One threshold at which every class reaches a TPR: against the definition, with weights, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.mix import ClassMix
from poscod.problem import (
    BoundedProblem,
    Budget,
    CostProblem,
    CoverageProblem,
    GeneralisedProblem,
    PrecisionProblem,
    RiskBound,
    ScodProblem,
)
from poscod.selector import Calibration, guaranteed_threshold, rows_needed, solve, tpr_threshold
from poscod.selector._every_class import every_class_threshold, rows_by_class
from strategies_for_hypothesis import scores

LABELS = np.array(["ant", "bee", "cow", "dog"])


def rows(m=600, classes=3, seed=0, codes=None, weight=None, mix=None, held_out=True):
    """Classes with r and g of their own: the higher the code, the less sure and the less familiar."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(classes, size=m) if codes is None else codes
    logits = np.eye(classes)[codes] * (4.0 - codes)[:, None] + rng.normal(size=(len(codes), classes))
    return Calibration(
        LABELS[:classes],
        logits,
        rng.normal(codes - 3.0, 1.0),
        codes,
        weight,
        rng.normal(size=(50, classes)),
        rng.normal(size=50),
        0.3,
        held_out,
        mix,
    )


def accepted(rule, calibration):
    """Share of each class accepted."""
    accept = rule.decide(calibration.known(rule.problem.loss)).accept
    weight = np.ones(len(calibration)) if calibration.weight is None else calibration.weight
    return np.array([np.average(accept[own], weights=weight[own]) for own in rows_by_class(calibration.codes, 3)])


@given(
    st.lists(st.lists(scores, min_size=1, max_size=15), min_size=1, max_size=5),
    st.floats(0.01, 1.0),
    st.randoms(use_true_random=False),
)
def test_it_is_the_smallest_score_at_which_every_class_reaches_the_share(by_class, share, random):
    pairs = [(value, code) for code, values in enumerate(by_class) for value in values]
    random.shuffle(pairs)
    score, codes = (np.array(column) for column in zip(*pairs, strict=True))
    grouped = rows_by_class(codes, len(by_class))
    found = every_class_threshold(score.astype(float), grouped, share, labels=np.arange(len(by_class)))
    assert found == max(tpr_threshold(np.array(values, float), share).threshold for values in by_class)

    def reached(threshold):
        return min(np.mean(np.array(values) <= threshold) for values in by_class) >= share - 1e-9

    assert reached(found)
    assert not any(reached(value) for value in set(score.tolist()) if value < found and share > 1e-6)


@pytest.mark.parametrize(
    "problem", [ScodProblem(0.3, 0.8), GeneralisedProblem(0.3, 0.7)], ids=lambda p: type(p).__name__
)
def test_a_guarantee_takes_the_largest_threshold_of_a_class(problem):
    calibration = rows()
    score = solve(problem, calibration).score(calibration.known("zero_one"))
    for rules in (1, 5):
        rule = solve(problem, calibration, delta=0.15, rules=rules, tpr_over="classes")
        each = [
            guaranteed_threshold(score[calibration.codes == k], problem.tpr_min, delta=0.15 / rules / 3).threshold
            for k in range(3)
        ]
        assert rule.threshold == max(each) > min(each)
        assert (rule.promise.over, rule.promise.mix, rule.promise.confidence, rule.promise.rules) == (
            *("classes", None),
            *(0.85, rules),
        )


@pytest.mark.parametrize(
    "problem",
    [ScodProblem(0.3, 0.8), GeneralisedProblem(0.3, 0.8), BoundedProblem(0.8, 0.4), PrecisionProblem(0.8, 0.8)],
    ids=lambda p: type(p).__name__,
)
def test_every_problem_with_a_tpr_reaches_it_in_every_class(problem):
    calibration = rows()
    together, each = (solve(problem, calibration, tpr_over=over) for over in ("all", "classes"))
    assert accepted(each, calibration).min() >= 0.8 > accepted(together, calibration).min()
    assert (together.promise.over, each.promise.over) == ("all", "classes")
    if isinstance(problem, (BoundedProblem, PrecisionProblem)):
        known = calibration.known("zero_one")
        accept = each.decide(known).accept
        assert np.mean(np.exp(known.log_ratio) * accept) <= problem.fpr_limit(0.3)
        with pytest.raises(InvalidInputError, match="does not cover this problem"):
            solve(problem, calibration, delta=0.1, tpr_over="classes")


@pytest.mark.parametrize(
    "problem",
    [CostProblem(0.2, 1.5), CoverageProblem(0.4, 0.3), Budget(0.25), RiskBound(0.4, 0.1)],
    ids=lambda p: type(p).__name__,
)
def test_problems_without_a_tpr_do_not_look_at_it(problem):
    assert solve(problem, rows(), tpr_over="classes") == solve(problem, rows())


def test_sample_weights_count_within_a_class_and_those_of_the_mix_do_not():
    weight = np.random.default_rng(3).exponential(size=600)
    p = np.full(3, 1 / 3)
    mix = ClassMix(p, np.array([0.7, 0.3, 0.0]), p, p, changed=True)
    calibration, problem = rows(weight=weight), ScodProblem(0.3, 0.8)
    score = solve(problem, calibration).score(calibration.known("zero_one"))
    each = [
        tpr_threshold(score[calibration.codes == k], 0.8, weight=weight[calibration.codes == k]).threshold
        for k in range(3)
    ]
    rule = solve(problem, calibration, tpr_over="classes")
    assert rule.threshold == max(each)
    assert rule == solve(problem, rows(weight=weight, mix=mix), tpr_over="classes")
    with pytest.raises(InvalidInputError, match="takes no sample_weight"):
        solve(problem, calibration, delta=0.1, tpr_over="classes")


def test_means_are_those_of_the_traffic():
    """Where the mix differs, lambda and the estimate of FPR weigh rows by it; a guarantee and a bound of the risk count rows, and say so."""
    p = np.bincount(rows().codes) / 600
    mix = ClassMix(p, np.array([0.1, 0.1, 0.8]), p, p, changed=True)
    calibration, plain, problem = rows(mix=mix), rows(), ScodProblem(0.3, 0.8)
    score = solve(problem, plain).score(plain.known("zero_one"))
    w = (mix.traffic / p)[plain.codes]
    assert solve(problem, calibration).threshold == tpr_threshold(score, 0.8, weight=w).threshold
    assert solve(problem, calibration).promise.mix == "traffic"
    strict, loose = solve(problem, calibration, delta=0.1), solve(problem, plain, delta=0.1)
    assert (strict.threshold, strict.promise.mix, loose.promise.mix) == (loose.threshold, "labeled", None)
    bound = solve(RiskBound(0.4, 0.1), calibration)
    assert (bound.threshold, bound.promise.mix) == (solve(RiskBound(0.4, 0.1), plain).threshold, "labeled")
    assert solve(CostProblem(0.2, 1.5), calibration).promise is None
    still = ClassMix.unchanged(p)
    assert solve(problem, rows(mix=still)) == solve(problem, plain)
    # At fixed TPR a bound of FPR is met for the traffic's law.
    limit = BoundedProblem(0.8, 0.4)
    rule, known = solve(limit, calibration), calibration.known("zero_one")
    accept = rule.decide(known).accept
    assert np.average(np.exp(known.log_ratio) * accept, weights=w) <= 0.4
    assert rule.threshold != solve(limit, plain).threshold


@pytest.mark.parametrize("weight", [None, np.repeat([1.0, 0.0], [400, 200])], ids=["no rows", "no weight"])
def test_a_class_without_rows_is_refused(weight):
    codes = np.repeat([0, 1, 2], [200, 200, 200]) if weight is not None else np.repeat([0, 1], 300)
    with pytest.raises(
        InfeasibleProblemError, match=r"^tpr_over='classes' needs labeled rows .* none of class 'cow': add"
    ) as told:
        solve(ScodProblem(), rows(codes=codes, weight=weight), tpr_over="classes")
    assert (told.value.facts["label"], told.value.facts["got"], told.value.facts["classes_short"]) == ("cow", 0, 1)


def test_a_guarantee_names_the_class_with_too_few_rows():
    needed = rows_needed(0.9, delta=0.1 / 3)
    enough = np.repeat([0, 1, 2], needed)
    assert solve(ScodProblem(0.3, 0.9), rows(codes=enough), delta=0.1, tpr_over="classes").promise.over == "classes"
    with pytest.raises(
        InfeasibleProblemError,
        match=f"^tpr_min = 0.9 for every class with probability 0.9 needs at least {needed} held-out rows of each class, got {needed - 1} of class "
        "'bee': hold out more rows, lower tpr_min, raise delta or use tpr_over='all'",
    ) as told:
        solve(ScodProblem(0.3, 0.9), rows(codes=np.delete(enough, needed)), delta=0.1, tpr_over="classes")
    assert {key: told.value.facts[key] for key in ("label", "got", "needed", "classes_short")} == {
        **{"label": "bee", "got": needed - 1},
        **{"needed": needed, "classes_short": 1},
    }
    with pytest.raises(InfeasibleProblemError, match=r"got 0 of class 'ant' \(2 classes have too few\)"):
        solve(ScodProblem(0.3, 0.9), rows(codes=np.repeat([1, 2], [300, 3])), delta=0.1, tpr_over="classes")
    with pytest.raises(InfeasibleProblemError, match="tpr_min = 1 cannot be promised"):
        solve(ScodProblem(0.3, 1.0), rows(), delta=0.1, tpr_over="classes")


def test_other_words_are_refused():
    with pytest.raises(InvalidInputError, match="tpr_over must be one of 'all', 'classes', got 'class': did you mean"):
        solve(ScodProblem(), rows(), tpr_over="class")
