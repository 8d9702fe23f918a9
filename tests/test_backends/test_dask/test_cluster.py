"""A real cluster of two processes on 127.0.0.1: what a killed worker, an interrupt and too little memory do."""

from __future__ import annotations

import os
import signal
import time
import tracemalloc
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.backends import dask as backend
from poscod.backends.dask import _fit, _passes
from poscod.backends.dask._passes import Passes
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.model import ClassMixWarning
from poscod.ratio import CorrectedSigmoid

pytestmark = pytest.mark.usefixtures("time_limit")


def lazily(X, rows):
    """Rows whose chunks take a while to read, so that a pass has a middle."""

    def slow(block):  # inside a function: it travels by value, the workers cannot import this file
        time.sleep(0.1)
        return block

    return da.from_array(X, chunks=(rows, X.shape[1])).map_blocks(slow, dtype=X.dtype, meta=X[:0])


class Killer:
    """A progress callback that kills one worker process with SIGKILL in the middle of a named pass."""

    def __init__(self, client, what, after=0):
        self.client, self.what, self.after = client, what, after
        self.killed = None
        self.seen = 0

    def __call__(self, what, done, total):
        self.seen += what == self.what
        if self.killed is None and what == self.what and self.seen > self.after and 0 < done < total:
            self.killed = self.client.run(os.getpid, nanny=False)
            os.kill(min(self.killed.values()), signal.SIGKILL)


@pytest.fixture(scope="module")
def case(world):
    X, y = world(600, seed=1)
    U, _ = world(800, pi=0.3, seed=2)
    T, t = world(500, seed=3)
    classifier = FrozenEstimator(LogisticRegression().fit(T, t))
    return (
        X,
        y,
        U,
        POSCOD(
            classifier,
            CorrectedSigmoid("paper", ood_prior=0.3, max_iter=5),
            tpr_min=0.9,
            calibration=0.5,
            random_state=7,
        ),
    )


def test_a_worker_killed_while_fitting_changes_nothing(client, case):
    X, y, U, model = case
    killer = Killer(client, "likelihood", after=1)
    with client.as_current():
        found = backend.fit(model, lazily(X, 300), y, lazily(U, 100), progress=killer)
    assert killer.killed is not None
    assert min(killer.killed.values()) not in client.run(os.getpid, nanny=False).values()
    expected = model.fit(X, y, X_unlabeled=U)
    np.testing.assert_allclose(found.ratio_.model_.theta, expected.ratio_.model_.theta, rtol=1e-8)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)
    assert found.scorer_.temperature == pytest.approx(expected.scorer_.temperature, rel=1e-8)


def test_a_worker_killed_while_deciding_loses_and_doubles_no_row(client, case, tmp_path):
    X, y, U, model = case
    model = model.fit(X, y, X_unlabeled=U)
    killer = Killer(client, "decisions")
    with client.as_current():
        assert backend.write_decisions(model, lazily(U, 50), tmp_path / "out", progress=killer) == len(U)
    assert killer.killed is not None
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) == 16
    found = pd.concat([pd.read_parquet(file) for file in files])
    pd.testing.assert_frame_equal(found, model.decide(U).to_pandas(), rtol=1e-9, check_index_type=False)


def test_a_worker_killed_while_evaluating_changes_nothing(client, case):
    X, y, U, model = case
    model = model.fit(X, y, X_unlabeled=U)
    killer = Killer(client, "counts")
    with client.as_current():
        found = backend.evaluate(model, lazily(X, 50), y, lazily(U, 100), progress=killer)
    assert killer.killed is not None
    assert found == model.evaluate(X, y, U)


def test_a_task_that_fails_now_and_then_is_tried_again(client, tmp_path, monkeypatch):
    def flaky(index):
        mark = tmp_path / str(index)
        if not mark.exists():
            mark.write_text("seen")
            raise OSError("the store did not answer")
        return index

    with client.as_current():
        assert Passes().reduce([delayed(flaky, pure=False)(i) for i in range(20)], sum, "x") == 190
    monkeypatch.setattr(_passes, "RETRIES", 0)
    with client.as_current(), pytest.raises(OSError, match="did not answer"):
        Passes().reduce([delayed(flaky, pure=False)(i) for i in range(20, 23)], sum, "x")


def test_an_interrupt_cancels_the_pass_everywhere(client, tmp_path):
    def interrupt(what, done, total):
        if done:
            raise KeyboardInterrupt

    def work(index):
        time.sleep(0.5)
        (tmp_path / str(index)).write_text("done")
        return 1

    with client.as_current(), pytest.raises(KeyboardInterrupt):
        Passes(interrupt).reduce([delayed(work, pure=False)(i) for i in range(40)], sum, "x")
    time.sleep(1.5)
    done = len(list(tmp_path.iterdir()))
    time.sleep(1.5)
    assert len(list(tmp_path.iterdir())) == done < 20
    assert client.submit(lambda: 3).result(timeout=20) == 3


def test_a_pass_that_kills_its_workers_ends_in_a_sentence(doomed):
    def greedy():
        os.kill(os.getpid(), signal.SIGKILL)

    with doomed.as_current(), pytest.raises(PoscodError, match="pass 'x' was lost with several workers in a row"):
        Passes().collect([delayed(greedy, pure=False)()], "x")


def test_an_error_of_a_worker_keeps_its_facts(client, case):
    X, _, U, model = case
    U = U.copy()
    U[430, 2] = np.inf
    with client.as_current(), pytest.raises(InvalidInputError, match="X_unlabeled must be finite") as found:
        backend.fit_ratio(model.ratio, lazily(X, 300), lazily(U, 400))
    assert found.value.facts["parameter"] == "X_unlabeled"


def test_progress_counts_the_parts_of_every_pass(client):
    shown = []
    parts = [delayed(abs)(-i) for i in range(40)]
    with client.as_current():
        assert Passes(lambda *state: shown.append(state)).reduce(parts, sum, "numbers") == 780
    assert shown == [("numbers", done, 40) for done in range(41)]
    assert client.status == "running"
    shown.clear()
    assert Passes(lambda *state: shown.append(state)).reduce(parts, sum, "numbers") == 780  # without a client
    assert shown == [("numbers", 0, 40), ("numbers", 40, 40)]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(monkeypatch):
    """Chunks are made when they are read, 1 MB each: of fifty of them no more is held at once than of five."""
    monkeypatch.setattr(_fit, "SAMPLE_ROWS", 1000)
    rng = np.random.default_rng(0)
    base, labels = rng.normal(size=(4000, 64)).astype(np.float32), rng.integers(0, 2, 4000)
    base[:, 0] += 2 * labels

    def made(n, shift):
        def make(block_info=None):
            return base + np.float32(shift * (block_info[None]["chunk-location"][0] + 1) / n)

        return da.map_blocks(make, chunks=((len(base),) * n, (64,)), dtype=np.float32, meta=base[:0])

    classifier = FrozenEstimator(LogisticRegression().fit(base, labels))
    model = POSCOD(classifier, CorrectedSigmoid("paper", ood_prior=0.3, max_iter=2), calibration=0.5, random_state=0)

    def peak(n):
        tracemalloc.start()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ClassMixWarning
            )  # rows that drift away from one class look like fewer of it
            fitted = backend.fit(model, made(n, 0.0), np.tile(labels, n), made(n, 1.0))
        high = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert fitted.rule_.rows == 1000
        return high

    few, many = peak(5), peak(50)
    rows = 2 * 50 * base.nbytes
    assert many - few < rows / 5  # labels and their split
