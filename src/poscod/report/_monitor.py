# SPDX-License-Identifier: BSD-3-Clause
"""What a monitor's page says and draws.

Convention: the input is ``Monitor.summary()``, a plain dictionary, possibly read back from JSON; nothing is computed here but where
things go in a picture. Pictures are in percent.
"""

from __future__ import annotations

import datetime
from typing import Any

from poscod.report._charts import add, dot, frame, series
from poscod.report._format import interval, percent
from poscod.report._strangers import strangers_page

WIDTH = 960
CLASSES = 12
"""Classes of the table of the class mix, at most."""
KEYS = {"reference", "parameters", "totals", "windows", "findings"}
"""Keys of a monitor's summary, beside which there may be what the strangers of a log are."""


def words(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the sentences on top of the page."""
    windows = [w for w in summary["windows"] if w["n"]]
    short = ["No decisions have been counted yet."]
    if windows:
        last, total = windows[-1], summary["totals"]
        short = [
            f"Over all {len(windows):,} windows {_share(total['pi'], total['kept'])} on average and "
            f"{percent(total['accepted'] / total['kept'])} were accepted."
        ]
        if len(windows) > 1:
            short.append(
                f"In the last window, from {moment(last['start'])}, {_share(last['pi'], last['n'])} and "
                f"{percent(last['accepted'] / last['n'])} were accepted."
            )
    told = [f for f in summary["findings"] if f["severity"] == "error" or not f["active"]]  # the worst first
    short += [finding["sentence"] for finding in told[:1]]
    short += [summary["totals"]["no_alarm"]] if summary["totals"]["no_alarm"] else []
    page = {"title": "What the monitor saw", "short": short, "moment": moment, "windows": summary["windows"]}
    return {**page, "mix": class_rows(summary), **strangers_page(summary.get("strangers"))}


def class_rows(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the classes whose shares moved most: what is served, the last window that knows, and the range over all windows."""
    rows = []
    mixes = [w["mix"] for w in summary["windows"]]
    for k, served in enumerate(summary["reference"]["mix"]["classes"]):
        known = [{end: mix[end][k] for end in ("estimate", "low", "high")} for mix in mixes]
        known = [share for share in known if share["estimate"] is not None]
        if known:
            shares = [share["estimate"] for share in known]
            ends = {"lowest": min(shares), "highest": max(shares)}
            rows.append({"class": served["class"], "served": served["traffic"], "now": known[-1], **ends})
    return sorted(rows, key=lambda row: -abs(row["now"]["estimate"] - row["served"]))[:CLASSES]


def pictures(summary: dict[str, Any]) -> dict[str, Any]:
    """Return OOD share and share accepted over time; None without windows that hold rows."""
    windows = [w for w in summary["windows"] if w["n"]]
    if not windows:
        return {"charts": None}
    limit, tpr = summary["parameters"]["ood_limit"], summary["reference"]["tpr"]["estimate"]
    shares = [w["pi"] for w in windows]
    highs = sorted(share["high"] for share in shares)
    # Nearly all of the band; one window of a few rows must not flatten everything.
    estimates = [share["estimate"] for share in shares if share["estimate"] is not None]
    top = min(1.0, 1.1 * max(highs[int(0.95 * (len(highs) - 1))], *estimates, 1.5 * limit, 0.01))
    pi = _frame(windows, 0.0, top, "OOD share")
    _series(pi, windows, shares, "share", "OOD share with its interval")
    _level(pi, limit, "limit", f"limit {percent(limit)}")
    rates = [w["accepted"] / w["n"] for w in windows]
    accepted = _frame(windows, max(0.0, min([*rates, tpr]) - 0.05), 1.0, "share accepted")
    _series(accepted, windows, [{"estimate": rate} for rate in rates], "id", "share accepted")
    _level(accepted, tpr, "honest", f"TPR of the reference, {percent(tpr)}: no OOD at all")
    return {"charts": {"pi": pi, "error": _errors(windows), "accepted": accepted}}


def _errors(windows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return wrong answers over time: estimated, and where labels are there, realised."""
    highs = sorted(w["error"]["high"] for w in windows)
    seen = [
        w[name]["estimate"] for w in windows for name in ("error", "error_labeled") if w[name]["estimate"] is not None
    ]
    chart = _frame(windows, 0.0, min(1.0, 1.1 * max(highs[len(highs) // 2], *seen, 0.01)), "wrong answers")
    _series(
        chart,
        windows,
        [w["error"] for w in windows],
        "share",
        "wrong answers, estimated without labels, with their interval",
    )
    if any(w["error_labeled"]["estimate"] is not None for w in windows):
        told = [{"estimate": w["error_labeled"]["estimate"]} for w in windows]
        _series(chart, windows, told, "id", "wrong answers by labels")
    return chart


def _share(share: dict[str, Any], n: int) -> str:
    """Return how many of n inputs were OOD, for people."""
    if share["estimate"] is None:
        return f"an unknown share of {n:,} inputs were OOD"
    return f"{percent(share['estimate'])} ({interval(share)}) of {n:,} inputs were OOD"


def moment(start: str | float) -> str:
    """Return the beginning of a window as people read it.

    Examples
    --------
    >>> moment("2026-01-31T00:00:00Z"), moment("2026-01-31T13:15:00Z"), moment(400.0)
    ('2026-01-31', '2026-01-31 13:15', '400')
    """
    if not isinstance(start, str):
        return f"{start:g}" if abs(start) < 1e6 else f"{start:.0f}"
    day, clock = start.removesuffix("Z").split("T")
    return day if clock == "00:00:00" else f"{day} {clock.removesuffix(':00')}"


def _frame(windows: list[dict[str, Any]], low: float, high: float, label: str) -> dict[str, Any]:
    """Return an empty chart over time, with the beginnings of some windows below it."""
    ends = _number(windows[0]["start"]), _number(windows[-1]["start"])
    chart = frame(ends, (100.0 * low, 100.0 * high), ("beginning of the window", f"{label}, %"), WIDTH)
    across = chart["axes"][0]
    few = windows[:: max(1, -(-len(windows) // 7))]
    ticks: list[dict[str, Any]] = [{"at": across(_number(w["start"])), "label": moment(w["start"])} for w in few]
    chart["x"]["ticks"] = [tick for tick in ticks if tick["at"] < WIDTH - 50]
    return chart


def _series(chart: dict[str, Any], windows: list[dict[str, Any]], values: list[Any], name: str, label: str) -> None:
    """Draw values window by window, with a gap where windows are missing, and dots where they are few."""
    points: list[dict[str, Any] | None] = []
    for i, (window, value) in enumerate(zip(windows, values, strict=True)):
        if i and _number(window["start"]) > _number(windows[i - 1]["end"]):
            points.append(None)
        shares = {key: None if share is None else 100.0 * share for key, share in value.items()}
        points.append({"x": _number(window["start"]), **shares})
    series(chart, name, points, label)
    if len(windows) <= 60:
        across, up = chart["axes"]
        shown = [p for p in points if p and p["estimate"] is not None]
        add(chart, "marks", f"{name} accepted", "".join(dot(across(p["x"]), up(p["estimate"])) for p in shown))


def _level(chart: dict[str, Any], value: float, name: str, label: str) -> None:
    """Draw a line across the chart."""
    box, (_, up) = chart["box"], chart["axes"]
    add(chart, "lines", name, f"M{box['left']} {up(100.0 * value)}H{box['right']}", label)


def _number(start: str | float) -> float:
    if isinstance(start, str):
        return datetime.datetime.fromisoformat(start.replace("Z", "+00:00")).timestamp()
    return float(start)
