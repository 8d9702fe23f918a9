# SPDX-License-Identifier: BSD-3-Clause
"""The paper's tables and ablations from the long table of results.

Convention: nothing is computed but means and standard deviations over folds and seeds (dividing by n - 1) and the choice of the best.
Numbers are percent. `TABLES` and `ABLATIONS` feed the command line, the tests and the docs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from poscod._validation import check_choice
from poscod.benchmark._ratios import RATIOS
from poscod.exceptions import InvalidInputError
from poscod.scores import SCORES

__all__ = ["ABLATIONS", "TABLES", "Table", "TableCell", "ablation", "table"]

Rows = Sequence[Mapping[str, Any]]


class TableCell(NamedTuple):
    """One number of a table.

    Attributes
    ----------
    mean, sd : float
        Percent; sd is NaN where there is one value only.
    n : int
        Number of values.
    best : bool
        Whether it is the best of its kind.
    """

    mean: float
    sd: float
    n: int
    best: bool = False


class Table(NamedTuple):
    """A table for people.

    Attributes
    ----------
    name, title : str
    note : str
        What a reader must know to read it right.
    header : tuple of str
        Names of the columns: those of the labels, then those of the numbers.
    body : list of (labels, cells)
        Labels are texts; a cell is a `TableCell`, a text, or None where there is no result.
    """

    name: str
    title: str
    note: str
    header: tuple[str, ...]
    body: list[tuple[tuple[str, ...], tuple[TableCell | str | None, ...]]]

    def document(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {
            "name": self.name,
            "title": self.title,
            "note": self.note,
            "header": list(self.header),
            "rows": [
                {"labels": list(labels), "cells": [c._asdict() if isinstance(c, TableCell) else c for c in cells]}
                for labels, cells in self.body
            ],
        }


class _Results:
    """Means over folds and seeds, looked up by what a row is."""

    def __init__(self, rows: Rows, alpha: float, pi: float | None) -> None:
        self.alpha = alpha
        self.sets = list(dict.fromkeys(row["ood_set"] for row in sorted(rows, key=_near_first)))
        self.pis = sorted({row["pi"] for row in rows if row["pi"] is not None})
        self.alphas = sorted({row["alpha"] for row in rows if row["alpha"] is not None})
        if self.alphas and alpha not in self.alphas:
            raise InvalidInputError(
                f"alpha must be one of {_list(self.alphas)}, which the results have, got {alpha:g}."
            )
        if pi is not None and pi not in self.pis:
            raise InvalidInputError(f"pi must be one of {_list(self.pis)}, which the results have, got {pi:g}.")
        self.pi = pi if pi is not None else max(self.pis, default=None)
        self._values: dict[tuple[Any, ...], list[float]] = {}
        for row in rows:
            key = tuple(
                row[name] for name in ("ood_set", "kind", "method", "strategy", "setting", "metric", "alpha", "pi")
            )
            self._values.setdefault(key, []).append(row["value"])
        self.scores = [name for name in SCORES if any(row["kind"] == "score" and row["method"] == name for row in rows)]
        self.ratios = [name for name in RATIOS if any(row["kind"] == "ratio" and row["method"] == name for row in rows)]

    def cell(
        self,
        ood_set: str,
        method: str,
        strategy: str = "single",
        setting: str = "",
        metric: str = "ausrt",
        *,
        alpha: float | None = None,
        pi: float | None = None,
    ) -> TableCell | None:
        kind = "ratio" if method in RATIOS else "optimum" if method == "optimum" else "score"
        learned = kind == "ratio" and RATIOS[method].sees == "mixture"
        pi = (self.pi if pi is None else pi) if learned else None
        cost = None if metric != "ausrt" else self.alpha if alpha is None else alpha
        values = self._values.get((ood_set, kind, method, strategy, setting, metric, cost, pi))
        return None if values is None else summarise([100.0 * v for v in values])

    def line(self, method: str, strategy: str = "single", setting: str = "", **options: Any) -> tuple[Any, ...]:
        return tuple(self.cell(name, method, strategy, setting, **options) for name in self.sets)


def summarise(values: Sequence[float]) -> TableCell:
    """Return mean and standard deviation, with sums that do not depend on the order of values."""
    mean = math.fsum(values) / len(values)
    n = len(values)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else math.nan
    return TableCell(mean, sd, n)


def table(name: str, rows: Rows, *, alpha: float = 0.5, pi: float | None = None) -> Table:
    """Make one of the paper's tables.

    Parameters
    ----------
    name : str
        Key of `TABLES`.
    rows : sequence of dict
        From `read_results`.
    alpha : float, default=0.5
        Relative cost.
    pi : float or None, default=None
        Share of OOD in the mixture that ratios were learned from; None is the largest there is.

    Returns
    -------
    table : Table
        Without rows where the results have nothing to fill it with.
    """
    build = check_choice(name, "name", TABLES)
    return build(_Results(rows, alpha, pi))


def ablation(name: str, rows: Rows, *, alpha: float = 0.5, pi: float | None = None) -> Table:
    """Make an ablation table.

    Parameters
    ----------
    name : {"alpha", "pi"}
        What varies.
    rows : sequence of dict
        From `read_results`.
    alpha : float, default=0.5
        Relative cost, where pi varies.
    pi : float or None, default=None
        Share of OOD in the mixture, where alpha varies; None is the largest there is.

    Returns
    -------
    table : Table
    """
    return check_choice(name, "name", ABLATIONS)(_Results(rows, alpha, pi))


def _single(results: _Results) -> Table:
    header = ["score", "AuRC", *(f"{name} {metric}" for name in results.sets for metric in ("AuROC", "AuSRT"))]
    body = []
    for name in results.scores:
        pairs = [results.cell(s, name, metric=metric) for s in results.sets for metric in ("auroc", "ausrt")]
        body.append(((name,), (results.cell(results.sets[0], name, metric="aurc"), *pairs)))
    body.sort(key=lambda row: _average(row[1][2::2]))
    largest = [i for i in range(len(header) - 1) if header[i + 1].endswith("AuROC")]
    note = (
        "AuRC by trapezoid; AuSRT of the raw curve (no envelope), so that AuSRT = (1 - alpha) AuRC + alpha (1 - AuROC). "
        "Sorted by mean AuSRT."
    )
    title = f"Single scores, %, alpha = {results.alpha:g}"
    return Table("single", title, note, tuple(header), _best(body, largest=largest))


def _clean(results: _Results) -> Table:
    body = []
    for ratio in (r for r in results.ratios if RATIOS[r].sees in ("clean", "world")):
        for setting, strategy in (("tuned", "sirc"), ("tuned", "linear"), ("plugin", "sirc"), ("plugin", "linear")):
            body.append(((RATIOS[ratio].title, f"{setting} {strategy}"), results.line(ratio, strategy, setting)))
        body.append(((RATIOS[ratio].title, "likelihood ratio alone"), results.line(ratio)))
    if body:
        body.append((("-", "MSP alone"), results.line("msp")))
    note = "The ratio is learned from labelled OOD rows, which nobody has in practice. Tuned rows choose on the measured rows: a bound."
    return _ausrt_table("clean", "Two scores with a clean likelihood ratio", note, ("ratio", "rule"), results, body)


def _sigmoid(results: _Results) -> Table:
    body = [
        ((RATIOS[ratio].title, rule), results.line(ratio, strategy, setting))
        for ratio in results.ratios
        if RATIOS[ratio].sees == "mixture"
        for rule, strategy, setting in (
            ("SIRC", "sirc", "plugin"),
            ("linear", "linear", "plugin"),
            ("ratio alone", "single", ""),
        )
    ]
    note = f"Plug-in rules; the ratio is learned from an unlabelled mixture with pi = {results.pi}."
    title = "Corrected against standard sigmoid"
    return _ausrt_table("sigmoid", title, note, ("sigmoid", "rule"), results, body)


def _contemporary(results: _Results) -> Table:
    body = []
    for group, strategy, setting in (
        ("single score", "single", ""),
        ("linear", "linear", "plugin"),
        ("SIRC", "sirc", "plugin"),
    ):
        lines = [((group, name), results.line(name, strategy, setting)) for name in results.scores]
        lines = [line for line in lines if any(cell is not None for cell in line[1])]
        body += sorted(lines, key=lambda line: _average(line[1]))[:3]
        if strategy != "single" and "corrected" in results.ratios:
            body.append(((group, RATIOS["corrected"].title), results.line("corrected", strategy, setting)))
    note = (
        f"The three scores with the smallest mean of each group, chosen on the measured rows (in their favour); POSCOD with pi = {results.pi}. "
        "Plug-in rules."
    )
    return _ausrt_table("contemporary", "Practically usable rules", note, ("rule", "second score"), results, body)


def _double(setting: str) -> Callable[[_Results], Table]:
    def build(results: _Results) -> Table:
        usable = [r for r in results.ratios if r in ("corrected", "paper", "clean", "clean_lr", "exact")]
        body = []
        if any(results.line(name, s, setting)[0] for name in results.scores for s in ("linear", "sirc")):
            for name in (*results.scores, *usable):
                body.append((("single score", _title(name)), results.line(name)))
            for group, strategy in (("linear", "linear"), ("SIRC", "sirc")):
                for name in (*results.scores, *usable):
                    body.append(((group, _title(name)), results.line(name, strategy, setting)))
        title = {"plugin": "Plug-in double scores", "tuned": "Tuned double scores"}[setting]
        note = {
            "plugin": f"Parameters from theory (linear) or from the heuristic (SIRC); ratios from mixtures with pi = {results.pi}.",
            "tuned": "Parameters chosen on the measured rows: **a bound, not a result**.",
        }[setting]
        return _ausrt_table(setting, title, note, ("rule", "second score"), results, body)

    return build


def _estimators(results: _Results) -> Table:
    """Our estimator beside the paper's recipe and the clean oracle, at every share of OOD."""
    mixture = [r for r in results.ratios if RATIOS[r].sees == "mixture"]
    others = [r for r in results.ratios if RATIOS[r].sees != "mixture"]
    body: list[Any] = []
    for pi in reversed(results.pis):
        lines = [((f"{pi:g}", RATIOS[r].title), results.line(r, "linear", "plugin", pi=pi)) for r in mixture]
        body += _best(lines)
    body += [(("-", RATIOS[r].title), results.line(r, "linear", "plugin")) for r in others]
    if body:
        singles = [results.line(name) for name in results.scores]
        best = tuple(
            min(c, key=lambda x: x.mean) if (c := _there(column)) else None for column in zip(*singles, strict=True)
        )
        body += [(("-", "best single score, in hindsight"), best), (("-", "MSP alone"), results.line("msp"))]
        if results.cell(results.sets[0], "optimum", "optimum") is not None:
            body.append((("-", "exact optimum"), results.line("optimum", "optimum")))
    note = "Plug-in linear rule. Best of each pi in bold; the lowest rows see more than a mixture, or nothing of it."
    title = f"Estimators of the ratio, AuSRT in %, alpha = {results.alpha:g}"
    header = ("pi", "ratio", *results.sets)
    return Table("estimators", title, note, header, _filled(body))


def _prior(results: _Results) -> Table:
    mixture = [r for r in results.ratios if RATIOS[r].sees == "mixture" and r != "standard"]
    body = [
        ((f"{pi:g}", RATIOS[r].title), results.line(r, metric="ood_prior", pi=pi))
        for pi in reversed(results.pis)
        for r in mixture
    ]
    note = "Estimated share of OOD rows in the mixture; 0 means that no OOD was found and the ID-only rule is used."
    header = ("pi", "ratio", *results.sets)
    return Table("prior", "Estimated share of OOD, %", note, header, _filled(body))


def _over_alpha(results: _Results) -> Table:
    body = []
    methods = [
        (name, strategy)
        for name in ("corrected", "paper", "clean")
        if name in results.ratios
        for strategy in ("sirc", "linear")
    ]
    for ood_set in results.sets:
        lines = []
        for name, strategy in methods:
            cells = tuple(results.cell(ood_set, name, strategy, "plugin", alpha=a) for a in results.alphas)
            lines.append(((ood_set, f"{strategy}, {_title(name)}"), cells))
        lines.append(((ood_set, "MSP alone"), tuple(results.cell(ood_set, "msp", alpha=a) for a in results.alphas)))
        usable = [line for line in lines if "clean" not in line[0][1]]
        body += [*_best(usable), *(line for line in lines if "clean" in line[0][1])]
    header = ("OOD", "rule", *(f"alpha = {a:g}" for a in results.alphas))
    note = f"Plug-in rules; mixtures with pi = {results.pi}. Best of what can be had without OOD labels in bold."
    return Table("alpha", "Relative cost, AuSRT in %", note, header, _filled(body))


def _over_pi(results: _Results) -> Table:
    body = []
    for ood_set in results.sets:
        singles = _there(results.cell(ood_set, name) for name in results.scores)
        doubles = _there(
            results.cell(ood_set, name, s, "plugin") for name in results.scores for s in ("linear", "sirc")
        )
        hindsight = tuple(min(cells, key=lambda c: c.mean) if cells else None for cells in (singles, doubles))
        lines = [
            (
                (ood_set, f"{strategy}, {_title(name)}"),
                tuple(results.cell(ood_set, name, strategy, "plugin", pi=pi) for pi in results.pis),
            )
            for name in ("corrected", "paper", "standard")
            if name in results.ratios
            for strategy in ("sirc", "linear")
        ]
        body += [(labels, (*cells, *hindsight)) for labels, cells in _best(lines)]
    header = ("OOD", "rule", *(f"pi = {pi:g}" for pi in results.pis), "best single", "best double")
    note = "Plug-in rules. The last two columns do not depend on pi: the best single score and the best pair of 1 - MSP with one, in hindsight."
    return Table(
        "pi", f"Share of OOD in the mixture, AuSRT in %, alpha = {results.alpha:g}", note, header, _filled(body)
    )


TABLES: dict[str, Callable[[_Results], Table]] = {
    "single": _single,
    "clean": _clean,
    "sigmoid": _sigmoid,
    "contemporary": _contemporary,
    "plugin": _double("plugin"),
    "tuned": _double("tuned"),
    "estimators": _estimators,
    "prior": _prior,
}
"""Tables by name."""

ABLATIONS: dict[str, Callable[[_Results], Table]] = {"alpha": _over_alpha, "pi": _over_pi}
"""Ablations by what varies."""


def _ausrt_table(
    name: str, title: str, note: str, labels: tuple[str, ...], results: _Results, body: list[Any]
) -> Table:
    title = f"{title}, AuSRT in %, alpha = {results.alpha:g}"
    return Table(name, title, note, (*labels, *results.sets), _best(_filled(body)))


def _filled(body: list[Any]) -> list[Any]:
    """Leave out rows without any number."""
    return [row for row in body if any(cell is not None for cell in row[1])]


def _best(body: list[Any], largest: Iterable[int] = ()) -> list[Any]:
    """Mark the best number of every column, and all that print the same."""
    if not body:
        return body
    columns = []
    for i, column in enumerate(zip(*(cells for _, cells in body), strict=True)):
        sign = -1.0 if i in set(largest) else 1.0
        printed = [sign * round(c.mean, 2) for c in _there(column)]
        best = min(printed, default=math.nan)
        columns.append([c if c is None else c._replace(best=sign * round(c.mean, 2) == best) for c in column])
    return [(labels, cells) for (labels, _), cells in zip(body, zip(*columns, strict=True), strict=True)]


def _there(cells: Iterable[Any]) -> list[TableCell]:
    return [cell for cell in cells if cell is not None]


def _average(cells: Iterable[Any]) -> float:
    there = [cell.mean for cell in cells if cell is not None]
    return math.fsum(there) / len(there) if there else math.inf


def _title(name: str) -> str:
    return RATIOS[name].title if name in RATIOS else name


def _near_first(row: Mapping[str, Any]) -> tuple[bool, str, str]:
    return row["group"] != "near", row["group"], row["ood_set"]


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
