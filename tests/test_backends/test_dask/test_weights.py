"""Sample weights on a cluster: theta, pi and lambda of one memory, whatever the chunks."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import poscod.backends.dask._order as order
from poscod import POSCOD, selector
from poscod.backends import dask as backend
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid, StandardSigmoid


def lazy(values, rows):
    return da.from_array(values, chunks=(rows, values.shape[1]) if values.ndim == 2 else rows)


@pytest.fixture(scope="module")
def data(world):
    X, y = world(600, dtype=np.float32, seed=21)
    U, _ = world(500, pi=0.3, dtype=np.float32, seed=22)
    rng = np.random.default_rng(5)
    return X, y, U, rng.exponential(size=600) * (rng.random(600) > 0.1), rng.choice([0.0, 0.5, 3.0], 500)


@pytest.mark.parametrize("parameters", [{}, {"ood_prior": 0.3, "l2": 1e-3}])
def test_ratio_is_that_of_one_memory(data, parameters):
    X, _, U, w_id, w_u = data
    ratio = CorrectedSigmoid("paper", **parameters)
    expected = ratio.fit(X, U, sample_weight_id=w_id, sample_weight_unlabeled=w_u)
    theta, prior, a, interval = expected.model_.theta, expected.ood_prior_, expected.a_, expected.ood_prior_interval()
    plain = ratio.fit(X, U).model_.theta
    found = backend.fit_ratio(
        ratio,
        lazy(X, 170),
        lazy(U, 99),
        sample_weight_id=da.from_array(w_id, chunks=61),
        sample_weight_unlabeled=dd.from_pandas(pd.Series(w_u), npartitions=3),
    )
    np.testing.assert_allclose(found.model_.theta, theta, rtol=1e-8, atol=1e-8)
    assert (found.ood_prior_, found.a_) == pytest.approx((prior, a), rel=1e-8)
    assert found.ood_prior_interval() == pytest.approx(interval, rel=1e-8)
    assert np.abs(found.model_.theta - plain).max() > 1e-3  # weights matter here


def test_a_sample_of_all_rows_takes_its_weights_along(data):
    X, _, U, w_id, _ = data
    ratio = StandardSigmoid(l2=0.01)
    found = backend.fit_ratio(ratio, lazy(X, 99), lazy(U, 99), sample_weight_id=w_id, sample_rows=9999)
    np.testing.assert_array_equal(found.log_ratio(X), ratio.fit(X, U, sample_weight_id=w_id).log_ratio(X))


@pytest.mark.parametrize(("keep_rows", "marked"), [(100_000, False), (50, True)])
def test_model_is_that_of_one_memory(data, world, keep_rows, marked):
    X, y, U, weight, w_u = data
    T, t = world(600, seed=3)
    model = POSCOD(FrozenEstimator(LogisticRegression().fit(T, t)), CorrectedSigmoid("paper", l2=1e-3, ood_prior=0.3), alpha=0.3, tpr_min=0.9, random_state=7)  # fmt: skip
    if marked:
        X, y, weight = np.concatenate([U[:200], X, U[200:]]), np.r_[np.full(200, -1), y, np.full(300, -1)], np.r_[w_u[:200], weight, w_u[200:]]  # fmt: skip
    other = {} if marked else {"X_unlabeled": U}
    rest = {} if marked else {"X_unlabeled": lazy(U, 120)}
    found = backend.fit(
        model,
        lazy(X, 170),
        y,
        **rest,
        sample_weight=da.from_array(weight, chunks=80),
        keep_rows=keep_rows,
    )
    unweighted = model.fit(X, y, **other).threshold_
    expected = model.fit(X, y, **other, sample_weight=weight)
    np.testing.assert_allclose(found.ratio_.model_.theta, expected.ratio_.model_.theta, rtol=1e-8, atol=1e-8)
    for name in ("ood_prior_", "temperature_", "threshold_", "tau_", "beta_"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-8), name
    assert found.threshold_ != pytest.approx(unweighted, rel=1e-3)
    assert len(found.calibration_.weight) == len(found.calibration_.codes)


def test_a_classifier_is_trained_with_its_weights(world):
    X, y = world(400, seed=1)
    U, _ = world(300, pi=0.3, seed=2)
    weight = np.where(y == 0, 5.0, 0.2)
    model = POSCOD(ratio=StandardSigmoid(l2=0.01), classifier=LogisticRegression(), random_state=7)
    found = backend.fit(model, lazy(X, 250), y, lazy(U, 250), weight, sample_rows=10_000)
    expected = model.fit(X, y, X_unlabeled=U, sample_weight=weight)
    np.testing.assert_allclose(found.classifier_.coef_, expected.classifier_.coef_, rtol=1e-8)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)


NUMBERS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, np.inf, -np.inf, 5e-324]), st.floats(-1.0, 1.0))
WEIGHTS = st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(1e-3, 10.0))


@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(NUMBERS, WEIGHTS), min_size=1, max_size=40).filter(lambda rows: any(w for _, w in rows)),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    tpr_min=st.sampled_from([0.07, 0.5, 0.57, 0.9, 1.0]),
)
def test_weighted_threshold_is_that_of_one_memory(rows, cuts, tpr_min):
    score, weight = (np.array(column) for column in zip(*rows, strict=True))
    borders = sorted(min(cut, len(score)) for cut in cuts)
    sizes = (tuple(np.diff([0, *borders, len(score)]).tolist()),)
    found = backend.tpr_threshold(
        da.from_array(score, chunks=sizes), tpr_min, weight=da.from_array(weight, chunks=sizes)
    )
    expected = selector.tpr_threshold(score, tpr_min, weight=weight)
    assert found.threshold == expected.threshold
    assert found[1:] == pytest.approx(expected[1:], rel=1e-9, abs=1e-12)


def test_passes_are_few(rng, monkeypatch):
    """Ends, at most five narrowings of 2**64 keys by 2**14 counters, and one to sum."""
    score, weight = np.exp(30 * rng.normal(size=5000)), rng.exponential(size=5000)
    before = inline.passes
    found = backend.tpr_threshold(lazy(score, 999), 0.9, weight=lazy(weight, 999))
    assert inline.passes - before <= 7
    assert found.threshold == selector.tpr_threshold(score, 0.9, weight=weight).threshold
    monkeypatch.setattr(order, "COUNTERS", 3)
    assert backend.tpr_threshold(lazy(score, 999), 0.9, weight=lazy(weight, 999)) == found


def test_bad_weights_are_refused_in_a_sentence(data, world):
    X, y, U, weight, _ = data
    T, t = world(600, seed=3)
    model = POSCOD(FrozenEstimator(LogisticRegression().fit(T, t)), CorrectedSigmoid("paper", l2=1e-3))
    rows = lazy(X, 300), y, lazy(U, 300)
    with pytest.raises(InvalidInputError, match="threshold='guaranteed' takes no sample_weight"):
        backend.fit(POSCOD(model.classifier, model.ratio, threshold="guaranteed"), *rows, weight)
    with pytest.raises(InvalidInputError, match="sample_weight"):
        backend.fit(model, *rows, weight[:-1])
    with pytest.raises(InvalidInputError, match="sample_weight_id must contain a positive number"):
        backend.fit_ratio(model.ratio, rows[0], rows[2], sample_weight_id=np.zeros(600))
    score = da.ones(10, chunks=5)
    with pytest.raises(InvalidInputError, match="zeros only"):
        backend.tpr_threshold(score, 0.9, weight=0.0 * score)
    with pytest.raises(InvalidInputError, match="same chunks"):
        backend.tpr_threshold(score, 0.9, weight=score.rechunk(10))
    with pytest.raises(InvalidInputError, match="weight"):
        backend.tpr_threshold(score, 0.9, weight=-score)
