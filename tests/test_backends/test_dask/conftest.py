"""Passes that run at once in this thread, a real cluster of two processes, and a hard limit of time."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import dask
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def at_once():
    """Compute in this thread, unless a test makes a client the current one."""
    with dask.config.set(scheduler="sync"):
        yield


@contextmanager
def started(n_workers):
    """A cluster of processes on 127.0.0.1."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            memory_limit="1GiB",
            silence_logs=50,  # a killed worker is announced at length
        ) as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.fixture(scope="session")
def client():
    with started(2) as found:
        yield found


@pytest.fixture
def doomed():
    """A cluster that gives up a task with its first worker, for a test that kills it."""
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), started(1) as found:
        yield found


@pytest.fixture
def time_limit():
    """Fail instead of waiting for ever where a cluster hangs."""

    def late(*_):
        raise TimeoutError("the cluster did not answer within 150 s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 150)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session")
def world():
    """Labeled rows of three unequal classes, traffic with OOD rows, and rows to train a classifier on."""

    def draw(n, pi=0.0, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
        X = rng.normal(2.0, 1.0, (n, 4)) + 2.0 * np.eye(3, 4)[y]
        ood = int(pi * n)
        X[:ood] = rng.normal([2.0, 2.5, 2.0, 4.0], 1.0, (ood, 4))
        order = rng.permutation(n)
        return X[order].astype(dtype), y[order]

    return draw
