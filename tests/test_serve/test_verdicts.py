"""Verdicts over HTTP: stored beside the decisions, replaced when they come again, counted, and refused in one sentence."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from poscod.exceptions import InvalidInputError
from poscod.serve import read_verdicts

ROWS = [[0.0, 0.0], [3.0, 0.5], [1.5, 4.5]]
TOKEN = "a-token-of-enough-length"


@pytest.fixture
def logging(serve, named_file, tmp_path):
    return serve(named_file, log=f"sqlite:///{tmp_path}/d.db", tokens=(TOKEN,), max_rows=4)


def send(running, *pairs, token=TOKEN):
    body = {"verdicts": [{"id": name, "verdict": verdict} for name, verdict in pairs]}
    return running.client.post("/v1/verdicts", json=body, headers={"authorization": f"Bearer {token}"})


def decide(running):
    answer = running.client.post(
        "/v1/decide", json={"rows": ROWS, "ids": ["x", "y", "z"]}, headers={"authorization": f"Bearer {TOKEN}"}
    )
    return answer.json()["decisions"]


def test_verdicts_are_stored_once_counted_and_come_out_again(logging, tmp_path):
    found = decide(logging)
    assert np.array(found["accept"]).tolist() == [True, True, False]
    assert found["label"][:2] == ["cat", "dog"]
    answer = send(logging, ("x", "dog"), ("z", "ood"))  # at once: the log may not have the decisions yet
    assert answer.status_code == 200, answer.text
    assert answer.json()["counts"] == {
        "accepted": {"right": 0, "wrong": 1, "ood": 0},
        "rejected": {"right": 0, "wrong": 0, "ood": 1},
    }
    again = send(logging, ("x", "cat"), ("z", "OOD")).json()
    assert again["stored"] == 2
    assert again["counts"]["accepted"] == {"right": 1, "wrong": 0, "ood": 0}
    assert again["counts"]["rejected"]["ood"] == 1
    text = logging.client.get("/metrics").text
    assert 'poscod_verdicts{decision="accepted",verdict="right"} 1.0' in text
    assert sum(line.startswith("poscod_verdicts{") for line in text.splitlines()) == 6
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert logging.client.get("/v1/monitor", headers=headers).json()["verdicts"] == again["counts"]
    logging.stop()
    assert read_verdicts(f"sqlite:///{tmp_path}/d.db") == {"x": "cat", "z": "ood"}
    connection = sqlite3.connect(tmp_path / "d.db")
    rows = connection.execute("SELECT id, verdict, kind, label, accept FROM poscod_verdicts ORDER BY id").fetchall()
    connection.close()
    assert rows == [("x", "cat", "right", "cat", 1), ("z", "ood", "ood", found["label"][2], 0)]


def test_counts_survive_a_restart(logging, serve, named_file, tmp_path, eventually):
    decide(logging)
    send(logging, ("y", "dog"))
    logging.stop()
    anew = serve(named_file, log=f"sqlite:///{tmp_path}/d.db")
    assert eventually(lambda: anew.client.get("/v1/monitor").json()["verdicts"]["accepted"]["right"]) == 1


@pytest.mark.parametrize(
    ("pairs", "status", "words"),
    [
        ([("x", "bird")], 422, "verdict must be a class ('cat', 'dog') or ood, got 'bird' for id 'x'."),
        ([("x", None)], 422, "verdict must be a class"),
        ([("nobody", "cat"), ("x", "cat")], 422, "no decision under the id 'nobody': nothing was stored."),
        ([("x" * 201, "cat")], 422, "1 to 200 characters"),
        ([(1.5, "cat")], 422, "Verdict 1 must be an object with id"),
        ([], 422, "at least one verdict"),
        ([("x", "cat")] * 5, 413, "at most 4 rows"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_changes_nothing(logging, pairs, status, words):
    decide(logging)
    answer = send(logging, *pairs)
    assert answer.status_code == status
    assert words in answer.json()["error"]
    assert sum(logging.service.book.counts["accepted"].values()) == 0


def test_only_who_may_write_may_write(logging):
    assert send(logging, ("x", "cat"), token="wrong").status_code == 401


def test_without_a_database_there_is_no_place_for_verdicts(serve, model_file, tmp_path):
    for log in (None, str(tmp_path / "folder")):
        answer = serve(model_file, log=log).client.post("/v1/verdicts", json={"verdicts": [{"id": "a", "verdict": 1}]})
        assert answer.status_code == 409
        assert "--log" in answer.json()["error"]
    with pytest.raises(InvalidInputError, match="is not a file"):
        read_verdicts(f"sqlite:///{tmp_path}/none.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(InvalidInputError, match="holds no verdicts"):
        read_verdicts(f"sqlite:///{tmp_path}/empty.db")
