from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import strategies as oracles
from poscod import ScodProblem
from poscod.exceptions import InvalidInputError
from poscod.strategies import linear, product, rejection_score, sirc, sirc_parameters


def test_linear():
    assert linear([0.1, 0.5], [2.0, 0.0], 0.25).tolist() == [0.6, 0.5]
    assert linear([0.1, 0.5], [np.inf, 0.0], 0.0).tolist() == [0.1, 0.5]
    assert linear([0.1, 0.5], [3.0, 0.0], np.inf).tolist() == [3.0, 0.0]


def test_results_do_not_share_memory_with_arguments():
    s1, s2 = np.array([0.1, 0.2]), np.array([1.0, 2.0])
    for beta in (0.0, np.inf):
        linear(s1, s2, beta)[0] = rejection_score(s1, s2, beta)[0] = 99.0
    assert s1[0] == 0.1
    assert s2[0] == 1.0


@given(log_ratio=st.floats(-700, 600), risk=st.floats(0, 5), alpha=st.sampled_from([0.01, 0.3, 0.9]))
def test_rejection_score_is_r_plus_beta_g(log_ratio, risk, alpha):
    beta = ScodProblem(alpha=alpha, tpr_min=0.8).beta
    assert rejection_score([risk], [log_ratio], beta)[0] == pytest.approx(risk + beta * np.exp(log_ratio), rel=1e-11)


def test_rejection_score_stays_finite_and_ordered_on_far_inputs():
    log_ratio = np.array([-np.inf, -1000.0, 0.0, 600.0, 689.0, 691.0, 800.0, 1000.0, 9000.0])
    for beta in (1e-3, 0.7, 50.0, np.inf):
        s = rejection_score(np.full(9, 0.2), log_ratio, beta)
        assert np.isfinite(s).all()
        assert (np.diff(s[2:]) > 0).all()
    assert rejection_score([0.2], [-1000.0], 3.0)[0] == 0.2
    assert rejection_score([0.2], [np.inf], 3.0)[0] == np.inf
    assert rejection_score([0.2], [np.inf], 0.0)[0] == 0.2


@given(s1=st.floats(1e-12, 1.0), s2=st.floats(-20, 20), a=st.floats(-10, 10), b=st.sampled_from([0.0, 0.1, 1.0, 3.0]))
def test_sirc_is_the_logarithm_of_the_published_formula(s1, s2, a, b):
    assert sirc([s1], [s2], a, b)[0] == pytest.approx(np.log(oracles.sirc([s1], [s2], a, b)[0]), rel=1e-9, abs=1e-9)


def test_sirc_neither_overflows_nor_saturates():
    s = sirc([0.5, 0.5, 0.5, 0.0], [-1e6, 1e6, 2e6, 1e6], a=0.0, b=5.0)
    assert s[0] == np.log(0.5)
    assert s[1] < s[2] < np.inf
    assert s[3] == -np.inf  # a risk of zero is accepted first
    assert sirc([0.0, 0.5], [np.inf, np.inf], -1.0, 1.0).tolist() == [-np.inf, np.inf]
    assert sirc([0.5], [np.inf], -1.0, 0.0)[0] == pytest.approx(np.log(0.5) + np.log(2))


def test_sirc_parameters_are_on_the_confidence_scale(rng):
    s2 = rng.gamma(2.0, 1.0, 500)
    a, b = sirc_parameters(s2)
    assert a == pytest.approx(np.mean(-s2) - 3 * np.std(-s2))
    assert b == pytest.approx(1 / np.std(-s2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear([1.0], [1.0, 2.0], 1.0), "s2 must have as many rows as s1"),
        (lambda: linear([1.0], [1.0], -1.0), "beta must be a number"),
        (lambda: linear([np.nan], [1.0], 1.0), "NaN"),
        (lambda: linear([np.inf], [-np.inf], 1.0), "opposite signs"),
        (lambda: rejection_score([1.0], [np.nan], 1.0), "log_ratio must not contain NaN"),
        (lambda: product([-1.0], [1.0]), "s1 must be non-negative"),
        (lambda: product([1.0], [np.inf]), "s2 must be non-negative and finite"),
        (lambda: sirc([-0.1], [1.0], 0.0, 1.0), "s1 must be non-negative for SIRC"),
        (lambda: sirc([0.1], [1.0], np.inf, 1.0), "a must be a number"),
        (lambda: sirc([0.1], [1.0], 0.0, -1.0), "b must be a number"),
        (lambda: sirc_parameters([1.0, 1.0]), "two different finite values"),
        (lambda: sirc_parameters([]), "two different finite values"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_sirc_parameters_of_ratios_whose_squares_overflow():
    """Mean and spread are finite although the sum of squares is not: the same as for the scores divided by a power of two."""
    s2 = np.array([1.0, 3.0, 4.0, 1.5]) * 2.0**1000
    a, b = sirc_parameters(s2)
    small_a, small_b = sirc_parameters(s2 / 2.0**1000)
    assert a == pytest.approx(small_a * 2.0**1000)
    assert b == pytest.approx(small_b / 2.0**1000)
