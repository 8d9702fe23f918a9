"""Traffic with another class mix on a cluster: fit, decisions and rates are those of rows in memory."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.backends import dask as backend
from poscod.model import ClassMixWarning
from poscod.ratio import CorrectedSigmoid


def lazy(values, rows):
    return da.from_array(values, chunks=(rows, values.shape[1]))


def shifted(world, n, seed, weight=(0.15, 0.15, 0.7)):
    """Known rows of another class mix, and a fifth of OOD rows."""
    X, y = world(6 * n, seed=seed)
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([np.flatnonzero(y == k)[: int(share * 0.8 * n)] for k, share in enumerate(weight)])
    ood, _ = world(n - len(chosen), pi=1.0, seed=seed + 50)
    return rng.permutation(np.concatenate([X[chosen], ood]))


@pytest.fixture(scope="module")
def pair(world):
    """The same model, fitted in memory and in chunks."""
    X, y = world(900, seed=1)
    T, t = world(600, seed=3)
    traffic = shifted(world, 700, 2)
    model = POSCOD(FrozenEstimator(LogisticRegression().fit(T, t)), CorrectedSigmoid("paper", l2=1e-3), alpha=0.3, tpr_min=0.85, calibration=0.5, random_state=7)  # fmt: skip
    with pytest.warns(ClassMixWarning, match="another class mix"):
        found = backend.fit(model, lazy(X, 170), y, lazy(traffic, 99))
    with pytest.warns(ClassMixWarning, match="another class mix"):
        return model.fit(X, y, X_unlabeled=traffic), found


def test_the_fit_is_that_of_rows_in_memory(pair):
    expected, found = pair
    ours, theirs = found.calibration_.mix, expected.calibration_.mix
    assert theirs.changed
    assert theirs.traffic == pytest.approx([0.15, 0.15, 0.7], abs=0.06)
    for key in ("labeled", "traffic", "low", "high", "covariance"):
        np.testing.assert_allclose(getattr(ours, key), getattr(theirs, key), rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(found.scorer_.bias, expected.scorer_.bias, rtol=1e-8)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-6)
    assert str(found.rule_) == str(expected.rule_)


def test_decisions_are_those_of_the_adapted_rule(pair, world):
    expected, found = pair
    X = shifted(world, 400, 9)
    want = expected.decide(X)
    got = backend.decide(found, lazy(X, 111)).compute()
    np.testing.assert_array_equal(np.asarray(got["accept"]), want.accept)
    np.testing.assert_array_equal(np.asarray(got["label"]), want.label)


@pytest.mark.parametrize("class_mix", ["traffic", "labeled"])
@pytest.mark.parametrize("weight", [(0.15, 0.15, 0.7), (0.8, 0.1, 0.1)])
def test_rates_are_those_of_memory(pair, world, class_mix, weight):
    """Also where the fresh traffic has a third mix, which is estimated on the same rows."""
    model, _ = pair
    X, y = world(500, seed=11)
    ood, _ = world(200, pi=1.0, seed=12)
    traffic = shifted(world, 600, 13, weight)
    sides = lazy(X, 120), y
    assert backend.evaluate(model, *sides, lazy(ood, 77), class_mix=class_mix) == model.evaluate(
        X, y, ood, class_mix=class_mix
    )
    got = backend.evaluate_unlabeled(model, *sides, lazy(traffic, 130), class_mix=class_mix)
    want = model.evaluate_unlabeled(X, y, traffic, class_mix=class_mix)
    for key in ("tpr", "selective_risk", "accepted", "ood_prior"):
        assert getattr(got, key) == pytest.approx(getattr(want, key), rel=1e-9), key
    by_class = [model.decide(X[y == k]).accept.mean() for k in range(3)]
    if class_mix == "traffic":
        assert got.tpr.estimate == pytest.approx(np.dot(weight, by_class), abs=0.02)
    else:
        assert got.tpr.estimate == pytest.approx(model.decide(X).accept.mean())
