# SPDX-License-Identifier: BSD-3-Clause
"""Rows that arrive batch by batch become `Activations`, in memory or on disk beyond memory.

Convention: a spool checks every batch when it arrives, so that a bad row is reported while its batch is known; the file appears as a
whole at the end, or not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import check_choice
from poscod.activations import Activations, check_label_column, file_format
from poscod.exceptions import InvalidInputError

DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("float32", "float64")}
# What to do about a number that is not finite.
HINT = "look at this input (NaN, or not scaled as the network wants it) and at the network's weights."


class Spool(ExitStack):
    """Collects features, logits and labels of batches.

    Parameters
    ----------
    to : str or path-like, default=None
        File to write (.npz or .safetensors); None keeps the rows in memory.
    dtype : str, default="float32"
        What features and logits are kept as.
    classes : sequence of str, default=None
        Names of the classes.
    """

    def __init__(
        self, to: str | os.PathLike[str] | None = None, *, dtype: str = "float32", classes: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        self.target = None if to is None else Path(to)
        if self.target is not None:
            file_format(self.target, "to")
        self.dtype, self.hint, self.tolerance = check_choice(dtype, "dtype", DTYPES), HINT, 1e-3
        self.rows, self.classes = 0, classes
        # Bytes so far, in memory or in a file, and an array of no rows that says what they are.
        self._parts: dict[str, tuple[Any, NDArray[Any]]] = {}

    def add(self, features: NDArray[Any], logits: NDArray[Any] | None, labels: Any = None) -> None:
        """Check a batch and keep it; embeddings have no logits."""
        n = len(features)
        if self.rows and ("labels" in self._parts) != (labels is not None):
            raise InvalidInputError("loader must give labels with every batch or with none.")
        for name, part in (("features", features), ("logits", logits)):
            if part is None:
                continue
            if part.ndim != 2 or len(part) != n:
                raise InvalidInputError(f"{name} must have shape (rows, columns) with {n} rows, got {part.shape}.")
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
            known = None if logits is None else logits.shape[1]
            self._append("labels", check_label_column(labels, n, known, start=self.rows))
        self.rows += n

    def finish(self, weight: NDArray[Any] | None = None, bias: NDArray[Any] | None = None) -> Activations:
        """Return all rows, with the last layer if it made their logits, and write them where there is a target."""
        if self.rows == 0:
            raise InvalidInputError("loader must give at least one row, got none.")
        arrays: dict[str, Any] = {name: self._whole(*part) for name, part in self._parts.items()}
        if weight is not None and not self._affine(arrays["features"][:256], arrays["logits"][:256], weight, bias):
            weight = bias = None
        found = Activations(**arrays, weight=weight, bias=bias, classes=self.classes)
        if self.target is None:
            return found
        found.save(self.target)
        return Activations.load(self.target)

    def _affine(self, x: NDArray[Any], z: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None) -> bool:
        if weight.shape != (z.shape[1], x.shape[1]):
            return False
        made = x.astype(np.float64) @ weight.T.astype(np.float64) + (0.0 if bias is None else bias)
        return bool(np.abs(made - z).max() <= self.tolerance * (1.0 + np.abs(z).max()))

    def _append(self, name: str, values: NDArray[Any]) -> None:
        if name not in self._parts:
            # A file lies beside the target: the same disk, and room that the user has chosen.
            where = None if self.target is None else self.target.parent
            made = BytesIO() if where is None else self.enter_context(tempfile.TemporaryFile(dir=where))  # noqa: SIM115
            self._parts[name] = made, values[:0]
        file, like = self._parts[name]
        if values.shape[1:] != like.shape[1:]:
            raise InvalidInputError(f"{name} must have {like.shape[1]} columns in every batch, got {values.shape[1]}.")
        file.write(values.data)

    def _whole(self, file: Any, like: NDArray[Any]) -> NDArray[Any]:
        shape = (self.rows, *like.shape[1:])
        if isinstance(file, BytesIO):
            return np.frombuffer(file.getbuffer(), like.dtype).reshape(shape)
        file.flush()
        return np.memmap(file, like.dtype, "r", shape=shape)
