# SPDX-License-Identifier: BSD-3-Clause
"""NPY and NPZ files as tables: plain arrays, memory-mapped, never a pickle.

Convention: an NPZ file is a table of named arrays of one length; a two-dimensional array is a matrix column. Files of `Activations`
are such tables: their last layer is passed over, and labels have the names of their classes where the file has them. A two-dimensional
NPY file has columns called 0, 1, 2, ...; a structured one has the names of its fields; a vector is the column 0.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod.activations import read_npz
from poscod.cli._arrow import sentences
from poscod.cli._columns import Column, Table, arrow, arrow_kind, check_width, to_arrow, to_numpy
from poscod.exceptions import InvalidInputError
from poscod.labels import UNLABELED

# What a zip archive can hold, with the ending.
_LONGEST_NAME = 65_000
_PARTS = ("features", "logits", "weight", "bias")


class ArrayTable(Table):
    """Named arrays of one length, in memory or mapped."""

    def __init__(self, path: Path, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        rows, first = 0, next(iter(arrays), "")
        for name, array in arrays.items():
            if array.ndim not in (1, 2):
                raise InvalidInputError(
                    f"the array '{name}' of {path} must have one or two dimensions, got shape {array.shape}."
                )
            if len(array) != (rows := len(arrays[first])):
                raise InvalidInputError(
                    f"the arrays of {path} must have one length, got {rows} rows in '{first}' and {len(array)} in '{name}'."
                )
        kinds = {name: arrow_kind(to_arrow(array[:0], name).type) for name, array in arrays.items()}
        super().__init__(path, [Column(name, *kind) for name, kind in kinds.items()], rows)

    def _batches(self, rows: int, names: list[str]) -> Iterator[Any]:
        for start in range(0, self.n_rows or 0, rows):
            columns = [to_arrow(self._arrays[name][start : start + rows], name) for name in names]
            yield arrow().RecordBatch.from_arrays(columns, names)


def open_npz(path: Path, files: list[Path], whole: bool) -> Table:
    """Open the arrays of an NPZ file; stored ones are mapped, compressed ones are read."""
    with sentences(path, "NPZ"):
        arrays = read_npz(path, mmap=True, names=None)
    names = _class_names(arrays)
    if names is not None and "labels" in arrays and arrays["labels"].dtype.kind in "iu":
        arrays["labels"] = np.append(names, str(UNLABELED))[arrays["labels"]]  # the last one is that of -1
    table = ArrayTable(path, _without_head(arrays))
    table.classes = () if names is None else tuple(names.tolist())
    return table


def _class_names(arrays: dict[str, NDArray[Any]]) -> NDArray[Any] | None:
    """Take the names of a network's classes out of the arrays of `Activations`; None where there are none."""
    logits, names = arrays.get("logits"), arrays.get("classes")
    if (
        logits is None
        or names is None
        or logits.ndim != 2
        or names.dtype.kind != "U"
        or names.shape != (logits.shape[1],)
    ):
        return None
    return np.array(arrays.pop("classes"))


def _without_head(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Leave out the last layer of a network, which `poscod extract` keeps beside the rows: it is not a column."""
    features, logits, weight, bias = (arrays[name].shape if name in arrays else () for name in _PARTS)
    head = len(features) == len(logits) == 2 and (weight, bias) == ((logits[1], features[1]), (logits[1],))
    return {name: array for name, array in arrays.items() if not head or name not in ("weight", "bias")}


def open_npy(path: Path, files: list[Path], whole: bool) -> Table:
    """Open the array of an NPY file as a table."""
    with sentences(path, "NPY"):
        array = np.lib.format.open_memmap(path, mode="r")
    if array.dtype.names is not None:
        return ArrayTable(path, {name: array[name] for name in array.dtype.names})
    if array.ndim == 2:
        check_width(path, array.shape[1])
        return ArrayTable(path, {str(i): array[:, i] for i in range(array.shape[1])})
    return ArrayTable(path, {"0": array})


class _Part(NamedTuple):
    """Where a block of a column lies in the scratch file."""

    at: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class ArrayWriter:
    """Tables to an NPZ file (an array per column) or an NPY file (the only column, or one structured array).

    How many rows there will be is known at the end: until then they lie in a nameless scratch file beside the target.
    """

    def __init__(self, file: BinaryIO, folder: Path, *, archive: bool) -> None:
        self._file, self._archive = file, archive
        self._scratch = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by close)
        self._parts: dict[str, list[_Part]] = {}

    def write(self, table: Any) -> None:
        """Append a block."""
        for name, column in zip(table.column_names, table.columns, strict=True):
            if len(name.encode()) > _LONGEST_NAME:
                raise InvalidInputError(
                    f"column '{name[:40]}...' has a name of more than {_LONGEST_NAME:,} bytes: write Parquet or CSV."
                )
            array = np.ascontiguousarray(_plain(to_numpy(column, f"column '{name}'", 0), name))
            self._parts.setdefault(name, []).append(_Part(self._scratch.tell(), array.dtype, array.shape))
            self._scratch.write(array.tobytes())

    def close(self) -> None:
        """Put the blocks together."""
        with self._scratch:
            if self._archive:
                with zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED) as archive:
                    for name in self._parts:
                        with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                            self._write(member, [name])
            elif self._parts:
                self._write(self._file, list(self._parts))

    def _write(self, file: Any, names: list[str]) -> None:
        """Write columns as one array: a plain one of a single column, a structured one of several."""
        parts = {name: self._parts[name] for name in names}
        fields = [
            (name, np.result_type(*(p.dtype for p in column)), column[0].shape[1:]) for name, column in parts.items()
        ]
        rows = sum(part.shape[0] for part in parts[names[0]])
        _, kind, width = fields[0]
        dtype, shape = (kind, (rows, *width)) if len(names) == 1 else (np.dtype(fields), (rows,))
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_2_0(file, header)
        for block in zip(*parts.values(), strict=True):
            records = np.empty((block[0].shape[0], *shape[1:]), dtype)
            for name, part in zip(names, block, strict=True):
                records[name if len(names) > 1 else ...] = self._read(part)
            file.write(records.tobytes())

    def _read(self, part: _Part) -> NDArray[Any]:
        size = int(np.prod(part.shape, dtype=np.int64)) * part.dtype.itemsize
        self._scratch.seek(part.at)
        return np.frombuffer(self._scratch.read(size), part.dtype).reshape(part.shape)


def _plain(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return an array that needs no pickle: texts among objects become an array of texts."""
    if array.dtype.kind != "O":
        return array
    if all(isinstance(value, str) for value in array.tolist()):
        return array.astype(str)
    raise InvalidInputError(
        f"column '{name}' has gaps or mixed types, which NPY and NPZ files cannot hold: write Parquet or CSV."
    )
