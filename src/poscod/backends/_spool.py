# SPDX-License-Identifier: BSD-3-Clause
"""Rows that arrive batch by batch become `Activations`, in memory or on disk beyond memory.

Convention: a spool checks every batch when it arrives, so that a bad row is reported while its batch is known; the file appears as a
whole at the end, or not at all.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from poscod._validation import as_array
from poscod.activations import FORMATS, Activations
from poscod.exceptions import InvalidInputError

if TYPE_CHECKING:
    from typing_extensions import Self

Part = NDArray[Any]


class Spool:
    """Collects features, logits and labels of batches.

    Parameters
    ----------
    to : str or path-like, default=None
        File to write (.npz or .safetensors); None keeps the rows in memory.
    dtype : str, default="float32"
        What features and logits are kept as.
    hint : str, default=""
        What to do about a number that is not finite, appended to that message.
    """

    def __init__(self, to: str | os.PathLike[str] | None = None, *, dtype: str = "float32", hint: str = "") -> None:
        self.target = None if to is None else Path(to)
        if self.target is not None and self.target.suffix not in FORMATS:
            raise InvalidInputError(f"to must end in {' or '.join(FORMATS)}, got '{self.target}'.")
        self.dtype, self.hint = np.dtype(dtype), hint
        self.rows = 0
        self.labelled: bool | None = None
        self._parts: dict[str, list[Part]] = {}
        self._files: dict[str, BinaryIO] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        if self.target is not None:
            # Beside the target: the same disk, and room that the user has chosen.
            self._folder = tempfile.TemporaryDirectory(prefix=f".{self.target.name}.", dir=self.target.parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, features: Part, logits: Part, labels: Any = None) -> None:
        """Check a batch and keep it."""
        if self.labelled is None:
            self.labelled = labels is not None
        if self.labelled != (labels is not None):
            raise InvalidInputError("loader must give labels with every batch or with none.")
        for name, part in (("features", features), ("logits", logits)):
            if part.ndim != 2 or len(part) != len(logits):
                raise InvalidInputError(
                    f"{name} must have shape (rows, columns) with {len(logits)} rows, got {part.shape}."
                )
            if not np.isfinite(part).all():
                row, column = (int(i) for i in np.argwhere(~np.isfinite(part))[0])
                raise InvalidInputError(
                    f"{name} must be finite, got {part[row, column]} at row {self.rows + row}, column {column}: {self.hint}"
                )
            # Beyond the range of a narrower type a finite number becomes infinite.
            with np.errstate(over="ignore"):
                kept = np.ascontiguousarray(part, dtype=self.dtype)
            if not np.isfinite(kept).all():
                raise InvalidInputError(f"{name} leave the range of {self.dtype}: pass dtype='float64'.")
            self._append(name, kept)
        if labels is not None:
            self._append("labels", self._check_labels(labels, *logits.shape))
        self.rows += len(logits)

    def finish(self, weight: Part | None = None, bias: Part | None = None) -> Activations:
        """Return all rows and, with a target, write them."""
        if self.rows == 0:
            raise InvalidInputError("loader must give at least one row, got none.")
        arrays: dict[str, Any] = {name: self._whole(name) for name in self._shapes}
        found = Activations(**arrays, weight=weight, bias=bias)
        if self.target is None:
            return found
        found.save(self.target)
        return Activations.load(self.target)

    def _check_labels(self, labels: Any, n: int, k: int) -> Part:
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

    def _append(self, name: str, part: Part) -> None:
        shape = self._shapes.setdefault(name, part.shape[1:])
        if part.shape[1:] != shape:
            raise InvalidInputError(f"{name} must have {shape[0]} columns in every batch, got {part.shape[1]}.")
        if self._folder is None:
            self._parts.setdefault(name, []).append(part)
            return
        if name not in self._files:
            self._files[name] = open(os.path.join(self._folder.name, name), "w+b")  # noqa: SIM115
        self._files[name].write(part.tobytes())

    def _whole(self, name: str) -> Part:
        if self._folder is None:
            return np.concatenate(self._parts[name])
        self._files[name].flush()
        dtype = np.int64 if name == "labels" else self.dtype
        return np.memmap(self._files[name].name, dtype, "r", shape=(self.rows, *self._shapes[name]))
