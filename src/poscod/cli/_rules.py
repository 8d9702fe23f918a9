# SPDX-License-Identifier: BSD-3-Clause
"""The fitted rule beside its competitors, as rows of a table: one function for `evaluate` and `demo`.

Convention: all rules use the same r and g and thresholds from the same calibration rows at the same required TPR
(`poscod._comparison`). Areas are those of each rule's own score over all thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from poscod._comparison import Competitor, Measured, Sample, measure, required_tpr, rules_of
from poscod.cli._console import percent
from poscod.metrics import METRICS, Interval

TITLES: dict[str, str] = {"risk": "MSP alone", "ratio": "g alone", "sirc": "SIRC(MSP, g)", "poscod": "poscod"}
"""Rules in the order of the table and what people call them; with another loss than 0/1, MSP is the conditional risk."""


def areas(rule: Competitor, sample: Sample, wanted: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """Compute metrics of a rule's score over all thresholds."""
    arrays = {f"score_{group}": rule.score(decisions) for group, decisions in sample.groups.items()}
    arrays["loss_id"] = sample.loss
    return {
        name: METRICS[name].function(*(arrays[key] for key in METRICS[name].inputs), **params)
        for name, params in wanted.items()
    }


def compare_rules(
    model: Any,
    sample: Any,
    *,
    measure: Callable[[Competitor, Any], Measured] = measure,
    areas: Callable[[Competitor, Any, Mapping[str, dict[str, Any]]], dict[str, float]] = areas,
) -> list[dict[str, Any]]:
    """Measure the model's rule and its competitors on fresh rows."""
    found = {rule.name: rule for rule in rules_of(model, sample)}
    target = required_tpr(model, sample)
    wanted: dict[str, dict[str, Any]] = {"aurc": {}}
    if "ood" in sample.sizes:
        wanted |= {"ausrt": {"alpha": sample.alpha}, "auroc": {}, "oscr": {}, "fpr_at_tpr": {"tpr_min": target}}
    rows = []
    for name, title in TITLES.items():
        if name not in found:
            continue
        rule = found[name]
        measured, area = measure(rule, sample), areas(rule, sample, wanted)
        row: dict[str, Any] = {
            "rule": name,
            "title": title if sample.zero_one else title.replace("MSP", "risk"),
            "threshold": rule.threshold,
            "tpr": measured.tpr,
            "selective_risk": measured.selective_risk,
            "aurc": area["aurc"],
        }
        if measured.with_ood is not None:
            row |= {
                "fpr": measured.with_ood.fpr,
                "risk": measured.with_ood.risk,
                **{key: area[key] for key in ("ausrt", "auroc", "oscr")},
                "fpr_at_tpr_min": area["fpr_at_tpr"],
            }
        if measured.without is not None:
            row["label_free"] = {name: getattr(measured.without, name) for name in ("accepted", "fpr", "risk")}
        rows.append(row)
    return rows


def rules_table(rows: Sequence[dict[str, Any]], *, intervals: bool = True) -> list[str]:
    """Return the comparison as lines of text."""
    ood, free = "fpr" in rows[0], "label_free" in rows[0]
    star = "" if ood else "*"  # without OOD rows, the same rates as they follow from unlabelled traffic
    columns: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("rule", lambda row: str(row["title"])),
        ("ID accepted", lambda row: _share(row["tpr"], intervals)),
        ("error of accepted", lambda row: _share(row["selective_risk"], intervals)),
        ("AuSRT", lambda row: f"{row['ausrt']:.4f}") if ood else ("AURC", lambda row: f"{row['aurc']:.4f}"),
    ]
    if ood or free:
        columns.insert(2, (f"OOD accepted{star}", lambda row: _share(_from_ood(row)["fpr"], intervals)))
        columns.insert(4, (f"SCOD risk{star}", lambda row: _number(_from_ood(row)["risk"], intervals)))
    header = [name for name, _ in columns]
    body = [[cell(row) for _, cell in columns] for row in rows]
    widths = [max(len(line[i]) for line in [header, *body]) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in [header, *body]
    ]
    return [*lines, "* estimated without OOD labels"] if free and not ood else lines


def long_table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the comparison with one number per line: rule, metric, rows it comes from, estimate, low, high."""
    lines = []
    for row in rows:
        for metric, value in row.items():
            if metric in ("rule", "title", "label_free"):
                continue
            lines.append(_line(row["rule"], metric, "labelled", value))
        for metric, value in row.get("label_free", {}).items():
            lines.append(_line(row["rule"], metric, "unlabelled", value))
    return lines


def _line(rule: str, metric: str, source: str, value: Any) -> dict[str, Any]:
    nan = float("nan")
    low, high = (value.low, value.high) if hasattr(value, "low") else (nan, nan)
    return {
        "rule": rule,
        "metric": metric,
        "from": source,
        "estimate": float(getattr(value, "estimate", value)),
        "low": float(low),
        "high": float(high),
    }


def _from_ood(row: dict[str, Any]) -> dict[str, Any]:
    """Return where the rates of OOD inputs stand: measured, or estimated without their labels."""
    free: dict[str, Any] = row.get("label_free", {})
    return row if "fpr" in row else free


def _share(value: Any, intervals: bool) -> str:
    text = percent(value.estimate)
    if math.isnan(value.estimate):
        return text
    return f"{text} [{100 * value.low:.1f}, {100 * value.high:.1f}]" if intervals else text


def _number(value: Interval, intervals: bool) -> str:
    if math.isnan(value.estimate):
        return percent(value.estimate)
    return f"{value.estimate:.3f} [{value.low:.3f}, {value.high:.3f}]" if intervals else f"{value.estimate:.3f}"
