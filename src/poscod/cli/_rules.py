# SPDX-License-Identifier: BSD-3-Clause
"""The fitted rule beside its competitors and beside other choices, as rows of a table: for `fit`, `at`, `evaluate` and `demo`.

Convention: all rules use the same r and g and thresholds from the same calibration rows at the same required TPR
(`poscod.model.rules_of`). Areas are those of each rule's own score over all thresholds. The model's own rule is the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from poscod.cli._console import percent
from poscod.metrics import aurc, summary
from poscod.model import Competitor, Measured, Sample, measure, required_tpr, rules_of
from poscod.report import RULE_NAMES


def _areas(rule: Competitor, sample: Sample) -> dict[str, float]:
    """Compute metrics of a rule's score over all thresholds; without OOD rows, the one that needs none."""
    known = rule.score(sample.groups["id"])
    if "ood" not in sample.sizes:
        return {"aurc": aurc(known, sample.loss, weight_id=sample.weight_id)}
    strange = rule.score(sample.groups["ood"])
    costs = {"alpha": sample.alpha, "tpr_min": required_tpr(sample)}
    return summary(known, sample.loss, strange, weight_id=sample.weight_id, **costs)._asdict()


def compare_rules(
    sample: Any,
    *,
    measure: Callable[[Competitor, Any], Measured] = measure,
) -> list[dict[str, Any]]:
    """Measure a model's rule and its competitors on fresh rows."""
    own, *rivals = rules_of(sample)
    rows = []
    for rule in (*rivals, own):
        measured, area = measure(rule, sample), _areas(rule, sample)
        row: dict[str, Any] = {
            "rule": rule.name,
            "title": RULE_NAMES[rule.name],
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
    star = "" if ood else "*"  # without OOD rows, the same rates as they follow from unlabeled traffic
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "rule": lambda row: str(row["title"]),
        "ID accepted": lambda row: _cell(row["tpr"], intervals, percent),
    }
    if ood or free:
        columns[f"OOD accepted{star}"] = lambda row: _cell(_of_ood(row)["fpr"], intervals, percent)
    columns["error of accepted"] = lambda row: _cell(row["selective_risk"], intervals, percent)
    if ood or free:
        columns[f"SCOD risk{star}"] = lambda row: _cell(_of_ood(row)["risk"], intervals, "{:.3f}".format)
    columns["AuSRT" if ood else "AURC"] = lambda row: f"{row['ausrt' if ood else 'aurc']:.4f}"
    lines = text_table([list(columns), *([cell(row) for cell in columns.values()] for row in rows)])
    return [*lines, "* estimated without OOD labels"] if free and not ood else lines


def estimates_story(document: dict[str, Any]) -> list[str]:
    """Return what a rule is expected to do, and a few others, as lines of text."""
    lines = document["lines"]
    width = max(len(line["name"]) for line in lines)
    told = [f"  {line['name']:<{width}}  {line['text']}" for line in lines]
    choices = [choice["cells"] for choice in document["choices"]]
    table = text_table([list(choices[0]), *(list(cells.values()) for cells in choices)])
    return [
        f"{document['title']}:",
        *told,
        "",
        "Other rules for the same r and g (give the option to poscod at, or to poscod fit):",
        *(f"  {line}" for line in table),
    ]


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines: the first column to the left, the others to the right.

    Examples
    --------
    >>> text_table([("rule", "share"), ("r alone", "5 %")])
    ['rule     share', 'r alone    5 %']
    """
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    return [
        "  ".join([row[0].ljust(first), *(cell.rjust(w) for cell, w in zip(row[1:], others, strict=True))])
        for row in rows
    ]


def _of_ood(row: dict[str, Any]) -> dict[str, Any]:
    """Return where the rates of OOD inputs stand: measured, or estimated without their labels."""
    free: dict[str, Any] = row.get("label_free", {})
    return row if "fpr" in row else free


def _cell(value: Any, intervals: bool, text: Callable[[float], str]) -> str:
    """Return a rate with its interval in brackets, whose unit is not repeated."""
    if math.isnan(value.estimate) or not intervals:
        return percent(value.estimate) if math.isnan(value.estimate) else text(value.estimate)
    low, high = (text(end).removesuffix(" %") for end in (value.low, value.high))
    return f"{text(value.estimate)} [{low}, {high}]"
