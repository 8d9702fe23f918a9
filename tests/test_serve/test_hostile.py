"""What an attack on the service found: bodies that grow, connections without end, foreign web pages, files that never end, logs that vanish."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import tracemalloc

import httpx
import numpy as np
import pyarrow as pa
import pytest

from hostile import ARROW_TYPE, shared_buffers, stream
from poscod.serve._decision_log import DecisionLog
from poscod.serve._say import Refusal, Seldom
from poscod.serve._sinks import SqlSink
from poscod.serve._stream import read_stream
from test_serve.test_log import entry

GOOD = [[0.0, 0.0]]


def lists(rows: int, width: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(rows * width, np.int8)), width)


# -- bodies ------------------------------------------------------------------------------------------------------------------


def test_columns_that_share_their_bytes_are_refused_before_anything_is_made_of_them(server):
    body = shared_buffers({f"c{i}": lists(1000, 150) for i in range(60)})
    assert len(body) < 200_000  # stands for 9 million numbers, 72 MB
    assert pa.ipc.open_stream(body).read_all().num_columns == 60  # Arrow itself takes it
    tracemalloc.start()
    with pytest.raises(Refusal, match="share their bytes"):
        read_stream(body, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6
    answer = server.client.post("/v1/decide", content=body, headers={"content-type": ARROW_TYPE})
    assert answer.status_code == 422
    honest = stream({"x": np.zeros(5), "y": np.zeros(5)})
    assert server.client.post("/v1/decide", content=honest, headers={"content-type": ARROW_TYPE}).status_code == 200


def test_lists_longer_than_a_row_and_texts_for_numbers_are_not_converted(server):
    for column, words in ((lists(1000, 150), "at most 2 numbers"), (["a"] * 1000, "plain numbers"), ([True] * 9, "plain numbers")):  # fmt: skip
        answer = server.client.post("/v1/decide", content=stream({"x": column}), headers={"content-type": ARROW_TYPE})
        assert answer.status_code == 422
        assert words in answer.json()["error"]


def test_rows_are_counted_before_they_are_decoded(server):
    honest = stream({"x": np.zeros(1001, np.int8)})
    with pytest.raises(Refusal, match="at most 1000 rows"):
        read_stream(honest, 1000)
    with pytest.raises(Refusal, match="at most 10 rows"):
        read_stream(stream({"x": pa.chunked_array([[1] * 6, [1] * 6])}), 10)


def test_json_that_would_stop_all_others_is_refused_by_its_size(serve, model_file):
    """The parser holds the interpreter until it is done."""
    running = serve(model_file, request_seconds=60.0)
    limit = running.service.settings.max_json_bytes
    assert limit < running.service.settings.max_body_bytes
    worst = [b'{"rows": [' + b"[]," * (size // 3 - 5) + b"[]]}" for size in (limit, 15_000_000)]
    slowest, stop = 0.0, threading.Event()

    def look() -> None:
        nonlocal slowest
        with httpx.Client(base_url=running.url, timeout=60) as client:
            while not stop.is_set():
                start = time.perf_counter()
                assert client.get("/healthz").status_code == 200
                slowest = max(slowest, time.perf_counter() - start)
                time.sleep(0.01)

    watcher = threading.Thread(target=look)
    watcher.start()
    head = {"content-type": "application/json"}
    statuses = [running.client.post("/v1/decide", content=body, headers=head).status_code for body in worst]
    stop.set()
    watcher.join()
    assert statuses == [413, 413]
    assert slowest < 1.5
    rows = np.zeros((10_000, 50))
    file = pa.BufferOutputStream()
    np.save(file, rows)
    answer = running.client.post(
        "/v1/decide", content=file.getvalue().to_pybytes(), headers={"content-type": "application/x-npy"}
    )
    assert answer.status_code == 422  # 4 MB of NPY are read: it is the width that is wrong
    assert "2 features" in answer.json()["error"]


# -- foreign web pages -------------------------------------------------------------------------------------------------------


def test_only_names_of_this_machine_are_answered_without_a_token(serve, model_file):
    running = serve(model_file)
    for host in (f"127.0.0.1:{running.port}", "localhost", "LOCALHOST:1", "[::1]:8000"):
        assert running.client.get("/v1/model", headers={"host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example:8000", "localhost.evil.example", "[", "10.0.0.1"):
        for path in ("/v1/model", "/readyz", "/", "/metrics"):
            answer = running.client.get(path, headers={"host": host})
            assert answer.status_code == 421, (host, path)
            assert "Host" in answer.json()["error"]
    assert running.metric("poscod_rejected_requests_total") == 20


def test_pages_of_other_sites_cannot_send_anything_without_a_token(serve, model_file):
    running = serve(model_file)
    own = {"origin": running.url}
    assert running.client.post("/v1/reload", headers=own).status_code == 200
    for origin in ("https://evil.example", "null", f"{running.url}.evil.example", ""):
        assert running.client.post("/v1/reload", headers={"origin": origin}).status_code == 403, origin
        assert running.client.get("/v1/model", headers={"origin": origin}).status_code == 200, origin


def test_with_a_token_names_do_not_matter(serve, model_file):
    token = "0123456789abcdef-token"
    running = serve(model_file, tokens=(token,))
    head = {"authorization": f"Bearer {token}", "host": "poscod.example", "origin": "https://other.example"}
    assert running.client.post("/v1/reload", headers=head).status_code == 200


# -- connections -------------------------------------------------------------------------------------------------------------


def test_connections_end_before_descriptors_do(launch, model_file, eventually):
    """`poscod serve` where the system gives it 100 descriptors, and 400 callers who say nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))  # inherited by the process
    try:
        process = launch(str(model_file), "--quiet")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(httpx.Client(base_url=process.url, timeout=30))
        assert first.get("/healthz").status_code == 200
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", process.port), timeout=30))
        time.sleep(1.0)
        assert first.post("/v1/decide", json={"rows": GOOD}).status_code == 200  # whoever is in is served
    with httpx.Client(base_url=process.url, timeout=30) as after:

        def alive() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return after.get("/healthz").status_code == 200
            return False

        eventually(alive)
    assert process.end() == 0
    lines = [json.loads(line) for line in process.lines().splitlines()]
    assert len(lines) < 12
    assert {line["event"] for line in lines} == {"started", "connections", "draining", "stopped"}


def test_an_event_is_said_once_in_a_while_with_the_number_left_out(capfd):
    seldom = Seldom(seconds=0.3)
    for _ in range(50):
        seldom.say("full", sentence="x")
    seldom.say("other")
    time.sleep(0.35)
    seldom.say("full", sentence="x")
    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["event"], line["unsaid"]) for line in said] == [("full", 0), ("other", 0), ("full", 49)]


def test_headers_have_a_bound_also_where_httptools_is_installed(server):
    code = """
import sys, types
tools, impl = types.ModuleType("httptools"), types.ModuleType("uvicorn.protocols.http.httptools_impl")
impl.HttpToolsProtocol = object
sys.modules |= {"httptools": tools, "uvicorn.protocols.http.httptools_impl": impl}
from poscod.serve._say import Seldom
from poscod.serve._server import _protocol
from uvicorn.protocols.http.h11_impl import H11Protocol
assert issubclass(_protocol(1.0, 10, Seldom()), H11Protocol)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 3_000_000)
        with contextlib.suppress(ConnectionError):
            assert b" 400 " in connection.recv(1000)


# -- files -------------------------------------------------------------------------------------------------------------------


def test_sigterm_ends_the_service_whatever_the_model_file_became(launch, model_file, tmp_path, eventually):
    path = tmp_path / "m.poscod"
    shutil.copy(model_file, path)
    process = launch(str(path), "--reload-seconds", "0.1")
    path.unlink()
    os.mkfifo(path)
    with httpx.Client(base_url=process.url, timeout=30) as client:
        error = eventually(lambda: client.get("/readyz").json()["reload_error"])
        assert error == "cannot read m.poscod: it is a device or pipe; give the name of a file."
        assert client.post("/v1/reload").status_code == 409
        process.process.send_signal(signal.SIGHUP)
        assert client.post("/v1/decide", json={"rows": GOOD}).status_code == 200
    start = time.monotonic()
    assert process.end() == 0
    assert time.monotonic() - start < 10.0


def test_a_file_that_is_never_read_to_its_end_stops_neither_requests_nor_the_end(serve, model_file, monkeypatch):
    running = serve(model_file, load_seconds=0.3)
    stuck = threading.Event()
    monkeypatch.setattr("poscod.serve._model.load_model", lambda *_: stuck.wait(60))
    for _ in range(3):
        answer = running.client.post("/v1/reload")
        assert answer.status_code == 409
        assert "not read within 0.3 seconds" in answer.json()["error"]
    running.service.holder.look_soon()
    assert sum(thread.name.startswith("poscod-reload") for thread in threading.enumerate()) <= 2
    assert running.decide(GOOD).status_code == 200
    start = time.monotonic()
    running.stop()
    assert time.monotonic() - start < 10.0
    stuck.set()


def test_readyz_says_no_more_of_a_path_than_its_name(serve, model_file, tmp_path):
    path = tmp_path / "m.poscod"
    shutil.copy(model_file, path)
    running = serve(path)
    for spoil in (path.unlink, lambda: path.write_bytes(b"x"), lambda: path.write_bytes(b"PK\x03\x04")):
        spoil()
        answer = running.client.post("/v1/reload")
        assert answer.status_code == 409
        ready = running.client.get("/readyz").json()["reload_error"]
        assert "m.poscod" in ready
        assert str(tmp_path) not in ready + answer.text


def test_a_log_that_was_deleted_is_made_again(tmp_path, eventually):
    log = DecisionLog(SqlSink(f"sqlite:///{tmp_path}/d.db"), max_rows=5000)
    log.add(entry(3, "first"))
    eventually(lambda: log.written == 3)
    (tmp_path / "d.db").unlink()
    for _ in range(10):
        log.add(entry(100, "second"))
    eventually(lambda: log.written == 1003)
    start = time.monotonic()
    log.close(30.0)
    assert time.monotonic() - start < 5.0
    assert log.dropped == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "d.db")) as connection:
        assert connection.execute("SELECT count(*) FROM poscod_decisions").fetchone()[0] == 1000


def test_all_parts_share_the_time_for_the_end(serve, model_file, tmp_path):
    running = serve(model_file, log=str(tmp_path / "log"), shutdown_seconds=1.0)
    running.service.log._sink.write = lambda rows: (_ for _ in ()).throw(OSError("gone"))
    assert running.decide(GOOD).status_code == 200
    start = time.monotonic()
    running.stop()
    assert time.monotonic() - start < 6.0
    assert running.service.log.dropped == 1


@pytest.mark.parametrize(
    "jump", [10 * 365 * 86400.0, -10 * 365 * 86400.0, -3 * 3600.0], ids=["on", "back", "hours back"]
)
def test_a_clock_that_jumps_stops_nothing(serve, model_file, tmp_path, monkeypatch, eventually, capfd, jump):
    """And comes back: every decision is answered and logged, the monitor goes on and can be saved and read again."""
    settings = {"log": f"sqlite:///{tmp_path}/d.db", "state_file": tmp_path / "state.json"}
    running = serve(model_file, **settings)
    shift = 0.0
    real = time.time
    monkeypatch.setattr("poscod.serve._service.time.time", lambda: real() + shift)
    for i, shift in enumerate((0.0, jump, 0.0)):  # noqa: B007 (the clock reads it)
        assert running.decide(GOOD * 20).status_code == 200
        eventually(lambda n=20 * (i + 1): running.service.watch.waiting == 0 and running.service.log.written == n)

    def counted() -> int:
        windows = running.client.get("/v1/monitor").json()["windows"]
        assert len(windows) <= 100
        return sum(window["n"] for window in windows)

    eventually(lambda: counted() == 60)
    assert running.client.get("/v1/monitor").json()["dropped"] == 0
    running.stop()
    assert "monitor-fault" not in capfd.readouterr().err
    again = serve(model_file, **settings)
    assert again.decide(GOOD).status_code == 200
    assert not list(tmp_path.glob("*unused*"))
