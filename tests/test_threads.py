"""Threads of other libraries: one where work is small, and as many as before afterwards."""

import threading

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from threadpoolctl import threadpool_info, threadpool_limits

from poscod import POSCOD
from poscod._threads import SERIAL_NUMBERS, few_threads, one_thread


def in_use(kind):
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == kind}


@pytest.fixture(autouse=True)
def three():
    """Three threads, whatever the machine has."""
    with threadpool_limits(3):
        yield


def test_small_work_gets_one_thread_and_large_work_all():
    with few_threads(SERIAL_NUMBERS["openmp"]):
        assert in_use("blas") == in_use("openmp") == {1}
        assert _openmp_effective_n_threads() == 1
    with few_threads(SERIAL_NUMBERS["openmp"] + 1):
        assert (in_use("blas"), in_use("openmp")) == ({1}, {3})
    with few_threads(SERIAL_NUMBERS["blas"] + 1):
        assert in_use("blas") == in_use("openmp") == {3}
    assert in_use("blas") == in_use("openmp") == {3}


def test_threads_that_overlap_leave_nothing_changed():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with one_thread("blas"):
            entered.set()
            leave.wait(10)

    beside = threading.Thread(target=other)
    with one_thread("blas"):
        beside.start()
        assert entered.wait(10)
    leave.set()
    beside.join()
    assert in_use("blas") == {3}
    with pytest.raises(ZeroDivisionError), one_thread("blas"):
        1 / 0  # noqa: B018
    assert in_use("blas") == {3}


class Watching(ClassifierMixin, BaseEstimator):
    """A classifier that notes how many threads it was given."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.fitted_with_ = in_use("blas") | in_use("openmp")
        return self

    def predict_proba(self, X):
        self.asked_with_ = in_use("blas") | in_use("openmp")
        up = 1 / (1 + np.exp(-2 * np.asarray(X)[:, 0]))
        return np.column_stack([1 - up, up])


def test_a_fit_and_a_decision_use_one_thread(rng):
    X = rng.normal(size=(60, 2))
    with pytest.warns(UserWarning, match="No unlabeled rows"):
        model = POSCOD(Watching(), calibration=0.5, random_state=0).fit(
            X, (X[:, 0] + rng.normal(size=60) > 0).astype(int)
        )
    classifier = model.classifier_
    assert classifier.fitted_with_ == {1}
    classifier.asked_with_ = None
    model.decide(X)
    assert classifier.asked_with_ == {1}
    assert in_use("blas") == in_use("openmp") == {3}
