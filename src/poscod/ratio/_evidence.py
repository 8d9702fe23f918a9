# SPDX-License-Identifier: BSD-3-Clause
"""ID-only evidence: numbers that say how unlike ID data a row is, before any OOD row has been seen.

Convention: every column is an uncertainty (higher = less like ID) on a logarithmic or linear scale that keeps it
finite. Landmarks are made of ID rows and must not contain the row they are asked about (they would call it familiar).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from poscod import scores
from poscod._validation import Floats
from poscod.ratio._rows import Rows

AXES = 128
# Landmarks a class (more where there are few classes), and in all.
CLASS_ROWS, FEW_CLASSES, ALL_ROWS = 256, 512, 4000
MOMENT_ROWS = 20000
QUERY_ROWS = 4096
TINY = 1e-12
RESOLVED = 1e-6
# In standard deviations: farther away is no farther, so that squares stay finite in float32.
FARTHEST = 1e6
# Spread above which sums are made in float64, and share of a column's squares below which they are made again without a fold.
HUGE, LEFT = 1e12, 1e-5


def logit_evidence(logits: NDArray[Any]) -> Floats:
    """Return energy, max logit, log(1 - MSP), log entropy and margin as uncertainties."""
    z = np.asarray(logits, dtype=np.float64)
    n, k = z.shape
    top = z.argmax(axis=1)
    rows = np.arange(n)
    best = z[rows, top]
    shifted = z - best[:, None]
    weight = np.exp(shifted)
    total = weight.sum(axis=1)
    moment = np.einsum("nk,nk->n", weight, shifted)
    weight[rows, top] = 0.0
    others, log_total = weight.sum(axis=1), np.log(total)
    with np.errstate(divide="ignore"):
        rest = np.log(others) - log_total if k > 1 else np.zeros(n)
    shifted[rows, top] = -np.inf
    margin = shifted.max(axis=1) if k > 1 else np.zeros(n)
    log_entropy = np.log(np.maximum(log_total - moment / total, 1e-26))
    return np.stack([-best - log_total, -best, np.maximum(rest, -60.0), log_entropy, margin], axis=1)


def norm_evidence(features: NDArray[Any]) -> Floats:
    """Return the logarithms of the L1 and L2 norm; their direction is left to the data."""
    norms = np.stack([scores.l1_norms(features), np.sqrt(scores.square_norms(features))], axis=1)
    return -np.log(np.maximum(norms, TINY))


@dataclass(frozen=True)
class Landmarks:
    """What is kept of ID rows to say where another row lies: principal axes, class means, and some rows of each class.

    Classes are those the classifier predicts or, where it is trained fold by fold, the labels. A row is compared with the rows of its own class only, and turned to the leading principal
    axes once; what lies outside of the axes counts by its length alone.

    Attributes
    ----------
    centre, scale : ndarray of shape (d,)
        Standardise features.
    axes : ndarray of shape (d, q)
        Leading principal axes, largest variance first.
    measures : ndarray of shape (q, 3)
        What the square along each axis counts: 1; 1 where it is not among the axes that hold 90 % of the variance; 1 / variance (shrunk).
    outside : float
        Variance outside of the axes (shrunk).
    whitening : ndarray of shape (q, p)
        Makes classes spherical along the axes.
    inside : float
        Variance within classes outside of the axes.
    means : ndarray of shape (K, p)
        Class means, whitened.
    rows : ndarray of shape (m, d)
        Rows of ID data, class by class: directions from the origin if ``unit``, standardised otherwise.
    borders : ndarray of shape (K + 1,)
        Where each class begins among them; a class without any is compared with all.
    groups : int
        The distance to the nearest row is averaged over every ``groups``-th one: in few dimensions one distance alone is mostly chance.
    unit : bool
        Whether rows are compared by direction, as those of a network's layer.
    """

    centre: Floats
    scale: Floats
    axes: Floats
    measures: Floats
    outside: float
    whitening: Floats
    inside: float
    means: Floats
    rows: NDArray[Any]
    borders: NDArray[np.int64]
    groups: int
    unit: bool

    @property
    def complete(self) -> bool:
        """Whether the axes span the whole space."""
        return self.axes.shape[0] == self.axes.shape[1]

    def place(self, rows: Rows) -> Floats:
        """Return the columns of some rows, in blocks."""
        parts = [self._place(rows[start : start + QUERY_ROWS]) for start in range(0, len(rows), QUERY_ROWS)]
        return np.concatenate(parts) if parts else np.zeros((0, 5 if rows.network else 3))

    def _place(self, rows: Rows) -> Floats:
        features = np.asarray(rows.features)
        x = features - self.centre.astype(features.dtype)
        x *= self.scale.astype(features.dtype)
        np.clip(x, -FARTHEST, FARTHEST, out=x)
        length = scores.square_norms(x)
        z = x @ self.axes.astype(x.dtype)
        # Squares along all axes, along the minor ones, and in units of the variance: one product.
        along, minor, spread = (z * z @ self.measures.astype(z.dtype)).T.astype(np.float64)
        # With all axes nothing is outside; the difference would be rounding.
        rest = np.zeros(len(x)) if self.complete else np.maximum(length - along, 0.0)
        points = (z @ self.whitening.astype(z.dtype)).astype(np.float64)
        to_class = np.maximum(scores.squared_distances(points, self.means) + (rest / self.inside)[:, None], TINY)
        predicted = None if rows.logits is None else np.asarray(rows.logits).argmax(axis=1)
        near = self._near(scores.unit_rows(features) if self.unit else x, predicted)
        # Float32 products resolve squares down to about 1e-6 of the whole, here and in `_near`.
        residual = np.maximum(rest + minor, RESOLVED * length + TINY)
        columns = [near, np.log(to_class.min(axis=1)), 0.5 * np.log(residual)]
        if predicted is not None:
            spread = np.maximum(spread + rest / self.outside, TINY)
            columns += [np.log(to_class[np.arange(len(x)), predicted]), np.log(spread)]
        return np.stack(columns, axis=1)

    def _near(self, x: NDArray[Any], predicted: NDArray[Any] | None) -> Floats:
        """Return the log of the squared distance to the nearest row of the own class, a mean over groups."""
        square = np.ones(len(x)) if self.unit else scores.square_norms(x)
        best = np.empty(len(x))
        for index, rows in self._comparisons(predicted):
            # |x - b|^2 / 2 = |x|^2 / 2 - (x b - |b|^2 / 2): the largest bracket belongs to the nearest row.
            close = x[index] @ rows.T
            if not self.unit:
                close -= 0.5 * np.einsum("md,md->m", rows, rows)
            groups = min(self.groups, len(rows))
            found = [close[:, start::groups].max(axis=1) for start in range(groups)]
            best[index] = found[0] if groups == 1 else np.mean(found, axis=0, dtype=np.float64)
        if self.unit:
            best -= 0.5
        return np.log(np.maximum(square - 2.0 * best, RESOLVED * square + TINY))

    def _comparisons(self, predicted: NDArray[Any] | None) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Iterate over queries of one class and the rows they are compared with."""
        if predicted is None:
            yield slice(None), self.rows
            return
        order = np.argsort(predicted, kind="stable")
        cuts = np.searchsorted(predicted[order], np.arange(len(self.borders)))
        for k in np.flatnonzero(np.diff(cuts)):
            own = self.rows[self.borders[k] : self.borders[k + 1]]
            yield order[cuts[k] : cuts[k + 1]], own if len(own) else self.rows

    def nearest(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the same comparisons as tables, for those who compare with all rows at once.

        Returns
        -------
        share : ndarray of shape (K, groups)
            Weight of each group's nearest row in the mean, for each class.
        other : ndarray of shape (K, groups, m)
            Which rows are not in the group, or not of the class.
        """
        k, m = len(self.borders) - 1, len(self.rows)
        share, other = np.zeros((k, self.groups)), np.ones((k, self.groups, m), dtype=bool)
        for code in range(k):
            first, last = self.borders[code : code + 2] if self.borders[code] < self.borders[code + 1] else (0, m)
            groups = min(self.groups, int(last - first))
            share[code, :groups] = 1.0 / groups
            for group in range(self.groups):
                other[code, group, first + group % groups : last : groups] = False
        return share, other


@dataclass(frozen=True)
class _Sums:
    """Number, sum and squares of rows about a shift, class by class: those of parts add up."""

    count: Floats
    total: Floats
    square: Floats | None

    def __sub__(self, other: _Sums) -> _Sums:
        square = None if self.square is None or other.square is None else self.square - other.square
        return _Sums(self.count - other.count, self.total - other.total, square)


class LandmarkFactory:
    """Makes landmarks of ID rows without those of one fold; sums over all rows are made once.

    Parameters
    ----------
    rows : Rows of m ID rows
        In an order that carries no meaning; the first ones of each class are what others are near to.
    fold : ndarray of shape (m,)
        Fold of each row.
    """

    def __init__(self, rows: Rows, fold: NDArray[Any]) -> None:
        self._rows, self._fold = rows, fold
        features = np.asarray(self._rows.features)
        self._label, self._k = np.zeros(len(features), dtype=np.int64), 1
        if self._rows.logits is not None:
            # Where a classifier was trained outside of each fold, its answers in other folds know the labels of this one: labels themselves do not.
            own = self._rows.labels if self._rows.table else None
            self._label = np.asarray(self._rows.logits).argmax(axis=1) if own is None else own
            self._k = self._rows.logits.shape[1]
        self._shift = features.mean(axis=0, dtype=np.float64)
        self._spread = features.std(axis=0, dtype=np.float64)
        self._sums = self._sum(np.arange(len(features)))

    def without(self, k: int) -> Landmarks:
        """Return the landmarks of the rows outside a fold, or of all where none is outside."""
        outside = np.flatnonzero(self._fold != k)
        if not len(outside):
            return self.of_all()
        sums = self._sums - self._sum(np.flatnonzero(self._fold == k))
        if sums.square is not None and self._sums.square is not None:
            left, whole = np.diag(sums.square), np.diag(self._sums.square)
            if (left < LEFT * whole).any():  # one row was nearly all of a column: what is left of it is rounding
                sums = self._sum(outside)
        return self._landmarks(outside, sums, outside)

    def of_all(self) -> Landmarks:
        """Return the landmarks for new rows: means and axes of all rows, and as many rows to be near to as outside a fold.

        Among more rows the nearest is nearer: new ID rows would look more familiar than the rows thresholds are set on.
        """
        outside = np.flatnonzero(self._fold != 0)
        every = np.arange(len(self._fold))
        return self._landmarks(every, self._sums, outside if len(outside) else every)

    def _sum(self, index: NDArray[Any]) -> _Sums:
        x = np.asarray(self._rows.features)[index]
        if self._spread.max(initial=0.0) > HUGE:
            x = x.astype(np.float64)  # whose squares float32 does not hold
        x = x - self._shift.astype(x.dtype)
        label = self._label[index]
        member = (label[None, :] == np.arange(self._k)[:, None]).astype(x.dtype)
        # With fewer rows than columns the rows themselves are the shorter description.
        square = (x.T @ x).astype(np.float64) if x.shape[1] <= len(self._rows) else None
        return _Sums(np.bincount(label, minlength=self._k).astype(np.float64), (member @ x).astype(np.float64), square)

    def _landmarks(self, index: NDArray[Any], sums: _Sums, near: NDArray[Any]) -> Landmarks:
        features = np.asarray(self._rows.features)
        n, d = float(sums.count.sum()), features.shape[1]
        centre = sums.total.sum(axis=0) / n
        if sums.square is None:
            own = np.asarray(features[index], dtype=np.float64) - self._shift - centre
            spread = np.sqrt(np.mean(own**2, axis=0))
        else:
            covariance = sums.square / n - np.outer(centre, centre)
            spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        scale = self._scale(spread, centre + self._shift)
        if sums.square is None:
            values, axes = axes_of_rows(own * scale, AXES)
        else:
            values, axes = _axes_of_matrix(covariance * np.outer(scale, scale), AXES)
        outside = max(float(np.sum((spread * np.where(scale > 0.0, scale, 0.0)) ** 2) - values.sum()), 0.0)
        # One pseudo-row at the grand mean (zero here): a class without rows stays where all rows are.
        means = (sums.total - sums.count[:, None] * centre) * scale / (sums.count + 1.0)[:, None]
        along = means @ axes
        # Within classes is all without between; the pseudo-row leaves n + 2 of the squared (shrunk) mean between.
        share = sums.count * (sums.count + 2.0) / np.maximum(sums.count, 1.0) / n
        within = np.diag(values) - (along * share[:, None]).T @ along
        gone = float(share @ np.maximum(np.sum(means**2, axis=1) - np.sum(along**2, axis=1), 0.0))
        total, all_outside = _shrunk(np.diag(values), outside, n, d)
        within, inside = _shrunk(within, max(outside - gone, 0.0), n, d)
        whitening = scores.whitening(within)
        cut = int(np.searchsorted(np.cumsum(values), 0.9 * (values.sum() + outside)))
        major = min(cut + 1, max(d - 1, 1))  # at least one direction is not principal
        chosen, borders = self._choose(near)
        rows = features[chosen]
        unit = self._rows.one_scale
        rows = scores.unit_rows(rows) if unit else (rows - (centre + self._shift)) * scale
        return Landmarks(
            centre + self._shift,
            scale,
            axes,
            np.stack([np.ones(len(values)), np.arange(len(values)) >= major, 1.0 / np.diag(total)], axis=1),
            all_outside,
            whitening,
            inside,
            along @ whitening,
            np.ascontiguousarray(rows, dtype=features.dtype),
            borders,
            int(np.clip(round(32 / d), 1, 8)),
            unit,
        )

    def _scale(self, spread: Floats, centre: Floats) -> Floats:
        # Differences of sums leave rounding where a column is constant outside a fold.
        known = spread > 1e-6 * (np.abs(centre) + self._spread) + TINY
        if not self._rows.one_scale:
            return np.asarray(np.where(known, 1.0 / np.where(known, spread, 1.0), 0.0))
        level = 1.0 / np.sqrt(np.mean(spread[known] ** 2)) if known.any() else 1.0
        return np.full_like(spread, level)

    def _choose(self, index: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return which rows are landmarks, class by class, and where each class begins."""
        label = self._label[index[:ALL_ROWS]]
        limit = max(CLASS_ROWS, FEW_CLASSES // self._k)
        members = [np.flatnonzero(label == k)[:limit] for k in range(self._k)]
        borders = np.r_[0, np.cumsum([len(rows) for rows in members])].astype(np.int64)
        return index[np.concatenate(members)], borders


def _axes_of_matrix(covariance: Floats, q: int) -> tuple[Floats, Floats]:
    """Return the q largest eigenvalues and their vectors, largest first."""
    d = len(covariance)
    values, vectors = scipy.linalg.eigh(covariance, subset_by_index=(max(d - q, 0), d - 1))
    return np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])


def axes_of_rows(x: Floats, q: int) -> tuple[Floats, Floats]:
    """Return the same of the covariance of centred rows, which are fewer than columns."""
    values, vectors = _axes_of_matrix(x @ x.T / len(x), q)
    kept = values > 1e-10 * max(float(values[0]), TINY)
    kept[0] = True
    axes = x.T @ vectors[:, kept]
    return values[kept], axes / np.maximum(np.sqrt(np.sum(axes**2, axis=0)), TINY)


def _shrunk(covariance: Floats, outside: float, n: float, d: int) -> tuple[Floats, float]:
    """Shrink a covariance along the axes, and the mean variance outside of them, towards a sphere by d / (n + d)."""
    q = len(covariance)
    level = (float(np.trace(covariance)) + outside) / d
    shrink = d / (n + d)
    covariance = (1.0 - shrink) * covariance
    covariance[np.diag_indices(q)] += shrink * level + TINY
    return covariance, (1.0 - shrink) * outside / max(d - q, 1) + shrink * level + TINY
