from __future__ import annotations

import dataclasses

import dask.array as da
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import poscod.backends.dask._decide as deciding
from poscod import POSCOD, Activations
from poscod.backends import dask as backend
from poscod.backends.dask import _fit
from poscod.exceptions import InvalidInputError
from poscod.model import NoUnlabeledDataWarning, Schema
from poscod.ratio import CorrectedSigmoid, StandardSigmoid
from poscod.selector import solve

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
    model = POSCOD(
        classifier, CorrectedSigmoid("paper", l2=1e-3), alpha=0.3, tpr_min=0.9, calibration=0.5, random_state=7
    )
    return model.fit(X, y, X_unlabeled=U)


def assert_same(found, expected):
    assert type(found) is POSCOD
    np.testing.assert_allclose(found.ratio_.model_.theta, expected.ratio_.model_.theta, rtol=1e-8, atol=1e-8)
    assert found.scorer_.temperature == pytest.approx(expected.scorer_.temperature, rel=1e-8)
    assert found.ood_prior_ == pytest.approx(expected.ood_prior_, rel=1e-8)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)
    assert found.rule_ == dataclasses.replace(expected.rule_, threshold=found.threshold_)
    assert str(found.rule_) == str(expected.rule_)
    assert found.scorer_.uses_features == expected.scorer_.uses_features
    assert found.schema_ == expected.schema_
    np.testing.assert_array_equal(found.classes_, expected.classes_)
    np.testing.assert_array_equal(found.calibration_.codes, expected.calibration_.codes)
    for name in ("logits", "log_ratio", "traffic_logits", "traffic_log_ratio"):
        mine, theirs = getattr(found.calibration_, name), getattr(expected.calibration_, name)
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-8)


def test_arrays_give_the_model_of_rows_in_memory(data, in_memory, tmp_path):
    X, y, U, _ = data
    found = backend.fit(in_memory, lazy(X, 250), da.from_array(y, chunks=77), lazy(U, 400))
    assert_same(found, in_memory)
    found.save(tmp_path / "model.poscod")
    again = POSCOD.load(tmp_path / "model.poscod")
    np.testing.assert_array_equal(again.decide(U).accept, in_memory.decide(U).accept)
    assert found.at(tpr_min=0.8).threshold_ == pytest.approx(in_memory.at(tpr_min=0.8).threshold_, rel=1e-8)


@pytest.mark.parametrize(("limit", "value", "rows"), [("SAMPLE_ROWS", 60, 60), ("SAMPLE_NUMBERS", 200, 66)])
def test_a_sample_sets_the_threshold_and_all_that_is_promised(data, in_memory, monkeypatch, limit, value, rows):
    X, y, U, _ = data
    monkeypatch.setattr(_fit, limit, value)
    found = backend.fit(in_memory, lazy(X, 250), y, lazy(U, 400))
    kept, every = found.calibration_, in_memory.calibration_
    assert found.rule_.rows == len(kept) == rows
    assert f" {rows} " in str(found.rule_)
    # These very rows set the threshold, and they are some of the rows that are held out in memory.
    assert solve(found.rule_.problem, kept) == found.rule_
    assert found.threshold_ != pytest.approx(in_memory.threshold_, rel=1e-6)
    assert set(np.round(kept.log_ratio, 5)) <= set(np.round(every.log_ratio, 5))
    assert len(set(kept.codes.tolist())) == 3
    for other in (found.at(tpr_min=0.7), found.budget(0.4)):
        assert other.calibration_ is kept
        assert other.rule_.rows == rows
    sure = backend.fit(clone(in_memory).set_params(threshold="guaranteed"), lazy(X, 250), y, lazy(U, 400))
    assert sure.rule_.promise.confidence == 0.95
    assert sure.rule_ == solve(sure.rule_.problem, sure.calibration_, delta=0.05)
    assert sure.control_risk(0.4).rule_.promise.quantity == "selective_risk"


@pytest.mark.parametrize("threshold", ["empirical", "guaranteed"])
def test_every_class_reaches_the_tpr_as_in_memory(data, in_memory, threshold):
    X, y, U, _ = data
    asked = clone(in_memory).set_params(tpr_over="classes", threshold=threshold, tpr_min=0.8)
    expected, found = clone(asked).fit(X, y, X_unlabeled=U), backend.fit(asked, lazy(X, 250), y, lazy(U, 400))
    assert_same(found, expected)
    assert found.rule_.promise.over == "classes"
    assert found.threshold_ > clone(asked).set_params(tpr_over="all").fit(X, y, X_unlabeled=U).threshold_
    assert found.at(alpha=0.1).rule_.promise.over == "classes"


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::poscod.model.ClassMixWarning"
)  # at its level; the guarantee is for the labeled rows' mix either way
def test_the_guarantee_of_a_sample_holds(world, monkeypatch):
    """Count how often TPR falls below what is guaranteed: at most delta, of models whose sample is a part of the held-out rows."""
    monkeypatch.setattr(_fit, "SAMPLE_ROWS", 150)
    T, t = world(600, seed=3)
    fresh, _ = world(20_000, seed=4)
    U, _ = world(400, pi=0.3, seed=2)
    ratio = CorrectedSigmoid("paper", l2=1e-2, ood_prior=0.3, max_iter=20)
    classifier = FrozenEstimator(LogisticRegression().fit(T, t))
    missed = 0
    for seed in range(120):
        X, y = world(900, seed=100 + seed)
        model = POSCOD(classifier, ratio, tpr_min=0.85, threshold="guaranteed", delta=0.2, random_state=seed)
        missed += backend.fit(model, lazy(X, 450), y, lazy(U, 400)).decide(fresh).accept.mean() < 0.85
    assert 2 <= missed <= 36  # 24 expected at most; binomial 3 standard deviations


def test_text_columns_go_through_the_pipeline(world):
    X, y = world(400, seed=1)
    U, _ = world(300, pi=0.3, seed=2)
    frames = [pd.DataFrame({"kind": np.where(part[:, 0] > 3.0, "big", "small"), "x": part[:, 1], "z": part[:, 2]}) for part in (X, U)]  # fmt: skip
    steps = ColumnTransformer([("kind", OneHotEncoder(), ["kind"])], remainder="passthrough")
    classifier = make_pipeline(steps, LogisticRegression()).fit(frames[0], y)
    model = POSCOD(
        FrozenEstimator(classifier), CorrectedSigmoid("paper", l2=1e-2, ood_prior=0.3), calibration=0.5, random_state=7
    )
    found = backend.fit(model, dd.from_pandas(frames[0], npartitions=3), y, dd.from_pandas(frames[1][["z", "kind", "x"]], npartitions=2))  # fmt: skip
    assert_same(found, model.fit(frames[0], y, X_unlabeled=frames[1]))
    assert found.ratio_.columns_["features"] == 4


def test_a_gap_leaves_the_features_out(data):
    X, y, U, _ = data
    frozen = FrozenEstimator(HistGradientBoostingClassifier(max_iter=5).fit(X, y))
    model = POSCOD(frozen, CorrectedSigmoid("paper", l2=1e-2, ood_prior=0.3), calibration=0.5, random_state=7)
    U = U.copy()
    U[5, 1] = np.nan
    found = backend.fit(model, lazy(X, 250), y, lazy(U, 400))
    assert_same(found, model.fit(X, y, X_unlabeled=U))
    assert not found.scorer_.uses_features
    assert found.ratio_.columns_ == {"features": 3, "logits": 3}


def test_frames_give_the_model_of_rows_in_memory(world):
    X, y = world(500, seed=1)
    U, _ = world(400, pi=0.3, seed=2)
    T, t = world(600, seed=3)
    X, U, T = (pd.DataFrame(part, columns=NAMES) for part in (X, U, T))
    label = np.array(["x", "y", "z"])
    classifier = FrozenEstimator(LogisticRegression().fit(T, label[t]))
    model = POSCOD(
        classifier, CorrectedSigmoid("paper", ood_prior=0.3), threshold="guaranteed", calibration=0.5, random_state=7
    )
    expected = model.fit(X, label[y], X_unlabeled=U)
    found = backend.fit(
        model,
        dd.from_pandas(X, npartitions=3),
        dd.from_pandas(pd.Series(label[y]), npartitions=4),
        dd.from_pandas(U, npartitions=2),
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
    model = POSCOD(ratio=CorrectedSigmoid("paper", ood_prior=0.3), calibration=0.5, random_state=7, tpr_min=0.8)
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
    marked = POSCOD(classifier, CorrectedSigmoid("paper", ood_prior=0.3), calibration=0.5, random_state=7)
    X, y = np.concatenate([X, U]), np.r_[y, np.full(len(U), -1)]
    assert_same(backend.fit(marked, lazy(X, 350), y), marked.fit(X, y))


def test_a_sample_trains_what_needs_its_rows_in_memory(world):
    X, y = world(600, seed=1)
    U, _ = world(500, pi=0.3, seed=2)
    model = POSCOD(ratio=StandardSigmoid(l2=0.01), calibration=0.5, random_state=7)
    with pytest.raises(InvalidInputError, match="needs its rows in memory"):
        backend.fit(model, lazy(X, 250), y, lazy(U, 250))
    with pytest.raises(InvalidInputError, match=r"classifier must be fitted already, .* sample_rows"):
        backend.fit(model.set_params(ratio=CorrectedSigmoid("paper")), lazy(X, 250), y, lazy(U, 250))
    model.set_params(ratio=StandardSigmoid(l2=0.01))
    found = backend.fit(model, lazy(X, 250), y, lazy(U, 250), sample_rows=10_000)
    expected = model.fit(X, y, X_unlabeled=U)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)
    frames = [dd.from_pandas(pd.DataFrame(part, columns=NAMES), npartitions=3) for part in (X, U)]
    framed = backend.fit(model, frames[0], y, frames[1], sample_rows=10_000)
    assert framed.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)
    assert framed.classifier_.feature_names_in_.tolist() == NAMES
    fewer = backend.fit(model, lazy(X, 250), y, lazy(U, 250), sample_rows=150)
    assert fewer.classifier_.predict(X).shape == (600,)
    assert fewer.threshold_ != found.threshold_
    with pytest.raises(InvalidInputError, match="hold only some of the classes"):
        backend.fit(model, lazy(X, 250), y, lazy(U, 250), sample_rows=2)


def test_without_traffic_the_rule_uses_the_risk_alone(data):
    X, y, _, classifier = data
    with pytest.warns(NoUnlabeledDataWarning, match="No unlabeled rows"):
        found = backend.fit(POSCOD(classifier, calibration=0.5, random_state=7), lazy(X, 400), y)
    with pytest.warns(NoUnlabeledDataWarning):
        expected = POSCOD(classifier, calibration=0.5, random_state=7).fit(X, y)
    assert found.ratio_ is None
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)


def test_auto_is_a_share_here(data, in_memory):
    X, y, U = data[:3]
    found = backend.fit(clone(in_memory).set_params(calibration="auto"), lazy(X, 250), y, lazy(U, 400))
    assert found.calibration == "auto"
    assert found.calibration_.held_out
    assert_same(found, in_memory)


def test_bad_input_is_refused_in_a_sentence(data, in_memory, tmp_path):
    X, y, U, classifier = data
    rows, traffic = lazy(X, 400), lazy(U, 400)
    with pytest.raises(InvalidInputError, match="calibration must be a share of the rows here, got 5 folds"):
        backend.fit(POSCOD(classifier, calibration=5), rows, y, traffic)
    with pytest.raises(InvalidInputError, match="y must have as many rows as X"):
        backend.fit(in_memory, rows, y[:-1], traffic)
    with pytest.raises(InvalidInputError, match="got ndarray: rows in memory need no Dask"):
        backend.fit(in_memory, X, y, traffic)
    with pytest.raises(InvalidInputError, match=r"X_unlabeled must have rows like those of X, with 4 .*, got 3"):
        backend.fit(in_memory, rows, y, lazy(U[:, :3], 400))
    with pytest.raises(InvalidInputError, match="X must be of the kind given to fit: DaskActivations or not"):
        backend.decide(in_memory, backend.DaskActivations(traffic))
    with pytest.raises(InvalidInputError, match="sample_rows must be"):
        backend.fit(in_memory, rows, y, traffic, sample_rows=0)
    with pytest.raises(NotFittedError):
        backend.decide(POSCOD(), traffic)
    frame = dd.from_pandas(pd.DataFrame(U, columns=NAMES), npartitions=2)
    known = dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=2)
    with pytest.raises(InvalidInputError, match="X_unlabeled lacks the column 'd'"):
        backend.fit(in_memory, known, y, frame[NAMES[:3]])
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


def test_a_frame_is_read_by_the_names_that_a_model_knows(data, in_memory):
    X, y, U, classifier = data
    frame = dd.from_pandas(pd.DataFrame(U[:, ::-1], columns=NAMES[::-1]).assign(other="text"), npartitions=3)
    named = in_memory.with_schema(Schema(tuple(NAMES), n_features=4))
    found = backend.decide(named, frame, keep=["other"]).compute()
    pd.testing.assert_frame_equal(found.drop(columns="other"), in_memory.decide(U).to_pandas(), rtol=1e-6)
    with pytest.raises(InvalidInputError, match="X lacks the column 'b' that the model reads"):
        backend.decide(named, frame.drop(columns="b"))
    logits = [np.log(classifier.predict_proba(part)) for part in (X, U)]
    network = POSCOD(ratio=CorrectedSigmoid("paper", ood_prior=0.3), calibration=0.5, random_state=7)
    network = network.fit(Activations(X, logits[0]), y, X_unlabeled=Activations(U, logits[1]))
    schema = Schema(tuple(NAMES), ("p", "q", "r"), probabilities=True, n_features=4, n_logits=3)
    probabilities = pd.DataFrame(np.exp(logits[1]), columns=["p", "q", "r"])
    frame = dd.from_pandas(pd.concat([pd.DataFrame(U, columns=NAMES), probabilities], axis=1), npartitions=3)
    found = backend.decide(network.with_schema(schema), frame).compute()
    expected = network.decide(Activations(U, logits[1]))
    np.testing.assert_array_equal(found["accept"], expected.accept)
    np.testing.assert_allclose(found["score"], expected.score, rtol=1e-5)
    assert backend.evaluate(network.with_schema(schema), frame, np.zeros(700, int), frame).tpr.estimate == pytest.approx(expected.accept.mean())  # fmt: skip


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
