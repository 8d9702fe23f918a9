# SPDX-License-Identifier: BSD-3-Clause
"""NPY and NPZ files as tables: plain arrays, memory-mapped, never a pickle.

Convention: an NPZ file is a table of named arrays of one length; a two-dimensional array is a matrix column. Files of `Activations`
are such tables: their last layer is passed over. A two-dimensional
NPY file has columns called 0, 1, 2, ...; a structured one has the names of its fields; a vector is the column 0.
"""

from __future__ import annotations

import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from os import SEEK_CUR
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from poscod.activations import _map_npy
from poscod.cli._arrow import sentences
from poscod.cli._columns import Column, Table
from poscod.exceptions import InvalidInputError

_KIND_OF_DTYPE = {"b": "bool", "U": "text", "f": "number", "i": "number", "u": "number"}
_COPY_ROWS = 65536


class ArrayTable(Table):
    """Named arrays of one length.

    Parameters
    ----------
    path : Path
    arrays : dict of str to ndarray
        In memory or mapped.
    """

    def __init__(self, path: Path, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        for name, array in arrays.items():
            if array.ndim not in (1, 2):
                raise InvalidInputError(
                    f"the array '{name}' of {path} must have one or two dimensions, got shape {array.shape}."
                )
        sizes = {name: len(array) for name, array in arrays.items()}
        first = next(iter(sizes), "")
        for name, size in sizes.items():
            if size != sizes[first]:
                raise InvalidInputError(
                    f"the arrays of {path} must have one length, got {sizes[first]} rows in '{first}' and {size} in '{name}'."
                )
        columns = [_column(name, array) for name, array in arrays.items()]
        super().__init__(path, columns, sizes.get(first, 0))

    def _blocks(self, rows: int, names: list[str]) -> Iterator[tuple[Mapping[str, Any], int]]:
        for start in range(0, self.n_rows or 0, rows):
            block = {name: np.asarray(self._arrays[name][start : start + rows]) for name in names}
            yield block, min(rows, (self.n_rows or 0) - start)


def _column(name: str, array: NDArray[Any]) -> Column:
    kind = _KIND_OF_DTYPE.get(array.dtype.kind, "other")
    if array.ndim == 2:
        return Column(name, "matrix" if kind in ("number", "bool") else "other", array.shape[1])
    return Column(name, kind)


def open_npz(path: Path) -> ArrayTable:
    """Open the arrays of an NPZ file; stored ones are mapped, compressed ones are read."""
    arrays: dict[str, NDArray[Any]] = {}
    with sentences(path, "NPZ"), path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in arrays:
                raise InvalidInputError(f"{path} has several arrays of the name '{name}'.")
            mapped = None
            if info.compress_type == zipfile.ZIP_STORED:
                file.seek(info.header_offset)
                lengths = struct.unpack("<26xHH", file.read(30))  # of the name and of the extra field
                file.seek(sum(lengths), SEEK_CUR)
                mapped = _map_npy(path, file, file.tell() + info.file_size)
            if mapped is None:
                with archive.open(info) as member:
                    mapped = np.lib.format.read_array(member, allow_pickle=False)
            arrays[name] = mapped
    return ArrayTable(path, _without_head(arrays))


def _without_head(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Leave out the last layer of a network, which `poscod extract` keeps beside the rows: it is no column."""
    parts = [arrays[name] for name in ("features", "logits", "weight", "bias") if name in arrays]
    if [part.ndim for part in parts] != [2, 2, 2, 1]:
        return arrays
    features, logits, weight, bias = parts
    if weight.shape != (logits.shape[1], features.shape[1]) or bias.shape != weight.shape[:1]:
        return arrays
    return {name: array for name, array in arrays.items() if name not in ("weight", "bias")}


def open_npy(path: Path) -> ArrayTable:
    """Open the array of an NPY file as a table."""
    with sentences(path, "NPY"), path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        array = _map_npy(path, file, size)
        if array is None:
            file.seek(0)
            array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.names is not None:
        return ArrayTable(path, {name: array[name] for name in array.dtype.names})
    if array.ndim == 2:
        return ArrayTable(path, {str(i): array[:, i] for i in range(array.shape[1])})
    return ArrayTable(path, {"0": array})


class ArrayWriter:
    """Blocks of columns to an NPZ or NPY file, through one nameless scratch file beside the target.

    Parameters
    ----------
    file : binary file
    folder : Path
        Where the scratch file lies: the disk of the target.
    archive : bool
        Whether to write NPZ (an array per column) or NPY (one structured array, or the only column).
    """

    def __init__(self, file: BinaryIO, folder: Path, *, archive: bool) -> None:
        self._file, self._archive = file, archive
        self._scratch = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by close)
        self._blocks: list[dict[str, tuple[int, np.dtype[Any], tuple[int, ...]]]] = []

    def write(self, columns: Mapping[str, Any]) -> None:
        """Append a block."""
        block = {}
        for name, values in columns.items():
            array = np.ascontiguousarray(_plain(np.asarray(values), name))
            block[name] = (self._scratch.tell(), array.dtype, array.shape)
            self._scratch.write(array.data if array.size and array.dtype.kind not in "UM" else array.tobytes())
        self._blocks.append(block)

    def close(self) -> None:
        """Put the blocks together."""
        with self._scratch:
            if not self._blocks:
                return
            self._scratch.flush()
            if self._archive:
                self._write_npz()
            else:
                self._write_npy()

    def _write_npz(self) -> None:
        with zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED) as archive:
            for name in self._blocks[0]:
                dtype, shape = self._whole(name)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_2_0(member, _header(dtype, shape))
                    for block in self._blocks:
                        member.write(self._read(block[name]).astype(dtype, copy=False).tobytes())

    def _write_npy(self) -> None:
        whole = {name: self._whole(name) for name in self._blocks[0]}
        n = next(iter(whole.values()))[1][0]
        only = len(whole) == 1
        dtype = np.dtype([(name, kind, shape[1:]) for name, (kind, shape) in whole.items()])
        name, (kind, shape) = next(iter(whole.items()))
        header = _header(kind, shape) if only else _header(dtype, (n,))
        np.lib.format.write_array_header_2_0(self._file, header)
        for block in self._blocks:
            if only:
                self._file.write(self._read(block[name]).astype(kind, copy=False).tobytes())
                continue
            records = np.empty(block[name][2][0], dtype)
            for field in whole:
                records[field] = self._read(block[field])
            self._file.write(records.tobytes())

    def _whole(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return the type and shape of a column over all blocks."""
        parts = [block[name] for block in self._blocks]
        dtype = np.result_type(*(part[1] for part in parts))
        return dtype, (sum(part[2][0] for part in parts), *parts[0][2][1:])

    def _read(self, part: tuple[int, np.dtype[Any], tuple[int, ...]]) -> NDArray[Any]:
        at, dtype, shape = part
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._scratch.seek(at)
        return np.frombuffer(self._scratch.read(size), dtype).reshape(shape)


def _plain(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return an array that needs no pickle: texts among objects become an array of texts."""
    if array.dtype.kind != "O":
        return array
    if all(isinstance(value, str) for value in array.tolist()):
        return array.astype(str)
    raise InvalidInputError(
        f"column '{name}' has gaps or mixed types, which NPY and NPZ files cannot hold: write Parquet or CSV."
    )


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> dict[str, Any]:
    return {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
