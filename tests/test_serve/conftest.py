"""Models in files, and real servers on free ports of 127.0.0.1: in a thread of this process, or in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD, Activations
from poscod.model import Schema
from poscod.ratio import CorrectedSigmoid
from poscod.serve import Settings, create_app
from poscod.serve._run import bind
from poscod.serve._server import Server
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
SECONDS = 60.0


def fit(X: Any, y: Any, traffic: Any, **parameters: Any) -> POSCOD:
    settings: dict[str, Any] = {"tpr_min": 0.9, "alpha": 0.3, "calibration": 0.5, "random_state": 0, **parameters}
    ratio = CorrectedSigmoid("paper", l2=1e-3)
    return POSCOD(LogisticRegression(), ratio, **settings).fit(X, y, X_unlabeled=traffic)


def sample() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = WORLD.sample_id(800, random_state=0)
    return X, y, WORLD.sample_mixture(400, pi=0.3, random_state=1)[0]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="session")
def model_file(folder: Path) -> Path:
    """Two numeric features without names, classes 0 and 1."""
    fit(*sample()).save(folder / "model.poscod")
    return folder / "model.poscod"


@pytest.fixture(scope="session")
def other_file(folder: Path) -> Path:
    """The same rows, other costs: another threshold."""
    fit(*sample(), alpha=0.8).save(folder / "other.poscod")
    return folder / "other.poscod"


@pytest.fixture(scope="session")
def named_file(folder: Path) -> Path:
    """Named features and text labels."""
    pandas = pytest.importorskip("pandas")
    X, y, traffic = sample()
    names = ["width", "height"]
    model = fit(pandas.DataFrame(X, columns=names), np.array(["cat", "dog"])[y], pandas.DataFrame(traffic, columns=names), reject_label="none of them")  # fmt: skip
    model.save(folder / "named.poscod")
    return folder / "named.poscod"


@pytest.fixture(scope="session")
def shell_file(folder: Path, model_file: Path) -> Path:
    """As `poscod fit` leaves it: named columns of numbers, but no frame."""
    POSCOD.load(model_file).with_schema(Schema(("width", "height"), n_features=2)).save(folder / "shell.poscod")
    return folder / "shell.poscod"


@pytest.fixture(scope="session")
def network_file(folder: Path) -> Path:
    """Features and logits of a network."""
    X, y, traffic = sample()
    head = np.array([[-1.0, 0.2], [1.0, -0.2]])
    model = POSCOD(ratio=CorrectedSigmoid("paper", l2=1e-3), random_state=0)
    model.fit(Activations(X, X @ head.T), y, X_unlabeled=Activations(traffic, traffic @ head.T)).save(
        folder / "network.poscod"
    )
    return folder / "network.poscod"


class Running:
    """A server in a thread."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.app = create_app(path, settings, access_log=False)
        self.service = self.app.state.service
        listener = bind("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        started = threading.Event()
        self._server = Server(self.app, started.set)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        assert started.wait(SECONDS)
        self.client = httpx.Client(base_url=self.url, timeout=SECONDS)

    def decide(self, rows: Any, **more: Any) -> httpx.Response:
        return self.client.post("/v1/decide", json={"rows": rows, **more})

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def stop(self) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(path: Path, **settings: Any) -> Running:
        running.append(Running(path, Settings(**{"drain_seconds": 0.0, "reload_seconds": 0.0, **settings})))
        return running[-1]

    yield start
    for item in running:
        if item._thread.is_alive():
            item.stop()


@pytest.fixture(scope="module")
def server(model_file: Path) -> Iterator[Running]:
    """One server for all tests of a module that leave it as it is."""
    running = Running(
        model_file,
        Settings(max_body_bytes=200_000, max_rows=1000, body_seconds=1.5, request_seconds=60.0, drain_seconds=0.0),
    )
    yield running
    running.stop()


def eventually(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.05)
    return value


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[..., Any]:
    return eventually


class Process:
    """``poscod serve`` in a process of its own."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.errors = Path(os.environ.get("TMPDIR", "/tmp"), f"poscod-serve-{os.getpid()}-{time.monotonic_ns()}.log")
        command = [sys.executable, "-m", "poscod", "serve", "--port", "0", *arguments]
        with self.errors.open("w") as file:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=file, text=True, env={**os.environ, **(environment or {})}
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http://" in line, self.errors.read_text()
        self.url = line.split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def lines(self) -> str:
        return self.errors.read_text()

    def end(self) -> int:
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def launch() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: str, **options: Any) -> Process:
        started.append(Process(*arguments, **options))
        return started[-1]

    yield start
    for item in started:
        if item.process.poll() is None:
            item.process.kill()
            item.wait()
        item.errors.unlink(missing_ok=True)
