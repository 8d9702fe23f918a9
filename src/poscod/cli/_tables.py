# SPDX-License-Identifier: BSD-3-Clause
"""Tables in and out: one mapping from a file's extension to how it is read and written.

Convention: reading streams blocks of rows (`poscod.cli._columns.Block`), writing takes blocks of columns and the file appears as
a whole or not at all. ``-`` as an output is CSV on standard output. A folder of CSV, Parquet or Arrow files is one table, its files in
the order of their names.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

from poscod._files import check_source, check_target, replacing
from poscod._validation import listed
from poscod.cli._arrays import ArrayWriter, open_npy, open_npz
from poscod.cli._arrow import CsvTable, open_ipc, open_parquet
from poscod.cli._columns import Block, Table, arrow, to_arrow
from poscod.cli._console import visible
from poscod.cli._excel import ExcelWriter, open_excel
from poscod.exceptions import InvalidInputError


class Format(NamedTuple):
    """How files of one extension are read and written; `write` makes a writer from a file, the folder it lies in and the Arrow schema."""

    read: Callable[[Path, list[Path], bool], Table]
    write: Callable[[BinaryIO, Path, Any], Any]


FORMATS: dict[str, Format] = {
    ".csv": Format(CsvTable, lambda file, _, schema: arrow("pyarrow.csv").CSVWriter(file, schema)),
    ".parquet": Format(open_parquet, lambda file, _, schema: arrow("pyarrow.parquet").ParquetWriter(file, schema)),
    ".npz": Format(open_npz, lambda file, folder, _: ArrayWriter(file, folder, archive=True)),
    ".npy": Format(open_npy, lambda file, folder, _: ArrayWriter(file, folder, archive=False)),
    ".arrow": Format(open_ipc, lambda file, _, schema: arrow("pyarrow.ipc").new_file(file, schema)),
    ".feather": Format(open_ipc, lambda file, _, schema: arrow("pyarrow.ipc").new_file(file, schema)),
    ".xlsx": Format(open_excel, lambda file, _, schema: ExcelWriter(file, schema)),
}
"""Extension of a file to how it is read and written."""
# Cells that a program for spreadsheets would compute: they start like a formula and are no number.
_FORMULA, _NUMBER = r"^[=+\-@\t\r]", r"^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$"
_FOR_SPREADSHEETS = (".csv", ".xlsx")
_IN_FOLDERS = (".csv", ".parquet", ".arrow", ".feather")


def open_table(path: str | os.PathLike[str], *, whole: bool = False) -> Table:
    """Open a table for reading; `whole` where all rows will be read, so that a text file is parsed once.

    Notes
    -----
    Duplicate names of columns and tables without rows are refused.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TableWriter(folder + "/a.npz") as file:
    ...         file.write({"id": np.array(["x", "y"]), "features": np.array([[1.0, 2.0], [3.0, 4.0]])})
    ...     table = open_table(folder + "/a.npz")
    ...     [(column.name, column.kind) for column in table.columns.values()], table.n_rows
    ([('id', 'text'), ('features', 'matrix')], 2)
    """
    source = Path(path)
    files = files_of(source)
    table = format_of(files[0]).read(source, files, whole)
    if table.n_rows == 0 or (table.n_rows is None and next(table.chunks(1), None) is None):
        raise InvalidInputError(f"{source} has no rows: it needs at least one.")
    return table


def files_of(path: Path) -> list[Path]:
    """Return the files of a table: itself, or those of a folder."""
    if not path.is_dir():
        format_of(path)
        check_source(path)
        return [path]
    found = sorted(p for p in path.rglob("*") if p.suffix.lower() in _IN_FOLDERS and p.name[0] not in "._")
    if len({file.suffix.lower() for file in found}) != 1:
        raise InvalidInputError(
            f"{path} is a folder, and must hold files of one format ({', '.join(_IN_FOLDERS)}), got {listed(found) or 'none'}."
        )
    return found


@final
class TableWriter(contextlib.ExitStack):
    """Write a table block by block; the file appears, or is replaced, when the block ends without an error.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TableWriter(folder + "/a.csv") as file:
    ...         file.write({"name": np.array(["x"]), "value": np.array([0.5])})
    ...         file.write({"name": np.array(["y"]), "value": np.array([1.5])})
    ...     Path(folder, "a.csv").read_text().split()
    ['"name","value"', '"x",0.5', '"y",1.5']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = Path(path)
        self._stdout = os.fspath(path) == "-"
        self._format = FORMATS[".csv"] if self._stdout else format_of(self.path)
        self._writer: Any = None

    def __enter__(self) -> TableWriter:
        self._file: Any = sys.stdout.buffer if self._stdout else self.enter_context(replacing(self.path))
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append a block of numpy or Arrow columns; the first one fixes names, order and types of the columns."""
        raw = columns.table if isinstance(columns, Block) else columns
        arrays = {name: to_arrow(raw[name], name) for name in columns}
        if self._stdout or self.path.suffix.lower() in _FOR_SPREADSHEETS:
            flat = {_flat_name(name): _flat(values, name) for name, values in arrays.items()}
            if len(flat) < len(arrays):
                raise InvalidInputError(
                    "two names of columns are one for spreadsheets, which have no control characters: rename one."
                )
            arrays = flat
        table = arrow().table(arrays)
        if self._writer is None:
            self._schema = table.schema
            self._writer = self._format.write(self._file, self.path.parent, self._schema)
            self.callback(self._writer.close)  # before the draft becomes the file, or is thrown away
        self._writer.write(table.cast(self._schema))


def _flat(values: Any, name: str) -> Any:
    """Return a column as CSV can hold it, and as a program for spreadsheets takes it for a text."""
    types, compute = arrow().types, arrow("pyarrow.compute")
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if types.is_string(values.type) or types.is_large_string(values.type):
        starts, number = (compute.match_substring_regex(values, pattern) for pattern in (_FORMULA, _NUMBER))
        formula = compute.and_not(starts, number)
        if compute.any(formula).as_py():
            return compute.if_else(
                formula, compute.replace_substring_regex(values, "^", "'", max_replacements=1), values
            )
    if types.is_nested(values.type):
        raise InvalidInputError(
            f"column '{name}' holds lists, which CSV and Excel cannot: write Parquet or NPZ, or leave the column out."
        )
    return values


def _flat_name(name: str) -> str:
    """Return the name of a column as CSV and those who look at it can hold it."""
    shown = visible(name)
    return f"'{shown}" if re.match(_FORMULA, shown) and not re.match(_NUMBER, shown) else shown


def check_output(path: str | os.PathLike[str] | None, inputs: Sequence[str | os.PathLike[str]]) -> None:
    """Refuse an output that is one of the inputs, or whose folder does not exist, before any work is done."""
    if path is None or os.fspath(path) == "-":
        return
    target = Path(path)
    if not target.absolute().parent.is_dir():
        raise InvalidInputError(f"cannot write {target}: the folder {target.parent} does not exist; create it first.")
    if not os.access(target.absolute().parent, os.W_OK | os.X_OK):
        raise InvalidInputError(f"cannot write {target}: the folder {target.parent} may not be written to.")
    check_target(target)
    if any(same_file(target, source) for source in inputs):
        raise InvalidInputError(f"the output {target} is also an input: choose another name.")


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Tell whether two names are those of one file that is there."""
    return Path(one).exists() and Path(other).exists() and Path(one).samefile(other)


def format_of(path: Path) -> Format:
    """Return the format that the name of a table says, or refuse the name."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidInputError(f"the name of a table must end in {', '.join(FORMATS)}, got '{path}'.")
    return FORMATS[path.suffix.lower()]
