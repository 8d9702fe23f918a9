# SPDX-License-Identifier: BSD-3-Clause
"""A log as a model sees it: decisions on all of its rows, and what the ratio sees of some of them.

Convention: nothing else in this folder looks at rows. Rows lie in memory here; rows that lie elsewhere bring a log of their own with the same methods, made by
their method ``seen_by(model)``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod.activations import Activations
from poscod.decision import Decisions
from poscod.model import chunks, keys_of, n_rows, take

Rows = NDArray[np.int64]


class Log:
    """Rows in memory; row numbers are in any order, from 0."""

    def __init__(self, model: Any, X: Any) -> None:
        self._model, self._X = model, X

    def __len__(self) -> int:
        return n_rows(self._X)

    @cached_property
    def decisions(self) -> Decisions:
        """What is decided on every row."""
        found: Decisions = self._model.decide(self._X)
        return found

    def keys(self) -> NDArray[np.uint64]:
        """Return a number per row that depends on its content alone."""
        return keys_of(self._model.scorer_.prepared(self._X))

    def view(self, rows: Rows | None = None) -> Activations:
        """Return what the ratio sees of some rows; of all of them without numbers."""
        seen: Activations = self._model.scorer_.view(self._X if rows is None else take(self._X, rows))
        return seen

    def mapped(self, function: Callable[[Activations], NDArray[Any]], rows: Rows) -> NDArray[Any]:
        """Return what a function makes of views of some rows, one value or vector for each, in blocks."""
        blocks = chunks(take(self._X, rows))
        return np.concatenate([function(self._model.scorer_.view(block)) for block in blocks])


def log_of(model: Any, X: Any) -> Any:
    """Return a log as a model sees it."""
    return X.seen_by(model) if hasattr(X, "seen_by") else Log(model, X)


def columns_of(view: Activations) -> NDArray[np.float64]:
    """Return the numbers by which rows are compared: features, or logits where there are none."""
    return np.asarray(view.logits if view.features is None else view.features, dtype=np.float64)
