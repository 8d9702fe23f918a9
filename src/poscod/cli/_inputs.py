# SPDX-License-Identifier: BSD-3-Clause
"""Which columns of a table are the input of a model, its labels and its names; and how rows of them are read.

Convention: the choice is made once, by ``poscod fit``, and travels in the model file as the attribute ``columns_``, a plain
dictionary: later tables are read by name, in any order. Models saved from Python have no such record; see `Inputs.of_model`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod._validation import nearest
from poscod.activations import Activations
from poscod.cli._arrow import GAPS
from poscod.cli._columns import Block, Table, listed
from poscod.exceptions import InvalidInputError
from poscod.persist import ModelFileError

# What a probability of zero becomes before the logarithm; the estimator takes the same.
_LEAST_PROBABILITY = 1e-12
# So many columns are named where the input is told in a line.
_NAMED = 6
# Probabilities written with few digits need not sum to one exactly.
_SUM_TOLERANCE = 1e-2


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose columns."""
    group = parser.add_argument_group("columns")
    group.add_argument("--target", required=True, metavar="COLUMN", help="column with the class of each labelled row")
    group.add_argument("--id", metavar="COLUMN", help="column with a name for each row: kept, never a feature")
    group.add_argument(
        "--features",
        action="append",
        default=[],
        metavar="GLOB",
        help="feature columns, e.g. 'f_*'; may be repeated (default: all columns of numbers; none with --logits or --probabilities)",
    )
    group.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="columns that are no features; may be repeated"
    )
    group.add_argument(
        "--embedding", action="append", default=[], metavar="COLUMN", help="column of lists of numbers as features"
    )
    outside = group.add_mutually_exclusive_group()
    outside.add_argument(
        "--logits",
        metavar="GLOB",
        help="the classifier lives elsewhere: columns (or one column of lists) with its logits, in the order of the classes; "
        "none is trained, and the rows must be rows it was not trained on",
    )
    outside.add_argument("--probabilities", metavar="GLOB", help="the same with its probabilities")
    group.add_argument(
        "--classes",
        metavar="A,B,...",
        help="names of the classes in the order of the logits (default: from the columns)",
    )


@dataclass(frozen=True)
class Inputs:
    """Columns a model reads.

    Parameters
    ----------
    features : tuple of str, default=()
        Columns of numbers or of lists of numbers, in order.
    logits : tuple of str, default=()
        Columns of an outside classifier, in the order of the classes; empty where a classifier is trained.
    probabilities : bool, default=False
        Whether those hold probabilities.
    table : bool, default=False
        Whether features beside logits have units of their own instead of being a network's layer.
    classes : tuple of str or int, default=()
        Labels in the order of the logits.
    target, id : str, default=""
        Columns with the class and with the name of each row; empty where there is none.
    n_features, n_logits : int, default=0
        Numbers per row, which lists could change; 0 where nothing has been read yet.
    frame : bool, default=False
        Whether the model was fitted in Python on a data frame: it gets one, with gaps and texts, and its pipeline decides.
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

    @classmethod
    def choose(cls, args: argparse.Namespace, table: Table) -> Inputs:
        """Choose columns of the labelled table by the options of a command."""
        table.need([args.target, *([args.id] if args.id else [])])
        pattern = args.logits or args.probabilities
        logits = _numeric(table, table.match(pattern)) if pattern else []
        if args.target in (*args.features, *args.embedding, pattern):
            raise InvalidInputError(
                f"column '{args.target}' is the target and cannot be an input: choose columns without it."
            )
        named = [name for glob in args.features for name in table.match(glob)]
        for name in args.embedding:
            table.need([name])
            if table.columns[name].kind != "matrix":
                raise InvalidInputError(
                    f"--embedding must name a column of lists of numbers, and '{name}' of {table.path} holds "
                    f"{table.columns[name].kind}: use --features."
                )
            named.append(name)
        out = {args.target, args.id, *logits, *(name for glob in args.exclude for name in table.match(glob))}
        if not named and not pattern:
            named = [name for name in table.columns if name not in out and _is_feature(table, name)]
        features = _numeric(table, [name for name in dict.fromkeys(named) if name not in out])
        if not features and not pattern:
            raise InvalidInputError(
                f"{table.path} has no columns of numbers to use as features: it has {listed(table.columns)}."
            )
        flat = any(table.columns[name].kind != "matrix" for name in features)
        if args.classes and not pattern:
            raise InvalidInputError(
                "--classes orders the classes of --logits or --probabilities: give one of them, too."
            )
        classes = tuple(args.classes.split(",")) if args.classes else _class_names(logits, pattern)
        return cls(
            tuple(features), tuple(logits), args.probabilities is not None, flat, classes, args.target, args.id or ""
        )

    @classmethod
    def of_model(cls, model: Any, table: Table) -> Inputs:
        """Return the columns a model reads: those it remembers, or, saved from Python, what its input suggests."""
        record = getattr(model, "columns_", None)
        if record is not None:
            allowed = {field.name for field in fields(cls)}
            if not isinstance(record, dict):
                raise ModelFileError("The model's record of its columns is damaged.")
            chosen: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in record.items() if k in allowed
            }
            return cls(**chosen)
        if not hasattr(model, "n_features_in_"):
            table.need(["logits"])
            features = ("features",) if "features" in table.columns else ()
            return cls(features, ("logits",), n_logits=len(model.classes_))
        known = getattr(model, "feature_names_in_", None)
        if known is not None:
            return cls(tuple(str(name) for name in known), frame=True)
        names = [name for name in table.columns if _is_feature(table, name)]
        return cls(tuple(names), n_features=model.n_features_in_)

    def record(self) -> dict[str, Any]:
        """Return a plain dictionary for the model file."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @property
    def names(self) -> list[str]:
        """All columns that are read for the input."""
        return [*self.features, *self.logits]

    @property
    def words(self) -> str:
        """What is read of a row, for people: how many numbers, and of which columns where they are few."""
        names = f" ({listed(self.features)})" if len(self.features) <= _NAMED else ""
        if self.logits:
            outside = f"{self.n_logits} {'probabilities' if self.probabilities else 'logits'}; no classifier is trained"
            return f"{self.n_features} features{names} and {outside}" if self.features else outside
        if self.n_features != len(self.features):
            return f"{self.n_features} features{names}, a classifier was trained"
        return f"{len(self.features)} input column{'s' * (len(self.features) != 1)}{names}, a classifier was trained"

    def ignored(self, table: Table) -> list[str]:
        """Return the columns of a table that are neither input, target nor name of a row."""
        return [name for name in table.columns if name not in {*self.names, self.target, self.id}]

    def check(self, table: Table) -> None:
        """Refuse a table that lacks columns, naming them and what it has instead."""
        missing = [name for name in self.names if name not in table.columns]
        if missing:
            extra = self.ignored(table)
            near = nearest(missing[0], extra)
            instead = f"; it has {listed(extra)}, which the model does not use" if extra else ""
            raise InvalidInputError(
                f"{table.path} lacks the column{'s' * (len(missing) > 1)} {listed(missing)} that the model reads"
                f"{f' (is it {near!r} there?)' if near else ''}{instead}."
            )

    def rows(self, block: Block) -> Any:
        """Return the input of a model for a block of rows: a matrix, a data frame, or `Activations` with an outside classifier."""
        if self.frame:
            return _frame(block, self.features)
        features = self._matrix(block, self.features, self.n_features, "features")
        if not self.logits:
            return features
        logits = self._matrix(block, self.logits, self.n_logits, "logits or probabilities")
        if logits.shape[1] < 2:
            raise InvalidInputError(
                f"{block.source} has one column of logits or probabilities ({listed(self.logits)}): a classifier has at least two."
            )
        if self.probabilities:
            logits = _log_probabilities(logits, block)
        return Activations(features if self.features else None, logits, table=self.table)

    def measured(self, rows: Any) -> Inputs:
        """Return the same columns with the numbers per row that were read at fit."""
        if isinstance(rows, Activations):
            width = 0 if rows.features is None else rows.n_features
            return replace(self, n_features=width, n_logits=rows.n_classes)
        return replace(self, n_features=rows.shape[1])

    def _matrix(self, block: Block, names: Sequence[str], width: int, what: str) -> NDArray[Any]:
        matrix = block.matrix(names)
        if width and matrix.shape[1] != width:
            raise InvalidInputError(
                f"{block.source} has {matrix.shape[1]} {what} per row in {listed(names)}, and the model was fitted on {width}."
            )
        return matrix

    def read(self, table: Table) -> Any:
        """Return the input of a model for all rows of a table."""
        self.check(table)
        return self.rows(table.read(self.names))

    def labels(self, table: Table, column: str | None = None) -> NDArray[Any]:
        """Return the labels of all rows of a table: whole numbers or texts; codes with an outside classifier."""
        name = column or self.target
        table.need([name])
        values = _labels(table.read([name]), name)
        if not self.classes:
            if self.logits and values.dtype.kind == "U":
                raise InvalidInputError(
                    f"column '{name}' of {table.path} holds texts, and the order of the classes in the logits is not known: "
                    "pass --classes A,B,..."
                )
            return values
        position = {str(label): code for code, label in enumerate(self.classes)}
        codes = np.array([position.get(str(value), -1) for value in values.tolist()], dtype=np.int64)
        if (codes < 0).any():
            row = int(np.flatnonzero(codes < 0)[0])
            raise InvalidInputError(
                f"column '{name}' of {table.path} must hold one of the classes {listed(self.classes)}, got "
                f"{values.tolist()[row]!r} at row {row + 1}."
            )
        return codes

    def names_of(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Return labels as people know them: the names of the classes where the model knows codes."""
        return np.asarray(self.classes)[labels] if self.classes else labels


def _frame(block: Block, names: Sequence[str]) -> Any:
    """Return columns as a data frame, gaps as NaN or None; an empty or NA cell of a CSV file is a gap among texts, too."""
    pandas = require("pandas", extra="files", feature="Reading rows for a model that was fitted on a data frame")
    columns: dict[str, Any] = {}
    for name in names:
        values = block[name]
        if values.dtype.kind in "UO":
            gaps = {None, *GAPS} if str(block.source).lower().endswith(".csv") else {None}
            cells = [None if value in gaps else value for value in values.tolist()]
            empty = all(value is None for value in cells)
            values = np.full(len(cells), np.nan) if empty else np.array(cells, dtype=object)
        columns[name] = values if values.ndim == 1 else list(values)
    return pandas.DataFrame(columns)


def _is_feature(table: Table, name: str) -> bool:
    """Tell whether a column counts as numbers; one that starts so and then holds text is a mistake to report."""
    column = table.columns[name]
    if column.remark:
        raise InvalidInputError(
            f"column '{name}' of {table.path} holds {column.remark}: correct the file, or leave the column out with --exclude "
            f"'{name}' (or --id)."
        )
    return column.kind in ("number", "matrix")


def _numeric(table: Table, names: Sequence[str]) -> list[str]:
    """Refuse columns that are no numbers."""
    for name in names:
        column = table.columns[name]
        if column.kind not in ("number", "bool", "matrix"):
            got = column.remark or {"text": "text"}.get(column.kind, "neither numbers nor lists of them")
            raise InvalidInputError(
                f"column '{name}' of {table.path} must hold numbers, got {got}: turn it into numbers first (categories: one column "
                "of 0 and 1 per value), or leave it out."
            )
    return list(names)


def _class_names(logits: Sequence[str], pattern: str | None) -> tuple[str, ...]:
    """Take the classes from names such as logit_cat, logit_dog where a glob with one star at the end chose them."""
    if pattern is None or not pattern.endswith("*") or len(logits) < 2:
        return ()
    start = len(pattern) - 1
    return tuple(name[start:] for name in logits)


def _labels(rows: Block, name: str) -> NDArray[Any]:
    """Check a column of labels: whole numbers, truth values or texts without gaps."""
    values = rows[name]
    what = f"column '{name}' of {rows.source}"
    kind = values.dtype.kind
    if values.ndim == 1 and kind == "b":
        return np.where(values, "true", "false")
    if values.ndim == 1 and kind in "iu":
        return values.astype(np.int64)
    if values.ndim == 1 and kind == "f":
        if (bad := np.flatnonzero(~np.isfinite(values) | (values != np.floor(values)))).size:
            row = int(bad[0])
            got = "a gap" if np.isnan(values[row]) else repr(float(values[row]))
            raise InvalidInputError(
                f"{what} must hold classes (whole numbers or texts) in every row, got {got} at row {row + 1}."
            )
        return values.astype(np.int64)
    if values.ndim == 1 and kind in "UO":
        texts = values.tolist()
        if bad_rows := [row for row, text in enumerate(texts) if not isinstance(text, str) or not text]:
            raise InvalidInputError(f"{what} must hold a class in every row, got a gap at row {bad_rows[0] + 1}.")
        return np.array(texts, dtype=str)
    raise InvalidInputError(f"{what} must hold classes (whole numbers or texts), got {values.dtype}.")


def _log_probabilities(values: NDArray[Any], block: Block) -> NDArray[Any]:
    """Return log p, after checking that the rows are probabilities."""
    total = values.sum(axis=1)
    wrong = (values < 0).any(axis=1) | (np.abs(total - 1.0) > _SUM_TOLERANCE)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"--probabilities must be non-negative and sum to 1 in every row, got a sum of {total[row]:g} and a least value of "
            f"{values[row].min():g} at row {block.start + row + 1} of {block.source}: use --logits for other scores."
        )
    return np.log(np.maximum(values.astype(np.float64), _LEAST_PROBABILITY))
