# SPDX-License-Identifier: BSD-3-Clause
"""Rows that lie in chunks on a cluster, and what can be asked of them.

Convention: `Chunks` are delayed rows in order, each chunk an array, a pandas frame or an `Activations`, with known lengths; a row has
the number it would have in one memory. Nothing is read until a pass runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._inputs import take
from poscod._optional import require
from poscod.activations import Activations
from poscod.backends.dask._cluster import EXTRA, Cluster, dask
from poscod.exceptions import InvalidInputError

Indices = NDArray[np.intp]
_SMALL_BYTES = 2048


@dataclass(frozen=True, eq=False)
class DaskActivations:
    """What a network gives us for rows in chunks: `poscod.Activations` of Dask arrays.

    Parameters
    ----------
    logits : dask Array of shape (n, K)
        Output of the last layer.
    features : dask Array of shape (n, d), default=None
        Input of the last layer, in the same chunks of rows.
    table : bool, default=False
        Whether the features are columns of a table, each with a unit of its own, as in `poscod.Activations`.
    """

    logits: Any
    features: Any = None
    table: bool = False


@dataclass(frozen=True)
class Chunks:
    """Delayed rows in order.

    Parameters
    ----------
    parts : tuple of dask Delayed
        Rows of one chunk each.
    lengths : tuple of int
        Rows of each chunk.
    like : rows
        No rows of the same kind and columns.
    """

    parts: tuple[Any, ...]
    lengths: tuple[int, ...]
    like: Any

    def __len__(self) -> int:
        return sum(self.lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Number of the first row of each chunk."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])[:-1]

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return ``function(rows, *arguments)`` of each chunk with rows, delayed."""
        delayed = dask().delayed
        call = delayed(_apply, pure=False)
        if not _is_small(arguments):
            lazy = any(dask().is_dask_collection(a) for a in arguments)
            arguments = delayed(arguments, pure=False, traverse=lazy)
        return [call(function, part, arguments) for part, n in zip(self.parts, self.lengths, strict=True) if n]

    def pick(self, rows: Indices, cluster: Cluster) -> Chunks:
        """Return the rows of these numbers."""
        delayed = dask().delayed
        found = [(index, inside) for index, inside in self.cut(rows) if len(inside)]
        some = [(index, inside) for index, inside in found if len(inside) < self.lengths[index]]
        masks = [delayed(_mask(inside, self.lengths[index]), pure=False, traverse=False) for index, inside in some]
        call = delayed(_masked, pure=False)
        parts = dict(zip((index for index, _ in some), cluster.keep(masks), strict=True))
        return Chunks(
            tuple(call(self.parts[i], parts[i]) if i in parts else self.parts[i] for i, _ in found),
            tuple(len(inside) for _, inside in found),
            self.like,
        )

    def cut(self, rows: Indices) -> Iterator[tuple[int, Indices]]:
        """Iterate over (chunk, numbers within the chunk) of increasing row numbers."""
        starts = self.starts
        borders = np.searchsorted(rows, np.append(starts, len(self)))
        for index in range(len(self.parts)):
            yield index, rows[borders[index] : borders[index + 1]] - starts[index]

    def zipped(self, values: NDArray[Any], cluster: Cluster) -> Chunks:
        """Return chunks of pairs (rows, values); the values travel to the workers once."""
        return self.paired(spread(values, self.lengths, cluster))

    def paired(self, other: Chunks) -> Chunks:
        """Return chunks of pairs (rows, rows of another table with the same chunks)."""
        call = dask().delayed(_pair, pure=False)
        parts = (call(a, b) for a, b in zip(self.parts, other.parts, strict=True))
        return Chunks(tuple(parts), self.lengths, None)

    def kept(self, cluster: Cluster) -> Chunks:
        """Return the same rows, read once and held in the memory of the workers."""
        return Chunks(tuple(cluster.keep(self.parts)), self.lengths, self.like)


def as_chunks(X: Any, name: str, cluster: Cluster, *, columns: Sequence[str] | None = None) -> Chunks:
    """Return the chunks of a Dask collection."""
    if isinstance(X, Chunks):
        return X
    if isinstance(X, DaskActivations):
        return _network_chunks(X, name, cluster)
    if _is_frame(X):
        frame = X if columns is None else X[list(columns)]
        parts = tuple(frame.to_delayed())
        return Chunks(parts, counted(parts, name, cluster), frame._meta)
    if _is_array(X) and X.ndim == 2:
        X = X.rechunk({1: -1})
        return Chunks(tuple(X.to_delayed()[:, 0]), _lengths(X, name, cluster), np.empty((0, X.shape[1]), X.dtype))
    raise InvalidInputError(
        f"{name} must be a two-dimensional Dask array, a Dask DataFrame or DaskActivations, got {type(X).__name__}: rows in this "
        "memory need no cluster, use POSCOD itself."
    )


def as_vector(values: Any, name: str, cluster: Cluster) -> Chunks:
    """Return the chunks of a one-dimensional Dask array or a column of a frame."""
    if isinstance(values, Chunks):
        return values
    if _is_series(values):
        parts = tuple(values.to_delayed())
        return Chunks(parts, counted(parts, name, cluster), np.empty(0))
    if not _is_array(values) or values.ndim != 1:
        raise InvalidInputError(
            f"{name} must be a one-dimensional Dask array or a column of a Dask DataFrame, got {type(values).__name__}."
        )
    return Chunks(tuple(values.to_delayed()), _lengths(values, name, cluster), np.empty(0, values.dtype))


def as_labels(y: Any, cluster: Cluster) -> NDArray[Any]:
    """Bring labels to this process: the split of the rows is drawn here, as in one memory."""
    if _is_array(y) or _is_series(y):
        parts = cluster.collect(list(np.ravel(y.to_delayed())), "labels")
        return np.concatenate([np.asarray(part) for part in parts])
    return np.asarray(y)


def counted(parts: tuple[Any, ...], name: str, cluster: Cluster) -> tuple[int, ...]:
    """Count the rows of these very parts: of another selection of columns Dask may make other parts."""
    call = dask().delayed(len, pure=False)
    return tuple(cluster.collect([call(part) for part in parts], f"rows of {name}"))


def spread(values: NDArray[Any], lengths: Sequence[int], cluster: Cluster) -> Chunks:
    """Send values of this process to the workers, in chunks of given lengths."""
    pieces = np.split(values, np.cumsum(lengths)[:-1])
    parts = cluster.keep([dask().delayed(piece, pure=False, traverse=False) for piece in pieces])
    return Chunks(tuple(parts), tuple(lengths), values[:0])


def bring(chunks: Chunks, cluster: Cluster, what: str) -> Any:
    """Return all rows in this memory, as one table of their kind."""
    parts = cluster.collect(chunks.parts, what) or [chunks.like]
    first = parts[0]
    if isinstance(first, Activations):
        features = None if first.features is None else np.concatenate([part.features for part in parts])
        return Activations(features, np.concatenate([part.logits for part in parts]), table=first.table)
    if hasattr(first, "iloc"):
        return require("pandas", extra=EXTRA, feature="poscod.backends.dask").concat(parts)
    return np.concatenate(parts)


def draw(n: int, size: int, seed: int) -> Indices:
    """Draw row numbers without replacement, in increasing order; all of them where there are no more."""
    if n <= size:
        return np.arange(n, dtype=np.intp)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False, shuffle=False)).astype(np.intp)


def _pair(rows: Any, values: Any) -> tuple[Any, Any]:
    return rows, values


def _mask(inside: Indices, length: int) -> NDArray[np.uint8]:
    flags = np.zeros(length, dtype=bool)
    flags[inside] = True
    return np.packbits(flags)


def _masked(rows: Any, mask: NDArray[np.uint8]) -> Any:
    return take(rows, np.flatnonzero(np.unpackbits(mask)))


def _network_chunks(X: DaskActivations, name: str, cluster: Cluster) -> Chunks:
    logits = as_chunks(X.logits, f"{name}.logits", cluster)
    call = dask().delayed(_network, pure=False)
    if X.features is None:
        return Chunks(tuple(call(part) for part in logits.parts), logits.lengths, _network(logits.like))
    features = as_chunks(X.features, f"{name}.features", cluster)
    if features.lengths != logits.lengths:
        raise InvalidInputError(
            f"{name}.features and {name}.logits must have the same chunks of rows, got {features.lengths} and "
            f"{logits.lengths}: rechunk one of them."
        )
    parts = (call(a, b, X.table) for a, b in zip(logits.parts, features.parts, strict=True))
    return Chunks(tuple(parts), logits.lengths, _network(logits.like, features.like, X.table))


def _network(logits: Any, features: Any = None, table: bool = False) -> Activations:
    return Activations(features, logits, table=table)


def _lengths(X: Any, name: str, cluster: Cluster) -> tuple[int, ...]:
    if not np.isnan(X.chunks[0]).any():
        return tuple(int(n) for n in X.chunks[0])
    return counted(tuple(np.ravel(X.to_delayed())), name, cluster)


def _apply(function: Callable[..., Any], rows: Any, arguments: tuple[Any, ...]) -> Any:
    return function(rows, *arguments)


def _is_small(arguments: tuple[Any, ...]) -> bool:
    """Tell whether arguments may be repeated for every chunk: a few numbers, texts and short arrays."""
    plain = all(isinstance(a, (bool, int, float, str, type(None), np.ndarray)) for a in arguments)
    return plain and sum(getattr(a, "nbytes", 8) for a in arguments) <= _SMALL_BYTES


def _is_delayed(value: Any) -> bool:
    return bool(dask().is_dask_collection(value))


def _is_array(value: Any) -> bool:
    return _is_delayed(value) and hasattr(value, "chunks") and hasattr(value, "to_delayed")


def _is_frame(value: Any) -> bool:
    return _is_delayed(value) and hasattr(value, "map_partitions") and value.ndim == 2


def _is_series(value: Any) -> bool:
    return _is_delayed(value) and hasattr(value, "map_partitions") and value.ndim == 1
