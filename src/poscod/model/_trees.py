# SPDX-License-Identifier: BSD-3-Clause
"""Trees, forests and histogram boosting of scikit-learn in model files: arrays, and attributes.

Convention: scikit-learn follows the indices of a tree without looking. Whatever a file says is therefore checked before it becomes a tree: children come after
their parent, each node has one parent, columns are those of the estimator. Estimators are of exactly these classes; all else in them goes the way of any other object.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.tree._tree import Tree

from poscod.model._errors import ModelFileError

TREES = (DecisionTreeClassifier, ExtraTreeClassifier)
FORESTS = (RandomForestClassifier, ExtraTreesClassifier)
_LEAF = -1
_BITSET_WORDS = 8
_DAMAGED = "holds a tree whose parts do not fit each other: it is damaged."


def take_tree(estimator: Any) -> dict[str, Any]:
    """Return a decision tree as attributes and arrays."""
    state = dict(vars(estimator))
    if "tree_" in state:
        tree = state.pop("tree_")
        (features, classes, outputs), parts = tree.__reduce__()[1:]
        state = {**state, "n_outputs_": int(outputs), "n_features_in_": int(features)}
        return {"attributes": state, "classes": classes, "nodes": parts["nodes"], "values": parts["values"]}
    return {"attributes": state}


def make_tree(cls: type, state: dict[str, Any]) -> Any:
    """Return the decision tree, after its nodes were checked."""
    estimator = _made(cls, state["attributes"])
    if "nodes" not in state:
        return estimator
    nodes, values, classes = state["nodes"], state["values"], state["classes"]
    features = estimator.n_features_in_
    _need(type(features) is int and features > 0 and type(estimator.n_outputs_) is int and estimator.n_outputs_ == 1)
    _need(classes.dtype == np.intp and classes.shape == (1,) and nodes.ndim == 1 and len(nodes) > 0)
    _need(values.dtype == np.float64 and values.shape == (len(nodes), 1, int(classes[0])))
    _need(len(estimator.classes_) == int(estimator.n_classes_) == int(classes[0]))
    inner = nodes["left_child"] != _LEAF
    depth = _check_nodes(inner, nodes["left_child"], nodes["right_child"], nodes["feature"], features)
    estimator.tree_ = Tree(features, classes, 1)
    estimator.tree_.__setstate__(
        {"max_depth": depth, "node_count": len(nodes), "nodes": nodes, "values": np.ascontiguousarray(values)}
    )
    return estimator


def take_forest(estimator: Any) -> dict[str, Any]:
    """Return a forest as attributes; its trees are some of them."""
    return {"attributes": dict(vars(estimator))}


def make_forest(cls: type, state: dict[str, Any]) -> Any:
    """Return the forest, after its trees were compared with it."""
    forest = _made(cls, state["attributes"])
    for tree in getattr(forest, "estimators_", ()):
        _need(type(tree) in TREES and tree.n_features_in_ == forest.n_features_in_ and hasattr(tree, "tree_"))
    return forest


class CheckedPredictor(TreePredictor):  # type: ignore[misc]
    """A tree of histogram boosting that came from a file: it reads no column and no set of categories that is not there.

    Parameters
    ----------
    nodes, binned, raw : ndarray
        Nodes, and sets of categories that go left.
    """

    def __init__(self, nodes: NDArray[Any], binned: NDArray[Any], raw: NDArray[Any]) -> None:
        _need(nodes.ndim == 1 and len(nodes) > 0)
        for sets in (binned, raw):
            _need(sets.dtype == np.uint32 and sets.ndim == 2 and sets.shape[1] == _BITSET_WORDS)
        inner = nodes["is_leaf"] == 0
        feature, categorical = nodes["feature_idx"], inner & (nodes["is_categorical"] != 0)
        self.width = int(feature[inner].max(initial=-1)) + 1
        _check_nodes(inner, nodes["left"], nodes["right"], feature, self.width)
        _need((nodes["bitset_idx"][categorical] < min(len(binned), len(raw))).all())
        self.categorical = np.unique(feature[categorical])
        super().__init__(nodes, binned, raw)

    def predict(self, X: Any, known_cat_bitsets: Any, f_idx_map: Any, n_threads: int) -> Any:
        """Predict, unless columns or categories are missing."""
        _need(X.shape[1] >= self.width and len(f_idx_map) >= self.width)
        _need((np.asarray(f_idx_map)[self.categorical] < len(known_cat_bitsets)).all())
        return super().predict(X, known_cat_bitsets, f_idx_map, n_threads)


def take_boosting(estimator: Any) -> dict[str, Any]:
    """Return histogram boosting as attributes, and the nodes of all trees one after the other."""
    state = dict(vars(estimator))
    rounds = state.pop("_predictors", None)
    if rounds is None:
        return {"attributes": state}
    trees = [tree for trees in rounds for tree in trees]
    parts = {
        "nodes": [tree.nodes for tree in trees],
        "binned": [tree.binned_left_cat_bitsets for tree in trees],
        "raw": [tree.raw_left_cat_bitsets for tree in trees],
    }
    return {
        "attributes": state,
        "trees": np.array([len(trees) for trees in rounds]),
        "sizes": np.array([[len(array) for array in arrays] for arrays in parts.values()]).reshape(len(parts), -1),
        **{name: np.concatenate(arrays) for name, arrays in parts.items() if arrays},
    }


def make_boosting(cls: type, state: dict[str, Any]) -> Any:
    """Return histogram boosting whose trees were checked."""
    estimator = _made(cls, state["attributes"])
    if "trees" not in state:
        return estimator
    rounds, sizes = state["trees"], state["sizes"]
    _need(sizes.shape == (3, int(rounds.sum())) and (rounds >= 0).all() and (sizes >= 0).all())
    ends = np.cumsum(sizes, axis=1)
    arrays = []
    for kind, name in enumerate(("nodes", "binned", "raw")):
        whole = state.get(name, np.empty(0))
        _need(len(whole) == int(sizes[kind].sum()))
        arrays.append(np.split(whole, ends[kind][:-1]))
    trees = iter([CheckedPredictor(*parts) for parts in zip(*arrays, strict=True)] if len(sizes[0]) else [])
    estimator._predictors = [[next(trees) for _ in range(n)] for n in rounds.tolist()]
    return estimator


def _made(cls: type, attributes: dict[str, Any]) -> Any:
    instance: Any = object.__new__(cls)
    vars(instance).update(attributes)
    return instance


def _need(fits: Any) -> None:
    if not fits:
        raise ModelFileError(_DAMAGED)


def _check_nodes(
    inner: NDArray[Any], left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], features: int
) -> int:
    """Refuse nodes that are no tree, or read columns that there are not; return the depth."""
    at = np.flatnonzero(inner)
    n, ends = len(inner), [side[at].astype(np.int64) for side in (left, right)]
    _need(all(((at < end) & (end < n)).all() for end in ends))
    _need(np.array_equal(np.sort(np.concatenate(ends)), np.arange(1, n)))
    _need(((feature[at] >= 0) & (feature[at] < features)).all())
    depth = [0] * n
    for parent, *children in zip(at.tolist(), *(end.tolist() for end in ends), strict=True):
        for child in children:
            depth[child] = depth[parent] + 1
    return max(depth)
