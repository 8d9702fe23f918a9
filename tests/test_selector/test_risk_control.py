from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.selector import RISK_CONTROL, fpr_bound, risk_controlled_threshold, selective_risk_bound
from poscod.selector._risk_control import _starts, risk_p_values
from strategies_for_hypothesis import scores


def p_value(losses: np.ndarray, risk: float, loss_max: float | None) -> float:
    """The definition, one region at a time."""
    n, scale = len(losses), loss_max or 1.0
    if n == 0:
        return 1.0
    total = losses.sum() / scale
    r = risk / scale
    tail = stats.binom.cdf(math.ceil(round(total, 9)), n, r)
    if loss_max is None:
        return float(tail)
    a = total / n
    kl = (a * math.log(a / r) if a else 0.0) + ((1 - a) * math.log((1 - a) / (1 - r)) if a < 1 else 0.0)
    return min(1.0, math.e * tail, math.exp(-n * kl) if a < r else 1.0)


def slow_fixed_sequence(score, loss, risk, delta, loss_max, start):
    """Accepted rows of the loosest region that a walk from `start` reaches, as a mask; None if it fails at once."""
    values = [*sorted(set(score))[1:], None]  # None stands for "everything"
    inside = lambda v: np.ones(len(score), bool) if v is None else score < v  # noqa: E731
    regions = [inside(v) for v in values]
    allowed = [i for i, region in enumerate(regions) if region.sum() <= start]
    best = None
    for region in regions[max(allowed, default=0) :]:
        if p_value(loss[region], risk, loss_max) > delta:
            break
        best = region
    return best


@given(
    data=st.data(),
    m=st.integers(1, 25),
    risk=st.sampled_from([0.2, 0.45, 0.7]),
    delta=st.sampled_from([0.05, 0.3]),
    loss_max=st.sampled_from([None, 1.0]),
)
def test_fixed_sequence_equals_slow_definition(data, m, risk, delta, loss_max):
    score = np.array(data.draw(st.lists(scores, min_size=m, max_size=m)))
    values = [0.0, 0.0, 0.0, 1.0] if loss_max is None else [0.0, 0.0, 0.25, 1.0]
    loss = np.array(data.draw(st.lists(st.sampled_from(values), min_size=m, max_size=m)))
    start = data.draw(st.integers(1, m))
    expected = slow_fixed_sequence(score, loss, risk, delta, loss_max, start)
    if expected is None:
        with pytest.raises(
            InfeasibleProblemError, match=r"the smallest that is possible is about|nor is any larger one"
        ):
            risk_controlled_threshold(score, loss, risk, delta=delta, loss_max=loss_max, start=start)
        return
    chosen = risk_controlled_threshold(score, loss, risk, delta=delta, loss_max=loss_max, start=start)
    np.testing.assert_array_equal(np.asarray(score) <= chosen.threshold, expected)
    assert chosen.tau == 1.0
    assert chosen.n_accepted == expected.sum()
    assert chosen.tpr == pytest.approx(expected.mean())
    assert chosen.selective_risk == pytest.approx(loss[expected].mean())
    bound = selective_risk_bound(loss[expected], delta=delta, loss_max=loss_max)
    assert chosen.risk_bound == pytest.approx(bound, abs=1e-9)
    assert chosen.risk_bound <= risk


def slow_sgr(score, loss, risk, delta):
    m = len(score)
    ordered = np.sort(score)
    region = lambda z: np.ones(m, bool) if z == m else score < ordered[z]  # noqa: E731
    looks = max(1, math.ceil(math.log2(m)))
    low, high, passed = 1, m, []
    for _ in range(looks):
        z = math.ceil((low + high) / 2)
        if p_value(loss[region(z)], risk, None) <= delta / looks:
            passed.append(region(z))
            low = z
        else:
            high = z
    return max(passed, key=np.sum, default=None)


@pytest.mark.parametrize("seed", range(30))
def test_sgr_equals_slow_definition(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(20, 300))
    score = rng.permutation(m).astype(float)
    loss = (rng.random(m) < 0.4 * score / m).astype(float)
    expected = slow_sgr(score, loss, 0.25, 0.1)
    if expected is None:
        with pytest.raises(InfeasibleProblemError):
            risk_controlled_threshold(score, loss, 0.25, delta=0.1, method="sgr")
        return
    chosen = risk_controlled_threshold(score, loss, 0.25, delta=0.1, method="sgr")
    np.testing.assert_array_equal(score <= chosen.threshold, expected)


def test_sgr_keeps_the_best_not_the_last():
    """The last of the log2(m) tests fails here; the published loop would return the threshold of that failure."""
    m = 64
    loss = np.r_[np.zeros(40), np.ones(24)]
    chosen = risk_controlled_threshold(np.arange(m), loss, 0.3, delta=0.3, method="sgr")
    assert chosen.risk_bound <= 0.3
    looser = np.arange(m) <= chosen.threshold + 1
    assert selective_risk_bound(loss[looser], delta=0.3 / 6) > 0.3


def test_both_methods_are_there():
    assert set(RISK_CONTROL) == {"fixed_sequence", "sgr"}


@given(n=st.integers(1, 80), data=st.data(), delta=st.sampled_from([0.01, 0.1, 0.5]))
def test_bound_inverts_the_test(n, data, delta):
    """The bound is where the p-value crosses delta, for either loss."""
    ones = data.draw(st.integers(0, n))
    part = data.draw(st.sampled_from([0.0, 0.3]))
    loss = np.r_[np.ones(ones), np.full(n - ones, part)]
    for loss_max in [1.0] if part else [None, 1.0]:
        bound = selective_risk_bound(loss, delta=delta, loss_max=loss_max)
        if bound == 1.0:
            assert p_value(loss, 1 - 1e-9, loss_max) > delta * (1 - 1e-6)
            continue
        assert loss.mean() <= bound
        assert p_value(loss, min(bound * (1 + 1e-7), 1 - 1e-12), loss_max) <= delta * (1 + 1e-5)
        assert p_value(loss, bound * (1 - 1e-7), loss_max) >= delta * (1 - 1e-5)
        fast = risk_p_values(np.array([n]), np.array([loss.sum()]), bound, exact=loss_max is None)
        assert fast[0] == pytest.approx(p_value(loss, bound, loss_max), rel=1e-8)


def test_bound_of_right_and_wrong_answers_is_clopper_pearson():
    assert selective_risk_bound(np.repeat([0, 1], [93, 7]), delta=0.1) == pytest.approx(fpr_bound(7, 100, delta=0.1))
    assert selective_risk_bound([], delta=0.1) == 1.0
    assert selective_risk_bound([], loss_max=3.0) == 3.0
    assert selective_risk_bound(np.zeros(20), loss_max=1.0) == pytest.approx(1 - 0.05 ** (1 / 20))


def test_units_of_the_loss_do_not_matter(rng):
    loss = rng.beta(0.3, 3.0, 300)
    assert selective_risk_bound(7 * loss, loss_max=7.0) == pytest.approx(7 * selective_risk_bound(loss, loss_max=1.0))
    score = rng.random(300)
    a = risk_controlled_threshold(score, loss, 0.2, loss_max=1.0)
    b = risk_controlled_threshold(score, 7 * loss, 1.4, loss_max=7.0)
    assert a.threshold == b.threshold
    assert b.risk_bound == pytest.approx(7 * a.risk_bound)


def test_bounded_losses_cost_more_than_right_and_wrong(rng):
    score = rng.random(3000)
    loss = (rng.random(3000) < 0.3 * score**3).astype(float)
    exact = risk_controlled_threshold(score, loss, 0.04)
    bounded = risk_controlled_threshold(score, loss, 0.04, loss_max=1.0)
    assert bounded.tpr < exact.tpr


def test_region_is_everything_below_the_next_score():
    score = np.repeat([0.0, 1.0, 2.0], [80, 15, 5])
    loss = np.repeat([0.0, 1.0, 1.0], [80, 15, 5])
    chosen = risk_controlled_threshold(score, loss, 0.06, start=80)
    assert chosen.threshold == np.nextafter(1.0, 0.0)
    assert chosen.n_accepted == 80
    assert risk_controlled_threshold(score, loss * 0, 0.06).threshold == np.inf


@pytest.mark.parametrize("method", RISK_CONTROL)
def test_saturated_scores(method):
    """Most rows share the smallest score: the strictest region is that group."""
    score = np.r_[np.zeros(90), np.arange(1.0, 11.0)]
    loss = np.r_[np.zeros(90), np.ones(10)]
    chosen = risk_controlled_threshold(score, loss, 0.08, method=method)
    assert chosen.n_accepted >= 90
    assert chosen.threshold < 10.0


@pytest.mark.parametrize("method", RISK_CONTROL)
def test_grid_tests_given_thresholds_only(method):
    score = np.arange(1000) / 1000
    loss = (score > 0.8).astype(float)
    grid = [0.95, 0.5, 0.7, 0.85, 0.5]
    chosen = risk_controlled_threshold(score, loss, 0.1, method=method, grid=grid)
    assert chosen.threshold == 0.85
    assert chosen.n_accepted == 851
    with pytest.raises(InfeasibleProblemError):  # the sequence begins where nothing is accepted
        risk_controlled_threshold(score, loss, 0.1, grid=[-1.0, 0.5])


def test_starts_depend_on_sizes_only():
    assert _starts(2000, 0.05, 0.05) == [500, 1000]
    assert _starts(1000, 0.01, 0.05) == [368, 500]  # 250 rows without a loss do not show a risk below 1 %
    assert _starts(700, 0.01, 0.05) == [350]  # nor do 350 at half of delta
    assert _starts(100, 0.01, 0.05) == [100]
    assert _starts(300, 0.02, 0.05) == [150]


def test_several_starts_share_delta(rng):
    score = rng.random(2000)
    loss = (rng.random(2000) < 0.4 * score**4).astype(float)
    shared = risk_controlled_threshold(score, loss, 0.03, start=[400, 1200])
    singles = []
    for start in (400, 1200):
        try:
            singles.append(risk_controlled_threshold(score, loss, 0.03, delta=0.025, start=start).threshold)
        except InfeasibleProblemError:
            singles.append(-np.inf)
    assert shared.threshold == max(singles)


def test_refusal_names_the_smallest_bound():
    loss = np.tile([0.0, 1.0], 100)
    with pytest.raises(
        InfeasibleProblemError, match=r"at most 0\.1 with probability 0\.9 on these 200 ID rows"
    ) as told:
        risk_controlled_threshold(np.arange(200), loss, 0.1, delta=0.1)
    named_bound_works(told, np.arange(200), loss, delta=0.1)


def named_bound_works(told, score, loss, **options):
    """The bound that a refusal names is one that can be kept, and a much smaller one is not."""
    bound = float(re.search(r"is about ([\d.]+)", str(told.value))[1])
    assert risk_controlled_threshold(score, loss, bound, **options).risk_bound <= bound
    with pytest.raises(InfeasibleProblemError):
        risk_controlled_threshold(score, loss, 0.9 * bound, **options)


def test_a_strict_bound_is_refused_with_one_that_works(rng):
    """A quarter of the rows has hardly an error, half of them has many: a bound that only a quarter can keep is found, and named."""
    score = rng.random(2000)
    loss = (rng.random(2000) < np.where(score < 0.3, 0.002, 0.5)).astype(float)
    assert risk_controlled_threshold(score, loss, 0.03).tpr > 0.25
    with pytest.raises(InfeasibleProblemError) as told:
        risk_controlled_threshold(score, loss, 0.005)
    assert float(re.search(r"is about ([\d.]+)", str(told.value))[1]) <= 0.03
    named_bound_works(told, score, loss)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: selective_risk_bound([0.0, 0.5]), "0 and 1 only, got 0.5: pass loss_max"),
        (lambda: selective_risk_bound([0.0, 2.0], loss_max=1.0), "at most loss_max = 1, got 2"),
        (lambda: selective_risk_bound([-1.0], loss_max=1.0), "at least 0"),
        (lambda: selective_risk_bound([0.0], loss_max=0.0), "loss_max must be"),
        (lambda: selective_risk_bound([0.0], delta=0.0), "delta must be"),
        (lambda: risk_controlled_threshold([1.0], [0.0], 1.0), r"risk_max must be a number in \(0, 1\)"),
        (lambda: risk_controlled_threshold([1.0], [0.0, 1.0], 0.5), "as many rows as score_id"),
        (lambda: risk_controlled_threshold([], [], 0.5), "at least one ID score"),
        (lambda: risk_controlled_threshold([1.0], [0.0], 0.5, method="sgd"), "did you mean 'sgr'"),
        (lambda: risk_controlled_threshold([1.0], [0.0], 0.5, start=2), "from 1 to 1"),
        (lambda: risk_controlled_threshold([1.0], [0.0], 0.5, start=[]), "from 1 to 1"),
        (lambda: risk_controlled_threshold([1.0], [0.0], 0.5, start=0), "whole number >= 1"),
        (lambda: risk_controlled_threshold([1.0], [0.0], 0.5, grid=[]), "at least one threshold"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
