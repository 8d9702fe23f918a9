from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

from poscod.exceptions import InvalidInputError
from poscod.ratio import PRIORS, estimate_prior, rows_to_notice
from poscod.ratio._prior import acceptance, profile_interval

POINT = ("mean", "bbe", "lcb_grid")
LOWER = ("scott",)


def sample(rng, pi, n=6000, m=5000, shift=6.0):
    k = round(pi * n)
    return rng.normal(size=m), np.r_[rng.normal(size=n - k), shift + rng.normal(size=k)]


def test_mapping_is_complete():
    assert set(PRIORS) == {*POINT, *LOWER}


@pytest.mark.parametrize("method", POINT)
@pytest.mark.parametrize("pi", [0.05, 0.3, 0.8])
def test_point_estimates_find_a_separable_share(rng, method, pi):
    assert estimate_prior(*sample(rng, pi), method) == pytest.approx(pi, abs=0.03)


@pytest.mark.parametrize("method", LOWER)
def test_lower_bounds_lie_below_and_are_not_vacuous(rng, method):
    value = estimate_prior(*sample(rng, 0.3), method)
    assert 0.2 < value < 0.3


@pytest.mark.parametrize("method", sorted(PRIORS))
def test_no_ood_gives_about_zero(rng, method):
    assert estimate_prior(rng.normal(size=5000), rng.normal(size=5000), method) < 0.05


@pytest.mark.parametrize("method", sorted(PRIORS))
def test_identical_samples_give_zero(rng, method):
    s = rng.normal(size=500)
    assert estimate_prior(s, s, method) == 0.0


finite = st.floats(-1e6, 1e6, width=32)


@pytest.mark.parametrize("method", sorted(PRIORS))
@settings(max_examples=40)
@given(
    a=arrays(np.float64, st.integers(1, 30), elements=finite), b=arrays(np.float64, st.integers(1, 30), elements=finite)
)
def test_any_sample_gives_a_share(method, a, b):
    assert 0.0 <= estimate_prior(a, b, method) <= 1.0


@settings(max_examples=20)
@given(scale=st.floats(0.1, 50), shift=st.floats(-100, 100))
def test_estimates_depend_on_order_only(scale, shift):
    s_id, s_u = sample(np.random.default_rng(0), 0.2, n=400, m=300)
    for method in PRIORS:
        # Cubing and scaling keep the order.
        moved = estimate_prior(scale * s_id**3 + shift, scale * s_u**3 + shift, method)
        assert moved == pytest.approx(estimate_prior(s_id, s_u, method), abs=1e-9)


def test_weights_count_rows(rng):
    s_id, s_u = sample(rng, 0.2, n=800, m=700)
    weight = rng.integers(1, 4, size=len(s_u)).astype(float)
    repeated = np.repeat(s_u, weight.astype(int))
    plain, weighted = acceptance(s_id, repeated), acceptance(s_id, s_u, None, weight)
    np.testing.assert_allclose(plain.accepted, weighted.accepted)
    assert weighted.n_unlabeled < len(repeated)


def test_certified_bound_grows_with_rows(rng):
    small, large = (estimate_prior(*sample(rng, 0.1, n=n, m=n), "scott") for n in (500, 20000))
    assert small < large < 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [1.0]), "at least one row, got 0 and 1"),
        (([1.0], [np.nan]), "score_unlabeled must not contain NaN"),
        (([[1.0]], [1.0]), "score_id must be one-dimensional"),
        (([1.0], [1.0], "bbee"), "did you mean 'bbe'"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        estimate_prior(*arguments)


def test_rows_needed_follow_the_inverse_square():
    assert rows_to_notice(0.01) == pytest.approx(100 * rows_to_notice(0.1), rel=0.02)


@pytest.mark.parametrize(("pi", "power", "level", "tpr"), [(0.02, 0.8, 0.05, 0.95), (0.05, 0.6, 0.01, 0.9)])
def test_so_many_rows_notice_a_perfectly_rejected_share(rng, pi, power, level, tpr):
    n, draws = rows_to_notice(pi, power=power, delta=level, tpr=tpr), 40_000
    known = rng.binomial(n, tpr, draws) / n

    def noticed(share):
        accepted = rng.binomial(n, (1 - share) * tpr, draws) / n
        return np.mean((known - accepted) / np.sqrt(2 * tpr * (1 - tpr) / n) > norm.ppf(1 - level))

    assert noticed(pi) == pytest.approx(power, abs=0.03)
    assert noticed(0.0) == pytest.approx(level, rel=0.15)


@pytest.mark.parametrize("ood", [0.0, 2.0])
def test_scores_in_one_place_bound_nothing_and_fail_nowhere(ood):
    """ID rows that are all the same, and traffic that is the same too, or lies all in one place beyond."""
    low, high = profile_interval(acceptance(np.zeros(50), np.full(40, ood)), 0.95)
    assert 0.0 <= low <= high <= 1.0
    assert (low, high) == (0.0, 1.0) or ood


def test_rows_to_notice_names_what_is_out_of_range():
    with pytest.raises(ValueError, match="pi must"):
        rows_to_notice(0.0)
    with pytest.raises(ValueError, match="tpr must"):
        rows_to_notice(0.1, tpr=1.0)


def test_profile_interval_holds_a_gaussian_share(rng):
    k, n = 900, 3000
    curve = acceptance(2 * rng.normal(size=n), 2 * np.r_[rng.normal(size=n - k), 2 + rng.normal(size=k)])
    low, high = profile_interval(curve, 0.95)
    assert low <= 0.3 <= high
    assert high - low < 0.2
