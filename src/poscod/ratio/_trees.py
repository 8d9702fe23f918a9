# SPDX-License-Identifier: BSD-3-Clause
"""Boosted trees that tell unlabeled from labeled rows: what no linear evidence can say, as one more candidate for log g.

Convention: trees see features, and evidence that no single ID row has a say in (distances from means and axes, not from the nearest row): a row that is near to
training rows makes them look nearer than it looks itself, and trees, which can be local, would tell labeled rows by that. Of a network they see evidence alone: what
its logits say, lengths, and the same distances. Their sum s is the log-odds of "unlabeled",
``e^s = p_U(x) / p_I(x) * pi_U / (1 - pi_U)``; what OOD rows add to it is ``e^u = e^s - a``, with a floor that keeps the order of s. They are fitted by scikit-learn
and kept as plain arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from poscod._threads import one_thread
from poscod._validation import Floats

# Rows of a side that a first look learns from, and what it may cost: few trees, coarse bins.
LOOK_ROWS = 2000
LOOK = {"max_iter": 10, "learning_rate": 0.3}
FULL = {"max_iter": 60, "learning_rate": 0.15}
# Bins of a column, and rows that say where they end.
BINS, BIN_ROWS = 64, 8000
# Evidence that trees see of tables, where what classifiers of folds say knows the other folds; of networks they see all but the nearest row. Of wider tables than
# this, they see evidence alone.
SEEN = ("mahalanobis", "residual", "mahalanobis_global")
NEAREST_ROW = "knn"
WIDEST = 256
BLOCK_ROWS = 4096
# Least share of e^s that is left of it when what ID rows explain is taken away, in units of pi.
LEAST = 0.01


@dataclass(frozen=True)
class Trees:
    """Fitted trees as arrays: ``weight * u`` with u from the sum of trees, see `excess`.

    Attributes
    ----------
    feature, threshold : ndarray of shape (trees, splits)
        A row goes left at a split if its value in that column is at most the threshold.
    path : ndarray of shape (trees, splits, leaves)
        1 where a leaf lies to the left of a split, -1 to the right, 0 where it lies elsewhere: a row is in the leaf whose lefts it goes, and none of whose rights.
    value : ndarray of shape (trees, leaves)
    base, weight, log_a, least : float
        What the sum starts from, what u counts, and the terms of `excess`.
    """

    feature: NDArray[np.int64]
    threshold: Floats
    path: NDArray[np.float32]
    value: Floats
    base: float
    weight: float = 1.0
    log_a: float = -np.inf
    least: float = LEAST

    @property
    def lefts(self) -> NDArray[np.float32]:
        """Number of splits that a leaf lies to the left of, shape (trees, 1, leaves)."""
        return np.asarray((self.path > 0.0).sum(axis=1, keepdims=True, dtype=np.float32))

    def logit(self, matrix: NDArray[Any]) -> Floats:
        """Return the log-odds of "unlabeled" of each row."""
        total, lefts = np.full(len(matrix), self.base), self.lefts
        for start in range(0, len(matrix), BLOCK_ROWS):
            part = matrix[start : start + BLOCK_ROWS]
            left = (part[:, self.feature] <= self.threshold).astype(np.float32)
            inside = left.transpose(1, 0, 2) @ self.path == lefts
            total[start : start + BLOCK_ROWS] += (inside @ self.value[:, :, None]).sum(axis=0)[:, 0]
        return total

    def __call__(self, matrix: NDArray[Any]) -> Floats:
        """Return what trees add to u of each row."""
        return self.weight * excess(self.logit(matrix), self.log_a, self.least)


def excess(score: Floats, log_a: float, least: float) -> Floats:
    """Return u = log(e^s - a), or s + log(least) where that is more."""
    return np.asarray(score + np.log(np.maximum(-np.expm1(np.minimum(log_a - score, 0.0)), least)))


@dataclass(frozen=True)
class Grown:
    """Trees fitted without each fold (and last, where asked for, on all rows), and the log-odds of the rows by trees that have not seen their fold."""

    models: list[HistGradientBoostingClassifier]
    columns: NDArray[np.int64]
    edges: list[Floats]
    own: Floats

    def logit(self, k: int, matrix: NDArray[Any]) -> Floats:
        """Return the log-odds of some rows by the k-th fit."""
        return _logit(self.models[k], _steps(matrix, self.columns, self.edges))

    def whole(self) -> Trees:
        """Return the last fit as arrays, with thresholds of the columns themselves."""
        last = self.models[-1]
        trees = [stage[0].nodes for stage in last._predictors]
        leaves = max(int(nodes["is_leaf"].sum()) for nodes in trees)
        feature = np.zeros((len(trees), leaves - 1), dtype=np.int64)
        # Nothing lies to the left of a split that is not there: leaves that are not there hold every row, and add nothing.
        threshold, value = np.full(feature.shape, -np.inf), np.zeros((len(trees), leaves))
        path = np.zeros((len(trees), leaves - 1, leaves), dtype=np.float32)
        for t, nodes in enumerate(trees):
            splits, ends = iter(range(leaves)), iter(range(leaves))
            walk: list[tuple[int, dict[int, float]]] = [(0, {})]
            while walk:
                at, turns = walk.pop()
                node = nodes[at]
                if node["is_leaf"]:
                    leaf = next(ends)
                    value[t, leaf] = node["value"]
                    path[t, list(turns), leaf] = list(turns.values())
                    continue
                split, column = next(splits), int(node["feature_idx"])
                # At most k edges lie below x where x is at most edge k.
                feature[t, split] = self.columns[column]
                threshold[t, split] = self.edges[column][int(node["num_threshold"])]
                walk += [(int(node["left"]), {**turns, split: 1.0}), (int(node["right"]), {**turns, split: -1.0})]
        return Trees(feature, threshold, path, value, float(last._baseline_prediction.item()))


class Grower:
    """Fits trees on some columns that tell rows from the first n_id, which are ID; columns are cut into steps once, without a look at labels."""

    def __init__(self, matrix: NDArray[Any], columns: NDArray[np.int64], n_id: int, weight: Floats) -> None:
        self._n_id, self._weight, self._columns = n_id, weight, columns
        some = matrix[:: -(-len(matrix) // BIN_ROWS)][:, columns]
        found = np.quantile(some, np.linspace(0.0, 1.0, BINS), axis=0, method="inverted_cdf")
        # Edges lie between values that occur: what is stored in another type, or computed elsewhere, falls on the same side.
        self._edges = [(known[1:] + known[:-1]) / 2 for known in map(np.unique, found.T)]
        self._matrix = _steps(matrix, columns, self._edges)

    def grow(self, fold: NDArray[Any], n_fits: int, effort: dict[str, Any], most: int | None = None) -> Grown | None:
        """Fit trees on the rows outside each fold, at most so many a side; None where a side has none. A fit beyond the last fold is one on all rows."""
        own, models = np.zeros(len(fold)), []
        for k in range(n_fits):
            outside = np.flatnonzero(fold != k)
            sides = [side[:most] for side in np.split(outside, [np.searchsorted(outside, self._n_id)])]
            if min(self._weight[side].sum() for side in sides) <= 0.0:
                return None
            train, inside = np.concatenate(sides), np.flatnonzero(fold == k)
            weight = self._weight[train] * (len(train) / self._weight[train].sum())
            model = HistGradientBoostingClassifier(
                **effort,
                max_leaf_nodes=8,
                min_samples_leaf=10,
                l2_regularization=1.0,
                early_stopping=False,
                random_state=0,
            )
            # Columns are few and rows too: threads would wait for each other.
            with one_thread("openmp"):
                models.append(model.fit(self._matrix[train], train >= self._n_id, sample_weight=weight))
                if len(inside):
                    own[inside] = _logit(model, self._matrix[inside])
        return Grown(models, self._columns, self._edges, own)


def _steps(matrix: NDArray[Any], columns: NDArray[np.int64], edges: list[Floats]) -> NDArray[np.uint8]:
    """Return the number of edges below each value of some columns."""
    out = np.empty((len(matrix), len(columns)), dtype=np.uint8)
    for k, (column, cuts) in enumerate(zip(columns.tolist(), edges, strict=True)):
        out[:, k] = np.searchsorted(cuts, matrix[:, column])
    return out


def _logit(model: HistGradientBoostingClassifier, steps: NDArray[np.uint8]) -> Floats:
    """Return the log-odds of some rows, in blocks: scikit-learn copies what it is asked about to float64."""
    parts = [model.decision_function(steps[at : at + BLOCK_ROWS]) for at in range(0, len(steps), BLOCK_ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0)
