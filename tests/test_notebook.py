"""Notebooks: the example runs, and every value that people look at has a short line and a small, escaped table."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.mix import ClassMix
from poscod.ratio import CorrectedSigmoid
from poscod.review import assess, queue, strangers
from poscod.selector import Drift
from poscod.theory import GaussianWorld

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples" / "first_model.ipynb"
WORLD = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
HOSTILE = np.array(["<script>alert(1)</script>", "<b>dog</b>"])


def outputs(cell):
    """Return what a cell shows, by its type."""
    return {kind: data for out in cell.get("outputs", []) for kind, data in out.get("data", {}).items()}


def test_the_notebook_of_the_examples_runs():
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(outputs(cell) for cell in notebook.cells), "the notebook is kept without outputs"
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    client.NotebookClient(notebook, timeout=300).execute(env={**os.environ, "PYTHONPATH": paths})
    shown = [outputs(cell) for cell in notebook.cells if cell.cell_type == "code"]
    model, decisions, plane, rejections = shown[1], shown[2], shown[5], shown[6]
    assert "sk-container" in model["text/html"]  # scikit-learn's diagram
    assert "Fitted." in model["text/html"]
    assert "ID inputs are accepted" in model["text/html"]
    assert "in similar rows" in decisions["text/html"]
    assert "image/png" in plane
    assert "image/png" in rejections
    assert not any("Traceback" in str(cell) for cell in notebook.cells)


@pytest.fixture(scope="module")
def fitted():
    X, y = WORLD.sample_id(400, random_state=0)
    traffic, _ = WORLD.sample_mixture(250, pi=0.3, random_state=1)
    model = POSCOD(LogisticRegression(), CorrectedSigmoid("paper", l2=1e-3), tpr_min=0.9, random_state=0)
    return model.fit(X, HOSTILE[y], X_unlabeled=traffic), X, HOSTILE[y], traffic


def test_a_model_looks_fitted_once_it_is(fitted):
    model, *_ = fitted
    page = model._repr_mimebundle_()["text/html"]
    assert str(model.rule_).split(" <= ")[0] in page
    assert "Fitted." in model._repr_html_()
    assert "Fitted." not in POSCOD()._repr_html_()
    with config_context(display="text"):
        assert set(model._repr_mimebundle_()) == {"text/plain"}


def test_values_have_a_line_and_an_escaped_table(fitted):
    model, X, y, traffic = fitted
    ood = WORLD.sample_ood(100, random_state=2)
    chosen = queue(model, traffic, 30, random_state=0)
    values = {
        "Decisions(": model.decide(traffic),
        "Explained(": model.decide(traffic, explain=True),
        "Evaluation(tpr 0.": model.evaluate(X, y, ood),
        "UnlabeledEvaluation(tpr 0.": model.evaluate_unlabeled(X, y, traffic),
        "Estimates(accuracy 0.": model.estimates(),
        "Queue(30 of 250": chosen,
        "Assessment(": assess(model, traffic, chosen, chosen.answer),
        "Strangers(": strangers(model, traffic),
        "ClassMix(": model.calibration_.mix,
    }
    for start, value in values.items():
        text, page = repr(value), value._repr_html_()
        assert text.startswith(start)
        assert len(text) < 400
        assert "<table>" in page
        assert "<script>" not in page
        assert "<b>dog" not in page
    assert "&lt;script&gt;" in values["Decisions("]._repr_html_()
    counts = values["Decisions("]
    assert f"{int(counts.accept.sum())} accepted" in repr(counts)
    tpr = values["Evaluation(tpr 0."].tpr
    assert f"tpr {tpr.estimate:.3g} [{tpr.low:.3g}, {tpr.high:.3g}]" in repr(values["Evaluation(tpr 0."])
    assert repr(tpr) == f"Interval({tpr.estimate:.3g} [{tpr.low:.3g}, {tpr.high:.3g}], 95 %)"


def test_drift_and_an_unchanged_mix_are_sentences():
    drift = Drift("drift", ("<i>x</i>",), (2.0,), (1.0,), 0.5, 0.4, False, False)
    assert repr(drift) == f"Drift({drift.sentence()})"
    assert "&lt;i&gt;" in drift._repr_html_()
    assert "not found to differ" in repr(ClassMix.unchanged([1, 3]))
