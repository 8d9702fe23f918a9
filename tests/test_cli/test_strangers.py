"""Lists of strangers and their groups in the shell: the numbers are those of Python, rows keep their names, and bad input is one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poscod import POSCOD
from poscod.cli._tables import open_table
from poscod.review import stranger_groups, strangers
from test_cli._world import columns_of, write_table


def rows_of(table):
    columns = columns_of(table)
    return np.stack([columns["größe"], columns["width"]], axis=1)


def test_list_and_groups_are_those_of_python(shell, model_file, tables, tmp_path):
    out, groups = tmp_path / "list.csv", tmp_path / "groups.parquet"
    run = shell("strangers", model_file, f"{tables}/log.csv", "--level", "0.3", "-o", out, "--groups", groups, "--json")
    assert run.code == 0, run.err
    model = POSCOD.load(model_file)
    found = strangers(model, rows_of("log"), 0.3)
    assert len(found) > 20
    document, table = json.loads(run.out), open_table(out).read()
    assert document["index"] == found.index.tolist()
    assert document["exact"]
    assert list(table)[:5] == ["index", "log_ratio", "p_value", "known_at_most", "row"]
    assert table["index"].tolist() == found.index.tolist()
    assert table["row"].tolist() == [f"log-{i}" for i in found.index]
    assert table["known_at_most"].tolist() == found.bounds().tolist()
    named, kinds = open_table(groups).read(), stranger_groups(model, rows_of("log"))
    assert document["groups"][0]["index"] == kinds[0].index.tolist()
    assert document["groups"][0]["answer"] in ("cat", "dog")
    assert len(named["group"]) == sum(map(len, kinds))
    assert set(named["verdict"].tolist()) == {""}


def test_words_for_people(shell, model_file, tables, tmp_path):
    run = shell("strangers", model_file, f"{tables}/log.csv", "--level", "0.3", "-o", tmp_path / "l.csv")
    assert run.code == 0, run.err
    assert "on average at most 30.0 % of such a list are known inputs.\nThat is exact" in run.out
    run = shell("strangers", model_file, f"{tables}/log.csv", "--level", "0.005", "-o", "-", "--only-list")
    assert run.code == 0
    assert run.out.strip() == '"index","log_ratio","p_value","known_at_most","row"'
    assert "No list at this level: with 120 known inputs" in run.err
    words = ["--groups", tmp_path / "g.csv", "--time", "row"]
    run = shell("strangers", model_file, f"{tables}/log.parquet", *words)
    assert "Group 1: about " in run.out
    assert "from log-" in run.out
    assert "Note: column 'features' holds lists, which CSV cannot: it was left out." in run.out


def test_the_log_of_the_fit_needs_known_inputs(shell, model_file, tables, tmp_path):
    """A model with a held-out share has no list for its own traffic, and says what to give; with it there is one."""
    out = tmp_path / "l.csv"
    run = shell("strangers", model_file, f"{tables}/unlabeled.csv", "-o", out)
    assert run.code == 2
    assert run.err.startswith(
        "poscod: error: the log must not hold rows that the ratio was fitted on, got 240 or more of 240"
    )
    assert "as --id." in run.err
    assert not out.exists()
    run = shell(
        "strangers", model_file, f"{tables}/unlabeled.csv", "--id", f"{tables}/test.csv", "--level", "0.3", "-o", out
    )
    assert run.code == 0, run.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give -o FILE for the list, --groups FILE for groups, or both."),
        (["-o", "same.csv", "--groups", "same.csv"], "--groups must be a file of its own."),
        (["-o", "l.csv", "--level", "1.5"], "--level must be a number in (0, 1), got 1.5."),
        (["-o", "l.csv", "--time", "when"], "has no column 'when'"),
        (["-o", "l.csv", "--groups", "g.txt"], "the name of a table must end in"),
    ],
)
def test_bad_input_is_one_sentence(shell, model_file, tables, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    run = shell("strangers", model_file, f"{tables}/log.csv", *words)
    assert run.code == 2
    assert sentence in run.err
    assert run.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_column_that_would_stand_twice(shell, model_file, tmp_path):
    path = write_table(tmp_path / "log.csv", {**columns_of("log"), "p_value": np.zeros(200)})
    run = shell("strangers", model_file, path, "-o", tmp_path / "l.csv")
    assert run.code == 2
    assert "already has the column 'p_value'" in run.err
    assert shell("strangers", model_file, path, "-o", tmp_path / "l.csv", "--only-list").code == 0
