# SPDX-License-Identifier: BSD-3-Clause
"""Columns that a linear ratio sees: groups of columns, standardised once or block by block.

Convention: the dtype of the input is kept (float32 rows are never copied to float64), and a matrix above
`RESIDENT_BYTES` is read block by block, so that a memory map stays on disk. A constant column becomes zero.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats

RESIDENT_BYTES = 256 * 2**20
BLOCK_BYTES = 16 * 2**20
CACHE_BYTES = 2**20


def block_rows(columns: int, itemsize: int) -> int:
    """Return how many rows make a block of about `BLOCK_BYTES`."""
    return int(max(256, BLOCK_BYTES // max(1, columns * itemsize)))


def cache_blocks(matrix: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Cut a matrix into blocks that fit the processor's cache, where the second product of a pass finds the rows."""
    step = max(256, CACHE_BYTES // max(1, matrix.shape[1] * matrix.dtype.itemsize))
    for start in range(0, len(matrix), step):
        yield matrix[start : start + step]


class Columns(Protocol):
    """What a fit reads: standardised columns of rows, block by block."""

    n_columns: int

    def blocks(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Iterate over (rows, block)."""
        ...


@dataclass(frozen=True)
class Scaler:
    """Mean and standard deviation of each column; an infinite scale silences a constant column."""

    mean: Floats
    scale: Floats

    def transform(self, matrix: NDArray[Any]) -> NDArray[Any]:
        """Return the standardised rows in their own dtype."""
        out = matrix - self.mean.astype(matrix.dtype)
        out *= (1.0 / self.scale).astype(matrix.dtype)
        return np.asarray(out)


@dataclass(frozen=True)
class Moments:
    """Weight, first and second moments of rows about a shift: sums, so those of parts add up."""

    count: float
    total: Floats
    square: Floats

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both parts together."""
        return Moments(self.count + other.count, self.total + other.total, self.square + other.square)


def moments(part: NDArray[Any], shift: Floats, weight: Floats | None = None) -> Moments:
    """Return the moments of some rows, in one pass of blocks."""
    d = part.shape[1]
    count, total, square = 0.0, np.zeros(d), np.zeros(d)
    step = block_rows(d, part.dtype.itemsize)
    for start in range(0, len(part), step):
        block = np.asarray(part[start : start + step], dtype=np.float64) - shift
        w = np.ones(len(block)) if weight is None else weight[start : start + step]
        count += float(w.sum())
        total += w @ block
        square += np.einsum("i,ij,ij->j", w, block, block)
    return Moments(count, total, square)


def scaler_of(found: Moments, shift: Floats, dtype: Any) -> Scaler:
    """Return mean and standard deviation from the moments of all rows."""
    mean = found.total / found.count
    scale = np.sqrt(np.maximum(found.square / found.count - mean**2, 0.0))
    mean += shift
    scale[scale <= 10.0 * np.finfo(dtype).eps * np.abs(mean) + 1e-30] = np.inf
    return Scaler(mean, scale)


def fit_scaler(parts: Sequence[NDArray[Any]], weights: Sequence[Floats | None] | None = None) -> Scaler:
    """Return mean and standard deviation over the rows of all parts, in one pass of blocks."""
    shift = np.asarray(parts[0][:1], dtype=np.float64).reshape(parts[0].shape[1])
    each = [None] * len(parts) if weights is None else weights
    found = [moments(part, shift, weight) for part, weight in zip(parts, each, strict=True)]
    return scaler_of(functools.reduce(operator.add, found), shift, parts[0].dtype)


class Design:
    """Rows with standardised columns, resident when small and read in blocks when large.

    Parameters
    ----------
    parts : sequence of tuple of ndarray
        Row parts (labeled, then unlabeled); each is a tuple of column groups of shapes (n_i, d_j).
    scalers : tuple of Scaler
        One per column group.
    resident : int, default=None
        Largest size in bytes that is standardised once and kept; None is `RESIDENT_BYTES`.
    dtype : dtype, default=None
        What rows are standardised and multiplied in; None is their own dtype. In float64 sums depend on how the rows are cut into
        blocks by 1e-16, in float32 by 1e-7.
    """

    def __init__(
        self,
        parts: Sequence[tuple[NDArray[Any], ...]],
        scalers: tuple[Scaler, ...],
        *,
        resident: int | None = None,
        dtype: Any = None,
    ) -> None:
        self._parts = parts
        self._scalers = scalers
        self.n_columns = sum(int(group.shape[1]) for group in parts[0])
        self.n_rows = sum(len(part[0]) for part in parts)
        self._dtype = np.dtype(parts[0][0].dtype if dtype is None else dtype)
        size = self.n_rows * self.n_columns * self._dtype.itemsize
        self._matrix: NDArray[Any] | None = None
        if size <= (RESIDENT_BYTES if resident is None else resident):
            blocks = [block for _, block in self.blocks()]
            self._matrix = np.concatenate(blocks) if blocks else np.zeros((0, self.n_columns))

    def blocks(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Iterate over the rows."""
        if self._matrix is not None:
            first = 0
            for block in cache_blocks(self._matrix):
                yield slice(first, first + len(block)), block
                first += len(block)
            return
        first = 0
        for part in self._parts:
            step = block_rows(self.n_columns, self._dtype.itemsize)
            for start in range(0, len(part[0]), step):
                groups = [
                    scaler.transform(np.asarray(group[start : start + step], dtype=self._dtype))
                    for group, scaler in zip(part, self._scalers, strict=True)
                ]
                block = groups[0] if len(groups) == 1 else np.concatenate(groups, axis=1)
                yield slice(first, first + len(block)), block
                first += len(block)
