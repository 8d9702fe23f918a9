"""The service under load, from a second process over 127.0.0.1, as a ratio to a bare Starlette endpoint.

``python -m benchmarks serve_load`` prints CPU time per request, all of it and without ``model.decide``, as ratios to two endpoints that
read the same body and do one matrix product. *Bare* answers with all logits as JSON, which is a larger answer than that of the service;
*lean* answers with as many columns of the same kinds as the service, in the same format. All servers run at once and take turns in
short bursts, so that each ratio is of neighbours in time; the median over the rounds is shown. Bursts are closed loops.

``python -m benchmarks.serve_load soak --minutes 5`` sends 80 % of the measured capacity at even intervals, counts errors and watches
the memory of the service.
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
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._timing import print_table

FEATURES, CLASSES = 32, 10
ARROW = "application/vnd.apache.arrow.stream"
# Media types of a body and of its answer.
TYPES = {
    "json": ("application/json", "*/*"),
    "npy": ("application/x-npy", "*/*"),
    "arrow": (ARROW, "*/*"),
    "arrow both ways": (ARROW, ARROW),
}


# The load generator: a second process that knows nothing of poscod.


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> tuple[int, bytes]:
    """Send a request and read its answer; return status and body."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head[9:12]), await reader.readexactly(length)


def request_bytes(path: str, body: bytes, kind: str) -> bytes:
    given, wanted = TYPES[kind]
    lines = ["Host: 127.0.0.1", f"Content-Type: {given}", f"Accept: {wanted}", f"Content-Length: {len(body)}"]
    return "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + body


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
    """Return two Starlette endpoints that read the same bodies as the service and do one matrix product."""
    import pyarrow as pa
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    weights = np.random.default_rng(0).normal(size=(FEATURES, CLASSES))
    words = np.array(["accepted", "unfamiliar"])

    async def logits_of(request: Request) -> np.ndarray:
        body, kind = await request.body(), request.headers["content-type"]
        if kind == ARROW:
            table = pa.ipc.open_stream(body).read_all()
            rows = np.column_stack([column.to_numpy() for column in table.columns])
        elif kind == TYPES["npy"][0]:
            rows = np.load(io.BytesIO(body), allow_pickle=False)
        else:
            rows = np.asarray(json.loads(body)["rows"])
        return rows @ weights

    def answer(request: Request, columns: dict[str, np.ndarray]) -> Response:
        if request.headers["accept"] != ARROW:
            text = json.dumps({name: column.tolist() for name, column in columns.items()})
            return Response(text, media_type="application/json")
        table, sink = pa.table({name: column.ravel() for name, column in columns.items()}), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return Response(sink.getvalue().to_pybytes(), media_type=ARROW)

    async def bare(request: Request) -> Response:
        return answer(request, {"logits": await logits_of(request)})

    async def lean(request: Request) -> Response:
        logits = await logits_of(request)
        label, accept = logits.argmax(axis=1), logits[:, 0] > 0.0
        columns = {"prediction": np.where(accept, label, -1), "label": label, "accept": accept}
        columns |= {"reason": words[accept.astype(int)]}
        return answer(request, columns | {f"number_{i}": logits[:, i] for i in range(3)})

    return Starlette(routes=[Route(path, call, methods=["POST"]) for path, call in (("/bare", bare), ("/lean", lean))])


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


def timed_server(counter: Path, arguments: list[str]) -> None:
    """Run ``poscod`` with these arguments, and keep the CPU time that `POSCOD.decide` has used in a file of one double."""
    from poscod import POSCOD
    from poscod.cli import main as poscod

    spent, lock, decide = np.memmap(counter, dtype=np.float64, mode="r+", shape=1), threading.Lock(), POSCOD.decide

    def timed(self: POSCOD, *given: Any, **named: Any) -> Any:
        start = time.thread_time()  # one BLAS thread: the thread that decides does all of it
        try:
            return decide(self, *given, **named)
        finally:
            with lock:
                spent[0] += time.thread_time() - start

    POSCOD.decide = timed  # type: ignore[method-assign]
    poscod(arguments)


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
    if kind == "npy":
        np.save(file, X)
        return file.getvalue()
    import pyarrow as pa

    table = pa.table({f"x{i}": X[:, i] for i in range(FEATURES)})
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
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

CASES = [
    (1, "json", 1),
    (1, "json", 32),
    (256, "json", 1),
    (256, "json", 32),
    (256, "npy", 32),
    (256, "arrow", 32),
    (256, "arrow both ways", 32),
]


@dataclass
class Candidate:
    """A server that runs: where to send, its process, and where it counts the time of `decide`."""

    name: str
    path: str
    port: int
    pid: int
    counter: Path

    def burst(self, rows: int, kind: str, connections: int, seconds: float) -> dict[str, Any]:
        """Send for some seconds; add the CPU time per request, all of it and that of `decide`."""
        before, decided = cpu_seconds_of(self.pid), self.decided()
        result = generate(self.port, self.path, body_of(rows, kind), kind, connections, seconds)
        n = max(result["n"], 1)
        cpu, decided = cpu_seconds_of(self.pid) - before, self.decided() - decided
        return {**result, "cpu_ms": 1e3 * cpu / n, "decide_ms": 1e3 * decided / n}

    def decided(self) -> float:
        """Return the CPU seconds of `decide` so far; 0 where nobody counts them."""
        return float(np.fromfile(self.counter)[0]) if self.counter.exists() else 0.0


def main(quick: bool = False) -> None:
    seconds, rounds = (0.3, 1) if quick else (1.0, 5)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers = []

        def start(command: list[str], name: str, *paths: str) -> None:
            counter = Path(folder, str(len(servers)))
            if command[2] == "poscod":
                np.zeros(1).tofile(counter)
                command = [sys.executable, "-m", "benchmarks.serve_load", "timed", str(counter), *command[3:]]
            port, process = stack.enter_context(server(command))
            servers.extend(Candidate(name or path[1:], path, port, process.pid, counter) for path in paths)

        models = {ratio: Path(folder, f"{ratio}.poscod") for ratio in ("default", "paper")}
        for ratio, path in models.items():
            make_model(path, ratio)
        start([sys.executable, "-m", "benchmarks.serve_load", "bare"], "", "/bare", "/lean")
        start(poscod_server(models["default"], "--quiet"), "default ratio", "/v1/decide")
        start(poscod_server(models["paper"], "--quiet"), "paper's ratio", "/v1/decide")
        log = ("--log", f"sqlite:///{folder}/d.db")
        start(poscod_server(models["paper"], *log), "paper's ratio, SQLite log and log lines", "/v1/decide")
        table = [row for case in CASES for row in _rows_of(case, servers, seconds, rounds)]
    header = ["rows, body, connections", "server", "requests/s", "p50 ms", "p99 ms", "CPU ms", "of it decide"]
    header += ["x bare", "x bare without decide", "x lean", "x lean without decide", "errors"]
    title = (
        f"closed loop, {rounds} rounds of {seconds:g} s, {FEATURES} features, {CLASSES} classes, CPU time per request"
    )
    print_table(title, header, table)


def _rows_of(case: tuple[int, str, int], servers: list[Candidate], seconds: float, rounds: int) -> Iterator[list[Any]]:
    """Yield a row of the table per server."""
    rows, kind, connections = case
    for candidate in servers:  # warm
        candidate.burst(*case, min(0.5, seconds))
    runs = [[candidate.burst(*case, seconds) for candidate in servers] for _ in range(rounds)]
    for i, candidate in enumerate(servers):
        mine = {key: np.array([run[i][key] for run in runs]) for key in runs[0][i]}
        cells = [f"{rows} {kind} x{connections}", candidate.name, f"{np.median(mine['rps']):.0f}"]
        cells += [float(np.median(mine[key])) for key in ("p50_ms", "p99_ms", "cpu_ms", "decide_ms")]
        for base in (0, 1):
            other = np.array([run[base]["cpu_ms"] for run in runs])
            alone = mine["cpu_ms"] - mine["decide_ms"]
            cells += [float(np.median(mine["cpu_ms"] / other)), float(np.median(alone / other))]
        yield [*cells, int(mine["errors"].sum())]


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
    elif sys.argv[1:2] == ["timed"]:
        timed_server(Path(sys.argv[2]), sys.argv[3:])
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
