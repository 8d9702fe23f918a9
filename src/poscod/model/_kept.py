# SPDX-License-Identifier: BSD-3-Clause
"""Classifiers of other libraries that a model file holds without skops' help, and so without a list of what to trust.

Convention: a class is kept if it is exactly one of `KEPT`. It is taken apart into plain values, arrays and further objects, which go the way of any other
object, and is made again from them by code that checks what it is given. Whatever is not listed here goes through skops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from poscod.model._boosters import (
    make_catboost,
    make_lightgbm,
    make_xgboost,
    take_catboost,
    take_lightgbm,
    take_xgboost,
)
from poscod.model._errors import ModelFileError
from poscod.model._trees import make_boosting, make_forest, make_tree, take_boosting, take_forest, take_tree


class Kind(NamedTuple):
    """How objects of one class are taken apart and made again; `copied` names the arrays of which making needs a copy."""

    take: Callable[[Any], dict[str, Any]]
    make: Callable[[dict[str, Any]], Any]
    copied: tuple[str, ...] = ()


def class_name(cls: type) -> str:
    """Return the full name of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _own(cls: type, take: Callable[[Any], Any], make: Callable[[type, Any], Any], *copied: str) -> tuple[str, Kind]:
    return class_name(cls), Kind(take, lambda state: make(cls, state), copied)


def _attributes(estimator: Any) -> dict[str, Any]:
    return dict(vars(estimator))


def _pipeline(cls: type, state: dict[str, Any]) -> Any:
    """Return a pipeline of steps."""
    pairs = [type(step) is tuple and len(step) == 2 and isinstance(step[0], str) for step in state["steps"]]
    if not pairs or not all(pairs):
        raise ModelFileError("holds a pipeline without steps: it is damaged.")
    return _around(cls, state)


def _around(cls: type, state: dict[str, Any]) -> Any:
    instance: Any = object.__new__(cls)
    vars(instance).update(state)
    return instance


_AROUND = dict([_own(Pipeline, _attributes, _pipeline), _own(FrozenEstimator, _attributes, _around)])
KEPT: dict[str, Kind] = {
    **_AROUND,
    **dict(
        [
            *(
                _own(cls, take_tree, make_tree, "nodes", "values")
                for cls in (DecisionTreeClassifier, ExtraTreeClassifier)
            ),
            *(_own(cls, take_forest, make_forest) for cls in (RandomForestClassifier, ExtraTreesClassifier)),
            _own(HistGradientBoostingClassifier, take_boosting, make_boosting),
        ]
    ),
    "xgboost.sklearn.XGBClassifier": Kind(take_xgboost, make_xgboost, ("data",)),
    "lightgbm.sklearn.LGBMClassifier": Kind(take_lightgbm, make_lightgbm, ("data",)),
    "catboost.core.CatBoostClassifier": Kind(take_catboost, make_catboost, ("data",)),
}
"""Full name of a class to how it is kept."""


def is_kept(value: Any) -> bool:
    """Tell whether an object is kept here; a pipeline is where one of its steps is."""
    name = class_name(type(value))
    if name not in _AROUND:
        return name in KEPT
    inner = [step for _, step in value.steps] if isinstance(value, Pipeline) else [value.estimator]
    return any(map(is_kept, inner))
