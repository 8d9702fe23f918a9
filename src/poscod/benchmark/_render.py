# SPDX-License-Identifier: BSD-3-Clause
"""Tables as text: Markdown, LaTeX and CSV.

Convention: two decimals, mean ± sd where there are several values; the best in bold; CSV is long, one number per line, not rounded. Whatever a name contains is escaped for the language it is written in.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable

from poscod._validation import check_choice
from poscod.benchmark._tables import Table, TableCell

__all__ = ["FORMATS", "render"]

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
}
_MARKDOWN = {"\\": "\\\\", "|": r"\|", "*": r"\*", "_": r"\_", "<": r"\<", "`": r"\`"}


def render(table: Table, form: str = "markdown") -> str:
    r"""Write a table as text.

    Parameters
    ----------
    table : Table
    form : {"markdown", "latex", "csv"}, default="markdown"

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


def _number(cell: TableCell) -> str:
    return f"{cell.mean:.2f}" if math.isnan(cell.sd) else f"{cell.mean:.2f} ± {cell.sd:.2f}"


def _escape(text: str, marks: dict[str, str]) -> str:
    return "".join(marks.get(letter, letter) for letter in text)


def _markdown(table: Table) -> str:
    def cell(value: TableCell | str | None) -> str:
        if isinstance(value, TableCell):
            return f"**{_number(value)}**" if value.best else _number(value)
        return "" if value is None else _escape(value, _MARKDOWN)

    lines = [f"### {_escape(table.title, _MARKDOWN)}", "", table.note, ""]
    lines += [f"| {' | '.join(_escape(name, _MARKDOWN) for name in table.header)} |", "|" + "---|" * len(table.header)]
    for labels, cells in table.body:
        lines.append(f"| {' | '.join([*(cell(label) for label in labels), *(cell(c) for c in cells)])} |")
    return "\n".join(lines) + "\n"


def _latex(table: Table) -> str:
    def cell(value: TableCell | str | None) -> str:
        if isinstance(value, TableCell):
            text = _escape(_number(value), _LATEX)
            return rf"\textbf{{{text}}}" if value.best else text
        return "" if value is None else _escape(value, _LATEX)

    n_labels = len(table.body[0][0]) if table.body else 1
    columns = "l" * n_labels + "r" * (len(table.header) - n_labels)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape(table.title, _LATEX)}. {_escape(table.note.replace('**', ''), _LATEX)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        " & ".join(_escape(name, _LATEX) for name in table.header) + r" \\ \hline",
    ]
    for labels, cells in table.body:
        lines.append(" & ".join([*(cell(label) for label in labels), *(cell(c) for c in cells)]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", r"\end{table}"]) + "\n"


def _csv(table: Table) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    n_labels = len(table.body[0][0]) if table.body else 1
    labels, columns = table.header[:n_labels], table.header[n_labels:]
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
