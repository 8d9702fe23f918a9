"""The decision log: what was decided is in it, a full or dead one never stops the service, and what is lost is counted."""

from __future__ import annotations

import math
import os
import shutil
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
import sqlalchemy

from poscod import POSCOD
from poscod.decision import Decisions
from poscod.exceptions import InvalidInputError
from poscod.serve._decision_log import DecisionLog, Entry
from poscod.serve._sinks import COLUMNS, ParquetSink, SqlSink, open_sink

ROWS = [[0.0, 0.0], [3.0, 0.5], [1.5, 4.5]]
# The newest one of the machine.
POSTGRES = max(
    Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: int(place.parent.name), default=Path("none")
)


def decisions(n: int, log_ratio: float = -1.0) -> Decisions:
    return Decisions(
        np.array(["a"] * n, dtype=object), np.ones(n, dtype=bool), np.array(["accepted"] * n), np.full(n, 0.1),
        np.full(n, log_ratio), np.full(n, 0.2),
    )  # fmt: skip


def entry(n: int, name: str = "r", **more) -> Entry:
    return Entry(1.7e9, name, None, decisions(n, **more), "hash")


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_what_is_answered_is_logged(serve, model_file, tmp_path, kind):
    target = f"sqlite:///{tmp_path}/d.db" if kind == "sqlite" else str(tmp_path / "decisions")
    running = serve(model_file, log=target)
    answer = running.client.post(
        "/v1/decide", json={"rows": ROWS, "ids": ["x", "y", "z"]}, headers={"x-request-id": "mine-1"}
    )
    assert answer.headers["x-request-id"] == "mine-1"
    assert running.decide(ROWS[:1]).status_code == 200
    assert running.decide([[1]]).status_code == 422  # no decision, no row
    running.stop()
    if kind == "sqlite":
        connection = sqlite3.connect(tmp_path / "d.db")
        cursor = connection.execute("SELECT * FROM poscod_decisions ORDER BY number")
        rows = [dict(zip([c[0] for c in cursor.description], row, strict=True)) for row in cursor]
        connection.close()
    else:
        files = list((tmp_path / "decisions").iterdir())
        assert len(files) == 1
        assert files[0].suffix == ".parquet"
        rows = parquet.read_table(files[0]).to_pylist()
    assert [row["request_id"] for row in rows][:3] == ["mine-1"] * 3
    assert len(rows) == 4
    assert [row["id"] for row in rows] == ["x", "y", "z", None]
    assert [row["row"] for row in rows] == [0, 1, 2, 0]
    assert list(rows[0]) == list(COLUMNS)
    expected = POSCOD.load(model_file).decide(ROWS)
    for row, label, accept, reason, score in zip(
        rows[:3], expected.label, expected.accept, expected.reason, expected.score, strict=True
    ):
        assert (row["label"], bool(row["accept"]), row["reason"]) == (str(label), accept, reason)
        assert row["score"] == pytest.approx(score, rel=1e-9)
        assert row["model"] == running.service.holder.current.sha256


class Stuck:
    """A sink that waits, fails or works as it is told."""

    batch_rows, seconds = 5_000, 0.1

    def __init__(self) -> None:
        self.go, self.fail, self.rows, self.attempts = threading.Event(), False, [], 0

    def write(self, rows) -> None:
        self.attempts += 1
        self.go.wait(30)
        if self.fail:
            raise ConnectionError("gone")
        self.rows += [(row["request_id"], row["number"]) for row in rows]

    def close(self) -> None:
        pass


def test_a_full_queue_drops_and_counts(eventually, capfd):
    sink = Stuck()
    log = DecisionLog(sink, max_rows=10)
    log.add(entry(6, "first"))
    eventually(lambda: sink.attempts == 1)
    for item in (entry(3, "second"), entry(5, "third"), entry(1, "fourth")):  # 5 rows have no room, 1 has
        log.add(item)
    assert (log.waiting, log.dropped) == (10, 5)
    sink.go.set()
    log.close(30)
    assert (log.written, log.dropped, log.waiting) == (10, 5, 0)
    assert [name for name, _ in sink.rows] == ["first"] * 6 + ["second"] * 3 + ["fourth"]
    assert [number for _, number in sink.rows] == list(range(10))
    assert "log-full" in capfd.readouterr().err


def test_a_failing_sink_is_tried_again_and_nothing_is_written_twice(eventually, capfd):
    sink = Stuck()
    sink.go.set()
    sink.fail = True
    log = DecisionLog(sink, max_rows=100)
    log.add(entry(4))
    eventually(lambda: sink.attempts >= 2)
    assert log.error == "ConnectionError"
    assert log.written == 0
    sink.fail = False
    eventually(lambda: log.written == 4)
    assert log.error is None
    assert len(sink.rows) == 4
    sink.fail = True
    log.add(entry(3))
    log.close(0.5)
    assert (log.written, log.dropped) == (4, 3)  # the end does not wait for ever
    lines = capfd.readouterr().err
    assert "log-failing" in lines
    assert "log-resumed" in lines
    assert "gone" not in lines


def test_storing_the_same_rows_twice_stores_them_once(tmp_path):
    sink = SqlSink(f"sqlite:///{tmp_path}/d.db")
    one = dict.fromkeys(COLUMNS, "x") | {"time": datetime(2026, 1, 2, tzinfo=timezone.utc), "risk": 0.1}
    first = one | {"number": 0, "row": 0, "accept": True, "id": None, "log_ratio": -math.inf, "score": 0.1}
    sink.write([first, one | {"number": 1, "row": 1, "accept": False, "log_ratio": 3.0, "score": math.inf}])
    sink.write([first])  # the end of the first transaction was not heard of
    rows = (
        sqlite3.connect(tmp_path / "d.db")
        .execute("SELECT log_ratio, score FROM poscod_decisions ORDER BY number")
        .fetchall()
    )
    assert rows == [(-np.finfo(float).max, 0.1), (3.0, np.finfo(float).max)]
    sink.close()


def test_parquet_files_are_whole_and_a_failed_write_is_not_lost(tmp_path, eventually, capfd):
    log = DecisionLog(ParquetSink(tmp_path / "d", batch_rows=3, seconds=1e9), max_rows=100)
    log.add(entry(2))
    assert (log.written, log.waiting) == (0, 2)  # it waits for company
    log.add(entry(2))
    eventually(lambda: log.written == 4)
    assert len(list((tmp_path / "d").iterdir())) == 1
    shutil.rmtree(tmp_path / "d")
    log.add(entry(3))
    eventually(lambda: log.error is not None)
    log.add(entry(1))
    assert (log.written, log.waiting, log.dropped) == (4, 4, 0)
    assert "log-resumed" not in capfd.readouterr().err
    (tmp_path / "d").mkdir()
    eventually(lambda: log.written == 7)  # the writer brings it again
    assert log.error is None
    log.close(30)
    assert (log.written, log.waiting, log.dropped) == (8, 0, 0)
    assert sorted(parquet.read_table(tmp_path / "d")["number"].to_pylist()) == [4, 5, 6, 7]


def test_few_rows_get_their_file_after_some_seconds(tmp_path, eventually):
    log = DecisionLog(ParquetSink(tmp_path / "d", seconds=0.1), max_rows=100)
    log.add(entry(2))
    eventually(lambda: log.written == 2)
    log.close(30)
    assert parquet.read_table(tmp_path / "d").num_rows == 2


def test_written_is_what_is_in_a_file(tmp_path):
    log = DecisionLog(ParquetSink(tmp_path / "d", seconds=1e9), max_rows=100)
    log.add(entry(3))
    shutil.rmtree(tmp_path / "d")
    log.close(0.5)
    assert (log.written, log.waiting, log.dropped) == (0, 0, 3)  # three rows are nowhere


def test_a_full_batch_is_written_while_as_many_rows_find_room(tmp_path, eventually):
    log = DecisionLog(ParquetSink(tmp_path / "d", seconds=1e9), max_rows=10)
    log.add(entry(5))
    eventually(lambda: log.written == 5)  # half the queue, although a file would take 100,000
    log.close(30)


def test_targets_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    for target, words in (
        ("nothing://x", "SQLAlchemy refuses"),
        ("oracle://x", "No module named"),
        (f"sqlite:///{tmp_path}/no/folder/d.db", "unable to open"),
        (str(tmp_path / "file"), "must be a folder"),
        ("model.poscod", "must be a folder"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            open_sink(target)
    with pytest.raises(InvalidInputError) as caught:
        open_sink("postgresql+nothing://user:secret@host/db")
    assert "secret" not in str(caught.value)


def test_a_database_that_was_never_there_does_not_stop_the_service(serve, model_file, eventually):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        port = taken.getsockname()[1]
        running = serve(model_file, log=f"postgresql+psycopg://u:secret@127.0.0.1:{port}/d", shutdown_seconds=1.0)
        assert running.decide(ROWS).status_code == 200
        eventually(lambda: running.client.get("/readyz").json()["log_error"])
        assert running.client.get("/readyz").status_code == 200
        assert running.metric("poscod_log_waiting") == 3
        assert running.metric("poscod_log_failures_total") >= 1
        running.stop()
    assert (running.service.log.written, running.service.log.dropped) == (0, 3)


class Postgres:
    """A PostgreSQL server of its own, in a folder of its own, on a free port of 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        if self.user:
            shutil.chown(folder, "postgres")
        self.call("initdb", "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "-N")
        self.start()
        self.url = f"postgresql+psycopg://tester@127.0.0.1:{self.port}/postgres"

    def call(self, program: str, *arguments: str) -> None:
        # Its server must not hold our pipes open, or we would wait for their end.
        command = [*self.user, str(POSTGRES / program), *arguments]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
            cwd="/",
        )
        assert done.returncode == 0, command

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.folder} -c fsync=off"
        self.call(
            "pg_ctl",
            "-D",
            str(self.folder / "data"),
            "-o",
            options,
            "-w",
            "-t",
            "60",
            "-l",
            str(self.folder / "log"),
            "start",
        )

    def kill(self) -> None:
        self.call("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    if not (POSTGRES / "initdb").exists():
        pytest.skip("needs PostgreSQL (apt-get install postgresql), which is not here")
    pytest.importorskip("psycopg", reason="needs the package psycopg, which is not here")
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        folder = Path(name, "postgres")
        folder.mkdir()
        server = Postgres(folder)
        yield server
        server.kill()


def test_postgresql_takes_the_log_dies_and_comes_back(serve, model_file, postgres, eventually):
    running = serve(model_file, log=postgres.url)
    log = running.service.log
    assert running.decide(ROWS).status_code == 200
    eventually(lambda: log.written == 3)
    postgres.kill()
    for _ in range(5):
        assert running.decide(ROWS).status_code == 200
    eventually(lambda: log.error is not None)
    assert running.client.get("/readyz").json()["log_error"]
    assert running.client.get("/healthz").status_code == 200
    assert running.metric("poscod_log_waiting") == 15
    postgres.start()
    eventually(lambda: log.written == 18, 60)
    assert log.error is None
    assert log.dropped == 0
    assert running.decide(ROWS).status_code == 200
    running.stop()
    engine = sqlalchemy.create_engine(postgres.url)
    with engine.connect() as connection:
        rows = connection.execute(
            sqlalchemy.text("SELECT number, label, accept, reason, score FROM poscod_decisions ORDER BY number")
        ).all()
    engine.dispose()
    assert [row.number for row in rows] == list(range(21))  # none lost, none twice
    expected = POSCOD.load(model_file).decide(ROWS)
    assert [row.accept for row in rows] == expected.accept.tolist() * 7
    assert [row.score for row in rows[:3]] == pytest.approx(expected.score.tolist())
