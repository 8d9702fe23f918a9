"""Verdicts over HTTP: stored beside the decisions, replaced when they come again, counted, and refused in one sentence."""

from __future__ import annotations

import sqlite3
import threading
import time

import httpx
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


def test_a_verdict_can_be_taken_back(logging, tmp_path):
    decide(logging)
    send(logging, ("x", "cat"), ("z", "ood"))
    answer = send(
        logging, ("x", None), ("y", None), ("z", "cat")
    )  # nobody has said anything of y: nothing to take back
    assert answer.status_code == 200, answer.text
    assert (answer.json()["stored"], answer.json()["withdrawn"]) == (1, 1)
    assert answer.json()["counts"]["accepted"] == {"right": 0, "wrong": 0, "ood": 0}
    assert sum(answer.json()["counts"]["rejected"].values()) == 1
    assert logging.metric("poscod_verdicts_withdrawn_total") == 1
    assert send(logging, ("x", None), token="wrong").status_code == 401
    logging.stop()
    assert read_verdicts(f"sqlite:///{tmp_path}/d.db") == {"z": "cat"}


def test_the_latest_decision_is_found_by_an_index_also_in_an_old_table(serve, named_file, tmp_path, eventually):
    """A table of an earlier version gets the index, and a name that stands a hundred thousand times is found at once."""
    path = tmp_path / "d.db"
    first = serve(named_file, log=f"sqlite:///{path}")
    first.client.post("/v1/decide", json={"rows": ROWS[:2], "ids": ["x", "x"]})
    eventually(lambda: first.metric("poscod_log_written_total"))
    first.stop()
    connection = sqlite3.connect(path)
    connection.execute("DROP INDEX ix_poscod_decisions_latest")
    (columns,) = connection.execute("SELECT group_concat(name) FROM pragma_table_info('poscod_decisions')").fetchone()
    copied = columns.replace("number", "number + n.i")
    many = "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
    connection.execute(
        f"INSERT INTO poscod_decisions ({columns}) {many} SELECT {copied} FROM poscod_decisions, n WHERE number = 0"
    )
    connection.commit()
    connection.close()
    again = serve(named_file, log=f"sqlite:///{path}")
    eventually(lambda: again.service.book._ready)
    connection = sqlite3.connect(path)
    (plan,) = connection.execute(
        "SELECT count(*) FROM sqlite_master WHERE name = 'ix_poscod_decisions_latest'"
    ).fetchone()
    connection.close()
    assert plan == 1
    read = []
    book = again.service.book
    with book._engine.connect() as open_:
        handle = open_.connection.driver_connection
        handle.set_progress_handler(lambda: read.append(1) and 0, 1000)  # called after so many steps of the database
        found = book._decided(open_, ["x", "nobody"])
        handle.set_progress_handler(None, 0)
    assert found["x"]["label"] == "cat"
    assert set(found) == {"x"}
    assert len(read) < 5


def test_a_name_that_nobody_knows_holds_no_thread(serve, named_file, tmp_path, monkeypatch):
    """While the log is behind, verdicts wait for their decisions, and the only compute thread answers others."""
    monkeypatch.setattr("poscod.serve._service._LOG_SECONDS", 30.0)
    running, behind = serve(named_file, log=f"sqlite:///{tmp_path}/d.db", threads=1), threading.Event()
    write = running.service.log._sink.write
    monkeypatch.setattr(running.service.log._sink, "write", lambda rows: behind.wait(60.0) and write(rows))
    running.client.post("/v1/decide", json={"rows": ROWS, "ids": ["x", "y", "z"]})
    said = []

    def ask():
        body = {"verdicts": [{"id": "nobody", "verdict": "cat"}]}
        with httpx.Client(base_url=running.url, timeout=60.0) as other:
            said.append(other.post("/v1/verdicts", json=body).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.3)
    assert running.client.post("/v1/decide", json={"rows": ROWS}).status_code == 200
    assert said == []  # still waiting
    behind.set()
    asking.join(30.0)
    assert said == [422]


def test_counts_survive_a_restart(logging, serve, named_file, tmp_path, eventually):
    decide(logging)
    send(logging, ("y", "dog"))
    logging.stop()
    anew = serve(named_file, log=f"sqlite:///{tmp_path}/d.db")
    assert eventually(lambda: anew.client.get("/v1/monitor").json()["verdicts"]["accepted"]["right"]) == 1


@pytest.mark.parametrize(
    ("pairs", "status", "words"),
    [
        (
            [("x", "bird")],
            422,
            "verdict must be a class ('cat', 'dog') or ood, or null to take one back, got 'bird' for id 'x'.",
        ),
        ([("x", True)], 422, "or null to take one back, got 'True' for id 'x'."),
        ([("nobody", None)], 422, "no decision under the id 'nobody': nothing was stored."),
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
