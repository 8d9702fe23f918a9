# SPDX-License-Identifier: BSD-3-Clause
"""Where things go in a picture: coordinates for the SVG charts of the page.

Convention: a chart is a plain dictionary of paths, marks and ticks in a box of fixed size; it holds no statistic that the summary
does not hold, and no text but labels. Colours are classes, so that light and dark are the style sheet's business.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from poscod.report._format import MINUS
from poscod.report._words import GROUP_NAMES, RULE_NAMES

WIDTH, HEIGHT = 480, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 46
_LETTER = 8


class Axis(NamedTuple):
    """A linear axis: value range and pixel range."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value, kept inside the frame."""
        inside = min(max(value, self.low), self.high)
        return round(self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self, wanted: int = 5) -> list[dict[str, Any]]:
        """Return round values along the axis with their pixels and labels."""
        raw = (self.high - self.low) / wanted
        size = 10.0 ** math.floor(math.log10(raw))
        step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * 0.999)
        digits = max(0, 2 - math.floor(math.log10(step)) - (2 if step in (size, 2 * size, 5 * size, 10 * size) else 1))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        found = []
        for i in range(first, last + 1):
            text = f"{i * step:.{digits}f}"
            found.append({"at": self(i * step), "label": text.replace("-", MINUS) if float(text) else text.lstrip("-")})
        return found


def frame(low_x: float, high_x: float, low_y: float, high_y: float, x: str, y: str) -> dict[str, Any]:
    """Return an empty chart with its axes."""
    if high_x <= low_x:
        high_x = low_x + 1.0
    if high_y <= low_y:
        high_y = low_y + 1.0
    up = Axis(low_y, high_y, HEIGHT - _BOTTOM, _TOP)
    # Long numbers push the frame to the right, so that they do not lie under the axis title.
    left = _LEFT + _LETTER * max(0, max((len(tick["label"]) for tick in up.ticks()), default=0) - 3)
    across = Axis(low_x, high_x, left, WIDTH - _RIGHT)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "box": {"left": left, "right": WIDTH - _RIGHT, "top": _TOP, "bottom": HEIGHT - _BOTTOM},
        "x": {"label": x, "ticks": across.ticks()},
        "y": {"label": y, "ticks": up.ticks()},
        "axes": (across, up),
        "bands": [],
        "lines": [],
        "marks": [],
        "bars": [],
        "legend": [],
    }


def path(chart: dict[str, Any], xs: list[float], ys: list[float | None]) -> str:
    """Return an SVG path through points; undefined values break it."""
    across, up = chart["axes"]
    parts, open_ = [], False
    for x, y in zip(xs, ys, strict=True):
        if y is None:
            open_ = False
            continue
        parts.append(f"{'L' if open_ else 'M'}{across(x)} {up(y)}")
        open_ = True
    return "".join(parts)


def curve_chart(summary: dict[str, Any], value: str, label: str) -> dict[str, Any] | None:
    """Return a value of all rules against the required TPR; None where it is not known."""
    c = summary["curves"]
    known = [v for v in c[value] if v is not None]
    if not known:
        return None
    own = [h for h, name in zip(c[f"{value}_high"], c["rule"], strict=True) if name == "poscod" and h is not None]
    # Most of a band, never less than all of the curves: one wide interval must not flatten everything.
    top = max(*known, min(max(own, default=0.0), 1.6 * max(known)), 1e-3)
    chart = frame(min(c["tpr_min"]), 1.0, 0.0, 1.05 * top, "required TPR (share of known inputs to accept)", label)
    for name in dict.fromkeys(c["rule"]):
        mine = [i for i, rule in enumerate(c["rule"]) if rule == name]
        xs = [c["tpr_min"][i] for i in mine]
        if name == "poscod":
            ends = [(x, c[f"{value}_low"][i], c[f"{value}_high"][i]) for x, i in zip(xs, mine, strict=True)]
            ends = [e for e in ends if None not in e]
            if ends:
                there = path(chart, [e[0] for e in ends], [e[2] for e in ends])
                back = path(chart, [e[0] for e in ends[::-1]], [e[1] for e in ends[::-1]])
                chart["bands"].append({"class": name, "d": f"{there}{back.replace('M', 'L', 1)}Z"})
        chart["lines"].append({"class": name, "d": path(chart, xs, [c[value][i] for i in mine])})
        chart["legend"].append({"class": name, "kind": "line", "label": RULE_NAMES[name]})
    return chart


def plane_chart(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the plane of r and log g with the boundaries of all rules."""
    plane = summary["plane"]
    low, high = plane["window"]
    chart = frame(0.0, plane["right"], low, high, "conditional risk r", "log g")
    across, up = chart["axes"]
    points = plane["points"]
    # Unlabelled rows are the background; of the others the rarer ones lie on top.
    order = sorted(GROUP_NAMES, key=lambda name: (name != "unlabelled", -points["group"].count(name)))
    for name in order:
        for accepted in (True, False):
            spots = "".join(
                _dot(across(r), up(g if g is not None else low), accepted)
                for r, g, group, accept in zip(
                    points["risk"], points["log_ratio"], points["group"], points["accept"], strict=True
                )
                if group == name and accept == accepted
            )
            if spots:
                state = "accepted" if accepted else "rejected"
                chart["marks"].append({"class": f"{name} {state}", "d": spots})
                chart["legend"].append(
                    {
                        "class": f"{name} {state}",
                        "kind": "dot" if accepted else "cross",
                        "label": f"{GROUP_NAMES[name]}, {state}",
                    }
                )
    for name, line in plane["boundaries"].items():
        chart["lines"].append({"class": name, "d": path(chart, line["risk"], line["log_ratio"])})
        chart["legend"].append({"class": name, "kind": "line", "label": RULE_NAMES[name]})
    return chart


def _dot(x: float, y: float, accepted: bool) -> str:
    """Return a dot (a round line of no length) or, for a rejected row, a cross."""
    return f"M{x:g} {y:g}h0" if accepted else f"M{x - 2:g} {y - 2:g}l4 4m-4 0l4-4"


def histogram_chart(summary: dict[str, Any], score: str, label: str) -> dict[str, Any]:
    """Return the histograms of one score by group."""
    c = summary["distributions"]
    mine = [i for i, name in enumerate(c["score"]) if name == score]
    chart = frame(
        min(c["left"][i] for i in mine),
        max(c["right"][i] for i in mine),
        0.0,
        1.05 * max(c["share"][i] for i in mine),
        label,
        "share of rows",
    )
    for name, text in GROUP_NAMES.items():
        bins = [i for i in mine if c["group"][i] == name]
        if bins:
            xs = [x for i in bins for x in (c["left"][i], c["right"][i])]
            ys = [c["share"][i] for i in bins for _ in range(2)]
            chart["lines"].append({"class": name, "d": path(chart, [xs[0], *xs, xs[-1]], [0.0, *ys, 0.0])})
            chart["legend"].append({"class": name, "kind": "line", "label": text})
    return chart


def reliability_chart(summary: dict[str, Any]) -> dict[str, Any]:
    """Return observed loss against predicted risk with intervals."""
    bins = summary["reliability"]["bins"]
    top = max([*bins["predicted"], *bins["observed"], *(h for h in bins["high"] if h is not None)], default=1.0) or 1.0
    right = 1.05 * max([*bins["predicted"], 1e-6])
    chart = frame(0.0, right, 0.0, 1.05 * top, "predicted loss r", "mean loss that happened")
    across, up = chart["axes"]
    reach = min(right, 1.05 * top)
    chart["lines"].append({"class": "honest", "d": path(chart, [0.0, reach], [0.0, reach])})
    ends = "".join(
        f"M{across(x)} {up(low)}V{up(high)}"
        for x, low, high in zip(bins["predicted"], bins["low"], bins["high"], strict=True)
        if high is not None
    )
    chart["lines"].append({"class": "whisker", "d": ends})
    dots = "".join(_dot(across(x), up(y), True) for x, y in zip(bins["predicted"], bins["observed"], strict=True))
    chart["marks"].append({"class": "id accepted big", "d": dots})
    chart["legend"] += [
        {"class": "honest", "kind": "line", "label": "honest: loss = r"},
        {"class": "id accepted", "kind": "dot", "label": "known rows, one dot per bin"},
    ]
    return chart


def rejection_rows(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the classes of a group, most rejected first, with the places of their bars in a width of 100."""
    found = []
    for entry in group["classes"]:
        rows, x, bars = sum(entry["count"].values()), 0.0, []
        for reason in ("ambiguous", "unfamiliar", "both"):
            width = 100.0 * entry["count"][reason] / max(rows, 1)
            if width:
                bars.append({"reason": reason, "x": round(x, 2), "width": round(width, 2)})
            x += width
        rejected = None if rows == 0 else (rows - entry["count"]["accepted"]) / rows
        found.append({**entry, "rows": rows, "rejected": rejected, "bars": bars})
    return sorted(found, key=lambda row: -(row["rejected"] or 0.0))
