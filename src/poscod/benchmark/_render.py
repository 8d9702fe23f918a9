# SPDX-License-Identifier: BSD-3-Clause
"""Tables as text: Markdown, LaTeX and CSV.

Convention: two decimals, mean ± sd where there are several values; the best in bold; CSV is long, one number per line, not rounded. Whatever a name contains is escaped for the language it is written in.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping

from poscod._validation import check_choice
from poscod.benchmark._tables import Table, TableCell

_MARKDOWN = {mark: f"\\{mark}" for mark in "\\|*_<`"}
_LATEX = {mark: f"\\{mark}" for mark in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
}


def render(table: Table, form: str = "markdown") -> str:
    r"""Write a table as text.

    Parameters
    ----------
    table : Table
        From `table` or `compare`.
    form : {"markdown", "latex", "csv"}, default="markdown"
        Language of the text.

    Returns
    -------
    text : str
        Ends in a line break.

    Examples
    --------
    >>> cell = TableCell(6.0249, 0.153, 5, best=True)
    >>> print(render(Table("t", "A title", "A note.", ("score", "svhn"), [(("ash_s",), (cell,))])))
    ### A title
    <BLANKLINE>
    A note.
    <BLANKLINE>
    | score | svhn |
    |---|---|
    | ash\_s | **6.02 ± 0.15** |
    <BLANKLINE>
    """
    return check_choice(form, "form", FORMATS)(table)


def _markdown(table: Table) -> str:
    header, *body = _texts(table, _MARKDOWN, "**{}**")
    lines = [f"### {_escape(table.title, _MARKDOWN)}", "", table.note, ""]
    lines += [f"| {' | '.join(header)} |", "|" + "---|" * len(header), *(f"| {' | '.join(row)} |" for row in body)]
    return "\n".join(lines) + "\n"


def _latex(table: Table) -> str:
    header, *body = _texts(table, _LATEX, r"\textbf{{{}}}")
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape(table.title, _LATEX)}. {_escape(table.note.replace('**', ''), _LATEX)}}}",
        rf"\begin{{tabular}}{{{'l' * table.n_labels + 'r' * (len(header) - table.n_labels)}}}",
        r"\hline",
        " & ".join(header) + r" \\ \hline",
        *(" & ".join(row) + r" \\" for row in body),
        r"\hline",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _csv(table: Table) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    labels, columns = table.header[: table.n_labels], table.header[table.n_labels :]
    writer.writerow(["table", *labels, "column", "mean", "sd", "n", "best"])
    for names, cells in table.body:
        for column, value in zip(columns, cells, strict=True):
            if isinstance(value, TableCell):
                sd = "" if math.isnan(value.sd) else f"{value.sd:.10g}"
                writer.writerow([table.name, *names, column, f"{value.mean:.10g}", sd, value.n, int(value.best)])
            elif value is not None:
                writer.writerow([table.name, *names, column, value, "", "", ""])
    return text.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"csv": _csv, "latex": _latex, "markdown": _markdown}
"""Formats of `render`."""


def _texts(table: Table, marks: Mapping[str, str], bold: str) -> list[list[str]]:
    """Return header and body as escaped texts."""

    def text(value: TableCell | str | None) -> str:
        if not isinstance(value, TableCell):
            return _escape(value or "", marks)
        number = f"{value.mean:.2f}" if math.isnan(value.sd) else f"{value.mean:.2f} ± {value.sd:.2f}"
        return bold.format(_escape(number, marks)) if value.best else _escape(number, marks)

    return [[text(value) for value in (*labels, *cells)] for labels, cells in [(table.header, ()), *table.body]]


def _escape(text: str, marks: Mapping[str, str]) -> str:
    return "".join(marks.get(letter, letter) for letter in text)
