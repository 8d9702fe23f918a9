"""A model of somebody else's answers, from the shell to the service."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from poscod import POSCOD
from poscod.backends.onnx import export_rule
from poscod.cli import main
from poscod.cli._tables import TableWriter
from poscod.exceptions import InvalidInputError

DATA = Path(__file__).resolve().parents[2] / "examples" / "data" / "clinc"
COLUMNS = ("--answer", "reply", "--confidence-column", "confidence", "--embedding", "embedding", "--ratio", "paper")


def shell(capsys, *words):
    code = main([str(word) for word in words])
    return code, *capsys.readouterr()


def fit_words(*words):
    return ("fit", DATA / "labeled.parquet", DATA / "traffic.parquet", "--target", "intent", "--tpr-min", "0.9", *words)


@pytest.fixture(scope="module")
def answers_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("answers") / "answers.poscod"
    assert main([str(word) for word in fit_words(*COLUMNS, "-o", path, "--quiet")]) == 0
    return path


def test_shell_reads_answers(answers_file, tmp_path, capsys):
    fresh = ("--id", DATA / "test.parquet", "--ood", DATA / "oos.parquet")
    code, out, err = shell(capsys, "evaluate", answers_file, *fresh, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert (document["rows"]["id"], document["rows"]["ood"]) == (200, 300)
    out_of = tmp_path / "decisions.parquet"
    code, _, err = shell(capsys, "predict", answers_file, DATA / "oos.parquet", "--prefix", "p_", "-o", out_of)
    assert code == 0, err
    table = pq.read_table(out_of)
    assert table["p_label"].to_pylist() == table["reply"].to_pylist()
    assert np.mean(table["p_accept"].to_pylist()) < 0.15


def test_service_takes_answers(answers_file, serve):
    table, model = pq.read_table(DATA / "test.parquet").slice(0, 6), POSCOD.load(answers_file)
    columns = {name: table[name].to_pylist() for name in ("reply", "confidence", "embedding")}
    columns["reply"][5] = "something new"
    arrays = {"reply": np.array(columns["reply"])} | {
        name: np.array(columns[name]) for name in ("confidence", "embedding")
    }
    expected = model.decide(model.schema_.rows(arrays))
    running = serve(answers_file)
    found = running.client.post("/v1/decide", json={"columns": columns})
    assert found.status_code == 200, found.text
    decided = found.json()["decisions"]
    assert decided["label"] == [*columns["reply"][:5], "another answer"]
    np.testing.assert_allclose(decided["risk"], expected.risk, rtol=1e-9)
    records = [{name: values[i] for name, values in columns.items()} for i in range(6)]
    assert running.client.post("/v1/decide", json={"records": records}).json()["decisions"] == decided
    for body in (
        {"rows": [[1.0]]},
        {"activations": {"logits": [[1.0]]}},
        {"columns": {**columns, "reply": [None] * 6}},
    ):
        refused = running.client.post("/v1/decide", json=body)
        assert refused.status_code == 422, refused.text
    assert running.client.get("/v1/model").json()["inputs"]["answer"] == "reply"


def test_graphs_cannot_read_answers(answers_file):
    with pytest.raises(InvalidInputError, match="reads answers and their scores"):
        export_rule(POSCOD.load(answers_file))


@pytest.mark.slow
def test_free_answers_are_right_or_wrong(tmp_path, capsys):
    for name in ("labeled", "traffic", "test"):
        table = pq.read_table(DATA / f"{name}.parquet")
        truth = np.array(table["truth" if name == "traffic" else "intent"].to_pylist())
        with TableWriter(tmp_path / f"{name}.parquet") as file:
            file.write(
                {
                    "correct": np.array(table["reply"].to_pylist()) == truth,
                    "doubt": 1.0 - np.array(table["confidence"].to_pylist()),
                    "embedding": np.array(table["embedding"].to_pylist()),
                }
            )
    words = ("--target", "correct", "--risk-column", "doubt", "--embedding", "embedding", "--ratio", "paper")
    model = tmp_path / "free.poscod"
    code, out, err = shell(
        capsys, "fit", tmp_path / "labeled.parquet", tmp_path / "traffic.parquet", *words, "-o", model
    )
    assert code == 0, err
    assert "labeled rows of 2 classes" in out
    code, out, err = shell(capsys, "evaluate", model, "--id", tmp_path / "test.parquet", "--target", "correct")
    assert code == 0, err
    decided = POSCOD.load(model).decide(
        POSCOD.load(model).schema_.rows({"doubt": np.array([0.1, 0.9]), "embedding": np.zeros((2, 128))})
    )
    assert decided.risk[0] < decided.risk[1]


def test_refusals_are_sentences(tmp_path, capsys):
    for words, sentence in (
        (
            ("--answer", "reply", "--risk-column", "confidence"),
            "it is a confidence, change its sign (in the shell: --confidence-column)",
        ),
        (("--answer", "repli"), "did you mean 'reply'?"),
        (("--risk-column", "confidence"), "must say whether each answer is right"),
        (("--answer", "reply", "--risk-column", "text"), "column 'text' of"),
        (("--answer", "reply", "--classifier", "forest"), "--classifier trains a classifier"),
        (("--answer", "reply", "--engine", "dask"), "need rows in memory"),
        (("--probabilities", "p_*", "--risk-column", "confidence"), "choose one"),
        (("--answer", "intent"), "is the target and cannot be an input"),
    ):
        code, out, err = shell(capsys, *fit_words(*words, "-o", tmp_path / "no.poscod"))
        assert (code, out) == (2, ""), err
        assert sentence in err
        assert err.count("\n") == 1
    assert not [*tmp_path.iterdir()]
