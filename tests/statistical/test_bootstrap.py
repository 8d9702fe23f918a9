"""How often the bootstrap interval covers, counted: near nominal with enough errors, too rarely with a handful."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from poscod.metrics import DegenerateIntervalWarning, aurc, auroc, ausrt, bootstrap


def draw(rng, m, n, error):
    """Scores where risk grows with the score; OOD scores are higher. Returns score_id, loss, score_ood."""
    score = rng.normal(size=m)
    loss = rng.random(m) < error * 2 * stats.norm.cdf(1.5 * score)
    return score, loss.astype(float), rng.normal(1.2, 1.0, n)


def coverage(metric, arrays_of, truth, n_sims, level=0.95):
    hits = 0
    for seed in range(n_sims):
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DegenerateIntervalWarning
            )  # samples without any error are part of the count
            interval = bootstrap(
                metric, *arrays_of(np.random.default_rng(seed)), n_resamples=200, level=level, random_state=seed
            )
        hits += interval.low <= truth <= interval.high
    return hits / n_sims


@pytest.mark.slow
def test_auroc_covers_at_its_level():
    """1000 samples: 3-sigma band 0.93 ... 0.97 around 0.95, less 0.005 for 200 resamples."""
    truth = stats.norm.cdf(1.2 / np.sqrt(2))
    share = coverage(auroc, lambda rng: draw(rng, 150, 100, 0.1)[::2], truth, 1000)
    assert 0.925 <= share <= 0.972


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "m", "error", "low", "high"),
    [
        # The documented table, with 3-sigma bands of 500 samples around what was measured.
        (aurc, 100, 0.02, 0.50, 0.80),
        (aurc, 400, 0.02, 0.75, 0.95),
        (aurc, 400, 0.10, 0.90, 0.98),
        (ausrt, 400, 0.10, 0.90, 0.98),
    ],
)
def test_documented_coverage(metric, m, error, low, high):
    rng = np.random.default_rng(12345)
    large = draw(rng, 1_000_000, 500_000, error)
    inputs = 2 if metric is aurc else 3
    truth = metric(*large[:inputs])
    share = coverage(metric, lambda rng: draw(rng, m, m, error)[:inputs], truth, 500)
    print(f"{metric.__name__} m={m} error={error}: {share:.3f}")  # noqa: T201
    assert low <= share <= high
