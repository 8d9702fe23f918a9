# SPDX-License-Identifier: BSD-3-Clause
"""Rows of any kind (arrays, data frames, sparse matrices, Activations) and the logits a classifier gives them.

Convention: a *view* of rows is an `Activations` with the classifier's logits and, where they are numbers, its features: what
the conditional risk and the ratio are computed from. Everything else in the estimator sees views only.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError

# A probability of exactly zero (trees vote so) has no logarithm; below this none can be learned from data anyway.
_LEAST_PROBABILITY = 1e-12
# Sparse features are made dense for the ratio up to this width; wider ones speak through the logits alone.
_WIDEST_DENSE = 4096


class NetworkHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The classifier of a network whose logits are given: nothing is trained.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        Class indices 0, ..., K - 1.
    """

    def fit(self, X: Activations, y: Any = None) -> NetworkHead:
        """Note the number of classes."""
        self.classes_ = np.arange(X.n_classes)
        return self


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


def logits_of(classifier: Any, X: Any) -> Floats:
    """Return log p(y | x) of a classifier, or the network's own logits."""
    if isinstance(X, Activations):
        return X.need("logits", caller="POSCOD on Activations")
    return np.log(np.maximum(np.asarray(classifier.predict_proba(X), dtype=np.float64), _LEAST_PROBABILITY))


def view(classifier: Any, X: Any, *, with_features: bool = True) -> Activations:
    """Return what is known of some rows: logits and, where the ratio uses them, features."""
    if isinstance(X, Activations):
        return X
    rows = object.__new__(Activations)
    features = _numbers(classifier, X) if with_features else None
    for name, value in (("features", features), ("logits", logits_of(classifier, X))):
        object.__setattr__(rows, name, value)
    for name in ("labels", "weight", "bias"):
        object.__setattr__(rows, name, None)
    object.__setattr__(rows, "table", True)
    return rows


def has_features(classifier: Any, *tables: Any) -> bool:
    """Tell whether all rows have finite numbers as features; otherwise the ratio is learned from the logits alone."""
    found = [_numbers(classifier, take(X, slice(0, n_rows(X)))) for X in tables if not isinstance(X, Activations)]
    return all(array is not None and np.isfinite(array).all() for array in found)


def _numbers(classifier: Any, X: Any) -> NDArray[Any] | None:
    """Return the numbers the last step of a classifier sees, or None where there are none."""
    inner = classifier.estimator if isinstance(classifier, FrozenEstimator) else classifier
    if isinstance(inner, Pipeline) and len(inner) > 1 and not _is_numeric(X):
        # Texts and categories: what the pipeline makes of them. Numbers are taken as they come, before any step that has seen
        # labels of the rows it is applied to.
        X = inner[:-1].transform(X)
    if hasattr(X, "toarray"):
        if X.shape[1] > _WIDEST_DENSE:
            return None
        X = X.toarray()
    try:
        array = np.asarray(X)
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 2 and array.shape[1] else None


def _is_numeric(X: Any) -> bool:
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


def split_unlabeled(X: Any, y: Any, X_unlabeled: Any) -> tuple[NDArray[np.intp], Any]:
    """Return the positions of labelled rows and the unlabelled rows: those given, or those whose label is -1."""
    y = np.asarray(y)
    if y.dtype.kind in "US":  # texts have no -1; an array of objects may mix texts and -1
        marked = np.zeros(len(y), dtype=bool)
    else:
        marked = np.array(
            [isinstance(value, numbers.Real) and float(value) == -1.0 for value in y.tolist()], dtype=bool
        )
    if X_unlabeled is None:
        return np.flatnonzero(~marked), take(X, np.flatnonzero(marked)) if marked.any() else None
    if marked.any():
        raise InvalidInputError(
            f"y marks {int(marked.sum())} rows as unlabelled (-1) and X_unlabeled is given, too: use one of the two."
        )
    return np.arange(len(y)), X_unlabeled
