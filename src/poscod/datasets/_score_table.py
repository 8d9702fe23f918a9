# SPDX-License-Identifier: BSD-3-Clause
"""Scores of other people's programs as one small table, in our direction.

Convention: `score` is an uncertainty, higher = reject sooner; it was flipped once, on import, if the file held a
confidence. `label` is -1 on every OOD row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_choice, check_vector
from poscod.exceptions import InvalidInputError

DIRECTIONS: dict[str, float] = {"confidence": -1.0, "uncertainty": 1.0}


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable:
    """One method's scores on n rows of ID and OOD sets.

    Parameters
    ----------
    pred : ndarray of shape (n,), int64
        Predicted class.
    score : ndarray of shape (n,), float64
        Uncertainty, higher = reject sooner.
    label : ndarray of shape (n,), int64
        True class; -1 on OOD rows.
    raw_label : ndarray of shape (n,), int64
        The label as the file has it, also on OOD rows: it tells whether the rows of two files are the same.
    dataset : ndarray of shape (n,), str
        Name of the set that each row belongs to.
    group : ndarray of shape (n,), str
        "id", "csid" (ID under covariate shift), or the name of a group of OOD sets such as "near" and "far".

    Examples
    --------
    >>> table = make_part([0, 1], [0.9, 0.2], [0, 1], direction="confidence", dataset="test", group="id")
    >>> table, table[table.score > -0.5].label
    (ScoreTable({'test': 2}), array([1]))
    """

    pred: NDArray[np.int64]
    score: Floats
    label: NDArray[np.int64]
    raw_label: NDArray[np.int64]
    dataset: NDArray[np.str_]
    group: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        return f"ScoreTable({dict(Counter(self.dataset.tolist()))})"

    def __getitem__(self, rows: Any) -> ScoreTable:
        """Return some rows (a slice, indices or a boolean mask)."""
        return ScoreTable(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def is_ood(self) -> NDArray[np.bool_]:
        """Whether each row is OOD, shape (n,)."""
        return np.asarray(~np.isin(self.group, ("id", "csid")))


def make_part(pred: Any, score: Any, label: Any, *, direction: str, dataset: str, group: str) -> ScoreTable:
    """Check the arrays of one set and turn its score into an uncertainty."""
    sign = check_choice(direction, "direction", DIRECTIONS)
    values = check_vector(score, f"the score of '{dataset}'")
    n = len(values)
    labels = _whole(label, f"the label of '{dataset}'", n)
    return ScoreTable(
        pred=_whole(pred, f"the prediction of '{dataset}'", n),
        score=sign * values + 0.0,  # + 0.0: no negative zeros
        label=labels if group in ("id", "csid") else np.full(n, -1, dtype=np.int64),
        raw_label=labels,
        dataset=np.full(n, dataset),
        group=np.full(n, group),
    )


def join(parts: list[ScoreTable]) -> ScoreTable:
    """Put tables one below the other."""
    return ScoreTable(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(ScoreTable)))


def check_aligned(tables: Mapping[str, ScoreTable]) -> None:
    """Refuse tables of several methods whose rows are not the same inputs in the same order: names of sets and labels betray it.

    Predictions are not compared: methods that change the features (ReAct, ASH) predict anew.

    Examples
    --------
    >>> one = make_part([0, 1], [0.9, 0.2], [0, 1], direction="confidence", dataset="test", group="id")
    >>> check_aligned({"msp": one, "knn": one[::-1]})
    Traceback (most recent call last):
        ...
    poscod.exceptions.InvalidInputError: tables must hold the same rows in the same order, but 'knn' and 'msp' differ in raw_label at row 0 ('test'): 1 and 0.
    """
    first_name, first = next(iter(tables.items()))
    for name, table in tables.items():
        if len(table) != len(first):
            raise InvalidInputError(
                f"tables must hold the same rows, but '{name}' has {len(table)} and '{first_name}' has {len(first)}."
            )
        for column in ("dataset", "group", "raw_label"):
            one, two = getattr(table, column), getattr(first, column)
            different = np.flatnonzero(one != two)
            if len(different):
                row = int(different[0])
                raise InvalidInputError(
                    f"tables must hold the same rows in the same order, but '{name}' and '{first_name}' differ in "
                    f"{column} at row {row} ('{first.dataset[row]}'): {one[row]} and {two[row]}."
                )


def _whole(values: Any, name: str, n: int) -> NDArray[np.int64]:
    """Check a column of whole numbers."""
    column = check_vector(values, name, n=n, like="its scores", allow_inf=False)
    if (column != np.floor(column)).any():
        raise InvalidInputError(f"{name} must hold whole numbers.")
    return column.astype(np.int64)
