# SPDX-License-Identifier: BSD-3-Clause
"""Which row does what: train the classifier, calibrate r and fit g, set the threshold.

Convention: no row is scored by a part that was fitted on it. Positions count the labeled rows; a plan by shares is the same wherever the rows lie, a
plan by folds depends on the content of the rows and not on their order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import refusal
from poscod.exceptions import InvalidInputError
from poscod.ratio import content_folds, number_copies, observations

Indices = NDArray[np.intp]
Keys = NDArray[np.uint64]

# Share of the labeled rows that nothing is fitted on where something is guaranteed: with a classifier that is trained, and with one that is given.
HELD_TRAINED, HELD_GIVEN = 0.25, 0.5


class Shares(NamedTuple):
    """Three parts of the labeled rows: they train the classifier, calibrate r and fit the ratio, set the threshold."""

    train: Indices
    learn: Indices
    score: Indices

    @property
    def held(self) -> Indices:
        """Rows that are looked at after the classifier was trained, in increasing order."""
        return np.union1d(self.learn, self.score)


class Folds(NamedTuple):
    """The folds of all rows.

    Attributes
    ----------
    rest : ndarray of int
        Labeled rows that are cross-fitted; classifier and ratio are fitted once more on all of them.
    held : ndarray of int
        Labeled rows that nothing is fitted on; where there are any, they alone set the threshold.
    fold : ndarray of int
        Fold of each row of the rest.
    traffic : ndarray of int
        Fold of each unlabeled row.
    """

    rest: Indices
    held: Indices
    fold: NDArray[np.int64]
    traffic: NDArray[np.int64]


def plan_shares(
    codes: NDArray[np.int64],
    calibration: float,
    frozen: bool,
    rng: np.random.RandomState,
    group: Keys | None = None,
) -> Shares:
    """Plan by a held-out share; with a frozen classifier no row trains it, and a group has one use."""
    held = 1.0 if frozen else calibration
    if group is None:
        return Shares(*_shares(codes, held, rng))
    unit = np.unique(group, return_inverse=True)[1]
    use = np.empty(unit.max() + 1, dtype=np.int64)
    for k, units in enumerate(_shares(_first_class(unit, codes), held, rng)):
        use[units] = k
    train, learn, score = (np.flatnonzero(use[unit] == k) for k in range(3))
    if held < 1.0 and len(np.unique(codes[train])) < len(np.unique(codes)):
        raise InvalidInputError(
            "Some class has too few groups to train the classifier: add groups or lower {parameter}.",
            parameter="calibration",
        )
    return Shares(train, learn, score)


def plan_folds(
    codes: NDArray[np.int64],
    keys: tuple[Keys, Keys],
    folds: int,
    labels: NDArray[Any],
    *,
    exact: bool,
    guaranteed: bool,
    frozen: bool,
    rng: np.random.RandomState,
    groups: tuple[Keys | None, Keys | None] = (None, None),
) -> Folds:
    """Plan by folds of rows that keys tell apart; rows that share a key stay together where they can, those of a group always.

    Parameters
    ----------
    codes : ndarray of int
        Classes of the labeled rows.
    keys : tuple of ndarray
        Numbers of labeled and unlabeled rows; equal rows have equal ones.
    folds : int
        Number of folds; fewer where there are fewer different rows, unless `exact`.
    labels : ndarray
        Names of the classes.
    exact : bool
        Whether that many folds were asked for.
    guaranteed : bool
        Whether a share of the rows is kept from everything.
    frozen : bool
        Whether the classifier is given.
    rng : RandomState
        Rounds the number of rows held in each class.
    groups : tuple of ndarray or None, default=(None, None)
        Groups of labeled and unlabeled rows, which take the place of the keys.

    Returns
    -------
    plan : Folds
    """
    key, key_traffic = (
        own if group is None else group for own, group in zip(observations(*keys, codes), groups, strict=True)
    )
    try:
        return _dealt(codes, key, key_traffic, folds, labels, exact, guaranteed, frozen, rng)
    except InvalidInputError:
        if guaranteed or groups[0] is not None:  # a copy of a row that something was fitted on is no fresh row
            raise
    # A class that is copies of one row can only be spread copy by copy; the rows of the others stay together.
    key = key.copy()
    for code in np.unique(codes):
        own = np.flatnonzero(codes == code)
        if len(np.unique(key[own])) == 1:
            key[own] = number_copies(key[own])
    return _dealt(codes, key, key_traffic, folds, labels, exact, guaranteed, frozen, rng)


def _dealt(
    codes: NDArray[np.int64],
    key: Keys,
    key_traffic: Keys,
    folds: int,
    labels: NDArray[Any],
    exact: bool,
    guaranteed: bool,
    frozen: bool,
    rng: np.random.RandomState,
) -> Folds:
    """Deal out rows by their numbers."""
    held = np.zeros(len(codes), dtype=bool)
    if guaranteed:
        held = _held(codes, key, labels, frozen, rng)
    rest = np.flatnonzero(~held)
    distinct = len(np.unique(key[rest]))
    lost = not frozen and len(np.unique(codes[rest])) < len(
        np.unique(codes)
    )  # copies of other rows were all of a class
    if distinct < 2 or (guaranteed and not held.any()) or lost:
        raise InvalidInputError("{got} labeled rows are too few to calibrate: add rows.", got=len(codes))
    if exact and distinct < folds:
        raise refusal("calibration", "= {k} folds need at least {k} labeled rows, got {got}.", k=folds, got=distinct)
    fold, fold_traffic = content_folds(key[rest], key_traffic, min(folds, distinct), codes[rest])
    if len(key_traffic) and len(np.unique(fold_traffic)) < 2:
        raise refusal(
            "X_unlabeled",
            "must hold at least two rows that differ from each other and from the labeled ones; it has {got} in all.",
            got=len(key_traffic),
        )
    if not frozen:
        _check_classes(codes[rest], fold, labels)
    return Folds(rest, np.flatnonzero(held), fold, fold_traffic)


def _held(
    codes: NDArray[np.int64], key: Keys, labels: NDArray[Any], frozen: bool, rng: np.random.RandomState
) -> NDArray[np.bool_]:
    """Tell which rows nothing is fitted on: a share of the different rows of every class, drawn by their numbers."""
    unique, inverse = np.unique(key, return_inverse=True)
    code = _first_class(inverse, codes)
    chosen = np.zeros(len(unique), dtype=bool)
    for own in np.unique(codes):
        members = np.flatnonzero(code == own)
        if len(members) < 2 and not frozen:
            raise InvalidInputError(
                "{y} has one row of class {got!r}, which cannot train the classifier and stand for fresh rows in a guarantee: add rows of it.",
                got=labels.tolist()[own],
            )
        # The cut moves by a random fraction of a row, so that small classes are not always rounded the same way.
        share = HELD_GIVEN if frozen else HELD_TRAINED
        chosen[members[: int(share * len(members) + rng.random_sample())]] = True
    return np.asarray(chosen[inverse])


def _first_class(unit: Indices, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the class that rows with one number count for: the first of theirs."""
    code = np.full(int(unit.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(code, unit, codes)
    return code


def _check_classes(codes: NDArray[np.int64], fold: NDArray[np.int64], labels: NDArray[Any]) -> None:
    """Refuse folds without which one class remains: nothing can be learned from it."""
    for k in range(int(fold.max()) + 1):
        gone = np.setdiff1d(codes, codes[fold != k])
        if len(gone) and len(np.unique(codes[fold != k])) < 2:
            raise InvalidInputError(
                "{y} has a single row of class {got!r}: without it one class remains, and nothing that has not seen it can learn to tell it from the "
                "others; add rows of that class.",
                got=labels.tolist()[gone[0]],
            )


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
