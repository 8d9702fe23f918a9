from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.special import expit, logit

from poscod.ratio._design import Design, Scaler, fit_scaler
from poscod.ratio._likelihood import Fit, fit_likelihood, log_a, loss_sums, penalised, row_losses


def objective(params, design, unlabeled, weight, l2, odds, pi):
    return penalised(loss_sums(params, design, unlabeled, weight, odds, pi), params, l2)


def make(rng, n=60, d=3, dtype=np.float64):
    x = rng.normal(size=(n, d)).astype(dtype)
    z = np.arange(n) >= n // 3
    weight = rng.random(n)
    identity = Scaler(np.zeros(d), np.ones(d))
    return Design([(x,)], (identity,)), x, z, weight / weight.sum()


@pytest.mark.parametrize("pi", [None, 0.03, 0.6, 1.0])
def test_gradient_equals_finite_differences(rng, pi):
    design, _, z, weight = make(rng)
    odds = float(logit(weight[z].sum()))
    l2 = np.array([0.1, 0.0, 2.0])
    args = (design, z, weight, l2, odds, pi)
    for _ in range(5):
        params = rng.normal(size=5 if pi is None else 4)
        error = check_grad(lambda p: objective(p, *args)[0], lambda p: objective(p, *args)[1], params)
        assert error < 1e-6


def test_value_is_the_model_of_the_paper(rng):
    """p(z = I | x) = 1 / (1 + a + e^u) with a = pi_U / (1 - pi_U) (1 - pi), written out naively."""
    design, x, z, weight = make(rng)
    share, pi = weight[z].sum(), 0.3
    theta, b = np.array([0.5, -1.0, 0.2]), 0.4
    a = share / (1 - share) * (1 - pi)
    p = 1.0 / (1.0 + a + np.exp(x @ theta + b))
    naive = -np.sum(weight * np.log(np.where(z, 1.0 - p, p)))
    value, _ = objective(np.r_[theta, b], design, z, weight, np.zeros(3), float(logit(share)), pi)
    assert value == pytest.approx(naive, rel=1e-12)


@given(
    u=st.floats(-1e4, 1e4),
    pi=st.one_of(st.floats(1e-6, 1.0), st.just(1.0)),
    odds=st.floats(-10, 10),
)
def test_losses_are_finite_in_log_space(u, pi, odds):
    rows = np.array([u, u])
    loss, slope = row_losses(rows, np.array([False, True]), log_a(pi, odds))
    assert np.isfinite(loss).all()
    assert (loss >= 0).all()
    assert (np.abs(slope) <= 1.0).all()


def test_blocks_give_the_same_answer_as_one_matrix(rng):
    x = rng.normal(3.0, 2.0, size=(5000, 7)).astype(np.float32)
    y = rng.normal(3.5, 2.0, size=(3000, 7)).astype(np.float32)
    scaler = fit_scaler([x, y])
    whole, blocks = Design([(x,), (y,)], (scaler,)), Design([(x,), (y,)], (scaler,), resident=0)
    z = np.repeat([False, True], [5000, 3000])
    weight = np.full(8000, 1 / 8000)
    params = rng.normal(size=8)
    one, many = (objective(params, d, z, weight, np.zeros(7), 0.1, 0.2) for d in (whole, blocks))
    assert sum(1 for _ in blocks.blocks()) > 1 or len(x) < 256
    assert one[0] == pytest.approx(many[0], rel=1e-6)
    np.testing.assert_allclose(one[1], many[1], atol=1e-6)


def test_scaler_survives_a_large_mean_and_a_constant_column(rng):
    x = np.stack([1e6 + rng.normal(size=500), np.full(500, 7.0)], axis=1)
    scaler = fit_scaler([x[:200], x[200:]])
    standard = scaler.transform(x)
    assert standard[:, 0].std() == pytest.approx(1.0, rel=1e-6)
    assert (standard[:, 1] == 0).all()


def test_scaler_keeps_float32():
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    assert fit_scaler([x]).transform(x).dtype == np.float32


def test_several_starts_beat_a_single_large_one(rng):
    """Errata 4: the joint likelihood is not convex, so the best of several starts is never worse than one of them."""
    worse = 0
    for seed in range(8):
        local = np.random.default_rng(seed)
        n, k = 1500, 120
        x = np.r_[local.normal(size=(n, 5)), local.normal(size=(n - k, 5)), 1.3 + local.normal(size=(k, 5))]
        design = Design([(x,)], (fit_scaler([x]),))
        z = np.repeat([False, True], [n, n])
        args = (design, z, np.full(2 * n, 0.5 / n), np.zeros(5))
        many = fit_likelihood(*args, pi=None)
        single = fit_likelihood(*args, pi=None, starts=(0.9,))
        assert many.objective <= single.objective + 2e-5  # stopping tolerance
        worse += single.objective > many.objective + 1e-5
    assert worse >= 1


def test_warm_start_reaches_the_same_optimum(rng):
    design, _, z, weight = make(rng, n=400)
    l2 = np.full(3, 0.01)
    cold = fit_likelihood(design, z, weight, l2, pi=0.5)
    warm = fit_likelihood(design, z, weight, l2, pi=0.5, warm=Fit(np.ones(3), -1.0, 0.5, np.inf))
    assert warm.objective == pytest.approx(cold.objective, abs=1e-6)


def test_prior_enters_through_a():
    assert log_a(1.0, 0.3) == -np.inf
    assert np.exp(log_a(0.25, float(logit(0.6)))) == pytest.approx(0.6 / 0.4 * 0.75)
    assert expit(0.0) == 0.5
