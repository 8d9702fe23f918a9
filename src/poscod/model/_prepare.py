# SPDX-License-Identifier: BSD-3-Clause
"""A table as it is, with gaps, texts, categories and truth values, as the numbers that classifier and ratio see.

Convention: levels and middles are those of labeled rows. A number is itself, with the middle for a gap and a column that says so; a category is one column of 0 and 1 per
frequent level, one for the rare ones together and one for levels never seen, which no labeled row has: the guard of ranges counts it. A labeled row is coded as
a fresh one would be: a level that it alone has was never seen in the others. Prepared rows are arrays, rows as they are are data frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from poscod._validation import Floats, check_choice, listed, nearest, refusal
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError, PoscodWarning, warn_caller
from poscod.labels import as_labels, marked_rows
from poscod.model._cells import (
    Found,
    UnreadableError,
    frequent,
    has_gaps,
    is_plain,
    levels_of,
    lists_of,
    look,
    numbers_of,
)
from poscod.model._range import RARE
from poscod.model._rows import as_indexable, check_classes, n_rows, take

_NATIVE = ("cat_features", "categorical_feature", "enable_categorical")
PREPARE = {"auto": None, "always": True, "never": False}
"""Whether data frames are prepared: unless the classifier does it itself, always, or never."""

KINDS = ("number", "category", "list")
"""What a column that is used can hold."""


class LeftOutWarning(PoscodWarning):
    """Columns of a table are not used, and why."""


@dataclass(frozen=True)
class Part:
    """What becomes of one column.

    Parameters
    ----------
    name : str
        The column.
    kind : {"number", "category", "list"}
        What it holds.
    fill : float, default=0.0
        What a gap among numbers becomes.
    gaps : bool, default=False
        Whether gaps among numbers have a column.
    levels : tuple of str, default=()
        Levels with a column each; the empty text is a gap.
    rare : tuple of str, default=()
        Levels that were seen, in one column together.
    new : bool, default=False
        Whether levels that were never seen have a column; without, they count as rare.
    width : int, default=1
        Numbers of a list.
    """

    name: str
    kind: str
    fill: float = 0.0
    gaps: bool = False
    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    new: bool = False
    width: int = 1

    def __post_init__(self) -> None:
        texts = (self.name, *self.levels, *self.rare)
        if self.kind not in KINDS or not {str}.issuperset(map(type, texts)) or type(self.width) is not int:
            raise InvalidInputError(
                f"a column must be one of {listed(KINDS)} with levels that are texts, got {self.kind!r}."
            )
        if len({*self.levels, *self.rare}) < len(texts) - 1 or self.width < 1 or not np.isfinite(self.fill):
            raise InvalidInputError(f"column {self.name!r} must have different levels, a width and a finite middle.")

    @property
    def pools(self) -> bool:
        """Whether there is a column for rare levels."""
        return self.kind == "category" and (bool(self.rare) or not self.new)

    @property
    def made(self) -> list[str]:
        """Names of the numbers it becomes."""
        if self.kind == "number":
            return [self.name, *([f"{self.name} missing"] if self.gaps else [])]
        if self.kind == "list":
            return [f"{self.name}[{j}]" for j in range(self.width)]
        own = [f"{self.name} = {level}" if level else f"{self.name} missing" for level in self.levels]
        return [*own, *([f"{self.name} rare"] if self.pools else []), *([f"{self.name} new"] if self.new else [])]


@dataclass(frozen=True)
class Preparation:
    """What becomes of the columns of a table.

    Parameters
    ----------
    parts : tuple of Part
        Columns that are used.
    left_out : tuple of (str, str)
        Columns that are not, and why.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame({"size": [1.0, None, 3.0, 2.0], "color": ["red", "red", "blue", "blue"]})
    >>> found = Preparation.of(frame, None)
    >>> found.made
    ('size', 'size missing', 'color = blue', 'color = red', 'color new')
    >>> found.rows(pandas.DataFrame({"color": ["mauve"], "size": [None]})).tolist()
    [[2.0, 1.0, 0.0, 0.0, 1.0]]
    """

    parts: tuple[Part, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not self.parts or len({part.name for part in self.parts}) < len(self.parts):
            raise InvalidInputError("A preparation must have columns of different names.")

    @classmethod
    def of(cls, X: Any, traffic: Any) -> Preparation:
        """Return what is done with the columns of labeled rows; the traffic says where gaps are to be expected."""
        n, parts, left_out, counts = n_rows(X), [], [], {}
        for (name, found), text in zip(_looked(X), map(str, X.columns), strict=True):
            if found.left_out:
                left_out.append((text, found.left_out))
            elif found.kind == "category":
                counts[text] = Counter(found.values)
                parts.append(_category(text, counts[text], n))
            elif found.kind == "list":
                parts.append(Part(text, "list", width=found.values.shape[1]))
            else:
                gaps = np.isnan(found.values)
                other = traffic is not None and has_gaps(traffic[name])
                fill = float(np.median(found.values[~gaps]))
                parts.append(Part(text, "number", fill, gaps=bool(gaps.any() or other)))
        if not parts:
            raise InvalidInputError("{X} has no column that can be used: {why}.", why=_said(left_out) or "it has none")
        return cls(tuple(_with_new(parts, counts, n)), tuple(left_out))

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the numbers of a prepared row."""
        return (*(name for part in self.parts for name in part.made), *([_ELSEWHERE] if self._elsewhere else []))

    @property
    def origin(self) -> tuple[str, ...]:
        """The column that each number of a prepared row comes from; empty where it is none."""
        return (*(part.name for part in self.parts for _ in part.made), *([""] if self._elsewhere else []))

    @property
    def unseen(self) -> tuple[int, ...]:
        """Which numbers say that a level was never seen: 0 for all that is known."""
        last = np.cumsum([len(part.made) for part in self.parts]) - 1
        return tuple(int(j) for part, j in zip(self.parts, last, strict=True) if part.new)

    @property
    def _elsewhere(self) -> bool:
        """Whether there is a number for gaps where there were none."""
        return any(part.kind == "number" and not part.gaps for part in self.parts)

    def rows(self, X: Any, name: str = "X", *, own: bool = False) -> Floats:
        """Return rows as numbers; `own` for the labeled rows themselves."""
        columns: list[Any] = []
        problems: list[str] = []
        elsewhere, place = np.zeros(n_rows(X)), {str(column): column for column in X.columns}
        for part in self.parts:
            try:
                columns += self._columns(part, X[place[part.name]], own, elsewhere)
            except UnreadableError as error:
                problems.append(f"column {part.name!r} {error}")
        _refuse(problems, name)
        return np.column_stack([*columns, *([elsewhere] if self._elsewhere else [])]).astype(np.float64, copy=False)

    def _columns(self, part: Part, column: Any, own: bool, elsewhere: Floats) -> Iterator[Any]:
        if part.kind == "number":
            values = numbers_of(column)
            gaps = np.isnan(values)
            yield np.where(gaps, part.fill, values)
            if part.gaps:
                yield gaps.astype(np.float64)
            else:
                elsewhere += gaps
            return
        if part.kind == "list":
            values = lists_of(column)
            if values.shape[1] != part.width:
                raise UnreadableError(f"must hold lists of {part.width} numbers, got {values.shape[1]}")
            yield values
            return
        levels = levels_of(column)
        alone = {level for level, count in Counter(levels).items() if count == 1} if own and part.new else set()
        place = {level: j for j, level in enumerate(part.levels)}
        pool = len(part.levels)
        place.update(dict.fromkeys(part.rare, pool))
        strange = pool + part.pools if part.new else pool
        codes = np.array([strange if level in alone else place.get(level, strange) for level in levels], dtype=np.intp)
        block = np.zeros((len(levels), len(part.made)))
        block[np.arange(len(levels)), codes] = 1.0
        yield block


_ELSEWHERE = "gaps in columns without"


def preparation_of(prepare: str, classifier: Any, X: Any, traffic: Any) -> Preparation | None:
    """Return how rows are prepared, and say which columns are left out; None where rows are numbers, no data frame, or the classifier's own affair."""
    asked = check_choice(prepare, "prepare", PREPARE)
    if not hasattr(X, "columns"):
        if asked:
            raise refusal("prepare", "= 'always' needs rows in a data frame, got {got}.", got=type(X).__name__)
        return None
    wanted = asked if asked is not None else not _own_affair(classifier)
    sides = [X] if traffic is None else [X, traffic]
    if not wanted or all(is_plain(side[name]) for side in sides for name in dict.fromkeys(side.columns)):
        return None
    found = Preparation.of(X, traffic)
    if found.left_out:
        warn_caller(left_out_warning(found.left_out))
    return found


def left_out(X: Any) -> list[tuple[str, str]]:
    """Return the columns of a data frame that are no inputs, and why."""
    return [(str(name), found.left_out) for name, found in _looked(X) if found.left_out]


def left_out_warning(columns: Sequence[tuple[str, str]]) -> LeftOutWarning:
    """Return what is said about columns that are not used."""
    names = [name for name, _ in columns]
    return LeftOutWarning("Columns that are not used: {said}.", said=_said(columns), columns=names)


def _said(columns: Sequence[tuple[str, str]], most: int = 8) -> str:
    more = f"; and {len(columns) - most} more" if len(columns) > most else ""
    return "; ".join(f"{name!r} {reason}" for name, reason in columns[:most]) + more


def _looked(X: Any) -> list[tuple[Any, Found]]:
    """Return what each column holds; all that cannot be read is refused together."""
    names = Counter(map(str, X.columns))
    problems = [f"there are several columns {name!r}" for name, count in names.items() if count > 1]
    every = [] if problems else [(name, look(X[name])) for name in X.columns]
    problems += [f"column {str(name)!r} {found.problem}" for name, found in every if found.problem]
    _refuse(problems, "X")
    return every


def by_name(X: Any, names: Sequence[str], source: str = "X") -> Any:
    """Return the columns of a data frame in a given order, without others; one that lacks some is refused."""
    place = {str(name): name for name in X.columns}
    if list(map(str, X.columns)) == list(names):
        return X
    missing = [name for name in names if name not in place]
    if missing:
        near = nearest(missing[0], place)
        raise InvalidInputError(
            f"{{{source}}} lacks the column{{s}} {{listed}}{{near}}.",
            s="s" * (len(missing) > 1),
            listed=listed(missing),
            near=f" (is it {near!r} there?)" if near else "",
            missing=missing,
        )
    wanted = [place[name] for name in names]
    return X[wanted] if hasattr(X, "iloc") else X.select(wanted)


def _own_affair(classifier: Any) -> bool:
    """Tell whether a classifier takes tables as they are: a fitted one, one with a pipeline inside, or one that was told of categories."""
    if classifier is None:
        return False
    if isinstance(classifier, (FrozenEstimator, Pipeline)):
        return True
    given = classifier.get_params(deep=True)
    inside = any(isinstance(value, (Pipeline, ColumnTransformer)) for value in given.values())
    told = isinstance(given.get("categorical_features"), (list, tuple, np.ndarray))
    return inside or told or any(given.get(name) not in (None, False, "auto") for name in _NATIVE)


def _category(name: str, count: Counter[str], n: int) -> Part:
    levels = sorted(level for level, _ in frequent(count, n))
    return Part(name, "category", levels=tuple(levels), rare=tuple(sorted(set(count) - set(levels))))


def _with_new(parts: list[Part], counts: dict[str, Counter[str]], n: int) -> Iterator[Part]:
    """Give categories a column for levels never seen, as long as few ID rows would have one: as many as have a level alone (Good and Turing)."""
    alone = {name: sum(rows == 1 for rows in count.values()) for name, count in counts.items()}
    spent, chosen = 0, set()
    for name in sorted(alone, key=lambda name: alone[name]):
        spent += alone[name]
        if spent > RARE * n:
            break
        chosen.add(name)
    for part in parts:
        yield Part(**{**vars(part), "new": part.name in chosen})


def _refuse(problems: list[str], name: str) -> None:
    """Refuse a table with all that is wrong with it."""
    if problems:
        raise InvalidInputError(f"{{{name}}} cannot be read: {{problems}}.", problems="; ".join(problems))


class Given(NamedTuple):
    """What was given to a fit as it goes on with it."""

    X: Any
    traffic: Any
    reviewed: Any
    preparation: Preparation | None


def prepared(prepare: str, classifier: Any, X: Any, y: Any, traffic: Any, reviewed: Any) -> Given:
    """Return the rows of a fit, as numbers where they are prepared; y marks unlabeled rows among X."""
    mark = marked_rows(as_labels(column_or_1d(y))) if hasattr(X, "columns") else np.zeros(0, dtype=bool)
    at, marked = np.flatnonzero(~mark), np.flatnonzero(mark)
    labeled, more = (take(X, at), take(X, marked)) if len(marked) else (X, None)
    found = preparation_of(prepare, classifier, labeled, more if traffic is None else traffic)
    if found is None:
        return Given(X, traffic, reviewed, None)
    kept = [part.name for part in found.parts]
    if all(
        is_plain(side[name])
        for side in (labeled, more, traffic)
        if side is not None
        for name in side.columns
        if str(name) in kept
    ):
        plain = [None if side is None else by_name(side, kept) for side in (X, traffic, reviewed)]
        return Given(plain[0], plain[1], plain[2], None)  # numbers without gaps are taken as they are
    rows = found.rows(labeled, own=True)
    if more is not None:
        every = np.empty((len(mark), rows.shape[1]))
        every[at], every[marked] = rows, found.rows(more)
        rows = every
    sides = {"X_unlabeled": traffic, "X_reviewed": reviewed}
    other = [None if side is None else found.rows(side, name) for name, side in sides.items()]
    return Given(rows, other[0], other[1], found)


def check_rows(model: Any, X: Any) -> Any:
    """Return rows as a fitted model takes them, data frames by the names of their columns; others are refused."""
    scorer = model.scorer_
    if isinstance(X, Activations) != scorer.network:
        raise InvalidInputError("X must be of the kind given to fit: Activations or not.")
    if isinstance(X, Activations):
        check_classes(X, scorer.classes)
        return X
    X = as_indexable(X)
    if hasattr(model, "n_features_in_") and np.ndim(X) == 1:
        raise InvalidInputError(
            f"X must be two-dimensional, got shape {np.shape(X)}. Reshape your data with X.reshape(1, -1) if it is one row."
        )
    if scorer.preparation is not None and not hasattr(X, "columns"):
        raise InvalidInputError(
            "{X} must be a data frame with the columns that the model reads ({allowed}), got {got}.",
            allowed=listed(scorer.columns),
            got=type(X).__name__,
        )
    if scorer.columns and hasattr(X, "columns"):
        return by_name(X, scorer.columns)
    validate_data(model, X, reset=False, skip_check_array=True)
    return X
