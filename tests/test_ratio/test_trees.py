"""Trees in the strong recipe: OOD rows that lie inside the ID data are seen, linear data get no trees, and arrays say what scikit-learn says."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom
from sklearn.ensemble import HistGradientBoostingClassifier

from poscod import Activations
from poscod.ratio import CorrectedSigmoid, NoOODEvidenceWarning
from poscod.ratio._quick import quick_ratio
from poscod.ratio._rows import Rows, observations, row_hash
from poscod.ratio._search import Sample
from poscod.ratio._trees import FULL, Grower, excess

D = 12
MIXING = np.eye(D) + np.random.default_rng(0).normal(0.0, 0.3, (D, D))


def known(rng, n):
    x = rng.normal(size=(n, D)) @ MIXING
    x[:, ::3] = np.exp(x[:, ::3])
    return x


def imputed(rng, n):
    x = known(rng, n)
    x[:, ::2] = [np.exp(0.5 * (MIXING[:, j] @ MIXING[:, j])) if j % 3 == 0 else 0.0 for j in range(0, D, 2)]
    return x


KINDS = {
    "imputed": imputed,
    "shrunken": lambda rng, n: known(rng, 2000).mean(axis=0) + 0.2 * known(rng, n),
    "constant": lambda rng, n: np.tile(known(np.random.default_rng(5), 2000).mean(axis=0), (n, 1)),
}


def traffic(rng, n, pi, kind):
    ood = round(pi * n)
    return np.concatenate([known(rng, n - ood), KINDS[kind](rng, ood)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pi", [0.1, 0.4])
def test_ood_rows_inside_the_id_data_are_seen(kind, pi):
    rng = np.random.default_rng(1)
    est = CorrectedSigmoid().fit(known(rng, 600), traffic(rng, 600, pi, kind))
    assert est.gate_open_
    assert pi > 0.1 or est.candidates_["trees"] > 0.9  # of many shrunken rows linear evidence says enough
    assert est.ood_prior_ == pytest.approx(pi, abs=0.05)
    cut = np.quantile(est.log_ratio(known(rng, 2000)), 0.95)
    assert np.mean(est.log_ratio(KINDS[kind](rng, 500)) <= cut) <= 0.15


def test_fitted_rows_are_scored_by_trees_that_have_not_seen_them():
    """A threshold set on out-of-fold scores keeps its TPR for new rows; set on scores of rows that trees were fitted on, it would be too strict."""
    rng = np.random.default_rng(2)
    x_id, x_u, fold = known(rng, 500), traffic(rng, 500, 0.3, "imputed"), np.arange(500) % 5
    est = CorrectedSigmoid()
    own, _ = est.cross_fit(x_id, x_u, fold, fold)
    new = est.log_ratio(known(rng, 4000))
    assert 0.93 < np.mean(new <= np.quantile(own, 0.95)) < 0.99
    assert np.mean(new <= np.quantile(est.log_ratio(x_id), 0.95)) < 0.9


def test_linear_data_have_no_trees(rng):
    shifted = np.concatenate([rng.normal(size=(350, 5)), rng.normal(2.0, 1.0, (150, 5))])
    est = CorrectedSigmoid().fit(rng.normal(size=(500, 5)), shifted)
    assert est.model_.trees is None
    assert "trees" not in est.candidates_


def test_logits_of_a_table_alone_are_not_for_trees(rng):
    """Those of a fold's classifier have seen the other folds."""
    x = [known(rng, 300), traffic(rng, 300, 0.4, "imputed")]
    sides = [Rows(part, part, table=True) for part in x]
    assert Sample((sides[0], sides[1]), (np.full(300, 1 / 600),) * 2, None, 5, 0).look is None


HEAD = np.random.default_rng(3).normal(size=(D, 4))
CENTRES = 4.0 * HEAD.T / np.linalg.norm(HEAD.T, axis=1, keepdims=True)


def network(rng, n, kind):
    """Return activations of four classes: as they come, stuck at the mean of a class, or half-way to it."""
    spread = {"known": 1.0, "stuck": 0.01, "closer": 0.3}[kind]
    features = CENTRES[rng.integers(0, 4, n)] + spread * rng.normal(size=(n, D))
    return Activations(features, features @ HEAD)


@pytest.mark.parametrize("kind", ["stuck", "closer"])
@pytest.mark.parametrize("pi", [0.1, 0.4])
def test_trees_see_a_networks_evidence(kind, pi):
    """Rows nearer to a class than its own rows look like ID to every distance, and there is no direction in which they lie."""
    rng = np.random.default_rng(4)
    ood, x_id, fresh = round(600 * pi), network(rng, 600, "known"), network(rng, 2000, "known")
    parts = network(rng, 600 - ood, "known"), network(rng, ood, kind)
    mixture = Activations(*(np.concatenate([getattr(part, of) for part in parts]) for of in ("features", "logits")))
    est = CorrectedSigmoid().fit(x_id, mixture)
    assert est.gate_open_
    assert pi > 0.1 or est.candidates_["trees"] > 0.2  # of many such rows lengths and logits say enough
    assert est.ood_prior_ == pytest.approx(pi, abs=0.05)
    cut = np.quantile(est.log_ratio(fresh), 0.95)
    assert np.mean(est.log_ratio(network(rng, 500, kind)) <= cut) <= 0.15


def test_arrays_say_what_scikit_learn_says(rng):
    x = np.concatenate([known(rng, 300), known(rng, 300)[:, ::-1]])
    x[:, 4] = np.round(x[:, 4])
    fold, columns = np.arange(600) % 3, np.arange(1, D)
    grown = Grower(x, columns, 300, np.full(600, 1 / 600)).grow(fold, 4, FULL)
    new = np.concatenate([known(rng, 500), 100.0 * known(rng, 50), -1e300 * np.ones((1, D))])
    np.testing.assert_allclose(grown.whole().logit(new), grown.logit(3, new), atol=1e-9)
    # Thresholds are of the columns themselves: scikit-learn alone, on the numbers as they come, finds the same trees where columns are discrete.
    few = np.round(np.clip(x, -3, 3))
    grown = Grower(few, np.arange(D), 300, np.ones(600)).grow(fold, 4, FULL)
    options = {"max_leaf_nodes": 8, "min_samples_leaf": 10, "l2_regularization": 1.0, "early_stopping": False}
    alone = HistGradientBoostingClassifier(**FULL, **options).fit(few, np.arange(600) >= 300)
    np.testing.assert_allclose(grown.whole().logit(few), alone.decision_function(few), atol=1e-9)


def test_weights_count_as_copies_do(rng):
    x = np.concatenate([known(rng, 200), imputed(rng, 200)])
    times, fold = rng.integers(1, 4, 400), np.arange(400) % 2
    weighted = Grower(x, np.arange(D), 200, times / 400).grow(fold, 3, FULL)
    split = int(times[:200].sum())
    copied = Grower(np.repeat(x, times, axis=0), np.arange(D), split, np.ones(times.sum()))
    again = copied.grow(np.repeat(fold, times), 3, FULL)
    # Steps and least numbers of rows in a leaf differ: alike, not equal.
    one, two = (expit(grown.whole().logit(x)) for grown in (weighted, again))
    assert np.mean(np.abs(one - two)) < 0.05
    assert weighted.whole().base == pytest.approx(np.log(times[200:].sum() / split), abs=1e-6)


def test_what_ood_rows_add_is_finite_and_keeps_the_order():
    score = np.linspace(-30.0, 30.0, 1001)
    u = excess(score, 0.2, 0.001)
    assert (np.diff(u) > 0.0).all()
    high = score > 1.0
    np.testing.assert_allclose(u[high], np.log(np.exp(score[high]) - np.exp(0.2)), rtol=1e-9)
    np.testing.assert_allclose(u[:300], score[:300] + np.log(0.001))


def test_few_rows_many_columns_and_rows_without_weight(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoOODEvidenceWarning)
        for shape in ((40, 60), (40, 300), (200, 300)):
            est = CorrectedSigmoid().fit(rng.normal(size=shape), rng.normal(size=shape))
            assert np.isfinite(est.log_ratio(rng.normal(size=shape))).all()
        weight = np.r_[np.zeros(30), np.ones(30)]  # folds may be without any
        est = CorrectedSigmoid().fit(known(rng, 60), known(rng, 60), sample_weight_id=weight)
    assert np.isfinite(est.log_ratio(known(rng, 20))).all()


def test_more_rows_than_a_search_takes(monkeypatch):
    """Trees of part of the rows score the rest, and no linear refit takes their place."""
    monkeypatch.setattr("poscod.ratio._search.SEARCH_ROWS", 500)
    rng = np.random.default_rng(3)
    est = CorrectedSigmoid().fit(known(rng, 900), traffic(rng, 900, 0.3, "imputed"))
    assert est.model_.trees is not None
    assert est.ood_prior_ == pytest.approx(0.3, abs=0.05)


def test_the_quick_ratio_sees_them_too():
    rng = np.random.default_rng(4)
    found = quick_ratio(known(rng, 500), traffic(rng, 500, 0.3, "shrunken"), None, None)
    assert found.pi == pytest.approx(0.3, abs=0.05)
    assert np.mean(found.traffic[350:] > np.quantile(found.known, 0.95)) > 0.85


def test_a_row_is_stuck_only_where_copies_are_rare_and_no_id_row_is_like_it():
    rng = np.random.default_rng(0)
    own, other, one = (row_hash(rng.normal(size=(n, 2)), 0) for n in (1000, 900, 1))
    first, second = observations(own, np.r_[other, np.repeat(one, 100)])
    np.testing.assert_array_equal(first, own)
    assert len(np.unique(second)) == 1000
    for left, right in (
        (own, np.r_[other, np.repeat(one, 9)]),  # repeated
        (np.r_[own, np.repeat(one, 50)], np.r_[other, np.repeat(one, 100)]),  # as among ID rows
        (own, np.r_[np.repeat(other, 20), np.repeat(one, 100)]),  # all rows are repeated
    ):
        np.testing.assert_array_equal(observations(left, right)[1], right)


def sampled(kind, rng, n):
    """Both sides from one distribution, and row weights."""
    if kind == "discrete":
        return rng.integers(0, 3, (n, 4)) + 0.0, rng.integers(0, 3, (n, 4)) + 0.0, {}
    if kind == "copies":
        return *(known(rng, n // 3)[rng.integers(0, n // 3, n)] for _ in range(2)), {}
    if kind == "bursts":
        return known(rng, n), np.repeat(known(rng, n), np.minimum(rng.zipf(2.0, n), 15), axis=0)[:n], {}
    weight = {"sample_weight_id": rng.exponential(size=n)} if kind == "weights" else {}
    return known(rng, n), known(rng, n), weight


def opened(kind, runs, n):
    count = 0
    for seed in range(runs):
        x_id, x_u, weight = sampled(kind, np.random.default_rng(seed), n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoOODEvidenceWarning)
            count += CorrectedSigmoid().fit(x_id, x_u, **weight).gate_open_
    return count


def test_discrete_rows_do_not_open_the_gate():
    """Copies that were dealt out as pairs opened it in two of three fits."""
    assert opened("discrete", 30, 100) <= binom.isf(1e-3, 30, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "weights", "copies", "bursts", "discrete"])
def test_the_level_of_the_gate(kind):
    assert opened(kind, 200, 300) <= binom.isf(0.005, 200, 0.05)
