"""poscod report as a user runs it: from tables to a page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poscod import POSCOD
from poscod.cli._tables import open_table
from poscod.ratio import CorrectedSigmoid
from poscod.report import render
from test_cli._world import WORLD, columns_of, write_table


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_tables_to_pages(shell, model_file, tables, tmp_path, suffix):
    files = [
        "--id",
        f"{tables}/test{suffix}",
        "--ood",
        f"{tables}/ood{suffix}",
        "--unlabeled",
        f"{tables}/log{suffix}",
    ]
    done = shell("report", model_file, *files, "-o", tmp_path / "r.json")
    assert (done.code, done.err) == (0, "")
    assert "Of 1,000 inputs like the known ones" in done.out
    assert done.out.endswith(f"Written: {tmp_path / 'r.json'}\n")
    summary = json.loads((tmp_path / "r.json").read_text())
    assert summary["rule"] == POSCOD.load(model_file).rule_.to_dict()
    assert summary["names"] == {
        "model": "model.poscod",
        "id": f"test{suffix}",
        "ood": f"ood{suffix}",
        "unlabeled": f"log{suffix}",
    }
    model = POSCOD.load(model_file)
    X = {name: np.column_stack([columns_of(name)[c] for c in ("größe", "width")]) for name in ("test", "ood", "log")}
    want = model.evaluate(X["test"], columns_of("test")["animal"], X["ood"])
    assert summary["rates"]["risk"] == want.risk._asdict()
    assert summary["rates"]["accepted"]["estimate"] == np.mean(model.decide(X["log"]).accept)
    # The id comes first, then what the model does not read; the label is the truth already.
    first = summary["examples"][0]
    assert list(first["cells"])[:2] == ["row", "logit_cat"]
    assert first["cells"]["row"] == f"test-{first['row']}"
    assert "animal" not in first["cells"]
    assert len(first["cells"]) <= 6


def test_html_and_markdown_are_the_same_summary(shell, model_file, tables, tmp_path):
    words = ["report", model_file, "--id", f"{tables}/test.csv", "--title", "A <title>", "--date", "today"]
    for name in ("r.html", "r.md", "r.json"):
        assert shell(*words, "-o", tmp_path / name).code == 0
    summary = json.loads((tmp_path / "r.json").read_text())
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == render(summary)
    assert "A &lt;title&gt;" in (tmp_path / "r.md").read_text(encoding="utf-8")
    assert summary["created"] == "today"


def test_json_and_quiet(shell, model_file, tables, tmp_path):
    words = ["report", model_file, "--id", f"{tables}/test.csv", "--ood", f"{tables}/ood.csv", "-o", tmp_path / "r.md"]
    document = json.loads(shell(*words, "--json").out)
    assert document["command"] == "report"
    assert document["rule"] == POSCOD.load(model_file).rule_.to_dict()
    assert document["rules"][0]["name"] == "poscod"
    assert shell(*words, "--quiet").out == ""


def test_options_reach_the_summary(shell, model_file, tables, tmp_path):
    files = ["--id", f"{tables}/test.csv", "--unlabeled", f"{tables}/log.csv"]
    words = ["report", model_file, *files, "-o", tmp_path / "r.json"]
    more = ["--pi", "0.3", "--level", "0.8", "--examples", "1", "--columns", "1", "--max-points", "50"]
    assert shell(*words, *more).code == 0
    summary = json.loads((tmp_path / "r.json").read_text())
    assert summary["level"] == 0.8
    assert summary["ratio"]["here"]["low"] == 0.3
    assert summary["explorer"]["groups"]["id"]["embedded"] == 50
    assert [list(e["cells"]) for e in summary["examples"]] == [["row"]] * len(summary["examples"])
    assert shell(*words, "--no-explorer-data", "--examples", "0", "--columns", "0").code == 0
    summary = json.loads((tmp_path / "r.json").read_text())
    assert summary["explorer"] is None
    assert summary["examples"] == []


def test_a_classifier_that_lives_elsewhere_keeps_its_names(shell, tables, tmp_path):
    words = ["--target", "animal", "--logits", "logit_*", "--features", "größe", "--features", "width"]
    model = tmp_path / "model.poscod"
    assert shell("fit", f"{tables}/labeled.csv", f"{tables}/unlabeled.csv", *words, "-o", model).code == 0
    assert shell("report", model, "--id", f"{tables}/test.csv", "-o", tmp_path / "r.json").code == 0
    summary = json.loads((tmp_path / "r.json").read_text())
    assert summary["classes"] == ["cat", "dog"]
    assert {e["answer"] for e in summary["examples"]} <= {"cat", "dog"}


def test_a_model_saved_from_python_needs_the_target(shell, tmp_path):
    X, y = WORLD.sample_id(400, random_state=0)
    traffic, _ = WORLD.sample_mixture(200, pi=0.3, random_state=1)
    POSCOD(ratio=CorrectedSigmoid("paper"), tpr_min=0.9, random_state=0).fit(X, y, traffic).save(tmp_path / "m.poscod")
    write_table(tmp_path / "test.csv", {"a": X[:, 0], "b": X[:, 1], "code": y})
    words = ["report", tmp_path / "m.poscod", "--id", tmp_path / "test.csv", "-o", tmp_path / "r.html"]
    refused = shell(*words)
    assert refused.code == 2
    assert "pass --target COLUMN" in refused.err
    assert shell(*words, "--target", "code").code == 0
    assert "<h1>" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-o", "r.pdf"], "--output must end in .html, .md, .json, got 'r.pdf'"),
        (["-o", "nowhere/r.html"], "does not exist"),
        (["--pi", "0.3"], "--pi is the share of OOD inputs in --unlabeled"),
        (["--level", "2"], "--level must be a number in"),
        (["--examples", "-1"], "--examples must be a whole number"),
        (["--max-points", "0"], "--max-points must be a whole number"),
        (["--target", "colour"], "has no column 'colour'"),
        (["--ood", "labels.csv"], "lacks the columns"),
        (["--ood", "empty.csv"], "no rows"),
        (["--id", "missing.csv"], "missing.csv"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    shell, model_file, tables, tmp_path, monkeypatch, words, sentence
):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "test.csv", columns_of("test"))
    write_table(tmp_path / "labels.csv", {"animal": np.array(["cat", "dog"])})
    (tmp_path / "empty.csv").write_text("größe,width\n")
    before = sorted(tmp_path.iterdir())
    done = shell("report", model_file, "--id", "test.csv", "-o", "r.html", *words)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert sentence in done.err
    assert sorted(tmp_path.iterdir()) == before
    assert open_table("test.csv").n_rows in (None, 200)
