"""OOD shares and class mixes of windows: right where the reference is infinite, covered at the nominal level where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from poscod import POSCOD
from poscod.metrics import Interval
from poscod.monitor import Monitor, Reference
from poscod.monitor._laws import laws_of
from poscod.monitor._mix import class_mixes, rough_mixes, unchanged
from poscod.monitor._partitions import Layout
from poscod.monitor._share import direction, ood_share, ood_shares
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

CLEAN = Interval(1.0, 1.0, 1.0, 0.95)
# One score: classes N(0, 1), N(0.5, 1) and N(-0.5, 1), OOD N(2.5, 1); cut at 1.8. Answers are right in 90, 80 and 85 % of rows, those to OOD inputs are mostly the second.
EDGES = np.array([-1.0, 0.0, 0.5, 1.0, 1.4, 1.8, 2.2, 2.6, 3.0])
ANSWERS = np.array([[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.05, 0.1, 0.85]])
BINS = len(EDGES) + 1


def law(mean, answers):
    """Shares of the cells of "ratio": bins, accepted or rejected, by answers and one unknown answer."""
    p = np.diff(np.r_[0.0, norm.cdf(EDGES - mean), 1.0])
    sides = np.concatenate([np.where(np.arange(BINS) < 6, p, 0.0), np.where(np.arange(BINS) < 6, 0.0, p)])
    return np.outer(sides, np.append(answers, 0.0)).ravel()


CLASSES = np.stack([law(mean, answers) for mean, answers in zip((0.0, 0.5, -0.5), ANSWERS, strict=True)])
STRANGE = law(2.5, [0.2, 0.7, 0.1])
RATIO = Layout(np.repeat(np.arange(2 * BINS) >= BINS, 4), np.tile(np.arange(4), 2 * BINS))
LABEL = Layout(np.arange(5) > 3, np.minimum(np.arange(5), 3))
MIX = np.array([0.5, 0.3, 0.2])


def labels(ratio):
    """The cells of "label" of rows in the cells of "ratio"."""
    by = ratio.reshape(*ratio.shape[:-1], 2, BINS, 4)
    return np.concatenate([by[..., 0, :, :].sum(axis=-2), by[..., 1, :, :].sum(axis=(-2, -1))[..., None]], axis=-1)


def laws(known, mixed, prior):
    return laws_of(known, mixed, MIX, prior, RATIO), laws_of(labels(known), labels(mixed), MIX, prior, LABEL)


def exact(prior=1.0):
    mixture = (1 - prior) * MIX @ CLASSES + prior * STRANGE
    return laws((CLASSES * 1e14).astype(np.int64), (mixture * 1e14).astype(np.int64), prior)


def measure(ratio, pair, prior=CLEAN, level=0.95):
    """Both OOD shares and the class mixes of windows."""
    by_ratio, by_label = pair
    mixes = rough_mixes(labels(ratio), by_label)
    functions = direction(by_ratio, BINS, 0.0), by_ratio.rejected
    shares = [ood_share(ratio, by_ratio, f, mixes, prior, level) for f in functions]
    return (*shares, class_mixes(labels(ratio), by_label, shares[0], level))


@pytest.mark.parametrize("prior", [1.0, 0.25])
@pytest.mark.parametrize("pi", [0.0, 0.04, 0.3])
@pytest.mark.parametrize("mix", [[0.5, 0.3, 0.2], [0.05, 0.9, 0.05], [0.0, 0.0, 1.0]])
def test_shares_and_mixes_are_found_whatever_they_are(prior, pi, mix):
    """With infinitely many rows everywhere; the second class is nearer to OOD, and OOD inputs get its answer."""
    counts = ((((1 - pi) * np.array(mix) @ CLASSES) + pi * STRANGE) * 1e12).astype(np.int64)[None]
    best, by_count, mixes = measure(counts, exact(prior), Interval(prior, prior, prior, 0.95))
    assert best.estimate[0] == pytest.approx(pi, abs=2e-3 + 0.01 * pi)
    assert by_count.estimate[0] == pytest.approx(pi, abs=2e-3 + 0.01 * pi)
    assert mixes.estimate[0] == pytest.approx(mix, abs=3e-3)


def test_a_mixture_gives_back_its_ood_part():
    p, q = MIX @ CLASSES, STRANGE
    bins = [law.reshape(2, BINS, 4).sum(axis=(0, 2)) for law in (p, 0.7 * p + 0.3 * q, q)]
    assert ood_shares(bins[0], bins[1], 0.3, 1e9) == pytest.approx(bins[2], abs=2e-3)


def test_an_uncertain_prior_widens_and_scales(rng):
    counts = rng.multinomial(1000, 0.9 * MIX @ CLASSES + 0.1 * STRANGE, size=1)
    sure, unsure = (
        measure(counts, exact(0.2), prior)[0]
        for prior in (Interval(0.2, 0.2, 0.2, 0.95), Interval(0.2, 0.1, 0.4, 0.95))
    )
    assert unsure.estimate == sure.estimate
    assert unsure.low[0] < sure.low[0] - 0.01
    assert unsure.high[0] > sure.high[0] + 0.02


def test_equal_laws_say_nothing(rng):
    known = np.stack([rng.multinomial(300, p) for p in CLASSES])
    counts = rng.multinomial(1000, MIX @ CLASSES, size=1)
    pair = laws(known, rng.multinomial(40, MIX @ CLASSES), 1.0)
    share = measure(counts, pair)[1]
    assert (share.low[0], share.high[0]) == (0.0, 1.0)


def test_without_ood_knowledge_it_is_a_lower_bound():
    counts = ((0.8 * np.array([0.1, 0.8, 0.1]) @ CLASSES + 0.2 * STRANGE) * 1e5).astype(np.int64)[None]
    pair = laws((CLASSES * 1e6).astype(np.int64), np.zeros(len(STRANGE), dtype=np.int64), 0.0)
    mixes = rough_mixes(labels(counts), pair[1])
    share = ood_share(counts, pair[0], pair[0].rejected, mixes, Interval(0.0, 0.0, 0.0, 0.95), 0.95)
    assert 0.08 < share.low[0] <= share.estimate[0] < 0.2
    assert share.high[0] == 1.0


def test_empty_windows():
    best, by_count, mixes = measure(np.zeros((2, len(STRANGE)), dtype=np.int64), exact())
    for share in (best, by_count):
        assert np.isnan(share.estimate[0])
        assert (share.low[0], share.high[0]) == (0.0, 1.0)
    assert np.isnan(mixes.estimate).all()
    assert (mixes.low == 0.0).all()
    assert (mixes.high == 1.0).all()


def test_a_class_without_id_rows_is_not_known(rng):
    known = np.stack([rng.multinomial(600, p) for p in CLASSES])
    known[2] = 0
    pair = laws(known, rng.multinomial(600, STRANGE), 1.0)
    counts = rng.multinomial(800, 0.95 * np.array([0.5, 0.5, 0.0]) @ CLASSES + 0.05 * STRANGE, size=3)
    best, _, mixes = measure(counts, pair)
    assert np.isfinite(best.estimate).all()
    assert np.isnan(mixes.estimate[:, 2]).all()
    assert mixes.estimate[:, :2].sum(axis=1) == pytest.approx(1.0)


def coverage(pi, n, m, n_ood, *, runs, seed, prior=1.0):
    """Count how often intervals hold the OOD share (two ways) and the class shares; reference and class mix are drawn anew for every window."""
    rng = np.random.default_rng(seed)
    hits = np.zeros(3)
    for _ in range(runs):
        known = np.stack([rng.multinomial(int(m * q), p) for q, p in zip(MIX, CLASSES, strict=True)])
        pair = laws(known, rng.multinomial(n_ood, (1 - prior) * MIX @ CLASSES + prior * STRANGE), prior)
        mix = rng.dirichlet(np.ones(3))
        counts = rng.multinomial(n, (1 - pi) * mix @ CLASSES + pi * STRANGE, size=1)
        best, by_count, mixes = measure(counts, pair, Interval(prior, prior, prior, 0.95))
        hits[:2] += [s.low[0] <= pi <= s.high[0] for s in (best, by_count)]
        hits[2] += np.mean((mixes.low[0] <= mix) & (mix <= mixes.high[0]))
    return hits / runs


def test_coverage_in_any_class_mix():
    """Nominal 0.95; 0.91 in 300 runs would be 3.2 standard errors below."""
    assert coverage(0.05, 600, 2000, 800, runs=300, seed=3).min() > 0.91


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


def test_the_test_of_the_mix_has_its_level_and_finds_a_change():
    """OOD inputs, whose accepted answers are mostly the second class, are no other mix."""
    rng = np.random.default_rng(11)
    rejected = {"same": 0, "moved": 0}
    for _ in range(300):
        known = np.stack([rng.multinomial(int(1500 * q), p) for q, p in zip(MIX, CLASSES, strict=True)])
        pair = laws(known, rng.multinomial(600, STRANGE), 1.0)
        for name, mix in (("same", MIX), ("moved", np.array([0.4, 0.4, 0.2]))):
            counts = rng.multinomial(1000, 0.8 * mix @ CLASSES + 0.2 * STRANGE, size=1)
            share = measure(counts, pair)[0]
            rejected[name] += unchanged(labels(counts)[0], pair[1], share, 0.95, None) < 0.05
    assert rejected["same"] / 300 < 0.09
    assert rejected["moved"] / 300 > 0.8


def test_coverage_with_the_traffic_of_the_fit_as_the_second_sample():
    """Rows the ratio has seen mislead the likelihood at pi = 0, where it alone covers 89 % of 95: the counts are heard, too.

    Windows of one reference err together, so 25 references of 400 ID rows leave a margin of four points below the nominal level.
    """
    world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 3.0]])
    covered = {0.0: [], 0.2: []}
    for seed in range(25):
        X, y = world.sample_id(1600, random_state=seed)
        model = POSCOD(ratio=CorrectedSigmoid("paper"), tpr_min=0.9, class_mix="labeled", random_state=seed)
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
