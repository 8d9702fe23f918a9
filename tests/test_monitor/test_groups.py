"""Sessions in the monitor: one decision of each counts in a window, wherever a stream is cut."""

from __future__ import annotations

import numpy as np
import pytest

from poscod.decision import Decisions
from poscod.exceptions import InvalidInputError
from poscod.monitor._groups import Groups


def test_one_of_each_group_and_window_counts():
    window, session = np.repeat([0, 1], 6), np.array([1, 1, 1, 2, 2, 3, 1, 1, 4, 4, 4, 4])
    groups = Groups()
    first = groups.one_of_each(window, session, 400)
    assert sorted(zip(window[first], session[first], strict=True)) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 4)]
    assert len(groups.one_of_each(window, session, 400)) == 0  # the stream goes on
    assert groups.one_of_each(np.array([0, 2]), [3, 3], 400).tolist() == [1]
    assert len(groups.one_of_each(window, None, 400)) == 12
    assert len(groups.one_of_each(np.zeros(2, int), [None, float("nan")], 400)) == 2
    with pytest.raises(
        InvalidInputError, match=r"groups must hold one group for each of the 2 rows of decisions, got shape \(1,\)"
    ):
        groups.one_of_each(np.zeros(2, int), [1], 400)


def test_any_row_of_a_session_may_be_the_one():
    groups = Groups()
    first = np.concatenate([groups.one_of_each(np.full(5, k), np.ones(5), 400) for k in range(100)])
    assert np.bincount(first, minlength=5).min() > 5


def test_memory_is_bounded():
    groups = Groups()
    for k in range(50):
        groups.one_of_each(np.array([k]), [k], 7)
    assert len(groups._seen) == 7


def test_update_counts_sessions(world):
    model, monitor = world
    rows = model.decide(np.zeros((30, 2)))
    assert isinstance(rows, Decisions)
    monitor.update(rows, at="2026-01-05", groups=np.arange(30) // 3)
    assert monitor.windows()[0].n == 10
    monitor.update_labels(rows, np.zeros(30, int), at=["2026-01-05"] * 30, groups=np.arange(30) // 3)
    monitor.update(rows, at="2026-01-05")
    assert monitor.windows()[0].n == 40


@pytest.fixture
def world():
    from poscod import POSCOD
    from poscod.monitor import Monitor, Reference
    from poscod.ratio import CorrectedSigmoid
    from poscod.theory import GaussianWorld

    law = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    X, y = law.sample_id(600, random_state=0)
    ratio = CorrectedSigmoid(recipe="paper", l2=1e-4)
    model = POSCOD(ratio=ratio, random_state=0).fit(X, y, X_unlabeled=law.sample_mixture(600, 0.3, random_state=1)[0])
    reference = Reference.from_model(model, ood=law.sample_ood(300, random_state=2), created="2026-01-01")
    return model, Monitor(reference)
