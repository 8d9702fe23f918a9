"""Limits: each is met by one request beyond it, and the service answers the next request as before."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
import threading
import time

import httpx
import numpy as np
import pyarrow as pa
import pytest

from poscod.exceptions import InvalidInputError
from poscod.serve import Settings
from poscod.serve._parse import parse_json
from poscod.serve._say import Refusal
from poscod.serve._settings import read_tokens

GOOD = [[0.0, 0.0]]


def refusal(answer: httpx.Response, status: int) -> str:
    """Check the form of a refusal and return its sentence."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert set(body) == {"error", "status", "title", "request_id"}
    assert body["status"] == status
    assert body["request_id"] == answer.headers["x-request-id"]
    assert "\n" not in body["error"]
    assert body["error"].endswith((".", "`."))
    return body["error"]


def test_body_size_with_and_without_a_content_length(server):
    body = b'{"rows": [[0, 0]], "ids": ["' + b"x" * 300_000 + b'"]}'
    head = {"content-type": "application/json"}
    assert "200000" in refusal(server.client.post("/v1/decide", content=body, headers=head), 413)

    def chunks():
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    assert "200000" in refusal(server.client.post("/v1/decide", content=chunks(), headers=head), 413)
    assert server.decide(GOOD).status_code == 200


def test_a_lie_about_the_length_is_no_way_around(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(
            b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999999\r\n\r\n{}"
        )
        assert b" 413 " in connection.recv(1000)


def test_rows_depth_and_types(server):
    assert "1000 rows" in refusal(server.decide([[0.0, 0.0]] * 1001), 413)
    deep = b'{"rows": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    head = {"content-type": "application/json"}
    for path in ("/v1/decide", "/v1/at"):
        refusal(server.client.post(path, content=deep, headers=head), 413)  # counted before it is parsed
    with pytest.raises(Refusal, match="nested too deeply"):
        parse_json(deep, server.service.holder.current.model.schema_, 10**6)
    refusal(server.client.post("/v1/decide", content=b"{}", headers={"content-type": "text/plain"}), 415)
    refusal(server.client.post("/v1/decide", content=b"{}", headers={**head, "content-encoding": "gzip"}), 415)
    assert "NaN" in refusal(server.client.post("/v1/decide", content=b'{"rows": [[NaN, 1]]}', headers=head), 400)
    assert "Row 1 of rows must be a list of 2 numbers" in refusal(server.decide([[1, 2, 3]]), 422)
    assert "Row 2 of rows must be a list of 2 numbers" in refusal(server.decide([[1, 2], [True, 2]]), 422)
    refusal(server.client.get("/nothing"), 404)
    assert refusal(server.client.get("/v1/decide"), 405)
    assert server.client.get("/v1/decide").headers["allow"] == "POST"


def test_rows_beyond_the_limit_are_counted(server):
    def counted() -> float:
        lines = server.client.get("/metrics").text.splitlines()
        return sum(float(x.split()[-1]) for x in lines if x.startswith('poscod_rejected_requests_total{limit="rows"}'))

    before = counted()
    rows = [[0.0, 0.0]] * 1001
    body = io.BytesIO()
    np.save(body, np.zeros((1001, 2)))
    refusal(server.decide(rows), 413)
    refusal(
        server.client.post("/v1/decide", content=body.getvalue(), headers={"content-type": "application/x-npy"}), 413
    )
    refusal(server.client.post("/v1/at", json={"rows": rows}), 413)
    refusal(arrow(server, {"x": np.zeros(1001), "y": np.zeros(1001)}), 413)
    assert counted() == before + 4


def arrow(server, columns) -> httpx.Response:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    head = {"content-type": "application/vnd.apache.arrow.stream"}
    return server.client.post("/v1/decide", content=sink.getvalue().to_pybytes(), headers=head)


def test_a_small_arrow_body_cannot_grow(server):
    X = {"x": np.zeros(1000), "y": np.zeros(1000)}
    text = pa.DictionaryArray.from_arrays(np.zeros(1000, dtype=np.int8), ["x" * 100])  # 1 kB stands for 100 kB
    assert "must not hold dictionaries" in refusal(arrow(server, {**X, "id": text}), 422)
    numbers = pa.DictionaryArray.from_arrays(np.zeros(1000, dtype=np.int8), [1.0])
    assert "must not hold dictionaries" in refusal(arrow(server, {"x": numbers, "y": X["y"]}), 422)
    bits = {f"b{i}": np.zeros(1000, dtype=bool) for i in range(100)}  # an eighth of a byte stands for eight
    assert "at most 3 columns, got 102" in refusal(arrow(server, {**X, **bits}), 422)
    assert arrow(server, {**X, "id": ["a"] * 1000}).status_code == 200


def test_large_bodies_are_never_parsed_on_the_event_loop(serve, model_file, monkeypatch):
    from poscod.serve import _parse

    running = serve(model_file)
    real, threads = _parse.rows_from_document, []

    def reading(*given):
        threads.append(threading.current_thread())
        return real(*given)

    monkeypatch.setattr(_parse, "rows_from_document", reading)
    assert running.decide(GOOD).status_code == 200
    assert running.decide(GOOD * 5000).status_code == 200
    assert [thread is running._thread for thread in threads] == [True, False]


def test_slow_body_slow_headers_and_a_body_cut_short(server):
    head = (
        b"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as slow:
        slow.sendall(head + b'{"rows"')
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as headers:
            headers.sendall(b"POST /v1/decide HTTP/1.1\r\nHost:")
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
                with socket.create_connection(("127.0.0.1", server.port), timeout=30) as cut:
                    cut.sendall(head + b'{"rows"')
                assert server.decide(GOOD).status_code == 200  # nobody else waits for them
                assert b" 408 " in slow.recv(1000)
                assert headers.recv(1000) == b""
                assert silent.recv(1000) == b""
    assert 1.0 < time.monotonic() - start < 25.0
    assert server.metric("poscod_rejected_requests_total") >= 1


def test_time_and_number_of_requests(serve, model_file):
    running = serve(model_file, threads=1, max_in_flight=3, request_seconds=0.5)
    model = running.service.holder.current.model
    real, block = model.decide, threading.Event()
    model.decide = lambda X: (block.wait(30), real(X))[1]

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
            answers = await asyncio.gather(*(client.post("/v1/decide", json={"rows": GOOD}) for _ in range(8)))
            alive = await client.get("/healthz")
            return [*answers, alive]

    *answers, alive = asyncio.run(ask())
    assert alive.status_code == 200  # although the only compute thread is stuck
    assert all(answer.headers["retry-after"] == "1" for answer in answers)
    sentences = sorted(refusal(answer, 503) for answer in answers)
    assert sum("no answer in time" in sentence for sentence in sentences) == 3
    assert sum("at a time" in sentence for sentence in sentences) == 5
    block.set()
    model.decide = real
    assert running.decide(GOOD).status_code == 200
    assert running.metric("poscod_in_flight") == 0


def test_a_reader_that_never_reads_is_dropped(serve, model_file, eventually):
    running = serve(model_file, body_seconds=1.0, request_seconds=60.0)
    body = json.dumps({"rows": [[0.0, 0.0]] * 5000}).encode()
    head = f"POST /v1/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    received = b""
    state = running._server.server_state
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", running.port))
        with contextlib.suppress(ConnectionError):
            connection.sendall((head.encode() + body) * 40)  # pipelined: more answers than all buffers hold
        # The service has let go of it: answers were given (the kernel takes all requests before the service does).
        eventually(lambda: state.total_requests and not state.connections, 60)
        with contextlib.suppress(ConnectionError):
            while chunk := connection.recv(1 << 20):
                received += chunk
    assert received.count(b"HTTP/1.1 200") < 40  # whoever is not dropped would get them all now
    assert running.metric("poscod_in_flight") == 0
    assert running.decide(GOOD).status_code == 200


def test_tokens(serve, model_file, capfd):
    token = "a-token-of-enough-characters"
    running = serve(model_file, tokens=("another-token-0123456789", token), open_metrics=False)
    for path in ("/v1/model", "/v1/monitor", "/metrics", "/openapi.json"):
        answer = running.client.get(path)
        refusal(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer wrong", f"Basic {token}", f"Bearer {token}x", f"Bearer {token[:-1]}", token):
            assert running.client.get(path, headers={"authorization": wrong}).status_code == 401
        assert running.client.get(path, headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert running.decide(GOOD).status_code == 401
    for path in ("/healthz", "/readyz", "/"):
        assert running.client.get(path).status_code == 200
    assert (
        "401"
        in running.client.get("/openapi.json", headers={"authorization": f"Bearer {token}"}).json()["paths"][
            "/v1/decide"
        ]["post"]["responses"]
    )
    running.stop()
    assert token not in "".join(capfd.readouterr())
    assert token not in repr(running.service.settings)


def test_settings_refuse_nonsense(tmp_path):
    for bad in ({"max_rows": 0}, {"threads": 1.5}, {"request_seconds": 0.0}, {"ood_limit": 1.0}, {"tokens": ("short",)}, {"tokens": ("with space " * 3,)}):  # fmt: skip
        with pytest.raises(InvalidInputError):
            Settings(**bad)
    file = tmp_path / "tokens"
    file.write_text("# ours\n\n  0123456789abcdef0 \n")
    assert read_tokens(file) == ("0123456789abcdef0",)
    assert read_tokens(None, {"POSCOD_TOKEN": "0123456789abcdef1"}) == ("0123456789abcdef1",)
    assert read_tokens(None, {}) == ()
    file.write_text("# nothing\n")
    with pytest.raises(InvalidInputError, match="at least one token"):
        read_tokens(file)


def test_an_unexpected_error_is_one_sentence_and_its_text_stays_inside(serve, model_file, capfd):
    running = serve(model_file)
    model = running.service.holder.current.model
    real = model.decide

    def broken(X):
        raise ZeroDivisionError("secret of the caller")

    model.decide = broken
    answer = running.decide(GOOD)
    assert "secret" not in refusal(answer, 500)
    assert "Traceback" not in answer.text
    model.decide = real
    assert running.decide(GOOD).status_code == 200
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    fault = next(line for line in lines if line["event"] == "fault")
    assert "ZeroDivisionError" in fault["error"]
    assert "test_limits.py" in fault["error"]
    assert not any("secret" in json.dumps(line) for line in lines)


def test_an_answer_that_is_there_at_the_deadline_is_given(serve, model_file):
    """A process that was not allowed to run for a while finds the answer and the deadline at the same moment."""
    running = serve(model_file, request_seconds=0.3)
    engine = running.service.engine
    real = engine.compute

    async def compute(job, until):
        # The whole loop stands still; the compute thread does not.
        asyncio.get_running_loop().call_soon(time.sleep, 1.0)
        return await real(job, until)

    engine.compute = compute
    assert running.decide(GOOD).status_code == 200
