# SPDX-License-Identifier: BSD-3-Clause
"""What labeled rows held, column by column, and how far outside of it a row lies.

Convention: the range of a column goes from the smallest to the largest value of the labeled rows. One step outside is the width of the range; squared steps, added up
over the columns and multiplied by `STEEP`, are the distance, which is 0 inside. What was learned is read no farther than half a step beyond the values that were
seen, its certainty is gone by then, and the distance is added to log g: nothing far away is certain.
"""

from __future__ import annotations

import copy
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.model._rows import columns_of, is_numeric, n_rows, take
from poscod.ratio import LOG_LIMIT

STEEP = 4.0
"""Distance of a row that lies one width outside in one column."""
READ = STEEP**-0.5
"""Steps beyond the values seen up to which the ratio reads a row as it is: there the distance is 1, and certainty gone. Moved to a border, a row may be
unlike every other one (rows of length 1 have another length then), so rows that lie a little outside stay as they are, like those that set thresholds."""
FARTHEST = 1e3
"""Steps in a column beyond which farther is no farther."""
CONSTANT_STEPS = 3.0
"""Steps in a column that never changed and now does."""
ROUNDING = 1e-6
"""Change of a constant, as a part of it, that is one step."""
RARE = 0.01
"""Expected share of rows that change a constant column, above which columns are rarely filled rather than constant."""


class Extent(NamedTuple):
    """Smallest and largest value of each column, how many rows have them, and the number of rows; gaps do not count."""

    low: Floats
    high: Floats
    n_low: Floats
    n_high: Floats
    n: int

    @classmethod
    def of(cls, values: Any) -> Extent:
        """Return the extent of a matrix of numbers."""
        n, d = values.shape
        if n == 0:
            return cls(np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d), np.zeros(d), 0)
        if hasattr(values, "tocsr"):
            low, high = (np.asarray(end.todense()).ravel() for end in (values.min(axis=0), values.max(axis=0)))
            filled = np.bincount(values.tocsr().indices, minlength=d)  # sparse arrays have no getnnz
            # Zeros are one end of nearly every sparse column.
            return cls(low, high, np.where(low < 0.0, filled, n - filled), np.where(high > 0.0, filled, n - filled), n)
        low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
        counts = ((values == end).sum(axis=0).astype(np.float64) for end in (low, high))
        ends = (np.where(np.isnan(low), np.inf, low), np.where(np.isnan(high), -np.inf, high))
        return cls(ends[0].astype(np.float64), ends[1].astype(np.float64), next(counts), next(counts), n)

    def __or__(self, other: Extent) -> Extent:
        """Return the extent of the rows of both."""
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        n_low = self.n_low * (self.low == low) + other.n_low * (other.low == low)
        n_high = self.n_high * (self.high == high) + other.n_high * (other.high == high)
        return Extent(low, high, n_low, n_high, self.n + other.n)


@dataclass(frozen=True, eq=False)
class Range:
    """The range of some columns.

    Parameters
    ----------
    low, high : ndarray of shape (d,)
        Smallest and largest value of the labeled rows.
    unit : ndarray of shape (d,)
        One step outside.
    most : ndarray of shape (d,)
        Steps that count at most.
    read_low, read_high : ndarray of shape (d,)
        Ends between which the ratio reads values: `READ` steps beyond those of labeled rows and traffic.
    """

    low: Floats
    high: Floats
    unit: Floats
    most: Floats
    read_low: Floats
    read_high: Floats

    @classmethod
    def of(cls, labeled: Extent, seen: Extent) -> Range:
        """Return the range of columns with this extent, among labeled rows and among all that were seen."""
        with np.errstate(over="ignore", invalid="ignore"):
            width = np.minimum(labeled.high - labeled.low, np.finfo(np.float64).max)
        # Nothing but gaps: any value is new, and none is far.
        unknown = labeled.low > labeled.high
        low, high = np.where(unknown, -np.inf, labeled.low), np.where(unknown, np.inf, labeled.high)
        constant = width == 0.0
        unit = np.where(constant | unknown, 1.0, np.maximum(width, np.finfo(np.float64).tiny))
        most = np.full(len(low), FARTHEST)
        # As many rows will change a constant column as there are columns that one row alone has changed (Good and Turing's estimate of the unseen).
        alone = (labeled.n_low + labeled.n_high == labeled.n) & (np.minimum(labeled.n_low, labeled.n_high) == 1.0)
        if float(np.sum(alone & ~constant)) <= RARE * labeled.n:
            unit[constant] = ROUNDING * (1.0 + np.abs(low[constant]))
            most[constant] = CONSTANT_STEPS
        elif not (constant | unknown).all():
            unit[constant] = np.median(unit[~(constant | unknown)])
        with np.errstate(over="ignore"):
            ends = (
                np.where(unknown, -np.inf, seen.low - READ * unit),
                np.where(unknown, np.inf, seen.high + READ * unit),
            )
        return cls(low, high, unit, most, *ends)

    def outside(self, values: Any) -> NDArray[np.intp]:
        """Return which rows have a value outside; gaps are inside, and so are the zeros that a sparse matrix does not hold."""
        if hasattr(values, "tocsr"):
            off = (values.data < self.low[values.indices]) | (values.data > self.high[values.indices])
            return np.unique(np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))[off])
        dtype = values.dtype if values.dtype.kind == "f" else np.float64
        off = (values < self.low.astype(dtype)) | (values > self.high.astype(dtype))
        return np.flatnonzero(off.any(axis=1))

    def steps(self, values: NDArray[Any]) -> Floats:
        """Return how many steps outside each value is; 0 inside."""
        x = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = np.maximum(np.maximum(self.low - x, x - self.high), 0.0) / self.unit
        return np.asarray(np.minimum(np.nan_to_num(gap, nan=0.0, posinf=FARTHEST), self.most))

    def distance(self, values: NDArray[Any]) -> Floats:
        """Return the distance of some rows."""
        return np.asarray(STEEP * np.sum(self.steps(values) ** 2, axis=1))

    @property
    def readable(self) -> tuple[Floats, Floats]:
        """Ends beyond which a classifier is not asked: farther is no farther, and sums stay finite."""
        most = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            return np.maximum(self.low - FARTHEST * self.unit, -most), np.minimum(
                self.high + FARTHEST * self.unit, most
            )


class Far(NamedTuple):
    """Rows outside of what was seen: which ones, and their distance."""

    at: NDArray[np.intp]
    distance: Floats


@dataclass(frozen=True, eq=False)
class Guard:
    """What a scorer knows of what was seen.

    Parameters
    ----------
    ranges : tuple of Range
        Of the features and logits of a network, or of the numbers of a table.
    columns : tuple of int or None, default=None
        Which columns of a table with texts are numbers; None where all are.
    scale : float, default=1.0
        What a distance of 1 adds to log g: the largest log g that was seen, so that no threshold reaches beyond it.
    """

    ranges: tuple[Range, ...]
    columns: tuple[int, ...] | None = None
    scale: float = 1.0

    def far(self, X: Any) -> Far:
        """Return which rows lie outside of what labeled rows held, and how far; none where rows are of another kind, which others refuse."""
        parts = measured(X, self.columns)
        if [values.shape[1] for values in parts] != [len(part.low) for part in self.ranges]:
            return Far(np.zeros(0, dtype=np.intp), np.zeros(0))
        return far_rows(self.ranges, parts, n_rows(X))

    def nearest(self, X: Any, at: NDArray[np.intp]) -> Any:
        """Return some rows at the nearest values that the ratio reads."""
        ends = [(part.read_low, part.read_high) for part in self.ranges]
        return bounded(X, at, ends, self.columns)

    def readable(self, X: Any, far: Far) -> Any:
        """Return rows as a classifier reads them: as they are, but for values so far away that sums would overflow."""
        if isinstance(X, Activations) or not len(far.at):
            return X
        return bounded(X, None, [part.readable for part in self.ranges], self.columns)


def measured(X: Any, columns: tuple[int, ...] | None = None) -> list[Any]:
    """Return the numbers of rows: features and logits of a network, or the numeric columns of a table."""
    if isinstance(X, Activations):
        return [part for part in (X.features, X.logits) if part is not None]
    if hasattr(X, "tocsr"):
        return [X.tocsr()]
    if columns is None and is_numeric(X):
        values = np.asarray(X)
        return [values if values.dtype.kind == "f" else values.astype(np.float64)]
    every = [] if np.ndim(X) != 2 else columns_of(X)
    chosen = range(len(every)) if columns is None else columns
    if not chosen or max(chosen) >= len(every):
        return []
    return [np.stack([_as_numbers(every[j]) for j in chosen], axis=1)]


def numeric_columns(X: Any) -> tuple[int, ...] | None:
    """Return which columns of rows are numbers; None where all are, or the rows are those of a network."""
    if isinstance(X, Activations) or is_numeric(X):
        return None
    if np.ndim(X) != 2:
        return ()
    return tuple(j for j, column in enumerate(columns_of(X)) if column.dtype.kind in "fiub")


def extents(parts: Sequence[Any], unseen: Sequence[int] = ()) -> list[Extent]:
    """Return the extent of each part of rows; columns of what was never seen are 0 for all that is known."""
    found = [Extent.of(values) for values in parts]
    for part in found if len(unseen) else ():
        part.high[list(unseen)] = 0.0
    return found


def join(found: Sequence[Sequence[Extent]]) -> list[Extent]:
    """Return the extents of the rows of several."""
    whole = list(found[0])
    for other in found[1:]:
        whole = [one | two for one, two in zip(whole, other, strict=True)]
    return whole


def ranges_of(labeled: Sequence[Extent], traffic: Sequence[Extent] | None) -> tuple[Range, ...]:
    """Return the ranges that labeled rows and traffic show."""
    seen = labeled if traffic is None else join([labeled, traffic])
    return tuple(Range.of(one, both) for one, both in zip(labeled, seen, strict=True))


def far_rows(ranges: Sequence[Range], parts: Sequence[Any], n: int) -> Far:
    """Return which of n rows lie outside, and how far."""
    total = np.zeros(n)
    for part, values in zip(ranges, parts, strict=True):
        at = part.outside(values)
        if len(at):
            total[at] += part.distance(_dense(values[at]))
    at = np.flatnonzero(total > 0.0)
    return Far(at, total[at])


def fold_distances(
    sides: Sequence[tuple[Sequence[Any], NDArray[np.int64]]], unseen: Sequence[int] = ()
) -> tuple[list[Extent], list[Floats]]:
    """Return the extent of the labeled rows, the first side, and the distance of every row of all sides from what labeled rows of other folds held."""
    parts, fold = sides[0]
    each = [extents([values[fold == k] for values in parts], unseen) for k in range(int(fold.max()) + 1)]
    out = [np.zeros(len(own)) for _, own in sides]
    for k in range(len(each)):
        others = ranges_of(join([found for j, found in enumerate(each) if j != k]), None)
        for (values, own), distance in zip(sides, out, strict=True):
            inside = np.flatnonzero(own == k)
            if len(inside):
                far = far_rows(others, [part[inside] for part in values], len(inside))
                distance[inside[far.at]] = far.distance
    return join(each), out


def beyond(log_ratio: Floats, distance: Floats, scale: float) -> Floats:
    """Return log g of rows at a distance: how certainly ID their nearest values are counts less and less, and the distance is added.

    Examples
    --------
    >>> beyond(np.array([-20.0, -20.0, -20.0, 3.0]), np.array([0.0, 0.5, 9.0, 9.0]), 2.0).tolist()
    [-20.0, -9.0, 18.0, 21.0]
    """
    certain = np.minimum(log_ratio, 0.0) * np.maximum(1.0 - distance, 0.0)
    return np.minimum(certain + np.maximum(log_ratio, 0.0) + scale * distance, LOG_LIMIT)


def scale_of(log_ratio: Floats) -> float:
    """Return the largest log g of some rows, at least 1."""
    return float(np.max(log_ratio, initial=1.0))


def bounded(X: Any, at: NDArray[np.intp] | None, ends: Any, columns: tuple[int, ...] | None) -> Any:
    """Return some rows, or all, with their numbers moved to the nearest value between the ends."""
    if isinstance(X, Activations):
        rows = X if at is None else X[at]
        out = copy.copy(rows)
        names = [name for name in ("features", "logits") if getattr(X, name) is not None]
        for name, end in zip(names, ends, strict=True):
            object.__setattr__(out, name, _clipped(getattr(rows, name), *end))
        return out
    rows = X if at is None else take(X, at)
    if not ends:
        return rows
    low, high = ends[0]
    if hasattr(rows, "tocsr"):
        rows = rows.tocsr(copy=True)
        rows.data = np.clip(rows.data, low[rows.indices], high[rows.indices])
        return rows
    if columns is None and not hasattr(rows, "columns"):
        return _clipped(np.asarray(rows), low, high)
    return _bounded_frame(rows, low, high, columns)


def _bounded_frame(rows: Any, low: Floats, high: Floats, columns: tuple[int, ...] | None) -> Any:
    """Return a data frame, or an array of objects, with its numbers between the ends; columns that are there already stay as they are."""
    every, fresh = columns_of(rows), True
    for k, j in enumerate(range(len(every)) if columns is None else columns):
        values = _as_numbers(every[j])
        moved = _clipped(values, low[k], high[k])
        if moved is values:
            continue
        if hasattr(rows, "with_columns"):
            name = rows.columns[j]
            rows = rows.with_columns(type(rows[name])(name, moved))
            continue
        rows, fresh = rows.copy() if fresh else rows, False
        if hasattr(rows, "isetitem"):
            rows.isetitem(j, moved)
        else:
            rows[:, j] = moved
    return rows


def _clipped(values: NDArray[Any], low: Any, high: Any) -> NDArray[Any]:
    """Return values between the ends, in their own type; the same array where they are."""
    dtype = values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):
        ends = np.asarray(low).astype(dtype), np.asarray(high).astype(dtype)
    return np.clip(values, *ends) if ((values < ends[0]) | (values > ends[1])).any() else values


def _as_numbers(column: NDArray[Any]) -> Floats:
    """Return a column as numbers; what is not one is a gap."""
    try:
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array(
            [value if isinstance(value, numbers.Real) else np.nan for value in column.tolist()], dtype=np.float64
        )


def _dense(values: Any) -> NDArray[Any]:
    return np.asarray(values.toarray() if hasattr(values, "tocsr") else values)
