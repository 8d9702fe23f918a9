"""The monitor: counts that add up to the last bit, states that survive, inputs that are wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poscod import POSCOD
from poscod.decision import Decisions
from poscod.exceptions import InvalidInputError
from poscod.monitor import FINDINGS, Monitor, Reference
from poscod.monitor._findings import SEQUENTIAL
from poscod.ratio import NoOODEvidenceWarning
from poscod.theory import GaussianWorld


def through_json(monitor):
    return Monitor.from_state(json.loads(json.dumps(monitor.state(), allow_nan=False)), monitor.reference)


@pytest.fixture(scope="module")
def traffic(model, world):
    """Four weeks of decisions with their days, in no order."""
    rng = np.random.default_rng(5)
    parts = [model.decide(world.sample_mixture(60, 0.05, random_state=day)[0]) for day in range(28)]
    joined = Decisions(*(np.concatenate([getattr(p, f) for p in parts]) for f in Decisions.__dataclass_fields__))
    at = np.datetime64("2026-01-01T00:00:00") + np.repeat(np.arange(28), 60) * np.timedelta64(1, "D")
    order = rng.permutation(len(joined))
    return joined[order], at[order]


@settings(max_examples=25)
@given(st.data())
def test_any_split_over_workers_in_any_order_gives_the_same_state(reference, traffic, data):
    decisions, at = traffic
    keep = data.draw(st.sampled_from([5, 400]))
    owner = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).integers(0, 4, len(decisions))
    whole = Monitor(reference, keep=keep, worker="a").update(decisions, at)
    workers = []
    for w in range(4):
        monitor = Monitor(reference, keep=keep, worker="abcd"[w])
        for batch in np.array_split(np.flatnonzero(owner == w), data.draw(st.integers(1, 3))):
            monitor.update(decisions[batch], at[batch])
            monitor = through_json(monitor)  # a restart between any two batches
        workers.append(monitor)
    a, b, c, d = data.draw(st.permutations(workers))
    left, right = a.merge(b).merge(c, d), d.merge(c.merge(b.merge(a)))
    assert json.dumps(left.state()) == json.dumps(right.state())
    assert {**left.state(), "workers": ["a"]} == whole.state()
    assert left.windows() == whole.windows()
    assert left.findings() == whole.findings()


def test_counts_are_those_of_a_loop(reference, traffic):
    decisions, at = traffic
    windows = Monitor(reference, window="1w").update(decisions, at).windows()
    week = (at - np.datetime64("1970-01-01")) // np.timedelta64(7, "D")
    assert [w.n for w in windows] == [int(np.sum(week == i)) for i in np.unique(week)]
    assert [w.accepted for w in windows] == [int(np.sum(decisions.accept[week == i])) for i in np.unique(week)]
    for window, i in zip(windows, np.unique(week), strict=True):
        for reason, n in window.reasons.items():
            assert n == int(np.sum(decisions.reason[week == i] == reason))


def test_memory_is_bounded_and_late_rows_are_still_counted(reference, traffic):
    decisions, at = traffic
    monitor = Monitor(reference, keep=7)
    for day in np.unique(at)[::-1]:  # the clock goes backwards
        monitor.update(decisions[at == day], at[at == day])
    assert [w.start[:10] for w in monitor.windows()] == [f"2026-01-{d}" for d in range(22, 29)]
    totals = monitor.summary()["totals"]
    assert (totals["decisions"], totals["dropped"], totals["kept"]) == (len(decisions), len(decisions) - 7 * 60, 7 * 60)
    assert totals["accepted"] == sum(w.accepted for w in monitor.windows())


def test_the_share_of_all_windows_is_that_of_one_wide_window(reference, traffic):
    decisions, at = traffic
    days, all_at_once = Monitor(reference).update(decisions, at), Monitor(reference, window=1e9)
    all_at_once.update(decisions, np.zeros(len(decisions)))
    (one,) = all_at_once.windows()
    assert len(days.windows()) > 5
    assert days.summary()["totals"]["pi"] == one.pi._asdict()
    assert days.summary()["totals"]["pi"]["low"] < np.mean([w.pi.estimate for w in days.windows()]) < one.pi.high
    assert Monitor(reference).summary()["totals"] == {
        "decisions": 0,
        "dropped": 0,
        "kept": 0,
        "accepted": 0,
        "pi": None,
        "error": None,
        "no_alarm": "No alarm, because nothing has been counted.",
    }


def test_an_empty_monitor_and_a_single_decision(reference, make_decisions):
    monitor = Monitor(reference)
    assert monitor.windows() == []
    assert not [f for f in monitor.findings() if f.code in SEQUENTIAL]
    monitor.update(make_decisions([]), at=[])
    assert monitor.windows() == []
    monitor.update(make_decisions([0.01]), at="2026-02-01")
    (window,) = monitor.windows()
    assert (window.n, window.accepted) == (1, 1)
    assert window.pi.low == 0.0
    assert window.pi.high > 0.5
    json.dumps(monitor.summary(), allow_nan=False)


def test_nan_is_counted_apart(reference, make_decisions):
    nan = float("nan")
    monitor = Monitor(reference).update(make_decisions([0.01, nan, 0.02], log_ratio=[-2.0, nan, nan]), at=0.0)
    (window,) = monitor.windows()
    assert (window.n, window.invalid) == (1, 2)
    (finding,) = [f for f in monitor.findings() if f.code == "PSC010"]
    assert finding.evidence == {"nan": 2, "unknown_class": 0}
    json.dumps(monitor.summary(), allow_nan=False)


def test_unknown_classes_are_counted_and_named(reference, make_decisions):
    monitor = Monitor(reference).update(make_decisions([0.01, 0.01, 0.01], label=np.array(["0", "1.0", "cat"])), at=0.0)
    (finding,) = [f for f in monitor.findings() if f.code == "PSC010"]
    assert finding.evidence == {"nan": 0, "unknown_class": 2}
    floats = Monitor(reference).update(make_decisions([0.01, 0.01], label=np.array([0.0, 1.0])), at=0.0)
    assert not [f for f in floats.findings() if f.code == "PSC010"]


def test_infinite_scores_have_a_cell(reference, make_decisions):
    inf = float("inf")
    monitor = Monitor(reference).update(make_decisions([0.01, inf], log_ratio=[-inf, inf]), at=0.0)
    assert monitor.windows()[0].n == 2


def test_huge_counts_stay_whole_numbers(reference, make_decisions):
    monitor = Monitor(reference, worker="a").update(make_decisions([0.01, 9.0]), at=0.0)
    state = monitor.state()
    big = 2**60
    for name, counts in state["windows"]["0"].items():
        if name in ("score", "ratio", "risk"):
            counts["rows"] = [c * big for c in counts["rows"]]
        elif name not in ("labeled", "loss"):
            state["windows"]["0"][name] = [c * big for c in counts]
    state["total"] = 2 * big
    read = Monitor.from_state(json.loads(json.dumps(state)), reference)
    assert read.windows()[0].n == 2 * big
    assert read.state()["windows"]["0"]["label"][0] == big
    assert 0.0 <= read.windows()[0].pi.low <= read.windows()[0].pi.high <= 1.0


def test_rows_are_numbered_where_windows_are(reference, make_decisions):
    monitor = Monitor(reference, window=4)
    for _ in range(3):
        monitor.update(make_decisions([0.01, 0.02, 0.03]))
    assert [(w.start, w.end, w.n) for w in monitor.windows()] == [(0.0, 4.0, 4), (4.0, 8.0, 4), (8.0, 12.0, 1)]


def test_now_is_the_default_moment(reference, make_decisions):
    (window,) = Monitor(reference, window="1w").update(make_decisions([0.01])).windows()
    assert window.start > "2026"


def test_merging_twice_or_across_references_is_refused(reference, model, make_decisions):
    a, b = (Monitor(reference, worker=w).update(make_decisions([0.01]), at=0.0) for w in "ab")
    with pytest.raises(InvalidInputError, match="'b' would be counted twice"):
        a.merge(b, through_json(b))
    with pytest.raises(InvalidInputError, match="same window"):
        a.merge(Monitor(reference, window="1h"))
    with pytest.raises(InvalidInputError, match="same ood_limit"):
        a.merge(Monitor(reference, ood_limit=0.2))
    other = Reference.from_model(model, created="2026-01-02")
    with pytest.raises(InvalidInputError, match="different references"):
        a.merge(Monitor(other))
    with pytest.raises(InvalidInputError, match="another reference"):
        Monitor.from_state(a.state(), other)


def test_merging_changes_nobody(reference, make_decisions):
    a, b = (Monitor(reference, worker=w).update(make_decisions([0.01]), at=0.0) for w in "ab")
    before = json.dumps([a.state(), b.state()])
    merged = a.merge(b)
    merged.update(make_decisions([0.01]), at=0.0)
    assert json.dumps([a.state(), b.state()]) == before
    assert merged.windows()[0].n == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.update(schema=2),
        lambda s: s.pop("window"),
        lambda s: s.update(total="many"),
        lambda s: s.update(windows=[]),
        lambda s: s["windows"]["0"].update(label=[1]),
        lambda s: s["windows"]["0"].update(label=[-1, 0, 1, 1]),
        lambda s: s["windows"]["0"].update(label=[0.5, 0, 1, 1]),
        lambda s: s["windows"]["0"].update(label=[2**70, 0, 1, 1]),
        lambda s: s["windows"]["0"].update(ratio=[1]),
        lambda s: s["windows"]["0"]["ratio"].update(cells=[10**6]),
        lambda s: s["windows"]["0"]["ratio"].update(cells=[-1]),
        lambda s: s["windows"]["0"]["ratio"].update(cells=[0, 0], rows=[1, 1]),
        lambda s: s["windows"]["0"]["ratio"].update(rows=[0.5]),
        lambda s: s["windows"]["0"]["ratio"].update(rows=[1, 1]),
        lambda s: s["windows"].update(x=s["windows"]["0"]),
        lambda s: s.update(ood_limit=7),
    ],
)
def test_damaged_states_are_refused_in_a_sentence(reference, make_decisions, damage):
    state = Monitor(reference).update(make_decisions([0.01]), at=0.0).state()
    damage(state)
    with pytest.raises(InvalidInputError):
        Monitor.from_state(state, reference)
    with pytest.raises(InvalidInputError):
        Monitor.from_state("state", reference)


def test_decisions_of_another_threshold_are_refused(reference, model, world):
    other = model.at(tpr_min=0.5).decide(world.sample_id(200, random_state=9)[0])
    with pytest.raises(InvalidInputError, match="reference's threshold"):
        Monitor(reference).update(other, at=0.0)


def test_a_rounded_threshold_is_not_another_one(reference, make_decisions):
    cut = reference.cells.threshold
    near = make_decisions([cut * (1 + 1e-9), 0.01])
    flipped = Decisions(near.label, np.array([True, True]), near.reason, near.risk, near.log_ratio, near.score)
    assert Monitor(reference).update(flipped, at=0.0).windows()[0].accepted == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": "1y"},
        {"ood_limit": 1.0},
        {"level": 1.0},
        {"false_alarm": 0.0},
        {"max_age": 0.0},
        {"keep": 0},
    ],
)
def test_wrong_parameters_are_refused(reference, wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Monitor(reference, **wrong)
    with pytest.raises(InvalidInputError, match="Reference"):
        Monitor("reference")


def test_codes_are_stable():
    assert list(FINDINGS) == [f"PSC{i:03d}" for i in range(1, len(FINDINGS) + 1)]
    assert len(FINDINGS) >= 11


def test_what_is_remembered_is_what_would_be_computed(reference, traffic):
    """Shares of windows that did not change are remembered; reading in between must not show."""
    decisions, at = traffic
    read, unread = Monitor(reference, keep=10, worker="a"), Monitor(reference, keep=10, worker="a")
    for batch in np.array_split(np.arange(len(decisions)), 6):
        for monitor in (read, unread):
            monitor.update(decisions[batch], at[batch])
        read.summary()
        read.update_labels(decisions[batch[:3]], decisions.label[batch[:3]], at[batch[:3]])
        unread.update_labels(decisions[batch[:3]], decisions.label[batch[:3]], at[batch[:3]])
    assert read.summary() == unread.summary()


def test_a_model_that_has_seen_no_ood_can_be_watched():
    """With a closed gate nothing is known of OOD rows: shares are bounds from below, and findings can be asked for."""
    world = GaussianWorld([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], [[4.0, 4.0]])
    X, y = world.sample_id(800, random_state=0)
    with pytest.warns(NoOODEvidenceWarning):
        model = POSCOD(random_state=0).fit(X, y, X_unlabeled=world.sample_mixture(400, 0.0, random_state=1)[0])
    monitor = Monitor(Reference.from_model(model, created="2026-01-01"))
    monitor.update(model.decide(world.sample_mixture(4000, 0.1, random_state=2)[0]), at="2026-01-02")
    window = monitor.windows()[0]
    assert 0.0 <= window.pi.low <= window.pi.high == 1.0
    assert all(np.isfinite(window.mix.low))
    assert all(np.isfinite(window.mix.high))
    assert isinstance(monitor.findings(), list)
