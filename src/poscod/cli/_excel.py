# SPDX-License-Identifier: BSD-3-Clause
"""Excel files: the first sheet is a table, with names in its first row; written ones have one sheet.

Convention: a column is numbers, truth values, times or texts by all its cells, as in CSV; formulas count with the value that was saved with them. The whole sheet comes
into memory, which Excel's million rows bound.
"""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from poscod._optional import require
from poscod.cli._arrow import GAPS, sentences
from poscod.cli._columns import Column, Table, arrow, arrow_kind, check_width
from poscod.exceptions import InvalidInputError

MOST_ROWS = 1_048_576
"""Rows of a sheet, with the names."""
# Sheets shrink by less; a file that claims more is made to fill the memory.
_LARGEST_GROWTH = 200


class ExcelTable(Table):
    """A sheet in memory."""

    gaps = frozenset({None, *GAPS})

    def __init__(self, path: Path, table: Any) -> None:
        self._table = table
        super().__init__(path, [Column(field.name, *arrow_kind(field.type)) for field in table.schema], table.num_rows)

    def _batches(self, rows: int, names: list[str]) -> Iterator[Any]:
        yield from self._table.select(names).to_batches(rows)


def open_excel(path: Path, files: list[Path], whole: bool) -> Table:
    """Read the first sheet of an Excel file."""
    excel = require("openpyxl", extra="excel", feature="Reading Excel files")
    with sentences(path, "Excel"):
        _check_growth(path)
        book = excel.load_workbook(path, read_only=True, data_only=True)
        try:
            rows = list(book.worksheets[0].iter_rows(values_only=True))
        finally:
            book.close()
        while rows and all(cell is None for cell in rows[-1]):
            rows.pop()
        head = list(rows[0]) if rows else []
        while head and head[-1] is None:
            head.pop()
        check_width(path, len(head))
        if not head or any(name is None for name in head):
            raise InvalidInputError(f"{path} must have the name of each column in the first row of its first sheet.")
        names = [str(name) for name in head]
        columns = [[row[j] if j < len(row) else None for row in rows[1:]] for j in range(len(names))]
        table = arrow().Table.from_arrays([_typed(cells) for cells in columns], names=names)
    return ExcelTable(path, table)


def _check_growth(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if sum(info.file_size for info in archive.infolist()) > _LARGEST_GROWTH * path.stat().st_size:
            raise InvalidInputError(f"{path} declares far more than it can hold: it is not read.")


def _typed(cells: list[Any]) -> Any:
    """Return cells as an Arrow column of one type."""
    pa = arrow()
    cells = [None if isinstance(cell, str) and cell.strip() in GAPS else cell for cell in cells]
    kinds = {type(cell) for cell in cells if cell is not None}
    if not kinds:
        return pa.nulls(len(cells), pa.float64())
    if kinds in ({bool}, {int}):
        return pa.array(cells)
    if kinds <= {int, float}:
        return pa.array([None if cell is None else float(cell) for cell in cells])
    if kinds <= {datetime.datetime, datetime.date}:
        return pa.array([_moment(cell) for cell in cells], pa.timestamp("us"))
    return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())


def _moment(cell: Any) -> Any:
    if cell is None or isinstance(cell, datetime.datetime):
        return cell
    return datetime.datetime.combine(cell, datetime.time())


class ExcelWriter:
    """Writes Arrow tables into one sheet; what a program for spreadsheets would compute has been made a text before."""

    def __init__(self, file: BinaryIO, schema: Any) -> None:
        excel = require("openpyxl", extra="excel", feature="Writing Excel files")
        self._file, self._rows = file, 1
        self._book = excel.Workbook(write_only=True)
        self._sheet = self._book.create_sheet("poscod")
        self._sheet.append(schema.names)

    def write(self, table: Any) -> None:
        """Append rows."""
        self._rows += table.num_rows
        if self._rows > MOST_ROWS:
            raise InvalidInputError(f"an Excel sheet holds {MOST_ROWS:,} rows at most: write CSV or Parquet.")
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            self._sheet.append([_cell(value) for value in row])

    def close(self) -> None:
        """Write the file."""
        self._book.save(self._file)


def _cell(value: Any) -> Any:
    """Return a value as Excel can hold it: no infinities, no characters that XML forbids."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, str):
        return "".join(c if c.isprintable() or c in "\n\t" else " " for c in value)[:32767]
    return None if isinstance(value, float) and value != value else value
