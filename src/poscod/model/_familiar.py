# SPDX-License-Identifier: BSD-3-Clause
"""Some labeled rows that stay with a model, so that it can say what of another row is not like them.

Convention: cells of a table are kept as they come, before any pipeline: numbers as numbers, everything else as texts; a gap is NaN or an empty text. What a network gives, and
rows that are not a table, are kept as points.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod import scores
from poscod._validation import Floats
from poscod.activations import Activations
from poscod.model._cells import levels_of, look
from poscod.model._rows import columns_of, is_numeric, take

Indices = NDArray[np.intp]

# Labeled rows that are kept at most, and numbers.
KEPT_ROWS, KEPT_NUMBERS = 512, 2**18
# Cells that differ by more count no more: a row that is strange in one column is compared by the others.
FARTHEST = 3.0
# Levels of a column of texts that are remembered, and letters of each.
MOST_LEVELS, LONGEST = 1000, 80


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows of a table, cell by cell.

    Parameters
    ----------
    numbers : ndarray of shape (n, p)
        Columns of numbers; gaps are NaN.
    texts : ndarray of shape (n, q)
        All other columns, as texts.
    at, at_texts : ndarray of int
        Their places among the columns of the table.
    """

    numbers: Floats
    texts: NDArray[np.str_]
    at: Indices
    at_texts: Indices

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def width(self) -> int:
        """Number of columns of the table."""
        return len(self.at) + len(self.at_texts)

    def __getitem__(self, rows: slice | Indices) -> Cells:
        return replace(self, numbers=self.numbers[rows], texts=self.texts[rows])

    @staticmethod
    def join(parts: Sequence[Cells]) -> Cells:
        """Return the rows of several, one after the other."""
        both = (np.concatenate([getattr(part, name) for part in parts]) for name in ("numbers", "texts"))
        return Cells(next(both), next(both), parts[0].at, parts[0].at_texts)


@dataclass(frozen=True, eq=False)
class Familiar:
    """Labeled rows that stay.

    Parameters
    ----------
    index : ndarray of shape (m,)
        Their places among the rows given to fit.
    codes : ndarray of shape (m,)
        Their classes.
    cells : Cells or None
        What they hold, where they are rows of a table.
    scale : ndarray of shape (p,)
        Standard deviations of the numbers.
    low, high : ndarray of shape (p,)
        Smallest and largest number of all labeled rows.
    gaps : ndarray of shape (p,), bool
        Whether some labeled row has a gap there, or nobody looked.
    levels : tuple of ndarray
        Every text of each other column; empty where they are too many to keep.
    points : ndarray of shape (m, d) or None
        Directions of rows that are not a table.
    logits : ndarray of shape (m, K) or None
        Logits of a network.
    """

    index: Indices
    codes: NDArray[np.int64]
    cells: Cells | None
    scale: Floats
    low: Floats
    high: Floats
    gaps: NDArray[np.bool_]
    levels: tuple[NDArray[np.str_], ...]
    points: NDArray[Any] | None
    logits: NDArray[Any] | None

    @classmethod
    def of(
        cls, X: Any, index: Indices, codes: NDArray[np.int64], cells: Cells | None, points: NDArray[Any] | None
    ) -> Familiar:
        """Keep labeled rows with their cells; points are theirs where they are not a table."""
        none = np.zeros(0)
        if cells is None:
            logits = X.logits if isinstance(X, Activations) else None
            unit = None if points is None else scores.unit_rows(np.asarray(points, dtype=np.float32))
            return cls(index, codes, None, none, none, none, none.astype(bool), (), unit, logits)
        ends = np.full(len(cells.at), np.inf)
        no_levels = tuple(np.zeros(0, dtype=str) for _ in cells.at_texts)
        return cls(index, codes, cells, _spread(cells.numbers), -ends, ends, ends > 0.0, no_levels, None, None)

    def among(self, blocks: Iterable[Any]) -> Familiar:
        """Note what all labeled rows held, column by column."""
        if self.cells is None:
            return self
        low, high = self.high, self.low  # infinities the other way round
        gaps = np.zeros_like(self.gaps)
        levels: list[set[str]] = [set() for _ in self.levels]
        for block in blocks:
            cells = cells_of(block, self.cells)
            assert cells is not None
            low = np.fmin(low, np.fmin.reduce(cells.numbers, axis=0))
            high = np.fmax(high, np.fmax.reduce(cells.numbers, axis=0))
            gaps |= np.isnan(cells.numbers).any(axis=0)
            for known, column in zip(levels, cells.texts.T, strict=True):
                known.update(column.tolist() if len(known) <= MOST_LEVELS else ())
        if (low > high).all() and not any(levels):
            return self
        few = tuple(np.array(sorted(known) if len(known) <= MOST_LEVELS else [], dtype=str) for known in levels)
        return replace(self, low=low, high=high, gaps=gaps, levels=few)

    def near(self, cells: Cells, k: int, without: NDArray[np.intp] | None = None) -> Indices:
        """Return the k kept rows that are most alike, nearest first, whatever a single column says: of shape (n, k), or without one of some columns at a time (n, c, k)."""
        assert self.cells is not None
        n, m = len(cells), len(self.cells)
        out = np.empty((n, k) if without is None else (n, without.shape[1], k), dtype=np.intp)
        step = max(1, 2**22 // max(m * (cells.width + 1), 1))
        for start in range(0, n, step):
            part = slice(start, start + step)
            far = differences(cells.numbers[part, None, :], self.cells.numbers[None], self.scale) ** 2
            other = cells.texts[part, None, :] != self.cells.texts[None]
            every = np.concatenate([far, FARTHEST**2 * other], axis=2)
            total = every.sum(axis=2)
            if without is not None:
                total = total[:, None, :] - np.take_along_axis(every, without[part, None, :], axis=2).swapaxes(1, 2)
            out[part] = np.argsort(total, axis=-1, kind="stable")[..., :k]
        return out


def differences(one: Floats, two: Floats, scale: Floats) -> Floats:
    """Return how far apart numbers are in standard deviations, at most `FARTHEST`; a gap is far from every number."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        far = np.minimum(np.abs(one - two) / scale, FARTHEST)
    gap = np.isnan(one) != np.isnan(two)
    # Zero by zero: two cells of a constant column that are equal.
    return np.where(gap, FARTHEST, np.nan_to_num(far, nan=0.0))


def cells_of(X: Any, like: Cells | None = None, *, prepared: bool = False) -> Cells | None:
    """Return the cells of a table; None where rows are not one, or one of a network whose columns mean nothing by themselves.

    Columns of lists and of long texts are left out. Where the model prepares tables, texts that are numbers count as numbers.
    """
    if isinstance(X, Activations):
        if not X.table or X.features is None:
            return None
        X = X.features
    if hasattr(X, "tocsr") or np.ndim(X) != 2:
        return None
    if is_numeric(X) and (like is None or not len(like.at_texts)):
        values = np.asarray(X, dtype=np.float64)
        d = values.shape[1]
        return Cells(values, np.zeros((len(values), 0), dtype=str), np.arange(d), np.arange(0))
    columns = columns_of(X)
    at, rest = _kinds(columns, prepared) if like is None else (like.at.tolist(), like.at_texts.tolist())
    if not at and not rest:
        return None
    n = len(columns[0])
    number, text = np.zeros((n, len(at))), np.zeros((n, len(rest)), dtype=object)
    for k, j in enumerate(at):
        number[:, k] = _numbers(columns[j])
    for k, j in enumerate(rest):
        text[:, k] = [level[:LONGEST] for level in levels_of(columns[j])]
    return Cells(number, text.astype(str), np.array(at, dtype=np.intp), np.array(rest, dtype=np.intp))


def exchanged(X: Any, rows: Indices, masks: NDArray[np.bool_], other: Cells) -> Any:
    """Return some rows of a table with the masked cells of as many others; columns of numbers come first, then those of texts."""
    p = len(other.at)
    if isinstance(X, Activations):
        out = copy.copy(X[rows])
        object.__setattr__(out, "features", exchanged(X.features, rows, masks, other))
        return out
    if not hasattr(X, "columns") and is_numeric(X):
        values = np.asarray(X)[rows].astype(np.result_type(np.asarray(X).dtype, np.float32))
        return np.where(masks, other.numbers.astype(values.dtype), values)
    made: dict[int, Any] = {}
    old = columns_of(X)
    for k, j in enumerate(other.at):
        made[int(j)] = np.where(masks[:, k], other.numbers[:, k], _numbers(old[j])[rows])
    for k, j in enumerate(other.at_texts):
        cells = old[j][rows].astype(object)
        chosen = masks[:, p + k]
        cells[chosen] = [None if text == "" else text for text in other.texts[chosen, k].tolist()]
        made[int(j)] = cells
    return _like(take(X, rows), made)


def _like(X: Any, columns: dict[int, Any]) -> Any:
    """Return a frame, or an array of objects, with other columns."""
    if hasattr(X, "with_columns"):  # polars
        kind = type(X[X.columns[0]])
        return X.with_columns(
            [kind(X.columns[j], list(v)).cast(X[X.columns[j]].dtype, strict=False) for j, v in columns.items()]
        )
    if hasattr(X, "isetitem"):  # pandas
        X = X.copy()
        for j, values in columns.items():
            old = X.dtypes.iloc[j]
            series = type(X.iloc[:, j])(values, index=X.index)
            if hasattr(old, "categories"):
                known = set(old.categories)
                more = [v for v in series.dropna().unique() if v not in known]
                series = series.astype(type(old)([*old.categories, *more], old.ordered))
            X.isetitem(j, series)
        return X
    X = np.array(X, dtype=object)
    for j, values in columns.items():
        X[:, j] = values
    return X


def kept_rows(X: Any, codes: NDArray[np.int64]) -> Indices:
    """Return which rows like these are kept: evenly spaced ones of every class."""
    if isinstance(X, Activations):
        width = X.n_classes + (0 if X.features is None else X.n_features)
    else:
        width = int(np.shape(X)[1]) if np.ndim(X) == 2 else 1
    most = int(np.clip(KEPT_NUMBERS // max(width, 1), 32, KEPT_ROWS))
    order = np.argsort(codes, kind="stable")
    return np.sort(order[:: -(-len(order) // most)])


def _spread(values: Floats) -> Floats:
    """Return the standard deviation of each column about its middle; 0 where there are only gaps."""
    some = np.where(np.isnan(values).all(axis=0), 0.0, values)
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(np.nanmean((some - np.nanmedian(some, axis=0)) ** 2, axis=0)))


def _kinds(columns: list[NDArray[Any]], prepared: bool) -> tuple[list[int], list[int]]:
    """Return which columns are numbers, and which are texts; lists and long texts are neither."""
    at: list[int] = []
    rest: list[int] = []
    for j, column in enumerate(columns):
        kind = "number" if column.dtype.kind in "fiub" else look(column).kind
        if kind == "number" and not prepared and any(isinstance(cell, str) for cell in column.tolist()):
            kind = "category"
        long = kind not in ("number", "list") and any(len(level) > LONGEST for level in levels_of(column))
        if kind != "list" and not long:
            (at if kind == "number" else rest).append(j)
    return at, rest


def _numbers(column: NDArray[Any]) -> Floats:
    """Return cells as numbers; what is none is a gap."""
    if column.dtype.kind in "fiub":
        return np.asarray(column, dtype=np.float64)
    found = np.full(len(column), np.nan)
    for i, cell in enumerate(column.tolist()):
        with suppress(TypeError, ValueError):
            found[i] = float(cell)
    return found
