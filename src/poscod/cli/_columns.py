# SPDX-License-Identifier: BSD-3-Clause
"""What a table is to a command: named columns of a kind, and blocks of rows that turn into numpy arrays when asked.

Convention: rows are counted from 1 in messages, without a header line. A block keeps its columns as Arrow has them, so that what is
only passed on loses nothing; ``block[name]`` is a numpy array. Gaps among numbers are NaN.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod._validation import listed, nearest
from poscod.exceptions import InvalidInputError


def arrow(module: str = "pyarrow") -> Any:
    """Return pyarrow or one of its modules, or say how to install it."""
    return require(module, extra="cli", feature="Reading and writing tables")


MOST_COLUMNS = 100_000
"""Each column is looked at by itself: more of them would take minutes."""


def check_width(path: Path, columns: int) -> None:
    """Refuse a table with too many columns, before it is read."""
    if columns > MOST_COLUMNS:
        raise InvalidInputError(
            f"{path} must have at most {MOST_COLUMNS:,} columns, got {columns:,}: put numbers into one column of lists "
            "(Parquet, Arrow) or a matrix (NPZ)."
        )


class Column(NamedTuple):
    """One column of a table: its kind, the length of its lists where the file says so, and where texts begin after numbers.

    Kinds are "number", "bool", "text", "matrix" (a list of numbers per row) and "other" (such as dates: passed on as it is).
    """

    name: str
    kind: str
    width: int | None = None
    remark: str = ""


class Block(Mapping[str, NDArray[Any]]):
    """Consecutive rows of a table: a mapping from names of columns to numpy arrays. `gaps` are the values that mean none among texts.

    Examples
    --------
    >>> block = Block(arrow().table({"a": [1, 2], "b": [0.5, None]}))
    >>> block.n_rows, list(block), block["b"].tolist()
    (2, ['a', 'b'], [0.5, nan])
    """

    def __init__(
        self, table: Any, source: str | Path = "the table", start: int = 0, gaps: Container[Any] = (None,)
    ) -> None:
        self.table, self.source, self.start, self.gaps = table, source, start, gaps
        self.n_rows: int = table.num_rows

    def __getitem__(self, name: str) -> NDArray[Any]:
        return to_numpy(self.table.column(name), self._what(name), self.start)

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.column_names)

    def __len__(self) -> int:
        return len(self.table.column_names)

    def finite(self, names: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Return columns of finite numbers, or say which cell is none."""
        columns = {name: self[name] for name in names}
        wrong = {name: said for name, values in columns.items() if (said := self._wrong(values))}
        if not wrong:
            return columns
        first, options = next(iter(wrong)), " ".join(f"--exclude {shlex.quote(name)}" for name in wrong)
        advice = f": fill or drop such rows in all tables, or leave the column{'s' * (len(wrong) > 1)} out with `poscod fit {options}`."
        if len(wrong) == 1:
            texts = columns[first].dtype.kind not in "fiub"
            raise InvalidInputError(f"{self._what(first)} {wrong[first]}{'.' if texts else advice}")
        found = "; ".join(f"column '{name}' {said}" for name, said in wrong.items())
        raise InvalidInputError(f"{self.source} cannot be read: {found}{advice}")

    def _wrong(self, values: NDArray[Any]) -> str:
        """Say what is wrong with values that must be finite numbers."""
        if values.dtype.kind not in "fiub":
            return f"must hold numbers, got {_first_text(values, self.start)}"
        if values.dtype.kind != "f" or np.isfinite(values).all():
            return ""
        bad, gaps = np.argwhere(~np.isfinite(values)), int(np.isnan(values).sum())
        first = values[tuple(bad[0])]
        got = f"{first}" if np.isinf(first) else "a gap" if gaps == 1 else f"{gaps:,} gaps, the first"
        return f"must hold finite numbers, got {got} at row {self.start + bad[0][0] + 1}"

    def _what(self, name: str) -> str:
        return f"column '{name}' of {self.source}"


class Table:
    """A table opened for reading, see `poscod.cli._tables.open_table`: its columns in order; `n_rows` is None where only reading tells."""

    gaps: Container[Any] = (None,)
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of the logits, where the file knows them."""

    def __init__(self, path: Path, columns: Sequence[Column], n_rows: int | None) -> None:
        self.path, self.n_rows = path, n_rows
        self.columns: dict[str, Column] = {}
        for column in columns:
            if column.name in self.columns:
                raise InvalidInputError(
                    f"{path} has several columns of the name '{column.name}': give each a name of its own."
                )
            self.columns[column.name] = column
        if not columns:
            raise InvalidInputError(f"{path} has no columns.")

    def chunks(self, rows: int = 65536, columns: Iterable[str] | None = None) -> Iterator[Block]:
        """Iterate over consecutive blocks of at most `rows` rows, so that memory stays bounded."""
        start = 0
        for table in _rechunk(self._batches(rows, self.need(self.columns if columns is None else columns)), rows):
            yield Block(table, self.path, start, self.gaps)
            start += table.num_rows

    def read(self, columns: Iterable[str] | None = None) -> Block:
        """Return all rows at once."""
        batches = self._batches(65536, self.need(self.columns if columns is None else columns))
        return Block(_joined(list(batches)), self.path, gaps=self.gaps)

    def take(self, columns: Iterable[str], rows: NDArray[np.int64]) -> Block:
        """Return some rows, counted from 0, in this order."""
        return Block(self.read(columns).table.take(arrow().array(rows)), self.path, gaps=self.gaps)

    def need(self, names: Iterable[str]) -> list[str]:
        """Return the names as a list, or say which of them the file lacks."""
        names = list(names)
        for name in names:
            if name not in self.columns:
                raise InvalidInputError(f"{self.path} has no column '{name}'{self._instead(name)}")
        return names

    def match(self, pattern: str) -> list[str]:
        """Return the columns that a glob such as ``f_*`` matches, in the order of the file; none is refused."""
        found = [pattern] if pattern in self.columns else fnmatch.filter(self.columns, pattern)
        if not found:
            raise InvalidInputError(f"{self.path} has no column that matches '{pattern}'{self._instead(pattern)}")
        return found

    def _instead(self, name: str) -> str:
        """Say what was probably meant, and what there is."""
        near, names = nearest(name, self.columns), listed(self.columns, most=20)
        return f": did you mean '{near}'? It has {names}." if near else f": it has {names}."

    def _batches(self, rows: int, names: list[str]) -> Iterator[Any]:
        """Read Arrow batches of these columns, of about so many rows where the format lets one choose."""
        raise NotImplementedError


def _rechunk(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """Turn batches of any sizes into tables of at most `rows` rows, and all but the last of exactly that many."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            table = _joined(waiting)
            while table.num_rows >= rows:
                yield table.slice(0, rows)
                table = table.slice(rows)
            waiting, count = table.to_batches(), table.num_rows
    if count:
        yield _joined(waiting)


def _joined(batches: list[Any]) -> Any:
    pa = arrow()
    # Files of one folder may hold whole numbers here and others there.
    return pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="permissive")


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
    fixed = types.is_fixed_size_list(kind)
    if (fixed or types.is_list(kind) or types.is_large_list(kind)) and arrow_kind(kind.value_type)[0] in (
        "number",
        "bool",
    ):
        return "matrix", kind.list_size if fixed else None
    return "other", None


def to_numpy(values: Any, what: str, start: int) -> NDArray[Any]:
    """Convert an Arrow column: numbers with NaN for gaps, texts, or a matrix for lists of numbers."""
    pa = arrow()
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values.type, pa.ExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind, _ = arrow_kind(values.type)
    if kind == "matrix":
        return _lists(values, what, start)
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    elif kind == "bool" and values.null_count:
        values = values.cast(pa.int8())
    elif kind == "text":
        texts = values.to_pylist()
        return np.array(texts, dtype=object if values.null_count or not texts else None)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def _lists(values: Any, what: str, start: int) -> NDArray[Any]:
    """Stack lists of numbers to a matrix; ragged ones are refused."""
    lengths = arrow("pyarrow.compute").list_value_length(values).to_numpy(zero_copy_only=False)
    if values.null_count:
        row = int(np.flatnonzero(np.isnan(lengths.astype(np.float64)))[0])
        raise InvalidInputError(f"{what} must hold a list of numbers in every row, got none at row {start + row + 1}.")
    if len(lengths) and (odd := np.flatnonzero(lengths != lengths[0])).size:
        raise InvalidInputError(
            f"{what} must hold lists of one length, got {int(lengths[0])} numbers in row {start + 1} and "
            f"{int(lengths[odd[0]])} in row {start + int(odd[0]) + 1}."
        )
    width = int(lengths[0]) if len(lengths) else 0
    return to_numpy(values.flatten(), what, start).reshape(len(lengths), width)


def to_arrow(values: Any, name: str) -> Any:
    """Convert a column of numpy to Arrow: a matrix becomes lists. What is Arrow's already stays as it is."""
    pa = arrow()
    if not isinstance(values, np.ndarray):
        return values
    try:
        flat = pa.array(np.ascontiguousarray(values, values.dtype.newbyteorder("=")).ravel())
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(f"column '{name}' mixes types or has one that tables cannot hold ({error}).") from None
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1]) if values.ndim == 2 else flat


def _first_text(values: NDArray[Any], start: int) -> str:
    """Describe what is there instead of numbers, for a message."""
    for row, value in enumerate(values.tolist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return f"{'a gap' if value is None else repr(value)} at row {start + row + 1}"
    return "numbers written as texts"
