import numpy as np
import pytest

from poscod import ScodProblem
from poscod.theory import FiniteWorld
from test_theory._worlds import greedy, oracle_evaluate, oracle_risk_at_points, random_world

SETTINGS = [(seed, alpha, t) for seed in range(20) for alpha, t in ((0.1, 0.9), (0.37, 0.6), (0.9, 0.8))]


def ingredients(seed, alpha, t):
    world = random_world(seed, n=40, zeros=False)
    problem = ScodProblem(alpha=alpha, tpr_min=t)
    return world, problem, oracle_risk_at_points(world, problem), world.p_ood / world.p_id


@pytest.mark.parametrize(("seed", "alpha", "t"), SETTINGS)
def test_plug_in_regret_is_bounded_by_the_estimation_errors(seed, alpha, t):
    # R(c_hat) - R(c*) <= ((1 - alpha) / t) E_I|r - r_hat| + alpha E_I|g - g_hat|; also after the best constant shift.
    world, problem, r, g = ingredients(seed, alpha, t)
    rng = np.random.default_rng(seed)
    best = world.solve(problem).risk
    for noise in (0.02, 0.2, 1.0):
        r_hat = np.clip(r + noise * rng.normal(size=40), 0, 1)
        g_hat = g * np.exp(noise * rng.normal(size=40))
        accept = greedy((r_hat + problem.beta * g_hat)[None, :], world.p_id, t)[0]
        regret = oracle_evaluate(world, accept, problem)[0] - best
        bound = (1 - alpha) / t * world.p_id @ np.abs(r - r_hat) + alpha * world.p_id @ np.abs(g - g_hat)
        assert -1e-12 <= regret <= bound + 1e-12
        error = r - r_hat + problem.beta * (g - g_hat)
        shifted = min((1 - alpha) / t * world.p_id @ np.abs(error - m) for m in error)
        assert shifted <= bound + 1e-12
        assert regret <= shifted + 1e-12


@pytest.mark.parametrize("part", ["risk", "ratio"])
def test_plug_in_regret_bound_is_tight(part):
    # Two points, one to accept; errors just large enough to turn their order around lose all the bound allows.
    alpha, t, eps = 0.3, 0.5, 1e-6
    problem = ScodProblem(alpha=alpha, tpr_min=t)
    if part == "risk":
        world = FiniteWorld([0.5, 0.5], [0.5, 0.5], [[0.9, 0.1], [0.7, 0.3]])
    else:
        world = FiniteWorld([0.5, 0.5], [0.4, 0.6], [[0.9, 0.1], [0.9, 0.1]])
    r, g = oracle_risk_at_points(world, problem), world.p_ood / world.p_id
    turned = np.array([eps, -eps])
    r_hat, g_hat = (r.mean() + turned, g) if part == "risk" else (r, g.mean() + turned)
    accept = greedy((r_hat + problem.beta * g_hat)[None, :], world.p_id, t)[0]
    regret = oracle_evaluate(world, accept, problem)[0] - world.solve(problem).risk
    bound = (1 - alpha) / t * world.p_id @ np.abs(r - r_hat) + alpha * world.p_id @ np.abs(g - g_hat)
    assert regret == pytest.approx(bound, rel=1e-4)
    assert regret > 0.05


@pytest.mark.parametrize(("seed", "alpha", "t"), SETTINGS)
def test_a_wrong_scale_of_the_ratio_costs_at_most_the_lemma(seed, alpha, t):
    # beta' = q beta costs at most alpha (q - 1) (FPR - FPR').
    world, problem, r, g = ingredients(seed, alpha, t)
    best = world.solve(problem)
    for q in (0.0, 0.3, 0.8, 1.0, 1.5, 10.0):
        accept = greedy((r + q * problem.beta * g)[None, :], world.p_id, t)[0]
        risk, tpr, fpr, _ = oracle_evaluate(world, accept, problem)
        assert tpr == pytest.approx(t, abs=1e-12)
        bound = alpha * (q - 1) * (best.fpr - fpr)
        assert -1e-12 <= risk - best.risk <= bound + 1e-12


@pytest.mark.parametrize(("seed", "alpha", "t"), SETTINGS)
def test_fpr_falls_and_selective_risk_rises_with_the_slope(seed, alpha, t):
    # What bisection over the slope relies on in the problems that bound FPR.
    world, problem, r, g = ingredients(seed, alpha, t)
    slopes = problem.beta * np.array([0.0, 0.1, 0.5, 1.0, 3.0, 30.0])
    accept = np.vstack([greedy((r + slope * g)[None, :], world.p_id, t) for slope in slopes])
    _, _, fpr, selective = oracle_evaluate(world, accept, problem)
    assert np.diff(fpr).max() <= 1e-12
    assert np.diff(selective).min() >= -1e-12
    assert fpr[0] > fpr[-1] + 1e-3
