# SPDX-License-Identifier: BSD-3-Clause
"""Rows of any kind: arrays, data frames, sparse matrices, lists of texts, Activations."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from poscod.activations import Activations

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


def marked_rows(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which rows y marks as unlabeled: those whose label is -1."""
    if y.dtype.kind in "US":  # texts have no -1; an array of objects may mix texts and -1
        return np.zeros(len(y), dtype=bool)
    return np.array([isinstance(value, numbers.Real) and float(value) == -1.0 for value in y.tolist()], dtype=bool)
