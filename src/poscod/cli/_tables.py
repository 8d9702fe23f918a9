# SPDX-License-Identifier: BSD-3-Clause
"""Tables in and out: one mapping from a file's extension to how it is read and written.

Convention: reading streams blocks of rows (`poscod.cli._columns.Rows`), writing takes blocks of columns and the file appears as
a whole or not at all. ``-`` as an output is CSV on standard output.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, final

from poscod._files import check_target, replacing
from poscod.cli._arrays import ArrayWriter, open_npy, open_npz
from poscod.cli._arrow import ArrowTable, CsvTable, ParquetTable, csv_writer, ipc_writer, parquet_writer
from poscod.cli._columns import Column, Rows, Table, listed
from poscod.exceptions import InvalidInputError

__all__ = ["FORMATS", "Column", "Rows", "Table", "TableWriter", "check_output", "listed", "open_table"]


class Format(NamedTuple):
    """How files of one extension are read and written."""

    read: Callable[[Path], Table]
    write: Callable[[BinaryIO, Path], Any]


FORMATS: dict[str, Format] = {
    ".csv": Format(CsvTable, lambda file, _: csv_writer(file)),
    ".parquet": Format(ParquetTable, lambda file, _: parquet_writer(file)),
    ".npz": Format(open_npz, lambda file, folder: ArrayWriter(file, folder, archive=True)),
    ".npy": Format(open_npy, lambda file, folder: ArrayWriter(file, folder, archive=False)),
    ".arrow": Format(ArrowTable, lambda file, _: ipc_writer(file)),
    ".feather": Format(ArrowTable, lambda file, _: ipc_writer(file)),
}
"""Extension of a file to how it is read and written."""


def open_table(path: str | os.PathLike[str]) -> Table:
    """Open a table for reading.

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
    form = _format(source)
    source.open("rb").close()  # the system's own words where there is no such file
    table = form.read(source)
    if table.n_rows == 0 or (table.n_rows is None and next(table.chunks(1), None) is None):
        raise InvalidInputError(f"{source} has no rows: it needs at least one.")
    return table


@final
class TableWriter:
    """Write a table block by block; the file appears, or is replaced, when the block ends without an error.

    Parameters
    ----------
    path : str or path-like
        Name ending in an extension of `FORMATS`; ``-`` is CSV on standard output.

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
        self.path = Path(path)
        self._stdout = os.fspath(path) == "-"
        self._format = FORMATS[".csv"] if self._stdout else _format(self.path)

    def __enter__(self) -> TableWriter:
        self._stack = contextlib.ExitStack()
        file: Any = sys.stdout.buffer if self._stdout else self._stack.enter_context(replacing(self.path))
        self._writer = self._format.write(file, self.path.parent)
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append a block; the first one fixes names, order and types of the columns."""
        self._writer.write(columns)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._writer.close()
        except BaseException as failure:
            if kind is None:
                self._stack.__exit__(type(failure), failure, failure.__traceback__)
                raise
            # After a first error the end of the file cannot matter: the draft is thrown away.
        self._stack.__exit__(kind, error, trace)


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
    for source in inputs:
        if target.exists() and Path(source).exists() and target.samefile(source):
            raise InvalidInputError(f"the output {target} is also an input: choose another name.")


def _format(path: Path) -> Format:
    if path.suffix.lower() not in FORMATS:
        raise InvalidInputError(f"the name of a table must end in {', '.join(FORMATS)}, got '{path}'.")
    return FORMATS[path.suffix.lower()]
