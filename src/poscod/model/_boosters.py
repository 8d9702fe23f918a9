# SPDX-License-Identifier: BSD-3-Clause
"""Boosters of other projects in model files, each in its own format: JSON of XGBoost, text of LightGBM, the binary format of CatBoost.

Convention: their readers are native code. What can be read as text is looked at first, so that no tree names nodes or columns that it does not have, and
LightGBM, whose reader dies of many damaged texts, gets one that was written anew; a binary model of CatBoost is as safe as CatBoost's own reader. Bytes travel as arrays, whose size is that of their place in the file.
"""

from __future__ import annotations

import importlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod.exceptions import InvalidInputError
from poscod.model._errors import ModelFileError


def _library(name: str) -> Any:
    """Import a package that nothing else of this one needs; it has no extra."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ModelFileError(f"holds a classifier of {name}, which is not installed: `pip install {name}`.") from None


def _bytes(data: bytes | bytearray) -> NDArray[np.uint8]:
    return np.frombuffer(bytes(data), dtype=np.uint8)


def _need(fits: Any) -> None:
    if not fits:
        raise ModelFileError("holds a booster whose parts do not fit each other: it is damaged.")


def take_xgboost(estimator: Any) -> dict[str, Any]:
    """Return parameters and, where it is fitted, the booster as JSON."""
    state = {"parameters": estimator.get_params()}
    if estimator.__sklearn_is_fitted__():
        state["data"] = _bytes(estimator.get_booster().save_raw("json"))
    return state


def make_xgboost(state: dict[str, Any]) -> Any:
    """Return the classifier; its JSON was looked at."""
    estimator = _library("xgboost").XGBClassifier(**state["parameters"])
    if "data" in state:
        data = state["data"].tobytes()
        document = json.loads(data, object_pairs_hook=_once)
        learner = document["learner"]
        features = int(learner["learner_model_param"]["num_feature"])
        for tree in _trees_in(learner["gradient_booster"]):
            _check_xgboost(tree, features)
        estimator.load_model(bytearray(data))
        vars(estimator).update(state["parameters"])  # reading changes some of them
    return estimator


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that stands twice: two readers might take another one."""
    found = dict(pairs)
    _need(len(found) == len(pairs))
    return found


def _trees_in(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [tree for item in node for tree in _trees_in(item)]
    if not isinstance(node, dict):
        return []
    return [node] if "left_children" in node else [tree for item in node.values() for tree in _trees_in(item)]


def _check_xgboost(tree: dict[str, Any], features: int) -> None:
    n = int(tree["tree_param"]["num_nodes"])
    names = ("left_children", "right_children", "parents", "split_indices", "split_conditions", "default_left")
    _need(n > 0 and all(len(tree[name]) == n for name in names))
    left, right, feature = (np.asarray(tree[name], dtype=np.int64) for name in (*names[:2], "split_indices"))
    inner = left != -1
    children = np.concatenate([left[inner], right[inner]])
    _need(((children > 0) & (children < n)).all() and len(np.unique(children)) == len(children))
    _need((right[~inner] == -1).all() and ((feature[inner] >= 0) & (feature[inner] < features)).all())
    starts, sizes = (
        np.asarray(tree.get(name, []), dtype=np.int64) for name in ("categories_segments", "categories_sizes")
    )
    nodes = np.asarray(tree.get("categories_nodes", []), dtype=np.int64)
    _need(len(starts) == len(sizes) == len(nodes) and ((nodes >= 0) & (nodes < n)).all())
    _need(((starts >= 0) & (sizes >= 0) & (starts + sizes <= len(tree.get("categories", [])))).all())


def take_lightgbm(estimator: Any) -> dict[str, Any]:
    """Return attributes and, where it is fitted, the booster as text."""
    state = {name: value for name, value in vars(estimator).items() if name not in ("_best_score", "_evals_result")}
    booster = state.pop("_Booster", None)
    if booster is None:
        return {"attributes": {**state, "_Booster": None}}
    try:
        text = _lightgbm_text(booster.model_to_string(num_iteration=-1))
    except ModelFileError:
        raise InvalidInputError(
            "classifier is a LightGBM model that cannot be kept: linear trees and objectives of your own are not."
        ) from None
    return {"attributes": state, "data": _bytes(text.encode()), "best": int(booster.best_iteration)}


def make_lightgbm(state: dict[str, Any]) -> Any:
    """Return the classifier; LightGBM sees a text that was written anew from what was understood."""
    library = _library("lightgbm")
    estimator = object.__new__(library.LGBMClassifier)
    vars(estimator).update({"_best_score": {}, "_evals_result": {}}, **state["attributes"])
    if "data" in state:
        booster = library.Booster(model_str=_lightgbm_text(state["data"].tobytes().decode()))
        booster.best_iteration = int(state["best"])
        _need(booster.num_feature() == estimator._n_features)
        estimator._Booster = booster
    return estimator


_NUMBER = r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan)"
# Header of a LightGBM model: what is kept of it, and what each value may be.
_HEADER = {
    "version": r"v\d",
    "num_class": r"\d{1,6}",
    "num_tree_per_iteration": r"\d{1,6}",
    "label_index": r"\d{1,6}",
    "max_feature_idx": r"\d{1,6}",
    "objective": rf"(?:binary|multiclass|multiclassova|cross_entropy|xentropy)(?: (?:sigmoid|num_class):{_NUMBER})*",
    "feature_names": r"\S+(?: \S+)*",
    "feature_infos": rf"(?:none|\[{_NUMBER}:{_NUMBER}\]|-?\d+(?::-?\d+)*)(?: (?:none|\[{_NUMBER}:{_NUMBER}\]|-?\d+(?::-?\d+)*))*",
}
# Fields of a tree with one number for each inner node, and for each leaf.
_INNER = [
    "split_feature",
    "split_gain",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "internal_value",
    "internal_weight",
    "internal_count",
]
_LEAVES = ["leaf_value", "leaf_weight", "leaf_count"]


def _lightgbm_text(text: str) -> str:
    """Return a LightGBM model with nothing but what was understood; its reader follows sizes, nodes and columns without looking."""
    body, _, rest = text.partition("\nend of trees")
    head, *blocks = body.split("\nTree=")
    lines = head.split("\n")
    header = _fields(head)
    _need(lines[0] == "tree" and blocks and _HEADER.keys() <= header.keys())
    for name, allowed in _HEADER.items():
        _need(re.fullmatch(allowed, header[name], re.ASCII if name != "feature_names" else 0))
    features, each = int(header["max_feature_idx"]) + 1, int(header["num_tree_per_iteration"])
    classes = int(header["num_class"])
    _need(each == classes > 0 and len(blocks) % each == 0)
    _need(all(len(header[name].split(" ")) == features for name in ("feature_names", "feature_infos")))
    asked = re.search(r"num_class:(\S+)", header["objective"])
    _need((asked is not None and asked[1] == header["num_class"]) or (asked is None and classes == 1))
    out = [
        "tree",
        *(f"{name}={header[name]}" for name in _HEADER),
        *(["average_output"] if "average_output" in lines else []),
    ]
    for number, block in enumerate(blocks):
        out += ["", f"Tree={number}", *_lightgbm_tree(_fields(block.partition("\n")[2]), features)]
    found = re.search(r"^pandas_categorical:(.*)$", rest, re.MULTILINE)
    known = json.dumps(json.loads(found[1])) if found else "null"
    return "\n".join(
        [*out, "", "end of trees", "", "parameters:", "end of parameters", "", f"pandas_categorical:{known}", ""]
    )


def _lightgbm_tree(tree: dict[str, str], features: int) -> list[str]:
    """Return the lines of a tree whose parts fit each other."""
    leaves, sets = int(tree["num_leaves"]), int(tree["num_cat"])
    _need(tree.get("is_linear", "0") == "0" and 0 < leaves <= len(tree["leaf_value"]) and sets >= 0)
    n, kept = leaves - 1, {"num_leaves": str(leaves), "num_cat": str(sets)}
    for names, size in ((_INNER, n), (_LEAVES, leaves)):
        for name in names if size and leaves > 1 else names[:1] if names is _LEAVES else ():
            _need(re.fullmatch(rf"{_NUMBER}(?: {_NUMBER})*", tree[name]) and len(tree[name].split(" ")) == size)
            kept[name] = tree[name]
    if n:
        left, right, column, kind = (
            _whole(tree[name]) for name in ("left_child", "right_child", "split_feature", "decision_type")
        )
        children = np.sort(
            np.concatenate([left, right])
        )  # leaves are -1, -2, ...; inner nodes but for the root are 1, 2, ...
        _need(np.array_equal(children, np.concatenate([np.arange(-leaves, 0), np.arange(1, n)])))
        _need(all(((side > np.arange(n)) | (side < 0)).all() for side in (left, right)))
        _need(((column >= 0) & (column < features)).all() and ((kind >= 0) & (kind < 16)).all())
        if sets or (kind & 1).any():
            ends, words = _whole(tree["cat_boundaries"]), _whole(tree["cat_threshold"])
            chosen = np.array(tree["threshold"].split(" "), dtype=np.float64)[(kind & 1) == 1]
            _need(len(ends) == sets + 1 and ends[0] == 0 and (np.diff(ends) > 0).all() and ends[-1] == len(words))
            _need(((chosen >= 0) & (chosen < sets)).all() and ((words >= 0) & (words < 2**32)).all())
            kept |= {
                name: " ".join(map(str, part)) for name, part in (("cat_boundaries", ends), ("cat_threshold", words))
            }
    _need(re.fullmatch(_NUMBER, tree["shrinkage"]))
    return [f"{name}={value}" for name, value in {**kept, "is_linear": "0", "shrinkage": tree["shrinkage"]}.items()]


def _fields(block: str) -> dict[str, str]:
    return _once([line.partition("=")[::2] for line in block.split("\n") if "=" in line])


def _whole(text: str) -> NDArray[np.int64]:
    return np.array(text.split(" "), dtype=np.int64)


def take_catboost(estimator: Any) -> dict[str, Any]:
    """Return parameters and, where it is fitted, the model in CatBoost's own format."""
    state = {"parameters": estimator.get_params()}
    if estimator.is_fitted():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.cbm")
            estimator.save_model(str(path), format="cbm")
            state["data"] = _bytes(path.read_bytes())
    return state


def make_catboost(state: dict[str, Any]) -> Any:
    """Return the classifier."""
    estimator = _library("catboost").CatBoostClassifier(**state["parameters"])
    if "data" in state:
        estimator.load_model(blob=state["data"].tobytes())
    return estimator
