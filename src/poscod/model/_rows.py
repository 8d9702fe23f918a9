# SPDX-License-Identifier: BSD-3-Clause
"""Rows of any kind: arrays, data frames, sparse matrices, lists of texts, Activations."""

from __future__ import annotations

import hashlib
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from poscod._validation import listed
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError, PoscodWarning, warn_caller
from poscod.labels import is_text
from poscod.ratio import mixed, odd_factors, row_hash

# A probability of exactly zero (trees vote so) has no logarithm; below this none can be learned from data anyway.
LEAST_PROBABILITY = 1e-12


def as_indexable(X: Any) -> Any:
    """Return rows that can be picked: what only promises to be an array becomes one, sparse formats become CSR."""
    if hasattr(X, "tocsr"):
        return X.tocsr()
    if isinstance(X, (list, tuple)):
        return np.asarray(X)
    known = isinstance(X, Activations) or hasattr(X, "iloc") or hasattr(X, "__getitem__")
    return X if known else np.asarray(X)


def n_rows(X: Any) -> int:
    """Return the number of rows of anything that has rows."""
    return len(X) if isinstance(X, Activations) else int(_num_samples(X))


def n_numbers(*parts: Any) -> int:
    """Return how many numbers rows hold, together; of texts and gaps in a sparse matrix none."""
    arrays = (
        array
        for X in parts
        for array in ((X.features, X.logits) if isinstance(X, Activations) else (X,))
        if array is not None
    )
    return sum(int(getattr(array, "nnz", np.prod(np.shape(array)))) for array in arrays)


def take(X: Any, rows: NDArray[Any] | slice) -> Any:
    """Return some rows, of the same kind."""
    return X[rows] if isinstance(X, Activations) else _safe_indexing(X, rows)


def chunks(X: Any, rows: int = 65536) -> Iterator[Any]:
    """Iterate over consecutive blocks of rows, so that memory stays bounded."""
    for start in range(0, n_rows(X), rows):
        yield take(X, slice(start, start + rows))


def is_numeric(X: Any) -> bool:
    """Tell whether rows are numbers already: a numeric array or sparse matrix, or a frame that becomes one."""
    kind = getattr(getattr(X, "dtype", None), "kind", None)
    if kind is None and hasattr(X, "__array__"):
        kind = np.asarray(take(X, slice(0, 1))).dtype.kind
    return kind is not None and kind in "fiub" and len(np.shape(X)) == 2


def same_rows(X: Any, other: Any) -> bool:
    """Tell whether two tables hold the same rows in the same order."""
    if X is other:
        return True
    if n_rows(X) != n_rows(other):
        return False
    if isinstance(X, Activations) or isinstance(other, Activations):
        pairs: Any = [[getattr(rows, name, None) for rows in (X, other)] for name in ("logits", "features")]
        return type(X) is type(other) and all(one is two or np.array_equal(one, two) for one, two in pairs)
    if hasattr(X, "tocsr") and hasattr(other, "tocsr"):
        return X.shape == other.shape and (X.tocsr() != other.tocsr()).nnz == 0
    if hasattr(X, "equals"):  # frames, whose gaps are equal
        return type(X) is type(other) and bool(X.equals(other))
    pairs = zip(chunks(as_indexable(X)), chunks(as_indexable(other)), strict=True)
    return all(np.array_equal(one, two) for one, two in pairs)


def columns_without_numbers(X: Any) -> list[str]:
    """Return the columns of a data frame that cannot be read as numbers; none for other rows."""
    found = []
    for name in getattr(X, "columns", []):
        try:
            np.asarray(X[name]).astype(np.float64)
        except (TypeError, ValueError):
            found.append(str(name))
    return found


def row_keys(X: Any, other: Any, seed: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return a number per row of two tables of one kind, equal for equal rows, whatever their place; gaps are equal to each other."""
    if isinstance(X, Activations):
        name = "logits" if X.features is None or other.features is None else "features"
        return row_keys(X.need(name), other.need(name), seed)
    if 0 in np.shape(X)[1:]:  # nothing tells rows apart; the classifier will say so
        return np.arange(n_rows(X), dtype=np.uint64), np.arange(n_rows(other), dtype=np.uint64)
    if hasattr(X, "tocsr") or hasattr(other, "tocsr"):
        return _sparse_keys(X, seed), _sparse_keys(other, seed)
    if is_numeric(X) and is_numeric(other):
        sides = np.asarray(X), np.asarray(other)
        dtype = np.float32 if all(side.dtype == np.float32 for side in sides) else np.float64
        return row_hash(sides[0], seed, dtype), row_hash(sides[1], seed, dtype)
    return _cell_keys(columns_of(X), columns_of(other), seed)


def keys_of(X: Any) -> NDArray[np.uint64]:
    """Return a number per row that depends on its content alone, by which a later table knows it again."""
    X = as_indexable(X)
    return row_keys(X, take(X, slice(0, 0)), 0)[0]


def _sparse_keys(X: Any, seed: int) -> NDArray[np.uint64]:
    rows = sparse.csr_array(X, dtype=np.float64, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    rows.data[rows.data != rows.data] = np.nan
    words = rows.data.view(np.uint64) * odd_factors(np.random.default_rng(seed), rows.shape[1])[rows.indices]
    # Sums of rows as differences of one running sum: integers wrap around, so that nothing is rounded.
    total = np.append(np.uint64(0), np.cumsum(words, dtype=np.uint64))
    return mixed(total[rows.indptr[1:]] - total[rows.indptr[:-1]])


def columns_of(X: Any) -> list[NDArray[Any]]:
    """Return the columns of texts, of a data frame or of an array of objects."""
    if hasattr(X, "iloc") and np.ndim(X) == 2:
        return [np.asarray(X.iloc[:, j]) for j in range(X.shape[1])]
    if hasattr(X, "columns"):
        return [np.asarray(X[name]) for name in X.columns]
    array = np.asarray(X)
    return list(array.reshape(len(array), int(np.prod(array.shape[1:]))).T)


def _cell_keys(
    columns: list[NDArray[Any]], others: list[NDArray[Any]], seed: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    factors = odd_factors(np.random.default_rng(seed), len(columns))
    known: dict[bytes, int] = {}
    keys = np.zeros(len(columns[0]), dtype=np.uint64), np.zeros(len(others[0]), dtype=np.uint64)
    for pair, factor in zip(zip(columns, others, strict=False), factors, strict=False):  # the classifier counts columns
        as_numbers = all(column.dtype.kind in "fiub" for column in pair)
        for column, key in zip(pair, keys, strict=True):
            if as_numbers:
                key += row_hash(column[:, None], seed, np.float64) * factor
            else:
                key += np.array([_digest(cell, known) for cell in column.tolist()], dtype=np.uint64) * factor
    return mixed(keys[0]), mixed(keys[1])


def _digest(cell: Any, known: dict[bytes, int]) -> int:
    """Return the number of a cell by its content."""
    if isinstance(cell, numbers.Real):
        cell = repr(float(cell))
    text = cell.tobytes() if isinstance(cell, np.ndarray) else str(cell).encode("utf-8", "surrogatepass")
    if text not in known:
        known[text] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return known[text]


def check_classes(rows: Activations, classes: NDArray[Any], name: str = "X") -> None:
    """Refuse rows of a network whose classes have other names, or another order; rows without names are taken as they come."""
    if rows.classes is not None and is_text(classes) and not np.array_equal(rows.classes, classes):
        raise InvalidInputError(
            f"{{{name}}} must have the classes of the rows given to fit, in the same order ({{allowed}}), got {{got}}.",
            allowed=listed(classes),
            got=listed(rows.classes),
        )


class ProbabilitiesWarning(PoscodWarning):
    """What was given as logits looks like probabilities."""


def doubt_logits(rows: Activations) -> None:
    """Warn where logits are in all rows what only probabilities are."""
    logits = rows.logits
    if logits is None or not len(logits) or logits.min() < 0.0 or logits.max() > 1.0:
        return
    if np.allclose(logits.sum(axis=1), 1.0, atol=1e-3):
        warn_caller(
            ProbabilitiesWarning(
                "The logits look like probabilities: all lie between 0 and 1, and every row sums to 1. Their softmax is nearly flat, so every answer looks unsure: "
                "pass their logarithms, or in the shell --probabilities instead of --logits."
            )
        )
