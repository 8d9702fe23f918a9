# SPDX-License-Identifier: BSD-3-Clause
"""Rows that arrive batch by batch become `Activations`, in memory or on disk beyond memory.

Convention: a spool checks every batch when it arrives, so that a bad row is reported while its batch is known; the file appears as a
whole at the end, or not at all.
"""

from __future__ import annotations

import os
import tempfile
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import as_array, check_choice
from poscod.activations import FORMATS, Activations
from poscod.exceptions import InvalidInputError

if TYPE_CHECKING:
    from typing_extensions import Self

DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("float32", "float64")}
# What to do about a number that is not finite.
HINT = "look at this input (NaN, or not scaled as the network wants it) and at the network's weights."


class Part(NamedTuple):
    """One array on its way: its bytes so far, in memory or in a file, and what they are."""

    file: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Spool:
    """Collects features, logits and labels of batches.

    Parameters
    ----------
    to : str or path-like, default=None
        File to write (.npz or .safetensors); None keeps the rows in memory.
    dtype : str, default="float32"
        What features and logits are kept as.
    """

    def __init__(self, to: str | os.PathLike[str] | None = None, *, dtype: str = "float32") -> None:
        self.target = None if to is None else Path(to)
        if self.target is not None and self.target.suffix not in FORMATS:
            raise InvalidInputError(f"to must end in {' or '.join(FORMATS)}, got '{self.target}'.")
        self.dtype, self.hint = check_choice(dtype, "dtype", DTYPES), HINT
        self.rows = 0
        self._parts: dict[str, Part] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for part in self._parts.values():
            if not isinstance(part.file, BytesIO):  # whose bytes are what was returned
                part.file.close()

    def add(self, features: NDArray[Any], logits: NDArray[Any], labels: Any = None) -> None:
        """Check a batch and keep it."""
        if self.rows and ("labels" in self._parts) != (labels is not None):
            raise InvalidInputError("loader must give labels with every batch or with none.")
        for name, part in (("features", features), ("logits", logits)):
            if part.ndim != 2 or len(part) != len(logits):
                raise InvalidInputError(
                    f"{name} must have shape (rows, columns) with {len(logits)} rows, got {part.shape}."
                )
            if not np.isfinite(part).all():
                row, column = (int(i) for i in np.argwhere(~np.isfinite(part))[0])
                where = f"{part[row, column]} at row {self.rows + row}, column {column}"
                raise InvalidInputError("{name} must be finite, got {got}: " + self.hint, name=name, got=where)
            # Beyond the range of a narrower type a finite number becomes infinite.
            with np.errstate(over="ignore"):
                kept = np.ascontiguousarray(part, dtype=self.dtype)
            if not np.isfinite(kept).all():
                raise InvalidInputError(
                    "{name} leave the range of {got}: pass {dtype} float64.", name=name, got=self.dtype
                )
            self._append(name, kept)
        if labels is not None:
            self._append("labels", self._check_labels(labels, *logits.shape))
        self.rows += len(logits)

    def finish(self, weight: NDArray[Any] | None = None, bias: NDArray[Any] | None = None) -> Activations:
        """Return all rows and, with a target, write them."""
        if self.rows == 0:
            raise InvalidInputError("loader must give at least one row, got none.")
        arrays: dict[str, Any] = {name: self._whole(part) for name, part in self._parts.items()}
        found = Activations(**arrays, weight=weight, bias=bias)
        if self.target is None:
            return found
        found.save(self.target)
        return Activations.load(self.target)

    def _check_labels(self, labels: Any, n: int, k: int) -> NDArray[np.int64]:
        column = as_array(labels, "labels")
        if column.shape != (n,):
            raise InvalidInputError(f"labels must be one class index per row, shape ({n},), got {column.shape}.")
        bad = (column < -1) | (column >= k) | (column != np.floor(column))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise InvalidInputError(
                f"labels must be class indices 0, ..., {k - 1}, or -1 for OOD and unlabelled rows, got {column[row]:g} at row "
                f"{self.rows + row}."
            )
        return column.astype(np.int64)

    def _append(self, name: str, values: NDArray[Any]) -> None:
        if name not in self._parts:
            # A file lies beside the target: the same disk, and room that the user has chosen.
            where = None if self.target is None else self.target.parent
            file = BytesIO() if where is None else tempfile.TemporaryFile(dir=where)  # noqa: SIM115 (closed at the end)
            self._parts[name] = Part(file, values.dtype, values.shape[1:])
        part = self._parts[name]
        if values.shape[1:] != part.shape:
            raise InvalidInputError(f"{name} must have {part.shape[0]} columns in every batch, got {values.shape[1]}.")
        part.file.write(values.data)

    def _whole(self, part: Part) -> NDArray[Any]:
        shape = (self.rows, *part.shape)
        if isinstance(part.file, BytesIO):
            return np.frombuffer(part.file.getbuffer(), part.dtype).reshape(shape)
        part.file.flush()
        return np.memmap(part.file, part.dtype, "r", shape=shape)
