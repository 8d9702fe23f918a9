"""The service under load, from a second process over 127.0.0.1, as a ratio to a bare Starlette endpoint.

``python -m benchmarks serve_load`` measures requests per second, p50 and p99 for batches of 1 and 256 rows, closed loop with 32
connections, and the CPU time per request, which hardly depends on what else the machine does. ``python -m benchmarks.serve_load soak --minutes 5`` sends 80 % of the measured capacity at even intervals, counts
errors and watches the memory of the service.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._timing import print_table

FEATURES, CLASSES = 32, 10
TYPES = {"json": "application/json", "npy": "application/x-npy"}


# The load generator: a second process that knows nothing of poscod.


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    """Send a request and read its answer; return status and body."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head[9:12]), await reader.readexactly(length)


def request_bytes(path: str, body: bytes, kind: str) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {TYPES[kind]}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def closed_loop(port: int, request: bytes, connections: int, seconds: float) -> dict[str, Any]:
    """Let every connection send its next request as soon as it has an answer."""
    times: list[float] = []
    statuses: dict[int, int] = {}
    end = time.perf_counter() + seconds

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            start = time.perf_counter()
            status, _ = await _exchange(reader, writer, request)
            times.append(time.perf_counter() - start)
            statuses[status] = statuses.get(status, 0) + 1
        writer.close()

    start = time.perf_counter()
    outcomes = await asyncio.gather(*(one() for _ in range(connections)), return_exceptions=True)
    return _report(
        times, statuses, sum(isinstance(item, BaseException) for item in outcomes), time.perf_counter() - start
    )


async def open_loop(port: int, request: bytes, connections: int, seconds: float, rate: float) -> dict[str, Any]:
    """Send at even intervals; a late answer counts from the moment its request was due, not from when it was sent."""
    times: list[float] = []
    statuses: dict[int, int] = {}
    start = time.perf_counter()
    turn = iter(range(int(rate * seconds)))

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for i in turn:
            due = start + i / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            status, _ = await _exchange(reader, writer, request)
            times.append(time.perf_counter() - due)
            statuses[status] = statuses.get(status, 0) + 1
        writer.close()

    outcomes = await asyncio.gather(*(one() for _ in range(connections)), return_exceptions=True)
    return _report(
        times, statuses, sum(isinstance(item, BaseException) for item in outcomes), time.perf_counter() - start
    )


def _report(times: list[float], statuses: dict[int, int], broken: int, seconds: float) -> dict[str, Any]:
    p50, p99 = np.quantile(times, [0.5, 0.99]) if times else (float("nan"), float("nan"))
    errors = broken + sum(count for status, count in statuses.items() if status != 200)
    return {"n": len(times), "errors": errors, "rps": len(times) / seconds, "p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99}


def generate(
    port: int, path: str, body: bytes, kind: str, connections: int, seconds: float, rate: float = 0.0
) -> dict[str, Any]:
    """Run the load generator in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.serve_load",
        "client",
        str(port),
        path,
        kind,
        str(connections),
        str(seconds),
        str(rate),
    ]
    done = subprocess.run(command, input=body, capture_output=True, check=True, timeout=seconds + 120)
    return json.loads(done.stdout)


def client(arguments: list[str]) -> None:
    port, path, kind, connections, seconds, rate = arguments
    request = request_bytes(path, sys.stdin.buffer.read(), kind)
    if float(rate):
        work = open_loop(int(port), request, int(connections), float(seconds), float(rate))
    else:
        work = closed_loop(int(port), request, int(connections), float(seconds))
    print(json.dumps(asyncio.run(work)))


# The servers.


def make_model(path: Path, ratio: str) -> None:
    """Fit a model of 32 features and 10 classes."""
    from sklearn.linear_model import LogisticRegression

    from poscod import POSCOD
    from poscod.ratio import CorrectedSigmoid

    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1.0, (CLASSES, FEATURES))
    y = rng.integers(0, CLASSES, 3000)
    X = centres[y] + rng.normal(size=(3000, FEATURES))
    traffic = np.concatenate(
        [centres[y[:700]] + rng.normal(size=(700, FEATURES)), 3.0 + rng.normal(size=(300, FEATURES))]
    )
    chosen = CorrectedSigmoid() if ratio == "default" else CorrectedSigmoid("paper", l2=1e-3)
    POSCOD(LogisticRegression(max_iter=500), chosen, random_state=0).fit(X, y, X_unlabeled=traffic).save(path)


def bare_app() -> Any:
    """Return a Starlette endpoint that reads the same bodies and does the same matrix product."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    weights = np.random.default_rng(0).normal(size=(FEATURES, CLASSES))

    async def product(request: Request) -> Response:
        body = await request.body()
        if request.headers["content-type"] == TYPES["npy"]:
            rows = np.load(io.BytesIO(body), allow_pickle=False)
        else:
            rows = np.asarray(json.loads(body)["rows"])
        return Response(json.dumps({"logits": (rows @ weights).tolist()}), media_type="application/json")

    return Starlette(routes=[Route("/v1/decide", product, methods=["POST"])])


@contextlib.contextmanager
def server(command: list[str]) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Start a server in a process of its own; yield its port, which it prints, and the process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().rsplit(":", 1)[1]), process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def poscod_server(model: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "poscod", "serve", str(model), "--port", "0", *options]


def bare_server() -> None:
    import socket

    import uvicorn

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    print(f"bare on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(bare_app(), log_level="critical", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def body_of(rows: int, kind: str) -> bytes:
    X = np.random.default_rng(1).normal(size=(rows, FEATURES))
    if kind == "json":
        return json.dumps({"rows": X.round(6).tolist()}).encode()
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU time a process has used, all threads together: what survives a busy machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# What is measured.

CASES = [(1, "json", 1), (1, "json", 32), (256, "json", 32), (256, "npy", 32)]


def measure(command: list[str], seconds: float) -> list[dict[str, Any]]:
    with server(command) as (port, process):
        out = []
        for rows, kind, connections in CASES:
            body = body_of(rows, kind)
            generate(port, "/v1/decide", body, kind, connections, min(1.0, seconds))  # warm
            before = cpu_seconds_of(process.pid)
            result = generate(port, "/v1/decide", body, kind, connections, seconds)
            out.append({**result, "cpu_ms": 1e3 * (cpu_seconds_of(process.pid) - before) / max(result["n"], 1)})
        return out


def main(quick: bool = False) -> None:
    seconds = 1.0 if quick else 5.0
    with tempfile.TemporaryDirectory() as folder:
        models = {}
        for ratio in ("default", "paper"):
            models[ratio] = Path(folder, f"{ratio}.poscod")
            make_model(models[ratio], ratio)
        bare = [sys.executable, "-m", "benchmarks.serve_load", "bare"]
        runs = {"bare Starlette": measure(bare, seconds)}
        runs["poscod, default ratio"] = measure(poscod_server(models["default"], "--quiet"), seconds)
        runs["poscod, recipe='paper'"] = measure(poscod_server(models["paper"], "--quiet"), seconds)
        runs["poscod, paper, joint-rows 0"] = measure(
            poscod_server(models["paper"], "--quiet", "--joint-rows", "0"), seconds
        )
        runs["poscod, paper, log sqlite, lines"] = measure(
            poscod_server(models["paper"], "--log", f"sqlite:///{folder}/d.db"), seconds
        )
    table = []
    for i, (rows, kind, connections) in enumerate(CASES):
        for name, results in runs.items():
            r, base = results[i], runs["bare Starlette"][i]
            cells = [f"{rows} {kind} x{connections}", name, f"{r['rps']:.0f}", r["p50_ms"], r["p99_ms"], r["cpu_ms"]]
            table.append([*cells, f"{1e3 / r['cpu_ms']:.0f}", r["cpu_ms"] / base["cpu_ms"], r["errors"]])
    header = [
        "rows, body, connections",
        "server",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "CPU ms per request",
        "requests per CPU second",
    ]
    header += ["CPU, x bare", "errors"]
    print_table(f"closed loop, {seconds:g} s per cell, {FEATURES} features, {CLASSES} classes", header, table)


def soak(minutes: float, share: float, ratio: str = "default") -> dict[str, Any]:
    """Measure capacity, then send a share of it for some minutes."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "m.poscod")
        make_model(model, ratio)
        with server(poscod_server(model, "--log", f"sqlite:///{folder}/d.db", "--state", f"{folder}/s.json")) as (
            port,
            process,
        ):
            body = body_of(1, "json")
            generate(port, "/v1/decide", body, "json", 32, 2.0)
            capacity = generate(port, "/v1/decide", body, "json", 32, min(10.0, 30 * minutes))
            memory = [resident_mb(process.pid)]
            steps = max(1, round(minutes * 2))
            runs = []
            for _ in range(steps):
                part = generate(port, "/v1/decide", body, "json", 64, 60 * minutes / steps, share * capacity["rps"])
                runs.append(part)
                memory.append(resident_mb(process.pid))
    return {
        "capacity_rps": capacity["rps"],
        "rate": share * capacity["rps"],
        "requests": sum(run["n"] for run in runs),
        "errors": sum(run["errors"] for run in runs),
        "p50_ms": [round(run["p50_ms"], 2) for run in runs],
        "p99_ms": [round(run["p99_ms"], 2) for run in runs],
        "memory_mb": [round(value, 1) for value in memory],
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2:])
    elif sys.argv[1:2] == ["bare"]:
        bare_server()
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("what", choices=["soak", "table"])
        parser.add_argument("--minutes", type=float, default=5.0)
        parser.add_argument("--share", type=float, default=0.8)
        parser.add_argument("--ratio", choices=["default", "paper"], default="default")
        parser.add_argument("--quick", action="store_true")
        given = parser.parse_args()
        if given.what == "soak":
            print(json.dumps(soak(given.minutes, given.share, given.ratio), indent=1))
        else:
            main(given.quick)
