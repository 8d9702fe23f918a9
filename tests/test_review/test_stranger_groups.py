"""Groups among strangers: as many as there are, sizes that hold, and what sets them apart."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from poscod import POSCOD, Activations
from poscod.exceptions import InvalidInputError
from poscod.review import stranger_groups
from poscod.theory import GaussianWorld


@pytest.fixture(scope="module")
def groups(case, crossed):
    times = np.datetime64("2026-03-01") + np.arange(300)
    return stranger_groups(crossed, case.own, times=times)


def test_two_kinds_are_two_groups_with_true_sizes(case, groups):
    assert len(groups) == 2
    assert groups[0].size.estimate >= groups[1].size.estimate
    assert len(np.intersect1d(groups[0].index, groups[1].index)) == 0
    for group in groups:
        true = case.own_ood[group.index].sum()
        assert group.size.low <= true <= group.size.high == len(group)
        assert abs(group.size.estimate - true) <= 0.15 * len(group)
        name, shift = group.apart[0]
        assert name == "column 1"
        assert shift == pytest.approx(np.sign(case.own[group.index[0], 1]) * 6.0, abs=1.0)
        assert not case.own_ood[group.nearest].any()
        assert group.first == np.datetime64("2026-03-01") + group.index.min()
        assert group.last == np.datetime64("2026-03-01") + group.index.max()
    signs = {bool((case.own[group.index, 1] > 0).all()) for group in groups}
    assert signs == {True, False}


def test_how_often_a_group_comes(case, crossed, groups):
    """A rate over the time of the log, in the longest period that it fills; none where times are no dates, or too near."""
    assert groups[0].period == "week"
    assert groups[0].rate.estimate == pytest.approx(groups[0].size.estimate / (299 / 7))
    assert groups[0].rate.low == pytest.approx(groups[0].size.low / (299 / 7))
    assert f"{groups[0].rate.estimate:.1f} a week: set apart" in groups[0].sentence()
    start = pd.Timestamp("2026-03-01T00:00:00Z")
    for unit, period in (("min", "hour"), ("s", None)):
        moments = [start + pd.Timedelta(i, unit) for i in range(300)]
        for times in (moments, [moment.isoformat() for moment in moments]):
            found = stranger_groups(crossed, case.own, times=times)[0]
            assert found.period == period
            assert (found.rate is None) == (period is None)
    assert found.first is not None
    for times in (np.arange(300), [f"row {i:03d}" for i in range(300)]):
        found = stranger_groups(crossed, case.own, times=times)[0]
        assert (found.rate, found.period) == (None, None)
        assert found.first == times[min(found.index)]


def test_typical_rows_come_first(case, groups):
    for group in groups:
        middle = case.own[group.index].mean(axis=0)
        distance = np.linalg.norm(case.own[group.index] - middle, axis=1)
        assert distance[:5].mean() < distance[-5:].mean()


def test_a_group_speaks_plainly(groups):
    text = groups[0].sentence()
    assert text.startswith(f"about {round(groups[0].size.estimate)} strangers (")
    assert "set apart by column 1 (" in text
    assert "from 2026-03-" in text
    document = json.loads(json.dumps(groups[0].to_dict()))
    assert document["sentence"] == text
    assert document["apart"][0]["column"] == "column 1"
    assert repr(groups[0]) == f"StrangerGroup({text})"


def test_one_kind_is_one_group_and_none_is_none():
    world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 6.0]])
    X, y = world.sample_id(300, random_state=0)
    log, is_ood = world.sample_mixture(300, pi=0.25, random_state=1)
    model = POSCOD(random_state=0).fit(X, y, X_unlabeled=log)
    found = stranger_groups(model, log)
    assert is_ood[found[0].index].sum() >= 0.9 * is_ood.sum()
    # A second group may hold known inputs that look strange, and its size says so.
    assert len(found) == 1 or found[1].size.low == 0.0
    assert stranger_groups(model, world.sample_id(200, random_state=5)[0]) == []


def test_columns_have_names_and_layers_have_none(case):
    """Columns of a data frame are named; those of a network's layer mean nothing and are not."""
    frame = [pd.DataFrame(rows, columns=["height", "width", "depth"]) for rows in (case.X, case.own)]
    model = POSCOD(random_state=0).fit(frame[0], case.y, X_unlabeled=frame[1])
    found = stranger_groups(model, frame[1])
    assert {group.apart[0][0] for group in found} == {"width"}
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(3, 8))

    def layer(rows, labels=None):
        return Activations(rows @ turn + 5.0, np.stack([-rows[:, 0], rows[:, 0] - 3.0], axis=1), labels)

    network = POSCOD(random_state=0).fit(layer(case.X, case.y), case.y, X_unlabeled=layer(case.own))
    found = stranger_groups(network, layer(case.own))
    assert found
    assert all(group.apart == () and group.answer in (0, 1) and len(group.nearest) == 3 for group in found)


def test_a_column_that_known_inputs_share_is_named_with_a_finite_shift(case):
    """Known inputs have 0 in the last column, one kind of stranger has 1: that sets it apart, by no astronomical number."""
    flag = (case.own_ood & (case.own[:, 1] > 0)).astype(float)
    X, log = np.column_stack([case.X, np.zeros(len(case.X))]), np.column_stack([case.own, flag])
    found = stranger_groups(POSCOD(random_state=0).fit(X, case.y, X_unlabeled=log), log)
    shifts = [dict(group.apart).get("column 3", 0.0) for group in found]
    assert 5.0 < max(shifts) < 50.0


def test_refusals(case, crossed):
    with pytest.raises(InvalidInputError, match=r"times must have as many rows as X \(300\), got 2"):
        stranger_groups(crossed, case.new, times=[1, 2])
    with pytest.raises(InvalidInputError, match="most must be a whole number >= 1, got 0"):
        stranger_groups(crossed, case.new, most=0)
