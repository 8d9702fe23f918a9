from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.selector import certified_tpr, fpr_bound, guaranteed_threshold, rows_needed
from strategies_for_hypothesis import scores

SHARES = st.sampled_from([0.05, 0.3, 0.5, 0.8, 0.9, 0.95]) | st.floats(0.01, 0.97)
DELTAS = st.sampled_from([0.5, 0.125, 0.1, 0.05, 0.01, 1e-6]) | st.floats(1e-4, 0.9)


def tail(k: int, m: int, share: float) -> Fraction:
    """P(Bin(m, share) >= k) in exact arithmetic."""
    p = Fraction(share)
    return sum((comb(m, j) * p**j * (1 - p) ** (m - j) for j in range(k, m + 1)), Fraction(0))


def nearly(a: Fraction, b: float) -> bool:
    """Equality up to float rounding: there the float test may fall on either side."""
    return abs(float(a) / b - 1.0) < 1e-13


@given(score=st.lists(scores, min_size=1, max_size=40), share=SHARES, delta=DELTAS)
def test_rank_is_the_smallest_with_the_promised_tail(score, share, delta):
    m = len(score)
    if m < rows_needed(share, delta=delta):
        with pytest.raises(InfeasibleProblemError, match=f"needs at least {rows_needed(share, delta=delta)} .*got {m}"):
            guaranteed_threshold(score, share, delta=delta)
        return
    chosen = guaranteed_threshold(score, share, delta=delta)
    k = chosen.rank
    assert tail(k, m, share) <= delta or nearly(tail(k, m, share), delta)
    assert k == 1 or tail(k - 1, m, share) > delta or nearly(tail(k - 1, m, share), delta)
    assert chosen.confidence == pytest.approx(1.0 - float(tail(k, m, share)), abs=1e-12)
    assert chosen.confidence >= 1.0 - delta - 1e-12
    # The rank-th smallest, ties accepted, nothing random.
    assert chosen.threshold == sorted(score)[k - 1]
    assert chosen.tpr == np.mean(np.array(score) <= chosen.threshold)
    assert chosen.tpr * m >= k - 1e-9
    assert chosen.tau == 1.0


@given(share=SHARES, delta=DELTAS)
def test_rows_needed_is_the_smallest(share, delta):
    m = rows_needed(share, delta=delta)
    power = Fraction(share) ** m
    assert power <= delta or nearly(power, delta)
    assert m == 1 or power / Fraction(share) > delta or nearly(power / Fraction(share), delta)


def test_whole_powers_need_exactly_that_many_rows():
    assert rows_needed(0.5, delta=0.125) == 3
    assert rows_needed(0.9, delta=0.9**7) == 7
    assert guaranteed_threshold([1.0, 2.0, 3.0], 0.5, delta=0.125).rank == 3


@pytest.mark.parametrize(
    ("m", "share", "k"), [(500, 0.95, 484), (2000, 0.95, 1917), (59, 0.95, 59), (299, 0.99, 299), (60, 0.8, 54)]
)
def test_published_ranks(m, share, k):
    assert guaranteed_threshold(np.arange(m), share).rank == k


def test_large_samples_and_tiny_delta_are_quick():
    chosen = guaranteed_threshold(np.arange(1_000_000), 0.95, delta=1e-12)
    assert 0.95 < chosen.tpr < 0.9520
    assert chosen.confidence >= 1.0 - 1e-12


@given(m=st.integers(1, 300), share=SHARES, delta=st.sampled_from([0.01, 0.05, 0.2]))
def test_certificate_is_the_mirror_image(m, share, delta):
    """The rank is the smallest number of accepted rows whose certified TPR reaches the target."""
    if m < rows_needed(share, delta=delta):
        assert certified_tpr(m, m, delta=delta) < share * (1 + 1e-9)
        return
    k = guaranteed_threshold(np.arange(m), share, delta=delta).rank
    assert certified_tpr(k, m, delta=delta) >= share * (1 - 1e-9)
    assert certified_tpr(k - 1, m, delta=delta) <= share * (1 + 1e-9)


@given(n=st.integers(1, 60), data=st.data(), delta=st.sampled_from([0.01, 0.05, 0.3]))
def test_bounds_solve_their_tails(n, data, delta):
    k = data.draw(st.integers(0, n))
    low, high = certified_tpr(k, n, delta=delta), fpr_bound(k, n, delta=delta)
    assert low == (0.0 if k == 0 else pytest.approx(low))
    if k > 0:
        assert float(tail(k, n, low)) == pytest.approx(delta, rel=1e-6)
    if k < n:
        assert 1.0 - float(tail(k + 1, n, high)) == pytest.approx(delta, rel=1e-6)
    else:
        assert high == 1.0
    assert low <= k / n <= high


def test_without_rows_nothing_is_certified():
    assert certified_tpr(0, 0) == 0.0
    assert fpr_bound(0, 0) == 1.0


def test_order_of_rows_and_units_do_not_matter(rng):
    score = rng.normal(size=400)
    chosen = guaranteed_threshold(score, 0.9)
    assert guaranteed_threshold(rng.permutation(score), 0.9) == chosen
    assert guaranteed_threshold(np.exp(score), 0.9).threshold == np.exp(chosen.threshold)


def test_infinite_scores():
    assert guaranteed_threshold(np.r_[np.zeros(10), np.full(10, np.inf)], 0.8).threshold == np.inf
    assert guaranteed_threshold(np.full(20, -np.inf), 0.8).threshold == -np.inf


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: guaranteed_threshold(np.arange(58), 0.95),
            InfeasibleProblemError,
            "at least 59 held-out ID rows, got 58",
        ),
        (lambda: guaranteed_threshold([], 0.5), InfeasibleProblemError, "at least 5 held-out ID rows, got 0"),
        (lambda: rows_needed(1.0), InfeasibleProblemError, "tpr_min = 1 cannot be promised"),
        (lambda: guaranteed_threshold([1.0], 1.0), InfeasibleProblemError, "cannot be promised"),
        (lambda: guaranteed_threshold([1.0], 0.0), InvalidInputError, r"tpr_min must be a number in \(0, 1\]"),
        (lambda: guaranteed_threshold([1.0], 0.5, delta=0.0), InvalidInputError, r"delta must be a number in \(0, 1\)"),
        (lambda: guaranteed_threshold([np.nan], 0.5), InvalidInputError, "NaN"),
        (lambda: certified_tpr(3, 2), InvalidInputError, "at most n"),
        (lambda: certified_tpr(1, 2, delta=1.0), InvalidInputError, "delta must be"),
        (lambda: fpr_bound(1.5, 2), InvalidInputError, "whole number"),
    ],
)
def test_refusals_say_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()
