"""Models in files: the same decisions in another process, and a sentence for every file that must not be read."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import warnings
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

import poscod.ratio
from poscod import POSCOD, Activations
from poscod.exceptions import InvalidInputError, MissingExtraError, PoscodWarning
from poscod.model import ModelFileError, UntrustedTypesError, load, save
from poscod.model._codec import Decoder, Encoder, registry
from poscod.model._file import PROTOCOL
from poscod.problem import CostProblem, ScodProblem
from poscod.ratio import NNPU, WOODS, CorrectedSigmoid, EMRatio, FixedLinear, StandardSigmoid
from poscod.theory import GaussianWorld

COLUMNS = ("label", "accept", "reason", "risk", "log_ratio", "score")
WORLD = GaussianWorld([[0.0, 0.0, 0.0], [3.0, 0.0, 1.0], [0.0, 3.0, -1.0]], [[2.0, 4.0, 3.0]])
LOSS = [[0, 1, 2], [5, 0, 1], [1, 3, 0]]


def rows(dtype=np.float64):
    X, y = WORLD.sample_id(400, random_state=0)
    traffic, _ = WORLD.sample_mixture(300, pi=0.3, random_state=1)
    return X.astype(dtype), y, traffic.astype(dtype)


def activations(dtype=np.float32, n=300, seed=0):
    rng = np.random.default_rng(seed)
    weight = np.random.default_rng(7).normal(size=(4, 12))

    def layer(features, **parts):
        features = features.astype(dtype)
        return Activations(features, (features @ weight.T).astype(dtype), **parts)

    known = rng.normal(size=(n, 12))
    noisy = known @ weight.T + rng.gumbel(size=(n, 4))
    new = np.concatenate([rng.normal(size=(n, 12)), rng.normal(2.0, 2.0, size=(n // 3, 12))])
    return layer(known, labels=noisy.argmax(axis=1)), layer(new)


def fitted(dtype=np.float64, labels=None, traffic=True, **parameters):
    X, y, U = rows(dtype)
    y = y if labels is None else np.asarray(labels)[y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoscodWarning)
        return POSCOD(random_state=0, **parameters).fit(X, y, X_unlabeled=U if traffic else None)


@cache
def default():
    return fitted()


def network(**parameters):
    known, traffic = activations()
    return POSCOD(random_state=0, **parameters).fit(known, X_unlabeled=traffic)


def frozen():
    X, y, _ = rows()
    return FrozenEstimator(GaussianNB().fit(X[:100], y[:100]))


MODELS = {
    "default": default,
    "float32": lambda: fitted(np.float32),
    "texts": lambda: fitted(labels=["cat", "dog", "eel"], reject_label="?"),
    "objects": lambda: fitted(labels=np.array(["cat", "dog", "eel"], dtype=object)),
    "loss": lambda: fitted(loss=LOSS, alpha=0.3),
    "loss array": lambda: fitted(loss=np.array(LOSS, dtype=np.float64).T, tpr_min=np.float32(0.8)),
    "at": lambda: default().at(alpha=0.2, tpr_min=0.8, loss="absolute"),
    "costs": lambda: default().with_rule(CostProblem(reject_id=0.1, accept_ood=2.0)),
    "budget": lambda: default().budget(0.2),
    "alpha 1": lambda: fitted(alpha=1.0),
    "no traffic": lambda: fitted(traffic=False),
    "guaranteed": lambda: fitted(threshold="guaranteed", delta=0.1, tpr_min=0.8),
    "folds": lambda: fitted(calibration=3),
    "forest": lambda: fitted(classifier=RandomForestClassifier(10, random_state=0)),
    "boosting": lambda: fitted(classifier=HistGradientBoostingClassifier(max_iter=10, random_state=0)),
    "frozen": lambda: fitted(classifier=frozen()),
    "paper": lambda: fitted(ratio=CorrectedSigmoid("paper", l2=0.01)),
    "standard": lambda: fitted(ratio=StandardSigmoid()),
    "em": lambda: fitted(ratio=EMRatio(HistGradientBoostingClassifier(max_iter=10), n_folds=2, max_iter=2)),
    "nnpu": lambda: fitted(ratio=NNPU()),
    "woods": lambda: fitted(ratio=WOODS()),
    "fixed linear": lambda: fitted(ratio=FixedLinear(np.linspace(-1.0, 1.0, rows()[0].shape[1]), -0.5, ood_prior=0.3)),
    "network": network,
    "network at": lambda: network(loss="absolute").at(alpha=0.8),
}
NETWORKS = {"network", "network at"}


def queries(name):
    if name in NETWORKS:
        return activations(seed=3)[1]
    return WORLD.sample_mixture(500, pi=0.5, random_state=9)[0].astype(np.float32 if name == "float32" else np.float64)


@pytest.fixture(scope="module")
def models():
    return {name: make() for name, make in MODELS.items()}


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A file of a model without any foreign estimator."""
    path = tmp_path_factory.mktemp("core") / "model.poscod"
    save(network(), path)
    return path


NEW_PROCESS = """
import json, sys
import numpy as np
from pathlib import Path
from poscod import Activations, model as persist
folder = Path(sys.argv[1])
for name in json.loads((folder / "names.json").read_text()):
    model = persist.load(folder / f"{name}.poscod")
    if (folder / f"{name}.npz").exists():
        X = Activations.load(folder / f"{name}.npz", mmap=False)
    else:
        X = np.load(folder / f"{name}.npy")
    decisions = model.decide(X)
    for column in ("label", "accept", "reason", "risk", "log_ratio", "score"):
        value = getattr(decisions, column)
        np.save(folder / f"{name}.{column}.npy", value.astype(str) if value.dtype == object else value)
loaded = {"skops", "torch", "dask"} & set(sys.modules)
assert loaded == {"skops"}, f"reading a file imported {loaded}: seconds for every command"
"""


def run(code, *arguments, check=True):
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True)


def test_a_new_process_decides_the_same_to_the_last_bit(models, tmp_path):
    (tmp_path / "names.json").write_text(json.dumps(list(models)))
    for name, model in models.items():
        save(model, tmp_path / f"{name}.poscod")
        X = queries(name)
        X.save(tmp_path / f"{name}.npz") if name in NETWORKS else np.save(tmp_path / f"{name}.npy", X)
    run(NEW_PROCESS, tmp_path)
    for name, model in models.items():
        decisions = model.decide(queries(name))
        assert 0 < decisions.accept.sum() < len(decisions), name
        for column in COLUMNS:
            expected, got = getattr(decisions, column), np.load(tmp_path / f"{name}.{column}.npy")
            assert expected.dtype == object or got.dtype == expected.dtype, (name, column)
            assert np.array_equal(got, expected.astype(str) if expected.dtype == object else expected), (name, column)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_same_object(models, tmp_path, name):
    model = models[name]
    save(model, tmp_path / "m.poscod")
    back = load(tmp_path / "m.poscod")
    assert type(back) is POSCOD
    assert repr(back) == repr(model)
    assert repr(clone(back)) == repr(clone(model))
    assert back.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert set(vars(back)) == set(vars(model))
    assert back.rule_ == model.rule_
    assert back.schema_ == model.schema_
    assert type(back.calibration_) is type(model.calibration_)
    if model.threshold != "guaranteed":
        one, other = (m.with_rule(ScodProblem(0.2, 0.7)) for m in (back, model))
        assert one.rule_ == other.rule_
    assert np.array_equal(back.predict(queries(name)), model.predict(queries(name)))
    if model.ratio_ is not None:
        assert back.ratio_.ood_prior_interval(0.9) == model.ratio_.ood_prior_interval(0.9)


def test_all_ratios_are_covered(models):
    classes = {v for v in vars(poscod.ratio).values() if isinstance(v, type) and issubclass(v, poscod.ratio.Ratio)}
    covered = {type(model.ratio_) for model in models.values()}
    assert classes - {poscod.ratio.Ratio} <= covered
    assert len(covered) >= 6


def test_a_model_of_a_data_frame_keeps_its_column_names(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, U = rows()
    frame, traffic = (pandas.DataFrame(part, columns=["a", "b", "c"]) for part in (X, U))
    model = POSCOD(random_state=0).fit(frame, y, X_unlabeled=traffic)
    save(model, tmp_path / "m.poscod")
    back = load(tmp_path / "m.poscod")
    assert back.feature_names_in_.tolist() == ["a", "b", "c"]
    assert np.array_equal(back.predict(frame), model.predict(frame))


def test_a_loaded_model_can_be_fitted_again(core):
    known, traffic = activations(seed=5)
    back = load(core)
    again = back.fit(known, X_unlabeled=traffic)
    assert again.threshold_ == network().fit(known, X_unlabeled=traffic).threshold_


def test_unfitted_models_and_parts_can_be_saved(tmp_path):
    save(POSCOD(alpha=0.1, ratio=WOODS()), tmp_path / "m.poscod")
    back = load(tmp_path / "m.poscod")
    assert (back.alpha, type(back.ratio)) == (0.1, WOODS)
    X, _, U = rows()
    ratio = CorrectedSigmoid().fit(X, U)
    save(ratio, tmp_path / "r.poscod")
    assert np.array_equal(load(tmp_path / "r.poscod").log_ratio(U), ratio.log_ratio(U))


def test_the_frozen_classifier_stays_one_object(models, tmp_path):
    save(models["frozen"], tmp_path / "m.poscod")
    back = load(tmp_path / "m.poscod")
    assert back.classifier is back.classifier_
    assert len([n for n in zipfile.ZipFile(tmp_path / "m.poscod").namelist() if n.startswith("foreign/")]) == 1


# -- what is inside -----------------------------------------------------------------------------------------------------------


def test_the_same_model_gives_the_same_bytes(core, tmp_path):
    save(network(), tmp_path / "again.poscod")
    save(load(core), tmp_path / "loaded.poscod")
    assert (tmp_path / "again.poscod").read_bytes() == (tmp_path / "loaded.poscod").read_bytes() == core.read_bytes()


def test_the_file_can_be_read_without_poscod(core):
    with zipfile.ZipFile(core) as archive:
        assert archive.testzip() is None
        manifest = json.loads(archive.read("manifest.json"))
        state = json.loads(archive.read("state.json"), parse_constant=pytest.fail)
        assert set(archive.namelist()) == {"manifest.json", *manifest["members"]}
        assert not [name for name in archive.namelist() if name.startswith("foreign/")]
        for name, member in manifest["members"].items():
            data = archive.read(name)
            assert (len(data), hashlib.sha256(data).hexdigest()) == (member["size"], member["sha256"])
            if name.startswith("arrays/"):
                np.load(io.BytesIO(data), allow_pickle=False)
    assert (manifest["format"], manifest["protocol"]) == ("poscod-model", PROTOCOL)
    assert manifest["root"] == state["class"] == "poscod.model._poscod.POSCOD"
    assert manifest["versions"]["numpy"] == np.__version__
    assert state["state"]["tpr_min"] == 0.95


def round_trip(value):
    members = {}
    node = json.loads(
        json.dumps(Encoder(lambda k, v: members.update({k: bytes(v)}), pytest.fail).encode(value), allow_nan=False)
    )
    return Decoder(members.__getitem__, pytest.fail, {}).decode(node)


def same(one, other):
    if isinstance(one, np.ndarray):
        equal = one.dtype == other.dtype and one.shape == other.shape
        return equal and (one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes())
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return type(one) is type(other) and same(list(one.items()), list(other.items()))
    return type(one) is type(other) and (one == other or (one != one and other != other))


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
NUMPY_SCALARS = hnp.scalar_dtypes().flatmap(lambda dtype: hnp.arrays(dtype, 1).map(lambda a: a[0]))
ARRAYS = hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
VALUES = st.recursive(
    SCALARS | NUMPY_SCALARS | ARRAYS,
    lambda inner: (
        st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(SCALARS.filter(lambda k: k == k), inner)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_values_survive(value):
    assert same(value, round_trip(value))


@given(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=9)), st.data())
def test_arrays_keep_their_order_of_rows_and_columns(array, data):
    array = array.transpose(data.draw(st.permutations(range(array.ndim))))
    step = st.integers(-3, 3).filter(bool)
    view = array[tuple(slice(None, None, data.draw(step)) for _ in range(array.ndim))]
    back = round_trip(view)
    assert back.tobytes() == view.tobytes()
    if view.flags.c_contiguous or view.flags.f_contiguous:
        assert (back.flags.c_contiguous, back.flags.f_contiguous) == (view.flags.c_contiguous, view.flags.f_contiguous)


def test_gaps_are_not_kept():
    column = np.arange(100_000.0).reshape(10, -1)[:, 3]
    assert round_trip(column).strides == (8,)
    assert round_trip(column).tolist() == column.tolist()
    scattered = np.arange(90_000.0).reshape(300, 300).T[::100, ::100]
    assert round_trip(scattered).flags.f_contiguous
    assert round_trip(scattered).tolist() == scattered.tolist()


def test_repeated_arrays_are_stored_once():
    members = {}
    array = np.arange(3.0)
    node = Encoder(members.__setitem__, pytest.fail).encode([array, array.copy(), (array,)])
    assert len(members) == 2
    assert node[0] == node[2]["tuple"][0] != node[1]


# -- saving ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["array", "zip", "fsync", "replace", "skops"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full")])
def test_interrupted_save_leaves_the_old_file_and_no_draft(models, tmp_path, monkeypatch, step, error):
    path = tmp_path / "m.poscod"
    save(models["default"], path)
    before = path.read_bytes()
    calls = []

    def fail(*args, **kwargs):
        calls.append(args)
        if step == "array" and len(calls) < 3:
            return write_array(*args, **kwargs)
        raise error

    write_array = np.lib.format.write_array
    targets = {
        "array": "numpy.lib.format.write_array",
        "zip": "zipfile.ZipFile.writestr",
        "fsync": "os.fsync",
        "replace": "pathlib.Path.replace",
        "skops": "skops.io.dumps",
    }
    monkeypatch.setattr(targets[step], fail)
    with pytest.raises((KeyboardInterrupt, OSError, InvalidInputError)):
        save(models["at"], path)
    monkeypatch.undo()
    assert calls
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_no_file_appears_when_the_first_save_fails(tmp_path):
    with pytest.raises(InvalidInputError, match=r"model\.classifier uses .*<lambda>.*top of a module"):
        save(POSCOD(make_pipeline(FunctionTransformer(lambda x: x), GaussianNB())), tmp_path / "m.poscod")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", [GaussianNB(), None, {"a": 1}, POSCOD, np.zeros(3)])
def test_only_models_of_poscod_are_saved(tmp_path, model):
    with pytest.raises(InvalidInputError, match="model must be an estimator of poscod, got a "):
        save(model, tmp_path / "m.poscod")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (np.zeros(2, dtype=[("a", object)]), r"model\.loss is an array of dtype .* no plain file format"),
        ((i for i in "ab"), r"model\.loss is a builtins\.generator, which skops cannot save"),
        (poscod.exceptions.PoscodError("x"), r"model\.loss is a poscod\.exceptions\.PoscodError, which is not a part"),
    ],
    ids=["structured", "generator", "class"],
)
def test_what_cannot_be_saved_is_named(tmp_path, value, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        save(POSCOD(loss=value), tmp_path / "m.poscod")


def test_a_circle_cannot_be_saved(tmp_path):
    circle = []
    circle.append(circle)
    with pytest.raises(InvalidInputError, match="refers to itself"):
        save(POSCOD(loss=circle), tmp_path / "m.poscod")


# -- without skops -----------------------------------------------------------------------------------------------------------

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "skops":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


def test_a_network_needs_nothing_but_the_core(core, tmp_path):
    X = activations(seed=3)[1]
    X.save(tmp_path / "x.npz")
    code = f"""{BLOCK}
import numpy as np
from poscod import Activations, model as persist
model = persist.load(sys.argv[1])
np.save(sys.argv[3], model.decide(Activations.load(sys.argv[2])).score)
persist.save(model.at(alpha=.3), sys.argv[4])
assert "skops" not in sys.modules
"""
    run(code, core, tmp_path / "x.npz", tmp_path / "score.npy", tmp_path / "again.poscod")
    assert np.array_equal(np.load(tmp_path / "score.npy"), load(core).decide(X).score)
    assert load(tmp_path / "again.poscod").alpha == 0.3


@pytest.mark.parametrize("call", ["load(sys.argv[1])", "save(POSCOD(LogisticRegression()), sys.argv[1])"])
def test_foreign_estimators_need_the_extra(models, tmp_path, call):
    save(models["default"], tmp_path / "m.poscod")
    before = (tmp_path / "m.poscod").read_bytes()
    code = f"""{BLOCK}
from poscod import POSCOD
from poscod.exceptions import MissingExtraError
from poscod.model import load, save
from sklearn.linear_model import LogisticRegression
try:
    {call}
except MissingExtraError as error:
    print(error)
"""
    out = run(code, tmp_path / "m.poscod").stdout
    assert "a model with estimators of other libraries needs the package 'skops'" in out
    assert "pip install '.[persist]'" in out
    assert (tmp_path / "m.poscod").read_bytes() == before
    assert issubclass(MissingExtraError, ImportError)


# -- trust -------------------------------------------------------------------------------------------------------------------


def test_untrusted_types_are_named_all_at_once(tmp_path):
    both = [("trees", GradientBoostingClassifier(n_estimators=2)), ("near", KNeighborsClassifier(algorithm="kd_tree"))]
    types = save(fitted(classifier=VotingClassifier(both, voting="soft"), traffic=False), tmp_path / "m.poscod")
    assert "sklearn.tree._tree.Tree" in types
    assert len(types) > 1
    with pytest.raises(UntrustedTypesError, match=r"m\.poscod holds types .*tree\.Tree.*pass trusted=\[") as caught:
        load(tmp_path / "m.poscod")
    assert caught.value.types == types
    with pytest.raises(UntrustedTypesError) as caught:
        load(tmp_path / "m.poscod", trusted=types[:1])
    assert caught.value.types == types[1:]
    load(tmp_path / "m.poscod", trusted=types)


def test_pipelines_of_data_frames_need_no_list(tmp_path):
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0, 4.0], "b": ["x", "y", "x", "y"]})
    numbers = make_column_selector(dtype_include="number")
    prepare = make_column_transformer((SimpleImputer(), numbers), (OneHotEncoder(), ["b"]))
    classifier = make_pipeline(prepare, LogisticRegression()).fit(frame, [0, 1, 0, 1])
    save(POSCOD(FrozenEstimator(classifier)), tmp_path / "m.poscod")
    back = load(tmp_path / "m.poscod").classifier.estimator
    np.testing.assert_array_equal(back.predict_proba(frame), classifier.predict_proba(frame))
    assert back[0].transformers_[0][1]._fit_dtype == np.dtype(float)


class Classifier(GaussianNB):
    """A classifier of somebody else."""


def test_types_may_be_given_as_types(tmp_path):
    save(POSCOD(Classifier()), tmp_path / "m.poscod")
    with pytest.raises(UntrustedTypesError, match="Classifier"):
        load(tmp_path / "m.poscod")
    assert type(load(tmp_path / "m.poscod", trusted=(Classifier,)).classifier) is Classifier


@pytest.mark.parametrize("trusted", [True, "sklearn.tree._tree.Tree", GaussianNB, [1]])
def test_trusted_must_be_a_list(core, trusted):
    with pytest.raises(InvalidInputError, match="trusted must be a list of types or of their full names"):
        load(core, trusted=trusted)


# -- hostile and damaged files -------------------------------------------------------------------------------------------------


def rewrite(
    source, target, *, members=None, manifest=None, drop=(), raw=(), compression=zipfile.ZIP_STORED, honest=True
):
    """Write a changed copy whose checksums are right again, as an attacker would."""
    with zipfile.ZipFile(source) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    head = json.loads(content.pop("manifest.json"))
    content.update(members or {})
    for name in drop:
        del content[name]
    if honest:
        head["members"] = {k: {"size": len(v), "sha256": hashlib.sha256(v).hexdigest()} for k, v in content.items()}
    head.update(manifest or {})
    with zipfile.ZipFile(target, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in [*content.items(), *raw]:
            archive.writestr(name, data, compress_type=compression)
        if "manifest.json" not in drop:
            archive.writestr("manifest.json", json.dumps(head))
    return target


def with_state(core, tmp_path, change, **more):
    state = json.loads(zipfile.ZipFile(core).read("state.json"))
    change(state)
    return rewrite(core, tmp_path / "bad.poscod", members={"state.json": json.dumps(state).encode()}, **more)


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


HOSTILE_NAMES = [
    "os.system",
    "posix.system",
    "builtins.eval",
    "builtins.object",
    "poscod._optional.require",
    "poscod._optional.importlib.import_module",
    "poscod.problem.ScodProblem.__init__",
    "poscod.problem.dataclass",
    "poscod.problem.InvalidInputError",
    "poscod.model._poscod.copy.copy",
    "poscod.model._poscod.Pipeline",
    "poscod.ratio.CorrectedSigmoid",
    "poscod.ratio._ratio.Ratio",
    "poscod.datasets._pickles._Reader",
    "poscod.exceptions.PoscodError",
    "poscod.nowhere.Thing",
    "poscod.cli.main",
    "sklearn.linear_model._logistic.LogisticRegression",
    "",
    "POSCOD",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_class_names_are_refused(core, tmp_path, name):
    def inside(state):
        state["state"]["ratio"] = {"class": name, "state": {}}

    before = set(sys.modules)
    with pytest.raises(
        ModelFileError, match=r"bad\.poscod names the class '.*', which is not a part of a poscod model"
    ):
        load(with_state(core, tmp_path, inside))
    with pytest.raises(ModelFileError, match="names the class"):
        load(with_state(core, tmp_path, lambda s: s.update({"class": name}), manifest={"root": name}))
    # zipfile loads the codec of old member names when it first reads an archive.
    assert {module for module in set(sys.modules) - before if not module.startswith("encodings.")} == set()


def test_the_registry_holds_only_classes_of_the_package():
    assert len(registry()) >= 30
    for name, cls in registry().items():
        assert name.startswith("poscod.")
        assert isinstance(cls, type)
        assert cls.__module__.startswith("poscod.")
        assert not {"__reduce__", "__setstate__", "__del__", "__setattr__"} & set(vars(cls)) or hasattr(
            cls, "__dataclass_fields__"
        )
    assert {type(POSCOD()), ScodProblem, CorrectedSigmoid, Activations} <= set(registry().values())


def test_no_constructor_runs(core, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("a constructor ran")

    for cls in registry().values():
        for method in ("__setstate__", "__new__"):  # __post_init__ runs: it only checks
            if method in vars(cls):
                monkeypatch.setattr(cls, method, fail)
    monkeypatch.setattr("sklearn.base.BaseEstimator.__setstate__", fail)
    monkeypatch.setattr("poscod.model._trial.try_row", lambda model: "")  # deciding makes objects of its own
    load(core)


def test_unknown_attributes_are_kept_and_missing_parameters_get_their_default(core, tmp_path):
    def change(state):
        state["state"]["from_the_future_"] = 3
        del state["state"]["delta"]
        state["state"]["rule_"]["state"]["problem"]["state"].pop("tpr_min")
        del state["state"]["tpr_over"]
        for field in ("over", "mix"):
            del state["state"]["rule_"]["state"]["promise"]["state"][field]

    back = load(with_state(core, tmp_path, change))
    assert (back.from_the_future_, back.delta, back.rule_.problem.tpr_min) == (3, 0.05, 0.95)
    assert (back.tpr_over, back.rule_.promise) == ("all", load(core).rule_.promise)
    assert str(back.at(alpha=0.2).rule_) == str(load(core).at(alpha=0.2).rule_)
    assert np.array_equal(back.predict(queries("network")), load(core).predict(queries("network")))


@pytest.mark.parametrize(
    "node",
    [
        {"unknown": 1},
        {},
        {"class": "poscod.problem.ScodProblem"},
        {"class": "poscod.problem.ScodProblem", "state": 3},
        {"class": ["poscod.problem.ScodProblem"], "state": {}},
        {"class": "poscod.selector._calibration.Calibration", "state": {}},
        {"array": "arrays/999.npy"},
        {"array": "../../etc/passwd"},
        {"array": "manifest.json"},
        {"array": "state.json"},
        {"array": 3},
        {"foreign": "arrays/0.npy"},
        {"foreign": "foreign/0.skops"},
        {"foreign": "state.json"},
        {"objects": ["a", "b"], "shape": [10**15]},
        {"objects": 7, "shape": [1]},
        {"numpy": "object_", "value": 1},
        {"numpy": "void", "value": 10**12},
        {"float": "__import__('os')"},
        {"tuple": 5},
        {"dict": [[[1], 2]]},
        {"dict": {"a": 1}},
        {
            "class": "poscod.model._poscod.POSCOD",
            "state": {},
            "routing": {"dict": [["owner", {"dict": [["a", True]]}]]},
        },
        {"class": "poscod.problem.ScodProblem", "state": {}, "routing": {"dict": []}},
    ],
    ids=str,
)
def test_nonsense_in_the_state_is_a_sentence(core, tmp_path, node):
    with pytest.raises(ModelFileError, match=r"bad\.poscod (has|lacks|names|could not be read)"):
        load(with_state(core, tmp_path, lambda state: state["state"].update(loss=node)))


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"class": ' * 50_000], ids=range(7)
)
def test_a_broken_state_is_a_sentence(core, tmp_path, text):
    with pytest.raises(ModelFileError, match=r"bad\.poscod "):
        load(rewrite(core, tmp_path / "bad.poscod", members={"state.json": text}))


@pytest.mark.parametrize(
    "data", [b"", b"PK", b"hello" * 100, b"\x80\x04\x95", b"\x93NUMPY"], ids=["empty", "PK", "text", "pickle", "npy"]
)
def test_other_files_are_refused(tmp_path, data):
    (tmp_path / "x.poscod").write_bytes(data)
    with pytest.raises(ModelFileError, match=r"x\.poscod is not a poscod model"):
        load(tmp_path / "x.poscod")


def test_other_archives_are_refused(tmp_path, core):
    np.savez(tmp_path / "x.npz", a=np.zeros(3))
    with pytest.raises(ModelFileError, match=r"is a zip archive without manifest\.json"):
        load(tmp_path / "x.npz")
    with pytest.raises(ModelFileError, match="does not say format 'poscod-model'"):
        load(rewrite(core, tmp_path / "x.poscod", manifest={"format": "other"}))
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.poscod")


@pytest.mark.parametrize("share", [0.0001, 0.3, 0.9, 0.9999])
def test_truncated_files_are_refused(core, tmp_path, share):
    data = core.read_bytes()
    (tmp_path / "x.poscod").write_bytes(data[: max(5, int(share * len(data)))])
    with pytest.raises(ModelFileError, match=r"x\.poscod is truncated or damaged"):
        load(tmp_path / "x.poscod")


@pytest.mark.parametrize("protocol", [PROTOCOL + 6, 10**9])
def test_newer_protocols_are_refused(core, tmp_path, protocol):
    # Whatever else is new in such a file: the sentence comes first.
    path = rewrite(
        core, tmp_path / "x.poscod", manifest={"protocol": protocol, "members": None}, raw=[("new/x.bin", b"")]
    )
    with pytest.raises(
        ModelFileError, match=rf"newer poscod \(protocol {protocol}, this one reads up to {PROTOCOL}\): upgrade"
    ):
        load(path)


@pytest.mark.parametrize("protocol", [None, "1", True, 0, -1, 1.5])
def test_a_protocol_is_a_number(core, tmp_path, protocol):
    with pytest.raises(ModelFileError, match="not the number of a format"):
        load(rewrite(core, tmp_path / "x.poscod", manifest={"protocol": protocol}))


def test_missing_members_are_refused(core, tmp_path):
    for name in ("state.json", "arrays/0.npy"):
        with pytest.raises(ModelFileError, match=f"lacks the member '{name}'"):
            load(rewrite(core, tmp_path / "x.poscod", drop=[name]))
        with pytest.raises(ModelFileError, match=f"lacks the member '{name}'"):
            load(rewrite(core, tmp_path / "x.poscod", drop=[name], honest=False))


@pytest.mark.parametrize("name", ["state.json", "arrays/0.npy"])
def test_checksums_are_checked(core, tmp_path, name):
    data = bytearray(zipfile.ZipFile(core).read(name))
    data[-2] ^= 1
    with pytest.raises(ModelFileError, match=f"checksum of '{name}' does not match"):
        load(rewrite(core, tmp_path / "x.poscod", members={name: bytes(data)}, honest=False))
    with pytest.raises(ModelFileError, match=f"'{name}' has not the size"):
        load(rewrite(core, tmp_path / "x.poscod", members={name: bytes(data) + b" "}, honest=False))


def test_any_flipped_byte_is_found_or_harmless(core, tmp_path):
    data = core.read_bytes()
    expected = load(core).decide(queries("network")).score
    rng = np.random.default_rng(0)
    path = tmp_path / "x.poscod"
    found = 0
    for place in rng.choice(len(data), 150, replace=False):
        path.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
        try:
            model = load(path)
        except ModelFileError:
            found += 1
        else:  # bytes of the archive that carry nothing, such as dates
            assert np.array_equal(model.decide(queries("network")).score, expected)
    assert found >= 140


@pytest.mark.parametrize(
    "name",
    ["../evil.npy", "/etc/passwd", "arrays/../../evil.npy", "arrays\\0.npy", "arrays/0.pkl", "run.py", "C:/x.npy"],
)
def test_strange_names_are_refused(core, tmp_path, name):
    for path in (
        rewrite(core, tmp_path / "x.poscod", raw=[(name, b"x")]),
        rewrite(core, tmp_path / "x.poscod", members={name: b"x"}),
    ):
        with pytest.raises(ModelFileError, match="which no poscod model holds"):
            load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.poscod"]


def test_two_members_of_one_name_are_refused(core, tmp_path):
    with pytest.raises(ModelFileError, match="two members of one name"):
        load(rewrite(core, tmp_path / "x.poscod", raw=[("state.json", b"{}")]))


def test_bombs_are_refused(core, tmp_path):
    zeros = npy(np.zeros(4_000_000))
    path = rewrite(core, tmp_path / "x.poscod", members={"arrays/0.npy": zeros}, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < len(zeros) / 10
    with pytest.raises(ModelFileError, match=r"holds 'arrays/0\.npy' compressed: it is not read"):
        load(path)


def test_declared_sizes_are_bounded_by_the_file(core, tmp_path):
    """The same bytes listed under many names (overlapping members) would grow when read."""
    data = core.read_bytes()
    with zipfile.ZipFile(core) as archive:
        size = archive.getinfo("arrays/0.npy").file_size
    old, new = size.to_bytes(4, "little") * 2, (2**31).to_bytes(4, "little") * 2
    directory = data.rindex(b"arrays/0.npy") - 46
    changed = data[:directory] + data[directory:].replace(old, new, 1)
    (tmp_path / "x.poscod").write_bytes(changed)
    with pytest.raises(ModelFileError, match=r"declares \d+ bytes of members in \d+ bytes of file"):
        load(tmp_path / "x.poscod")


def nothing_many_times():
    """A header that claims a million million items of no size: they fill no place."""
    data = npy(np.zeros(1, dtype="V1"))
    head = data.replace(b"'|V1'", b"'|V0'")
    return head[:-1].replace(b"(1,), }" + b" " * 12, b"(%d,), }" % 10**12)


def lying_npy():
    """A header that claims far more numbers than follow."""
    data = npy(np.zeros(10))
    return data.replace(b"(10,), }" + b" " * 12, b"(%d,), }" % 10**12 + b" ")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (lambda: npy(np.array([{}, print], dtype=object), allow_pickle=True), "an array of Python objects"),
        (lying_npy, "does not fill its place"),
        (lambda: npy(np.zeros(3))[:-1], "does not fill its place"),
        (nothing_many_times, "1000000000000 items in 128 bytes"),
        (lambda: b"\x93NUMPY\x09\x00", "could not be read"),
        (lambda: b"nothing", "could not be read"),
    ],
    ids=["objects", "lie", "short", "no size", "version", "magic"],
)
def test_arrays_that_are_not_plain_are_refused(core, tmp_path, data, sentence):
    with pytest.raises(ModelFileError, match=sentence):
        load(rewrite(core, tmp_path / "x.poscod", members={"arrays/0.npy": data()}))


def skops_file(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def sparse_bomb():
    buffer = io.BytesIO()
    np.savez_compressed(buffer, data=np.zeros(4_000_000))
    return skops_file({"1.npz": buffer.getvalue()})


def calls_a_function():
    call = {
        "__class__": "system",
        "__module__": "os",
        "__loader__": "FunctionNode",
        "content": {"module_path": "os", "function": "system"},
    }
    return skops_file({"schema.json": json.dumps({**call, "protocol": 1, "_skops_version": "0.13"})})


def a_list(content, number):
    kind = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    return {**kind, "content": content, "__id__": number}


def shared_lists(depth=40):
    """Lists that name the list below them twice, by its id: 2 ** depth nodes for whoever walks."""
    node = a_list([], 1)
    for i in range(2, depth):
        node = a_list([node, a_list([], i - 1)], i)
    return skops_file({"schema.json": json.dumps({**node, "protocol": 1, "_skops_version": "0.13"})})


def one_member_many_times(times=300):
    array = {
        "__class__": "ndarray",
        "__module__": "numpy",
        "__loader__": "NdArrayNode",
        "type": "numpy",
        "file": "1.npy",
    }
    node = a_list([{**array, "__id__": i + 2} for i in range(times)], 1)
    return skops_file(
        {"1.npy": npy(np.zeros(10**5)), "schema.json": json.dumps({**node, "protocol": 1, "_skops_version": "0.13"})}
    )


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (shared_lists, "names the same parts again and again"),
        (one_member_many_times, "reads the same arrays again and again"),
        (lambda: skops_file({"1.npy": nothing_many_times()}), "1000000000000 items in 128 bytes"),
        (lambda: b"nothing", "could not be read"),
        (lambda: skops_file({}), "could not be read"),
        (lambda: skops_file({"schema.json": "{}"}), "could not be read"),
        (lambda: skops_file({"1.npy": npy(np.zeros(10**6))}, zipfile.ZIP_DEFLATED), "compressed"),
        (lambda: skops_file({"1.npy": lying_npy()}), "does not fill its place"),
        (lambda: skops_file({"1.npy": npy(np.array([print]), allow_pickle=True)}), "an array of Python objects"),
        (sparse_bomb, "grows too much"),
        (calls_a_function, r"not trusted by default \(os\.system\)"),
    ],
    ids=[
        "shared",
        "repeated",
        "no size",
        "text",
        "empty",
        "schema",
        "deflated",
        "lie",
        "objects",
        "sparse",
        "function",
    ],
)
def test_hostile_foreign_members_are_refused(models, tmp_path, data, sentence):
    save(models["default"], tmp_path / "m.poscod")
    with pytest.raises(ModelFileError, match=sentence):
        load(rewrite(tmp_path / "m.poscod", tmp_path / "x.poscod", members={"foreign/0.skops": data()}))


def test_a_file_that_says_it_holds_something_else_is_refused(core, tmp_path):
    with pytest.raises(
        ModelFileError, match=r"says that it holds a 'poscod\.problem\.ScodProblem', and holds something else"
    ):
        load(rewrite(core, tmp_path / "x.poscod", manifest={"root": "poscod.problem.ScodProblem"}))


def test_path_like_and_text_paths(core, tmp_path):
    save(load(str(core)), os.fspath(tmp_path / "m"))
    assert Path(tmp_path / "m").read_bytes() == core.read_bytes()


def test_sparse_matrices_and_generators_survive(tmp_path):
    X, y, _ = rows()
    classifier = LogisticRegression().fit(X, y).sparsify()
    save(POSCOD(FrozenEstimator(classifier), random_state=np.random.RandomState(3)), tmp_path / "m.poscod")
    back = load(tmp_path / "m.poscod", trusted=[type(classifier.coef_)])
    assert (back.classifier.estimator.coef_ != classifier.coef_).nnz == 0
    assert back.random_state.randint(10**6) == np.random.RandomState(3).randint(10**6)


def test_metadata_requests_survive(tmp_path):
    with config_context(enable_metadata_routing=True):
        save(POSCOD(ratio=WOODS()).set_fit_request(groups=True, X_unlabeled="traffic"), tmp_path / "m.poscod")
        back = load(tmp_path / "m.poscod")
        assert back.get_metadata_routing().fit.requests == {
            "groups": True,
            "groups_unlabeled": None,
            "sample_weight": None,
            "X_unlabeled": "traffic",
            "X_reviewed": None,
            "y_reviewed": None,
        }
        assert clone(back).get_metadata_routing().fit.requests == back.get_metadata_routing().fit.requests
    assert load(tmp_path / "m.poscod").get_params()["ratio"].get_params() == WOODS().get_params()


def test_open_files_are_read_too(core):
    data = core.read_bytes()
    expected = load(core).predict(queries("network"))
    with core.open("rb") as file:
        assert np.array_equal(load(file).predict(queries("network")), expected)
    assert np.array_equal(POSCOD.load(io.BytesIO(data)).predict(queries("network")), expected)
    named = io.BytesIO(data[:-100])
    named.name = "upload.poscod"
    with pytest.raises(ModelFileError, match=r"upload\.poscod is truncated or damaged"):
        load(named)
    with pytest.raises(ModelFileError, match="The file is not a poscod model"):
        load(io.BytesIO(b"nothing"))


def test_a_model_with_trees_needs_no_trust(tmp_path):
    """Trees are plain arrays: a new process that trusts nothing reads them, and decides the same."""
    rng = np.random.default_rng(0)
    X, traffic = rng.normal(size=(2, 400, 6))
    traffic[:120, ::2] = 0.0
    y = (X.sum(axis=1) > 0).astype(int)
    model = POSCOD(LogisticRegression(), random_state=0).fit(X, y, X_unlabeled=traffic)
    assert model.ratio_.model_.trees is not None
    model.save(tmp_path / "model.poscod")
    np.save(tmp_path / "traffic.npy", traffic)
    code = (
        "import sys, numpy as np; from poscod import POSCOD; model = POSCOD.load(sys.argv[1] + '/model.poscod'); "
        "np.save(sys.argv[1] + '/score.npy', model.rejection_score(np.load(sys.argv[1] + '/traffic.npy')))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "score.npy"), model.rejection_score(traffic))


# -- well formed, and nonsense -----------------------------------------------------------------------------------------------


def _nan(node, *path):
    for name in path[:-1]:
        node = node["state"][name]
    node["state"][path[-1]] = {"float": "nan"}


NONSENSE = {
    "alpha of the model": (lambda state: _nan(state, "alpha"), "alpha must be a number in"),
    "alpha of the rule": (lambda state: _nan(state, "rule_", "problem", "alpha"), "a ScodProblem that cannot be"),
    "threshold": (lambda state: _nan(state, "rule_", "threshold"), "threshold must be a number"),
    "slope": (lambda state: state["state"]["rule_"]["state"].update(slope="x"), "slope must be a number"),
    "no problem": (lambda state: state["state"]["rule_"]["state"].update(problem=3), "a rule without a problem"),
    "temperature": (lambda state: _nan(state, "scorer_", "temperature"), "cannot decide on a row of numbers"),
    "no ratio of ours": (
        lambda state: state["state"]["scorer_"]["state"].update(ratio=[1]),
        r"cannot decide on a row of numbers \(AttributeError",
    ),
    "calibration": (lambda state: state["state"].update(calibration_=None), "without a Calibration"),
    "no rule": (lambda state: state["state"].pop("rule_"), "without a Rule in rule_"),
    "codes": (
        lambda state: state["state"]["calibration_"]["state"].update(
            codes=state["state"]["calibration_"]["state"]["log_ratio"]
        ),
        "classes that it does not have",
    ),
    "lengths": (
        lambda state: state["state"]["calibration_"]["state"].update(
            traffic_log_ratio=state["state"]["calibration_"]["state"]["log_ratio"]
        ),
        "traffic_logits are not numbers of shape",
    ),
    "prior": (lambda state: state["state"]["calibration_"]["state"].update(ood_prior=7), "ood_prior must be a number"),
    "schema": (
        lambda state: state["state"]["schema_"]["state"].update(n_logits=9),
        "cannot decide on a row of numbers",
    ),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_refused_when_it_is_read(core, tmp_path, name):
    change, sentence = NONSENSE[name]
    with pytest.raises(ModelFileError, match=sentence):
        load(with_state(core, tmp_path, change))


def test_a_model_that_cannot_take_zeros_is_read(tmp_path):
    """Logarithms of zeros are refused by its classifier, and such rows never come."""
    X, y, U = (np.exp(part) if part.ndim == 2 else part for part in rows())
    classifier = make_pipeline(FunctionTransformer(np.log), LogisticRegression())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoscodWarning)
        save(POSCOD(classifier, random_state=0).fit(X, y, X_unlabeled=U), tmp_path / "m.poscod")
    assert load(tmp_path / "m.poscod", trusted=["numpy.log"]).predict(X[:5]).shape == (5,)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "m.poscod")
    with pytest.raises(InvalidInputError, match="it is a device or pipe"):
        load(tmp_path / "m.poscod")
