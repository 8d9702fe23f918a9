"""Trees, forests and boosters in model files: without a list of what to trust, and without trust in what the files say."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import zipfile

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from starlette.testclient import TestClient

from poscod import POSCOD
from poscod.model import ModelFileError, load, save
from poscod.model._kept import KEPT, class_name
from poscod.model._trees import CheckedPredictor
from poscod.ratio import CorrectedSigmoid
from poscod.serve import create_app

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 3)) + 2.5 * np.eye(3)[np.arange(90) % 3]
Y = np.array(["ant", "bee", "cow"])[np.arange(90) % 3]
TRAFFIC = np.concatenate([X[::2] + RNG.normal(0, 0.1, X[::2].shape), RNG.normal(4, 1, size=(30, 3))])
SMALL = {"n_estimators": 3, "n_jobs": 1}
CLASSIFIERS = {
    "tree": DecisionTreeClassifier(max_depth=3, random_state=0),
    "forest": RandomForestClassifier(4, random_state=0),
    "extra": ExtraTreesClassifier(3, random_state=0),
    "boosting": HistGradientBoostingClassifier(max_iter=4, min_samples_leaf=5, random_state=0),
    "xgboost": xgboost.XGBClassifier(**SMALL),
    "lightgbm": lightgbm.LGBMClassifier(**SMALL, min_child_samples=5, verbose=-1),
    "catboost": catboost.CatBoostClassifier(iterations=3, thread_count=1, verbose=0, allow_writing_files=False),
    "pipeline": make_pipeline(StandardScaler(), xgboost.XGBClassifier(**SMALL)),
}
BOOSTERS = ["boosting", "xgboost", "lightgbm", "catboost"]


def fitted(classifier):
    ratio = CorrectedSigmoid("paper", l2=1e-2)
    return POSCOD(classifier, ratio, calibration=0.5, tpr_min=0.8, random_state=0).fit(X, Y, X_unlabeled=TRAFFIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, saved; none names a type to trust."""
    place = tmp_path_factory.mktemp("kept")
    for name, classifier in CLASSIFIERS.items():
        assert fitted(classifier).save(place / f"{name}.poscod") == []
    return place


def test_a_new_process_that_trusts_nothing_decides_the_same(folder):
    code = (
        "import sys, numpy as np; from poscod import POSCOD; folder = sys.argv[1]\n"
        "X = np.load(folder + '/traffic.npy')\n"
        "for name in sys.argv[2:]: np.save(f'{folder}/{name}.npy', POSCOD.load(f'{folder}/{name}.poscod').predict_proba(X))\n"
    )
    np.save(folder / "traffic.npy", TRAFFIC)
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(folder), *CLASSIFIERS], check=True)
    for name, classifier in CLASSIFIERS.items():
        expected = fitted(classifier).predict_proba(TRAFFIC)
        assert len(np.unique(expected, axis=0)) > 1, name
        np.testing.assert_array_equal(np.load(folder / f"{name}.npy"), expected, err_msg=name)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_what_was_read_can_be_written_fitted_and_served(folder, tmp_path, name):
    model = load(folder / f"{name}.poscod")
    assert type(model.classifier) is type(CLASSIFIERS[name])
    assert save(model, tmp_path / "again.poscod") == []
    again = load(tmp_path / "again.poscod")
    np.testing.assert_array_equal(again.decide(TRAFFIC).score, model.decide(TRAFFIC).score)
    assert again.classes_.tolist() == ["ant", "bee", "cow"]
    if name in BOOSTERS:
        answer = TestClient(create_app(folder / f"{name}.poscod"), base_url="http://127.0.0.1").post(
            "/v1/decide", json={"rows": TRAFFIC[:5].tolist()}
        )
        assert answer.status_code == 200
        assert answer.json()["decisions"]["label"] == again.decide(TRAFFIC[:5]).label.tolist()


def test_categories_of_boosting_and_frozen_boosters(tmp_path):
    frame = pd.DataFrame({"a": X[:, 0], "kind": pd.Categorical(np.where(X[:, 1] > 0.5, "x", "y"))})
    for classifier in (
        HistGradientBoostingClassifier(max_iter=4, min_samples_leaf=5, categorical_features="from_dtype"),
        lightgbm.LGBMClassifier(**SMALL, min_child_samples=5, verbose=-1),
        xgboost.XGBClassifier(**SMALL, enable_categorical=True),
    ):
        classifier.fit(frame, np.arange(90) % 3)
        save(POSCOD(FrozenEstimator(classifier)), tmp_path / "m.poscod")
        back = load(tmp_path / "m.poscod").classifier.estimator
        np.testing.assert_array_equal(back.predict_proba(frame), classifier.predict_proba(frame))


def test_unfitted_and_derived_classes(tmp_path):
    for name, classifier in CLASSIFIERS.items():
        save(POSCOD(classifier), tmp_path / "m.poscod")
        assert repr(load(tmp_path / "m.poscod").classifier) == repr(classifier) or name == "catboost"
    assert not any(class_name(cls) in KEPT for cls in (type("Forest", (RandomForestClassifier,), {}), CheckedPredictor))


# -- hostile ----------------------------------------------------------------------------------------------------------------


def forged(source, target, change):
    """Write a copy of a model file in which ``change(name, data)`` was done to each member, with checksums that fit."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    changed = {name: change(name, data) for name, data in members.items()}
    assert changed != members
    manifest["members"] = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in changed.items()
    }
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in {**changed, "manifest.json": json.dumps(manifest).encode()}.items():
            archive.writestr(name, data)
    return target


def of_arrays(wanted, change):
    """Change the arrays that are wanted."""

    def changed(name, data):
        if not name.startswith("arrays/"):
            return data
        array = np.load(io.BytesIO(data))
        if not wanted(array):
            return data
        buffer = io.BytesIO()
        np.save(buffer, change(array.copy()))
        return buffer.getvalue()

    return changed


def set_field(field, value, where=0):
    def change(array):
        array[field][where] = value
        return array

    return change


FORGED_TREES = {
    "a child that is its parent": ("forest", "left_child", 0),
    "a child that is not there": ("forest", "right_child", 10**6),
    "a column that is not there": ("forest", "feature", 77),
    "a negative column": ("tree", "feature", -5),
    "a child of boosting that is its parent": ("boosting", "left", 0),
    "a child of boosting that is not there": ("boosting", "right", 2**31),
    "a set of categories that is not there": ("boosting", "is_categorical", 1),
}


@pytest.mark.parametrize("case", FORGED_TREES)
def test_trees_that_would_be_followed_out_of_their_memory_are_refused(folder, tmp_path, case):
    name, field, value = FORGED_TREES[case]
    change = of_arrays(lambda array: field in (array.dtype.names or ()), set_field(field, value))
    path = forged(folder / f"{name}.poscod", tmp_path / "m.poscod", change)
    with pytest.raises(ModelFileError, match="holds a tree whose parts do not fit each other: it is damaged"):
        load(path)


def test_boosting_reads_no_column_that_rows_do_not_have(folder, tmp_path):
    change = of_arrays(lambda array: "feature_idx" in (array.dtype.names or ()), set_field("feature_idx", 10**6))
    with pytest.raises(ModelFileError, match="cannot decide on a row of numbers"):
        load(forged(folder / "boosting.poscod", tmp_path / "m.poscod", change))


def of_booster(change):
    """Change the bytes of a booster."""
    return of_arrays(
        lambda array: array.dtype == np.uint8 and array.ndim == 1,
        lambda array: np.frombuffer(change(array.tobytes()), dtype=np.uint8),
    )


def of_json(change):
    def changed(data):
        document = json.loads(data)
        change(document["learner"]["gradient_booster"]["model"]["trees"][0])
        return json.dumps(document).encode()

    return changed


def of_first(name, value):
    def change(tree):
        tree[name][0] = value

    return of_json(change)


def of_line(name, value):
    def change(data):
        head, _, rest = data.decode().partition(f"\n{name}=")
        return f"{head}\n{name}={value}{rest[rest.index(' ') :]}".encode()

    return change


FORGED_BOOSTERS = {
    "xgboost: itself as child": ("xgboost", of_first("left_children", 0)),
    "xgboost: no such child": ("xgboost", of_first("right_children", 10**6)),
    "xgboost: no such column": ("xgboost", of_first("split_indices", 10**6)),
    "xgboost: short array": ("xgboost", of_json(lambda tree: tree["split_conditions"].pop())),
    "xgboost: twice": ("xgboost", lambda data: data.replace(b'"learner":', b'"learner":{},"learner":', 1)),
    "lightgbm: itself as child": ("lightgbm", of_line("left_child", 0)),
    "lightgbm: no such child": ("lightgbm", of_line("right_child", 10**6)),
    "lightgbm: no such column": ("lightgbm", of_line("split_feature", 10**6)),
    "lightgbm: no such leaf": ("lightgbm", lambda data: data.replace(b"num_leaves=", b"num_leaves=9", 1)),
    "lightgbm: twice": ("lightgbm", lambda data: data.replace(b"\nnum_cat=0", b"\nnum_cat=0\nnum_cat=0", 1)),
}


@pytest.mark.parametrize("case", FORGED_BOOSTERS)
def test_boosters_whose_parts_do_not_fit_never_reach_their_readers(folder, tmp_path, case):
    name, change = FORGED_BOOSTERS[case]
    path = forged(folder / f"{name}.poscod", tmp_path / "m.poscod", of_booster(change))
    with pytest.raises(ModelFileError, match="holds a booster whose parts do not fit each other: it is damaged"):
        load(path)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost"])
@pytest.mark.parametrize("change", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"\xff" * 200])
def test_boosters_that_were_cut_or_are_noise_are_one_sentence(folder, tmp_path, name, change):
    with pytest.raises(ModelFileError, match=r"m\.poscod (holds|could not be read)"):
        load(forged(folder / f"{name}.poscod", tmp_path / "m.poscod", of_booster(change)))


def test_one_array_is_not_copied_into_many_trees(folder, tmp_path):
    def same(name, data):
        if name != "state.json":
            return data
        state = json.loads(data)
        seen = {}

        def walk(node):
            if isinstance(node, dict):
                for pair in node.get("dict", []) if node.keys() == {"dict"} else []:
                    if pair[0] in ("nodes", "values", "classes"):
                        pair[1] = seen.setdefault(pair[0], pair[1])
                [walk(value) for value in node.values()]
            elif isinstance(node, list):
                [walk(value) for value in node]

        walk(state)
        return json.dumps(state).encode()

    with pytest.raises(ModelFileError, match="reads the same arrays again and again"):
        load(forged(folder / "forest.poscod", tmp_path / "m.poscod", same))


def test_a_kept_class_is_one_of_ours_and_its_package_is_named_where_it_is_missing(folder, tmp_path, monkeypatch):
    def other(name, data):
        return data.replace(b"xgboost.sklearn.XGBClassifier", b"subprocess.Popen") if name == "state.json" else data

    with pytest.raises(ModelFileError, match=r"names the class 'subprocess\.Popen', which is not kept"):
        load(forged(folder / "xgboost.poscod", tmp_path / "m.poscod", other))
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ModelFileError, match="holds a classifier of xgboost, which is not installed"):
        load(folder / "xgboost.poscod")
