from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from poscod.exceptions import InvalidInputError
from poscod.selector import accept_probability, tpr_threshold
from strategies_for_hypothesis import scores


@given(score=st.lists(scores, min_size=1, max_size=15), hundredths=st.integers(1, 100))
def test_smallest_threshold_that_reaches_the_share(score, hundredths):
    """Against exact arithmetic: share of rows accepted as a fraction, target as a decimal."""
    target = Fraction(hundredths, 100)
    result = tpr_threshold(score, hundredths / 100)
    share = lambda c: Fraction(sum(s <= c for s in score), len(score))  # noqa: E731
    assert result.threshold in score
    assert share(result.threshold) >= target
    assert all(share(c) < target for c in score if c < result.threshold)
    assert result.tpr == pytest.approx(float(share(result.threshold)))


@given(score=st.lists(scores, min_size=1, max_size=15), target=st.sampled_from([0.05, 0.31, 0.5, 0.95, 1.0]))
def test_randomised_rule_hits_the_share_exactly(score, target):
    result = tpr_threshold(score, target)
    assert 0 < result.tau <= 1
    assert accept_probability(score, result.threshold, result.tau).mean() == pytest.approx(target, abs=1e-12)


@given(data=st.data(), target=st.sampled_from([0.05, 0.31, 0.5, 0.95, 1.0]))
def test_weights_are_repetitions(data, target):
    score = np.array(data.draw(st.lists(scores, min_size=1, max_size=10)))
    weight = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(score), max_size=len(score))))
    weight[0] += 1
    a, b = tpr_threshold(score, target, weight=weight), tpr_threshold(np.repeat(score, weight), target)
    assert a.threshold == b.threshold
    assert a.tau == pytest.approx(b.tau)
    assert a.tpr == pytest.approx(b.tpr)
    assert tpr_threshold(score, target, weight=weight * 0.1).threshold == b.threshold


def test_ties_are_accepted_at_the_stated_rate():
    score = np.repeat([0.0, 1.0, 2.0], [2000, 6000, 2000])
    result = tpr_threshold(score, 0.5)
    assert result.tau == pytest.approx(0.5)
    taken = accept_probability(score, result.threshold, result.tau)
    assert (taken[:2000] == 1.0).all()
    assert not taken[8000:].any()
    assert taken.mean() == pytest.approx(0.5)


def test_deterministic_by_default():
    assert accept_probability([0.1, 0.2, 0.2, 0.3], 0.2).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert accept_probability([0.1, 0.2], 0.2, tau=0.0).tolist() == [1.0, 0.0]


def test_full_tpr_keeps_the_smallest_mass():
    result = tpr_threshold([0.0, 1.0, 2.0], 1.0, weight=[1.0, 1e-30, 0.0])
    assert (result.threshold, result.tau) == (1.0, 1.0)


def test_infinite_scores():
    assert tpr_threshold([0.0, np.inf, np.inf], 0.9).threshold == np.inf
    assert tpr_threshold([-np.inf, 0.0], 0.5).threshold == -np.inf


@pytest.mark.parametrize(("m", "tpr_min", "documented"), [(100, 0.95, 0.38), (200, 0.9, None), (20, 0.95, None)])
def test_plain_quantile_misses_its_promise_in_most_samples(m, tpr_min, documented):
    """TPR on fresh data is Beta(k, m + 1 - k): counted on 4000 uniform samples, where TPR = threshold, within 4 sigma."""
    rng = np.random.default_rng(0)
    met = np.mean([tpr_threshold(rng.random(m), tpr_min).threshold >= tpr_min for _ in range(4000)])
    k = round(m * tpr_min)
    exact = stats.beta.sf(tpr_min, k, m + 1 - k)
    assert met == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000))
    assert exact < 0.5
    if documented:
        assert exact == pytest.approx(documented, abs=0.005)


def test_weights_of_many_rows_lose_none():
    score = np.arange(100_000.0)
    result = tpr_threshold(score, 0.95, weight=np.full(100_000, 0.1))
    assert (result.threshold, result.tau) == (94_999.0, pytest.approx(1.0, abs=1e-6))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tpr_threshold([], 0.5), "at least one ID score"),
        (lambda: tpr_threshold([1.0], 0.0), r"tpr_min must be a number in \(0, 1\]"),
        (lambda: tpr_threshold([np.nan], 0.5), "NaN"),
        (lambda: tpr_threshold([1.0], 0.5, weight=[0.0]), "positive"),
        (lambda: accept_probability([1.0], 0.5, tau=2.0), "tau must be"),
        (
            lambda: accept_probability([0.1, 0.2, 0.3], tpr_threshold([0.1, 0.2, 0.3], 0.6)),
            "threshold must be a number",
        ),
        (lambda: accept_probability([0.1], float("nan")), "threshold must be a number"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
