# SPDX-License-Identifier: BSD-3-Clause
"""What a row is: its columns, its classes, and how named columns become what a model decides on.

Convention: `POSCOD.fit` notes the schema of the rows it was given; the shell, which chooses columns of a table, gives the model one that also
knows their names (`POSCOD.with_schema`). Shell and service read rows through it and through nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod._validation import listed, nearest
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.model._prepare import Preparation
from poscod.model._rows import LEAST_PROBABILITY
from poscod.risk import OTHER, RIGHT, WRONG, GivenAnswers

# Probabilities written with few digits need not sum to one exactly.
_SUM_TOLERANCE = 1e-2
# So many columns are named in a sentence.
_NAMED = 6


@dataclass(frozen=True)
class Schema:
    """Columns of a row and what they are.

    Parameters
    ----------
    features : tuple of str, default=()
        Columns of features, in order, each of numbers or of lists of numbers; empty where they have no names.
    logits : tuple of str, default=()
        Columns of an outside classifier, in the order of the classes; empty where a classifier is trained, or they have no names.
    probabilities : bool, default=False
        Whether those hold probabilities.
    table : bool, default=False
        Whether features beside logits have units of their own instead of being a network's layer.
    classes : tuple, default=()
        Names of the classes in the order of the logits; empty where labels are what the model was fitted with.
    target : str, default=""
        Column with the class of each row; empty where there is none.
    id : str, default=""
        Column with the name of each row; empty where there is none.
    n_features : int, default=0
        Features per row; 0 where there are none, or where a row is not a list of numbers (texts).
    n_logits : int, default=0
        Logits per row; 0 where a classifier is trained.
    frame : bool, default=False
        Whether a row is a row of a data frame, with gaps and texts, and the classifier's pipeline, or the preparation, decides what they mean.
    made : tuple of str, default=()
        Names of the numbers that the preparation makes of a row; empty where rows are taken as they are.
    origin : tuple of str, default=()
        The column that each of them comes from.
    answer : str, default=""
        Column of answers that come from elsewhere; empty where there is none, or where answers are free.
    score : str, default=""
        Column of their scores; empty where there is none.
    confidence : bool, default=False
        Whether that score is high where an answer is likely right.
    given : GivenAnswers or None, default=None
        How often such answers are wrong; None where there are none.

    Examples
    --------
    >>> schema = Schema(features=("width", "height"), n_features=2)
    >>> schema.kind, schema.rows({"height": np.array([3.0]), "width": np.array([2.0])})
    ('table', array([[2., 3.]]))
    """

    features: tuple[str, ...] = ()
    logits: tuple[str, ...] = ()
    probabilities: bool = False
    table: bool = False
    classes: tuple[Any, ...] = ()
    target: str = ""
    id: str = ""
    n_features: int = 0
    n_logits: int = 0
    frame: bool = False
    made: tuple[str, ...] = ()
    origin: tuple[str, ...] = ()
    answer: str = ""
    score: str = ""
    confidence: bool = False
    given: GivenAnswers | None = None

    @classmethod
    def of(cls, X: Any) -> Schema:
        """Return the schema of rows given in Python.

        Parameters
        ----------
        X : rows of any kind
            Array, data frame, sparse matrix, texts or Activations.

        Returns
        -------
        schema : Schema
        """
        if isinstance(X, Activations):
            return cls(n_features=0 if X.features is None else X.n_features, n_logits=X.n_classes, table=X.table)
        if hasattr(X, "columns"):
            names = tuple(str(name) for name in X.columns)
            return cls(names, n_features=len(names), frame=True)
        shape = np.shape(X)
        return cls(n_features=int(shape[1]) if len(shape) == 2 else 0)

    @classmethod
    def prepared(cls, preparation: Preparation) -> Schema:
        """Return the schema of rows of a table that are prepared.

        Parameters
        ----------
        preparation : Preparation
            What becomes of its columns.

        Returns
        -------
        schema : Schema
        """
        names = tuple(part.name for part in preparation.parts)
        return cls(names, n_features=len(names), frame=True, made=preparation.made, origin=preparation.origin)

    def __post_init__(self) -> None:
        if self.classes and (
            len(set(self.classes)) < len(self.classes) or len(self.classes) != (self.n_logits or len(self.classes))
        ):
            raise InvalidInputError(f"classes must be different names, one a logit, got {listed(self.classes)}.")

    @property
    def kind(self) -> str:
        """What a row is: "network" (logits, maybe features), "frame", "table" (numbers), or "any" (e.g. a text)."""
        if self.n_logits:
            return "network"
        return "frame" if self.frame else "table" if self.n_features else "any"

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are read for the input."""
        return (*self.features, *self.logits, *(name for name in (self.answer, self.score) if name))

    @property
    def elsewhere(self) -> bool:
        """Whether the classifier lives elsewhere: logits, probabilities or answers are given."""
        return bool(self.logits or self.answer or self.score)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers that classifier and ratio see: those the preparation makes, or the columns."""
        return self.made or self.features

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """A name for every number of a row; None where some have none, because a column holds a list of them or names are not known."""
        wide = self.n_features + self.n_logits
        return self.names if self.names and (self.frame or len(self.names) == wide) else None

    @property
    def words(self) -> str:
        """What is read of a row, for people: how many numbers, and of which columns where they are few."""
        names = f" ({listed(self.features)})" if self.features and len(self.features) <= _NAMED else ""
        if self.elsewhere and not self.logits:
            parts = [f"{self.n_features} features{names}"] * bool(self.n_features)
            parts += [f"the answers of {self.answer!r}"] * bool(self.answer)
            parts += [f"their {'confidence' if self.confidence else 'risk'} {self.score!r}"] * bool(self.score)
            return ", ".join(parts)
        if self.n_logits:
            outside = f"{self.n_logits} {'probabilities' if self.probabilities else 'logits'}"
            return f"{self.n_features} features{names} and {outside}" if self.n_features else outside
        if self.n_features != len(self.features):
            return f"{self.n_features} features{names}"
        return f"{len(self.features)} input column{'s' * (len(self.features) != 1)}{names}"

    def ignored(self, names: Iterable[str]) -> list[str]:
        """Return the columns that are neither input, target nor name of a row.

        Parameters
        ----------
        names : iterable of str
            Columns that there are.

        Returns
        -------
        ignored : list of str
        """
        used = {*self.names, self.target, self.id}
        return [name for name in names if name not in used]

    def check(self, names: Iterable[str], source: Any = "the table") -> None:
        """Refuse a table that lacks columns, naming them and what it has instead.

        Parameters
        ----------
        names : iterable of str
            Columns that there are.
        source : object, default="the table"
            What lacks them, for the sentence.
        """
        names = list(names)
        missing, extra = [name for name in self.names if name not in names], self.ignored(names)
        if not missing:
            return
        near = nearest(missing[0], extra)
        raise InvalidInputError(
            "{source} lacks the column{s} {listed} that the model reads{near}{instead}.",
            source=source,
            s="s" * (len(missing) > 1),
            listed=listed(missing),
            near=f" (is it {near!r} there?)" if near else "",
            instead=f"; it has {listed(extra)}, which the model does not use" if extra else "",
            missing=missing,
            extra=extra,
        )

    def rows(self, columns: Mapping[str, NDArray[Any]], source: Any = "the table", start: int = 0) -> Any:
        """Return the input of a model for named columns.

        Parameters
        ----------
        columns : mapping of str to ndarray
            At least those in ``names``; a matrix is a column of lists.
        source : object, default="the table"
            Where they come from, for sentences.
        start : int, default=0
            Number of the first row there, for sentences.

        Returns
        -------
        X : ndarray, data frame or Activations
            What `POSCOD.decide` takes.
        """
        self.check(columns, source)
        if not self.names:
            raise InvalidInputError(f"{source} cannot be read by name: the model knows no names of its columns.")
        if len({len(columns[name]) for name in self.names}) > 1:
            raise InvalidInputError(f"The columns of {source} must have one length.")
        if self.frame:
            pandas = require("pandas", extra="files", feature="Rows for a model that was fitted on a data frame")
            return pandas.DataFrame({name: _cells(columns[name]) for name in self.features})
        features = self._matrix(columns, self.features, self.n_features, "features", source)
        if self.given is not None:
            said = columns[self.answer] if self.answer else None
            score = self._matrix(columns, [self.score], 1, "scores", source)[:, 0] if self.score else None
            if score is not None and self.confidence:
                score = -score
            own = features if self.features else None
            return Activations(own, self.given.logits(said, score), table=self.table)
        if not self.logits:
            return features
        logits = self._matrix(columns, self.logits, self.n_logits, "logits or probabilities", source)
        if logits.shape[1] < 2:
            raise InvalidInputError(
                "{source} has one column of logits or probabilities ({listed}): a classifier has at least two.",
                source=source,
                listed=listed(self.logits),
            )
        return self.activations(features if self.features else None, logits, source, start)

    def activations(
        self, features: NDArray[Any] | None, logits: NDArray[Any], source: Any = "the table", start: int = 0
    ) -> Activations:
        """Return the input of a network's model; probabilities are checked and become logits.

        Parameters
        ----------
        features : ndarray of shape (n, d) or None
            Features of the rows, if there are any.
        logits : ndarray of shape (n, K)
            Logits, or probabilities where the schema says so.
        source : object, default="the table"
            Where they come from, for sentences.
        start : int, default=0
            Number of the first row there, for sentences.

        Returns
        -------
        rows : Activations
        """
        if self.probabilities:
            total = logits.sum(axis=1)
            with np.errstate(invalid="ignore"):
                right = (logits >= 0).all(axis=1) & (np.abs(total - 1.0) <= _SUM_TOLERANCE)
            if not right.all():
                row = int(np.flatnonzero(~right)[0])
                raise InvalidInputError(
                    "{probabilities} must be non-negative and sum to 1 in every row, got a sum of {got:g} and a least value of {least:g} "
                    "at row {row} of {source}.",
                    got=float(total[row]),
                    least=float(logits[row].min()),
                    row=start + row,
                    source=source,
                )
            logits = np.log(np.maximum(logits.astype(np.float64), LEAST_PROBABILITY))
        return Activations(features, logits, table=self.table)

    def codes(self, labels: NDArray[Any], source: Any = "the labels") -> NDArray[Any]:
        """Return labels as the model knows them: class indices where the schema names the classes of a network.

        Parameters
        ----------
        labels : ndarray of shape (n,)
            Labels as people know them.
        source : object, default="the labels"
            Where they come from, for sentences.

        Returns
        -------
        labels : ndarray of shape (n,)
            Labels as people know them.
        """
        if not self.classes:
            return labels
        if self.given is not None and not self.answer:
            labels = judged(labels, source)
        position = {str(label): code for code, label in enumerate(self.classes)}
        if self.given is not None and self.answer:
            labels = np.array([value if str(value) in position else OTHER for value in labels.tolist()])
        codes = np.array([position.get(str(value), -1) for value in labels.tolist()], dtype=np.int64)
        if (codes < 0).any():
            row = int(np.flatnonzero(codes < 0)[0])
            raise InvalidInputError(
                "{source} must hold one of the classes {allowed}, got {got!r} at row {row}.",
                source=source,
                allowed=listed(self.classes),
                got=labels.tolist()[row],
                row=row,
            )
        return codes

    def labels(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return labels as people know them: the names of the classes where the model knows codes.

        Parameters
        ----------
        codes : ndarray of shape (n,)
            Answers of the model.

        Returns
        -------
        labels : ndarray of shape (n,)
            Labels as people know them.
        """
        if self.classes and len(codes) and not 0 <= codes.min() <= codes.max() < len(self.classes):
            raise InvalidInputError(
                f"codes must be class indices 0, ..., {len(self.classes) - 1}: leave out rejected rows."
            )
        return np.asarray(self.classes)[codes] if self.classes else codes

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain values.

        Returns
        -------
        document : dict
        """
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Schema:
        """Return the schema of a document that `to_dict` has written; what is not known is passed over.

        Parameters
        ----------
        document : mapping of str to object
            What `to_dict` has returned.

        Returns
        -------
        schema : Schema
        """
        known = {field.name for field in fields(cls)}
        chosen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in document.items() if k in known}
        return cls(**chosen)

    def _matrix(
        self, columns: Mapping[str, NDArray[Any]], names: Sequence[str], width: int, what: str, source: Any
    ) -> NDArray[Any]:
        parts = [np.asarray(columns[name]) for name in names]
        for name, part in zip(names, parts, strict=True):
            if part.dtype.kind not in "fiub":
                raise InvalidInputError(
                    "column {name!r} of {source} must hold numbers, got texts or mixed values.",
                    name=name,
                    source=source,
                )
        if len(parts) == 1 and parts[0].ndim == 2:
            matrix = parts[0]
        else:
            n = len(parts[0]) if parts else 0
            matrix = np.concatenate([part.reshape(n, -1) for part in parts], axis=1) if parts else np.zeros((0, 0))
        matrix = matrix if matrix.dtype in (np.float32, np.float64) else matrix.astype(np.float64)
        if width and parts and matrix.shape[1] != width:
            raise InvalidInputError(
                "{source} has {got} {what} per row in {listed}, and the model was fitted on {allowed}.",
                source=source,
                got=matrix.shape[1],
                what=what,
                listed=listed(names),
                allowed=width,
            )
        return matrix


def judged(values: NDArray[Any], source: Any = "the labels") -> NDArray[Any]:
    """Return what a column says of free answers as "right" and "wrong"."""
    words = {
        **dict.fromkeys(("true", "1", "yes", "correct", RIGHT), RIGHT),
        **dict.fromkeys(("false", "0", "no", "incorrect", WRONG), WRONG),
    }
    found = [words.get(str(value).lower()) for value in values.tolist()]
    if None in found:
        row = found.index(None)
        raise InvalidInputError(
            "{source} must say whether each answer is right (true or false, 1 or 0, right or wrong), got {got!r} at row {row}: where it holds labels, name the column of answers with {answer}.",
            source=source,
            got=values.tolist()[row],
            row=row,
        )
    return np.array(found)


def _cells(values: NDArray[Any]) -> Any:
    """Return a column of a data frame; one that holds nothing but gaps is a column of numbers."""
    if values.ndim == 2:
        return list(values)
    if values.dtype.kind == "O" and all(value is None for value in values.tolist()):
        return np.full(len(values), np.nan)
    return values
