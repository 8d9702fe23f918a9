"""Class names are first class: networks, boosters that take codes alone, model selection, files, and every speaker."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import classification_report
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poscod import POSCOD, Activations
from poscod.cli import main
from poscod.exceptions import InvalidInputError
from poscod.plot import RejectionDisplay
from poscod.ratio import CorrectedSigmoid
from poscod.report import summarise
from poscod.review import assess, queue
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], [[4.0, 4.0]])
NAMES = np.array(["zebra", "ant", "mole"])  # not in the order of the alphabet
FAST = CorrectedSigmoid("paper", l2=1e-3)


@pytest.fixture(scope="module")
def data():
    X, y = WORLD.sample_id(180, random_state=0)
    U, _ = WORLD.sample_mixture(100, pi=0.3, random_state=1)
    fresh, y_fresh = WORLD.sample_id(300, random_state=2)
    return X, y, U, fresh, y_fresh


@pytest.fixture(scope="module")
def network(data):
    """Activations with names of the classes, and a model of them."""
    X, y, U, fresh, y_fresh = data
    head = LogisticRegression().fit(*WORLD.sample_id(600, random_state=9))

    def rows(X, labels=None):
        return Activations(X, np.log(head.predict_proba(X)), labels, classes=NAMES)

    model = POSCOD(ratio=FAST, tpr_min=0.9, random_state=0).fit(rows(X, NAMES[y]), X_unlabeled=rows(U))
    return model, rows(fresh, NAMES[y_fresh]), rows(U)


def test_a_network_with_class_names(network, data, tmp_path):
    model, fresh, traffic = network
    y_fresh = data[4]
    assert model.classes_.tolist() == NAMES.tolist()
    assert fresh.labels.tolist() == y_fresh.tolist()
    numbered = Activations(fresh.features, fresh.logits, y_fresh)
    said = model.predict(numbered)
    assert set(said.tolist()) == {*NAMES.tolist(), "rejected"}
    assert (model.predict_id(fresh) == NAMES[y_fresh]).mean() > 0.9
    assert "rejected" in classification_report(NAMES[y_fresh], said, zero_division=0)
    by_name = model.evaluate(fresh, NAMES[y_fresh], traffic)
    again = POSCOD(ratio=FAST, tpr_min=0.9, random_state=0).fit(
        Activations(*(getattr(fresh, n) for n in ("features", "logits")), classes=NAMES), y_fresh, X_unlabeled=traffic
    )
    assert again.classes_.tolist() == NAMES.tolist()  # y as class indices
    assert by_name.selective_risk.estimate < 0.1
    model.save(tmp_path / "m.poscod")
    loaded = POSCOD.load(tmp_path / "m.poscod")
    assert loaded.predict(fresh).tolist() == said.tolist()


def test_names_reach_every_speaker(network, data):
    model, fresh, traffic = network
    truth = NAMES[data[4]]
    counts = RejectionDisplay.from_estimator(model, fresh, truth).frame().groupby("name")["count"].sum()
    assert counts.to_dict() == {name: int((truth == name).sum()) for name in NAMES}
    chosen = queue(model, traffic, 60, random_state=0)
    verdicts = [str(name) for name in chosen.answer]
    found = assess(model, traffic, chosen, verdicts)
    assert found.error.estimate == 0.0  # each verdict is the answer
    found = summarise(model, X=fresh, y=truth, X_unlabeled=traffic)["examples"]
    wrong = [row for row in found if row["reason"] == "accepted, but wrong"]
    assert all(row["answer"] != row["truth"] for row in wrong)
    assert {row["answer"] for row in found} <= set(NAMES)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_names_are_kept_in_files(network, kind, tmp_path):
    _, fresh, _ = network
    fresh.save(tmp_path / f"a.{kind}")
    found = Activations.load(tmp_path / f"a.{kind}")
    assert found.classes.tolist() == NAMES.tolist()
    assert found.labels.tolist() == fresh.labels.tolist()
    assert found[:3].classes is found.classes


def test_what_a_network_refuses():
    logits = [[1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(
        InvalidInputError, match=r"labels holds texts, such as 'a', .* pass Activations\(\.\.\., classes"
    ):
        Activations(logits=logits, labels=["a", "b"])
    with pytest.raises(InvalidInputError, match=r"must hold one of the classes .*got 'c' at row 1"):
        Activations(logits=logits, labels=["a", "c"], classes=["a", "b"])
    for wrong in (["a"], ["a", "a"], [1, 2]):
        with pytest.raises(InvalidInputError, match="classes must be 2 different texts"):
            Activations(logits=logits, classes=wrong)
    assert Activations(logits=logits, labels=["b", -1], classes=["a", "b"]).labels.tolist() == [1, -1]


def test_model_selection_with_texts(data):
    """The way of the documentation: unlabeled rows marked by -1, joined by numpy."""
    X, y, U, *_ = data
    rows, marks = np.vstack([X, U]), np.r_[NAMES[y], np.full(len(U), -1)]
    model = POSCOD(LogisticRegression(), FAST, random_state=0, calibration=2)
    search = GridSearchCV(model, {"classifier__C": [1e-6, 1.0]}, cv=2, error_score="raise", refit=False)
    worse, better = search.fit(rows, marks).cv_results_["mean_test_score"]
    assert better > worse  # a classifier that learns nothing is worse
    words = cross_validate(model, rows, marks, cv=2, error_score="raise")["test_score"]
    assert words.mean() == pytest.approx(better)


def test_types_of_labels_agree(data):
    """Whatever holds the labels, the answers are the same."""
    X, y, U, fresh, _ = data
    fit = lambda labels: POSCOD(LogisticRegression(), FAST, random_state=0, calibration=2).fit(X, labels, X_unlabeled=U)  # noqa: E731
    want = fit(NAMES[y]).predict(fresh).tolist()
    for labels in (pd.Categorical(NAMES[y]), pl.Series(NAMES[y])):
        assert fit(labels).predict(fresh).tolist() == want
    both = fit(y == 0)
    assert both.classes_.tolist() == [False, True]
    assert set(both.predict(fresh).tolist()) == {-1, 0, 1}
    with pytest.raises(InvalidInputError, match="reject_label must be none of the classes"):
        POSCOD(reject_label="ant").fit(X, NAMES[y], X_unlabeled=U)


def boosters():
    xgboost, lightgbm, catboost = (pytest.importorskip(name) for name in ("xgboost", "lightgbm", "catboost"))
    return {
        "xgboost": xgboost.XGBClassifier(n_estimators=10, max_depth=2, n_jobs=1),
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1),
        "catboost": catboost.CatBoostClassifier(iterations=10, verbose=0, thread_count=1, allow_writing_files=False),
    }


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost"])
@pytest.mark.parametrize("labels", [NAMES, np.array([3, 7, 40])], ids=["texts", "gaps"])
def test_boosters_take_any_label(name, labels, data):
    X, y, U, fresh, y_fresh = data
    model = POSCOD(boosters()[name], FAST, random_state=0, calibration=2).fit(X, labels[y], X_unlabeled=U)
    assert (model.predict_id(fresh) == labels[y_fresh]).mean() > 0.9


def test_a_class_that_a_fold_lacks_and_a_pipeline(data):
    """XGBoost needs 0, 1, 2, ... without gaps in every fold; a class with one row is missing in one."""
    X, y, U, fresh, y_fresh = data
    some = np.r_[np.flatnonzero(y != 1), np.flatnonzero(y == 1)[:1]]
    model = make_pipeline(StandardScaler(), boosters()["xgboost"])
    fitted = POSCOD(model, FAST, random_state=0, calibration=2).fit(X[some], NAMES[y[some]], X_unlabeled=U)
    apart = y_fresh != 1
    assert (fitted.predict_id(fresh[apart]) == NAMES[y_fresh[apart]]).mean() > 0.9


def test_what_a_classifier_says_of_bad_rows_stays(data):
    X, y, U, *_ = data
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        POSCOD(LogisticRegression(), FAST).fit(holes, NAMES[y], X_unlabeled=U)


def test_onnx_names_the_classes(network):
    onnx = pytest.importorskip("poscod.backends.onnx")
    model, *_ = network
    facts = {entry.key: entry.value for entry in onnx.export_rule(model).metadata_props}
    assert json.loads(facts["poscod.classes"]) == NAMES.tolist()


def test_names_in_another_order_are_refused(network):
    model, fresh, _ = network
    other = Activations(fresh.features, fresh.logits, classes=NAMES[::-1])
    with pytest.raises(
        InvalidInputError, match=r"X must have the classes of the rows given to fit.*'zebra'.*got 'mole'"
    ):
        model.predict(other)


def test_the_shell_reads_the_names_of_a_file(network, tmp_path, capsys):
    """Saved from Python or fitted by the shell: evaluate and predict know the classes by name."""
    model, fresh, traffic = network
    for name, rows in (("fresh", fresh), ("traffic", traffic)):
        rows.save(tmp_path / f"{name}.npz")
    model.save(tmp_path / "python.poscod")
    files = [str(tmp_path / "fresh.npz"), str(tmp_path / "traffic.npz")]
    options = ["--target", "labels", "--logits", "logits", "--embedding", "features", "--ratio", "paper", "--quiet"]
    main(["fit", *files, *options, "-o", str(tmp_path / "shell.poscod")])
    assert POSCOD.load(tmp_path / "shell.poscod").schema_.classes == tuple(NAMES)
    for kind in ("python", "shell"):
        path, out = str(tmp_path / f"{kind}.poscod"), tmp_path / f"{kind}.csv"
        main(["predict", path, files[0], "-o", str(out), "--only-decisions"])
        found = pd.read_csv(out)
        assert set(found["prediction"]) == {*NAMES, "rejected"}
        capsys.readouterr()
        assert main(["evaluate", path, "--id", files[0], "--target", "labels", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == {"id": len(fresh)}
