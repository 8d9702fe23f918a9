"""Sample weights on a cluster: theta, pi and lambda as in memory, whatever the chunks."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.backends import dask as backend
from poscod.backends.dask import _fit
from poscod.exceptions import InvalidInputError
from poscod.model import ClassMixWarning
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
def test_ratio_is_that_of_rows_in_memory(data, parameters):
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


@pytest.mark.filterwarnings(
    "ignore::poscod.model.ClassMixWarning"
)  # true of the marked rows: their weights make another mix
@pytest.mark.parametrize("marked", [False, True])
def test_model_is_that_of_rows_in_memory(data, world, marked):
    X, y, U, weight, w_u = data
    T, t = world(600, seed=3)
    model = POSCOD(FrozenEstimator(LogisticRegression().fit(T, t)), CorrectedSigmoid("paper", l2=1e-3, ood_prior=0.3), alpha=0.3, tpr_min=0.9, calibration=0.5, random_state=7)  # fmt: skip
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
    )
    unweighted = model.fit(X, y, **other).threshold_
    expected = model.fit(X, y, **other, sample_weight=weight)
    np.testing.assert_allclose(found.ratio_.model_.theta, expected.ratio_.model_.theta, rtol=1e-8, atol=1e-8)
    assert found.scorer_.temperature == pytest.approx(expected.scorer_.temperature, rel=1e-8)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)
    assert found.threshold_ != pytest.approx(unweighted, rel=1e-3)
    np.testing.assert_array_equal(found.calibration_.weight, expected.calibration_.weight)


def test_rows_of_a_sample_take_their_weights_along(data, world, monkeypatch):
    X, y, U, weight, _ = data
    T, t = world(600, seed=3)
    monkeypatch.setattr(_fit, "SAMPLE_ROWS", 80)
    model = POSCOD(FrozenEstimator(LogisticRegression().fit(T, t)), CorrectedSigmoid("paper", l2=1e-3, ood_prior=0.3), tpr_min=0.9, calibration=0.5, class_mix="labeled", random_state=7)  # fmt: skip
    kept = backend.fit(model, lazy(X, 170), y, lazy(U, 120), weight).calibration_
    whole = model.fit(X, y, X_unlabeled=U, sample_weight=weight).calibration_
    place = [int(np.argmin(np.abs(whole.log_ratio - value))) for value in kept.log_ratio]
    assert len(set(place)) == 80
    np.testing.assert_array_equal(kept.weight, whole.weight[place])


def test_a_classifier_is_trained_with_its_weights(world):
    X, y = world(400, seed=1)
    U, _ = world(300, pi=0.3, seed=2)
    weight = np.where(y == 0, 5.0, 0.2)
    model = POSCOD(ratio=StandardSigmoid(l2=0.01), classifier=LogisticRegression(), calibration=0.5, random_state=7)
    with pytest.warns(ClassMixWarning, match="cannot be told from 100 labeled and 300 unlabeled rows"):
        found = backend.fit(model, lazy(X, 250), y, lazy(U, 250), weight, sample_rows=10_000)
    with pytest.warns(ClassMixWarning, match="cannot be told from 100 labeled and 300 unlabeled rows"):
        expected = model.fit(X, y, X_unlabeled=U, sample_weight=weight)
    np.testing.assert_allclose(found.classifier_.coef_, expected.classifier_.coef_, rtol=1e-8)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)


@pytest.mark.filterwarnings("ignore::poscod.model.ClassMixWarning")  # refused after the class mix was looked at
def test_bad_weights_are_refused_in_a_sentence(data, world):
    X, y, U, weight, _ = data
    T, t = world(600, seed=3)
    model = POSCOD(FrozenEstimator(LogisticRegression().fit(T, t)), CorrectedSigmoid("paper", l2=1e-3), random_state=0)
    rows = lazy(X, 300), y, lazy(U, 300)
    with pytest.raises(InvalidInputError, match="threshold='guaranteed' takes no sample_weight"):
        backend.fit(POSCOD(model.classifier, model.ratio, threshold="guaranteed"), *rows, weight)
    with pytest.raises(InvalidInputError, match="sample_weight"):
        backend.fit(model, *rows, weight[:-1])
    with pytest.raises(InvalidInputError, match="sample_weight_id must contain a positive number"):
        backend.fit_ratio(model.ratio, rows[0], rows[2], sample_weight_id=np.zeros(600))
