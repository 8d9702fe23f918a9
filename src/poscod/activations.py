# SPDX-License-Identifier: BSD-3-Clause
"""What a trained network gives us for a set of inputs: features, logits and, where known, its last layer.

Convention: arrays are kept as they come (float32, float64 or a memory map) and are never changed; every
row-wise array has the same number of rows. ``logits = features @ weight.T + bias`` where the last layer is given.
Files hold plain arrays under the names of the parts (.npz or .safetensors), never a pickle.
"""

from __future__ import annotations

import copy
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from poscod._files import check_source, replacing
from poscod._optional import require
from poscod._validation import as_array, check_count, check_matrix, check_vector, listed, refusal
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.labels import as_labels, codes_of, is_text, marked_rows

__all__ = ["Activations"]

PARTS = ("features", "logits", "labels", "weight", "bias", "classes")
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Activations:
    """Features and logits of a classifier on n inputs.

    Parameters
    ----------
    features : array-like of shape (n, d) or None
        Input of the last layer (penultimate features).
    logits : array-like of shape (n, K) or None
        Output of the last layer, before softmax.
    labels : array-like of shape (n,), default=None
        True class indices, or names where `classes` are given; -1 marks an OOD or unlabeled row. Kept as indices.
    weight : array-like of shape (K, d), default=None
        Weight of the last layer.
    bias : array-like of shape (K,), default=None
        Bias of the last layer; zeros when a weight is given without one.
    table : bool, default=False
        Whether the features are columns of a table, each with a unit of its own, instead of a network's layer: distances are
        then taken between standardised columns. Not written to files.
    classes : array-like of shape (K,), default=None
        Names of the classes, in the order of the logits: texts. A `POSCOD` fitted on such rows answers with them.

    Notes
    -----
    Rows given as ID anywhere in the library must be rows the classifier was **not** trained on: a network
    is far more confident on its own training rows, and every threshold, calibration or ratio fitted there
    breaks its promise on fresh data.

    Examples
    --------
    >>> a = Activations(features=[[1.0, 0.0], [0.0, 2.0]], logits=[[3.0, 1.0], [0.0, 4.0]], labels=[0, 1])
    >>> len(a), a.n_classes, a.n_features
    (2, 2, 2)
    >>> a[:1].labels
    array([0])
    >>> Activations(logits=[[3.0, 1.0]], labels=["dog"], classes=["dog", "cat"]).labels
    array([0])
    """

    features: Any = None
    logits: Any = None
    labels: Any = None
    weight: Any = None
    bias: Any = None
    table: bool = False
    classes: Any = None

    def __post_init__(self) -> None:
        if self.features is None and self.logits is None:
            raise InvalidInputError("Activations needs features, logits or both, got neither.")
        features = None if self.features is None else check_matrix(self.features, "features")
        rows = None if features is None else len(features)
        logits = None if self.logits is None else check_matrix(self.logits, "logits", rows=rows)
        n = len(features) if features is not None else len(logits)  # type: ignore[arg-type]
        k = None if logits is None else logits.shape[1]
        classes = None if self.classes is None else _check_classes(self.classes, k)
        labels = None if self.labels is None else check_label_column(self.labels, n, k, classes)
        weight, bias = _check_head(self.weight, self.bias, features, logits)
        for name, value in zip(PARTS, (features, logits, labels, weight, bias, classes), strict=True):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.features if self.features is not None else self.logits)

    def __repr__(self) -> str:
        parts = [f"{name}={value.shape} {value.dtype}" for name in PARTS if (value := getattr(self, name)) is not None]
        return f"Activations({', '.join(parts)})"

    def __getitem__(self, rows: slice | NDArray[Any] | list[int]) -> Activations:
        """Return the activations of some rows (slice, indices or a boolean mask); the last layer is kept."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            if rows.size == 0:
                rows = rows.astype(np.intp)
            if rows.ndim != 1:
                raise InvalidInputError("rows must be a slice, a list of indices or a boolean mask.")
        part = copy.copy(self)  # rows of checked arrays need no second check
        for name in ("features", "logits", "labels"):
            value = getattr(self, name)
            object.__setattr__(part, name, None if value is None else value[rows])
        return part

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return int(self.need("logits").shape[1])

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.need("features").shape[1])

    def need(self, name: str, *, caller: str = "This operation") -> NDArray[Any]:
        """Return a part, or say which part is missing.

        Parameters
        ----------
        name : {"features", "logits", "labels", "weight", "bias", "classes"}
            The part.
        caller : str
            What needs it, as the subject of the error sentence.

        Returns
        -------
        array : ndarray
        """
        value = getattr(self, name)
        if value is None:
            raise InvalidInputError(f"{caller} needs {name}, which these activations do not have.")
        return value

    def chunks(self, rows: int = 65536) -> Iterator[Activations]:
        """Iterate over consecutive blocks of rows, so that memory stays bounded.

        Parameters
        ----------
        rows : int, default=65536
            Rows per block.

        Yields
        ------
        block : Activations
        """
        rows = check_count(rows, "rows")
        for start in range(0, len(self), rows):
            yield self[start : start + rows]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parts to a file; either the whole file appears or nothing changes.

        Parameters
        ----------
        path : str or path-like
            Name ending in ``.npz`` (uncompressed, so that it can be memory-mapped) or ``.safetensors``
            (extra ``files``). An existing file is replaced only when the new one is complete.
        """
        target = Path(path)
        write, _ = file_format(target)
        arrays = {name: np.asarray(value) for name in PARTS if (value := getattr(self, name)) is not None}
        with replacing(target) as file:
            write(file, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = True) -> Activations:
        """Read activations from a file.

        Parameters
        ----------
        path : str or path-like
            Name ending in ``.npz`` or ``.safetensors`` (extra ``files``). Parts are found by their names
            (``features``, ``logits``, ``labels``, ``weight``, ``bias``, ``classes``); other arrays in the file are ignored.
        mmap : bool, default=True
            Map float32 and float64 arrays instead of copying them; the file is read through once to refuse NaN, and half
            precision becomes double precision in memory. Compressed
            arrays are always read at once.

        Returns
        -------
        activations : Activations

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Activations(logits=[[3.0, 1.0]], labels=[0]).save(folder + "/a.npz")
        ...     Activations.load(folder + "/a.npz", mmap=False)
        Activations(logits=(1, 2) float64, labels=(1,) int64)
        """
        source = Path(path)
        _, read = file_format(source)
        if source.exists():  # otherwise the reader says what is missing, the file or its extra
            check_source(source)
        try:
            arrays = read(source, mmap)
        except (OSError, PoscodError):
            raise
        except Exception as error:  # whatever a damaged header makes the parsers raise
            raise InvalidInputError(f"{source} could not be read as plain arrays ({error}).") from None
        if not {"features", "logits"} & set(arrays):
            raise InvalidInputError(f"{source} must hold features, logits or both, got neither.")
        parts: dict[str, Any] = arrays
        return cls(**parts)


def _write_npz(file: BinaryIO, arrays: Arrays) -> None:
    """Write a numpy archive whose arrays start at multiples of 64 bytes: a memory map of them is then aligned."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            # 30 bytes of header, the name, 4 of the padding's own header, 20 that zip64 adds.
            used = file.tell() + 30 + len(info.filename) + 4 + 20
            padding = -used % 64
            info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_npz(path: Path, mmap: bool, names: Sequence[str] | None = PARTS) -> Arrays:
    """Read or map members of a numpy archive: those of these names, or all of them; never a pickle."""
    arrays: Arrays = {}
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if names is not None and name not in names:
                continue
            if mmap and info.compress_type == zipfile.ZIP_STORED:
                file.seek(info.header_offset)
                lengths = struct.unpack("<26xHH", file.read(30))  # of the name and of the extra field
                file.seek(sum(lengths), os.SEEK_CUR)
                mapped = _map_npy(path, file, file.tell() + info.file_size)
                if mapped is not None:
                    arrays[name] = mapped
                    continue
            with archive.open(info) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays


def _map_npy(path: Path, file: BinaryIO, end: int) -> NDArray[Any] | None:
    """Map the array whose npy header starts here; None where there is nothing to map."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        return None
    shape, fortran, dtype = read(file)
    if dtype.hasobject or 0 in shape:
        return None  # read_array refuses the first and handles the second
    if file.tell() + math.prod(shape) * dtype.itemsize != end:
        raise ValueError(f"an array of shape {shape} does not fill its place")
    return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")


def _write_safetensors(file: BinaryIO, arrays: Arrays) -> None:
    """Write a safetensors file."""
    package = require("safetensors.numpy", extra="files", feature="Writing .safetensors")
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays.items() if name != "classes"}
    # Tensors hold no texts.
    names = {"classes": json.dumps(arrays["classes"].tolist())} if "classes" in arrays else None
    file.write(package.save(tensors, metadata=names))


def _read_safetensors(path: Path, mmap: bool) -> Arrays:
    """Read or map the known tensors of a safetensors file."""
    package = require("safetensors", extra="files", feature="Reading .safetensors")
    dtypes = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
    arrays: Arrays = {}
    # The package checks sizes and offsets; after it, the header can be trusted.
    with package.safe_open(str(path), framework="numpy") as tensors, path.open("rb") as file:
        start = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(start))
        for name in header.keys() & set(PARTS):
            dtype, shape = dtypes.get(header[name]["dtype"]), tuple(header[name]["shape"])
            if mmap and dtype is not None and 0 not in shape:
                offset = 8 + start + header[name]["data_offsets"][0]
                arrays[name] = np.memmap(path, dtype, "r", offset, shape)
            else:
                arrays[name] = tensors.get_tensor(name)
        if names := header.get("__metadata__", {}).get("classes"):
            arrays["classes"] = np.array(json.loads(names))
    return arrays


FORMATS: dict[str, tuple[Callable[[BinaryIO, Arrays], None], Callable[[Path, bool], Arrays]]] = {
    ".npz": (_write_npz, read_npz),
    ".safetensors": (_write_safetensors, _read_safetensors),
}


def file_format(
    path: Path, name: str = "path"
) -> tuple[Callable[[BinaryIO, Arrays], None], Callable[[Path, bool], Arrays]]:
    """Look the format up by the file's extension."""
    if path.suffix not in FORMATS:
        raise InvalidInputError(f"{name} must end in {' or '.join(FORMATS)}, got '{path}'.")
    return FORMATS[path.suffix]


def check_label_column(
    labels: Any,
    n: int,
    n_classes: int | None,
    classes: NDArray[Any] | None = None,
    *,
    start: int = 0,
    name: str = "labels",
) -> NDArray[np.int64]:
    """Check whole numbers from -1 (not ID, or unknown) up to the last class, or names of classes; `start` is the number of the first row."""
    given = as_labels(labels, name)
    if is_text(given):
        return _named_labels(given, n, classes, start, name)
    column = check_vector(given, name, n=n, like="features and logits")
    bad = np.flatnonzero((column < -1) | (column >= (n_classes or np.inf)) | (column != np.floor(column)))
    if len(bad):
        known = "" if n_classes is None else f" 0, ..., {n_classes - 1}"
        raise InvalidInputError(
            f"labels must be class indices{known}, or -1 for OOD and unlabeled rows, got {column[bad[0]]:g} at row {start + bad[0]}."
        )
    return column.astype(np.int64)


def _named_labels(
    given: NDArray[Any], n: int, classes: NDArray[Any] | None, start: int, name: str
) -> NDArray[np.int64]:
    """Return names of classes as indices; the mark of rows without a label stays -1."""
    if classes is None:
        raise refusal(
            name,
            "holds texts, such as {got!r}, and the order of the classes in the logits is not known: pass Activations(..., classes=[...]), a name for each logit.",
            got=given.tolist()[0],
        )
    if given.shape != (n,):
        raise refusal(
            name, "must have as many rows as features and logits ({allowed}), got {got}.", allowed=n, got=len(given)
        )
    codes = codes_of(classes, given)
    bad = np.flatnonzero((codes < 0) & ~marked_rows(given))
    if len(bad):
        raise refusal(
            name,
            "must hold one of the classes ({allowed}), or -1 for OOD and unlabeled rows, got {got!r} at row {row}.",
            allowed=listed(classes),
            got=given.tolist()[bad[0]],
            row=start + int(bad[0]),
        )
    return codes.astype(np.int64)


def _check_classes(classes: Any, n_classes: int | None) -> NDArray[Any]:
    """Check the names of the classes: as many as there are logits, each once."""
    names = as_labels(classes, "classes")
    wanted = len(names) if n_classes is None and names.ndim == 1 else n_classes
    if names.shape != (wanted,) or len(set(names.tolist())) != wanted or not is_text(names):
        raise refusal(
            "classes",
            "must be {allowed} different texts, one a logit, got {got}.",
            allowed=wanted,
            got=listed(names.ravel().tolist()),
        )
    return names


def _check_head(
    weight: Any, bias: Any, features: NDArray[Any] | None, logits: NDArray[Any] | None
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Check the last layer against features and logits."""
    if weight is None:
        if bias is not None:
            raise InvalidInputError("bias was given without weight: pass both parts of the last layer.")
        return None, None
    d, k = (None if part is None else part.shape[1] for part in (features, logits))
    weight = check_matrix(weight, "weight", columns=d, rows=k)
    bias = np.zeros(len(weight), weight.dtype) if bias is None else as_array(bias, "bias")
    check_vector(bias, "bias", n=len(weight), like="weight", allow_inf=False)
    return weight, bias
