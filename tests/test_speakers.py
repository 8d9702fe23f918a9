"""One rule, one promise: for every way to make a rule, all speakers say the same of it, or nothing.

And one estimate of each quantity: TPR, FPR, OOD share and error of the same rows are the same numbers everywhere, with their intervals.
Shell (text and JSON), service, report (JSON and page), its explorer, the monitor and its page, and the metadata of the ONNX graph.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import html
import io
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD, ScodProblem
from poscod.cli import main
from poscod.exceptions import InvalidInputError
from poscod.mix import ClassMix
from poscod.model import ClassMixWarning, choices_document, mix_document
from poscod.monitor import Monitor, Reference
from poscod.problem import BoundedProblem, CostProblem, CoverageProblem, GeneralisedProblem, PrecisionProblem, RiskBound
from poscod.ratio import CorrectedSigmoid
from poscod.report import render, summarise
from poscod.rule import Promise
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
SHIFTED = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]], weight_id=[0.85, 0.15])
RATIO = CorrectedSigmoid("paper", l2=1e-3)
FIRST = Path(__file__).parent / "test_model" / "first_edition"

WAYS = {
    "fit": lambda m: m["empirical"],
    "guaranteed": lambda m: m["guaranteed"],
    "folds": lambda m: m["folds"],
    "every class": lambda m: m["every"],
    "every class guaranteed": lambda m: m["every guaranteed"],
    "every class at": lambda m: m["every"].at(alpha=0.2, tpr_min=0.8),
    "every class guaranteed at": lambda m: m["every guaranteed"].at(alpha=0.2, tpr_min=0.75),
    "every class among 4": lambda m: m["every guaranteed"].at(alpha=0.2, rules=4),
    "every class bounded": lambda m: m["every"].with_rule(BoundedProblem(0.8, 0.5)),
    "every class budget": lambda m: m["every guaranteed"].budget(0.2),
    "every class again": lambda m: m["every guaranteed"].budget(0.2).at(tpr_min=0.8),
    "every class on a cluster": lambda m: m["cluster every"],
    "another class mix": lambda m: moved(m["empirical"], ScodProblem(0.3, 0.9)),
    "another class mix guaranteed": lambda m: moved(m["guaranteed"], ScodProblem(0.3, 0.85)),
    "another class mix, risk bound": lambda m: moved(m["guaranteed"], RiskBound(0.2, 0.1)),
    "another class mix, every class": lambda m: moved(m["every guaranteed"], ScodProblem(0.3, 0.8)),
    "shifted mix": lambda m: m["shifted"],
    "shifted mix at": lambda m: m["shifted"].at(alpha=0.2, tpr_min=0.8),
    "shifted mix guaranteed": lambda m: m["shifted guaranteed"],
    "shifted mix budget": lambda m: m["shifted"].budget(0.2),
    "shifted mix on a cluster": lambda m: m["cluster shifted"],
    "asked for at first": lambda m: m["asked"],
    "at": lambda m: m["empirical"].at(alpha=0.2, tpr_min=0.8),
    "at after at": lambda m: m["empirical"].with_rule(ScodProblem(0.2, 0.8)).at(alpha=0.6),
    "guaranteed at": lambda m: m["guaranteed"].at(alpha=0.2),
    "guaranteed among 12": lambda m: m["guaranteed"].at(alpha=0.2, rules=12),
    "g alone": lambda m: m["empirical"].at(alpha=1.0),
    "r alone": lambda m: m["empirical"].at(alpha=0.0),
    "another loss": lambda m: m["empirical"].at(loss=[[0, 1], [4, 0]]),
    "budget": lambda m: m["guaranteed"].budget(0.2),
    "risk bound": lambda m: m["empirical"].control_risk(0.2, delta=0.1),
    "shared risk bound": lambda m: m["empirical"].control_risk(0.2, delta=0.2, rules=3),
    "generalised": lambda m: m["empirical"].with_rule(GeneralisedProblem(0.3, 0.7)),
    "costs": lambda m: m["guaranteed"].with_rule(CostProblem(0.3, 2.0)),
    "bounded": lambda m: m["empirical"].with_rule(BoundedProblem(0.8, 0.5)),
    "precision": lambda m: m["empirical"].with_rule(PrecisionProblem(0.8, 0.6)),
    "coverage": lambda m: m["empirical"].with_rule(CoverageProblem(0.4, 0.3)),
    "cluster": lambda m: m["cluster"],
    "cluster at": lambda m: m["cluster"].at(tpr_min=0.8),
    "first edition": lambda m: POSCOD.load(FIRST / "default.poscod"),
    "first guaranteed": lambda m: POSCOD.load(FIRST / "guaranteed.poscod"),
    "first at": lambda m: POSCOD.load(FIRST / "at.poscod"),
    "first budget": lambda m: POSCOD.load(FIRST / "budget.poscod"),
    "first risk bound": lambda m: POSCOD.load(FIRST / "risk_bound.poscod"),
    "first costs": lambda m: POSCOD.load(FIRST / "cost.poscod"),
    "first bounded": lambda m: POSCOD.load(FIRST / "bounded.poscod"),
    "first cluster": lambda m: POSCOD.load(FIRST / "dask.poscod"),
}

# quantity, bound, confidence, compared rules, chosen after the fit; where they are not "all" and None, over what and for which class mix
PROMISES = {
    "fit": ("tpr", 0.9, None, 1, False),
    "guaranteed": ("tpr", 0.85, 0.9, 1, False),
    "folds": ("tpr", 0.9, None, 1, False),
    "every class": ("tpr", 0.9, None, 1, False, "classes"),
    "every class guaranteed": ("tpr", 0.8, 0.9, 1, False, "classes"),
    "every class at": ("tpr", 0.8, None, 1, True, "classes"),
    "every class guaranteed at": ("tpr", 0.75, 0.9, 1, True, "classes"),
    "every class among 4": ("tpr", 0.8, 0.9, 4, True, "classes"),
    "every class bounded": ("tpr", 0.8, None, 1, True, "classes"),
    "every class again": ("tpr", 0.8, 0.9, 1, True, "classes"),
    "every class on a cluster": ("tpr", 0.8, 0.9, 1, False, "classes"),
    "another class mix": ("tpr", 0.9, None, 1, True, "all", "traffic"),
    "another class mix guaranteed": ("tpr", 0.85, 0.9, 1, True, "all", "labeled"),
    "another class mix, risk bound": ("selective_risk", 0.2, 0.9, 1, True, "all", "labeled"),
    "another class mix, every class": ("tpr", 0.8, 0.9, 1, True, "classes"),
    "shifted mix": ("tpr", 0.9, None, 1, False, "all", "traffic"),
    "shifted mix at": ("tpr", 0.8, None, 1, True, "all", "traffic"),
    "shifted mix guaranteed": ("tpr", 0.85, 0.9, 1, False, "all", "labeled"),
    "shifted mix on a cluster": ("tpr", 0.9, None, 1, False, "all", "traffic"),
    "asked for at first": ("tpr", 0.75, None, 1, False),
    "at": ("tpr", 0.8, None, 1, True),
    "at after at": ("tpr", 0.8, None, 1, True),
    "guaranteed at": ("tpr", 0.85, 0.9, 1, True),
    "guaranteed among 12": ("tpr", 0.85, 0.9, 12, True),
    "g alone": ("tpr", 0.9, None, 1, True),
    "r alone": ("tpr", 0.9, None, 1, True),
    "another loss": ("tpr", 0.9, None, 1, True),
    "risk bound": ("selective_risk", 0.2, 0.9, 1, True),
    "shared risk bound": ("selective_risk", 0.2, 0.8, 3, True),
    "generalised": ("tpr", 0.7, None, 1, True),
    "bounded": ("tpr", 0.8, None, 1, True),
    "precision": ("tpr", 0.8, None, 1, True),
    "cluster": ("tpr", 0.9, None, 1, False),
    "cluster at": ("tpr", 0.8, None, 1, True),
    "first edition": ("tpr", 0.9, None, 1, True),  # the file does not say whether `at` had moved it
    "first guaranteed": ("tpr", 0.9, 0.9, 1, True),
    "first at": ("tpr", 0.7, None, 1, True),
    "first bounded": ("tpr", 0.7, None, 1, True),
    "first cluster": ("tpr", 0.9, None, 1, True),
}


def moved(model, problem):
    """The model as if its traffic had another class mix, asked for a problem there."""
    p = np.full(2, 0.5)
    mix = ClassMix(p, np.array([0.8, 0.2]), p, p, p_value=0.0, changed=True)
    model = copy.copy(model)
    model.calibration_ = dataclasses.replace(model.calibration_, mix=mix)
    return model.with_rule(problem)


def warned(fit):
    """Fit where the traffic has another class mix, which is told."""
    with pytest.warns(ClassMixWarning, match="another class mix"):
        return fit()


@pytest.fixture(scope="module")
def fitted():
    X, y = WORLD.sample_id(800, random_state=0)
    traffic, _ = WORLD.sample_mixture(400, pi=0.3, random_state=1)

    def fit(traffic=traffic, **parameters):
        return POSCOD(LogisticRegression(), RATIO, random_state=0, **parameters).fit(X, y, X_unlabeled=traffic)

    shifted, _ = SHIFTED.sample_mixture(400, pi=0.3, random_state=1)

    made = {
        "empirical": fit(alpha=0.3, tpr_min=0.9, calibration=0.5),
        "guaranteed": fit(alpha=0.3, tpr_min=0.85, threshold="guaranteed", delta=0.1),
        "folds": fit(alpha=0.3, tpr_min=0.9),
        "every": fit(alpha=0.3, tpr_min=0.9, tpr_over="classes"),
        "every guaranteed": fit(alpha=0.3, tpr_min=0.8, tpr_over="classes", threshold="guaranteed", delta=0.1),
        "shifted": warned(lambda: fit(shifted, alpha=0.3, tpr_min=0.9)),
        "shifted guaranteed": warned(lambda: fit(shifted, alpha=0.3, tpr_min=0.85, threshold="guaranteed", delta=0.1)),
        "asked": fit(problem=GeneralisedProblem(0.4, 0.75)),
    }
    array, dask = (pytest.importorskip(name, reason="dask is not installed") for name in ("dask.array", "dask"))
    from poscod.backends.dask import fit as fit_chunks

    frozen = POSCOD(FrozenEstimator(LogisticRegression().fit(X[:100], y[:100])), RATIO, tpr_min=0.9, random_state=0)
    with dask.config.set(scheduler="threads"):
        made["cluster"] = fit_chunks(
            frozen, array.from_array(X[100:], (100, 2)), y[100:], array.from_array(traffic, (80, 2))
        )
        chunks = array.from_array(X[100:], (100, 2)), y[100:], array.from_array(shifted, (80, 2))
        made["cluster shifted"] = warned(lambda: fit_chunks(frozen, *chunks))
        strict = clone(frozen).set_params(tpr_min=0.8, tpr_over="classes", threshold="guaranteed", delta=0.1)
        made["cluster every"] = fit_chunks(
            strict, array.from_array(X[100:], (100, 2)), y[100:], array.from_array(traffic, (80, 2))
        )
    return made


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Fresh ID rows of both widths that the models have, as CSV files, and as arrays."""
    folder = tmp_path_factory.mktemp("tables")
    found = {}
    for width in (2, 3):
        X, y = WORLD.sample_id(120, random_state=5)
        X = np.column_stack([X, np.zeros((len(X), width - 2))])
        path = folder / f"{width}.csv"
        names = ["a", "b", "c"][:width]
        np.savetxt(
            path, np.column_stack([X, y]), delimiter=",", header=",".join([*names, "class"]), comments="", fmt="%.17g"
        )
        found[width] = path, X, y
    return found


@pytest.fixture(scope="module", params=WAYS)
def said(request, fitted, tables, tmp_path_factory):
    """A model, its file, and fresh rows for it."""
    model = WAYS[request.param](fitted)
    path = tmp_path_factory.mktemp("said") / "model.poscod"
    model.save(path)
    return request.param, model, path, tables[model.schema_.n_features]


def shell(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([str(argument) for argument in arguments]) == 0
    return out.getvalue()


def plain(page):
    """The text of a page as a reader sees it: no entities, no backslashes of Markdown, one space between words."""
    return " ".join(html.unescape(page).replace("\\", "").split())


def same_rates(reference, estimates):
    """A monitor's reference and the estimates of the fit speak of the same rows."""
    assert reference.tpr() == pytest.approx(estimates.tpr)
    if estimates.free is None:
        assert np.isnan(reference.fpr().estimate)
        return
    assert reference.prior == estimates.free.ood_prior
    assert reference.fpr()[:3] == pytest.approx(estimates.free.fpr[:3], nan_ok=True)


def test_the_rule_is_what_was_asked(said):
    name, model, *_ = said
    promise = model.rule_.promise
    asked = PROMISES.get(name)
    assert promise == (None if asked is None else Promise(*asked))
    if promise is not None and promise.over == "classes":
        assert "every class" in str(model.rule_)
        assert "every class" in str(promise)
    assert model.rule_.tpr_promised == (promise.bound if promise is not None and promise.quantity == "tpr" else None)
    if model.rule_.tpr_promised is not None:
        assert model.rule_.tpr_promised == model.rule_.problem.tpr_min


def test_a_loaded_model_says_the_same(said):
    _, model, path, _ = said
    assert POSCOD.load(path).rule_ == model.rule_
    assert str(POSCOD.load(path).rule_) == str(model.rule_)
    assert mix_document(POSCOD.load(path)) == mix_document(model)


def test_the_shell(said):
    _, model, path, (table, *_) = said
    arguments = ("evaluate", path, "--id", table, "--target", "class")
    document, text = json.loads(shell(*arguments, "--json")), " ".join(shell(*arguments).split())
    assert document["rule"] == model.rule_.to_dict()
    assert str(model.rule_) in text
    mix = mix_document(model)
    assert document["class_mix"]["at_fit"] == mix
    assert (mix["sentence"] in text) == mix["changed"]


def test_the_service(said):
    testclient = pytest.importorskip("starlette.testclient", reason="starlette is not installed")
    from poscod.serve import Settings, create_app

    _, model, path, _ = said
    with testclient.TestClient(create_app(path, Settings()), base_url="http://127.0.0.1") as client:
        card = client.get("/v1/model").json()
        assert card["rule"] == model.rule_.to_dict()
        assert card["class_mix"] == mix_document(model)
        assert card["estimates"] == choices_document(model)
        there = client.get("/v1/at").json()
        if there["rule"] == card["rule"]:  # first files do not know how their rule was made, and it is made anew
            told = {key: value for key, value in there["estimates"].items() if key != "doubts"}
            assert told == {key: card["estimates"][key] for key in told}


def test_the_report_and_its_explorer(said):
    name, model, _, (_, X, y) = said
    traffic, _ = WORLD.sample_mixture(100, pi=0.3, random_state=6)
    traffic = np.column_stack([traffic, np.zeros((100, X.shape[1] - 2))])
    summary = summarise(model, X=X, y=y, X_unlabeled=traffic)
    rule, promise = model.rule_.to_dict(), model.rule_.promise
    assert summary["rule"] == rule
    told = summary["promise"]
    assert (told["verdict"] == "none") == (promise is None)
    if promise is not None:
        assert (told["quantity"], told["bound"], told["confidence"]) == (
            promise.quantity,
            promise.bound,
            promise.confidence,
        )
    assert summary["class_mix"]["at_fit"] == mix_document(model, model.calibration_.classes)
    assert summary["estimates"] == choices_document(model)
    for form in (".html", ".md"):
        page = plain(render(summary, form))
        assert str(model.rule_) in page
        for line in summary["estimates"]["lines"]:
            assert line["text"] in page
        if summary["class_mix"]["at_fit"]["changed"]:
            assert summary["class_mix"]["at_fit"]["sentence"] in page
    explorer = summary["explorer"]
    start = {key: explorer[key]["positions"][explorer[key]["start"]] for key in ("alpha", "tpr_min")}
    assert start["alpha"] == model.rule_.problem.alpha
    if explorer["own"]:  # the sliders stand where the rule does
        assert start["tpr_min"] == model.rule_.problem.tpr_min
    else:
        elsewhere = {"guaranteed among 12", "first cluster"}
        assert type(model.rule_.problem) is not ScodProblem or name in elsewhere or promise.over == "classes"


def test_the_monitor(said):
    _, model, *_ = said
    reference = Reference.from_model(model)
    assert reference.rule == model.rule_.to_dict()
    same_rates(reference, model.estimates())
    summary = Monitor(reference).summary()
    assert summary["reference"]["rule"] == model.rule_.to_dict()
    for form in (".html", ".md"):
        assert str(model.rule_) in plain(render(summary, form))


def test_the_onnx_graph(said):
    pytest.importorskip("onnx", reason="onnx is not installed")
    from poscod.backends.onnx import export_rule

    way, model, *_ = said
    if way == "first edition":
        with pytest.raises(InvalidInputError, match="cannot be exported: fit the model again"):
            export_rule(model)
        return
    properties = {item.key: item.value for item in export_rule(model).metadata_props}
    assert json.loads(properties["poscod.rule"]) == model.rule_.to_dict()
    assert json.loads(properties["poscod.sentence"]) == str(model.rule_)
    assert json.loads(properties["poscod.class_mix"]) == mix_document(model)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A model that the shell has fitted, what it told, and tables: labeled rows, a log, and fresh ones of both."""
    folder = tmp_path_factory.mktemp("told")
    X, y = WORLD.sample_id(600, random_state=0)
    fresh, y_fresh = WORLD.sample_id(300, random_state=3)
    logs = (WORLD.sample_mixture(400, pi=0.3, random_state=seed)[0] for seed in (1, 4))
    parts = (np.column_stack([X, y]), next(logs), np.column_stack([fresh, y_fresh]), next(logs))
    paths = [folder / f"{name}.csv" for name in ("labeled", "log", "fresh", "fresh_log")]
    for path, rows in zip(paths, parts, strict=True):
        header = ",".join(["a", "b", "class"][: rows.shape[1]])
        np.savetxt(path, rows, delimiter=",", header=header, comments="", fmt="%.17g")
    model = folder / "model.poscod"
    words = ("--target", "class", "--ratio", "paper", "--tpr-min", "0.9", "-o", model)
    document = json.loads(shell("fit", *paths[:2], *words, "--json"))
    return model, document, paths, shell("at", model, "--alpha", "0.5", "-o", folder / "same.poscod")


def test_one_estimate_of_each_quantity_at_fit(told):
    """FPR, TPR, OOD share and error of one model on the rows of its fit: shell, Python, monitor, report, and the page of the report."""
    path, document, (_, _, fresh, fresh_log), text = told
    model = POSCOD.load(path)
    expected, found = document["estimates"], model.estimates()
    assert expected == choices_document(model)
    assert document["ood_prior"] == expected["ood_prior"] == found.free.ood_prior._asdict()
    assert expected["fpr"]["estimate"] == found.free.fpr.estimate
    same_rates(Reference.from_model(model), found)
    monitored = Monitor(Reference.from_model(model)).summary()["reference"]
    for name in ("tpr", "fpr"):
        assert monitored[name] == pytest.approx(expected[name])
    for line in expected["lines"]:  # `poscod at` at the same costs says the same, word for word
        assert f"{line['name']}  " in text
        assert line["text"] in text
    table = np.loadtxt(fresh, delimiter=",", skiprows=1)
    traffic = np.loadtxt(fresh_log, delimiter=",", skiprows=1)
    summary = summarise(model, X=table[:, :2], y=table[:, 2].astype(int), X_unlabeled=traffic, groups=False)
    assert summary["estimates"] == expected
    assert summary["ratio"]["at_fit"] == expected["ood_prior"]


def test_one_estimate_of_each_quantity_on_fresh_rows(told):
    """The same of fresh rows: `poscod evaluate`, Python and report."""
    path, _, (_, _, fresh, fresh_log), _ = told
    model = POSCOD.load(path)
    words = ("evaluate", path, "--id", fresh, "--target", "class", "--unlabeled", fresh_log, "--json")
    document = json.loads(shell(*words))
    table, traffic = (np.loadtxt(file, delimiter=",", skiprows=1) for file in (fresh, fresh_log))
    python = model.evaluate_unlabeled(table[:, :2], table[:, 2].astype(int), traffic)
    rates = summarise(model, X=table[:, :2], y=table[:, 2].astype(int), X_unlabeled=traffic, groups=False)["rates"]
    own = document["rules"][-1]
    assert own["tpr"] == rates["tpr"] == python.tpr._asdict()
    assert own["selective_risk"] == rates["selective_risk"] == python.selective_risk._asdict()
    assert document["ood_prior"] == python.ood_prior._asdict()
    names = ("estimate", "low", "high")
    assert [own["label_free"]["fpr"][name] for name in names] == list(python.fpr[:3])
    assert [rates["free_fpr"][name] for name in names] == list(python.fpr[:3])
