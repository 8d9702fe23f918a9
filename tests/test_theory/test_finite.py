from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.exceptions import UndefinedMetricWarning

from poscod import ScodProblem
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.theory import FiniteWorld, _finite
from poscod.theory._finite import SOLVERS
from test_theory._worlds import (
    ALPHAS,
    cases,
    exchange,
    greedy,
    oracle_evaluate,
    oracle_optimum,
    oracle_risk_at_points,
    raise_tpr,
    random_world,
)

UNIFORM = [[0.5, 0.5], [0.5, 0.5]]


@settings(max_examples=400, deadline=None)
@given(cases())
def test_theorem_2_and_linear_program_reach_the_same_risk(case):
    world, problem, classifier = case
    ours, lp = (world.solve(problem, classifier, method=name) for name in SOLVERS)
    assert ours.risk == pytest.approx(lp.risk, abs=1e-9)
    for solution in (ours, lp):
        assert solution.tpr == pytest.approx(problem.tpr_min, abs=1e-9)
        assert solution.accept.min() >= 0
        assert solution.accept.max() <= 1
        assert not solution.accept[world.p_id == 0].any()
        achieved = oracle_evaluate(world, solution.accept, problem, classifier)
        np.testing.assert_allclose(
            (solution.risk, solution.tpr, solution.fpr, solution.selective_risk), achieved, atol=1e-12
        )


@pytest.mark.parametrize("seed", range(40))
def test_both_methods_agree_on_hundreds_of_unequal_points(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(8, 300)), int(rng.integers(2, 6))
    world = random_world(seed, n=n, k=k)
    problem = ScodProblem(
        alpha=ALPHAS[seed % 5],
        tpr_min=[0.1, 0.33, 0.9, 1.0][seed % 4],
        loss=rng.exponential(size=(k, k)) * (1 - np.eye(k)),
    )
    classifier = rng.integers(0, k, size=n) if seed % 3 else None
    ours, lp = (world.solve(problem, classifier, method=name) for name in SOLVERS)
    assert ours.risk == pytest.approx(lp.risk, abs=1e-11)
    assert ours.tpr == pytest.approx(lp.tpr, abs=1e-12)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_solution_has_the_form_of_theorem_2(case):
    world, problem, classifier = case
    solution = world.solve(problem, classifier)
    score = world.rejection_score(problem, classifier)
    known = world.p_id > 0
    ratio, risk = world.p_ood[known] / world.p_id[known], oracle_risk_at_points(world, problem, classifier)[known]
    slow = ratio if problem.alpha == 1 else risk + problem.beta * ratio
    np.testing.assert_allclose(score[known], slow, rtol=1e-12, atol=1e-14)
    assert np.isposinf(score[~known]).all()
    expected = np.select([score < solution.threshold, score == solution.threshold], [1.0, solution.tau], 0.0)
    np.testing.assert_array_equal(solution.accept[known], expected[known])


@pytest.mark.parametrize("alpha", [Fraction(0), Fraction(1, 10), Fraction(37, 100), Fraction(1)])
@pytest.mark.parametrize("seed", range(6))
def test_optimum_equals_exact_rational_enumeration(alpha, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 6, size=(2, 6))
    a[0], b[1] = 5, 4  # at least some mass
    wrong = [Fraction(int(v), 10) for v in rng.integers(0, 6, size=6)]
    t = [Fraction(1, 3), Fraction(3, 4), Fraction(19, 20)][seed % 3]
    p_id, p_ood = ([Fraction(int(v), int(m.sum())) for v in m] for m in (a, b))
    exact = oracle_optimum(p_id, p_ood, wrong, alpha, t)
    world = FiniteWorld([float(p) for p in p_id], [float(p) for p in p_ood], [[1 - float(w), float(w)] for w in wrong])
    problem = ScodProblem(alpha=float(alpha), tpr_min=float(t))
    assert world.solve(problem).risk == pytest.approx(float(exact), abs=1e-13)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_a_larger_tpr_never_lowers_the_smallest_risk(case):
    # The scaling argument: among selectors with TPR exactly T >= tpr_min, T = tpr_min is best.
    world, problem, classifier = case
    t = problem.tpr_min
    larger = t + (1 - t) * np.array([0.0, 0.2, 0.45, 0.7, 1.0])
    risks = [world.solve(replace(problem, tpr_min=value), classifier, method="lp").risk for value in larger]
    assert (np.diff(risks) >= -1e-9).all()


def contest(world, problem, classifier, centre, seed, m=2_000):
    """Return the SCOD risks of 6 m feasible selectors, half of them near `centre`."""
    rng = np.random.default_rng(seed)
    n, t, p_id = world.n_points, problem.tpr_min, world.p_id
    risk = oracle_risk_at_points(world, problem, classifier)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(p_id > 0, world.p_ood / p_id, 1e6)
    target = t + (1 - t) * rng.uniform(size=m) ** 3
    slope = np.exp(rng.uniform(np.log(1e-4), np.log(1e4), size=(m, 1)))
    noise = 10.0 ** rng.uniform(-7, 0, size=(m, 1))
    selectors = np.vstack(
        [
            raise_tpr(rng.uniform(size=(m, n)), p_id, t),
            greedy(rng.uniform(size=(m, n)), p_id, target),
            greedy(risk + slope * ratio + 1e-3 * rng.normal(size=(m, n)), p_id, t),
            raise_tpr(np.clip(centre + noise * rng.normal(size=(m, n)), 0, 1), p_id, t),
            exchange(centre, p_id, rng, m),
            exchange(exchange(centre, p_id, rng, 1)[0], p_id, rng, m),
        ]
    )
    value, tpr, _, _ = oracle_evaluate(world, selectors, problem, classifier)
    assert (tpr >= t - 1e-12).all()
    return value


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize(("seed", "tpr_min"), [(0, 0.6), (1, 0.83), (2, 0.95)])
def test_no_random_selector_beats_the_solution(alpha, seed, tpr_min):
    world = random_world(seed)
    loss = np.array([[0, 1, 7], [2, 0, 3], [1, 5, 0]])
    classifier = None if seed else np.random.default_rng(9).integers(0, 3, size=world.n_points)
    problem = ScodProblem(alpha=alpha, tpr_min=tpr_min, loss=loss)
    solution = world.solve(problem, classifier)
    value = contest(world, problem, classifier, solution.accept, seed)
    assert len(value) >= 10_000
    assert value.min() >= solution.risk - 1e-13
    assert value.min() <= solution.risk + 1e-6  # the competitors come close, or the contest would prove nothing


@pytest.mark.parametrize("alpha", [0.1, 0.9])
def test_the_contest_finds_a_better_selector_than_the_inverted_slope(alpha):
    # errata: a slope of (1 - alpha) t / alpha instead of alpha t / (1 - alpha) is a real mistake; it must not survive.
    world, problem = random_world(1), ScodProblem(alpha=alpha, tpr_min=0.83)
    inverted = world.solve(ScodProblem(alpha=1 - alpha, tpr_min=0.83)).accept
    risk = oracle_evaluate(world, inverted, problem)[0]
    value = contest(world, problem, None, inverted, seed=3)
    assert (value < risk - 1e-3).any()
    assert (value[-4_000:] < risk - 1e-6).any()  # the exchanges alone find it


def test_bayes_classifier_is_best_together_with_its_selector():
    # Theorem 1, against 300 other classifiers.
    world, problem = random_world(4), ScodProblem(alpha=0.3, tpr_min=0.8, loss="absolute")
    best = world.solve(problem).risk
    rng = np.random.default_rng(0)
    bayes = np.argmin(world.posterior @ problem.loss_matrix(3), axis=1)
    risks = []
    for _ in range(300):
        other = np.where(rng.uniform(size=30) < 0.1, rng.integers(0, 3, size=30), bayes)
        risks.append(world.solve(problem, other).risk)
    assert min(risks) >= best - 1e-14
    assert max(risks) > best + 1e-3


def test_smallest_risk_is_concave_in_alpha():
    # A minimum of functions linear in alpha; the published ablation fails this (errata, alpha ablation).
    world = random_world(5)
    alphas = np.linspace(0, 1, 41)
    risk = np.array([world.solve(ScodProblem(alpha=a, tpr_min=0.9)).risk for a in alphas])
    assert np.diff(risk, 2).max() <= 1e-13
    assert np.diff(risk, 2).min() < -1e-4


def test_tie_is_split_by_tau_exactly():
    world = FiniteWorld([0.25, 0.25, 0.5], [0.25, 0.25, 0.5], [[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
    solution = world.solve(ScodProblem(alpha=0.2, tpr_min=0.4))
    np.testing.assert_allclose(solution.accept, [0.8, 0.8, 0.0])
    assert solution.tau == pytest.approx(0.8)
    assert solution.risk == pytest.approx(0.8 * 0.1 + 0.2 * 0.4)


@pytest.mark.parametrize("method", SOLVERS)
def test_alpha_zero_ignores_ood_and_alpha_one_ignores_loss(method):
    world = FiniteWorld([0.4, 0.4, 0.2], [0.0, 0.9, 0.1], [[0.5, 0.5], [1.0, 0.0], [0.9, 0.1]])
    np.testing.assert_allclose(world.solve(ScodProblem(0.0, 0.6), method=method).accept, [0, 1, 1], atol=1e-12)
    np.testing.assert_allclose(world.solve(ScodProblem(1.0, 0.6), method=method).accept, [1, 0, 1], atol=1e-12)
    assert world.solve(ScodProblem(1.0, 0.6), method=method).threshold == pytest.approx(0.5)  # g of the third point


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_points_without_id_mass_are_rejected(method, alpha):
    # Row 1: OOD only; row 2: no mass at all; their posterior may be anything.
    posterior = [[0.7, 0.3], [np.nan, 9.0], [0.0, 0.0], [1.0, 0.0]]
    world = FiniteWorld([0.5, 0.0, 0.0, 0.5], [0.3, 0.7, 0.0, 0.0], posterior)
    np.testing.assert_array_equal(world.log_ratio[1:], [np.inf, np.inf, -np.inf])
    for tpr_min in (0.4, 1.0):
        solution = world.solve(ScodProblem(alpha, tpr_min), method=method)
        assert not solution.accept[1:3].any()
        assert solution.fpr <= 0.3 + 1e-12


def test_tpr_one_accepts_a_point_whose_mass_is_lost_in_rounding():
    world = FiniteWorld([1.0 - 1e-30, 1e-30], [0.2, 0.8], UNIFORM)
    solution = world.solve(ScodProblem(alpha=0.3, tpr_min=1.0))
    np.testing.assert_array_equal(solution.accept, [1.0, 1.0])
    assert solution.fpr == pytest.approx(1.0)


def test_subnormal_masses_keep_their_ratio():
    world = FiniteWorld([1.0, 5e-324], [1e-320, 1.0], UNIFORM)
    assert world.log_ratio[1] == pytest.approx(324 * np.log(10) - np.log(5), abs=0.1)
    assert np.isfinite(world.rejection_score(ScodProblem())).all()


def test_a_million_points():
    rng = np.random.default_rng(0)
    n = 1_000_000
    p_id, p_ood = rng.exponential(size=n), rng.exponential(size=n)
    wrong = rng.uniform(0, 0.5, size=n)
    world = FiniteWorld(p_id / p_id.sum(), p_ood / p_ood.sum(), np.column_stack([1 - wrong, wrong]))
    problem = ScodProblem(alpha=0.2, tpr_min=0.9)
    solution = world.solve(problem)
    score = wrong + problem.beta * world.p_ood / world.p_id
    order = np.argsort(score)
    k = int(np.searchsorted(np.cumsum(world.p_id[order]), 0.9))
    accept = np.zeros(n)
    accept[order[:k]] = 1.0
    assert solution.tpr == pytest.approx(0.9, abs=1e-12)
    assert solution.threshold == pytest.approx(score[order[k]], rel=1e-12)
    assert solution.risk == pytest.approx(oracle_evaluate_vectorised(world, accept, wrong, problem), abs=1e-5)


def oracle_evaluate_vectorised(world, accept, wrong, problem):
    tpr = world.p_id @ accept
    return (1 - problem.alpha) * (world.p_id * wrong) @ accept / tpr + problem.alpha * world.p_ood @ accept


def test_evaluate_matches_the_definitions_for_any_selector():
    world, problem = random_world(6), ScodProblem(alpha=0.37, loss="absolute")
    rng = np.random.default_rng(1)
    classifier = rng.integers(0, 3, size=30)
    for accept in rng.uniform(size=(20, 30)):
        np.testing.assert_allclose(
            world.evaluate(accept, problem, classifier), oracle_evaluate(world, accept, problem, classifier), rtol=1e-12
        )


def test_evaluate_warns_when_no_id_mass_is_accepted():
    world = FiniteWorld([1.0, 0.0], [0.5, 0.5], UNIFORM)
    with pytest.warns(UndefinedMetricWarning, match="no ID mass"):
        risk, tpr, fpr, selective = world.evaluate([0.0, 1.0], ScodProblem(alpha=0.5))
    assert np.isnan([risk, selective]).all()
    assert (tpr, fpr) == (0.0, 0.5)
    with pytest.warns(UndefinedMetricWarning):
        assert world.evaluate([0.0, 1.0], ScodProblem(alpha=1.0)).risk == 0.5


def test_world_is_a_read_only_copy():
    p = np.array([0.5, 0.5])
    world = FiniteWorld(p, p, UNIFORM)
    p[0] = 7.0
    assert world.p_id[0] == 0.5
    for array in (world.p_id, world.p_ood, world.posterior):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_masses_within_tolerance_are_made_exact():
    world = FiniteWorld([0.5, 0.5 + 5e-10], [0.25, 0.75], [[0.5, 0.5 + 5e-10], [0.25, 0.75]])
    assert world.p_id.sum() == 1.0
    assert world.posterior[0].sum() == pytest.approx(1.0, abs=1e-15)
    assert (world.n_points, world.n_classes) == (2, 2)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (([0.5, 0.4], [0.5, 0.5], UNIFORM), "p_id must sum to 1, got 0.9"),
        (([0.5, 0.5], [0.5, 0.50001], UNIFORM), "p_ood must sum to 1, got 1.00001"),
        (([1.5, -0.5], [0.5, 0.5], UNIFORM), "p_id must be at least 0, got -0.5"),
        (([0.5, 0.5], [1.0], UNIFORM), "p_ood must have as many rows as p_id"),
        (([0.5, 0.5], [0.5, 0.5], [[0.5, 0.5]]), "posterior must have 2 rows"),
        (([0.5, 0.5], [0.5, 0.5], [0.5, 0.5]), "posterior must be two-dimensional"),
        (([0.5, 0.5], [0.5, 0.5], np.empty((2, 0))), "posterior must have one column per class"),
        (([0.5, 0.5], [0.5, 0.5], [[0.5, 0.5], [0.5, 0.6]]), "wherever p_id is positive.*at row 1"),
        (([0.5, 0.5], [0.5, 0.5], [[1.5, -0.5], [0.5, 0.5]]), "at row 0"),
        (([0.5, 0.5], [0.5, 0.5], [[np.nan, 1.0], [0.5, 0.5]]), "posterior must be finite"),
    ],
)
def test_bad_worlds_are_refused_with_a_sentence(args, message):
    with pytest.raises(InvalidInputError, match=message):
        FiniteWorld(*args)


def test_bad_arguments_are_refused_with_a_sentence():
    world, problem = FiniteWorld([0.5, 0.5], [0.5, 0.5], UNIFORM), ScodProblem()
    with pytest.raises(InvalidInputError, match="method must be one of 'closed_form', 'lp', got 'ip'"):
        world.solve(problem, method="ip")
    with pytest.raises(InvalidInputError, match="classifier must hold class indices"):
        world.solve(problem, classifier=[0, 2])
    with pytest.raises(InvalidInputError, match=r"accept must hold probabilities in \[0, 1\], got 1.5"):
        world.evaluate([0.0, 1.5], problem)
    with pytest.raises(InvalidInputError, match="accept must have as many rows as the world"):
        world.evaluate([0.0], problem)
    with pytest.raises(InvalidInputError, match="one row and one column per class"):
        world.solve(ScodProblem(loss=[[0, 1, 1], [1, 0, 1], [1, 1, 0]]))


def test_a_failed_linear_program_is_reported(monkeypatch):
    class Failed:
        success, message = False, "out of time"

    monkeypatch.setattr(_finite, "linprog", lambda *args, **kwargs: Failed())
    with pytest.raises(PoscodError, match=r"out of time.*closed_form"):
        FiniteWorld([0.5, 0.5], [0.5, 0.5], UNIFORM).solve(ScodProblem(), method="lp")
