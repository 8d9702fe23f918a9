"""Theorem 2 where the traffic's ID part has another class mix, what ignoring it costs, and what no data can tell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poscod import ScodProblem
from poscod.exceptions import InvalidInputError
from poscod.selector import accept_probability, tpr_threshold
from poscod.theory import FiniteWorld
from poscod.theory._finite import SOLVERS
from test_theory._worlds import cases, greedy, oracle_evaluate, oracle_risk_at_points, random_world


@st.composite
def shifts(draw):
    """Draw (world, problem, class mix): a world of `cases` and shares that may drop any class and add none."""
    world, problem, _ = draw(cases())
    share = st.lists(st.integers(0, 9), min_size=world.n_classes, max_size=world.n_classes)
    counts = np.array(draw(share.filter(lambda v: (np.array(v) * (world.class_prior > 0)).any())), dtype=float)
    counts[world.class_prior == 0] = 0.0
    return world, problem, counts / counts.sum()


def labeled_rows(world):
    """Return (point, class, mass) of every pair (x, y) a labeled row can be."""
    point, label = (index.ravel() for index in np.indices(world.posterior.shape))
    return point, label, (world.p_id[:, None] * world.posterior).ravel()


def rule_from_labeled_rows(world, problem, q):
    """Return (answers, acceptance probabilities) from the labeled rows' own eta, g and row weights w_y, by the formulas of docs/theory.md."""
    w = np.divide(q, world.class_prior, out=np.zeros_like(q), where=world.class_prior > 0)
    v = world.posterior @ w
    here = (world.p_id > 0) & (v > 0)
    eta = w * world.posterior / np.where(v > 0, v, 1.0)[:, None]
    expected = eta @ problem.loss_matrix(world.n_classes)
    answer, risk = expected.argmin(axis=1), expected.min(axis=1)
    ratio = world.p_ood / np.where(world.p_id > 0, world.p_id, 1.0) / np.where(v > 0, v, 1.0)
    score = np.where(here, ratio if problem.alpha == 1 else risk + problem.beta * ratio, np.inf)
    point, label, mass = labeled_rows(world)
    used = mass * w[label] > 0
    found = tpr_threshold(score[point[used]], problem.tpr_min, weight=(mass * w[label])[used])
    return answer, np.where(here, accept_probability(score, found.threshold, found.tau), 0.0)


@settings(max_examples=200, deadline=None)
@given(shifts())
def test_another_class_mix_changes_shares_and_nothing_else(shift):
    world, _, q = shift
    other = world.with_class_mix(q)
    np.testing.assert_allclose(other.class_prior, q, atol=1e-12)
    np.testing.assert_allclose(other.p_ood, world.p_ood, atol=1e-15)
    for k in np.flatnonzero(q):
        before, after = (w.p_id * w.posterior[:, k] / w.class_prior[k] for w in (world, other))
        np.testing.assert_allclose(after, before, atol=1e-12)


@settings(max_examples=300, deadline=None)
@given(shifts())
def test_optimum_for_the_traffic_comes_from_labeled_rows_with_weights(shift):
    world, problem, q = shift
    traffic = world.with_class_mix(q)
    closed, lp = (traffic.solve(problem, method=name) for name in SOLVERS)
    assert closed.risk == pytest.approx(lp.risk, abs=1e-9)
    answer, accept = rule_from_labeled_rows(world, problem, q)
    risk, tpr, _, _ = oracle_evaluate(traffic, accept, problem, answer)
    assert tpr == pytest.approx(problem.tpr_min, abs=1e-9)
    assert risk == pytest.approx(lp.risk, abs=1e-9)
    # The same rates as weighted means over labeled rows: loss and acceptance of (x, y), each with weight w_y.
    point, label, mass = labeled_rows(world)
    weight = mass * np.divide(q, world.class_prior, out=np.zeros_like(q), where=world.class_prior > 0)[label]
    loss = problem.loss_matrix(world.n_classes)[label, answer[point]]
    accepted = weight @ accept[point]
    selective, fpr = weight @ (loss * accept[point]) / accepted, world.p_ood @ accept
    assert accepted == pytest.approx(tpr, abs=1e-12)
    assert (1 - problem.alpha) * selective + problem.alpha * fpr == pytest.approx(risk, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_ignoring_the_mix_costs_something_and_at_most_the_bound(seed):
    # R'(h, c) - R'* <= k E'[r'_h - r'] + k E'|r' - r| + alpha E_O|1 - v|, also with the right TPR.
    world = random_world(seed, n=40, zeros=False)
    q = np.random.default_rng(seed).dirichlet(np.ones(3))
    problem = ScodProblem(alpha=[0.1, 0.37, 0.9][seed % 3], tpr_min=[0.6, 0.83][seed % 2], loss="absolute")
    traffic, k = world.with_class_mix(q), (1 - problem.alpha) / problem.tpr_min
    answer = (world.posterior @ problem.loss_matrix(3)).argmin(axis=1)
    old, best = oracle_risk_at_points(world, problem), oracle_risk_at_points(traffic, problem)
    score = old + problem.beta * world.p_ood / world.p_id
    accept = greedy(score[None, :], traffic.p_id, problem.tpr_min)[0]
    regret = oracle_evaluate(traffic, accept, problem, answer)[0] - traffic.solve(problem).risk
    v = traffic.p_id / world.p_id
    bound = k * traffic.p_id @ (oracle_risk_at_points(traffic, problem, answer) - best + np.abs(best - old))
    bound += problem.alpha * world.p_ood @ np.abs(1 - v)
    assert 0.0 < regret <= bound + 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_tpr_of_a_mix_is_the_mean_over_its_classes(seed):
    world = random_world(seed)
    rng = np.random.default_rng(seed)
    accept, q = rng.uniform(size=30), rng.dirichlet(np.ones(3))
    by_class = [world.with_class_mix(np.eye(3)[k]).p_id @ accept for k in range(3)]
    tpr, own = world.with_class_mix(q).p_id @ accept, world.p_id @ accept
    assert tpr == pytest.approx(q @ by_class, abs=1e-12)
    assert tpr >= min(by_class) - 1e-12  # the promise over classes: no mix has less
    distance = 0.5 * np.abs(q - world.class_prior).sum()
    assert abs(tpr - own) <= distance * (max(by_class) - min(by_class)) + 1e-12


def test_a_class_that_grew_is_called_ood_by_whoever_ignores_the_mix():
    # Two classes that never meet, no OOD; the first goes from 1/2 to 0.8, and 1 - min w = 0.6 of the traffic is "OOD", all of it class 0.
    world = FiniteWorld([0.25, 0.25, 0.5], [0.3, 0.3, 0.4], [[1, 0], [1, 0], [0, 1]])
    traffic = world.with_class_mix([0.8, 0.2]).p_id
    share = 1 - (traffic / world.p_id).min()
    assert share == pytest.approx(0.6)
    np.testing.assert_allclose((traffic - (1 - share) * world.p_id) / share, [0.5, 0.5, 0.0], atol=1e-12)


def traffic_law(world, pi):
    return (1 - pi) * world.p_id + pi * world.p_ood


@settings(max_examples=200, deadline=None)
@given(shifts(), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_ood_that_holds_a_class_is_not_told_from_more_of_that_class(shift, pi, a):
    world, _, q = shift
    k = int(np.flatnonzero(world.class_prior)[0])
    inputs = world.with_class_mix(np.eye(world.n_classes)[k]).p_id
    mixed = FiniteWorld(world.p_id, (1 - a) * world.p_ood + a * inputs, world.posterior).with_class_mix(q)
    fewer = pi * (1 - a)
    more = ((1 - pi) * q + pi * a * np.eye(world.n_classes)[k]) / (1 - fewer)
    plain = world.with_class_mix(more)
    np.testing.assert_allclose(traffic_law(mixed, pi), traffic_law(plain, fewer), atol=1e-12)
    assert fewer < pi


def test_an_ood_law_without_any_class_in_it_is_not_enough():
    # The first class is at A and B, the second at A and C. Neither OOD law holds a share of either class, and yet two class mixes make one traffic.
    p_id, posterior = [0.5, 0.25, 0.25], [[0.5, 0.5], [1, 0], [0, 1]]
    one = FiniteWorld(p_id, [0, 0, 1], posterior).with_class_mix([5 / 9, 4 / 9])
    two = FiniteWorld(p_id, [0, 1, 0], posterior).with_class_mix([3 / 9, 6 / 9])
    for world in (one, two):
        for k in range(2):
            law = world.with_class_mix(np.eye(2)[k]).p_id
            assert (world.p_ood[law > 0] / law[law > 0]).min() == 0
    np.testing.assert_allclose(traffic_law(one, 0.1), traffic_law(two, 0.1), atol=1e-15)


def test_a_region_without_ood_tells_mix_and_share():
    # OOD never comes to the first points, where the laws of the classes are linearly independent: least squares there finds (1 - pi) q.
    rng = np.random.default_rng(0)
    conditionals, ood = rng.dirichlet(np.ones(9), size=3), np.append(np.zeros(4), rng.dirichlet(np.ones(5)))
    pi, q = 0.3, np.array([0.6, 0.3, 0.1])
    traffic = (1 - pi) * q @ conditionals + pi * ood
    found = np.linalg.lstsq(conditionals[:, :4].T, traffic[:4], rcond=None)[0]
    np.testing.assert_allclose(found, (1 - pi) * q, atol=1e-12)


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ([0.5, 0.6], "class_mix must sum to 1, got 1.1"),
        ([1.2, -0.2], "class_mix must be at least 0, got -0.2"),
        ([1.0], "class_mix must have as many rows as the classes of the world"),
    ],
)
def test_bad_mixes_are_refused_with_a_sentence(mix, message):
    with pytest.raises(InvalidInputError, match=message):
        FiniteWorld([0.5, 0.5], [0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]]).with_class_mix(mix)


def test_a_class_nobody_has_seen_cannot_be_added():
    world = FiniteWorld([1.0, 0.0], [0.5, 0.5], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    with pytest.raises(InvalidInputError, match=r"class_mix must be 0 for class 1, which has no ID mass.*got 0.2"):
        world.with_class_mix([0.8, 0.2, 0.0])
