"""Error without labels: intervals hold the share of wrong answers that labels would show, with OOD inputs in the traffic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from poscod.metrics import Interval
from poscod.monitor import Monitor
from test_monitor.test_alarms import decide, draw_reference, rng_of, rows, truth


def counted(reference, seed, pi, days=12, n=1000, **how):
    """Count days of traffic; return the monitor and the realised errors, of answers and of all rows."""
    rng, monitor, real = rng_of(seed), Monitor(reference), []
    for day in range(days):
        parts = rows(rng, n, pi, **how)
        wrong = (truth(rng, parts) != parts[0]) | parts[4]
        decisions = decide(parts, reference.cells.threshold)
        monitor.update(decisions, at=86400.0 * (20454 + day))
        real.append([wrong[decisions.accept].mean(), wrong.mean()])
    return monitor, np.array(real)


def inside(intervals, values):
    return np.mean([share.low <= value <= share.high for share, value in zip(intervals, values, strict=True)])


@pytest.mark.parametrize("pi", [0.0, 0.1, 0.4])
def test_errors_are_near_and_covered(pi):
    monitor, real = counted(draw_reference(rng_of(0)), 1, pi)
    windows = monitor.windows()
    for shares, values in (([w.error for w in windows], real[:, 0]), ([w.error_all for w in windows], real[:, 1])):
        assert abs(np.mean([share.estimate for share in shares]) - values.mean()) < 0.02
        assert inside(shares, values) >= 10 / 12
    assert np.mean([w.error.high - w.error.low for w in windows]) < 0.15


def test_harder_inputs_raise_the_error():
    reference = draw_reference(rng_of(0))
    (calm, _), (hard, real) = (counted(reference, 2, 0.05, harder=harder) for harder in (0.0, 0.5))
    rise = [np.mean([w.error.estimate for w in monitor.windows()]) for monitor in (calm, hard)]
    assert rise[1] > rise[0] + 0.01
    assert abs(rise[1] - real[:, 0].mean()) < 0.01


def test_without_knowledge_of_ood_inputs_the_error_has_no_upper_end():
    drawn = draw_reference(rng_of(0))
    nothing = {name: np.zeros_like(counts) for name, counts in drawn.mixed_counts.items()}
    blind = replace(drawn, mixed_counts=nothing, prior=Interval(0.0, 0.0, 0.0, 0.95), source="none")
    monitor, real = counted(blind, 3, 0.1)
    assert {w.error.high for w in monitor.windows()} == {1.0}
    assert inside([w.error for w in monitor.windows()], real[:, 0]) == 1.0


def test_labels_that_arrive_say_what_was_realised():
    reference, rng = draw_reference(rng_of(0)), rng_of(4)
    parts = rows(rng, 500, 0.2)
    y = np.where(parts[4], -1, truth(rng, parts))
    decisions = decide(parts, reference.cells.threshold)
    monitor = Monitor(reference).update(decisions, at="2026-02-01").update_labels(decisions, y, at="2026-02-01")
    (window,) = monitor.windows()
    assert window.error_labeled.estimate == pytest.approx(np.mean(y[decisions.accept] != parts[0][decisions.accept]))
    assert Monitor(reference).update(decisions, at="2026-02-01").windows()[0].error_labeled[1:3] == (0.0, 1.0)


@pytest.mark.slow
def test_coverage_over_references():
    """Realised errors of 40 references with 5 windows each, at 95 %: 0.92 is two standard errors below."""
    covered = []
    for seed in range(40):
        rng = rng_of(100 + seed)
        reference = draw_reference(rng, m=1500, n=600, pi=(1.0, 0.3)[seed % 2])
        monitor, real = counted(reference, 200 + seed, (0.0, 0.05, 0.2)[seed % 3], days=5, n=600)
        windows = monitor.windows()
        covered += [inside([w.error for w in windows], real[:, 0]), inside([w.error_all for w in windows], real[:, 1])]
    assert np.mean(covered) > 0.92
