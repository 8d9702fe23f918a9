# SPDX-License-Identifier: BSD-3-Clause
"""CSV, Parquet and Arrow files, read block by block with pyarrow, one file or a folder of them.

Convention: the type of a CSV column is decided by **all** its cells, in a first pass over the file: whole numbers, numbers, truth
values, or texts. A whole number with leading zeros or beyond 64 bits is a text, because it is a name and must leave as it came.
Empty cells and NA, NaN, null among numbers are gaps. Columns keep their Arrow types from file to file.

`pyarrow.dataset` would read all this, too, but decodes a whole row group of Parquet at a time, and CSV far ahead: files are streamed
by the readers of one file instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from poscod.cli._columns import Column, Table, arrow, arrow_kind, check_width
from poscod.exceptions import InvalidInputError, PoscodError

GAPS = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null"]
"""What counts as a gap in a CSV column of numbers."""
# A row must fit into a block of the reader, so that they follow the header.
_CSV_BLOCK = 1 << 20
_CSV_HEADERS = 64
_READ_BUFFER = 1 << 17
_NAMES_OF_DIGITS = {"int": "^[-+]?0[0-9]+$", "float": "^[-+]?(0[0-9]+|[0-9]{19,})$"}
_SEPARATORS = (",", ";", "\t", "|")
# Decimals with a comma; such numbers that may as well be thousands; and digits that are numbers in some country, but not clearly which.
_COMMA, _THOUSANDS = r"^[-+]?[0-9]+(,[0-9]+)?([eE][-+]?[0-9]+)?$", r"^[-+]?[0-9]{1,3}(,[0-9]{3})*$"
_SOME_NUMBER = r"^[-+]?[0-9]{1,3}([.,' ][0-9]{3})*([.,][0-9]+)?$"


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


class FileTable(Table):
    """Files with a schema, such as Parquet: each is opened, asked for its schema and read in batches."""

    def __init__(self, path: Path, files: list[Path], kind: str, open_file: Callable[[Path], Any]) -> None:
        self._files, self._kind, self._open = files, kind, open_file
        with sentences(files[0], kind), open_file(files[0]) as file:
            schema = getattr(file, "schema_arrow", file.schema)
            check_width(path, len(schema))
            columns = [Column(field.name, *arrow_kind(field.type)) for field in schema]
        super().__init__(path, columns, None)

    def _batches(self, rows: int, names: list[str]) -> Iterator[Any]:
        for path in self._files:
            with sentences(path, self._kind), self._open(path) as file:
                if hasattr(file, "iter_batches"):
                    yield from file.iter_batches(rows, columns=names, use_threads=False)
                else:
                    yield from (_valid(file.get_batch(i).select(names)) for i in range(file.num_record_batches))


def _valid(batch: Any) -> Any:
    """Check everything a file says about its columns: Arrow believes it, and would read where nothing is."""
    batch.validate(full=True)
    return batch


def open_parquet(path: Path, files: list[Path], whole: bool) -> Table:
    """Open Parquet files; buffered, because otherwise a whole row group, possibly the whole file, comes into memory."""
    file = arrow("pyarrow.parquet").ParquetFile
    return FileTable(path, files, "Parquet", lambda path: file(path, buffer_size=_READ_BUFFER, pre_buffer=False))


def open_ipc(path: Path, files: list[Path], whole: bool) -> Table:
    """Open Arrow IPC files (Feather version 2)."""
    return FileTable(path, files, "Arrow", arrow("pyarrow.ipc").open_file)


class CsvTable(Table):
    """CSV files with a header line. `whole` keeps the rows of the first pass: nothing is parsed twice."""

    gaps = frozenset({None, *GAPS})

    def __init__(self, path: Path, files: list[Path], whole: bool) -> None:
        self._files = files
        self._kept: list[Any] | None = None
        with sentences(path, "CSV"):
            self._separator = separator_of(files[0])
            names = _header(files[0], self._separator)
            check_width(path, len(names))
            found = {name: _Cells(self._separator != ",") for name in names}
            kept, n_rows = [], 0
            for batch in self._texts(list(found)) if len(found) == len(names) else ():
                for name, cells in found.items():
                    cells.see(batch.column(name), n_rows)
                n_rows += batch.num_rows
                if whole:
                    kept.append(batch)
        self._types = {name: cells.type for name, cells in found.items()}
        self._commas = {name for name, cells in found.items() if cells.kind == "comma"}
        if whole:
            self._kept = [self._typed(kept.pop(0), names) for _ in range(len(kept))]
        super().__init__(
            path,
            [
                Column(
                    name,
                    "unclear" if found[name].unclear else arrow_kind(self._types[name])[0],
                    None,
                    found[name].unclear or found[name].remark,
                )
                for name in names
            ],
            n_rows,
        )

    def _batches(self, rows: int, names: list[str]) -> Iterator[Any]:
        if self._kept is not None:
            yield from (batch.select(names) for batch in self._kept)
            return
        with sentences(self.path, "CSV"):
            yield from (self._typed(batch, names) for batch in self._texts(names))

    def _texts(self, names: list[str]) -> Iterator[Any]:
        """Read these columns as texts."""
        for path in self._files:
            with _open_csv(path, names, self._separator) as file, _long_rows(path):
                yield from file

    def _typed(self, batch: Any, names: list[str]) -> Any:
        """Turn texts into what their columns hold, gaps into nulls."""
        pa, compute = arrow(), arrow("pyarrow.compute")
        columns = []
        for name in names:
            cells, kind = batch.column(name), self._types[name]
            if kind != pa.string():
                gap = compute.is_in(cells, value_set=pa.array(GAPS))
                if name in self._commas:
                    cells = compute.replace_substring(cells, ",", ".")
                cells = compute.if_else(gap, pa.scalar(None, pa.string()), cells).cast(kind)
            columns.append(cells)
        return pa.RecordBatch.from_arrays(columns, names)


def separator_of(path: Path) -> str:
    """Return what stands between the names of a CSV file: comma, semicolon, tab or bar, whichever is there most outside of quotation marks."""
    with path.open("rb") as file:
        line = file.readline(_CSV_BLOCK).decode("utf-8", "replace").strip()
    outside = "".join(line.split('"')[::2])
    return max(_SEPARATORS, key=outside.count)


def _header(path: Path, separator: str) -> list[str]:
    """Return the names of a CSV file."""
    with _open_csv(path, None, separator) as file:
        names: list[str] = file.schema.names
    return names


@contextmanager
def _long_rows(path: Path) -> Iterator[None]:
    """Say what Arrow means by an object that straddles two boundaries."""
    try:
        yield
    except arrow().ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
        raise InvalidInputError(
            f"{path} holds a row of more than {_CSV_BLOCK:,} bytes, or a quotation mark that is never closed: correct it, or "
            "write long texts as Parquet."
        ) from None


def _open_csv(path: Path, names: list[str] | None, separator: str) -> Any:
    pa, csv = arrow(), arrow("pyarrow.csv")
    with path.open("rb") as file:
        block = max(_CSV_BLOCK, _CSV_HEADERS * len(file.readline(_CSV_BLOCK)))
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=block, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=names and dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False
        ),
    )


class _Cells:
    """What the cells of a CSV column seen so far can be: nothing yet, whole numbers, numbers, numbers with a comma, truth values or texts."""

    def __init__(self, commas: bool) -> None:
        self.kind, self.remark, self._commas = "", "", commas
        self._decimals, self._doubtful, self._numbers = False, "", True

    @property
    def type(self) -> Any:
        pa = arrow()
        if self.unclear:
            return pa.string()
        types = {"int": pa.int64(), "float": pa.float64(), "comma": pa.float64(), "bool": pa.bool_()}
        return types.get(self.kind, pa.string())

    @property
    def unclear(self) -> str:
        """Why cells may be numbers in more than one way; empty where they are clear."""
        if self.kind == "comma":
            return "" if self._decimals else f"numbers such as {self._doubtful!r}, thousands or decimals"
        found = self.kind == "text" and self._numbers and self._doubtful
        return f"numbers such as {self._doubtful!r}, which are not clear" if found else ""

    def see(self, cells: Any, start: int) -> None:
        """Look at more cells, which stand after `start` rows."""
        pa, compute = arrow(), arrow("pyarrow.compute")
        if self.kind == "text" and not self._numbers:
            return
        values = cells.filter(compute.invert(compute.is_in(cells, value_set=pa.array(GAPS))))
        if self.kind == "text":
            self._with_commas(values, "text")
            return
        before, found = self.kind, _kind_of(values, self.kind) if len(values) else self.kind
        if found == "text" or before == "comma":
            found = self._with_commas(values, found)
        both = {before, found}
        self.kind = found if before in ("", found) else "text"
        self.kind = max(both - {"int"}) if both in ({"int", "float"}, {"int", "comma"}) else self.kind
        if self.kind == "text":
            self.remark = _first_text(values, cells, start, numbers=before in ("int", "float"))

    def _with_commas(self, values: Any, found: str) -> str:
        """Tell whether cells are numbers with a comma, and note whether they may be something else."""
        compute = arrow("pyarrow.compute")
        self._numbers &= (
            compute.all(compute.match_substring_regex(values, f"({_SOME_NUMBER})|({_COMMA})")).as_py() is not False
        )
        odd = values.filter(compute.match_substring_regex(values, "[,' ]"))
        if not len(odd):
            return found
        self._doubtful = self._doubtful or odd[0].as_py()[:40]
        if not self._commas or not compute.all(compute.match_substring_regex(values, _COMMA)).as_py():
            return found
        self._decimals |= not compute.all(compute.match_substring_regex(odd, _THOUSANDS)).as_py()
        return "comma"


def _kind_of(values: Any, before: str) -> str:
    """Tell what cells without gaps hold; where others were numbers, whole ones need not be told from them, which takes longest."""
    pa, compute = arrow(), arrow("pyarrow.compute")
    for kind, type_ in {"int": pa.int64(), "float": pa.float64()}.items():
        if (kind, before) == ("int", "float"):
            continue
        try:
            values.cast(type_)
        except pa.ArrowInvalid:
            continue
        return "text" if compute.any(compute.match_substring_regex(values, _NAMES_OF_DIGITS[kind])).as_py() else kind
    truths = compute.is_in(compute.utf8_lower(values), value_set=pa.array(["true", "false"]))
    return "bool" if compute.all(truths).as_py() else "text"


def _first_text(values: Any, cells: Any, start: int, *, numbers: bool) -> str:
    """Say where a column of numbers turns into texts; nothing where it starts as texts."""
    for value in values.to_pylist():
        try:
            float(value)
            numbers = True
        except ValueError:
            row = cells.index(value).as_py()
            return f"numbers, and then {value[:40]!r} at row {start + row + 1}" if numbers else ""
    return ""
