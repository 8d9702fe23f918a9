"""The order of scores: many rows are sorted by the bits of their scores, and must come out as by comparison."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod.metrics import rank

LARGEST, SMALLEST = np.finfo(np.float64).max, np.nextafter(0.0, 1.0)
SCORES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "ties": lambda rng, n: rng.integers(-20, 20, n) / 7,
    "constant": lambda rng, n: np.full(n, 0.3),
    "zeros of both signs": lambda rng, n: rng.choice([0.0, -0.0, SMALLEST], n),
    "infinities": lambda rng, n: rng.choice([-np.inf, -1.0, 0.5, np.inf], n),
    "extremes": lambda rng, n: rng.choice([-LARGEST, LARGEST, SMALLEST, -SMALLEST, 0.0, -0.0], n),
    "heavy tails": lambda rng, n: np.exp(30 * rng.normal(size=n)),
    "negative": lambda rng, n: -np.exp(30 * rng.normal(size=n)),
    "neighbors": lambda rng, n: 1.0 + rng.integers(0, n, n) * 2.0**-52,
    "neighbors far from zero": lambda rng, n: np.where(
        rng.random(n) < 0.1, -1e300, 1.0 + rng.integers(0, n, n) * 2.0**-52
    ),
    "sorted": lambda rng, n: np.arange(n, dtype=float),
    "reversed": lambda rng, n: -np.arange(n, dtype=float),
}


def check(ranking, score_id, score_ood):
    np.testing.assert_array_equal(ranking.order_id, np.argsort(score_id, kind="stable"))
    np.testing.assert_array_equal(ranking.order_ood, np.argsort(score_ood, kind="stable"))
    thresholds = np.unique(np.concatenate([score_id, score_ood]))
    np.testing.assert_array_equal(ranking.threshold, thresholds)
    for ranks, score in ((ranking.rank_id, score_id), (ranking.rank_ood, score_ood)):
        np.testing.assert_array_equal(ranks, np.searchsorted(np.sort(score), thresholds, side="right"))


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize(("m", "n"), [(1, 3000), (1500, 1500), (3000, 0), (999, 1), (400, 400), (0, 2000), (0, 0)])
def test_order_by_comparison(kind, m, n, rng):
    score_id, score_ood = SCORES[kind](rng, m), SCORES[kind](rng, n)
    check(rank(score_id, score_ood), score_id, score_ood)


@given(values=st.lists(st.floats(allow_nan=False), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_any_scores(values, seed):
    rng = np.random.default_rng(seed)
    score_id, score_ood = rng.choice(values, 1300), rng.choice(values, 200)
    check(rank(score_id, score_ood), score_id, score_ood)
