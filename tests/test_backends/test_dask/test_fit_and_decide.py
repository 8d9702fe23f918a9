from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import poscod.backends.dask._decide as deciding
from poscod import POSCOD, Activations
from poscod._comparison import promised_tpr, sets_threshold
from poscod.backends import dask as backend
from poscod.cli._models import promise
from poscod.estimator import NoUnlabeledDataWarning
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid, StandardSigmoid
from poscod.serve._model import describe_rule

NAMES = ["a", "b", "c", "d"]


def lazy(X, rows):
    return da.from_array(X, chunks=(rows, X.shape[1]))


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["float32", "float64"])
def data(request, world):
    X, y = world(900, dtype=request.param, seed=1)
    U, _ = world(700, pi=0.3, dtype=request.param, seed=2)
    T, t = world(600, dtype=request.param, seed=3)
    return X, y, U, FrozenEstimator(LogisticRegression().fit(T, t))


@pytest.fixture(scope="module")
def in_memory(data):
    X, y, U, classifier = data
    model = POSCOD(classifier, CorrectedSigmoid("paper", l2=1e-3), alpha=0.3, tpr_min=0.9, random_state=7)
    return model.fit(X, y, X_unlabeled=U)


def assert_same(found, expected):
    assert type(found) is POSCOD
    np.testing.assert_allclose(found.ratio_.model_.theta, expected.ratio_.model_.theta, rtol=1e-8, atol=1e-8)
    for name in ("ood_prior_", "temperature_", "threshold_", "tau_", "beta_"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-8), name
    assert found.uses_features_ == expected.uses_features_
    np.testing.assert_array_equal(found.classes_, expected.classes_)


@pytest.mark.parametrize("keep_rows", [100_000, 60])
def test_arrays_give_the_model_of_one_memory(data, in_memory, keep_rows, tmp_path):
    X, y, U, _ = data
    found = backend.fit(
        in_memory, lazy(X, 250), da.from_array(y, chunks=77), lazy(U, 400), keep_rows=keep_rows
    )
    assert_same(found, in_memory)
    assert len(found.calibration_.log_ratio) == min(keep_rows, len(in_memory.calibration_.log_ratio))
    np.testing.assert_allclose(
        found.calibration_.traffic_log_ratio, in_memory.calibration_.traffic_log_ratio, rtol=1e-8, atol=1e-8
    )
    found.save(tmp_path / "model.poscod")
    again = POSCOD.load(tmp_path / "model.poscod")
    np.testing.assert_array_equal(again.decide(U).accept, in_memory.decide(U).accept)
    if keep_rows > 1000:  # the rows that were kept are the same, too
        assert found.at(tpr_min=0.8).threshold_ == pytest.approx(in_memory.at(tpr_min=0.8).threshold_, rel=1e-8)


def test_the_promise_of_a_model_that_keeps_few_rows(data, in_memory, tmp_path):
    X, y, U, _ = data
    found = backend.fit(in_memory, lazy(X, 250), y, lazy(U, 400), keep_rows=60)
    found.save(tmp_path / "model.poscod")
    again = POSCOD.load(tmp_path / "model.poscod")
    arrays = again._arrays(again.problem_)
    assert promised_tpr(again, arrays) == 0.9
    assert not sets_threshold(again, arrays)
    assert f"threshold set on {len(in_memory.calibration_.codes)} held-out rows" in promise(again)
    assert "About 0.9 of ID inputs are accepted" in describe_rule(again)["promise"]
    moved = again.at(tpr_min=0.8)
    assert promised_tpr(moved, moved._arrays(moved.problem_)) == 0.8
    assert promised_tpr(again.budget(0.5), arrays) is None
    assert "No TPR is promised" in describe_rule(again.budget(0.5))["promise"]


def test_frames_give_the_model_of_one_memory(world):
    X, y = world(500, seed=1)
    U, _ = world(400, pi=0.3, seed=2)
    T, t = world(600, seed=3)
    X, U, T = (pd.DataFrame(part, columns=NAMES) for part in (X, U, T))
    label = np.array(["x", "y", "z"])
    classifier = FrozenEstimator(LogisticRegression().fit(T, label[t]))
    model = POSCOD(classifier, CorrectedSigmoid("paper", ood_prior=0.3), threshold="guaranteed", random_state=7)
    expected = model.fit(X, label[y], X_unlabeled=U)
    found = backend.fit(
        model,
        dd.from_pandas(X, npartitions=3),
        dd.from_pandas(pd.Series(label[y]), npartitions=4),
        dd.from_pandas(U, npartitions=2),
        keep_rows=100,
    )
    assert_same(found, expected)
    assert found.feature_names_in_.tolist() == NAMES
    table = backend.decide(found, dd.from_pandas(U.assign(key=np.arange(400)), npartitions=5), keep=["key"])
    result = table.compute(scheduler="sync")
    assert result["key"].tolist() == list(range(400))
    decisions = found.decide(U).to_pandas()
    pd.testing.assert_frame_equal(result.drop(columns="key"), decisions, rtol=1e-12)
    assert table.dtypes.drop("key").equals(decisions.dtypes)


def test_networks_and_marked_rows(data):
    X, y, U, classifier = data
    logits = [np.log(classifier.predict_proba(part)) for part in (X, U)]
    model = POSCOD(ratio=CorrectedSigmoid("paper", ood_prior=0.3), random_state=7, tpr_min=0.8)
    expected = model.fit(Activations(X, logits[0]), y, X_unlabeled=Activations(U, logits[1]))
    both = [
        backend.DaskActivations(lazy(a, 300), None if b is None else lazy(b, 300))
        for a, b in zip(logits, (X, U), strict=True)
    ]
    found = backend.fit(model, both[0], y, both[1])
    assert_same(found, expected)
    table = backend.decide(found, both[1]).compute(scheduler="sync")
    np.testing.assert_allclose(table["score"], expected.decide(Activations(U, logits[1])).score, rtol=1e-6)
    alone = backend.fit(model, backend.DaskActivations(lazy(logits[0], 300)), y, backend.DaskActivations(lazy(logits[1], 300)))  # fmt: skip
    assert alone.ratio_.columns_ == {"features": 3, "logits": 3}
    marked = POSCOD(classifier, CorrectedSigmoid("paper", ood_prior=0.3), random_state=7)
    X, y = np.concatenate([X, U]), np.r_[y, np.full(len(U), -1)]
    assert_same(backend.fit(marked, lazy(X, 350), y), marked.fit(X, y))


def test_a_sample_trains_what_needs_one_memory(world):
    X, y = world(600, seed=1)
    U, _ = world(500, pi=0.3, seed=2)
    model = POSCOD(ratio=StandardSigmoid(l2=0.01), random_state=7)
    with pytest.raises(InvalidInputError, match="needs its rows in one memory"):
        backend.fit(model, lazy(X, 250), y, lazy(U, 250))
    with pytest.raises(InvalidInputError, match=r"classifier must be fitted already, .* sample_rows"):
        backend.fit(model.set_params(ratio=CorrectedSigmoid("paper")), lazy(X, 250), y, lazy(U, 250))
    model.set_params(ratio=StandardSigmoid(l2=0.01))
    found = backend.fit(model, lazy(X, 250), y, lazy(U, 250), sample_rows=10_000)
    expected = model.fit(X, y, X_unlabeled=U)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)
    fewer = backend.fit(model, lazy(X, 250), y, lazy(U, 250), sample_rows=150)
    assert fewer.classifier_.predict(X).shape == (600,)
    assert fewer.threshold_ != found.threshold_
    with pytest.raises(InvalidInputError, match="hold only some of the classes"):
        backend.fit(model, lazy(X, 250), y, lazy(U, 250), sample_rows=2)


def test_without_traffic_the_rule_uses_the_risk_alone(data):
    X, y, _, classifier = data
    with pytest.warns(NoUnlabeledDataWarning, match="No unlabelled rows"):
        found = backend.fit(POSCOD(classifier, random_state=7), lazy(X, 400), y)
    with pytest.warns(NoUnlabeledDataWarning):
        expected = POSCOD(classifier, random_state=7).fit(X, y)
    assert found.ratio_ is None
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)


def test_bad_input_is_refused_in_a_sentence(data, in_memory, tmp_path):
    X, y, U, classifier = data
    rows, traffic = lazy(X, 400), lazy(U, 400)
    with pytest.raises(InvalidInputError, match="calibration must be a share of the rows on a cluster, got 5 folds"):
        backend.fit(POSCOD(classifier, calibration=5), rows, y, traffic)
    with pytest.raises(InvalidInputError, match="y must have as many rows as X"):
        backend.fit(in_memory, rows, y[:-1], traffic)
    with pytest.raises(InvalidInputError, match="got ndarray: rows in this memory need no cluster"):
        backend.fit(in_memory, X, y, traffic)
    frame = dd.from_pandas(pd.DataFrame(U, columns=NAMES), npartitions=2)
    with pytest.raises(InvalidInputError, match=r"keep must name columns of X, got \['id'\]"):
        backend.decide(in_memory, frame, keep=["id"])
    with pytest.raises(InvalidInputError, match="which decisions have themselves"):
        backend.decide(in_memory, frame.rename(columns={"a": "score"}), keep=["score"])
    with pytest.raises(InvalidInputError, match="keep names columns of a Dask DataFrame"):
        backend.decide(in_memory, traffic, keep=["id"])
    (tmp_path / "old").mkdir()
    with pytest.raises(InvalidInputError, match="exists already"):
        backend.write_decisions(in_memory, traffic, tmp_path / "old")
    with pytest.raises(InvalidInputError, match="does not exist; create it first"):
        backend.write_decisions(in_memory, traffic, tmp_path / "no" / "new")


def test_empty_chunks_and_unknown_lengths_keep_their_place(data, in_memory):
    _, _, U, _ = data
    expected = in_memory.decide(U).to_pandas()
    holes = da.from_array(U, chunks=((0, 300, 0, 400), 4))
    pd.testing.assert_frame_equal(backend.decide(in_memory, holes).compute(scheduler="sync"), expected, rtol=1e-6)
    frame = dd.from_pandas(pd.DataFrame(U, columns=NAMES), npartitions=3)
    unknown = backend.decide(in_memory, frame.to_dask_array()).compute(scheduler="sync")
    pd.testing.assert_frame_equal(unknown, expected, rtol=1e-6)
    some = frame[frame["a"] > 3.0]  # a chunk may come out empty, and the index has holes
    kept = backend.decide(in_memory, some.rename(columns=dict(zip(NAMES, range(4), strict=True)))).compute(
        scheduler="sync"
    )
    assert kept.index.tolist() == np.flatnonzero(U[:, 0] > 3.0).tolist()


def test_parquet_appears_whole_or_not_at_all(data, in_memory, tmp_path, monkeypatch):
    _, _, U, _ = data
    target = tmp_path / "decisions"
    assert backend.write_decisions(in_memory, lazy(U, 150), target) == len(U)
    names = sorted(path.name for path in target.iterdir())
    assert names == [f"part-{index:06d}.parquet" for index in range(5)]
    found = pd.concat([pd.read_parquet(target / name) for name in names])
    pd.testing.assert_frame_equal(found, in_memory.decide(U).to_pandas(), rtol=1e-6, check_index_type=False)
    assert backend.write_decisions(in_memory, lazy(U, 300), "memory://poscod-test/out") == len(U)
    store = fsspec.filesystem("memory")
    assert len(store.ls("/poscod-test/out")) == 3
    store.rm("/poscod-test", recursive=True)

    def broken(*_):
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(deciding, "_write", broken)
    with pytest.raises(RuntimeError, match="the disk is full"):
        backend.write_decisions(in_memory, lazy(U, 150), tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["decisions"]
