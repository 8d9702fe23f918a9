"""The estimate of a class mix: counted against exact answers, on worlds that do not flatter it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import binom

from poscod.exceptions import InvalidInputError
from poscod.mix import ClassMix, estimate_mix, most_likely


class World:
    """K classes at the corners of a simplex, in K dimensions: the posterior for any labeled mix is exact."""

    def __init__(self, k, apart, p=None):
        self.k, self.apart = k, apart
        self.p = np.full(k, 1.0 / k) if p is None else np.asarray(p)

    def draw(self, n, q, rng):
        y = rng.choice(self.k, n, p=q)
        x = rng.normal(size=(n, self.k))
        x[np.arange(n), y] += self.apart
        return y, softmax(self.apart * x + np.log(self.p), axis=1)


def zipf(k):
    share = 1.0 / np.arange(1, k + 1) ** 0.7
    return share / share.sum()


WORLDS = {
    "two classes": (World(2, 2.0), 200, 200),
    "three classes, a small log": (World(3, 2.0), 300, 100),
    "ten classes that overlap": (World(10, 1.5), 800, 800),
    "ten classes, skewed, a large log": (World(10, 3.0, zipf(10)), 300, 3000),
    "fifty classes, four rows a class in the log": (World(50, 4.0), 1000, 200),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_test_of_unchanged_holds_its_level(name):
    world, m, n = WORLDS[name]
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y, eta = world.draw(m, world.p, rng)
        found.append(estimate_mix(eta, y, world.draw(n, world.p, rng)[1]).changed)
    # 5 % of 200, and what chance adds once in a thousand times.
    assert sum(found) <= binom.isf(1e-3, 200, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "m", "n", "skewed"), [(150, 1500, 1000, False), (150, 3000, 600, True), (30, 300, 300, True)]
)
def test_the_level_with_many_classes(k, m, n, skewed):
    world = World(k, 5.0, zipf(k) if skewed else None)
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y, eta = world.draw(m, world.p, rng)
        found.append(estimate_mix(eta, y, world.draw(n, world.p, rng)[1]).p_value <= 0.05)
    assert sum(found) <= binom.isf(1e-3, 200, 0.05)


@pytest.mark.parametrize("name", ["two classes", "ten classes that overlap", "ten classes, skewed, a large log"])
def test_intervals_cover_under_shift_and_for_absent_classes(name):
    world, m, n = WORLDS[name]
    m, n = 2 * m, 2 * n
    covered, changed = [], []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        q = rng.dirichlet(np.ones(world.k))
        if seed % 2:
            q[rng.integers(world.k)] = 0.0
            q /= q.sum()
        y, eta = world.draw(m, world.p, rng)
        mix = estimate_mix(eta, y, world.draw(n, q, rng)[1])
        covered.append(np.mean((mix.low <= q) & (q <= mix.high)))
        changed.append(mix.changed)
    # Nominal 95 %; intervals of one draw are dependent, so that the mean over 100 draws has a standard error of up to 2 %.
    assert np.mean(covered) > 0.9
    assert np.mean(changed) > 0.85


@pytest.mark.slow
def test_coverage_counted_with_many_draws():
    world = World(5, 2.0, zipf(5))
    covered = []
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        q = rng.dirichlet(np.ones(5))
        y, eta = world.draw(800, world.p, rng)
        mix = estimate_mix(eta, y, world.draw(600, q, rng)[1])
        covered.append(np.mean((mix.low <= q) & (q <= mix.high)))
    assert 0.93 < np.mean(covered) < 0.98


@pytest.mark.parametrize(("more", "gain"), [(1.5, 0.85), (3.0, 0.98)])
def test_many_classes_and_few_rows_are_shrunk(more, gain):
    """Half of 60 classes is more frequent, by 300 rows: the mix that is served is nearer to the truth than the most likely one."""
    world = World(60, 5.0)
    plain, shrunk = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        q = np.where(rng.permutation(60) < 30, more, 1.0)
        q /= q.sum()
        y, eta = world.draw(600, world.p, rng)
        traffic = world.draw(300, q, rng)[1]
        mix = estimate_mix(eta, y, traffic)
        shrunk.append(0.5 * np.abs(mix.traffic - q).sum())
        plain.append(0.5 * np.abs(most_likely(eta, y, np.ones(600), traffic, np.ones(300)).share - q).sum())
        assert mix.traffic.min() > 0.0
    assert np.mean(shrunk) < gain * np.mean(plain)


def test_rows_count_by_their_probability_of_being_id():
    world, rng = World(3, 3.0), np.random.default_rng(0)
    q = np.array([0.6, 0.3, 0.1])
    y, eta = world.draw(3000, world.p, rng)
    traffic = world.draw(3000, q, rng)[1]
    strange = np.tile([0.02, 0.03, 0.95], (1500, 1))  # OOD that the classifier takes for the last class
    both = np.concatenate([traffic, strange])
    known = np.r_[np.ones(3000), np.zeros(1500)]
    blind, told = estimate_mix(eta, y, both), estimate_mix(eta, y, both, id_probability=known)
    assert abs(told.traffic - q).max() < 0.03 < 0.2 < abs(blind.traffic - q).max()
    np.testing.assert_allclose(told.traffic, estimate_mix(eta, y, traffic).traffic, atol=1e-9)


def test_a_miscalibrated_classifier_does_not_see_another_mix():
    world, rng = World(4, 2.0), np.random.default_rng(1)
    y, eta = world.draw(4000, world.p, rng)
    _, seen = world.draw(4000, world.p, rng)
    biased = [np.exp(np.log(rows) + np.array([0.8, 0.0, 0.0, -0.8])) for rows in (eta, seen)]
    eta, seen = (rows / rows.sum(axis=1, keepdims=True) for rows in biased)
    mix = estimate_mix(eta, y, seen)
    assert not mix.changed
    assert ((mix.low <= 0.25) & (mix.high >= 0.25)).all()


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_order_of_rows_and_classes_means_nothing_and_weights_are_copies(seed, k):
    rng = np.random.default_rng(seed)
    world = World(k, 2.0)
    y, eta = world.draw(150, world.p, rng)
    _, seen = world.draw(120, rng.dirichlet(np.ones(k)), rng)
    mix = estimate_mix(eta, y, seen)
    rows, others, turn = rng.permutation(150), rng.permutation(120), rng.permutation(k)
    again = estimate_mix(eta[rows][:, turn], np.argsort(turn)[y[rows]], seen[others][:, turn])
    np.testing.assert_allclose(again.traffic, mix.traffic[turn], atol=1e-5)
    np.testing.assert_allclose(again.p_value, mix.p_value, rtol=1e-5, atol=1e-12)
    times = rng.integers(1, 3, 120)
    weighted = estimate_mix(eta, y, seen, weight_traffic=times)
    copied = estimate_mix(eta, y, np.repeat(seen, times, axis=0))
    # The estimate is the same; copies count as rows in the test and in the errors, weights do not.
    assert weighted.low.sum() <= copied.low.sum() + 1e-6
    assert abs(weighted.traffic.sum() - 1.0) < 1e-9


def test_a_class_without_labeled_rows_is_left_out():
    world, rng = World(3, 3.0), np.random.default_rng(0)
    y, eta = world.draw(500, [0.5, 0.5, 0.0], rng)
    mix = estimate_mix(eta, y, world.draw(500, [0.8, 0.2, 0.0], rng)[1])
    assert mix.labeled[2] == 0.0 == mix.traffic[2]
    assert mix.weight[2] == 1.0
    assert abs(mix.traffic[0] - 0.8) < 0.06


def test_refusals():
    y, eta = np.array([0, 1] * 3), np.full((6, 2), 0.5)
    with pytest.raises(
        InvalidInputError, match="needs at least 10 labeled rows and as many unlabeled ones, got 6 and 6"
    ):
        estimate_mix(eta, y, eta)
    with pytest.raises(InvalidInputError, match="posterior_traffic must have one column a class like posterior_id"):
        estimate_mix(eta, y, np.ones((6, 3)) / 3)
    with pytest.raises(InvalidInputError, match="test_level"):
        estimate_mix(eta, y, eta, test_level=0.0)


def test_the_value():
    mix = ClassMix.unchanged([3, 1])
    assert mix.weight.tolist() == [1.0, 1.0]
    assert mix.distance == 0.0
    assert not len(mix.moved)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.35, 0.45])
    mix = ClassMix(p, q, q - 0.1, q + 0.1, 0.95, 0.001, True)
    assert mix.moved.tolist() == [0, 2]
    assert mix.distance == pytest.approx(0.3)
    document = mix.to_dict(["a", "b", "c"])
    assert document["changed"] is True
    assert document["classes"][2] == {
        "class": "c",
        "labeled": 0.2,
        "traffic": 0.45,
        "low": pytest.approx(0.35),
        "high": pytest.approx(0.55),
    }
