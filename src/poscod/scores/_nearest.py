# SPDX-License-Identifier: BSD-3-Clause
"""Nearest rows of a bank by blocked matrix products: memory stays at two tiles, whatever the sizes.

Convention: the products are taken in the dtype of the bank; what is returned is float64.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod._validation import Floats, check_choice, check_count
from poscod.exceptions import InvalidInputError

QUERY_ROWS = 1024
BANK_ROWS = 8192
GROUPS = 16

BACKENDS: dict[str, str] = {
    "auto": "faiss when it is installed and the bank is float32, otherwise blas",
    "blas": "blocked matrix products of numpy",
    "faiss": "exact search of faiss in float32",
}


def unit_rows(features: NDArray[Any]) -> NDArray[Any]:
    """Return rows of Euclidean norm one in the dtype of the input; a row of zeros stays a row of zeros."""
    unit = np.array(features, order="C")
    for start in range(0, len(unit), QUERY_ROWS):
        block = unit[start : start + QUERY_ROWS]
        norm = np.sqrt(np.einsum("nd,nd->n", block, block, dtype=np.float64))
        block /= np.where(norm > 0, norm, 1.0).astype(unit.dtype)[:, None]
    return unit


def draw_rows(n: int, size: int | None, random_state: Any) -> NDArray[np.int64] | slice:
    """Choose the rows of the bank."""
    if size is None or size >= n:
        return slice(None)
    return np.sort(np.random.default_rng(random_state).choice(n, size, replace=False))


def check_neighbours(k: Any, bank_size: Any, backend: Any) -> None:
    """Check the parameters that all bank scores share."""
    check_count(k, "k")
    if bank_size is not None:
        check_count(bank_size, "bank_size")
    check_choice(backend, "backend", BACKENDS)


def check_enough(k: int, rows: int) -> None:
    """Refuse more neighbours than the bank has rows."""
    if k > rows:
        raise InvalidInputError(f"k must be at most the number of rows in the bank ({rows}), got {k}.")


def use_faiss(backend: str, bank: NDArray[Any]) -> bool:
    """Decide whether faiss answers."""
    if backend == "auto":
        return bank.dtype == np.float32 and importlib.util.find_spec("faiss") is not None
    return backend == "faiss"


def kth_squared_distance(queries: NDArray[Any], bank: NDArray[Any], k: int, backend: str) -> Floats:
    """Return the squared Euclidean distance to the k-th nearest row of the bank."""
    if use_faiss(backend, bank):
        faiss = require("faiss", extra="faiss", feature="backend='faiss'")
        found, _ = faiss.knn(_float32(queries), _float32(bank), k)
        return np.asarray(np.maximum(found[:, -1], 0.0), dtype=np.float64)
    # |q - b|^2 / 2 = |q|^2 / 2 - (q b - |b|^2 / 2): the largest brackets belong to the nearest rows.
    half = 0.5 * np.einsum("md,md->m", bank, bank, dtype=np.float64).astype(bank.dtype)
    kth = largest_products(queries, bank, k, half).min(axis=1)
    squares = np.einsum("nd,nd->n", queries, queries, dtype=np.float64)
    return np.asarray(np.maximum(squares - 2.0 * kth, 0.0))


def mean_largest_product(queries: NDArray[Any], bank: NDArray[Any], k: int, backend: str) -> Floats:
    """Return the mean of the k largest inner products with rows of the bank."""
    if use_faiss(backend, bank):
        faiss = require("faiss", extra="faiss", feature="backend='faiss'")
        found, _ = faiss.knn(_float32(queries), _float32(bank), k, metric=faiss.METRIC_INNER_PRODUCT)
        return np.asarray(found.mean(axis=1, dtype=np.float64))
    return np.asarray(largest_products(queries, bank, k, np.zeros(len(bank), bank.dtype)).mean(axis=1))


def largest_products(queries: NDArray[Any], bank: NDArray[Any], k: int, penalty: NDArray[Any]) -> Floats:
    """Return the k largest values of q b - penalty_b over the bank, in no particular order."""
    out = np.empty((len(queries), k))
    for start in range(0, len(queries), QUERY_ROWS):
        rows = np.asarray(queries[start : start + QUERY_ROWS], dtype=bank.dtype)
        best = np.empty((len(rows), 0), dtype=bank.dtype)
        for left in range(0, len(bank), BANK_ROWS):
            tile = rows @ bank[left : left + BANK_ROWS].T
            tile -= penalty[left : left + BANK_ROWS]
            best = _merge(best, tile, k)
        out[start : start + QUERY_ROWS] = best
    return out


def _merge(best: NDArray[Any], tile: NDArray[Any], k: int) -> NDArray[Any]:
    """Return the k largest of each row of `best` and `tile` together (all of them while there are fewer)."""
    if best.shape[1] == k:
        level = best.min(axis=1)
        found = tile > level[:, None]  # an equal value would replace an equal value
    elif tile.shape[1] // GROUPS >= k:
        # The k-th largest of group maxima is a level that at least k entries reach and few others do: one cheap
        # pass replaces a partial sort of the whole tile.
        width = tile.shape[1] // GROUPS
        peaks = tile[:, : GROUPS * width].reshape(len(tile), GROUPS, width).max(axis=1)
        found = tile >= np.partition(peaks, width - k, axis=1)[:, width - k, None]
    else:
        return _keep_largest(np.concatenate([best, tile], axis=1), k)
    return _keep_largest(np.concatenate([best, _compact(tile, found)], axis=1), k)


def _compact(tile: NDArray[Any], found: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the marked entries of each row, shifted to the left and padded with -inf."""
    place = np.flatnonzero(found)
    row = place // tile.shape[1]
    counts = np.bincount(row, minlength=len(tile))
    column = np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)
    packed = np.full((len(tile), int(counts.max(initial=0))), -np.inf, dtype=tile.dtype)
    packed[row, column] = tile.reshape(-1)[place]
    return packed


def _keep_largest(values: NDArray[Any], k: int) -> NDArray[Any]:
    """Return the k largest entries of each row, or all when there are no more."""
    if values.shape[1] <= k:
        return values
    values.partition(values.shape[1] - k, axis=1)
    return values[:, -k:]


def _float32(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, dtype=np.float32)
