"""A service under good and bad requests for long: no error on a good one, flat memory, every decision in the log.

``python -m benchmarks.serve_soak 200000`` sends so many in twenty parts. The first tenth of each part is sent as fast as answers come and measures how many
requests of the mixture a second the service answers just then; the others follow at even intervals at 80 % of that. Four of five are good (JSON, NPY, Arrow), the
others are damaged, too large, of other types, or cut short.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.serve_load import ARROW, FEATURES, make_model

SHARE, CONNECTIONS, PARTS, BURST = 0.8, 16, 20, 10
BAD = [
    ("application/json", b""),
    ("application/json", b'{"rows": [[NaN]]}'),
    ("application/json", b'{"rows": ' + b"[" * 5000),
    ("application/json", b'{"rows": [[1, 2]]}'),
    ("application/json", b"[" + b"[]," * 20_000 + b"[]]"),
    ("application/json", b'{"rows": [[' + b"9" * 5000 + b"]]}"),
    ("application/x-npy", b"\x93NUMPY\x01\x00\xff\xff"),
    (ARROW, b"\xff\xff\xff\xff\x00\x00\x00\x7f"),
    ("text/plain", b"hello"),
]


def requests(rng: np.random.Generator) -> tuple[list[bytes], list[bytes]]:
    """Return good requests and bad ones."""
    import pyarrow as pa

    good = []
    for n in (1, 1, 1, 8, 64):
        rows = rng.normal(size=(n, FEATURES))
        npy, sink = io.BytesIO(), pa.BufferOutputStream()
        np.save(npy, rows)
        table = pa.table({f"c{i}": rows[:, i] for i in range(FEATURES)})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        for kind, body in (
            ("application/json", json.dumps({"rows": rows.tolist()}).encode()),
            ("application/x-npy", npy.getvalue()),
            (ARROW, sink.getvalue().to_pybytes()),
        ):
            good.append(request(kind, body))
    bad = [request(kind, body) for kind, body in BAD]
    bad += [mutated(random.Random(i), raw) for i, raw in enumerate(good)]
    bad.append(request("application/json", b"x", length=10**9))
    bad.append(b"GET /nothing HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    return good, bad


def request(kind: str, body: bytes, length: int | None = None) -> bytes:
    lines = f"Host: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body) if length is None else length}"
    return f"POST /v1/decide HTTP/1.1\r\n{lines}\r\n\r\n".encode() + body


def mutated(rng: random.Random, raw: bytes) -> bytes:
    head, _, body = raw.partition(b"\r\n\r\n")
    changed = bytearray(body)
    for at in rng.sample(range(min(len(body), 200)), 20):
        changed[at] = rng.randrange(256)
    return head + b"\r\n\r\n" + bytes(changed)


async def send(port: int, n: int, rate: float, seed: int) -> tuple[Counter[str], int, float]:
    """Send so many requests; a rate of 0 sends each as soon as it can. Return answers by kind, rows decided on, answers a second."""
    good, bad = requests(np.random.default_rng(0))
    rng, turn, start = random.Random(seed), iter(range(n)), time.perf_counter()
    counts: Counter[str] = Counter()
    rows, reached, most = 0, 0.0, max(1, n * 9 // 10)  # the last ones wait for refusals that linger for two seconds

    async def one() -> None:
        nonlocal rows, reached
        reader = writer = None
        for i in turn:
            if rate and (wait := start + i / rate - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            is_good = rng.random() < 0.8
            raw = rng.choice(good if is_good else bad)
            for _ in range(2):  # a connection that was closed after a refusal is opened again
                try:
                    if writer is None:
                        reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.write(raw)
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
                    length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
                    body = await reader.readexactly(length)
                    status = int(head[9:12])
                    break
                except (ConnectionError, asyncio.IncompleteReadError):
                    status, body = 0, b""
                    if writer is not None:
                        writer.close()
                    writer = None
            counts[f"{'good' if is_good else 'bad'} {status}"] += 1
            if counts.total() == most:
                reached = time.perf_counter() - start
            if status == 200:
                rows += json.loads(body)["n"]
            if writer is not None and b"connection: close" in head.lower():
                writer.close()
                writer = None

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return counts, rows, most / reached


def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_model(folder / "m.poscod", "paper")
        command = [sys.executable, "-m", "poscod", "serve", str(folder / "m.poscod"), "--port", "0", "--quiet"]
        command += ["--log", f"sqlite:///{folder}/d.db", "--reload-seconds", "0"]
        with (folder / "err").open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        memory: list[float] = []
        counts: Counter[str] = Counter()
        made, shares, begin = 0, [], time.perf_counter()
        burst = max(1, n // PARTS // BURST)

        def resident() -> float:
            return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024

        try:
            for part in range(PARTS):
                rest = n * (part + 1) // PARTS - n * part // PARTS - burst
                found, rows, capacity = asyncio.run(send(port, burst, 0.0, 2 * part))
                more, further, rate = asyncio.run(send(port, rest, SHARE * capacity, 2 * part + 1))
                counts, made = counts + found + more, made + rows + further
                shares.append(rate / capacity)
                memory.append(resident())
                sent = f"{counts.total():,} sent in {time.perf_counter() - begin:.0f} s"
                print(f"{sent}, capacity {capacity:.0f} a second, then {rate:.0f}; {memory[-1]:.0f} MB", flush=True)
            seconds = time.perf_counter() - begin
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
        with contextlib.closing(sqlite3.connect(folder / "d.db")) as base:
            logged = base.execute("SELECT count(*) FROM poscod_decisions").fetchone()[0]
        lines = len((folder / "err").read_text().splitlines())
    print(dict(sorted(counts.items())), f"{seconds:.0f} s, exit {code}, {lines} lines of log")
    print(f"{min(shares):.0%} to {max(shares):.0%} of capacity; decisions made {made:,}, logged {logged:,}")
    print(f"memory after a quarter {memory[PARTS // 4 - 1]:.0f} MB, at the end {memory[-1]:.0f} MB")
    failed = [kind for kind in counts if kind.startswith("good") and kind != "good 200"] + [
        kind for kind in counts if kind.startswith("bad 5")
    ]
    assert not failed
    assert logged == made
    assert code == 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
