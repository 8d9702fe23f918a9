"""A stream that drifts: strangers arrive, and somebody is told.

A model decides; a monitor counts its decisions day by day and never sees an input. Strangers make up 5 % of the traffic for three weeks, then
a new source sends more and more of them. Shown: the share of strangers per day, estimated without labels, with its interval, and the day on which
the monitor raises its finding. The probability of a false alarm over its whole life is 5 %, however often it is looked at.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
from _picture import BLUE, GREY, RED, figure, folder_from_command_line, save
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.monitor import Monitor, Reference
from poscod.theory import GaussianWorld

DAYS, ROWS, LIMIT = 42, 600, 0.1
FIRST = date(2026, 3, 1)


def main(folder: Path) -> None:
    world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    X, y = world.sample_id(3000, random_state=0)
    traffic, _ = world.sample_mixture(3000, pi=0.2, random_state=1)
    model = POSCOD(LogisticRegression(), alpha=0.3, tpr_min=0.95, random_state=0).fit(X, y, X_unlabeled=traffic)
    fresh, _ = world.sample_mixture(3000, pi=0.2, random_state=2)
    reference = Reference.from_model(model, unlabeled=fresh, created=FIRST.isoformat())

    monitor = Monitor(reference, window="1d", ood_limit=LIMIT)
    truth = np.concatenate([np.full(21, 0.05), np.linspace(0.05, 0.4, DAYS - 21)])
    alarm = None
    for day, pi in enumerate(truth):
        rows, _ = world.sample_mixture(ROWS, pi, random_state=100 + day)
        when = FIRST + timedelta(days=day)
        monitor.update(model.decide(rows), at=when.isoformat())
        codes = [finding.code for finding in monitor.findings()]
        if alarm is None and "PSC001" in codes:
            alarm = day
            print(f"{when}: {monitor.findings()[0].sentence}")
    windows = monitor.windows()
    inside = np.mean([w.pi.low <= pi <= w.pi.high for w, pi in zip(windows, truth, strict=True)])
    crossed = int(np.argmax(truth > LIMIT))
    print(f"Strangers really exceed {LIMIT:.0%} from day {crossed}; the finding came on day {alarm}.")
    print(f"The 95 % interval of a day held the true share on {inside:.0%} of the days.")

    fig, ax = figure(width=8.0)
    days = np.arange(DAYS)
    middle = np.array([w.pi.estimate for w in windows])
    gaps = [middle - [w.pi.low for w in windows], [w.pi.high for w in windows] - middle]
    ax.errorbar(days, middle, yerr=gaps, fmt="o", ms=4, color=BLUE, capsize=2, label="estimated without labels, 95 %")
    ax.plot(days, truth, "--", color=RED, label="truth")
    ax.axhline(LIMIT, color=GREY, lw=1, label="limit")
    if alarm is not None:
        ax.axvline(alarm, color="black", lw=1)
        ax.annotate("finding PSC001", (alarm, 0.52), xytext=(-6, 0), textcoords="offset points", ha="right")
    ax.set_xlabel("day")
    ax.set_ylabel("share of strangers in the traffic")
    ax.set_ylim(0, 0.6)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
