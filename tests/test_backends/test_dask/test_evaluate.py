"""Evaluation on a cluster: names, values and intervals as in memory, whatever the chunks."""

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

from poscod import POSCOD, Activations, metrics
from poscod.backends import dask as backend
from poscod.backends.dask._chunks import as_chunks
from poscod.backends.dask._evaluate import read_chunks
from poscod.backends.dask._passes import Passes
from poscod.exceptions import InvalidInputError
from poscod.model import NoUnlabeledDataWarning, check_ratio, estimate_share, judge, measure, read_sample, rules_of
from poscod.ratio import CorrectedSigmoid

NAMES = ["a", "b", "c", "d"]
COSTS = np.array([[0.0, 1.0, 2.5], [0.7, 0.0, 1.0], [4.0, 0.3, 0.0]])


@pytest.fixture(scope="module")
def rows(world):
    X, y = world(401, seed=11)
    ood, _ = world(230, pi=1.0, seed=12)
    traffic, _ = world(350, pi=0.3, seed=13)
    return X, y, ood, traffic


@pytest.fixture(scope="module", params=["zero_one", "costs"])
def model(request, world):
    X, y = world(900, seed=1)
    U, _ = world(700, pi=0.3, seed=2)
    T, t = world(600, seed=3)
    loss = COSTS if request.param == "costs" else "zero_one"
    chosen = POSCOD(FrozenEstimator(LogisticRegression().fit(T, t)), CorrectedSigmoid("paper", l2=1e-3), alpha=0.3, tpr_min=0.85, loss=loss, random_state=7)  # fmt: skip
    return chosen.fit(X, y, X_unlabeled=U)


def cut(n):
    """Ways to cut n rows into chunks, empty ones among them."""
    return st.lists(st.integers(0, n), max_size=5).map(lambda cuts: tuple(np.diff([0, *sorted(cuts), n]).tolist()))


def flat(found):
    """All numbers of an evaluation in one list."""
    return [x for part in found for x in (part if isinstance(part, tuple) else (part,)) if not isinstance(x, str)]


@settings(max_examples=4)
@given(cuts=st.tuples(cut(401), cut(230), cut(350), cut(401)))
def test_evaluation_is_that_of_rows_in_memory_for_any_chunks(model, rows, cuts):
    X, y, ood, traffic = rows
    lazy = [da.from_array(part, chunks=(sizes, 4)) for part, sizes in zip((X, ood, traffic), cuts, strict=False)]
    labels = da.from_array(y, chunks=(cuts[3],))
    found = backend.evaluate(model, lazy[0], labels, lazy[1], level=0.9)
    assert found == model.evaluate(X, y, ood, level=0.9)
    free = backend.evaluate_unlabeled(model, lazy[0], y, lazy[2], pi=0.3)
    assert flat(free) == flat(model.evaluate_unlabeled(X, y, traffic, pi=0.3))


def test_the_share_of_ood_inputs_is_that_of_rows_in_memory(model, rows):
    X, y, _, traffic = rows
    lazy = [da.from_array(part, chunks=(77, 4)) for part in (X, traffic)]
    found = backend.evaluate_unlabeled(model, lazy[0], y, lazy[1])
    expected = model.evaluate_unlabeled(X, y, traffic)
    assert flat(found) == pytest.approx(flat(expected), rel=1e-9, nan_ok=True)
    assert 0.1 < found.ood_prior.estimate < 0.6
    assert found.fpr.reason == expected.fpr.reason


def test_without_a_ratio_any_share_is_possible(world, rows):
    X, y, _, traffic = rows
    with pytest.warns(NoUnlabeledDataWarning):
        model = POSCOD(FrozenEstimator(LogisticRegression().fit(X, y)), random_state=7).fit(*world(300, seed=4))
    found = backend.evaluate_unlabeled(model, da.from_array(X, chunks=100), y, da.from_array(traffic, chunks=100))
    assert found.ood_prior == metrics.Interval(0.0, 0.0, 1.0, 0.95)
    assert flat(found) == pytest.approx(flat(model.evaluate_unlabeled(X, y, traffic)), nan_ok=True)


def test_frames_and_networks(world, rows):
    X, y, ood, _ = rows
    T, t = world(600, seed=3)
    label = np.array(["x", "y", "z"])
    frames = [pd.DataFrame(part, columns=NAMES) for part in (T, X, ood)]
    other, o = world(600, seed=8)
    model = POSCOD(FrozenEstimator(LogisticRegression().fit(pd.DataFrame(other, columns=NAMES), label[o])), CorrectedSigmoid("paper", ood_prior=0.3), random_state=7)  # fmt: skip
    model = model.fit(frames[0], label[t], X_unlabeled=frames[2])
    lazy = [dd.from_pandas(frame.assign(key=1.0), npartitions=3) for frame in frames[1:]]
    series = dd.from_pandas(pd.Series(label[y]), npartitions=2)
    assert backend.evaluate(model, lazy[0], series, lazy[1]) == model.evaluate(frames[1], label[y], frames[2])
    network = POSCOD(ratio=CorrectedSigmoid("paper", ood_prior=0.3), alpha=0.2, random_state=7)
    network = network.fit(Activations(T, 2.0 * T[:, :3]), t, X_unlabeled=Activations(ood, 2.0 * ood[:, :3]))
    parts = [
        backend.DaskActivations(da.from_array(2.0 * part[:, :3], chunks=(90, 3)), da.from_array(part, chunks=(90, 4)))
        for part in (X, ood)
    ]
    expected = network.evaluate(Activations(X, 2.0 * X[:, :3]), y, Activations(ood, 2.0 * ood[:, :3]))
    assert backend.evaluate(network, parts[0], y, parts[1]) == expected


@pytest.fixture
def lazy(rows):
    X, _, ood, traffic = rows
    return {
        "id": as_chunks(da.from_array(X, chunks=(77, 4)), "X_id", Passes()),
        "ood": as_chunks(da.from_array(ood, chunks=(150, 4)), "X_ood", Passes()),
        "unlabeled": as_chunks(da.from_array(traffic, chunks=(100, 4)), "X_unlabeled", Passes()),
    }


def test_rules_and_findings_are_those_of_rows_in_memory(model, rows, lazy, monkeypatch):
    X, y, ood, traffic = rows
    here, there = read_sample(model, X, y, ood, traffic), read_chunks(model, lazy, y, Passes())
    assert there.sizes == here.sizes == {"id": 401, "ood": 230, "unlabeled": 350}
    np.testing.assert_array_equal(there.loss, here.loss)
    for name, decisions in here.groups.items():
        np.testing.assert_allclose(there.groups[name].score, decisions.score, rtol=1e-12)
    rules = rules_of(here)
    assert list(there.measured) == [rule.name for rule in rules] == ["poscod", "risk", "ratio", "sirc"]
    for rule in rules:
        mine, theirs = there.measured[rule.name], measure(rule, here)
        assert flat(mine[:2]) + flat(mine.with_ood) == flat(theirs[:2]) + flat(theirs.with_ood)
        assert flat(mine.without) == pytest.approx(flat(theirs.without), rel=1e-9, nan_ok=True)
    monkeypatch.setattr("poscod.model._evaluate._DIAGNOSED", 100)
    found = read_chunks(model, lazy, y, Passes(), rules=rules[:1]).diagnosis
    assert found["n_id"] <= 100
    assert found["findings"] == check_ratio(model, X, y, traffic)["findings"]


def test_counts_are_of_all_rows_and_only_the_share_comes_from_a_sample(model, rows, lazy):
    X, y, ood, traffic = rows
    whole = model.evaluate_unlabeled(X, y, traffic)
    found = read_chunks(model, lazy, y, Passes(), most=120)
    assert {name: len(rows) for name, rows in found.groups.items()} == {"id": 120, "ood": 120, "unlabeled": 120}
    assert found.sizes == {"id": 401, "ood": 230, "unlabeled": 350}
    part = found.measured["poscod"]
    assert part.with_ood == model.evaluate(X, y, ood)
    assert part.without.accepted == whole.accepted
    assert part.without.tpr == whole.tpr
    # The share is that of the sample: of its own log-ratios, and with the wider interval of fewer rows.
    groups = found.groups
    assert part.without.ood_prior == estimate_share(groups["id"].log_ratio, groups["unlabeled"].log_ratio, 0.95)
    assert part.without.ood_prior.estimate == pytest.approx(whole.ood_prior.estimate, abs=0.15)
    assert part.without.ood_prior != whole.ood_prior
    decisions, loss, _ = judge(model, X, y)
    pairs = set(zip(decisions.score.round(9), loss, strict=True))
    assert set(zip(groups["id"].score.round(9), found.loss, strict=True)) <= pairs


def test_bad_input_is_refused_in_a_sentence(model, rows):
    X, y, ood, _ = rows
    lazy, other = da.from_array(X, chunks=(200, 4)), da.from_array(ood, chunks=(200, 4))
    with pytest.raises(InvalidInputError, match=r"y must have as many rows as X \(401\), got 400"):
        backend.evaluate(model, lazy, y[:-1], other)
    with pytest.raises(InvalidInputError, match="y must hold labels seen at fit, got 9"):
        backend.evaluate(model, lazy, np.r_[y[:-1], 9], other)
    with pytest.raises(InvalidInputError, match="X_ood must have at least one row"):
        backend.evaluate(model, lazy, y, other[:0])
    with pytest.raises(InvalidInputError, match="X_ood must be a two-dimensional Dask array"):
        backend.evaluate(model, lazy, y, ood)
    with pytest.raises(InvalidInputError, match="level"):
        backend.evaluate(model, lazy, y, other, level=1.5)
