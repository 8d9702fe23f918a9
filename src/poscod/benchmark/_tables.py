# SPDX-License-Identifier: BSD-3-Clause
"""The paper's tables and ablations from the long table of results.

Convention: nothing is computed but means and standard deviations over folds and seeds (dividing by n - 1) and the choice of the best.
Numbers are percent. `TABLES` feeds the command line, the tests and the docs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from poscod._validation import check_choice
from poscod.benchmark._ratios import RATIOS
from poscod.exceptions import InvalidInputError
from poscod.scores import SCORES

Rows = Sequence[Mapping[str, Any]]
# What a row of results is: the lookup of a mean.
_KEY = ("ood_set", "method", "strategy", "setting", "metric", "alpha", "pi")
_SINGLE = ("single", "")
_PLUGIN = {"SIRC": ("sirc", "plugin"), "linear": ("linear", "plugin")}


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


Line = tuple[tuple[str, ...], tuple[TableCell | str | None, ...]]


class Table(NamedTuple):
    """A table for people.

    Attributes
    ----------
    name, title : str
        Key of `TABLES`, and words.
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
    body: list[Line]

    @property
    def n_labels(self) -> int:
        """Number of columns that hold labels."""
        return len(self.body[0][0]) if self.body else 1

    def document(self) -> dict[str, Any]:
        """Return the table as plain values."""
        rows = [
            {"labels": list(labels), "cells": [c._asdict() if isinstance(c, TableCell) else c for c in cells]}
            for labels, cells in self.body
        ]
        return {"name": self.name, "title": self.title, "note": self.note, "header": list(self.header), "rows": rows}


class _Results:
    """Means over folds and seeds, looked up by what a row is."""

    def __init__(self, rows: Rows, alpha: float, pi: float | None) -> None:
        self.sets = list(dict.fromkeys(row["ood_set"] for row in sorted(rows, key=_near_first)))
        self.pis = sorted({row["pi"] for row in rows if row["pi"] is not None})
        self.alphas = sorted({row["alpha"] for row in rows if row["alpha"] is not None})
        for name, value, there in (("alpha", alpha, self.alphas), ("pi", pi, self.pis)):
            if value is not None and (there or name == "pi") and value not in there:
                listed = ", ".join(f"{x:g}" for x in there)
                raise InvalidInputError(f"{name} must be one of {listed}, which the results have, got {value:g}.")
        self.alpha, self.pi = alpha, pi if pi is not None else max(self.pis, default=None)
        self._values: dict[tuple[Any, ...], list[float]] = {}
        for row in rows:
            self._values.setdefault(tuple(row[name] for name in _KEY), []).append(row["value"])
        methods = {row["method"] for row in rows}
        self.scores = [name for name in SCORES if name in methods]
        self.ratios = [name for name in RATIOS if name in methods]

    def seeing(self, *what: str) -> list[str]:
        """Return the ratios that saw these rows."""
        return [name for name in self.ratios if RATIOS[name].sees in what]

    def cell(
        self,
        ood_set: str,
        method: str,
        rule: tuple[str, str] = _SINGLE,
        metric: str = "ausrt",
        *,
        alpha: float | None = None,
        pi: float | None = None,
    ) -> TableCell | None:
        """Return the mean of one number; alpha and pi are those of the table where they are not given."""
        learned = method in RATIOS and RATIOS[method].sees == "mixture"
        share = (self.pi if pi is None else pi) if learned else None
        cost = None if metric != "ausrt" else self.alpha if alpha is None else alpha
        values = self._values.get((ood_set, method, *rule, metric, cost, share))
        return None if values is None else summarise([100.0 * v for v in values])

    def line(self, labels: tuple[str, ...], method: str, rule: tuple[str, str] = _SINGLE, **options: Any) -> Line:
        """Return the numbers of all OOD sets."""
        return labels, tuple(self.cell(name, method, rule, **options) for name in self.sets)

    def across(self, ood_set: str, names: Iterable[str], columns: Sequence[dict[str, Any]]) -> list[Line]:
        """Return the plug-in rules with some ratios on one OOD set, where alpha or pi varies over the columns."""
        return [
            ((ood_set, f"{word}, {name}"), tuple(self.cell(ood_set, name, rule, **column) for column in columns))
            for name in names
            for word, rule in _PLUGIN.items()
        ]

    def table(self, name: str, title: str, note: str, labels: tuple[str, ...], body: list[Line]) -> Table:
        """Put lines of AuSRT together, the best of each OOD set in bold."""
        title = f"{title}, AuSRT in %, alpha = {self.alpha:g}"
        return Table(name, title, note, (*labels, *self.sets), _best(_filled(body)))


def summarise(values: Sequence[float]) -> TableCell:
    """Return mean and standard deviation, with sums that do not depend on the order of values."""
    mean = math.fsum(values) / len(values)
    n = len(values)
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else math.nan
    return TableCell(mean, sd, n)


def table(name: str, rows: Rows, *, alpha: float = 0.5, pi: float | None = None) -> Table:
    """Make one of the paper's tables or ablations.

    Parameters
    ----------
    name : {"single", "clean", "sigmoid", "contemporary", "plugin", "tuned", "estimators", "prior", "alpha", "pi"}
        Which table; the last two are the ablations over the relative cost and over the share of OOD in the mixture.
    rows : sequence of dict
        From `read_results`.
    alpha : float, default=0.5
        Relative cost, where it does not vary.
    pi : float or None, default=None
        Share of OOD in the mixture that ratios were learned from, where it does not vary; None is the largest there is.

    Returns
    -------
    table : Table
        ``name``, ``title``, ``note``, ``header`` and ``body``, for `render`; without rows where the results have nothing to fill it with.
    """
    build = check_choice(name, "name", TABLES)
    return build(_Results(rows, alpha, pi))


def _single(results: _Results) -> Table:
    header = ["score", "AuRC", *(f"{name} {metric}" for name in results.sets for metric in ("AuROC", "AuSRT"))]
    body: list[Line] = []
    for name in results.scores:
        pairs = [results.cell(s, name, metric=metric) for s in results.sets for metric in ("auroc", "ausrt")]
        body.append(((name,), (results.cell(results.sets[0], name, metric="aurc"), *pairs)))
    body.sort(key=lambda row: _average(row[1][2::2]))
    largest = [i for i, title in enumerate(header[1:]) if title.endswith("AuROC")]
    note = (
        "AuRC by trapezoid; AuSRT of the raw curve (no envelope), so that AuSRT = (1 - alpha) AuRC + alpha (1 - AuROC). "
        "Sorted by mean AuSRT."
    )
    title = f"Single scores, %, alpha = {results.alpha:g}"
    return Table("single", title, note, tuple(header), _best(body, largest))


def _clean(results: _Results) -> Table:
    pairs = [(setting, strategy) for setting in ("tuned", "plugin") for strategy in ("sirc", "linear")]
    rules = {f"{setting} {strategy}": (strategy, setting) for setting, strategy in pairs}
    rules["likelihood ratio alone"] = _SINGLE
    ratios = results.seeing("clean", "world")
    body = [results.line((ratio, name), ratio, rule) for ratio in ratios for name, rule in rules.items()]
    if body:
        body.append(results.line(("-", "MSP alone"), "msp"))
    note = "The ratio is learned from labeled OOD rows, which nobody has in practice. Tuned rows choose on the measured rows: a bound."
    return results.table("clean", "Two scores with a clean likelihood ratio", note, ("ratio", "rule"), body)


def _sigmoid(results: _Results) -> Table:
    rules = {**_PLUGIN, "ratio alone": _SINGLE}
    ratios = results.seeing("mixture")
    body = [results.line((ratio, name), ratio, rule) for ratio in ratios for name, rule in rules.items()]
    note = f"Plug-in rules; the ratio is learned from an unlabeled mixture with pi = {results.pi}."
    return results.table("sigmoid", "Corrected against standard sigmoid", note, ("ratio", "rule"), body)


def _contemporary(results: _Results) -> Table:
    body = []
    for group, rule in {"single score": _SINGLE, "linear": _PLUGIN["linear"], "SIRC": _PLUGIN["SIRC"]}.items():
        lines = _filled([results.line((group, name), name, rule) for name in results.scores])
        body += sorted(lines, key=lambda line: _average(line[1]))[:3]
        if rule != _SINGLE:
            body.append(results.line((group, "strong"), "strong", rule))
    note = (
        f"The three scores with the smallest mean of each group, chosen on the measured rows (in their favour); the ratio with pi = {results.pi}. "
        "Plug-in rules."
    )
    return results.table("contemporary", "Practically usable rules", note, ("rule", "second score"), body)


def _plugin(results: _Results) -> Table:
    note = f"Parameters from theory (linear) or from the heuristic (SIRC); ratios from mixtures with pi = {results.pi}."
    return _double(results, "plugin", "Plug-in double scores", note)


def _tuned(results: _Results) -> Table:
    return _double(
        results, "tuned", "Tuned double scores", "Parameters chosen on the measured rows: **a bound, not a result**."
    )


def _double(results: _Results, setting: str, title: str, note: str) -> Table:
    names = (*results.scores, *(r for r in results.ratios if r in ("strong", "paper", "clean", "clean_lr", "exact")))
    groups = {"linear": ("linear", setting), "SIRC": ("sirc", setting)}  # as the paper orders them
    body = [results.line((group, name), name, rule) for group, rule in groups.items() for name in names]
    if _filled(body):
        body = [results.line(("single score", name), name) for name in names] + body
    return results.table(setting, title, note, ("rule", "second score"), body)


def _estimators(results: _Results) -> Table:
    """Our estimator beside the paper's recipe and the clean oracle, at every share of OOD."""
    body: list[Line] = []
    for pi in reversed(results.pis):
        lines = [results.line((f"{pi:g}", r), r, _PLUGIN["linear"], pi=pi) for r in results.seeing("mixture")]
        body += _best(lines)
    body += [results.line(("-", r), r, _PLUGIN["linear"]) for r in results.seeing("clean", "world")]
    if body:
        best = tuple(_smallest(results.cell(s, name) for name in results.scores) for s in results.sets)
        body += [(("-", "best single score, in hindsight"), best), results.line(("-", "MSP alone"), "msp")]
        body.append(results.line(("-", "exact optimum"), "optimum", ("optimum", "")))
    note = "Plug-in linear rule. Best of each pi in bold; the lowest rows see more than a mixture, or nothing of it."
    title = f"Estimators of the ratio, AuSRT in %, alpha = {results.alpha:g}"
    return Table("estimators", title, note, ("pi", "ratio", *results.sets), _filled(body))


def _prior(results: _Results) -> Table:
    ratios = [r for r in results.seeing("mixture") if r != "standard"]
    body = [results.line((f"{pi:g}", r), r, metric="ood_prior", pi=pi) for pi in reversed(results.pis) for r in ratios]
    note = "Estimated share of OOD rows in the mixture; 0 means that no OOD was found and the ID-only rule is used."
    return Table("prior", "Estimated share of OOD, %", note, ("pi", "ratio", *results.sets), _filled(body))


def _over_alpha(results: _Results) -> Table:
    costs = [{"alpha": alpha} for alpha in results.alphas]
    body = []
    for ood_set in results.sets:
        msp = (ood_set, "MSP alone"), tuple(results.cell(ood_set, "msp", **cost) for cost in costs)
        body += _best(_filled([*results.across(ood_set, ("strong", "paper"), costs), msp]))
        body += _filled(results.across(ood_set, ("clean",), costs))
    header = ("OOD", "rule", *(f"alpha = {alpha:g}" for alpha in results.alphas))
    note = f"Plug-in rules; mixtures with pi = {results.pi}. Best of what can be had without OOD labels in bold."
    return Table("alpha", "Relative cost, AuSRT in %", note, header, body)


def _over_pi(results: _Results) -> Table:
    shares = [{"pi": pi} for pi in results.pis]
    body: list[Line] = []
    for ood_set in results.sets:
        lines = _best(_filled(results.across(ood_set, ("strong", "paper", "standard"), shares)))
        single = _smallest(results.cell(ood_set, name) for name in results.scores)
        double = _smallest(results.cell(ood_set, name, r) for name in results.scores for r in _PLUGIN.values())
        body += [(labels, (*cells, single, double)) for labels, cells in lines]
    header = ("OOD", "rule", *(f"pi = {pi:g}" for pi in results.pis), "best single", "best double")
    note = "Plug-in rules. The last two columns do not depend on pi: the best single score and the best pair of 1 - MSP with one, in hindsight."
    title = f"Share of OOD in the mixture, AuSRT in %, alpha = {results.alpha:g}"
    return Table("pi", title, note, header, body)


TABLES: dict[str, Callable[[_Results], Table]] = {
    "single": _single,
    "clean": _clean,
    "sigmoid": _sigmoid,
    "contemporary": _contemporary,
    "plugin": _plugin,
    "tuned": _tuned,
    "estimators": _estimators,
    "prior": _prior,
    "alpha": _over_alpha,
    "pi": _over_pi,
}
"""Tables by name; the last two are the ablations, by what varies."""


def _filled(body: list[Line]) -> list[Line]:
    """Leave out rows without any number."""
    return [row for row in body if any(cell is not None for cell in row[1])]


def _best(body: list[Line], largest: Iterable[int] = ()) -> list[Line]:
    """Mark the best number of every column, and all that print the same."""
    columns: list[list[Any]] = []
    for i, column in enumerate(zip(*(cells for _, cells in body), strict=True)):
        sign = -1.0 if i in set(largest) else 1.0
        best = min((sign * round(c.mean, 2) for c in _there(column)), default=math.nan)
        columns.append([c if c is None else c._replace(best=sign * round(c.mean, 2) == best) for c in column])
    return [(labels, cells) for (labels, _), cells in zip(body, zip(*columns, strict=True), strict=True)]


def _there(cells: Iterable[Any]) -> list[TableCell]:
    return [cell for cell in cells if cell is not None]


def _smallest(cells: Iterable[Any]) -> TableCell | None:
    return min(_there(cells), key=lambda cell: cell.mean, default=None)


def _average(cells: Iterable[Any]) -> float:
    there = _there(cells)
    return math.fsum(cell.mean for cell in there) / len(there) if there else math.inf


def _near_first(row: Mapping[str, Any]) -> tuple[bool, str, str]:
    return row["group"] != "near", row["group"], row["ood_set"]
