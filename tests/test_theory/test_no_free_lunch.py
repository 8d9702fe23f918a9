import numpy as np
import pytest
from scipy.optimize import linprog

from poscod import ScodProblem
from poscod.exceptions import InvalidInputError
from poscod.theory import no_free_lunch
from poscod.theory._no_free_lunch import CONSTRUCTIONS
from test_theory._worlds import oracle_evaluate, raise_tpr

# (tpr_min, slack): above, at and below one half, below one quarter, with and without slack, also beyond 1 - tpr_min.
SETTINGS = [
    (0.95, 0.0),
    (0.95, 0.02),
    (0.95, 0.2),
    (0.9, 0.0),
    (0.6, 0.1),
    (0.5, 0.0),
    (0.45, 0.05),
    (0.3, 0.0),
    (0.1, 0.03),
]
ALPHA = 0.3

pytestmark = [
    pytest.mark.parametrize("construction", CONSTRUCTIONS),
    pytest.mark.parametrize(("t", "slack"), SETTINGS),
]


def build(construction, t, slack):
    problem = ScodProblem(alpha=ALPHA, tpr_min=t)
    return problem, no_free_lunch(problem, slack=slack, construction=construction)


def worst_excess(result, accept, problem):
    """Return the largest excess over the worlds of each selector (one per row)."""
    risks = np.array([oracle_evaluate(world, accept, problem)[0] for world in result.worlds])
    return (risks - np.array(result.optimal_risk)[:, None]).max(axis=0)


def test_worlds_share_the_id_law_and_have_a_perfect_optimum(construction, t, slack):
    problem, result = build(construction, t, slack)
    first = result.worlds[0]
    for world, risk in zip(result.worlds, result.optimal_risk, strict=True):
        np.testing.assert_array_equal(world.p_id, first.p_id)
        np.testing.assert_array_equal(world.posterior, first.posterior)
        solution = world.solve(problem, method="lp")
        assert solution.fpr == pytest.approx(0.0, abs=1e-12)
        assert solution.risk == pytest.approx(risk, abs=1e-12)
        assert risk == pytest.approx((1 - ALPHA) * 0.25, abs=1e-12)
    assert len({world.p_ood.tobytes() for world in result.worlds}) == len(result.worlds)


def test_no_random_selector_is_good_in_all_worlds(construction, t, slack):
    problem, result = build(construction, t, slack)
    rng = np.random.default_rng(0)
    m, n = 20_000, len(result.selector)
    near = np.clip(result.selector + 10.0 ** rng.uniform(-6, 0, size=(m, 1)) * rng.normal(size=(m, n)), 0, 1)
    accept = raise_tpr(np.vstack([rng.beta(0.3, 0.3, size=(m, n)), near]), result.worlds[0].p_id, t - slack)
    excess = worst_excess(result, accept, problem)
    assert excess.min() >= result.excess - 1e-12
    assert excess.min() <= result.excess + 1e-3


def test_bound_is_attained_and_equals_the_linear_program(construction, t, slack):
    problem, result = build(construction, t, slack)
    attained = worst_excess(result, result.selector[None, :], problem)[0]
    assert oracle_evaluate(result.worlds[0], result.selector, problem)[1] == pytest.approx(t - slack, abs=1e-12)
    assert attained == pytest.approx(result.excess, abs=1e-12)
    # min over (c, v) of v subject to alpha FPR_i(c) <= v in every world and TPR(c) >= t - slack.
    n, worlds = len(result.selector), result.worlds
    rows = [np.append(ALPHA * world.p_ood, -1.0) for world in worlds] + [np.append(-worlds[0].p_id, 0.0)]
    minimax = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.array(rows),
        b_ub=[0.0] * len(worlds) + [-(t - slack)],
        bounds=[(0, 1)] * n + [(None, None)],
    )
    assert minimax.fun == pytest.approx(result.excess, abs=1e-9)


def test_excess_is_the_published_number(construction, t, slack):
    _, result = build(construction, t, slack)
    if construction == "uniform":
        expected, count = t - slack, {0.95: 20, 0.9: 10, 0.6: 3}.get(t, 2)
    elif t >= 0.5:
        expected, count = max(0.0, 0.5 - slack / (2 * (1 - t))), 2
    else:
        expected, count = (t - slack) / 2 * min(1 / (2 * t), 1 / (1 - 2 * t)), 2
    assert result.excess == pytest.approx(ALPHA * expected, abs=1e-12)
    assert len(result.worlds) == count


def test_uniform_construction_promises_the_most_a_constant_selector_allows(construction, t, slack):
    problem, result = build(construction, t, slack)
    constant = np.full((1, len(result.selector)), t - slack)
    assert worst_excess(result, constant, problem)[0] == pytest.approx(ALPHA * (t - slack), abs=1e-12)
    assert result.excess <= ALPHA * (t - slack) + 1e-12


def test_impossible_requests_are_refused(construction, t, slack):
    with pytest.raises(InvalidInputError, match="tpr_min must be below 1"):
        no_free_lunch(ScodProblem(tpr_min=1.0), construction=construction)
    with pytest.raises(InvalidInputError, match="slack must be a number in"):
        no_free_lunch(ScodProblem(tpr_min=t), slack=t, construction=construction)
    with pytest.raises(InvalidInputError, match="construction must be one of 'three_point', 'uniform'"):
        no_free_lunch(ScodProblem(tpr_min=t), slack=slack, construction="four_point")
