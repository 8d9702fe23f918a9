# SPDX-License-Identifier: BSD-3-Clause
"""Which labeled row does what: train the classifier, calibrate r and fit g, set the threshold.

Convention: no row is scored by a part that was fitted on it. Positions count the labeled rows; the plan is the same wherever the rows lie.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from poscod._validation import refusal
from poscod.exceptions import InvalidInputError

Indices = NDArray[np.intp]


class Step(NamedTuple):
    """A ratio learns from some rows and scores others."""

    learn: Indices
    score: Indices


class Plan(NamedTuple):
    """The use of every labeled row.

    Attributes
    ----------
    train : ndarray of int
        Rows that train the classifier.
    learn : ndarray of int
        Rows that calibrate r and fit the ratio.
    steps : list of Step
        One where rows are held out; one a fold in cross-fitting, after which classifier and ratio are fitted once more on all rows.
    """

    train: Indices
    learn: Indices
    steps: list[Step]

    @property
    def folds(self) -> bool:
        """Whether rows are cross-fitted instead of held out."""
        return len(self.steps) > 1

    @property
    def held(self) -> Indices:
        """Rows that are looked at after the classifier was trained, in increasing order."""
        return np.unique(np.concatenate([self.learn, *(step.score for step in self.steps)]))


def make_plan(codes: NDArray[np.int64], calibration: float, frozen: bool, rng: np.random.RandomState) -> Plan:
    """Plan by a held-out share (float) or a number of folds (int); with a frozen classifier no row trains it."""
    if not isinstance(calibration, int):
        train, learn, score = _shares(codes, 1.0 if frozen else calibration, rng)
        return Plan(train, learn, [Step(learn, score)])
    fold = _folds(codes, calibration, rng)
    every = np.arange(len(codes))
    return Plan(every, every, [Step(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(calibration)])


def _shares(codes: NDArray[np.int64], held: float, rng: np.random.RandomState) -> list[Indices]:
    """Split rows, class by class, into training rows and two halves of the held-out share."""
    parts: tuple[list[Indices], list[Indices], list[Indices]] = ([], [], [])
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        # The cut moves by a random fraction of a row, so that small classes are not always rounded the same way.
        cuts = np.floor(np.array([1.0 - held, 1.0 - held / 2.0]) * len(members) + rng.random_sample()).astype(int)
        for part, chosen in zip(parts, np.split(members, np.minimum(cuts, len(members))), strict=True):
            part.append(chosen)
    train, learn, score = (np.sort(np.concatenate(part)) for part in parts)
    if held < 1.0 and len(np.unique(codes[train])) < len(np.unique(codes)):
        raise InvalidInputError(
            "Some class has too few rows to train the classifier: add rows or lower {parameter}.",
            parameter="calibration",
        )
    if len(learn) == 0 or len(score) == 0:
        raise InvalidInputError(
            "{got} labeled rows are too few to hold out any for calibration: add rows or use folds ({parameter}).",
            parameter="calibration",
            got=len(codes),
        )
    return [train, learn, score]


def _folds(codes: NDArray[np.int64], k: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    least = int(np.bincount(codes)[np.unique(codes)].min())
    if least < k:
        raise refusal(
            "calibration", "= {k} folds need at least {k} rows of every class, got {got} of the rarest.", k=k, got=least
        )
    fold = np.empty(len(codes), dtype=np.int64)
    splitter = StratifiedKFold(k, shuffle=True, random_state=rng.randint(2**31 - 1))
    for i, (_, held) in enumerate(splitter.split(codes[:, None], codes)):
        fold[held] = i
    return fold
