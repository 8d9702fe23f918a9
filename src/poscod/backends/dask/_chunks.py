# SPDX-License-Identifier: BSD-3-Clause
"""Rows that lie in chunks, and what can be asked of them.

Convention: `Chunks` are delayed rows in order, each chunk an array, a pandas frame or an `Activations`, with known lengths; a row has
the number it would have in memory. Nothing is read until a pass runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod.activations import Activations
from poscod.backends.dask._passes import EXTRA, FEATURE, Passes, dask
from poscod.exceptions import InvalidInputError
from poscod.model import take

Indices = NDArray[np.intp]


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
    """Delayed rows in order, how many each chunk has (at least one), and no rows of the same kind and columns."""

    parts: tuple[Any, ...]
    lengths: tuple[int, ...]
    like: Any = None

    def __len__(self) -> int:
        return sum(self.lengths)

    @property
    def starts(self) -> Indices:
        """Number of the first row of each chunk."""
        return np.cumsum([0, *self.lengths[:-1]], dtype=np.intp)

    def map(
        self, function: Callable[..., Any], *arguments: Any, each: Sequence[Sequence[Any]] = (), like: Any = None
    ) -> Chunks:
        """Return ``function(rows, *arguments)`` of every chunk; a sequence in `each` holds one argument per chunk, which come before the others."""
        call, shared = dask().delayed(_apply, pure=False), dask().delayed((function, arguments), traverse=False)
        parts = tuple(call(shared, *own) for own in zip(self.parts, *each, strict=True))
        return Chunks(parts, self.lengths, like)

    def pick(self, rows: Indices) -> Chunks:
        """Return the rows of these increasing numbers."""
        found = [(i, inside) for i, inside in enumerate(self.cut(rows)) if len(inside)]
        chosen = send([_packed(inside, self.lengths[i]) for i, inside in found])
        some = Chunks(tuple(self.parts[i] for i, _ in found), tuple(len(inside) for _, inside in found))
        return some.map(_picked, each=(chosen,), like=self.like)

    def cut(self, rows: Indices) -> list[Indices]:
        """Return the numbers within each chunk of increasing row numbers."""
        pieces = np.split(rows, np.searchsorted(rows, self.starts[1:]))
        return [piece - start for piece, start in zip(pieces, self.starts, strict=True)]

    def spread(self, values: NDArray[Any]) -> tuple[Any, ...]:
        """Send one value per row to the workers, in the same chunks."""
        return send(np.split(values, self.starts[1:]))

    def bring(self, passes: Passes, what: str) -> Any:
        """Return all rows in memory, as one table of their kind."""
        parts = passes.collect(self.parts, what)
        first = parts[0]
        if isinstance(first, Activations):
            features = None if first.features is None else np.concatenate([part.features for part in parts])
            return Activations(features, np.concatenate([part.logits for part in parts]), table=first.table)
        if hasattr(first, "iloc"):
            return require("pandas", extra=EXTRA, feature=FEATURE).concat(parts)
        return np.concatenate(parts)


def as_chunks(X: Any, name: str, passes: Passes, *, columns: Sequence[str] | None = None) -> Chunks:
    """Return the chunks of a Dask collection; of a frame, those of some columns."""
    if isinstance(X, Chunks):
        return X
    if isinstance(X, DaskActivations):
        return _network_chunks(X, name, passes)
    if is_frame(X):
        frame = X if columns is None else X[list(columns)]
        return counted(frame.to_delayed(), frame._meta, name, passes)
    if not dask().is_dask_collection(X) or not hasattr(X, "chunks") or X.ndim != 2:
        raise InvalidInputError(
            f"{name} must be a two-dimensional Dask array, a Dask DataFrame or DaskActivations, got {type(X).__name__}: rows in "
            "memory need no Dask, use POSCOD itself."
        )
    X = X.rechunk({1: -1})
    known = not np.isnan(X.chunks[0]).any()
    return counted(
        X.to_delayed()[:, 0], np.empty((0, X.shape[1]), X.dtype), name, passes, X.chunks[0] if known else None
    )


def is_frame(X: Any) -> bool:
    """Tell whether rows are a Dask DataFrame."""
    return hasattr(X, "map_partitions") and getattr(X, "ndim", 0) == 2


def counted(parts: Sequence[Any], like: Any, name: str, passes: Passes, lengths: Sequence[int] | None = None) -> Chunks:
    """Return the chunks that have rows; count the rows of these very parts: of other columns Dask may make other parts."""
    if lengths is None:
        count = dask().delayed(len, pure=False)
        lengths = passes.collect([count(part) for part in parts], f"rows of {name}")
    kept = [(part, int(n)) for part, n in zip(parts, lengths, strict=True) if n]
    if not kept:
        raise InvalidInputError("{parameter} must have at least one row, got none.", parameter=name)
    return Chunks(tuple(part for part, _ in kept), tuple(n for _, n in kept), like)


def send(values: Sequence[Any]) -> tuple[Any, ...]:
    """Send values of this process to the workers, where they stay until nothing refers to them."""
    return tuple(dask().persist(*(dask().delayed(value, traverse=False) for value in values)))


def as_vector(values: Any) -> NDArray[Any]:
    """Bring labels or weights to this process: the rows are split here, as in memory."""
    return np.asarray(dask().compute(values)[0])


def draw(n: int, size: int, rng: np.random.Generator) -> Indices:
    """Draw row numbers without replacement, in increasing order; all of them where there are no more."""
    if n <= size:
        return np.arange(n, dtype=np.intp)
    return np.sort(rng.choice(n, size, replace=False, shuffle=False)).astype(np.intp)


def _apply(shared: tuple[Callable[..., Any], tuple[Any, ...]], *own: Any) -> Any:
    function, arguments = shared
    return function(*own, *arguments)


def _packed(inside: Indices, length: int) -> NDArray[Any]:
    """Return row numbers as what is shorter: four bytes for each, or one bit for every row of the chunk."""
    if 32 * len(inside) < length:
        return inside.astype(np.uint32)
    flags = np.zeros(length, dtype=bool)
    flags[inside] = True
    return np.packbits(flags)


def _picked(rows: Any, chosen: NDArray[Any]) -> Any:
    return take(rows, np.flatnonzero(np.unpackbits(chosen)) if chosen.dtype == np.uint8 else chosen)


def _network_chunks(X: DaskActivations, name: str, passes: Passes) -> Chunks:
    logits = as_chunks(X.logits, f"{name}.logits", passes)
    if X.features is None:
        return logits.map(_network, None, X.table, like=_network(logits.like, None, X.table))
    features = as_chunks(X.features, f"{name}.features", passes)
    if features.lengths != logits.lengths:
        raise InvalidInputError(
            f"{name}.features and {name}.logits must have the same chunks of rows, got {features.lengths} and "
            f"{logits.lengths}: rechunk one of them."
        )
    like = _network(logits.like, features.like, X.table)
    return logits.map(_network, X.table, each=(features.parts,), like=like)


def _network(logits: Any, features: Any, table: bool) -> Activations:
    return Activations(features, logits, table=table)
