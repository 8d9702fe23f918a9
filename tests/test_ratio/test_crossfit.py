# SPDX-License-Identifier: BSD-3-Clause
"""All folds at once: the same optimum as one by one, no row in its own score, the law of new rows."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import ks_2samp

from poscod.activations import Activations
from poscod.ratio import CorrectedSigmoid, EMRatio
from poscod.ratio._crossfit import InMemory, Table, cross_fit, held_out_losses, recalibrate, side_losses, start_from
from poscod.ratio._design import Design, Scaler
from poscod.ratio._likelihood import log_a, row_losses

PI = 0.3


def table(rng, n=600, d=6, folds=4, dtype=np.float64):
    n_id = n // 2
    x = rng.normal(size=(n, d))
    x[n - n // 6 :] += 1.5
    weight = rng.uniform(0.5, 1.5, n)
    return Table(InMemory(x.astype(dtype)), n_id, weight / weight.sum(), rng.integers(0, folds, n), folds)


@pytest.mark.parametrize("l2", [1.0, 0.01, 1e-4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_model_is_a_penalised_optimum_of_its_rows(rng, l2, dtype):
    rows = table(rng, dtype=dtype)
    offset = 0.3 * rng.normal(size=len(rows))
    penalty = np.full(6, l2)
    found = cross_fit(rows, penalty, PI, offset, start_from(rows, PI, offset, 0))
    masses, unlabeled = rows.masses(), np.arange(len(rows)) >= rows.n_id
    for k in range(rows.n_folds + 1):
        assert masses[:, k].sum() == pytest.approx(1.0)
        assert (masses[rows.fold == k, k] == 0.0).all()

        def objective(params, k=k):
            u = rows.design.matrix @ params[:-1] + params[-1] + offset
            loss, _ = row_losses(u, unlabeled, log_a(PI, rows.log_odds_u))
            return masses[:, k] @ loss + 0.5 * l2 * params[:-1] @ params[:-1]

        # In the log-likelihood of all rows together a parameter wins one half by chance.
        # The likelihood is not convex: another optimiser starts where this one ended and finds next to nothing.
        best = minimize(objective, found.params[:, k], options={"gtol": 1e-7}).fun
        assert objective(found.params[:, k]) <= best + 0.5 / len(rows)
    own = found.params[:-1, rows.fold]
    raw = np.einsum("nd,dn->n", rows.design.matrix, own) + found.params[-1, rows.fold] + offset
    np.testing.assert_allclose(found.u, found.kappa * raw + found.shift, rtol=1e-4, atol=1e-4)
    assert found.loss == pytest.approx(held_out_losses(found.u, rows, PI).sum())


def test_blocks_and_many_columns_find_the_same(rng, monkeypatch):
    import poscod.ratio._crossfit as crossfit
    import poscod.ratio._design as design

    rows = table(rng, n=900)
    offset, penalty = np.zeros(900), np.full(6, 1e-3)
    whole = cross_fit(rows, penalty, PI, offset, start_from(rows, PI, offset, 0))
    monkeypatch.setattr(design, "BLOCK_BYTES", 1)
    x = rows.design.matrix
    parts = Design([(x[:450],), (x[450:],)], (Scaler(np.zeros(6), np.ones(6)),), resident=0)
    cut = Table(parts, 450, rows.weight, rows.fold, rows.n_folds)
    blocks = cross_fit(cut, penalty, PI, offset, start_from(cut, PI, offset, 0))
    np.testing.assert_allclose(blocks.u, whole.u, rtol=1e-6, atol=1e-6)
    for name, value in (("DENSE", 0), ("WIDE", 0)):
        monkeypatch.setattr(crossfit, name, value)
    other = cross_fit(rows, penalty, PI, offset, start_from(rows, PI, offset, 0))
    assert other.loss == pytest.approx(whole.loss, abs=0.5)


def test_a_fold_has_no_say_in_its_own_model(rng):
    rows = table(rng)
    offset, penalty = np.zeros(len(rows)), np.full(6, 0.01)
    before = cross_fit(rows, penalty, PI, offset, start_from(rows, PI, offset, 0))
    changed = rows.design.matrix.copy()
    changed[rows.fold == 2] += 5.0
    after = Table(InMemory(changed), rows.n_id, rows.weight, rows.fold, rows.n_folds)
    # The metric may see all rows, so both stop at slightly different places of one flat optimum.
    after = cross_fit(after, penalty, PI, offset, start_from(after, PI, offset, 0))
    close = np.abs(after.params - before.params).max(axis=0)
    assert close[2] < 0.05
    assert close[[0, 1, 3, 4]].min() > 0.2


@pytest.mark.parametrize("pi", [1e-3, 0.3, 1.0])
def test_fast_losses_equal_the_slow_ones(rng, pi):
    u = np.r_[rng.normal(0, 5, 200), [-2000.0, -650.0, -30.0, 0.0, 30.0, 650.0, 2000.0]]
    u = np.r_[u, u]
    n_id = len(u) // 2
    la = log_a(pi, 0.2)
    loss, slope = row_losses(u.copy(), np.arange(len(u)) >= n_id, la)
    for shape in ((-1,), (-1, 1)):
        fast, by_u = side_losses(u.reshape(shape), n_id, la)
        np.testing.assert_allclose(fast.ravel(), loss, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(by_u.ravel(), slope, rtol=1e-9, atol=1e-12)


def test_recalibration_restores_a_scale(rng):
    rows = table(rng, n=6000)
    # The true u of the world in `table`, and what a penalty makes of it.
    x = rows.design.matrix
    share = 2.0 / 6.0
    true = x @ np.full(6, 1.5) - 0.5 * 6 * 1.5**2 + rows.log_odds_u + np.log(share)
    kappa, shift = recalibrate(0.5 * true + 1.0, rows, share)
    np.testing.assert_allclose([kappa, shift], [2.0, -2.0], rtol=0.15)
    assert recalibrate(true, rows, share) == (1.0, 0.0)


@pytest.mark.parametrize("make", [CorrectedSigmoid, lambda: EMRatio(_logistic(), max_iter=2)])
def test_out_of_fold_ratios_have_the_law_of_new_rows(make):
    """Thresholds and budgets are set on them."""
    p_values = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, u, new = rng.normal(size=(700, 4)), rng.normal(size=(700, 4)), rng.normal(size=(4000, 4))
        u[:200] += 1.5
        est = make()
        folds = rng.integers(0, 5, 700), rng.integers(0, 5, 700)
        own, traffic = est.cross_fit(x, u, *folds)
        p_values.append(ks_2samp(own, est.log_ratio(new)).pvalue)
        fresh = np.concatenate([rng.normal(size=(2500, 4)), rng.normal(size=(1000, 4)) + 1.5])
        p_values.append(ks_2samp(traffic, est.log_ratio(fresh)).pvalue)
    assert min(p_values) > 0.005
    assert np.median(p_values) > 0.1


def _logistic():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression()


@pytest.mark.parametrize("network", [False, True])
def test_more_columns_than_rows(rng, network):
    def draw(n, shift):
        x = rng.normal(size=(n, 700)).astype(np.float32)
        x[:, :50] += np.float32(shift)
        return Activations(x, x[:, 100:103].copy()) if network else x

    def join(a, b):
        if not network:
            return np.concatenate([a, b])
        return Activations(np.concatenate([a.features, b.features]), np.concatenate([a.logits, b.logits]))

    est = CorrectedSigmoid().fit(draw(150, 0.0), join(draw(75, 0.0), draw(75, 0.6)))
    low, high = est.log_ratio(draw(300, 0.0)), est.log_ratio(draw(300, 0.6))
    assert np.mean(high[:, None] > low[None]) > 0.8


def test_more_columns_than_rows_and_more_rows_than_the_search_takes(rng):
    x = rng.normal(size=(620, 1500)).astype(np.float32)
    u = rng.normal(size=(620, 1500)).astype(np.float32)
    u[:200, :50] += np.float32(0.8)
    est = CorrectedSigmoid().fit(x, u)
    new = rng.normal(size=(200, 1500)).astype(np.float32)
    far = new.copy()
    far[:, :50] += np.float32(0.8)
    assert np.mean(est.log_ratio(far)[:, None] > est.log_ratio(new)[None]) > 0.8


def test_more_rows_than_the_search_takes_and_nothing_but_the_id_only_rule(rng, monkeypatch):
    import poscod.ratio._search as recipe

    monkeypatch.setattr(recipe, "SEARCH_NUMBERS", 0)
    monkeypatch.setattr(
        recipe, "cross_fit", lambda table, l2, pi, offset, warm: _worse(cross_fit(table, l2, pi, offset, warm))
    )
    x, u = rng.normal(size=(700, 3)), rng.normal(size=(700, 3))
    own, traffic = CorrectedSigmoid(ood_prior=0.1).cross_fit(x, u, rng.integers(0, 5, 700), rng.integers(0, 5, 700))
    assert np.isfinite(own).all()
    assert np.isfinite(traffic).all()


def _worse(fit):
    import dataclasses

    return dataclasses.replace(fit, losses=fit.losses + 100.0)


def test_log_probabilities_have_no_energy(rng):
    """In float32 their sum is one up to rounding, which is no evidence."""
    z = rng.normal(size=(900, 5))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    for dtype in (np.float32, np.float64):
        logits = np.log(p.astype(dtype)).astype(np.float64)
        rows = Activations(z.astype(dtype), logits)
        est = CorrectedSigmoid(ood_prior=0.3).fit(rows[:400], rows[400:])
        energy = est.model_.representation.names.index("energy")
        assert np.isinf(est.model_.representation.scale[energy])


def test_collinear_columns_do_not_depend_on_the_batch(rng):
    x = rng.normal(size=(900, 1))
    rows = np.concatenate([x, 1.8 * x + 32.0], axis=1).astype(np.float32)
    est = CorrectedSigmoid(ood_prior=0.3).fit(rows[:400], rows[400:800])
    together = est.log_ratio(rows[800:])
    alone = np.concatenate([est.log_ratio(rows[i : i + 1]) for i in range(800, 900)])
    np.testing.assert_allclose(alone, together, atol=0.01)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_cells_are_neither_an_error_nor_familiar(rng, dtype):
    x, u = rng.normal(size=(400, 3)).astype(dtype), rng.normal(size=(400, 3)).astype(dtype)
    u[:100] += 2.0
    x[0, 1] = 1e25
    est = CorrectedSigmoid().fit(x, u)
    found = est.log_ratio(np.full((2, 3), 1e30, dtype=dtype))
    assert np.isfinite(found).all()
