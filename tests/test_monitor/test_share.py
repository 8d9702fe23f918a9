"""OOD shares: exact where the reference is infinite, covered at the nominal level where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import betabinom, binom, norm

from poscod import POSCOD
from poscod.metrics import Interval, binomial_interval
from poscod.monitor import Monitor, Reference
from poscod.monitor._share import _tails, adjusted_count, likelihood_share, ood_shares
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

CLEAN = Interval(1.0, 1.0, 1.0, 0.95)
HUGE = 10**12
# One score, ID N(0, 1) and OOD N(2.2, 1); the sixth edge is the threshold of TPR 0.95.
EDGES = np.array([-1.0, 0.0, 0.5, 1.0, 1.3, 1.645, 2.0, 2.5, 3.0])
P = np.diff(np.r_[0.0, norm.cdf(EDGES), 1.0])
Q = np.diff(np.r_[0.0, norm.cdf(EDGES - 2.2), 1.0])
ACCEPTED = 6


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (45, 50), (50, 50), (880, 1000), (3, 1000)])
def test_known_rates_give_the_exact_binomial_interval(k, n):
    """With T = 0.9 and F = 0.2 known, pi = (T - a) / (T - F) at the ends of Clopper and Pearson's interval of a."""
    exact = binomial_interval(k, n)
    share = adjusted_count([k], [n], (int(0.9 * HUGE), HUGE), (int(0.2 * HUGE), HUGE), CLEAN, 0.95)
    expected = np.clip([(0.9 - exact.high) / 0.7, (0.9 - exact.low) / 0.7], 0.0, 1.0)
    assert share.low[0] == pytest.approx(expected[0], abs=1e-4)
    assert share.high[0] == pytest.approx(expected[1], abs=1e-4)


def test_tails_of_a_binomial_count():
    n, k = np.array([7.0, 300.0, 5000.0, 9.0, 9.0]), np.array([2.0, 290.0, 2600.0, 0.0, 9.0])
    share = np.array([0.4, 0.95, 0.5, 0.3, 0.3])
    below, above = _tails(k, n, share, np.zeros(5))
    assert below == pytest.approx(binom.cdf(k, n, share), rel=1e-10)
    assert above == pytest.approx(binom.sf(k - 1, n, share), rel=1e-10)


def test_tails_of_a_count_whose_share_varies():
    """Shares drawn from a beta law: the tails are those of the beta-binomial law, a little on the safe side."""
    mean, variance = np.array([0.9, 0.95, 0.3]), np.array([1e-4, 5e-5, 1e-3])
    n, k = np.array([1000.0, 5000.0, 60.0]), np.array([870.0, 4820.0, 26.0])
    strength = mean * (1 - mean) / variance - 1
    law = betabinom(n.astype(int), mean * strength, (1 - mean) * strength)
    below, above = _tails(k, n, mean, variance)
    for got, want in ((below, law.cdf(k)), (above, law.sf(k - 1))):
        small = want < 0.5
        assert (got[small] >= 0.95 * want[small]).all()
        assert (got[small] <= 1.5 * want[small]).all()
        assert got[~small] == pytest.approx(want[~small], abs=0.01)


def test_likelihood_estimate_maximises_the_likelihood():
    counts = np.array([520, 210, 90, 60, 20, 35, 45, 50, 40, 30])
    share = likelihood_share(counts[None], (P * 1e9).astype(int), (Q * 1e9).astype(int), CLEAN, 0.95)
    grid = np.linspace(0.0, 1.0, 20001)
    best = grid[np.argmax((counts * np.log(np.outer(1 - grid, P) + np.outer(grid, Q))).sum(axis=1))]
    assert share.estimate[0] == pytest.approx(best, abs=2e-3)
    assert share.low[0] < best < share.high[0]


def test_a_mixture_gives_back_its_ood_part():
    q = ood_shares((P * 1e9).astype(int), ((0.7 * P + 0.3 * Q) * 1e9).astype(int), 0.3)
    assert q == pytest.approx(Q, abs=2e-3)


def test_a_mixture_and_clean_rows_agree():
    counts = np.array([[520, 210, 90, 60, 20, 15, 25, 30, 20, 10]])
    known = (P * 1e9).astype(int)
    clean = likelihood_share(counts, known, (Q * 1e9).astype(int), CLEAN, 0.95)
    mixed = likelihood_share(
        counts, known, ((0.75 * P + 0.25 * Q) * 1e9).astype(int), Interval(0.25, 0.25, 0.25, 0.95), 0.95
    )
    assert np.array(mixed)[:, 0] == pytest.approx(np.array(clean)[:, 0], abs=3e-3)


def test_an_uncertain_prior_widens_and_scales():
    args = [880], [1000], (9500, 10000), (8000, 10000)
    sure = adjusted_count(*args, Interval(0.2, 0.2, 0.2, 0.95), 0.95)
    unsure = adjusted_count(*args, Interval(0.2, 0.1, 0.4, 0.95), 0.95)
    assert unsure.estimate == sure.estimate
    assert unsure.low[0] < sure.low[0] - 0.02
    assert unsure.high[0] > sure.high[0] + 0.02


def test_equal_rates_say_nothing():
    share = adjusted_count([50], [60], (950, 1000), (950, 1000), CLEAN, 0.95)
    assert np.isnan(share.estimate[0])
    assert (share.low[0], share.high[0]) == (0.0, 1.0)
    close = adjusted_count([5000], [6000], (952, 1000), (19, 20), CLEAN, 0.95)  # T > F by chance
    assert close.high[0] == 1.0


def test_without_ood_knowledge_it_is_a_lower_bound():
    share = adjusted_count([800], [1000], (9500, 10000), (0, 0), Interval(0.0, 0.0, 0.0, 0.95), 0.95)
    assert share.estimate[0] == pytest.approx(1 - 0.8 / 0.95)
    assert share.low[0] > 0.1
    assert share.high[0] == 1.0


def test_empty_windows():
    known = (P * 1e6).astype(int)
    for share in (
        adjusted_count([0, 9], [0, 10], (95, 100), (5, 100), CLEAN, 0.95),
        likelihood_share(np.zeros((2, len(P)), dtype=int), known, known[::-1], CLEAN, 0.95),
    ):
        assert np.isnan(share.estimate[0])
        assert (share.low[0], share.high[0]) == (0.0, 1.0)


def coverage(pi, n, m, n_ood, *, runs, seed, prior=1.0):
    """Count how often each interval holds pi when the reference is drawn anew for every window."""
    rng = np.random.default_rng(seed)
    hits = np.zeros(2)
    for _ in range(runs):
        known, mixed = rng.multinomial(m, P), rng.multinomial(n_ood, (1 - prior) * P + prior * Q)
        counts = rng.multinomial(n, (1 - pi) * P + pi * Q, size=1)
        share = Interval(prior, prior, prior, 0.95)
        pairs = [(int(c[:ACCEPTED].sum()), int(c.sum())) for c in (known, mixed)]
        for i, s in enumerate(
            (
                adjusted_count(counts[:, :ACCEPTED].sum(axis=1), [n], *pairs, share, 0.95),
                likelihood_share(counts, known, mixed, share, 0.95),
            )
        ):
            hits[i] += s.low[0] <= pi <= s.high[0]
    return hits / runs


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 300, 3000])
@pytest.mark.parametrize("pi", [0.0, 0.01, 0.05, 0.2, 0.5])
def test_coverage_with_the_reference_drawn_anew(pi, n):
    """Nominal 0.95; 0.915 in 500 runs would be 3.6 standard errors below."""
    assert coverage(pi, n, 2000, 800, runs=500, seed=int(1000 * pi) + n).min() > 0.915


@pytest.mark.slow
@pytest.mark.parametrize("pi", [0.0, 0.05, 0.3])
def test_coverage_with_a_mixture_as_the_second_sample(pi):
    assert coverage(pi, 500, 4000, 4000, runs=500, seed=7, prior=0.25).min() > 0.915


def test_coverage_with_the_traffic_of_the_fit_as_the_second_sample():
    """Rows the ratio has seen mislead the likelihood at pi = 0, where it alone covers 89 % of 95: the counts are heard, too.

    Windows of one reference err together, so 25 references of 400 ID rows leave a margin of four points below the nominal level.
    """
    world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 3.0]])
    covered = {0.0: [], 0.2: []}
    for seed in range(25):
        X, y = world.sample_id(1600, random_state=seed)
        model = POSCOD(ratio=CorrectedSigmoid("paper"), tpr_min=0.9, random_state=seed)
        model.fit(X, y, X_unlabeled=world.sample_mixture(1000, 0.2, random_state=1000 + seed)[0])
        reference = Reference.from_model(model, created="2026-03-01")
        assert reference.source == "fit"
        for pi, found in covered.items():
            rows = world.sample_id(3000, random_state=2000 + seed)[0]
            if pi:
                rows = world.sample_mixture(3000, pi, random_state=3000 + seed)[0]
            monitor = Monitor(reference, window=300)
            monitor.update(model.decide(rows), at=np.arange(3000.0))
            found += [window.pi.low <= pi <= window.pi.high for window in monitor.windows()]
    assert min(np.mean(found) for found in covered.values()) >= 0.91
