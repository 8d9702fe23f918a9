"""A real cluster of two processes on 127.0.0.1: who starts and closes it, what is shown, and what a killed worker does."""

from __future__ import annotations

import os
import signal
import time

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.backends import dask as backend
from poscod.exceptions import InvalidInputError
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
        if self.killed is None and what == self.what and self.seen > self.after and done < total:
            self.killed = self.client.run(os.getpid, nanny=False)
            os.kill(min(self.killed.values()), signal.SIGKILL)


def open_ports(pid):
    """Return the only address on which a process listens, or all of them where it is not one."""
    import psutil

    found = {c.laddr.ip for c in psutil.Process(pid).net_connections("inet") if c.status == "LISTEN"}
    return found.pop() if len(found) == 1 else str(sorted(found))


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
        POSCOD(classifier, CorrectedSigmoid("paper", ood_prior=0.3, max_iter=5), tpr_min=0.9, random_state=7),
    )


def test_a_worker_killed_while_fitting_changes_nothing(client, case):
    X, y, U, model = case
    killer = Killer(client, "likelihood", after=1)
    with backend.Cluster(client, progress=killer) as cluster:
        found = backend.fit(model, lazily(X, 300), y, lazily(U, 100), cluster=cluster, keep_rows=50)
    assert killer.killed is not None
    assert min(killer.killed.values()) not in client.run(os.getpid, nanny=False).values()
    expected = model.fit(X, y, X_unlabeled=U)
    np.testing.assert_allclose(found.ratio_.model_.theta, expected.ratio_.model_.theta, rtol=1e-8)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-8)
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-8)


def test_a_worker_killed_while_deciding_loses_and_doubles_no_row(client, case, tmp_path):
    X, y, U, model = case
    model = model.fit(X, y, X_unlabeled=U)
    killer = Killer(client, "decisions")
    with backend.Cluster(client, progress=killer) as cluster:
        assert backend.write_decisions(model, lazily(U, 50), tmp_path / "out", cluster=cluster) == len(U)
    assert killer.killed is not None
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) == 16
    found = pd.concat([pd.read_parquet(file) for file in files])
    pd.testing.assert_frame_equal(found, model.decide(U).to_pandas(), rtol=1e-9, check_index_type=False)


def test_a_worker_killed_while_evaluating_changes_nothing(client, case):
    X, y, U, model = case
    model = model.fit(X, y, X_unlabeled=U)
    killer = Killer(client, "counts")
    with backend.Cluster(client, progress=killer) as cluster:
        found = backend.evaluate(model, lazily(X, 50), y, lazily(U, 100), cluster=cluster)
    assert killer.killed is not None
    assert found == model.evaluate(X, y, U)


def test_a_task_that_fails_now_and_then_is_tried_again(client, tmp_path):
    def flaky(index):
        mark = tmp_path / str(index)
        if not mark.exists():
            mark.write_text("seen")
            raise OSError("the store did not answer")
        return index

    with backend.Cluster(client, retries=1) as cluster:
        assert cluster.reduce([delayed(flaky, pure=False)(i) for i in range(20)], sum, "x") == 190
    with backend.Cluster(client, retries=0) as cluster, pytest.raises(OSError, match="did not answer"):
        cluster.reduce([delayed(flaky, pure=False)(i) for i in range(20, 23)], sum, "x")


def test_an_interrupt_cancels_the_pass_everywhere(client, tmp_path):
    def interrupt(what, done, total):
        raise KeyboardInterrupt

    def work(index):
        time.sleep(0.5)
        (tmp_path / str(index)).write_text("done")
        return 1

    with backend.Cluster(client, progress=interrupt) as cluster, pytest.raises(KeyboardInterrupt):
        cluster.reduce([delayed(work, pure=False)(i) for i in range(40)], sum, "x")
    time.sleep(1.5)
    done = len(list(tmp_path.iterdir()))
    time.sleep(1.5)
    assert len(list(tmp_path.iterdir())) == done < 20
    assert client.submit(lambda: 3).result(timeout=20) == 3


def test_a_local_cluster_is_started_and_closed(case, capsys):
    X, _, U, _ = case
    shown = []
    with backend.Cluster(n_workers=1, progress=lambda *state: shown.append(state)) as cluster:
        inside = cluster.client
        assert {open_ports(pid) for pid in [os.getpid(), *inside.run(os.getpid).values()]} == {"127.0.0.1"}
        address = inside.scheduler_info()["address"]
        assert address.startswith("tcp://127.0.0.1:")
        found = backend.auroc(da.from_array(X[:, 3], chunks=100), da.from_array(U[:, 3], chunks=300), cluster=cluster)
        with backend.Cluster(address=address) as second:  # the way to a scheduler that runs elsewhere
            assert second.collect([delayed(abs)(-2)], "x") == [2]
    assert inside.status == "closed"
    assert 0.5 < found.value < 1.0
    assert shown[-1] == ("scores", 9, 9)
    with pytest.raises(backend.ClusterError, match=f"No Dask scheduler answers at {address}"):
        backend.Cluster(address=address).__enter__()
    assert capsys.readouterr() == ("", "")


def test_a_client_that_is_there_is_used_and_left_open(client, capsys):
    with client.as_current(), backend.Cluster(progress=True) as cluster:
        assert cluster.client is client
        assert cluster.reduce([delayed(abs)(-i) for i in range(40)], sum, "numbers") == 780
    assert client.status == "running"
    assert "pass 1, numbers" in capsys.readouterr().err


def test_bad_options_are_refused_in_a_sentence(client):
    with pytest.raises(InvalidInputError, match="n_workers sizes a local cluster and client names a running one"):
        backend.Cluster(client, n_workers=2)
    with pytest.raises(InvalidInputError, match="retries"):
        backend.Cluster(retries=-1)
    with pytest.raises(InvalidInputError, match="n_workers"):
        backend.Cluster(n_workers=0)
