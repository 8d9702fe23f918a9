"""From a CSV file as it is to a report in three commands: as good as the same pipeline written by hand, and new levels are no error."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from poscod import POSCOD
from poscod.cli._tables import TableWriter, open_table
from poscod.model import ProbabilitiesWarning
from test_model.test_prepare import gems

# What costs a fit most, and says nothing about tables.
QUICK = ["--ratio", "paper", "--tpr-min", "0.9"]


def plants(n, seed, ood=False):
    """Twelve signs as words, a sixth of them unknown, as in Soybean; strangers have another sickness and, at times, a sign of their own."""
    rng, law = np.random.default_rng(seed), np.random.default_rng(7)
    words = ["none", "low", "high", "odd"]
    chance = law.dirichlet(np.full(4, 0.5), size=(6, 12))
    y = np.full(n, 5) if ood else rng.integers(0, 5, n)
    signs = np.array([[rng.choice(4, p=chance[kind, j]) for j in range(12)] for kind in y])
    frame = pd.DataFrame({f"sign {j}": np.array(words, dtype=object)[signs[:, j]] for j in range(12)})
    frame = frame.mask(rng.random((n, 12)) < 1 / 6)
    frame["weight"] = np.where(rng.random(n) < 0.1, "?", (5.0 + y + rng.normal(0.0, 1.0, n)).round(2).astype(str))
    if ood:
        frame.loc[rng.random(n) < 0.5, "sign 3"] = "spotted"
    return frame, np.array(["rust", "blight", "rot", "mold", "healthy", "new"])[y]


def written(folder, draw, sizes):
    """Write labeled rows, a log with strangers, fresh rows and clean strangers, as other programs do; return labeled and fresh rows."""
    X, y = draw(sizes[0], 0)
    log = pd.concat([draw(sizes[1], 1)[0], draw(sizes[1] // 3, 2, ood=True)[0]], ignore_index=True)
    fresh, truth = draw(sizes[2], 3)
    strangers = draw(200, 4, ood=True)[0]
    for name, frame in {
        "labeled": X.assign(kind=y),
        "log": log,
        "fresh": fresh.assign(kind=truth),
        "ood": strangers,
    }.items():
        frame.to_csv(folder / f"{name}.csv", index=False, sep=";", decimal=",")
    return X, y, fresh, truth


def by_hand(X, y, fresh, truth):
    """Error of a pipeline as one would write it."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    levels = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing"), OneHotEncoder(handle_unknown="ignore")
    )
    made = make_column_transformer(
        (numbers, make_column_selector(dtype_include=[np.number, bool])),
        (levels, make_column_selector(dtype_include=[object, "string"])),
    )
    return (make_pipeline(made, LogisticRegression(max_iter=1000)).fit(X, y).predict(fresh) != truth).mean()


@pytest.fixture(scope="module")
def jewels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jewels")
    return folder, written(folder, gems, (500, 240, 600))


def three_commands(shell, folder, more):
    fresh = ["--id", folder / "fresh.csv", "--target", "kind", "--ood", folder / "ood.csv"]
    words = ["--target", "kind", *more, "-o", folder / "m.poscod"]
    for command in (
        ["fit", folder / "labeled.csv", folder / "log.csv", *words],
        ["predict", folder / "m.poscod", folder / "fresh.csv", "-o", folder / "d.parquet"],
        ["report", folder / "m.poscod", *fresh, "-o", folder / "r.json"],
    ):
        run = shell(*command)
        assert run.code == 0, run.err
    report = json.loads((folder / "r.json").read_text())
    return open_table(folder / "d.parquet").read(), report


def test_three_commands_from_a_table_as_it_is_to_a_report(shell, jewels):
    folder, (X, y, fresh, truth) = jewels
    rows, _ = three_commands(shell, folder, QUICK)
    assert rows["label"].dtype.kind == "U"
    error, hand = (rows["label"] != truth).mean(), by_hand(X.drop(columns=["seen", "seller"]), y, fresh, truth)
    assert error <= hand + 0.02 < 0.3
    assert abs(rows["accept"].mean() - 0.9) < 0.07
    odd = shell("predict", folder / "m.poscod", folder / "ood.csv", "--explain", "-o", folder / "o.parquet")
    assert odd.code == 0, odd.err
    found = open_table(folder / "o.parquet").read()
    rose = found["cut"] == "rose"
    assert not found["accept"][rose].any()
    assert all(re.search("cut = 'rose': .*, never seen", detail) for detail in found["detail"][rose])


def test_shell_and_python_decide_alike(shell, jewels):
    folder, (_, _, fresh, _) = jewels
    if not (folder / "m.poscod").exists():
        three_commands(shell, folder, QUICK)
    model = POSCOD.load(folder / "m.poscod")
    assert model.schema_.features == ("carat", "depth", "color", "cut", "certified")
    assert model.schema_.target == "kind"
    some = fresh[["certified", "cut", "color", "depth", "carat"]].astype({"color": object})
    with TableWriter(folder / "fresh.xlsx") as file:
        file.write({name: some[name].where(some[name].notna(), None).to_numpy() for name in some})
    run = shell("predict", folder / "m.poscod", folder / "fresh.xlsx", "-o", folder / "x.parquet")
    assert run.code == 0, run.err
    np.testing.assert_allclose(open_table(folder / "x.parquet").read()["score"], model.decide(fresh).score, rtol=1e-9)
    for command in (
        ["review", folder / "m.poscod", folder / "log.csv", "-n", "12", "-o", folder / "q.csv"],
        ["strangers", folder / "m.poscod", folder / "log.csv", "-o", folder / "s.csv"],
        [
            "evaluate",
            folder / "m.poscod",
            "--id",
            folder / "fresh.csv",
            "--target",
            "kind",
            "--unlabeled",
            folder / "log.csv",
        ],
        ["monitor", folder / "m.poscod", folder / "log.csv", "--window", "160"],
    ):
        run = shell(*command)
        assert run.code in (0, 1), run.err


def test_what_cannot_be_read_is_said_at_once(shell, jewels, tmp_path):
    folder, (X, y, _, _) = jewels
    X.assign(kind=y, carat=["1.234,5"] * len(X), depth=["2.000,1"] * len(X)).to_csv(tmp_path / "a.csv", index=False)
    run = shell("fit", tmp_path / "a.csv", folder / "log.csv", "--target", "kind", "-o", tmp_path / "m.poscod")
    assert run.code == 2
    assert "column 'carat' holds numbers such as '1.234,5', which are not clear; column 'depth' holds" in run.err
    run = shell("predict", folder / "m.poscod", tmp_path / "a.csv", "-o", tmp_path / "d.csv")
    assert run.code == 2
    assert "column 'carat' must hold numbers, got '1.234,5' at row 1; column 'depth' must hold numbers" in run.err
    assert not (tmp_path / "d.csv").exists()


def test_onnx_says_what_it_cannot(jewels):
    pytest.importorskip("onnx")
    from poscod.backends.onnx import export_rule

    with pytest.raises(ValueError, match="model reads a table with texts or gaps, and a graph takes numbers"):
        export_rule(POSCOD.load(jewels[0] / "m.poscod"))


def test_probabilities_that_are_called_logits_are_doubted(shell, tables, tmp_path):
    rows = {name: open_table(tables / f"{name}.parquet").read() for name in ("labeled", "unlabeled")}
    for name, block in rows.items():
        share = 1.0 / (1.0 + np.exp(block["logit_dog"] - block["logit_cat"]))
        with TableWriter(tmp_path / f"{name}.csv") as file:
            kept = {"animal": block["animal"]} if name == "labeled" else {}
            file.write({"p_cat": share, "p_dog": 1.0 - share, "width": block["width"], **kept})
    words = [tmp_path / "labeled.csv", tmp_path / "unlabeled.csv", "--target", "animal", "--features", "width", *QUICK]
    run = shell("fit", *words, "--logits", "p_*", "-o", tmp_path / "m.poscod")
    assert run.code == 0, run.err
    assert "The logits look like probabilities" in run.out
    assert issubclass(ProbabilitiesWarning, UserWarning)


@pytest.mark.slow
def test_signs_of_plants_with_the_default_ratio_and_boosting(shell, tmp_path):
    X, y, fresh, truth = written(tmp_path, plants, (500, 300, 600))
    X, fresh = (side.assign(weight=pd.to_numeric(side["weight"], errors="coerce")) for side in (X, fresh))
    rows, _ = three_commands(shell, tmp_path, ["--tpr-min", "0.9"])
    assert (rows["label"] != truth).mean() <= by_hand(X, y, fresh, truth) + 0.02
    assert abs(rows["accept"].mean() - 0.9) < 0.05
    run = shell(
        "evaluate",
        tmp_path / "m.poscod",
        "--id",
        tmp_path / "fresh.csv",
        "--target",
        "kind",
        "--ood",
        tmp_path / "ood.csv",
        "--json",
    )
    assert json.loads(run.out)["rules"][-1]["fpr"]["estimate"] < 0.3, run.out
    rows, _ = three_commands(shell, tmp_path, [*QUICK, "--classifier", "boosting"])
    assert (rows["label"] != truth).mean() < 0.35
