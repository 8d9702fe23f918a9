"""Columns that a linear ratio sees: groups of columns, standardised once or block by block.

Convention: the dtype of the input is kept (float32 rows are never copied to float64), and a matrix above
`RESIDENT_BYTES` is read block by block, so that a memory map stays on disk. A constant column becomes zero.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

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
    """Return how many rows make a block of about `BLOCK_BYTES`.

    Parameters
    ----------
    columns, itemsize : int
        Columns of the matrix and bytes of a number.

    Returns
    -------
    rows : int
    """
    return int(max(256, BLOCK_BYTES // max(1, columns * itemsize)))


def cache_blocks(matrix: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Cut a matrix into blocks that fit the processor's cache, where the second product of a pass finds the rows.

    Parameters
    ----------
    matrix : ndarray of shape (n, d)

    Yields
    ------
    block : ndarray of shape (rows, d)
    """
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
        """Return the standardised rows in their own dtype.

        Parameters
        ----------
        matrix : ndarray of shape (n, d)

        Returns
        -------
        standard : ndarray of shape (n, d)
        """
        out = matrix - self.mean.astype(matrix.dtype)
        out *= (1.0 / self.scale).astype(matrix.dtype)
        return np.asarray(out)


def fit_scaler(parts: Sequence[NDArray[Any]], weights: Sequence[Floats | None] | None = None) -> Scaler:
    """Return mean and standard deviation over the rows of all parts, in one pass of blocks.

    Parameters
    ----------
    parts : sequence of ndarray of shape (n_i, d)
        Both sides (labelled and unlabelled) are given, so that neither is favoured.
    weights : sequence of ndarray of shape (n_i,) or None, default=None
        Row weights of each part.

    Returns
    -------
    scaler : Scaler
    """
    d = parts[0].shape[1]
    shift = np.asarray(parts[0][:1], dtype=np.float64).reshape(d)
    count, total, square = 0.0, np.zeros(d), np.zeros(d)
    for index, part in enumerate(parts):
        weight = None if weights is None else weights[index]
        step = block_rows(d, part.dtype.itemsize)
        for start in range(0, len(part), step):
            # Moments about a row of the data: a large common mean cancels before it is squared.
            block = np.asarray(part[start : start + step], dtype=np.float64) - shift
            w = np.ones(len(block)) if weight is None else weight[start : start + step]
            count += float(w.sum())
            total += w @ block
            square += np.einsum("i,ij,ij->j", w, block, block)
    mean = total / count
    scale = np.sqrt(np.maximum(square / count - mean**2, 0.0))
    mean += shift
    # Below the resolution of its dtype a column is constant, whatever its rounding noise says.
    resolution = 10.0 * np.finfo(parts[0].dtype).eps
    scale[scale <= resolution * np.abs(mean) + 1e-30] = np.inf
    return Scaler(mean, scale)


class Design:
    """Rows with standardised columns, resident when small and read in blocks when large.

    Parameters
    ----------
    parts : sequence of tuple of ndarray
        Row parts (labelled, then unlabelled); each is a tuple of column groups of shapes (n_i, d_j).
    scalers : tuple of Scaler
        One per column group.
    resident : int, default=RESIDENT_BYTES
        Largest size in bytes that is standardised once and kept.
    """

    def __init__(
        self,
        parts: Sequence[tuple[NDArray[Any], ...]],
        scalers: tuple[Scaler, ...],
        *,
        resident: int = RESIDENT_BYTES,
    ) -> None:
        self._parts = parts
        self._scalers = scalers
        self.n_columns = sum(int(group.shape[1]) for group in parts[0])
        self.n_rows = sum(len(part[0]) for part in parts)
        size = self.n_rows * self.n_columns * parts[0][0].dtype.itemsize
        self._matrix: NDArray[Any] | None = None
        if size <= resident:
            blocks = [block for _, block in self.blocks()]
            self._matrix = np.concatenate(blocks) if blocks else np.zeros((0, self.n_columns))

    def blocks(self) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Iterate over the rows.

        Yields
        ------
        rows : slice
        block : ndarray of shape (rows, n_columns)
        """
        if self._matrix is not None:
            first = 0
            for block in cache_blocks(self._matrix):
                yield slice(first, first + len(block)), block
                first += len(block)
            return
        first = 0
        for part in self._parts:
            step = block_rows(self.n_columns, part[0].dtype.itemsize)
            for start in range(0, len(part[0]), step):
                groups = [
                    scaler.transform(np.asarray(group[start : start + step]))
                    for group, scaler in zip(part, self._scalers, strict=True)
                ]
                block = groups[0] if len(groups) == 1 else np.concatenate(groups, axis=1, dtype=part[0].dtype)
                yield slice(first, first + len(block)), block
                first += len(block)
