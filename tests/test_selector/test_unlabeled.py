from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import norm

from poscod.exceptions import InvalidInputError
from poscod.metrics import aurc, auroc, ausrt, binomial_interval
from poscod.ratio import estimate_prior
from poscod.selector import tpr_threshold, unlabeled_ausrt, unlabeled_fpr, unlabeled_scod_curve
from strategies_for_hypothesis import samples

Z = norm.ppf(0.975)


@given(
    m=st.integers(1, 500), n_id=st.integers(0, 400), n_ood=st.integers(1, 400), data=st.data(), repeat=st.integers(1, 3)
)
def test_identity_is_exact_when_the_mixture_holds_the_same_rates(m, n_id, n_ood, data, repeat):
    """A mixture with exactly T of its ID rows and F of its OOD rows accepted gives back F."""
    k, j = data.draw(st.integers(0, m)), data.draw(st.integers(0, n_ood))
    fpr = unlabeled_fpr(k * repeat, m * repeat, k + j, m + n_ood, n_ood / (m + n_ood))
    assert fpr.unclipped == pytest.approx(j / n_ood, abs=1e-9)
    assert fpr.low <= j / n_ood + 1e-9
    assert fpr.high >= j / n_ood - 1e-9


@given(k=st.integers(1, 999), j=st.integers(1, 1999), pi=st.floats(0.01, 1.0), level=st.sampled_from([0.5, 0.9, 0.95]))
def test_known_prior_gives_the_delta_method(k, j, pi, level):
    t, a, m, n = k / 1000, j / 2000, 1000, 2000
    fpr = unlabeled_fpr(k, m, j, n, pi, level=level)
    variance = (a * (1 - a) / n + (1 - pi) ** 2 * t * (1 - t) / m) / pi**2
    assert fpr.standard_error == pytest.approx(np.sqrt(variance))
    assert fpr.unclipped == pytest.approx(t - (t - a) / pi)
    half = norm.ppf(0.5 + level / 2) * np.sqrt(variance)
    low, high = fpr.unclipped - half, fpr.unclipped + half
    if low <= 1 and high >= 0:  # else pi contradicts the counts
        assert fpr.low == pytest.approx(max(0.0, low), abs=1e-9)
        assert fpr.high == pytest.approx(min(1.0, high), abs=1e-9)
    assert fpr.informative == (0 < low <= 1 or 0 <= high < 1)
    assert np.isnan(fpr.estimate) != fpr.informative
    assert bool(fpr.reason) != fpr.informative


@given(
    t=st.floats(0.05, 1.0), a=st.floats(0.0, 1.0), pi=st.floats(0.05, 1.0), se=st.floats(0.0, 0.3), level=st.just(0.95)
)
def test_interval_holds_what_the_test_does_not_reject(t, a, pi, se, level):
    """Against the definition: the values F with |A - (1 - pi) T - pi F| within z standard errors, on a grid."""
    m, n = 800, 900
    k, j = round(t * m), round(a * n)
    assume(0 < k < m)
    assume(0 < j < n)
    fpr = unlabeled_fpr(k, m, j, n, pi, pi_variance=se**2, level=level)
    t, a = k / m, j / n
    f = np.linspace(0.0, 1.0, 2001)
    noise = a * (1 - a) / n + (1 - pi) ** 2 * t * (1 - t) / m
    kept = (a - (1 - pi) * t - pi * f) ** 2 <= Z**2 * (noise + (t - f) ** 2 * se**2)
    if pi > Z * se and kept.any():  # else the set is unbounded and not an interval
        assert fpr.low == pytest.approx(f[kept].min(), abs=6e-4)
        assert fpr.high == pytest.approx(f[kept].max(), abs=6e-4)


def test_uncertain_prior_widens_and_may_be_lopsided():
    counts = (9500, 10_000, 40_000, 50_000)
    known = unlabeled_fpr(*counts, 0.2)
    vague = unlabeled_fpr(*counts, 0.2, pi_variance=0.02**2)
    assert vague.unclipped == known.unclipped == pytest.approx(0.2)
    assert vague.low < known.low
    assert vague.high > known.high
    assert vague.standard_error == pytest.approx(np.hypot(known.standard_error, 0.15 / 0.04 * 0.02))
    same = unlabeled_fpr(*counts, 0.2, pi_interval=(0.2 - Z * 0.02, 0.2 + Z * 0.02))
    assert same.low == pytest.approx(vague.low)
    assert same.high == pytest.approx(vague.high)
    above = unlabeled_fpr(*counts, 0.2, pi_interval=(0.2, 0.3))
    assert above.low == pytest.approx(known.low)
    assert above.high > known.high


def test_ends_of_the_prior_give_the_ends_of_the_fpr():
    """With endless rows only pi is uncertain, and F at the ends of its interval is the interval of F."""
    size = 10**12
    fpr = unlabeled_fpr(95 * size, 100 * size, 80 * size, 100 * size, 0.2, pi_interval=(0.17, 0.5))
    assert fpr.low == pytest.approx(0.95 - 0.15 / 0.17, abs=1e-4)
    assert fpr.high == pytest.approx(0.95 - 0.15 / 0.5, abs=1e-4)


def test_prior_that_may_be_zero_leaves_the_lower_end_open():
    fpr = unlabeled_fpr(9500, 10_000, 40_000, 50_000, 0.2, pi_interval=(0.0, 0.3))
    assert fpr.low == 0.0
    assert 0.2 < fpr.high < 1.0
    assert fpr.informative
    nothing = unlabeled_fpr(9500, 10_000, 47_500, 50_000, 0.2, pi_interval=(0.0, 0.3))
    assert (nothing.low, nothing.high, nothing.informative) == (0.0, 1.0, False)


def test_a_rule_that_prefers_ood_is_seen():
    """F > T shows as A > T; then A is no upper bound of F, as documented."""
    fpr = unlabeled_fpr(500, 1000, 6200, 10_000, 0.4, pi_variance=0.01**2)
    assert fpr.estimate == pytest.approx(0.8)
    assert fpr.low > 0.62
    assert fpr.upper_any_prior == 1.0  # the bound by A holds for rules that prefer ID, and this one does not


def test_upper_bound_for_every_prior_is_exact():
    fpr = unlabeled_fpr(950, 1000, 800, 1000, 0.2, level=0.9)
    assert fpr.upper_any_prior == binomial_interval(800, 1000, level=0.9, side="upper").high


@given(t=st.floats(0.0, 1.0), f=st.floats(0.0, 1.0), pi=st.floats(0.01, 0.99))
def test_acceptance_bounds_the_fpr_iff_the_rule_prefers_id(t, f, pi):
    a = (1 - pi) * t + pi * f
    if abs(t - f) > 1e-9:
        assert (f <= a) == (f <= t) == (a <= t)


def test_refusals_are_sentences():
    small = unlabeled_fpr(950, 1000, 948, 1000, 0.01)
    assert not small.informative
    assert np.isnan(small.estimate)
    assert (small.low, small.high) == (0.0, 1.0)
    assert small.reason == "pi = 0.01 is too small for 1000 ID and 1000 unlabeled rows to say anything about the FPR."
    zero = unlabeled_fpr(950, 1000, 948, 1000, 0.0)
    assert not zero.informative
    assert np.isnan(zero.unclipped)
    wrong = unlabeled_fpr(950, 1000, 500, 1000, 0.1)
    assert wrong.reason.startswith("pi = 0.1 contradicts TPR = 0.95 and the share 0.5 of unlabeled rows accepted")
    assert wrong.unclipped == pytest.approx(-3.55)


@given(arrays=samples(), alpha=st.sampled_from([0.0, 0.3, 0.8, 1.0]))
def test_curve_is_the_labeled_one_when_the_mixture_holds_the_same_rows(arrays, alpha):
    """ID sample + OOD sample as the mixture: then A = (1 - pi) T + pi F holds exactly at every threshold."""
    score_id, loss_id, score_ood = arrays
    pi = len(score_ood) / (len(score_id) + len(score_ood))
    targets = np.array([0.0, 0.07, 0.5, 0.95, 1.0])
    curve = unlabeled_scod_curve(score_id, loss_id, np.append(score_id, score_ood), pi, alpha=alpha, tpr=targets)
    for i, t in enumerate(targets):
        if t == 0.0:
            assert (curve.threshold[i], curve.tpr[i], curve.fpr[i], curve.risk[i]) == (-np.inf, 0.0, 0.0, 0.0)
            assert np.isnan(curve.selective_risk[i])
            continue
        threshold = tpr_threshold(score_id, t).threshold
        fpr, selective = np.mean(score_ood <= threshold), loss_id[score_id <= threshold].mean()
        assert curve.threshold[i] == threshold
        assert curve.tpr[i] == np.mean(score_id <= threshold)
        assert curve.selective_risk[i] == pytest.approx(selective)
        assert curve.fpr_low[i] <= fpr + 1e-9
        assert curve.fpr_high[i] >= fpr - 1e-9
        risk = selective if alpha == 0 else fpr if alpha == 1 else (1 - alpha) * selective + alpha * fpr
        assert curve.risk_low[i] <= risk + 1e-9
        assert curve.risk_high[i] >= risk - 1e-9
        if curve.informative[i]:
            assert curve.fpr[i] == pytest.approx(fpr, abs=1e-9)
            assert curve.risk[i] == pytest.approx(risk, abs=1e-9)
        else:
            assert np.isnan(curve.fpr[i])
            assert np.isnan(curve.risk[i]) == (alpha > 0)


def test_curve_agrees_with_single_points(rng):
    score, loss = rng.normal(size=900), (rng.random(900) < 0.1).astype(float)
    mixture = np.append(rng.normal(size=800), rng.normal(2.0, 1.0, 400))
    curve = unlabeled_scod_curve(score, loss, mixture, 1 / 3, alpha=0.3, pi_interval=(0.29, 0.4), level=0.9)
    assert len(curve.tpr_min) == 101
    for i in (1, 50, 80, 95, 100):
        accepted = np.sum(score <= curve.threshold[i]), np.sum(mixture <= curve.threshold[i])
        point = unlabeled_fpr(int(accepted[0]), 900, int(accepted[1]), 1200, 1 / 3, pi_interval=(0.29, 0.4), level=0.9)
        got = curve.fpr[i], curve.fpr_low[i], curve.fpr_high[i], curve.informative[i]
        assert got == pytest.approx((point.estimate, point.low, point.high, point.informative), nan_ok=True)
    # With alpha = 0 only the accepted losses matter: the plain normal interval of a mean.
    plain = unlabeled_scod_curve(score, loss, mixture, 0.3, alpha=0.0, tpr=[0.8])
    kept = loss[score <= plain.threshold[0]]
    assert plain.risk[0] == pytest.approx(kept.mean())
    assert plain.risk_high[0] - plain.risk[0] == pytest.approx(Z * kept.std() / np.sqrt(len(kept)))


def test_no_loss_seen_is_not_no_risk():
    curve = unlabeled_scod_curve(np.arange(100), np.r_[np.zeros(99), 1.0], np.arange(100), 0.5, alpha=0.0, tpr=[0.5])
    assert curve.risk[0] == 0.0
    assert curve.risk_high[0] > 0.01


def test_curve_without_ood_share_refuses_everywhere():
    score = np.arange(50.0)
    curve = unlabeled_scod_curve(score, np.zeros(50), score, 0.0, tpr=[0.5, 0.9])
    assert not curve.informative.any()
    assert np.isnan(curve.risk).all()
    assert (curve.risk_high >= 0.5).all()


@given(arrays=samples(max_rows=30), alpha=st.sampled_from([0.0, 0.25, 1.0]))
def test_area_is_the_labeled_one_when_the_mixture_holds_the_same_rows(arrays, alpha):
    score_id, loss_id, score_ood = arrays
    pi = len(score_ood) / (len(score_id) + len(score_ood))
    mixture = np.append(score_id, score_ood)
    area = unlabeled_ausrt(score_id, loss_id, mixture, pi, alpha=alpha, n_resamples=2, random_state=0)
    labeled = (1 - alpha) * aurc(score_id, loss_id, area="trapezoid") + alpha * (1 - auroc(score_id, score_ood))
    assert area.estimate == pytest.approx(labeled, abs=1e-9)


def test_area_is_that_of_the_raw_curve(rng):
    """Up to the strip of width 1/m, and clearly not the area of the envelope."""
    score, loss, ood = rng.normal(size=3000), (rng.random(3000) < 0.2).astype(float), rng.normal(1.0, 1.0, 2000)
    area = unlabeled_ausrt(score, loss, np.append(score, ood), 0.4, alpha=0.3, n_resamples=2, random_state=0)
    assert area.estimate == pytest.approx(ausrt(score, loss, ood, alpha=0.3, envelope=False), abs=1 / 3000)
    assert abs(area.estimate - ausrt(score, loss, ood, alpha=0.3)) > 2 / 3000


def test_area_takes_the_prior_as_a_function(rng):
    score, loss = rng.normal(size=1500), (rng.random(1500) < 0.1).astype(float)
    mixture = np.append(rng.normal(size=1000), rng.normal(4.0, 1.0, 500))
    calls = []

    def prior(*arrays):
        calls.append([len(array) for array in arrays])
        return estimate_prior(*arrays)

    area = unlabeled_ausrt(score, loss, mixture, prior, n_resamples=30, random_state=0)
    assert calls == [[1500, 1500]] * 31
    fixed = unlabeled_ausrt(score, loss, mixture, estimate_prior(score, mixture), n_resamples=30, random_state=0)
    assert area.estimate == fixed.estimate
    assert area.low < area.estimate < area.high


def test_area_carries_the_uncertainty_of_the_prior(rng):
    score, loss = rng.normal(size=800), (rng.random(800) < 0.1).astype(float)
    mixture = np.append(rng.normal(size=600), rng.normal(1.5, 1.0, 200))
    width = []
    for variance in (None, 0.02**2, 0.05**2):
        area = unlabeled_ausrt(score, loss, mixture, 0.25, pi_variance=variance, n_resamples=400, random_state=1)
        width.append(area.high - area.low)
    assert width[0] < width[1] < width[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: unlabeled_fpr(3, 2, 1, 2, 0.5), "n_accepted_id must be at most the number of rows"),
        (lambda: unlabeled_fpr(1, 2, 3, 2, 0.5), "n_accepted_unlabeled must be at most"),
        (lambda: unlabeled_fpr(0, 0, 1, 2, 0.5), "n_id must be a whole number >= 1"),
        (lambda: unlabeled_fpr(1, 2, 1, 2, 1.5), "pi must be"),
        (lambda: unlabeled_fpr(1, 2, 1, 2, 0.5, level=1.0), "level must be"),
        (lambda: unlabeled_fpr(1, 2, 1, 2, 0.5, pi_variance=-1.0), "pi_variance must be"),
        (lambda: unlabeled_fpr(1, 2, 1, 2, 0.5, pi_variance=0.1, pi_interval=(0, 1)), "must not both"),
        (lambda: unlabeled_fpr(1, 2, 1, 2, 0.5, pi_interval=(0.6, 1)), "around pi = 0.5"),
        (lambda: unlabeled_fpr(1, 2, 1, 2, 0.5, pi_interval=(0.1, 0.5, 1)), "a pair of numbers"),
        (lambda: unlabeled_scod_curve([], [], [1.0], 0.5), "must have rows, got 0 ID and 1"),
        (lambda: unlabeled_scod_curve([1.0], [0.0], [1.0], 0.5, tpr=[1.5]), r"tpr must hold numbers in \[0, 1\]"),
        (lambda: unlabeled_ausrt([1.0], [0.0], [1.0], lambda *_: 0.5, pi_variance=0.1), "where pi is a function"),
        (lambda: unlabeled_ausrt([1.0], [0.0], [1.0], 0.5, n_resamples=0), "n_resamples must be"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
