# SPDX-License-Identifier: BSD-3-Clause
"""CSV, Parquet and Arrow files, read and written block by block with pyarrow.

Convention: the type of a CSV column is decided by **all** its cells, in a first pass over the file: whole numbers, numbers, truth
values, or texts. A whole number with leading zeros or beyond 64 bits is a text, because it is a name and must leave as it came.
Empty cells and NA, NaN, null among numbers are gaps. Columns keep their Arrow types from file to file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from poscod._optional import require
from poscod.cli._columns import Column, Rows, Table, arrow_kind
from poscod.exceptions import InvalidInputError, PoscodError

GAPS = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null"]
"""What counts as a gap in a CSV column of numbers."""
# pyarrow reads some thirty blocks ahead, so that they must be small; a row must fit into one, so that they follow the header.
_CSV_BLOCK = 1 << 20
_CSV_HEADERS = 64
_READ_BUFFER = 1 << 17


def arrow(module: str = "pyarrow") -> Any:
    """Return pyarrow or one of its modules, or say how to install it."""
    return require(module, extra="cli", feature="Reading and writing CSV, Parquet and Arrow files")


@contextmanager
def sentences(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a damaged file makes a parser raise into one sentence that names the file."""
    try:
        yield
    except PoscodError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's own words: not found, no permission, no space
        text = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise InvalidInputError(f"{path} could not be read as {kind} ({text}).") from None


class CsvTable(Table):
    """A CSV file with a header line.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        with sentences(path, "CSV"):
            _refuse_separators(path)
            names, inferred, n_rows = _scan(path)
        self._types = {name: column.type() for name, column in zip(names, inferred, strict=True)}
        kinds = [arrow_kind(column.type())[0] for column in inferred]
        super().__init__(
            path,
            [Column(n, k, None, c.remark) for n, k, c in zip(names, kinds, inferred, strict=True)],
            n_rows,
        )

    def _blocks(self, rows: int, names: list[str]) -> Iterator[tuple[Mapping[str, Any], int]]:
        with sentences(self.path, "CSV"):
            yield from rechunk(_open_csv(self.path, self._types, names), rows)


class ParquetTable(Table):
    """A Parquet file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        with sentences(path, "Parquet"), self._open(path) as file:
            columns = [Column(field.name, *arrow_kind(field.type)) for field in file.schema_arrow]
            n_rows = file.metadata.num_rows
        super().__init__(path, columns, n_rows)

    def _open(self, path: Path) -> Any:
        # Buffered reads: without them a whole row group, possibly the whole file, comes into memory.
        return arrow("pyarrow.parquet").ParquetFile(path, buffer_size=_READ_BUFFER, pre_buffer=False)

    def _blocks(self, rows: int, names: list[str]) -> Iterator[tuple[Mapping[str, Any], int]]:
        with sentences(self.path, "Parquet"), self._open(self.path) as file:
            yield from rechunk(file.iter_batches(rows, columns=names, use_threads=False), rows)


class ArrowTable(Table):
    """An Arrow IPC file (Feather version 2).

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        with sentences(path, "Arrow"), arrow("pyarrow.ipc").open_file(path) as file:
            columns = [Column(field.name, *arrow_kind(field.type)) for field in file.schema]
        super().__init__(path, columns, None)

    def _blocks(self, rows: int, names: list[str]) -> Iterator[tuple[Mapping[str, Any], int]]:
        with sentences(self.path, "Arrow"), arrow("pyarrow.ipc").open_file(self.path) as file:
            yield from rechunk((file.get_batch(i) for i in range(file.num_record_batches)), rows)


def rechunk(batches: Iterator[Any], rows: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Turn record batches of any sizes into blocks of at most `rows` rows, and all but the last of exactly that many."""
    pa = arrow()
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        while count >= rows:
            table = pa.Table.from_batches(waiting)
            yield _columns_of(table.slice(0, rows)), rows
            count -= rows
            waiting = table.slice(rows).to_batches()
    if count:
        yield _columns_of(pa.Table.from_batches(waiting)), count


def _columns_of(table: Any) -> dict[str, Any]:
    joined = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        joined[name] = array.combine_chunks() if hasattr(array, "num_chunks") else array
    return joined


def _open_csv(path: Path, types: Mapping[str, Any] | None, names: list[str] | None = None) -> Any:
    csv = arrow("pyarrow.csv")
    with path.open("rb") as file:
        block = max(_CSV_BLOCK, _CSV_HEADERS * len(file.readline(_CSV_BLOCK)))
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=block, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types, include_columns=names, null_values=GAPS, strings_can_be_null=False
        ),
    )


def _refuse_separators(path: Path) -> None:
    """Refuse a file whose header is separated by something else than commas."""
    with path.open("rb") as file:
        header = file.readline(_CSV_BLOCK).decode("utf-8", "replace").strip()
    for separator, name in {";": "';'", "\t": "tabs", "|": "'|'"}.items():
        first, found, _ = header.partition(separator)
        if found and "," not in header and first.count('"') % 2 == 0:
            raise InvalidInputError(f"{path} seems to be separated by {name}: poscod reads commas.")


def _scan(path: Path) -> tuple[list[str], list[_Inferred], int]:
    """Read a CSV file once as texts and decide what each column holds."""
    pa = arrow()
    with _open_csv(path, None) as file:
        names = file.schema.names
    if len(set(names)) < len(names):
        return names, [_Inferred() for _ in names], 0  # refused by Table, which names the column
    inferred, n_rows = [_Inferred() for _ in names], 0
    with _open_csv(path, dict.fromkeys(names, pa.string())) as file:
        for batch in file:
            for column, values in zip(inferred, batch.columns, strict=True):
                column.see(values, n_rows)
            n_rows += batch.num_rows
    return names, inferred, n_rows


class _Inferred:
    """What the cells of a CSV column seen so far allow: '' (only gaps), 'int', 'float', 'bool' or 'text'."""

    def __init__(self) -> None:
        self.state, self.remark = "", ""

    def type(self) -> Any:
        pa = arrow()
        return {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}.get(self.state, pa.string())

    def see(self, cells: Any, start: int) -> None:
        if self.state == "text":
            return
        pa, compute = arrow(), arrow("pyarrow.compute")
        values = cells.filter(compute.invert(compute.is_in(cells, value_set=pa.array(GAPS))))
        if len(values) == 0:
            return
        found = _cells_are(values)
        merged = {self.state, found} - {""}
        if merged == {"int", "float"}:
            self.state = "float"
        elif len(merged) == 1 and found != "text":
            self.state = found
        else:
            self.state, self.remark = "text", _where(cells, start, self.state)


def _cells_are(values: Any) -> str:
    """Tell what a block of cells without gaps holds."""
    pa, compute = arrow(), arrow("pyarrow.compute")
    length = compute.utf8_length(values)
    try:
        values.cast(pa.int64())
        zeros = compute.and_(compute.starts_with(values, "0"), compute.greater(length, 1))
        return "text" if compute.any(zeros).as_py() else "int"
    except pa.ArrowInvalid:
        pass
    try:
        values.cast(pa.float64())
        long = values.filter(compute.greater(length, 18))
        whole = len(long) and compute.any(compute.match_substring_regex(long, "^[-+]?[0-9]+$")).as_py()
        return "text" if whole else "float"
    except pa.ArrowInvalid:
        low = compute.utf8_lower(values)
        return "bool" if compute.all(compute.is_in(low, value_set=pa.array(["true", "false"]))).as_py() else "text"


def _where(cells: Any, start: int, state: str) -> str:
    """Say where a column of numbers turns into texts; nothing where it starts as texts."""
    for row, cell in enumerate(cells.to_pylist()):
        if cell in GAPS:
            continue
        try:
            float(cell)
            state = state or "float"
        except ValueError:
            return f"numbers, and then {cell[:40]!r} at row {start + row + 1}" if state in ("int", "float") else ""
    return ""


class ArrowWriter:
    """Blocks of columns to a file of one schema, which the first block fixes.

    Parameters
    ----------
    file : binary file
    make : callable
        Makes the writer of pyarrow from the file and the schema.
    flat : bool, default=False
        Whether the format has no lists (CSV).
    """

    def __init__(self, file: BinaryIO, make: Callable[[BinaryIO, Any], Any], *, flat: bool = False) -> None:
        self._file, self._make, self._flat = file, make, flat
        self._writer: Any = None
        self._schema: Any = None

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append a block."""
        pa = arrow()
        arrays = {
            name: self._array(columns.raw(name) if isinstance(columns, Rows) else values, name)
            for name, values in columns.items()
        }
        if self._writer is None:
            self._schema = pa.schema([(name, array.type) for name, array in arrays.items()])
            self._writer = self._make(self._file, self._schema)
        cast = [arrays[field.name].cast(field.type) for field in self._schema]
        self._writer.write_batch(pa.record_batch(cast, schema=self._schema))

    def close(self) -> None:
        """Write what the format needs at its end."""
        if self._writer is not None:
            self._writer.close()

    def _array(self, values: Any, name: str) -> Any:
        pa = arrow()
        if isinstance(values, np.ndarray):
            try:
                array = pa.array(np.ascontiguousarray(values).ravel())
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise InvalidInputError(f"column '{name}' mixes types and cannot be written ({error}).") from None
            values = pa.FixedSizeListArray.from_arrays(array, values.shape[1]) if values.ndim == 2 else array
        if self._flat:
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            if pa.types.is_nested(values.type):
                raise InvalidInputError(
                    f"column '{name}' holds lists, which CSV cannot: write Parquet or NPZ, or leave the column out."
                )
        return values


def csv_writer(file: BinaryIO) -> ArrowWriter:
    """Return a writer of CSV."""
    return ArrowWriter(file, lambda file, schema: arrow("pyarrow.csv").CSVWriter(file, schema), flat=True)


def parquet_writer(file: BinaryIO) -> ArrowWriter:
    """Return a writer of Parquet."""
    return ArrowWriter(file, lambda file, schema: arrow("pyarrow.parquet").ParquetWriter(file, schema))


def ipc_writer(file: BinaryIO) -> ArrowWriter:
    """Return a writer of Arrow IPC files."""
    return ArrowWriter(file, lambda file, schema: arrow("pyarrow.ipc").new_file(file, schema))
