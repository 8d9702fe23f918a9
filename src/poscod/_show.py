# SPDX-License-Identifier: BSD-3-Clause
"""How values look in a session and in a notebook: a short line, and a small table of HTML.

Convention: numbers are rounded to three digits and come with their interval; every text is escaped, so that names of classes and columns stay text.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# Rows of a table that are shown.
SHOWN = 8


def words(value: Any) -> str:
    """Return a value in a few letters; an interval with its ends.

    Examples
    --------
    >>> words(0.94937286), words(12345.6), words("cat")
    ('0.949', '12,346', 'cat')
    """
    if hasattr(value, "estimate"):
        return f"{words(value.estimate)} [{words(value.low)}, {words(value.high)}]"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return f"{number:,.0f}" if 1000 <= abs(number) < 1e9 else f"{number:.3g}"
    return f"{value:,}" if isinstance(value, (int, np.integer)) else str(value)


def line(values: Mapping[str, Any]) -> str:
    """Return named values in one line.

    Examples
    --------
    >>> line({"tpr": 0.95, "rows": 1200})
    'tpr 0.95, rows 1,200'
    """
    return ", ".join(f"{name} {words(value)}" for name, value in values.items())


def paragraph(text: str, title: str = "") -> str:
    """Return a text as HTML."""
    head = f"<b>{html.escape(title)}</b> " if title else ""
    return f"<p style='max-width:60em;margin:.4em 0'>{head}{html.escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML.

    Examples
    --------
    >>> "&lt;b&gt;" in table(["class"], [["<b>"]])
    True
    """
    style = "text-align:left;padding:.15em .8em .15em 0;vertical-align:top"
    top = "".join(f"<th style='{style}'>{html.escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='{style}'>{html.escape(words(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def quantities(values: Mapping[str, Any], level: float) -> str:
    """Return named intervals as a table."""
    rows = [
        [name, v.estimate, f"{words(v.low)} to {words(v.high)}"] if hasattr(v, "estimate") else [name, v, ""]
        for name, v in values.items()
    ]
    return table(["", "estimate", f"{100 * level:g} % interval"], rows)


def first_rows(columns: Mapping[str, Sequence[Any]], note: str) -> str:
    """Return the first rows of equally long columns as a table, and how many there are."""
    n = len(next(iter(columns.values())))
    shown = [[column[i] for column in columns.values()] for i in range(min(n, SHOWN))]
    return (
        paragraph(note) + table(list(columns), shown) + (paragraph(f"The first {SHOWN} of {n:,}.") if n > SHOWN else "")
    )
