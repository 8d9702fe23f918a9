# SPDX-License-Identifier: BSD-3-Clause
"""Our numbers beside those printed in the paper, and whether they may be compared.

Convention: ``paper.csv`` holds facts from V. Franc, J. Paplham, D. Prusa, "SCOD: From Heuristics to Theory", ECCV 2024: the tables of single
scores, of double scores and of ablations, in percent, with errors of print as printed. A number is comparable only if ID set, OOD set,
network and the measured rows are those of the paper; every other line says what is not.
"""

from __future__ import annotations

import csv
import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

from poscod.benchmark._definitions import DEFINITIONS
from poscod.benchmark._tables import Line, Table, TableCell, summarise
from poscod.exceptions import InvalidInputError

# Names in the paper and the methods here that are the same thing. The paper runs OpenOOD, whose ASH is variant B.
METHODS: dict[str, tuple[str, ...]] = {"ash": ("ash_b",), "poscod": ("strong", "paper"), "clean": ("clean", "clean_lr")}
# What differs for every learned ratio, whatever the data: the paper trains all weights of a copy of the network with augmentation on CIFAR.
_LEARNED = ("poscod", "clean", "standard")


def paper_numbers() -> list[dict[str, Any]]:
    """Return the numbers printed in the paper, in percent; None where the paper has no alpha, pi or sd, and ood_set "" for those of the ID set alone.

    Examples
    --------
    >>> rows = paper_numbers()
    >>> [r["mean"] for r in rows if (r["table"], r["ood_set"], r["method"], r["metric"]) == ("cifar10_single", "svhn", "knn", "ausrt")]
    [3.94]
    """
    text = importlib.resources.files("poscod.benchmark").joinpath("paper.csv").read_text(encoding="utf-8")
    numbers = ("alpha", "pi", "mean", "sd")
    return [
        {key: (float(value) if value else None) if key in numbers else value for key, value in row.items()}
        for row in csv.DictReader(text.splitlines())
    ]


def compare(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Put results beside the paper's where ID set and OOD set have the same name.

    Parameters
    ----------
    rows : sequence of dict
        From `read_results`.

    Returns
    -------
    table : Table
        For `render`. One line per number that both have: ours, the paper's, and "yes" or what makes them not comparable.
    """
    id_sets = {row["id_set"] for row in rows}
    if not id_sets & set(DEFINITIONS):
        raise InvalidInputError(
            f"The results are of the ID set {', '.join(sorted(id_sets))}, and the paper has {', '.join(DEFINITIONS)}: nothing to compare."
        )
    ours: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        ours.setdefault(_key(row), []).append(row)
    body = []
    for printed in paper_numbers():
        for method in METHODS.get(printed["method"], (printed["method"],)):
            group = ours.get(_key({**printed, "method": method}))
            if group:
                body.append(_line(printed, method, group))
    note = (
        "Percent, mean ± sd over folds or seeds. Paper: Franc, Paplham, Prusa, SCOD: From Heuristics to Theory, ECCV 2024. "
        "Only lines that say yes may be read as a reproduction; the others show the same quantity on other ground."
    )
    header = ("table", "OOD", "rule", "score", "metric", "alpha", "pi", "ours", "paper", "comparable")
    return Table("compare", "Ours and the paper's", note, header, body)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    # AuRC is a number of the ID set: any OOD set's rows hold it.
    ood_set = "" if row["metric"] == "aurc" else row["ood_set"]
    names = ("id_set", "strategy", "setting", "method", "metric", "alpha", "pi")
    return (ood_set, *(row[name] for name in names))


def _line(printed: Mapping[str, Any], method: str, group: Sequence[Mapping[str, Any]]) -> Line:
    rule = f"{printed['setting']} {printed['strategy']}".strip()
    numbers = ("-" if printed[name] is None else f"{printed[name]:g}" for name in ("alpha", "pi"))
    labels = (printed["table"], printed["ood_set"] or "-", rule, method, printed["metric"], *numbers)
    cell = summarise([100.0 * row["value"] for row in group])
    sd = float("nan") if printed["sd"] is None else printed["sd"]
    reasons = _reasons(printed, group)
    return labels, (cell, TableCell(printed["mean"], sd, 1), "no: " + "; ".join(reasons) if reasons else "yes")


def _reasons(printed: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say everything that makes a number not comparable."""
    definition, first, reasons = DEFINITIONS[printed["id_set"]], group[0], []
    if first["network"] != definition.network:
        reasons.append(f"network {first['network'] or 'unnamed'} instead of {definition.network}")
    folds = {row["fold"] for row in group}
    if folds != set(definition.folds):
        reasons.append(f"{len(folds)} of the {len(definition.folds)} folds")
    if first["n_id"] != definition.rows:
        reasons.append(f"{first['n_id']} of {definition.rows} ID rows")
    if printed["ood_set"]:
        ood = definition.sets[printed["ood_set"]]
        expected = ood.rows if ood.split == "dedicated" else ood.rows - ood.rows // 2
        if abs(first["n_ood"] - expected) > 1:
            reasons.append(f"{first['n_ood']} of {expected} OOD rows")
    if printed["method"] in _LEARNED:
        reasons.append("ratio learned on frozen features of unseen ID rows, not by training on those of the classifier")
    return reasons
