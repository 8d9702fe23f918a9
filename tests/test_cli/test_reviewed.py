"""`poscod fit --reviewed`: a table with a column of verdicts, and one sentence for what it cannot be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from test_cli._world import columns_of, write_table

COLUMNS = ("--target", "animal", "--row-id", "row", "--features", "größe", "--features", "width")
LOGITS = ("--target", "animal", "--row-id", "row", "--logits", "logit_*", "--features", "größe", "--features", "width")


def reviewed(path, said=None, name="verdict"):
    """Write the first rows of the log with verdicts: strangers are far up."""
    columns = {key: values[:60] for key, values in columns_of("unlabeled").items() if values.ndim == 1}
    if said is None:
        said = np.where(columns["width"] > 2.0, "OOD", np.where(columns["größe"] > 1.5, "dog", "cat"))
        said[50:] = ""
    return write_table(path, {**columns, name: np.asarray(said)})


@pytest.mark.parametrize("words", [COLUMNS, LOGITS], ids=["columns", "logits"])
def test_verdicts_are_counted_wherever_the_fit_speaks(words, shell, tables, tmp_path):
    file, model = reviewed(tmp_path / "queue.csv", name="said"), tmp_path / "m.poscod"
    more = ("--reviewed", file, "--verdict", "said", "--calibration", "0.5", "--json")
    found = shell("fit", tables / "labeled.csv", tables / "unlabeled.csv", *words, *more, "-o", model)
    assert found.code == 0, found.err
    document = json.loads(found.out)
    assert document["reviewed"] == {"file": str(file), "verdicts": 50}
    assert "50 verdicts of people were used" in document["rule"]["sentence"]
    assert model.exists()


@pytest.mark.parametrize(
    ("said", "more", "sentence"),
    [
        ([""] * 60, (), "queue.csv holds no verdict"),
        (
            ["cat", "horse"] * 30,
            (),
            "queue.csv must hold a class ('cat', 'dog'), ood, or nothing, got 'horse' at row 2.",
        ),
        (None, ("--verdict", "opinion"), "has no column 'opinion'"),
    ],
)
def test_one_sentence_for_bad_input(said, more, sentence, shell, tables, tmp_path):
    file, model = reviewed(tmp_path / "queue.csv", said), tmp_path / "m.poscod"
    found = shell(
        "fit", tables / "labeled.csv", tables / "unlabeled.csv", *COLUMNS, "--reviewed", file, *more, "-o", model
    )
    assert found.code == 2
    assert sentence in found.err
    assert found.err.count("\n") == 1
    assert not model.exists()


def test_what_evaluate_reads_fit_reads(shell, tables, tmp_path):
    """Words for nothing, and tasks that came back from Label Studio."""
    said = np.array(["NA", "null", *["cat"] * 3, *["OOD"] * 5, *[""] * 50])
    file = reviewed(tmp_path / "queue.csv", said)
    rows = zip(*(columns_of("unlabeled")[name].tolist() for name in ("größe", "width")), strict=True)
    tasks = [
        {"data": {"row": {"größe": size, "width": width}}, "annotations": [{"result": [result]}] if word else []}
        for (size, width), word in zip(rows, [None, None, *said[2:10]], strict=False)
        for result in [{"from_name": "verdict", "value": {"choices": [word]}}]
    ]
    (tmp_path / "export.json").write_text(json.dumps(tasks), encoding="utf-8")
    rules = []
    for path in (file, tmp_path / "export.json"):
        more = ("--reviewed", path, "--calibration", "0.5", "--json", "-o", tmp_path / "m.poscod")
        found = shell("fit", tables / "labeled.csv", tables / "unlabeled.csv", *COLUMNS, *more)
        assert found.code == 0, found.err
        document = json.loads(found.out)
        assert document["reviewed"]["verdicts"] == 8
        rules.append(document["rule"])
    assert rules[0] == rules[1]
