# SPDX-License-Identifier: BSD-3-Clause
"""What a table is to a command: named columns of a kind, and blocks of rows that turn into numpy arrays when asked.

Convention: rows are counted from 1 in messages, without a header line. A block keeps its columns as the file has them
(`Rows.raw`), so that what is only passed on loses nothing; ``rows[name]`` is a numpy array. Gaps among numbers are NaN.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import nearest
from poscod.exceptions import InvalidInputError

KINDS: dict[str, str] = {
    "number": "one number per row",
    "bool": "true or false",
    "text": "one text per row",
    "matrix": "a list of numbers per row, all of one length",
    "other": "anything else, such as dates: passed on as it is",
}
"""Kinds of columns and what they hold."""


class Column(NamedTuple):
    """One column of a table.

    Attributes
    ----------
    name : str
    kind : str
        A key of `KINDS`.
    width : int or None
        Numbers per row of a matrix where the file says so before it is read.
    remark : str
        For a column of texts that starts as numbers: where it stops being one.
    """

    name: str
    kind: str
    width: int | None = None
    remark: str = ""


class Rows(Mapping[str, NDArray[Any]]):
    """A block of consecutive rows: a mapping from column names to numpy arrays.

    Parameters
    ----------
    columns : mapping of str to array
        numpy or pyarrow arrays of one length.
    n_rows : int
        That length.
    source : str or path-like, default="the table"
        File of the rows, for messages.
    start : int, default=0
        Rows of the file before this block, for messages.

    Examples
    --------
    >>> rows = Rows({"a": np.array([1, 2]), "b": np.array([0.5, 1.5])}, 2)
    >>> rows.n_rows, list(rows), rows["b"].tolist(), rows.matrix(["b", "a"]).tolist()
    (2, ['a', 'b'], [0.5, 1.5], [[0.5, 1.0], [1.5, 2.0]])
    """

    def __init__(
        self, columns: Mapping[str, Any], n_rows: int, source: str | Path = "the table", start: int = 0
    ) -> None:
        self._columns = columns
        self.n_rows, self.source, self.start = n_rows, source, start

    def __getitem__(self, name: str) -> NDArray[Any]:
        values = self._columns[name]
        if isinstance(values, np.ndarray):
            return values
        return arrow_to_numpy(values, f"column '{name}' of {self.source}", self.start)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def raw(self, name: str) -> Any:
        """Return a column as the file has it: a numpy or a pyarrow array."""
        return self._columns[name]

    def matrix(self, names: Sequence[str]) -> NDArray[Any]:
        """Return columns side by side as finite numbers."""
        parts = [self._finite(name) for name in names]
        small = all(part.dtype in (np.float16, np.float32) for part in parts)
        matrix = np.empty((self.n_rows, sum(part.shape[1] for part in parts)), np.float32 if small else np.float64)
        at = 0
        for part in parts:
            matrix[:, at : at + part.shape[1]] = part
            at += part.shape[1]
        return matrix

    def _finite(self, name: str) -> NDArray[Any]:
        values = self[name]
        what = f"column '{name}' of {self.source}"
        if values.dtype.kind not in "fiub":
            raise InvalidInputError(f"{what} must hold numbers, got {_first_text(values, self.start)}.")
        part = values.reshape(self.n_rows, -1) if values.ndim != 2 else values
        if part.dtype.kind == "f" and not np.isfinite(part).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(part))[0])
            got = "a gap or NaN" if np.isnan(part[row, column]) else f"{part[row, column]}"
            raise InvalidInputError(
                f"{what} must hold finite numbers, got {got} at row {self.start + row + 1}: drop or impute such rows."
            )
        return part


class Table:
    """A file of rows, opened for reading; see `poscod.cli._tables.open_table`.

    Parameters
    ----------
    path : Path
    columns : sequence of Column
        In the order of the file.
    n_rows : int or None
        None where only reading tells.
    """

    def __init__(self, path: Path, columns: Sequence[Column], n_rows: int | None) -> None:
        self.path = path
        self.columns = {column.name: column for column in columns}
        self.n_rows = n_rows
        names = [column.name for column in columns]
        if twice := sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []:
            raise InvalidInputError(
                f"{path} has several columns of the name '{twice[0]}': give each a name of its own."
            )
        if not columns:
            raise InvalidInputError(f"{path} has no columns.")

    def chunks(self, rows: int = 65536, columns: Sequence[str] | None = None) -> Iterator[Rows]:
        """Iterate over consecutive blocks of at most `rows` rows, so that memory stays bounded."""
        names = self.need(self.columns if columns is None else columns)
        start = 0
        for block, n in self._blocks(rows, names):
            yield Rows({name: block[name] for name in names}, n, self.path, start)
            start += n

    def read(self, columns: Sequence[str] | None = None) -> Rows:
        """Return all rows at once."""
        blocks = list(self.chunks(columns=columns))
        if len(blocks) == 1:
            return blocks[0]
        names = self.need(self.columns if columns is None else columns)
        joined = {
            name: np.concatenate([self._same_width(block, name, blocks[0]) for block in blocks]) for name in names
        }
        return Rows(joined, sum(block.n_rows for block in blocks), self.path)

    def need(self, names: Sequence[str] | Mapping[str, Any]) -> list[str]:
        """Return the names as a list, or say which of them the file lacks."""
        for name in names:
            if name not in self.columns:
                raise InvalidInputError(f"{self.path} has no column '{name}'{self._instead(name)}")
        return list(names)

    def match(self, pattern: str) -> list[str]:
        """Return the columns that a glob such as ``f_*`` matches, in the order of the file; none is refused."""
        found = (
            [pattern]
            if pattern in self.columns
            else [name for name in self.columns if fnmatch.fnmatchcase(name, pattern)]
        )
        if not found:
            raise InvalidInputError(f"{self.path} has no column that matches '{pattern}'{self._instead(pattern)}")
        return found

    def _instead(self, name: str) -> str:
        """Say what was probably meant, and what there is."""
        near, names = nearest(name, self.columns), listed(self.columns, most=20)
        return f": did you mean '{near}'? It has {names}." if near else f": it has {names}."

    def _blocks(self, rows: int, names: list[str]) -> Iterator[tuple[Mapping[str, Any], int]]:
        raise NotImplementedError

    def _same_width(self, block: Rows, name: str, first: Rows) -> NDArray[Any]:
        values = block[name]
        if values.ndim == 2 and values.shape[1] != first[name].shape[1]:
            raise InvalidInputError(
                f"column '{name}' of {self.path} must hold lists of one length, got {first[name].shape[1]} numbers in "
                f"row 1 and {values.shape[1]} in row {block.start + 1}."
            )
        return values


def listed(names: Any, most: int = 8) -> str:
    """Return names for a message, the first few of them.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    names = [f"'{name}'" for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def arrow_to_numpy(values: Any, what: str, start: int) -> NDArray[Any]:
    """Convert a pyarrow array: numbers with NaN for gaps, texts, or a matrix for lists of numbers."""
    import pyarrow as pa

    if isinstance(values.type, pa.ExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if arrow_kind(kind)[0] == "matrix":
        return _lists(values, what, start)
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    elif pa.types.is_boolean(kind) and values.null_count:
        values = values.cast(pa.int8())
    elif arrow_kind(kind)[0] == "text":
        texts = values.to_pylist()
        return np.array(texts, dtype=object if values.null_count or not texts else None)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def arrow_kind(kind: Any) -> tuple[str, int | None]:
    """Return the kind of a pyarrow type and, for lists of a fixed length, that length."""
    from pyarrow import ExtensionType, types

    if isinstance(kind, ExtensionType):
        kind = kind.storage_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_boolean(kind):
        return "bool", None
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number", None
    if types.is_string(kind) or types.is_large_string(kind):
        return "text", None
    if types.is_fixed_size_list(kind) and arrow_kind(kind.value_type)[0] == "number":
        return "matrix", kind.list_size
    if (types.is_list(kind) or types.is_large_list(kind)) and arrow_kind(kind.value_type)[0] == "number":
        return "matrix", None
    return "other", None


def _lists(values: Any, what: str, start: int) -> NDArray[Any]:
    """Stack lists of numbers to a matrix; ragged ones are refused."""
    from pyarrow import compute

    lengths = compute.list_value_length(values).to_numpy(zero_copy_only=False)
    if values.null_count:
        row = int(np.flatnonzero(np.isnan(lengths.astype(np.float64)))[0])
        raise InvalidInputError(f"{what} must hold a list of numbers in every row, got none at row {start + row + 1}.")
    if len(lengths) and (odd := np.flatnonzero(lengths != lengths[0])).size:
        raise InvalidInputError(
            f"{what} must hold lists of one length, got {int(lengths[0])} numbers in row {start + 1} and "
            f"{int(lengths[odd[0]])} in row {start + int(odd[0]) + 1}."
        )
    width = int(lengths[0]) if len(lengths) else 0
    flat = arrow_to_numpy(values.flatten(), what, start)
    return flat.reshape(len(lengths), width)


def _first_text(values: NDArray[Any], start: int) -> str:
    """Describe what is there instead of numbers, for a message."""
    for row, value in enumerate(values.tolist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return f"{'a gap' if value is None else repr(value)} at row {start + row + 1}"
    return "numbers written as texts"
