# SPDX-License-Identifier: BSD-3-Clause
"""Activations from plain arrays and tables: npy, npz members and Parquet columns.

Convention: nothing is guessed; which column or file holds which part is said by the caller.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError

Place = str | os.PathLike[str]
Columns = str | Sequence[str]


def read_activations(
    *,
    features: Place | None = None,
    logits: Place | None = None,
    labels: Place | None = None,
    weight: Place | None = None,
    bias: Place | None = None,
    mmap: bool = True,
) -> Activations:
    """Read activations from npy files, one per part.

    Parameters
    ----------
    features, logits, labels, weight, bias : str or path-like, default=None
        File that holds the part; None where there is none.
    mmap : bool, default=True
        Map features and logits into memory instead of reading them.

    Returns
    -------
    activations : Activations

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/z.npy", [[1.0, 2.0]])
    ...     read_activations(logits=folder + "/z.npy", mmap=False)
    Activations(logits=(1, 2) float64)
    """
    places = {"features": features, "logits": logits, "labels": labels, "weight": weight, "bias": bias}
    parts: dict[str, Any] = {}
    for name, place in places.items():
        if place is None:
            continue
        path = Path(place)
        if path.suffix != ".npy":
            raise InvalidInputError(f"{name} must name a .npy file, got '{path}'.")
        try:
            parts[name] = np.load(
                path, mmap_mode="r" if mmap and name in ("features", "logits") else None, allow_pickle=False
            )
        except (ValueError, EOFError) as error:
            raise InvalidInputError(f"{path} could not be read as a plain array ({error}).") from None
    return Activations(**parts)


def read_parquet_activations(
    path: Place,
    *,
    features: Columns | None = None,
    logits: Columns | None = None,
    label: str | None = None,
) -> Activations:
    """Read activations from the columns of a Parquet file (extra ``files``).

    Parameters
    ----------
    path : str or path-like
    features, logits : str or sequence of str, default=None
        Name of one column of lists of equal length, or names of columns with one number per row.
    label : str, default=None
        Name of the column of true classes (-1 = OOD or unlabelled).

    Returns
    -------
    activations : Activations
    """
    package = require("pyarrow.parquet", extra="files", feature="Reading Parquet")
    named = [*_names(features), *_names(logits), *_names(label)]
    there = set(package.read_schema(path).names)
    missing = [name for name in named if name not in there]
    if missing:
        raise InvalidInputError(f"{Path(path)} has no column '{missing[0]}': it has {', '.join(sorted(there))}.")
    table = package.read_table(path, columns=list(dict.fromkeys(named)))
    return Activations(
        features=None if features is None else _matrix(table, features, "features"),
        logits=None if logits is None else _matrix(table, logits, "logits"),
        labels=None if label is None else _column(table, label),
    )


def _names(columns: Columns | None) -> list[str]:
    if columns is None:
        return []
    return [columns] if isinstance(columns, str) else list(columns)


def _matrix(table: Any, columns: Columns, part: str) -> NDArray[Any]:
    """Return a matrix from one column of lists or from several columns of numbers."""
    if not isinstance(columns, str):
        if not columns:
            raise InvalidInputError(f"{part} must name at least one column, got none.")
        return np.stack([_column(table, name) for name in columns], axis=1)
    column = table.column(columns).combine_chunks()
    if not hasattr(column.type, "value_type") or column.null_count:
        raise InvalidInputError(
            f"{part}='{columns}' must be a column of lists without gaps, got {column.type}: name several columns of "
            "numbers as a list."
        )
    flat = column.flatten()
    width = len(flat) // len(column) if len(column) else 0
    lengths = set(column.value_lengths().to_pylist()) if hasattr(column, "value_lengths") else {width}
    if flat.null_count or lengths - {width}:
        raise InvalidInputError(f"{part}='{columns}' must hold lists of equal length without gaps.")
    matrix: NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(column), width)
    return matrix


def _column(table: Any, name: str) -> NDArray[Any]:
    """Return one column of numbers; a gap is refused as the NaN it becomes."""
    column: NDArray[Any] = table.column(name).to_numpy()
    return column
