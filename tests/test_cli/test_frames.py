"""Models fitted in Python on data frames, with gaps and texts: the shell decides as Python does."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from poscod import POSCOD
from poscod.cli._tables import open_table
from poscod.ratio import CorrectedSigmoid

RATIO = CorrectedSigmoid("paper", l2=0.01)


def masses(n, size, rng):
    frame = pd.DataFrame(
        {"radius": rng.normal(size, 1.0, n), "texture": rng.normal(20.0, 2.0, n), "clinic": rng.choice(["A", "B"], n)}
    )
    frame.loc[::17, "texture"] = np.nan
    frame.loc[::13, "clinic"] = None
    return frame


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with the model, its tables, and the frame that the tables hold."""
    folder, rng = tmp_path_factory.mktemp("frames"), np.random.default_rng(0)
    rows = pd.concat([masses(150, 10.0, rng), masses(150, 14.0, rng)], ignore_index=True)
    y = np.repeat(["benign", "malignant"], 150)
    log = pd.concat([masses(80, 10.0, rng), masses(80, 14.0, rng), masses(40, 24.0, rng)], ignore_index=True)
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include="number")),
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")), ["clinic"]),
    )
    model = POSCOD(make_pipeline(prepare, LogisticRegression()), RATIO, tpr_min=0.9, random_state=0)
    model.fit(rows, y, X_unlabeled=log).save(folder / "m.poscod")
    POSCOD(LogisticRegression(), RATIO).fit(rows[["radius"]], y, X_unlabeled=log[["radius"]]).save(
        folder / "plain.poscod"
    )
    log.assign(at=np.arange(len(log))).to_parquet(folder / "log.parquet")
    log.to_csv(folder / "log.csv", index=False)
    rows.assign(diagnosis=y).to_csv(folder / "rows.csv", index=False)
    return folder, model, log


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_decisions_are_those_of_python(shell, world, tmp_path, suffix):
    folder, model, log = world
    run = shell("predict", folder / "m.poscod", folder / f"log{suffix}", "-o", tmp_path / "d.parquet")
    assert run.code == 0, run.err
    rows, direct = open_table(tmp_path / "d.parquet").read(), model.decide(log)
    assert rows["label"].tolist() == direct.label.tolist()
    np.testing.assert_allclose(rows["score"], direct.score)
    assert rows["accept"][-40:].mean() < 0.5 < rows["accept"][:160].mean()


def test_every_command_reads_them(shell, world, tmp_path):
    folder, model, log = world
    fresh = ["--id", folder / "rows.csv", "--target", "diagnosis", "--unlabeled", folder / "log.csv"]
    run = shell("evaluate", folder / "m.poscod", *fresh, "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out)["rules"][-1]["label_free"]["accepted"]["estimate"] == model.decide(log).accept.mean()
    run = shell("report", folder / "m.poscod", *fresh, "-o", tmp_path / "r.json")
    assert run.code == 0, run.err
    words = ["--window", "100", "--unlabeled", folder / "log.csv", "--json"]
    run = shell("monitor", folder / "m.poscod", folder / "log.parquet", *words)
    assert run.code == 0, run.err
    assert json.loads(run.out)["totals"]["decisions"] == len(log)


def test_a_column_without_any_value_is_all_gaps(shell, world, tmp_path):
    folder, model, log = world
    log.assign(texture=np.nan).to_csv(tmp_path / "log.csv", index=False)
    run = shell("predict", folder / "m.poscod", tmp_path / "log.csv", "-o", tmp_path / "d.parquet")
    assert run.code == 0, run.err
    expected = model.decide(log.assign(texture=np.nan)).score
    np.testing.assert_allclose(open_table(tmp_path / "d.parquet").read()["score"], expected)


@pytest.mark.parametrize(
    ("value", "sentence"), [("", "Input X contains NaN"), ("wide", "could not convert string to float: 'wide'")]
)
def test_what_a_classifier_refuses_is_bad_input(shell, world, tmp_path, value, sentence):
    folder, _, log = world
    log.assign(radius=[value] + [1.0] * (len(log) - 1)).to_csv(tmp_path / "log.csv", index=False)
    run = shell("predict", folder / "plain.poscod", tmp_path / "log.csv", "-o", tmp_path / "d.csv")
    assert run.code == 2
    assert run.err == f"poscod: error: the classifier of the model refuses these rows: {sentence}.\n"
    assert not (tmp_path / "d.csv").exists()
