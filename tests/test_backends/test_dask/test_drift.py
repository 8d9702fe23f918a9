"""Drift on rows in chunks: looked for on samples of both sides, said as in memory, and acted on."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest

from poscod import POSCOD
from poscod.backends.dask import fit
from poscod.exceptions import InvalidInputError
from poscod.model import InputsDriftedWarning
from poscod.ratio import CorrectedSigmoid

CENTRES = np.random.default_rng(1).normal(0.0, 1.2, (3, 6))


def rows(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = CENTRES[y] + rng.normal(size=(n, 6))
    X[:, [1, 4]] += shift
    return X, y


def fitted(traffic, **more):
    X, y = rows(1600, 0)
    model = POSCOD(ratio=CorrectedSigmoid(), calibration=0.5, random_state=0, **more)
    return fit(model, da.from_array(X, chunks=(333, 6)), y, da.from_array(traffic, chunks=(500, 6)), sample_rows=5000)


def test_drift_is_named_and_nothing_is_certified_as_in_memory():
    traffic = rows(1200, 1, 0.6)[0]
    with pytest.warns(InputsDriftedWarning, match="have moved, as drift does") as caught:
        model = fitted(traffic)
    drift = model.calibration_.drift
    assert set(drift.columns) == {"column 1", "column 4"}
    assert model.ratio_.ood_prior_lower_bound() == 0.0
    assert model.rule_.promise.moved == "drift"
    assert caught[0].message.facts["said"] == "drift"
    X, y = rows(1600, 0)
    with pytest.warns(InputsDriftedWarning):
        here = POSCOD(ratio=CorrectedSigmoid(), calibration=0.5, random_state=0).fit(X, y, X_unlabeled=traffic)
    assert here.calibration_.drift.said == drift.said
    assert set(here.calibration_.drift.columns) == set(drift.columns)


def test_on_drift_is_done_there_too():
    traffic = rows(1200, 1, 0.6)[0]
    with pytest.raises(InvalidInputError, match="have moved, as drift does"):
        fitted(traffic, on_drift="raise")
    with pytest.warns(InputsDriftedWarning, match="Nothing was learned from this traffic"):
        model = fitted(traffic, on_drift="id_only")
    assert model.ood_prior_ == 0.0
    assert not model.ratio_.gate_open_


def test_traffic_with_strangers_that_stood_still_is_not_accused():
    strange = np.random.default_rng(3).normal(0.0, 0.7, (200, 6)) + 4.0 * np.array([1, -1] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputsDriftedWarning)
        model = fitted(np.vstack([rows(1000, 1)[0], strange]))
    assert model.calibration_.drift is None
    assert model.ratio_.ood_prior_lower_bound() > 0.1
