"""Intervals: exactness of the binomial one, coverage of the bootstrap by counting."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.exceptions import UndefinedMetricWarning

from poscod.exceptions import InvalidInputError
from poscod.metrics import METRICS, DegenerateIntervalWarning, auroc, ausrt, binomial_interval, bootstrap, compare
from poscod.metrics._intervals import mean_loss_interval


@given(n=st.integers(1, 200), data=st.data(), level=st.sampled_from([0.5, 0.9, 0.99]))
def test_binomial_bounds_solve_their_equations(n, data, level):
    """At the lower bound, k or more successes have probability (1 - level) / 2; at the upper, k or fewer."""
    k = data.draw(st.integers(0, n))
    interval = binomial_interval(k, n, level=level)
    if k > 0:
        assert stats.binom.sf(k - 1, n, interval.low) == pytest.approx((1 - level) / 2, rel=1e-6)
    else:
        assert interval.low == 0.0
    if k < n:
        assert stats.binom.cdf(k, n, interval.high) == pytest.approx((1 - level) / 2, rel=1e-6)
    else:
        assert interval.high == 1.0


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_one_sided_bounds_spend_the_whole_error(side):
    one, two = binomial_interval(7, 50, level=0.95, side=side), binomial_interval(7, 50, level=0.9)
    assert (one.low, one.high) == pytest.approx((two.low, 1.0) if side == "lower" else (0.0, two.high), rel=1e-12)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.95])
def test_binomial_coverage_is_at_least_nominal(p):
    """Exact coverage, by summing over all outcomes."""
    n = 40
    covered = sum(
        stats.binom.pmf(k, n, p) for k in range(n + 1) if (i := binomial_interval(k, n, level=0.9)).low <= p <= i.high
    )
    assert covered >= 0.9


def test_binomial_edges():
    empty = binomial_interval(0, 0)
    assert np.isnan(empty.estimate)
    assert (empty.low, empty.high) == (0.0, 1.0)
    for bad, message in [((3, 2), "at most n"), ((-1, 2), "successes must be a whole number"), ((1, 2.5), "n must be")]:
        with pytest.raises(InvalidInputError, match=message):
            binomial_interval(*bad)
    with pytest.raises(InvalidInputError, match="side must be one of"):
        binomial_interval(1, 2, side="left")


@pytest.mark.parametrize("name", sorted(METRICS))
def test_bootstrap_equals_resampling_rows(name, rng):
    """Weights stand for repeated rows: one resample by hand gives the same value."""
    arrays = {"score_id": rng.normal(size=40), "loss_id": rng.random(40) < 0.3, "score_ood": rng.normal(1, 1, 30)}
    inputs = [arrays[key] for key in METRICS[name].inputs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateIntervalWarning)  # one resample has no spread
        interval = bootstrap(name, *inputs, n_resamples=1, random_state=5)
    draw = np.random.RandomState(5)
    rows = {"id": draw.randint(40, size=40)}
    if "score_ood" in METRICS[name].inputs:
        rows["ood"] = draw.randint(30, size=30)
    resampled = [arrays[key][rows[key.split("_")[1]]] for key in METRICS[name].inputs]
    assert interval.low == interval.high == pytest.approx(METRICS[name].function(*resampled), abs=1e-12)
    assert interval.estimate == METRICS[name].function(*inputs)


def test_bootstrap_covers_the_true_auroc():
    """Counted over 200 samples with known AUROC: 90 % intervals; 3-sigma band of the count is 165 ... 193."""
    rng = np.random.default_rng(1)
    truth = stats.norm.cdf(1.2 / np.sqrt(2))
    hits = 0
    for i in range(200):
        interval = bootstrap(
            auroc, rng.normal(size=120), rng.normal(1.2, 1, 80), n_resamples=300, level=0.9, random_state=i
        )
        hits += interval.low <= truth <= interval.high
    assert 165 <= hits <= 193


def test_comparison_is_paired():
    """Two noisy copies of one score: their difference is far better known than each area."""
    rng = np.random.default_rng(3)
    base_id, base_ood = rng.normal(size=400), rng.normal(0.7, 1, 400)
    noisy = lambda x, sd: x + rng.normal(0, sd, len(x))  # noqa: E731
    good, bad = (noisy(base_id, 0.1), noisy(base_ood, 0.1)), (noisy(base_id, 1.0), noisy(base_ood, 1.0))
    result = compare("auroc", good, bad, n_resamples=400, random_state=0)
    single = bootstrap("auroc", *good, n_resamples=400, random_state=0)
    assert result.difference == pytest.approx(auroc(*good) - auroc(*bad))
    assert result.low > 0
    assert result.p_value < 0.02
    assert result.high - result.low < single.high - single.low


def test_comparison_of_a_score_with_itself_finds_nothing(rng):
    sample = (rng.normal(size=50), rng.random(50) < 0.2, rng.normal(1, 1, 40))
    result = compare(ausrt, sample, sample, n_resamples=50, random_state=0, alpha=0.3)
    assert result.difference == result.low == result.high == 0.0
    assert result.p_value == 1.0


def test_null_p_values_are_not_too_small():
    """Two scores of equal quality: p below 0.1 in about a tenth of 150 samples (3-sigma upper end 26)."""
    rng = np.random.default_rng(8)
    small = 0
    for i in range(150):
        first, second = ((rng.normal(size=80), rng.normal(1, 1, 80)) for _ in range(2))
        small += compare("auroc", first, second, n_resamples=150, random_state=i).p_value < 0.1
    assert 3 <= small <= 26


def namesake(score_id, score_ood):
    return 42.0


namesake.__name__ = "auroc"


@pytest.mark.parametrize(
    ("name", "arrays"), [("aurc", (np.arange(50.0), np.zeros(50))), ("auroc", ([1.0, 2.0], [3.0]))]
)
def test_an_interval_without_width_warns(name, arrays):
    with pytest.warns(DegenerateIntervalWarning, match="does not mean that the value is certain"):
        interval = bootstrap(name, *arrays, n_resamples=20, random_state=0)
    assert interval.low == interval.high


def test_undefined_metrics_stay_undefined():
    with pytest.warns(UndefinedMetricWarning):
        interval = bootstrap("auroc", [0.1, 0.2], [], n_resamples=10)
    assert np.isnan([interval.estimate, interval.low, interval.high]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap("auc", [1], [2]), "metric must be one of"),
        (lambda: bootstrap(np.mean, [1], [2]), "metric must be one of"),
        (lambda: bootstrap(namesake, [1], [2]), "metric must be one of"),
        (lambda: bootstrap("ausrt", [1], [0], [2], aplha=0.3), "aplha is not a parameter .*: use alpha, envelope"),
        (lambda: bootstrap("auroc", [1], [2], weight_id=[1.0]), "weight_id is not a parameter .*: use none"),
        (lambda: bootstrap("ausrt", [1], [2]), "ausrt takes the arrays score_id, loss_id, score_ood, got 2"),
        (lambda: bootstrap("auroc", [1], [2], n_resamples=0), "n_resamples must be a whole number >= 1"),
        (lambda: bootstrap("auroc", [1], [2], level=1.0), "level must be a number"),
        (lambda: compare("auroc", ([1], [2]), ([1, 2], [2])), "same rows"),
    ],
)
def test_bad_calls_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize(
    ("values", "probability", "n"),
    [
        ((0.0, 1.0, 10.0), (0.95, 0.04, 0.01), 100),  # the rare large loss is missing in a third of the samples
        ((0.0, 0.5, 2.0, 3.0), (0.3, 0.4, 0.2, 0.1), 40),
        (tuple(np.linspace(0.0, 7.0, 50)), tuple(np.geomspace(1.0, 0.01, 50) / np.geomspace(1.0, 0.01, 50).sum()), 60),
    ],
)
def test_mean_loss_interval_covers_at_any_size(rng, values, probability, n):
    """Nominal 95 %: of 2,000 samples fewer than 93.5 % would cover with probability below 1e-3 if 95 % did."""
    values, probability = np.array(values), np.array(probability)
    truth = float(values @ probability)
    draws = rng.choice(values, p=probability, size=(2000, n))
    found = [mean_loss_interval(row, level=0.95, values=values) for row in draws]
    assert np.mean([i.low <= truth <= i.high for i in found]) >= 0.935
    assert all(i.low <= i.estimate <= i.high <= values.max() + 1e-12 for i in found)


@given(k=st.integers(0, 30), level=st.sampled_from([0.5, 0.9, 0.99]))
def test_mean_loss_interval_of_zero_one_loss_is_binomial(k, level):
    loss = np.repeat([1.0, 0.0], [k, 30 - k])
    assert mean_loss_interval(loss, level=level, values=np.array([0.0, 1.0])) == binomial_interval(k, 30, level=level)


def test_no_loss_seen_is_not_no_loss():
    """Thirty rows without a loss do not say that the mean is 0, whatever the loss."""
    assert mean_loss_interval(np.zeros(30), level=0.95, values=np.array([0.0, 2.0, 5.0])).high > 0.5
    assert np.isnan(mean_loss_interval(np.zeros(0), level=0.95, values=np.array([0.0, 3.0])).estimate)
    assert mean_loss_interval(np.zeros(0), level=0.95, values=np.array([0.0, 3.0]))[1:3] == (0.0, 3.0)
