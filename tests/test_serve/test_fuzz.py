"""Garbage of every kind gets a status below 500, one sentence, and never stops the service.

A few hundred requests are made by hand from rules (wrong shapes, types, numbers, depths, encodings, damaged binary bodies), the rest
by schemathesis from the service's own description, both what it allows and what it forbids.
"""

from __future__ import annotations

import http.client
import io
import json
import pickle
import random
import socket
import struct
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

JSON, ARROW, NPY = "application/json", "application/vnd.apache.arrow.stream", "application/x-npy"


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npy_header(text: str, data: bytes = b"") -> bytes:
    """An NPY file with any header."""
    head = text.encode("latin-1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) % 65536) + head + data


def arrow(columns: dict[str, Any], **options: Any) -> bytes:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.exit, ("a pickle was executed",))


def fixed() -> list[tuple[str, bytes]]:
    """Bodies that someone would try."""
    numbers = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "-1e-308", "null", "true", '"1"', "{}", "[]", "9" * 400, "9" * 5000, "1" + "0" * 30, "-0.0", "0x1", "1.", ".5", "+1", "1e", "--1"]  # fmt: skip
    texts = [f'{{"rows": [[{number}, 1]]}}' for number in numbers] + [f'{{"rows": [[{number}]]}}' for number in numbers]
    texts += ["", "{", "null", "[]", "[[1, 2]]", "1", '"rows"', "{}", '{"rows": null}', '{"rows": {}}', '{"rows": []}', '{"rows": [[]]}', '{"rows": [1, 2]}', '{"rows": [[[1, 2]]]}', '{"rows": [[1, 2], [3]]}', '{"rows": [[1, 2], null]}', '{"rows": [["1", 2]]}', '{"rows": [["a", "b"]]}', '{"rows": [["a", null], [true, {}]]}', '{"rows": ["a", "b"]}', '{"rows": [[1, 2]], "rows": 3}', '{"rows": [[1, 2]], "columns": {}}', '{"rows": [[1, 2]], "ids": [1, 2]}', '{"rows": [[1, 2]], "ids": [null]}', '{"rows": [[1, 2]], "ids": [["a"]]}', '{"rows": [[1, 2]], "ids": ["\\u0000"]}', '{"rows": [[1, 2]], "ids": ["\\ud800"]}', '{"rows": [[1, 2]], "ids": "a"}', '{"rows": [[1, 2]], "more": 1}', '{"columns": {"a": [1]}}', '{"records": [{}]}', '{"activations": {"logits": [[1]]}}', '{"\\ud800": 1, "rows": [[1, 2]]}']  # fmt: skip
    texts += ["[" * depth + "]" * depth for depth in (10, 500, 1_000, 20_000)]
    texts += ['{"rows": ' * depth + "1" + "}" * depth for depth in (10, 500, 1_000, 10_000)]
    bodies = [(JSON, text.encode("utf-8", "surrogatepass")) for text in texts]
    bodies += [(JSON, b"\xff\xfe"), (JSON, b"\x00" * 100), (JSON, '{"rows": [[1, 2]]}'.encode("utf-16")), (JSON, b'{"rows": [[1, 2]]}' + b" " * 190_000), (JSON, b"\xef\xbb\xbf{}")]  # fmt: skip
    good = npy(np.ones((3, 2)))
    bodies += [(NPY, good[:cut]) for cut in (0, 3, 6, 9, 40, len(good) - 1)] + [(NPY, good + b"x")]
    bodies += [(NPY, npy(array)) for array in (np.ones(2), np.ones((1, 2, 1)), np.ones((0, 2)), np.ones((2, 0)), np.ones((1, 3)), np.array([["a", "b"]]), np.ones((2, 2), dtype=complex), np.full((1, 2), np.nan), np.full((1, 2), np.inf), np.array([[1, 2]], dtype="M8[s]"), np.array(3.0), np.ones((2, 2), dtype=bool), np.zeros(2, dtype=[("a", float)]), np.ones((1001, 2)))]  # fmt: skip
    bodies += [
        (NPY, npy(np.array([[Bomb(), 1]], dtype=object))),
        (NPY, pickle.dumps(Bomb())),
        (NPY, b"\x93NUMPY\x09\x09" + bytes(50)),
    ]
    shapes = [
        "(999999999999, 2)",
        "(-1, 2)",
        "(2, -2)",
        "(2,)",
        "()",
        "'x'",
        "(1e3, 2)",
        "(2, 2, 2)",
        "__import__('os')",
        "(True, 2)",
    ]
    bodies += [
        (NPY, npy_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}", bytes(32)))
        for shape in shapes
    ]
    bodies += [(NPY, npy_header(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': (1, 2)}}", bytes(16))) for kind in ("O", "|O8", "V8", "<f99", "S4", "<M8", "x")]  # fmt: skip
    bodies += [(NPY, npy_header("{'descr': " + "[" * 3000 + "]" * 3000 + "}")), (NPY, npy_header("x" * 9000))]
    stream = arrow({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    bodies += [(ARROW, stream[:cut]) for cut in range(0, len(stream), 24)]
    bodies += [(ARROW, arrow(columns)) for columns in ({"a": [1.0]}, {"a": ["x"], "b": ["y"]}, {"a": [None], "b": [1.0]}, {"a": [[1.0, 2.0]]}, {"a": [{"x": 1}], "b": [1.0]}, {"id": [1]}, {"a": [1.0] * 1001, "b": [1.0] * 1001}, {"a": [], "b": []}, {"a": [b"x"], "b": [1.0]}, {"a": [[1.0], [1.0, 2.0]], "b": [1.0, 1.0]})]  # fmt: skip
    bodies += [(ARROW, arrow({"a": np.zeros(5000), "b": np.zeros(5000)}, compression=kind)) for kind in ("lz4", "zstd")]
    bodies += [("text/plain", b"1"), ("", b"{}"), ("application/x-www-form-urlencoded", b"rows=1"), ("multipart/form-data; boundary=x", b"--x--"), ("application/json; charset=klingon", b'{"rows": [[1, 2]]}'), ("Application/JSON", b"{"), (ARROW, b""), (NPY, b"")]  # fmt: skip
    return bodies


def mutated(rng: random.Random, n: int) -> list[tuple[str, bytes]]:
    """Good bodies with bytes changed, cut, doubled or put in."""
    good = [(JSON, b'{"rows": [[1.5, 2.5], [3.5, -4.5e-3]], "ids": ["a", 2]}'), (NPY, npy(np.ones((3, 2)))), (ARROW, arrow({"a": [1.0, 2.0], "b": [3.0, 4.0], "id": ["x", "y"]}))]  # fmt: skip
    out = []
    for _ in range(n):
        kind, body = rng.choice(good)
        data = bytearray(body)
        for _ in range(rng.choice((1, 1, 2, 5, 20))):
            at = rng.randrange(len(data)) if data else 0
            action = rng.randrange(5)
            if action == 0 and data:
                data[at] = rng.randrange(256)
            elif action == 1:
                del data[at : at + rng.randrange(1, 30)]
            elif action == 2:
                data[at:at] = data[at : at + rng.randrange(1, 30)]
            elif action == 3:
                data[at:at] = rng.choice(
                    (b"[", b"]", b"{", b'"', b"\\", b",", b"\x00", b"\xff", b"e", b"-", b"NaN", b"9" * 30)
                )
            elif data:
                data[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, rng.getrandbits(32))))
        out.append((kind, bytes(data)))
    return out


def check(status: int, text: bytes, body: bytes) -> int:
    assert status < 500, (status, text, body[:300])
    document = json.loads(text)
    if status != 200:
        assert status in (400, 413, 415, 422), (status, body[:300])
        assert document["error"].endswith("."), document
        assert len(document["error"]) < 600
        assert "Traceback" not in document["error"]
    return status


GOOD_BODIES = {
    "named_file": {"rows": [[0.0, 0.0]]},
    "shell_file": {"rows": [[0.0, 0.0]]},
    "network_file": {"activations": {"features": [[0.0, 0.0]], "logits": [[0.5, -0.5]]}},
}


def bombard(server: Any, bodies: list[tuple[str, bytes]], good: Any = None) -> Counter[int]:
    statuses: Counter[int] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for kind, body in bodies:
        connection.request("POST", "/v1/decide", body, {"content-type": kind})
        answer = connection.getresponse()
        statuses[check(answer.status, answer.read(), body)] += 1
    connection.close()
    assert server.client.post("/v1/decide", json=good or {"rows": [[0.0, 0.0]]}).status_code == 200
    return statuses


@pytest.mark.parametrize("kind", ["named_file", "shell_file", "network_file"])
def test_what_someone_would_try_on_other_models(serve, kind, request):
    running = serve(request.getfixturevalue(kind), max_body_bytes=200_000, max_rows=1000)
    statuses = bombard(running, fixed(), good=GOOD_BODIES[kind])
    assert statuses[422] > 30


def test_what_someone_would_try(server):
    statuses = bombard(server, fixed())
    assert statuses[400] > 30
    assert statuses[415] > 5
    assert statuses[422] > 30
    assert statuses[413] >= 2


def test_changed_bodies(server):
    statuses = bombard(server, mutated(random.Random(1), 500))
    assert statuses[200] > 5  # some changes do no harm
    assert statuses[400] > 100


def test_lines_that_are_no_http(server):
    rng = random.Random(2)
    lines = [b"", b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/decide HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"POST /v1/decide HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"POST /v1/decide HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 20_000 + b"\r\n", b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]  # fmt: skip
    lines += [bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200))) + b"\r\n\r\n" for _ in range(40)]
    for line in lines:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            try:
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(4000)
            except ConnectionError:
                continue  # dropped, which is an answer, too
            assert not answer.startswith(b"HTTP/1.1 5"), (line[:100], answer)
    assert server.decide([[0.0, 0.0]]).status_code == 200


def schema_run(server: Any, examples: int) -> Counter[str]:
    """Let schemathesis send what the description allows and what it forbids; count requests by operation."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from schemathesis.specs.openapi import checks

    conformance = [checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]
    schema = schemathesis.openapi.from_dict(server.client.get("/openapi.json").json())
    counts: Counter[str] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()
        takes_input = operation.path in ("/v1/decide", "/v1/at", "/v1/verdicts")
        for mode in schemathesis.GenerationMode if takes_input else [schemathesis.GenerationMode.POSITIVE]:

            @seed(7)
            @settings(
                max_examples=examples if takes_input else 2, deadline=None, database=None, derandomize=False, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(case=operation.as_strategy(generation_mode=mode))
            def probe(case: Any) -> None:
                counts[f"{case.method.upper()} {case.path}"] += 1
                response = case.call(base_url=server.url, timeout=60)
                assert response.status_code < 500, response.text
                case.validate_response(response, checks=conformance)

            probe()
    return counts


@pytest.mark.filterwarnings("ignore")  # of schemathesis' own dependencies
def test_what_the_description_allows_and_forbids(server):
    counts = schema_run(server, 25)
    assert counts["POST /v1/decide"] >= 40
    assert counts["GET /v1/at"] >= 25
    assert len(counts) == 14
    assert server.decide([[0.0, 0.0]]).status_code == 200


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_twenty_thousand_requests(server):
    bodies = fixed() + mutated(random.Random(3), 16_500)
    statuses = bombard(server, bodies)
    counts = schema_run(server, 600)
    total = len(bodies) + sum(counts.values())
    assert total >= 20_000, total
    assert max(statuses) < 500
    assert server.metric("poscod_in_flight") == 0
    assert server.client.get("/healthz").status_code == 200
