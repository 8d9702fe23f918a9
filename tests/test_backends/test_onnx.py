"""ONNX: networks into activations, models into graphs that decide the same."""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PolynomialFeatures, StandardScaler

from poscod import POSCOD, Activations
from poscod.backends.onnx import export_rule, extract
from poscod.decision import REASONS
from poscod.exceptions import InvalidInputError
from poscod.model import ClassMixWarning, InputsDriftedWarning, NoUnlabeledDataWarning, Schema, mix_document
from poscod.problem import BoundedProblem, Budget, RiskBound, ScodProblem
from poscod.ratio import NNPU, WOODS, CorrectedSigmoid, EMRatio, FixedLinear, NoOODEvidenceWarning, StandardSigmoid
from poscod.theory import GaussianWorld

sys.path.insert(0, __file__.rpartition("/")[0])
from _onnx_networks import network, pooled

sys.path.pop(0)


# The OOD rows of these small worlds look like one class, and some fits take them for more of it; the true mix is that of the labeled rows.
pytestmark = pytest.mark.filterwarnings("ignore::poscod.model.ClassMixWarning")


def run(proto, **feed):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([out.name for out in session.get_outputs()], session.run(None, feed), strict=True))


def check(out, decisions, *, precise=True, classes=None):
    close = {"rtol": 1e-5, "atol": 1e-5} if precise else {"rtol": 2e-2, "atol": 2e-3}
    np.testing.assert_allclose(out["risk"], decisions.risk, **close)
    np.testing.assert_allclose(out["log_ratio"], decisions.log_ratio, **close)
    np.testing.assert_allclose(out["score"], decisions.score, **close)
    label = out["label"] if classes is None else classes[out["label"]]
    np.testing.assert_array_equal(label, decisions.label)
    if precise:
        np.testing.assert_array_equal(out["accept"], decisions.accept)
        np.testing.assert_array_equal(np.array(list(REASONS))[out["reason"]], decisions.reason)


def facts(proto):
    return {entry.key: json.loads(entry.value) for entry in proto.metadata_props}


def inputs(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 6)) + shift).astype(np.float32)


@pytest.fixture(scope="module")
def rows():
    """Labeled rows, traffic and new rows of a network."""
    known = extract(network(), inputs(700, 1))
    rng = np.random.default_rng(2)
    labels = np.where(rng.random(700) < 0.1, rng.integers(0, 4, 700), known.logits.argmax(axis=1))
    traffic = np.concatenate([inputs(350, 3), inputs(250, 4, shift=2.0)])
    new = np.concatenate([inputs(300, 5), inputs(200, 6, shift=1.5), inputs(20, 7) * 30])
    return known, labels, extract(network(), traffic), new


def fit(rows, **options):
    known, labels, traffic, _ = rows
    return POSCOD(random_state=0, **{"alpha": 0.4, "tpr_min": 0.9, "class_mix": "labeled", **options}).fit(
        known, labels, X_unlabeled=traffic
    )


@pytest.fixture(scope="module")
def default(rows):
    return fit(rows)


@pytest.fixture(scope="module")
def held_out(rows):
    return fit(rows, ratio=CorrectedSigmoid("paper"), calibration=0.5)


RATIOS = {
    "default": CorrectedSigmoid(),
    "paper": CorrectedSigmoid("paper"),
    "standard": StandardSigmoid(),
    "nnpu": NNPU(),
    "woods": WOODS(),
    "fixed": FixedLinear(np.linspace(-0.5, 0.5, 8), 0.3, ood_prior=0.4),
}


def test_far_rows_are_rejected_by_the_graph_too(rows, default):
    new = extract(network(), rows[3])
    for factor in (1e2, 1e10, 1e18):
        far = Activations((factor * new.features).astype(np.float32), (factor * new.logits).astype(np.float32))
        expected = default.decide(far)
        out = run(export_rule(default), features=far.features, logits=far.logits)
        assert not expected.accept.any()
        np.testing.assert_array_equal(out["accept"], expected.accept)
        np.testing.assert_allclose(out["log_ratio"], expected.log_ratio, rtol=1e-5)


def test_tables_with_a_constant_column(rows):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    X[:, 0] += 2 * y
    X[:, 2] = 7.0
    U = np.concatenate([X[:200] + 1e-9, rng.normal(5.0, 1.0, (60, 3)) * [1, 1, 0] + [0, 0, 7]])
    with pytest.warns(InputsDriftedWarning):  # a constant that differs by rounding in all of the traffic
        model = POSCOD(LogisticRegression(), random_state=0, class_mix="labeled").fit(X, y, X_unlabeled=U)
    new = np.repeat(rng.normal(size=(30, 3)) * [1, 1, 0] + [1, 0, 7], 3, axis=0)
    new[1::3, 2] += 0.5
    new[2::3, 1] = 1e200
    expected = model.decide(new)
    assert expected.accept[::3].mean() > 0.6
    assert not expected.accept[1::3].any()
    assert not expected.accept[2::3].any()
    check(run(export_rule(model), input=new), expected)


@pytest.mark.parametrize("name", sorted(RATIOS))
def test_every_ratio_decides_the_same(rows, default, name):
    model = default if name == "default" else fit(rows, ratio=RATIOS[name])
    new = extract(network(), rows[3])
    decisions = model.decide(new)
    for precision in ("float64", "float32"):
        out = run(export_rule(model, precision=precision), features=new.features, logits=new.logits)
        # Behind log g = 600 single precision has no numbers left for the score.
        keep = slice(None) if precision == "float64" else slice(0, 500)
        check({k: v[keep] for k, v in out.items()}, decisions[keep], precise=precision == "float64")
        np.testing.assert_allclose(out["posterior"], model.predict_proba(new), atol=1e-6)
        assert out["accept"].any()
        assert not out["accept"].all()


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_versions_of_the_operators_and_any_number_of_rows(rows, default, opset):
    proto = export_rule(default, backbone=network(opset=opset, ir=10 if opset > 18 else 8))
    new = rows[3]
    decisions = default.decide(extract(network(), new))
    for part in (slice(0, 1), slice(3, 10)):
        check(run(proto, x=new[part]), decisions[part])
    assert run(proto, x=new[:0])["accept"].shape == (0,)


LOSSES = ["absolute", [[0, 1, 1, 4], [2, 0, 1, 1], [1, 3, 0, 1], [1, 1, 1, 0]]]


@pytest.mark.parametrize(
    "options",
    [{"alpha": 0.0}, {"alpha": 1.0}, *({"loss": loss} for loss in LOSSES), {"threshold": "guaranteed"}],
    ids=["alpha 0", "alpha 1", "absolute", "matrix", "guaranteed"],
)
def test_every_problem(rows, options):
    model = fit(rows, ratio=CorrectedSigmoid("paper"), **options)
    new = extract(network(), rows[3])
    proto = export_rule(model)
    check(run(proto, features=new.features, logits=new.logits), model.decide(new))
    assert facts(proto)["poscod.rule"] == model.rule_.to_dict()
    assert (facts(proto)["poscod.rule"]["promise"]["confidence"] is not None) == ("threshold" in options)


@pytest.mark.parametrize(
    "problem",
    [BoundedProblem(tpr_min=0.8, fpr_max=0.3), Budget(0.2), RiskBound(0.1, delta=0.2), ScodProblem(alpha=1.0)],
    ids=lambda problem: type(problem).__name__,
)
def test_other_problems_and_what_is_said_of_them(rows, held_out, problem):
    model = held_out.with_rule(problem)
    new = extract(network(), rows[3])
    proto = export_rule(model)
    check(run(proto, features=new.features, logits=new.logits), model.decide(new))
    assert facts(proto)["poscod.rule"] == model.rule_.to_dict()
    assert facts(proto)["poscod.sentence"] == str(model.rule_)


def test_names_of_the_classes(default):
    named = default.with_schema(Schema(n_features=8, n_logits=4, classes=("ant", "bee", "cat", "dog")))
    assert facts(export_rule(named))["poscod.classes"] == ["ant", "bee", "cat", "dog"]


def test_without_a_ratio(rows):
    known, labels, _, _ = rows
    with pytest.warns(NoUnlabeledDataWarning):
        model = POSCOD(random_state=0).fit(known, labels)
    proto = export_rule(model)
    assert [value.name for value in proto.graph.input] == ["logits"]
    check(run(proto, logits=known.logits), model.decide(known))
    whole = export_rule(model, backbone=network())
    check(run(whole, x=inputs(700, 1)), model.decide(known))


def test_closed_gate(rows):
    known, labels, _, _ = rows
    with pytest.warns(NoOODEvidenceWarning):
        model = POSCOD(random_state=0).fit(known, labels, X_unlabeled=extract(network(), inputs(600, 8)))
    check(run(export_rule(model), features=known.features, logits=known.logits), model.decide(known))


def test_logits_alone(rows):
    known, labels, traffic, new = rows
    model = POSCOD(random_state=0).fit(
        Activations(logits=known.logits), labels, X_unlabeled=Activations(logits=traffic.logits)
    )
    expected = model.decide(Activations(logits=extract(network(), new).logits))
    check(run(export_rule(model, backbone=network()), x=new), expected)


@pytest.mark.filterwarnings(
    "ignore::poscod.model.ClassMixWarning"
)  # all traffic is shifted, which looks like another mix
@pytest.mark.parametrize("ending", ["gemm", "transposed", "matmul", "identity", "scaled"])
def test_behind_the_network(rows, ending, tmp_path):
    front = network(ending=ending, opset=18, ir=9)
    known, traffic, new = (extract(front, x) for x in (inputs(700, 1), inputs(500, 3, shift=0.8), rows[3]))
    labels = known.logits.argmax(axis=1)
    model = POSCOD(ratio=CorrectedSigmoid("paper", ood_prior=0.7), random_state=0).fit(
        known, labels, X_unlabeled=traffic
    )
    onnx.save(front, tmp_path / "front.onnx")
    export_rule(model, tmp_path / "whole.onnx", backbone=tmp_path / "front.onnx")
    whole = onnx.load(tmp_path / "whole.onnx")
    onnx.checker.check_model(whole, full_check=True)
    out = run(whole, x=rows[3])
    check(out, model.decide(new))
    said = facts(whole)
    assert said["poscod.classes"] == [0, 1, 2, 3]
    assert said["poscod.reasons"] == list(REASONS)
    assert said["poscod.rule"]["threshold"] == model.rule_.threshold
    assert said["poscod.rule"]["promise"]["bound"] == 0.95
    assert said["poscod.ood_prior"] == 0.7


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 5)) * [1, 10, 0.1, 1, 1] + [0, 50, 0, 0, 3]
    y = (x[:, 0] + 0.1 * (x[:, 1] - 50) + 0.5 * rng.normal(size=900) > 0).astype(int) + (x[:, 3] > 1)
    mixture = rng.normal(size=(600, 5)) * [1, 10, 0.1, 1, 1] + [0, 50, 0, 0, 3]
    mixture[:200, 4] += 4.0
    new = np.vstack([x[:50], mixture[::3]])
    return x, np.array(["ant", "bee", "cat"])[y], mixture, new


CLASSIFIERS = {
    "none": None,
    "plain": LogisticRegression(max_iter=3000),
    "standard": make_pipeline(StandardScaler(), LogisticRegression()),
    "min max": make_pipeline(MinMaxScaler(clip=True), "passthrough", LogisticRegression(C=10.0)),
    "max abs": make_pipeline(MaxAbsScaler(), StandardScaler(with_std=False), LogisticRegression()),
}


@pytest.mark.parametrize("name", sorted(CLASSIFIERS))
@pytest.mark.parametrize("binary", [False, True])
def test_tables(table, name, binary):
    x, y, mixture, new = table
    y = np.where(y == "cat", "bee", y) if binary else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the solver
        ratio = None if name == "standard" else StandardSigmoid(l2=1e-3)
        model = POSCOD(CLASSIFIERS[name], ratio, random_state=0).fit(x, y, X_unlabeled=mixture)
    proto = export_rule(model)
    check(run(proto, input=new), model.decide(new), classes=model.classes_)
    rough = run(export_rule(model, dtype="float32", precision="float32"), input=new.astype(np.float32))
    assert (rough["accept"] == model.decide(new).accept).mean() > 0.98


def test_frozen_classifier(table):
    x, y, mixture, new = table
    frozen = FrozenEstimator(make_pipeline(StandardScaler(), LogisticRegression()).fit(x[:300], y[:300]))
    model = POSCOD(frozen, StandardSigmoid(l2=1e-3), random_state=0).fit(x[300:], y[300:], X_unlabeled=mixture)
    check(run(export_rule(model), input=new), model.decide(new), classes=model.classes_)


def test_what_cannot_be_exported_says_what_to_use(table, rows):
    x, y, mixture, _ = table
    for classifier in (GaussianNB(), make_pipeline(PolynomialFeatures(2), LogisticRegression(max_iter=20))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = POSCOD(classifier, ratio=CorrectedSigmoid("paper"), random_state=0).fit(x, y, X_unlabeled=mixture)
        with pytest.raises(InvalidInputError, match=r"classifier must be a LogisticRegression.*as Activations instead"):
            export_rule(model)
    other = EMRatio(LogisticRegression(), max_iter=1)
    with pytest.raises(InvalidInputError, match=r"linear or the default.*got EMRatio: fit with CorrectedSigmoid\(\)"):
        export_rule(fit(rows, ratio=other))
    model = fit(rows, ratio=CorrectedSigmoid("paper"))
    for options, match in (
        ({"backbone": network(hidden=7)}, "makes 7 features and 4 logits and the model was fitted on 8 and 4"),
        ({"backbone": network(classes=5)}, "8 features and 5 logits and the model was fitted on 8 and 4"),
        ({"backbone": network(ending="softmax")}, r"not made by a linear layer: pass features,.*phi"),
        ({"backbone": network(), "features": "nowhere"}, "features must be the name of a value"),
        ({"backbone": network(), "logits": "nowhere"}, "logits must be the name of a value"),
        ({"backbone": network(opset=12)}, "version 13 of the ONNX operators or later, got 12"),
        ({"backbone": network(kind=np.float64)}, "gives DOUBLE and the rule takes FLOAT"),
        ({"precision": "float16"}, "precision must be one of"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            export_rule(model, **options)
    with pytest.raises(InvalidInputError, match="model must be a fitted POSCOD, got str"):
        export_rule("model.poscod")
    with pytest.raises(InvalidInputError, match="fitted on Activations"):
        export_rule(
            POSCOD(ratio=CorrectedSigmoid("paper"), random_state=0).fit(x, y, X_unlabeled=mixture), backbone=network()
        )
    taken = network()
    taken.graph.node[1].output[0] = taken.graph.node[2].input[0] = "risk"
    with pytest.raises(InvalidInputError, match=r"could not be joined with the rule .*overlapping.*risk"):
        export_rule(model, backbone=taken)


def test_softmax_ends_where_names_are_given(rows):
    front = network(ending="softmax")
    found = extract(front, rows[3], features="phi", logits="z")
    expected = extract(network(), rows[3])
    np.testing.assert_allclose(found.logits, expected.logits, atol=1e-5)
    np.testing.assert_allclose(found.features, expected.features, atol=1e-5)
    model = fit(rows, ratio=CorrectedSigmoid("paper"))
    check(run(export_rule(model, backbone=front, features="phi", logits="z"), x=rows[3]), model.decide(expected))


ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "poscod", "sklearn", "scipy", "onnx"}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np, onnxruntime
rows = np.load(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
out = session.run(["label", "accept", "score"], {"features": rows["features"], "logits": rows["logits"]})
np.savez(sys.argv[3], **dict(zip(["label", "accept", "score"], out)))
"""


def test_ten_thousand_rows_without_torch_and_without_poscod(default, tmp_path):
    model = default
    new = extract(network(), np.concatenate([inputs(6000, 11), inputs(4000, 12, shift=1.0)]))
    export_rule(model, tmp_path / "rule.onnx")
    np.savez(tmp_path / "rows.npz", features=new.features, logits=new.logits)
    names = [str(tmp_path / name) for name in ("rule.onnx", "rows.npz", "out.npz")]
    subprocess.run([sys.executable, "-I", "-c", ALONE, *names], check=True, timeout=600)
    out, decisions = np.load(tmp_path / "out.npz"), model.decide(new)
    assert len(decisions) == 10_000
    np.testing.assert_array_equal(out["accept"], decisions.accept)
    np.testing.assert_array_equal(out["label"], decisions.label)
    np.testing.assert_allclose(out["score"], decisions.score, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ending", ["gemm", "transposed", "matmul", "identity", "scaled"])
def test_extract_finds_the_last_layer(ending):
    x = inputs(23, 9)
    found = extract(network(ending=ending), (x, np.arange(23) % 4), batch_size=7)
    assert found.features.shape == (23, 8)
    np.testing.assert_allclose(found.logits, found.features @ found.weight.T + found.bias, atol=1e-4)
    np.testing.assert_allclose(found.logits, run(network(ending=ending), x=x)["out"], atol=1e-5)
    assert found.labels.tolist() == [i % 4 for i in range(23)]


def test_extract_to_disk_and_from_batches(tmp_path):
    x = inputs(20, 10)
    batches = [{"x": x[:12], "labels": np.zeros(12)}, {"x": x[12:], "labels": np.ones(8)}]
    found = extract(network(), batches, to=tmp_path / "rows.npz", dtype="float64")
    assert found.features.dtype == np.float64
    again = Activations.load(tmp_path / "rows.npz")
    np.testing.assert_array_equal(again.logits, found.logits)
    assert found.labels.sum() == 8


def test_extract_errors(tmp_path):
    bad = inputs(5, 1)
    bad[3, 0] = np.nan
    for options, match in (
        ((network(), bad), "features must be finite, got nan at row 3"),
        ((network(), inputs(5, 1)[:, :3]), "could not be run on this input"),
        ((network(), inputs(0, 1)), "at least one row"),
        ((network(), (inputs(3, 1), np.array([0, 1, 4]))), r"0, \.\.\., 3, or -1.*got 4"),
        ((network(), (inputs(3, 1), np.zeros(2))), "as many labels as inputs"),
        ((network(), 3), "data must be an array"),
        ((network(ending="softmax"), inputs(3, 1)), "pass features,"),
        ((network(), [{"y": inputs(3, 1)}]), "also takes 'x'"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            extract(*options)
    (tmp_path / "broken.onnx").write_bytes(b"nonsense")
    with pytest.raises(InvalidInputError, match="could not be"):
        extract(tmp_path / "broken.onnx", inputs(3, 1))
    with pytest.raises(FileNotFoundError):
        extract(tmp_path / "gone.onnx", inputs(3, 1))
    two = network()
    two.graph.output.append(helper.make_tensor_value_info("phi", onnx.TensorProto.FLOAT, ["n", 8]))
    with pytest.raises(InvalidInputError, match="pass logits,"):
        extract(two, inputs(3, 1))
    assert extract(two, inputs(3, 1), logits="out").n_classes == 4


def test_images_of_any_size():
    found = extract(pooled(), np.random.default_rng(0).random((4, 3, 9, 7), dtype=np.float32))
    assert found.features.shape == (4, 3)


@pytest.mark.parametrize("loss", ["zero_one", [[0, 1, 2], [3, 0, 1], [1, 4, 0]]])
def test_the_graph_decides_for_the_class_mix_that_is_served(loss, tmp_path):
    """The traffic has another class mix: answers, r and decisions are those of Python, and the metadata say what was served."""
    centres = [[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]], [[4.0, 4.0]]
    world, other = GaussianWorld(*centres), GaussianWorld(*centres, weight_id=[0.1, 0.1, 0.8])
    X, y = world.sample_id(900, random_state=0)
    traffic, _ = other.sample_mixture(600, pi=0.2, random_state=1)
    model = POSCOD(LogisticRegression(), CorrectedSigmoid("paper", l2=1e-3), loss=loss, tpr_min=0.9, random_state=0)
    with pytest.warns(ClassMixWarning, match="another class mix"):
        model.fit(X, y, X_unlabeled=traffic)
    model.save(tmp_path / "m.poscod")
    new = np.concatenate(
        [other.sample_mixture(500, pi=0.3, random_state=2)[0], world.sample_id(500, random_state=3)[0]]
    )
    for fitted in (model, POSCOD.load(tmp_path / "m.poscod"), model.at(alpha=0.2)):
        proto = export_rule(fitted)
        out = run(proto, input=new)
        check(out, fitted.decide(new))
        np.testing.assert_allclose(out["posterior"], fitted.predict_proba(new), atol=1e-9)
        assert facts(proto)["poscod.class_mix"] == mix_document(model)
    # The mix matters: without it some answers are others.
    plain = copy.copy(model)
    plain.scorer_ = dataclasses.replace(model.scorer_, bias=None)
    assert (plain.decide(new).label != out["label"]).any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_trees(dtype):
    """Rows stuck in half of their columns, which only trees see."""
    rng = np.random.default_rng(0)

    def known(n):
        code = rng.integers(0, 2, n)
        return (rng.normal(size=(n, 8)) + 3.0 * code[:, None]).astype(dtype), code

    def stuck(n):
        X = known(n)[0]
        X[:, ::2] = 1.5
        return X

    X, y = known(400)
    model = POSCOD(LogisticRegression(), random_state=0).fit(
        X, y, X_unlabeled=np.concatenate([known(300)[0], stuck(100)])
    )
    assert model.ratio_.model_.trees is not None
    proto = export_rule(model, dtype=np.dtype(dtype).name)
    onnx.checker.check_model(proto)
    new = np.concatenate([known(700)[0], stuck(300), 1e3 * known(20)[0]])
    decisions = model.decide(new)
    assert 0.2 < decisions.accept.mean() < 0.9
    # scikit-learn's probabilities of float32 rows are rounded, and with them 1 - MSP.
    out, precise = run(proto, input=new), dtype is np.float64
    check(out, decisions, precise=precise)
    assert (out["accept"] == decisions.accept).mean() >= (1.0 if precise else 0.998)
