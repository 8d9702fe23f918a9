# SPDX-License-Identifier: BSD-3-Clause
"""Where things go in a picture: coordinates for the SVG charts of the page.

Convention: a chart is a plain dictionary of paths, marks and ticks in a box of fixed size; it holds no statistic that the summary
does not hold, and no text but labels. Colours are classes, so that light and dark are the style sheet's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from poscod.plot import RULE_NAMES
from poscod.report._format import fixed
from poscod.report._words import GROUP_NAMES, mix_classes

WIDTH, HEIGHT = 480, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 46
_LETTER = 8
_ROW, _NAME = 30, 22


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
        return [{"at": self(i * step), "label": fixed(i * step, digits)} for i in range(first, last + 1)]


def frame(
    x: tuple[float, float], y: tuple[float, float], labels: tuple[str, str], width: int = WIDTH
) -> dict[str, Any]:
    """Return an empty chart with its axes."""
    (low_x, high_x), (low_y, high_y) = ((low, high if high > low else low + 1.0) for low, high in (x, y))
    up = Axis(low_y, high_y, HEIGHT - _BOTTOM, _TOP)
    # Long numbers push the frame to the right, so that they do not lie under the axis title.
    left = _LEFT + _LETTER * max(0, max((len(tick["label"]) for tick in up.ticks()), default=0) - 3)
    across = Axis(low_x, high_x, left, width - _RIGHT)
    return {
        "width": width,
        "height": HEIGHT,
        "box": {"left": left, "right": width - _RIGHT, "top": _TOP, "bottom": HEIGHT - _BOTTOM},
        "x": {"label": labels[0], "ticks": across.ticks()},
        "y": {"label": labels[1], "ticks": up.ticks()},
        "axes": (across, up),
        "bands": [],
        "lines": [],
        "marks": [],
        "legend": [],
    }


def add(chart: dict[str, Any], kind: str, name: str, d: str, label: str | None = None, look: str = "line") -> None:
    """Add a path to the bands, lines or marks of a chart, with its entry of the legend where it has a label."""
    chart[kind].append({"class": name, "d": d})
    if label is not None:
        chart["legend"].append({"class": name, "kind": look, "label": label})


def series(chart: dict[str, Any], name: str, points: list[dict[str, Any] | None], label: str) -> None:
    """Draw a line through points (x, estimate, maybe low and high) with its band; None and unknown values leave a gap in both."""
    across, up = chart["axes"]
    runs: list[list[dict[str, Any]]] = [[]]
    for point in points:
        if point is None or point["estimate"] is None:
            runs.append([])
        else:
            runs[-1].append(point)
    for run in filter(None, runs):
        xs = [p["x"] for p in run]
        if run[0].get("high") is not None:
            there = path(chart, xs, [p["high"] for p in run])
            back = path(chart, xs[::-1], [p["low"] for p in run[::-1]])
            add(chart, "bands", name, f"{there}{back.replace('M', 'L', 1)}Z")
            if len(run) == 1:  # a band of no width is not seen
                whisker = f"M{across(xs[0])} {up(run[0]['low'])}V{up(run[0]['high'])}"
                add(chart, "lines", f"{name} whisker", whisker)
        add(chart, "lines", name, path(chart, xs, [p["estimate"] for p in run]))
    chart["legend"].append({"class": name, "kind": "line", "label": label})


def path(chart: dict[str, Any], xs: Iterable[float], ys: Iterable[float]) -> str:
    """Return an SVG path through points."""
    across, up = chart["axes"]
    return "".join(f"{'L' if i else 'M'}{across(x)} {up(y)}" for i, (x, y) in enumerate(zip(xs, ys, strict=True)))


def curve_chart(summary: dict[str, Any], value: str, label: str) -> dict[str, Any] | None:
    """Return a value of all rules against the required TPR; None where it is not known."""
    c = summary["curves"]
    known = [v for v in c[value] if v is not None]
    if not known:
        return None
    columns = zip(c["rule"], c["tpr_min"], c[f"{value}_low"], c[value], c[f"{value}_high"], strict=True)
    points = [(name, {"x": x, "low": low, "estimate": y, "high": high}) for name, x, low, y, high in columns]
    # Most of a band, never less than all of the curves: one wide interval must not flatten everything.
    highest = max((p["high"] or 0.0 for name, p in points if name == "poscod"), default=0.0)
    top = max(*known, min(highest, 1.6 * max(known)), 1e-3)
    labels = "required TPR (share of known inputs to accept)", label
    chart = frame((min(c["tpr_min"]), 1.0), (0.0, 1.05 * top), labels)
    for name in dict.fromkeys(c["rule"]):
        mine: list[Any] = [p if name == "poscod" else {**p, "high": None} for rule, p in points if rule == name]
        series(chart, name, mine, RULE_NAMES[name])
    return chart


def plane_chart(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the plane of r and log g with the boundaries of all rules."""
    plane, points = summary["plane"], summary["plane"]["points"]
    chart = frame((0.0, plane["right"]), tuple(plane["window"]), ("conditional risk r", "log g"))
    across, up = chart["axes"]
    # Unlabeled rows are the background; of the others the rarer ones lie on top.
    order = sorted(GROUP_NAMES, key=lambda name: (name != "unlabeled", -points["group"].count(name)))
    rows = list(zip(*(points[key] for key in ("group", "accept", "risk", "log_ratio")), strict=True))
    for name in order:
        for accepted, state, look in ((True, "accepted", "dot"), (False, "rejected", "cross")):
            spots = "".join(
                dot(across(r), up(g), accepted) for group, accept, r, g in rows if (group, accept) == (name, accepted)
            )
            if spots:
                add(chart, "marks", f"{name} {state}", spots, f"{GROUP_NAMES[name]}, {state}", look)
    for name, line in plane["boundaries"].items():
        add(chart, "lines", name, path(chart, line["risk"], line["log_ratio"]), RULE_NAMES[name])
    return chart


def dot(x: float, y: float, accepted: bool = True) -> str:
    """Return a dot (a round line of no length) or, for a rejected row, a cross."""
    return f"M{x:g} {y:g}h0" if accepted else f"M{x - 2:g} {y - 2:g}l4 4m-4 0l4-4"


def histogram_chart(summary: dict[str, Any], score: str, label: str) -> dict[str, Any]:
    """Return the histograms of one score by group."""
    c = summary["distributions"]
    columns = (c[key] for key in ("score", "group", "left", "right", "share"))
    bins = [row for row in zip(*columns, strict=True) if row[0] == score]
    ends = min(b[2] for b in bins), max(b[3] for b in bins)
    chart = frame(ends, (0.0, 1.05 * max(b[4] for b in bins)), (label, "share of rows"))
    for name, text in GROUP_NAMES.items():
        mine = [b for b in bins if b[1] == name]
        if mine:
            xs = [x for b in mine for x in b[2:4]]
            ys = [b[4] for b in mine for _ in range(2)]
            add(chart, "lines", name, path(chart, [xs[0], *xs, xs[-1]], [0.0, *ys, 0.0]), text)
    return chart


def reliability_chart(summary: dict[str, Any]) -> dict[str, Any]:
    """Return observed loss against predicted risk with intervals."""
    bins = summary["reliability"]["bins"]
    top = max([*bins["predicted"], *bins["observed"], *(h for h in bins["high"] if h is not None)], default=1.0) or 1.0
    right = 1.05 * max([*bins["predicted"], 1e-6])
    chart = frame((0.0, right), (0.0, 1.05 * top), ("predicted loss r", "mean loss that happened"))
    across, up = chart["axes"]
    reach = [0.0, min(right, 1.05 * top)]
    add(chart, "lines", "honest", path(chart, reach, reach), "honest: loss = r")
    rows = list(zip(bins["predicted"], bins["observed"], bins["low"], bins["high"], strict=True))
    whiskers = (f"M{across(x)} {up(low)}V{up(high)}" for x, _, low, high in rows if high is not None)
    add(chart, "lines", "whisker", "".join(whiskers))
    dots = "".join(dot(across(x), up(y)) for x, y, *_ in rows)
    add(chart, "marks", "id accepted big", dots, "known rows, one dot per bin", "dot")
    return chart


def mix_chart(mix: dict[str, Any]) -> dict[str, Any] | None:
    """Return the classes that differ most, labeled against traffic with intervals, a line each; None where there is nothing to compare."""
    shown, level = mix_classes(mix), f"{100 * mix['at_fit']['level']:g} % interval"
    if shown is None:
        return None
    sides = [("id", "traffic at fit", mix["at_fit"]), ("ood", "traffic measured here", mix["here"])]
    sides = [side for side in sides if side[2] is not None and (side[2]["estimated"] or side[2]["changed"])]
    names = [_cut(str(mix["at_fit"]["classes"][k]["class"])) for k in shown]
    # An interval that was not estimated is all of [0, 1], or nothing beside what was given.
    ends = [d["classes"][k][key] for *_, d in sides for k in shown for key in ("labeled", "traffic", "high")]
    left, bottom = _LEFT + _LETTER * max(0, max(map(len, names)) - 4), _TOP + _ROW * len(shown)
    across = Axis(0.0, min(1.0, 1.05 * max(*ends, 0.01)), left, WIDTH - _RIGHT)
    middle = [_TOP + _ROW * (i + 0.5) for i in range(len(shown))]
    ticks = [{**tick, "label": f"{100 * float(tick['label']):g}"} for tick in across.ticks()]
    chart: dict[str, Any] = {
        "width": WIDTH,
        "height": bottom + _BOTTOM,
        "box": {"left": left, "right": WIDTH - _RIGHT, "top": _TOP, "bottom": bottom},
        "x": {"label": "share of known inputs, %", "ticks": ticks},
        "y": {"label": "", "ticks": [{"at": y, "label": name} for y, name in zip(middle, names, strict=True)]},
        **{kind: [] for kind in ("bands", "lines", "marks", "legend")},
    }
    known = [across(mix["at_fit"]["classes"][k]["labeled"]) for k in shown]
    bars = (f"M{x} {y - 9:g}v18" for x, y in zip(known, middle, strict=True))
    add(chart, "lines", "labeled", "".join(bars), "labeled rows", "bar")
    for place, (look, text, found) in enumerate(sides):
        # Two intervals of a class lie beside each other.
        rows = [
            (found["classes"][k], y + (0 if len(sides) == 1 else 8 * place - 4))
            for k, y in zip(shown, middle, strict=True)
        ]
        label = f"{text}, {level}" if found["estimated"] else f"{text}, as given"
        if found["estimated"]:
            whiskers = (f"M{across(row['low'])} {y:g}H{across(row['high'])}" for row, y in rows)
            add(chart, "lines", f"{look} whisker", "".join(whiskers), None if found["changed"] else label)
        if found["changed"]:
            dots = "".join(dot(across(row["traffic"]), y) for row, y in rows)
            add(chart, "marks", f"{look} accepted big", dots, label, "dot")
    return chart


def _cut(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def rejection_rows(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the classes of a group, most rejected first, with the places of their bars in a width of 100."""
    found = []
    for entry in group["classes"]:
        rows, x, bars = sum(entry["count"].values()), 0.0, []
        for reason in ("ambiguous", "unfamiliar", "both"):
            width = 100.0 * entry["count"][reason] / max(rows, 1)
            bars.append({"reason": reason, "x": round(x, 2), "width": round(width, 2)})
            x += width
        found.append({**entry, "rows": rows, "rejected": x / 100.0 if rows else None, "bars": bars})
    return sorted(found, key=lambda row: -(row["rejected"] or 0.0))


def pictures(summary: dict[str, Any]) -> dict[str, Any]:
    """Return everything that is drawn on the page, and what its script reads."""
    curves = {
        "risk": "SCOD risk",
        "selective_risk": "Mean loss of accepted answers",
        "fpr": "Unknown inputs that slip through",
    }
    scores = {"risk": "conditional risk r", "log_ratio": "log g"}
    plane = {key: summary["plane"][key] for key in ("right", "window")}
    return {
        "plane": plane_chart(summary),
        "curves": [(key, name, curve_chart(summary, key, name)) for key, name in curves.items()],
        "histograms": [(key, name, histogram_chart(summary, key, name)) for key, name in scores.items()],
        "mix": mix_chart(summary["class_mix"]),
        "reliability": reliability_chart(summary),
        "rejections": {name: rejection_rows(group) for name, group in summary["rejections"].items()},
        "explorer": summary["explorer"] and {**summary["explorer"], **plane},
    }
