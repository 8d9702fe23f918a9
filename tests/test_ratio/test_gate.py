"""The gate: it sees OOD rows, and holds its level whatever the weights and however scores were learned."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from poscod.ratio._gate import gate_p_value


def test_gate_sees_ood_and_ignores_the_other_direction(rng):
    z = np.repeat([False, True], 1000)
    fold = np.arange(2000) % 5
    weight = np.ones(2000)
    up = np.r_[rng.normal(size=1000), rng.normal(size=900), 4 + rng.normal(size=100)]
    assert gate_p_value([up], z, fold, weight, learned=[False]) < 0.01
    assert gate_p_value([-up], z, fold, weight, learned=[False]) > 0.5
    assert gate_p_value([np.zeros(2000)], z, fold, weight, learned=[False]) == 1.0


def test_gate_works_on_a_sample_of_many_rows(rng):
    n = 30000
    score = np.r_[rng.normal(size=n), rng.normal(size=n - 1500), 5 + rng.normal(size=1500)]
    assert (
        gate_p_value([score], np.repeat([False, True], n), np.zeros(2 * n, int), np.ones(2 * n), learned=[False]) < 0.01
    )


def test_gate_keeps_its_level_with_scores_learned_from_the_other_folds():
    """Contrasts of two halves, each scored along the contrast of the other: permutations alone reject far too often."""
    rejected = {False: 0, True: 0}
    runs, n, d = 200, 200, 20
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        x, z = rng.normal(size=(2 * n, d)), np.arange(2 * n) % 2 == 1
        fold = np.repeat([0, 1], n)
        contrast = [x[(fold == k) & z].mean(axis=0) - x[(fold == k) & ~z].mean(axis=0) for k in (0, 1)]
        score = np.where(fold == 0, x @ contrast[1], x @ contrast[0])
        for learned in rejected:
            p = gate_p_value([score], z, fold, np.ones(2 * n), learned=[learned], permutations=199, seed=seed)
            rejected[learned] += p <= 0.05
    assert rejected[True] <= 0.05 * runs + 2.0 * np.sqrt(0.05 * 0.95 * runs)
    assert rejected[False] > 0.05 * runs + 2.0 * np.sqrt(0.05 * 0.95 * runs)


WEIGHTS = {
    "exponential, labeled rows": lambda rng, m, n: (rng.exponential(size=m), np.ones(n)),
    "exponential, both sides": lambda rng, m, n: (rng.exponential(size=m), rng.exponential(size=n)),
    "of two classes": lambda rng, m, n: (np.where(rng.random(m) < 0.2, 4.0, 0.25), np.ones(n)),
    "equal": lambda rng, m, n: (np.ones(m), np.ones(n)),
}


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(("m", "n"), [(400, 1600), (1000, 300)])
def test_the_level_is_held_with_weights_that_differ_between_the_sides(kind, m, n):
    opened, runs = 0, 100
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        score, fold = rng.standard_t(3, size=m + n), rng.integers(0, 5, m + n)
        weight = np.concatenate([side / side.mean() for side in WEIGHTS[kind](rng, m, n)])
        sides = np.repeat([False, True], [m, n])
        opened += gate_p_value([score], sides, fold, weight, learned=[False], permutations=99, seed=seed) <= 0.05
    assert opened <= binom.isf(1e-3, runs, 0.05)


def test_weights_that_undo_a_difference_close_the_gate_and_weights_that_make_one_open_it(rng):
    m = n = 2000
    strange = rng.random(m + n) < 0.3  # both sides hold 30 % of a second kind
    score = rng.normal(size=m + n) + 3.0 * strange
    unlabeled, fold = np.repeat([False, True], [m, n]), rng.integers(0, 5, m + n)
    rarer = np.where(strange & ~unlabeled, 0.25, 1.0)
    assert gate_p_value([score], unlabeled, fold, np.ones(m + n), learned=[False]) > 0.05
    assert gate_p_value([score], unlabeled, fold, rarer, learned=[False]) < 0.01
    fewer = ~(
        strange & unlabeled & (rng.random(m + n) < 0.75)
    )  # 70 : 7.5 among unlabeled rows, as in labeled ones of weight 1/4
    kept = score[fewer], unlabeled[fewer], fold[fewer]
    assert gate_p_value([-kept[0]], kept[1], kept[2], np.ones(fewer.sum()), learned=[False]) < 0.01
    assert gate_p_value([-kept[0]], kept[1], kept[2], rarer[fewer], learned=[False]) > 0.05
