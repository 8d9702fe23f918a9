"""Alarms against the stream's own past: a rise is found without OOD rows, and calm streams, whatever their class mix, raise none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from poscod.metrics import Interval
from poscod.monitor import Monitor
from poscod.monitor._past import rise
from test_monitor.test_alarms import CALM, decide, draw_reference, rng_of, rows, watched


@pytest.fixture(scope="module")
def blind():
    """A reference that knows nothing of OOD inputs."""
    drawn = draw_reference(rng_of(0))
    nothing = {name: np.zeros_like(counts) for name, counts in drawn.mixed_counts.items()}
    return replace(drawn, mixed_counts=nothing, prior=Interval(0.0, 0.0, 0.0, 0.95), source="none")


def alarms(monitor):
    return {f.code: f for f in monitor.findings() if f.code in ("PSC014", "PSC015", "PSC016")}


def test_a_rise_below_the_limit_is_found_without_ood_rows(blind):
    monitor = watched(blind, [*CALM, *[{"pi": 0.09}] * 6], n=1000)
    found = {finding.code: finding for finding in monitor.findings()}
    assert "PSC001" not in found  # the limit is 10 %
    assert "PSC015" not in found  # PSC014 explains it
    evidence = found["PSC014"].evidence
    assert "2026-01-15" <= evidence["since"][:10] <= "2026-01-17"
    assert "2026-01-16" <= evidence["first_alarm"][:10] <= "2026-01-20"
    assert evidence["pi_before"]["estimate"] < 0.06 < evidence["pi"]["estimate"]
    assert evidence["accepted"] / evidence["decisions"] < evidence["accepted_before"] / evidence["decisions_before"]
    assert "OOD than before" in found["PSC014"].sentence
    assert found["PSC014"].severity == "error"  # nothing says that the limit is kept


def test_a_rise_that_stays_below_the_limit_is_a_warning():
    monitor = watched(draw_reference(rng_of(0)), [*CALM, *[{"pi": 0.09}] * 6], n=1000)
    monitor.ood_limit = 0.3
    assert [(f.code, f.severity) for f in monitor.findings()] == [("PSC014", "warning")]


def test_a_fall_of_ood_inputs_is_no_alarm(blind):
    assert alarms(watched(blind, [*[{"pi": 0.2}] * 10, *[{"pi": 0.02}] * 10])) == {}


def test_a_rise_that_has_passed_is_past(blind):
    found = alarms(watched(blind, [*CALM, *[{"pi": 0.3}] * 3, *CALM, *CALM]))["PSC014"]
    assert (found.active, found.severity) == (False, "info")
    assert "no longer" in found.sentence


def test_fewer_accepted_for_another_reason_is_a_fact_of_its_own(blind):
    """A class that is rejected more often becomes frequent: nothing is said of OOD inputs."""

    def day(rng, classes):
        label, risk, log_ratio, _, ood = rows(rng, 1500, 0.02, classes=classes)
        risk = np.where(label == 2, np.minimum(3.0 * risk, 0.99), risk)
        return label, risk, log_ratio, risk + 1.2 * np.exp(np.minimum(log_ratio, 50.0)), ood

    def draw(rng, n, pi):
        return day(rng, (0.6, 0.3, 0.1)) if n == 1500 else rows(rng, n, pi)

    reference, rng = draw_reference(rng_of(2), m=1500, n=0, pi=0.0, draw=draw), rng_of(3)
    monitor = Monitor(reference)
    for i in range(24):
        mix = (0.6, 0.3, 0.1) if i < 14 else (0.2, 0.2, 0.6)
        monitor.update(decide(day(rng, mix), reference.cells.threshold), at=86400.0 * (20454 + i))
    found = alarms(monitor)
    assert set(found) == {"PSC015"}
    assert "fewer inputs are accepted than before" in found["PSC015"].sentence


def test_late_labels_show_answers_that_got_worse(blind):
    rng, monitor = rng_of(4), Monitor(blind)
    for day in range(20):
        parts = rows(rng, 400, 0.0)
        wrong = rng.random(400) < (0.02 if day < 14 else 0.12)
        y = np.where(wrong, (parts[0] + 1) % 3, parts[0])
        monitor.update_labels(decide(parts, blind.cells.threshold), y, at=86400.0 * (20454 + day))
    found = alarms(monitor)["PSC016"]
    assert found.severity == "error"
    assert found.evidence["loss_before"] < 0.04 < 0.09 < found.evidence["loss"]


def test_one_window_has_no_past(blind):
    assert alarms(watched(blind, [{"pi": 0.5}])) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("p", "n"), [(0.02, 50), (0.1, 300), (0.5, 1000)])
def test_a_constant_mean_rises_seldom(p, n):
    """Bounds and capital fail with probability at most 0.1 each; the count is far below, and a small step makes it fail."""
    rng, runs, days = rng_of(7), 400, 60

    def alarmed(shares):
        k = rng.binomial(n, shares)
        found = rise(np.column_stack([n - k, k]), np.array([0.0, 1.0]), range(days), delta=0.1)
        return found.capital.max() >= -math.log(0.1)

    assert np.mean([alarmed(np.full(days, p)) for _ in range(runs)]) <= 0.2
    step = np.repeat([p, min(1.0, p + 6.0 * math.sqrt(p * (1 - p) / n) + 0.1)], days // 2)
    assert np.mean([alarmed(step) for _ in range(20)]) > 0.9


def test_calm_is_claimed_only_where_the_limit_is_surely_kept(blind):
    drawn = draw_reference(rng_of(0))
    few, many = (watched(drawn, [{"pi": 0.02}] * 3, n=n).summary()["totals"]["no_alarm"] for n in (30, 2000))
    assert few.startswith("No alarm, which is no proof: up to ")
    assert many.startswith("No alarm: at most ")
    assert watched(blind, CALM).summary()["totals"]["no_alarm"].startswith("No alarm, which is no proof: up to 100 %")
    assert watched(drawn, [{"pi": 0.5}] * 3).summary()["totals"]["no_alarm"] is None
