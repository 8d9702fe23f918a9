# SPDX-License-Identifier: BSD-3-Clause
"""A monitor's windows and findings as a page, as Markdown and as JSON.

Convention: the input is ``Monitor.summary()``, a plain dictionary, possibly read back from JSON; nothing is computed here but where
things go in a picture. The page is one file without a script or an address in it.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poscod._files import replacing
from poscod._validation import check_choice
from poscod.exceptions import InvalidInputError
from poscod.report._charts import HEIGHT, Axis, path
from poscod.report._format import fixed
from poscod.report._render import _file, _hash, _template

WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 46
_KEYS = {"reference", "parameters", "totals", "windows", "findings"}
BADGES: dict[str, str] = {"error": "missed", "warning": "open", "info": "soft"}
"""Severity to the class of its badge."""


def render_monitor_html(summary: dict[str, Any], *, title: str = "What the monitor saw") -> str:
    """Return windows and findings of a monitor as one self-contained HTML page.

    Parameters
    ----------
    summary : dict
        Of `poscod.monitor.Monitor.summary`.
    title : str, default="What the monitor saw"

    Returns
    -------
    html : str
    """
    style = _file("report.css") + _file("monitor.css")
    text: str = _template("monitor.html.j2", html=True).render(
        style=style, style_hash=_hash(style), badges=BADGES, charts=monitor_charts(summary), **_words(summary, title)
    )
    return text


def render_monitor_markdown(summary: dict[str, Any], *, title: str = "What the monitor saw") -> str:
    """Return windows and findings of a monitor as Markdown.

    Parameters
    ----------
    summary : dict
        Of `poscod.monitor.Monitor.summary`.
    title : str, default="What the monitor saw"

    Returns
    -------
    markdown : str
    """
    text: str = _template("monitor.md.j2", html=False).render(**_words(summary, title))
    return text


def render_monitor_json(summary: dict[str, Any], *, title: str = "") -> str:
    """Return the summary itself as JSON."""
    _check(summary)
    return json.dumps(summary, indent=1, allow_nan=False) + "\n"


MONITOR_FORMATS: dict[str, Callable[..., str]] = {
    ".html": render_monitor_html,
    ".md": render_monitor_markdown,
    ".json": render_monitor_json,
}
"""Extension -> how a monitor's summary becomes text."""


def write_monitor(
    summary: dict[str, Any], target: str | os.PathLike[str], *, title: str = "What the monitor saw"
) -> None:
    """Write a monitor's report; either the whole file appears or nothing changes.

    Parameters
    ----------
    summary : dict
        Of `poscod.monitor.Monitor.summary`.
    target : str or path-like
        Ends in .html, .md or .json.
    title : str, default="What the monitor saw"
    """
    place = Path(target)
    text = check_choice(place.suffix.lower(), "The extension of a report", MONITOR_FORMATS)(summary, title=title)
    with replacing(place) as file:
        file.write(text.encode("utf-8"))


def monitor_charts(summary: dict[str, Any]) -> dict[str, Any] | None:
    """Return OOD share and share accepted over time; None without windows that hold rows."""
    windows = [w for w in summary["windows"] if w["n"]]
    if not windows:
        return None
    limit, tpr = summary["parameters"]["ood_limit"], summary["reference"]["tpr"]["estimate"]
    highs = sorted(w["pi"]["high"] for w in windows)
    # Nearly all of the band; one window of a few rows must not flatten everything.
    estimates = [w["pi"]["estimate"] for w in windows if w["pi"]["estimate"] is not None]
    top = min(1.0, 1.1 * max(highs[int(0.95 * (len(highs) - 1))], *estimates, 1.5 * limit, 0.01))
    share = _frame(windows, 0.0, top, "OOD share")
    _series(share, windows, [(w["pi"]["low"], w["pi"]["estimate"], w["pi"]["high"]) for w in windows], "share")
    _level(share, limit, "limit")
    share["legend"] = [
        {"class": "share", "kind": "line", "label": "OOD share with its interval"},
        {"class": "limit", "kind": "line", "label": f"limit {fixed(100 * limit, 1)} %"},
    ]
    rates = [w["accepted"] / w["n"] for w in windows]
    accepted = _frame(windows, max(0.0, min([*rates, tpr]) - 0.05), 1.0, "share accepted")
    _series(accepted, windows, [(None, rate, None) for rate in rates], "id")
    _level(accepted, tpr, "honest")
    accepted["legend"] = [
        {"class": "id", "kind": "line", "label": "share accepted"},
        {"class": "honest", "kind": "line", "label": f"TPR of the reference, {fixed(100 * tpr, 1)} %: no OOD at all"},
    ]
    return {"pi": share, "accepted": accepted}


def _check(summary: Any) -> None:
    if not isinstance(summary, dict) or set(summary) != _KEYS:
        raise InvalidInputError("summary must be a dictionary made by Monitor.summary(), got something else.")


def _words(summary: dict[str, Any], title: str) -> dict[str, Any]:
    _check(summary)
    windows = [w for w in summary["windows"] if w["n"]]
    worst = [f for f in summary["findings"] if f["severity"] == "error"]
    if not windows:
        short = ["No decisions have been counted yet."]
    else:
        last, total = windows[-1], summary["totals"]
        short = [
            f"Over all {len(windows):,} windows {_share(total['pi'], total['kept'])} on average and "
            f"{fixed(100 * total['accepted'] / total['kept'], 1)} % were accepted."
        ]
        if len(windows) > 1:
            short.append(
                f"In the last window, from {moment(last['start'])}, {_share(last['pi'], last['n'])} and "
                f"{fixed(100 * last['accepted'] / last['n'], 1)} % were accepted."
            )
    past = [f for f in summary["findings"] if not f["active"]]
    calm = "No alarm: nothing shows that the rule has stopped doing what it did."
    short.append((worst or past)[0]["sentence"] if worst or past else calm)
    return {"s": summary, "title": title, "short": short, "moment": moment, "windows": summary["windows"]}


def _share(share: dict[str, Any], n: int) -> str:
    """Return how many of n inputs were OOD, for people."""
    if share["estimate"] is None:
        return f"an unknown share of {n:,} inputs were OOD"
    ends = f"{fixed(100 * share['low'], 1)} to {fixed(100 * share['high'], 1)} %"
    return f"{fixed(100 * share['estimate'], 1)} % ({ends}) of {n:,} inputs were OOD"


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
    begin, end = _number(windows[0]["start"]), _number(windows[-1]["start"])
    across = Axis(begin, end if end > begin else begin + 1.0, _LEFT, WIDTH - _RIGHT)
    up = Axis(100.0 * low, 100.0 * high, HEIGHT - _BOTTOM, _TOP)
    few = windows[:: max(1, -(-len(windows) // 7))]
    marks: list[dict[str, Any]] = [{"at": across(_number(w["start"])), "label": moment(w["start"])} for w in few]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "box": {"left": _LEFT, "right": WIDTH - _RIGHT, "top": _TOP, "bottom": HEIGHT - _BOTTOM},
        "x": {"label": "beginning of the window", "ticks": [m for m in marks if m["at"] < WIDTH - 50]},
        "y": {"label": f"{label}, %", "ticks": up.ticks()},
        "axes": (across, up),
        "bands": [],
        "lines": [],
        "marks": [],
    }


def _series(chart: dict[str, Any], windows: list[dict[str, Any]], values: list[Any], name: str) -> None:
    """Draw a line with its band, window by window; where windows are missing both have a gap."""
    across, up = chart["axes"]
    runs: list[list[Any]] = [[]]
    for i, window in enumerate(windows):
        if i and _number(window["start"]) > _number(windows[i - 1]["end"]):
            runs.append([])
        if values[i][1] is None:
            runs.append([])
            continue
        runs[-1].append((_number(window["start"]), *(None if v is None else 100.0 * v for v in values[i])))
    for run in filter(None, runs):
        xs = [point[0] for point in run]
        if run[0][1] is not None:
            there, back = path(chart, xs, [p[3] for p in run]), path(chart, xs[::-1], [p[1] for p in run[::-1]])
            chart["bands"].append({"class": name, "d": f"{there}{back.replace('M', 'L', 1)}Z"})
            if len(run) == 1:  # a band of no width is not seen
                chart["lines"].append(
                    {"class": f"{name} whisker", "d": f"M{across(xs[0])} {up(run[0][1])}V{up(run[0][3])}"}
                )
        chart["lines"].append({"class": name, "d": path(chart, xs, [p[2] for p in run])})
    dots = "".join(f"M{across(x):g} {up(y):g}h0" for run in runs for x, _, y, _ in run)
    if len(windows) <= 60:
        chart["marks"].append({"class": f"{name} accepted", "d": dots})


def _level(chart: dict[str, Any], value: float, name: str) -> None:
    up = chart["axes"][1]
    chart["lines"].append({"class": name, "d": f"M{chart['box']['left']} {up(100.0 * value)}H{chart['box']['right']}"})


def _number(start: str | float) -> float:
    if isinstance(start, str):
        return datetime.datetime.fromisoformat(start.replace("Z", "+00:00")).timestamp()
    return float(start)
