# SPDX-License-Identifier: BSD-3-Clause
"""What the OOD inputs of a log are, for commands that keep counts of it alone."""

from __future__ import annotations

from typing import Any

from poscod._json import plain
from poscod.cli._columns import Table
from poscod.cli._fresh import shown_columns
from poscod.cli._inputs import read_rows
from poscod.cli._times import times_of
from poscod.model import Schema
from poscod.report import strangers_section

# Typical rows of a group, and their columns.
_EXAMPLES, _CELLS = 3, 6


def strangers_of(model: Any, table: Table, schema: Schema, time: str | None, level: float) -> dict[str, Any] | None:
    """Return groups of similar OOD inputs with rows of the table, which is read whole, as a report has them."""
    rows, times = read_rows(schema, table), times_of(table, time) if time else None
    names = [str(name) for name in schema.labels(model.scorer_.classes).tolist()]
    shown = shown_columns(table, schema, _CELLS)
    found = strangers_section(model, rows, names, shown, (_EXAMPLES, _CELLS), level, times=times)
    document: dict[str, Any] | None = plain(found)
    return document
