"""Evaluate as a user does: the numbers are those of Python, beside the rules that compete."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poscod import POSCOD
from poscod.metrics import aurc, auroc, ausrt
from test_cli._world import SIZES, columns_of, write_table

RULES = ["risk", "ratio", "sirc", "poscod"]


def rows_of(name):
    columns = columns_of(name)
    return np.column_stack([columns["größe"], columns["width"]])


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_numbers_are_those_of_python(shell, model_file, tables, suffix):
    words = [f"--{group}" for group in ("id", "ood", "unlabeled")]
    files = [f"{tables}/{name}{suffix}" for name in ("test", "ood", "log")]
    run = shell(
        "evaluate",
        model_file,
        *(w for pair in zip(words, files, strict=True) for w in pair),
        "--level",
        "0.9",
        "--json",
    )
    assert run.code == 0, run.err
    document = json.loads(run.out)
    assert [row["rule"] for row in document["rules"]] == RULES
    assert document["rows"] == {"id": SIZES["test"], "ood": SIZES["ood"], "unlabeled": SIZES["log"]}
    model, y = POSCOD.load(model_file), columns_of("test")["animal"]
    own = document["rules"][-1]
    truth = model.evaluate(rows_of("test"), y, rows_of("ood"), level=0.9)
    for name in ("tpr", "fpr", "selective_risk", "risk"):
        assert own[name] == pytest.approx(getattr(truth, name)._asdict())
    free = model.evaluate_unlabeled(rows_of("test"), y, rows_of("log"), level=0.9)
    assert own["label_free"]["fpr"]["estimate"] == pytest.approx(free.fpr.estimate)
    assert document["ood_prior"] == pytest.approx(free.ood_prior._asdict())
    assert isinstance(document["findings"], list)
    known, ood = model.decide(rows_of("test")), model.decide(rows_of("ood"))
    loss = (known.label != y).astype(float)
    assert own["ausrt"] == pytest.approx(ausrt(known.score, loss, ood.score, alpha=0.5))
    assert own["auroc"] == pytest.approx(auroc(known.score, ood.score))
    alone = document["rules"][0]
    assert alone["aurc"] == pytest.approx(aurc(known.risk, loss))
    # r alone is the model at alpha = 0: the same threshold on the same calibration rows.
    msp = model.at(alpha=0.0)
    assert alone["threshold"] == pytest.approx(msp.threshold_)
    assert alone["fpr"]["estimate"] == pytest.approx(msp.evaluate(rows_of("test"), y, rows_of("ood")).fpr.estimate)
    assert own["fpr"]["estimate"] < alone["fpr"]["estimate"]


def test_words_for_people(shell, model_file, tables):
    run = shell(
        "evaluate",
        model_file,
        "--id",
        f"{tables}/test.csv",
        "--ood",
        f"{tables}/ood.csv",
        "--unlabeled",
        f"{tables}/log.csv",
    )
    assert run.code == 0, run.err
    lines = run.out.splitlines()
    assert lines[0] == "Rows: 200 ID, 100 OOD, 200 unlabeled; 95 % intervals in brackets."
    assert lines[1] == f"Rule: {POSCOD.load(model_file).rule_}"
    titles = [line.split("  ")[0] for line in lines[3:8]]
    assert titles == ["rule", "r alone", "g alone", "SIRC(r, g)", "poscod"]
    assert sum("TPR is about 0.9, and on 200 fresh rows it is " in line for line in lines) == 1
    assert sum(line.startswith("Without OOD labels: ") for line in lines) == 2


def test_labeled_rows_alone(shell, model_file, tables):
    run = shell("evaluate", model_file, "--id", f"{tables}/test.csv", "--target", "animal")
    assert run.code == 0, run.err
    assert "OOD accepted" not in run.out
    assert "AURC" in run.out


def test_without_ood_rows_the_table_estimates_their_rates(shell, model_file, tables):
    words = ["evaluate", model_file, "--id", f"{tables}/test.csv", "--unlabeled", f"{tables}/log.csv"]
    lines = shell(*words).out.splitlines()
    assert lines[3].split("  ")[0] == "rule"
    assert [word in lines[3] for word in ("OOD accepted*", "SCOD risk*", "AURC", "AuSRT")] == [True, True, True, False]
    assert lines[8] == "* estimated without OOD labels"
    rules = json.loads(shell(*words, "--json").out)["rules"]
    for line, rule in zip(lines[4:8], rules, strict=True):
        free = rule["label_free"]
        assert f" {100 * free['fpr']['estimate']:.1f} % [" in line
        assert f" {free['risk']['estimate']:.3f} [" in line
    assert rules[-1]["label_free"]["risk"]["estimate"] < rules[0]["label_free"]["risk"]["estimate"]


def test_rates_that_say_nothing_are_not_known(shell, model_file, tables):
    """With a share of OOD inputs of one in a million, traffic says nothing about how many of them are accepted."""
    words = ["--id", f"{tables}/test.csv", "--unlabeled", f"{tables}/log.csv", "--pi", "1e-6"]
    run = shell("evaluate", model_file, *words)
    assert run.code == 0, run.err
    assert run.out.splitlines()[7].count("not known") == 2


def test_rows_of_the_fit_are_recognised(shell, model_file, tables):
    words = ["--id", f"{tables}/labeled.csv", "--unlabeled", f"{tables}/unlabeled.parquet"]
    run = shell("evaluate", model_file, *words)
    assert run.code == 0, run.err
    for option in ("--id", "--unlabeled"):
        assert f"Note: rows of {option} are rows of the fit: the numbers are too good. Give fresh rows.\n" in run.out
    words = ["--id", f"{tables}/test.csv", "--unlabeled", f"{tables}/log.csv", "--json"]
    assert json.loads(shell("evaluate", model_file, *words).out)["warnings"] == []


def test_rows_of_a_cross_fit_are_recognised(shell, tables, tmp_path):
    """After cross-fitting the model keeps other scores of its rows than it gives them now: content tells."""
    words = [
        "--target",
        "animal",
        "--features",
        "größe",
        "--features",
        "width",
        "--ratio",
        "paper",
        "-o",
        tmp_path / "m.poscod",
    ]
    assert shell("fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *words).code == 0
    for known, log, said in (("labeled", "log", ["--id"]), ("test", "unlabeled", ["--unlabeled"]), ("test", "log", [])):
        words = ["--id", f"{tables}/{known}.csv", "--unlabeled", f"{tables}/{log}.csv", "--json"]
        notes = json.loads(shell("evaluate", tmp_path / "m.poscod", *words).out)["warnings"]
        assert [note.split(" are rows of the fit")[0] for note in notes] == [f"rows of {name}" for name in said]


def test_equal_inputs_prove_nothing(shell, tmp_path):
    """Three different inputs: fresh rows equal those of the fit, and that is no reason for a note."""
    for seed, (name, known) in enumerate({"labeled": True, "unlabeled": False, "test": True}.items()):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 300)
        kind = np.where(rng.random(300) < 0.8, y, 2 if not known else 1 - y)
        columns = {"a": kind.astype(float), "b": (kind == 2).astype(float)}
        write_table(tmp_path / f"{name}.csv", {**columns, "y": y} if known else columns)
    words = ["--target", "y", "--ratio", "paper", "-o", tmp_path / "m.poscod"]
    assert shell("fit", tmp_path / "labeled.csv", tmp_path / "unlabeled.csv", *words).code == 0
    run = shell("evaluate", tmp_path / "m.poscod", "--id", tmp_path / "test.csv", "--json")
    assert json.loads(run.out)["warnings"] == []


@pytest.mark.parametrize("made", ["budget", "control_risk"])
def test_no_promise_is_invented(shell, model_file, tables, tmp_path, made):
    """A budget and a bound of the error move the threshold: nothing is missed that nobody promised."""
    model = POSCOD.load(model_file)
    moved = model.budget(0.5) if made == "budget" else model.control_risk(0.2)
    moved.save(tmp_path / "m.poscod")
    words = ["evaluate", tmp_path / "m.poscod", "--id", f"{tables}/test.csv", "--ood", f"{tables}/ood.csv"]
    run = shell(*words)
    assert run.code == 0, run.err
    document = json.loads(shell(*words, "--json").out)
    assert document["rule"] == moved.rule_.to_dict()
    assert "TPR" not in run.out
    if made == "budget":
        assert "Nothing is promised about the share of known inputs accepted; on 200 fresh rows it is " in run.out
        assert document["promise"]["verdict"] == "none"
    else:
        assert "selective risk is at most 0.2 with probability 0.95, and on 200 fresh rows it is " in run.out
        assert document["promise"]["verdict"] in ("held", "open")
    assert json.loads(shell("evaluate", model_file, *words[2:], "--json").out)["promise"]["quantity"] == "tpr"


def test_numbers_in_a_file(shell, model_file, tables, tmp_path):
    words = ["--id", f"{tables}/test.csv", "--unlabeled", f"{tables}/log.csv", "--pi", "0.3"]
    run = shell("evaluate", model_file, *words, "-o", tmp_path / "metrics.json", "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out)["ood_prior"]["estimate"] == 0.3
    assert json.loads((tmp_path / "metrics.json").read_text()) == json.loads(run.out)


def test_another_loss(shell, tables, tmp_path):
    loss = tmp_path / "loss.csv"
    loss.write_text("cat,dog\n0,1\n5,0\n")
    words = ["--target", "animal", "--features", "größe", "--features", "width", "--loss", loss, "--ratio", "paper"]
    assert shell("fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *words, "-o", tmp_path / "m").code == 0
    run = shell("evaluate", tmp_path / "m", "--id", f"{tables}/test.csv", "--json")
    y, answer = columns_of("test")["animal"], POSCOD.load(tmp_path / "m").decide(rows_of("test"))
    cost = np.where(answer.label == y, 0.0, np.where(y == "dog", 5.0, 1.0))[answer.accept].mean()
    assert json.loads(run.out)["rules"][-1]["selective_risk"]["estimate"] == pytest.approx(cost)


def test_an_outside_classifier(shell, tables, tmp_path):
    words = [
        "--target",
        "animal",
        "--logits",
        "logit_*",
        "--features",
        "größe",
        "--features",
        "width",
        "-o",
        tmp_path / "m",
    ]
    assert shell("fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *words).code == 0
    words = ["--id", f"{tables}/test.csv", "--ood", f"{tables}/ood.csv", "--unlabeled", f"{tables}/log.csv"]
    run = shell("evaluate", tmp_path / "m", *words, "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out)["rules"][-1]["tpr"]["estimate"] > 0.7


def test_what_is_wrong_is_said(shell, model_file, tables, tmp_path):
    base = ["evaluate", model_file, "--id", f"{tables}/test.csv"]
    cases = {
        "--pi is the share of OOD inputs in --unlabeled": [*base, "--pi", "0.3"],
        "--output must end in .json": [*base, "-o", tmp_path / "a.txt"],
        "has no column 'species'": [*base, "--target", "species"],
        "the column of --target must hold labels seen at fit, got 'cow': OOD rows are passed apart": None,
        "--level must be a number": [*base, "--level", "1.0"],
        "--pi must be a number": [*base, "--unlabeled", f"{tables}/log.csv", "--pi", "2"],
        "does not say which column holds the class": None,
    }
    write_table(tmp_path / "cow.csv", {**columns_of("test"), "animal": np.repeat("cow", SIZES["test"])})
    cases["the column of --target must hold labels seen at fit, got 'cow': OOD rows are passed apart"] = [
        "evaluate",
        model_file,
        "--id",
        tmp_path / "cow.csv",
    ]
    labeled = columns_of("labeled")
    model = POSCOD(random_state=0, ratio=POSCOD.load(model_file).ratio)
    model.fit(rows_of("labeled"), labeled["animal"], X_unlabeled=rows_of("unlabeled")).save(tmp_path / "plain.poscod")
    write_table(tmp_path / "plain.csv", {name: columns_of("test")[name] for name in ("größe", "width", "animal")})
    cases["does not say which column holds the class"] = [
        "evaluate",
        tmp_path / "plain.poscod",
        "--id",
        tmp_path / "plain.csv",
    ]
    before = sorted(tmp_path.iterdir())
    for sentence, words in cases.items():
        run = shell(*words)
        assert run.code == 2, (sentence, run.err)
        assert run.err.startswith("poscod: error: ")
        assert run.err.count("\n") == 1
        assert sentence in run.err
    assert sorted(tmp_path.iterdir()) == before
    assert shell("evaluate", tmp_path / "plain.poscod", "--id", tmp_path / "plain.csv", "--target", "animal").code == 0
