# SPDX-License-Identifier: BSD-3-Clause
"""Which columns of a table are the input of a model, its labels and the names of its rows; and how rows of them are read.

Convention: the choice is made once, by ``poscod fit``, and travels in the model file as its `Schema`: later tables are read by name, in
any order. Models saved from Python may know no names; see `schema_for`.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import listed
from poscod.cli._columns import Block, Table, arrow_kind
from poscod.cli._console import add_alias, percent
from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.model import Schema, judged, left_out, left_out_warning
from poscod.risk import RIGHT, GivenAnswers


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose columns."""
    group = parser.add_argument_group(
        "columns (GLOB: a name or a pattern such as 'f_*'; lists: give an option several times)"
    )
    group.add_argument("--target", required=True, metavar="COLUMN", help="class of each labeled row")
    group.add_argument("--row-id", metavar="COLUMN", help="name of each row: kept, never a feature")
    add_alias(group, "--id", "row_id")
    group.add_argument(
        "--group",
        metavar="COLUMN",
        help="what rows belong to that are alike, such as a user, a session or an original: never a feature, in one table or both; a group stays together, and "
        "errors count groups",
    )
    several: dict[str, Any] = {"action": "append", "default": []}
    group.add_argument(
        "--features",
        **several,
        metavar="GLOB",
        help="features (default: all columns, but for dates, names and free texts; none with --logits or --probabilities)",
    )
    group.add_argument("--exclude", **several, metavar="GLOB", help="columns that are not features")
    group.add_argument("--embedding", **several, metavar="COLUMN", help="features in a column of lists of numbers")
    outside = group.add_mutually_exclusive_group()
    outside.add_argument(
        "--logits",
        metavar="GLOB",
        help="the classifier lives elsewhere: columns (or one column of lists) with its logits, in the order of the classes; "
        "none is trained, and the rows must be rows it was not trained on",
    )
    outside.add_argument("--probabilities", metavar="GLOB", help="the same with its probabilities")
    outside.add_argument(
        "--answer",
        metavar="COLUMN",
        help="the same with its answers alone, such as a language model's: labels of any kind. How often they are wrong is learned from a third of the labeled rows",
    )
    score = group.add_mutually_exclusive_group()
    score.add_argument(
        "--risk-column",
        metavar="COLUMN",
        help="a number in any scale that is high where the answer is likely wrong, such as a judge's doubt. Without --answer, answers are free and --target says "
        "which are right (true or false)",
    )
    score.add_argument(
        "--confidence-column",
        metavar="COLUMN",
        help="the same, high where the answer is likely right, such as a log-probability",
    )
    group.add_argument(
        "--classes",
        metavar="A,B,...",
        help="classes in the order of the logits (default: from the names of the columns)",
    )


NUMBERS = ("number", "bool", "matrix")
"""Kinds of columns that are numbers as they are."""
ANY = (*NUMBERS, "text", "other")
"""Kinds of columns that a fit in memory looks at; it says which of them are left out."""


def choose_schema(args: argparse.Namespace, table: Table, *, numbers: bool = False) -> Schema:
    """Choose columns of the labeled table by the options of a command: those of any kind, or of numbers alone."""
    table.need([args.target, *([args.row_id] if args.row_id else [])])
    pattern = args.logits or args.probabilities
    score = args.risk_column or args.confidence_column
    given = [name for name in (args.answer, score) if name]
    if pattern and score:
        raise InvalidInputError(
            "--risk-column and --confidence-column are for answers of --answer, and --logits or --probabilities bring their own: choose one."
        )
    if args.group and args.group in (args.target, *args.features, *args.embedding, pattern):
        raise InvalidInputError(
            f"column '{args.group}' holds groups and cannot be the target or an input: choose columns without it."
        )
    if args.target in (*args.features, *args.embedding, pattern, *given):
        raise InvalidInputError(
            f"column '{args.target}' is the target and cannot be an input: choose columns without it."
        )
    if args.classes and not pattern:
        raise InvalidInputError("--classes orders the classes of --logits or --probabilities: give one of them, too.")
    logits = _numeric(table, table.match(pattern)) if pattern else []
    named = [name for glob in args.features for name in table.match(glob)]
    for name in table.need(args.embedding):
        if table.columns[name].kind != "matrix":
            raise InvalidInputError(
                f"--embedding must name a column of lists of numbers, and '{name}' of {table.path} holds "
                f"{table.columns[name].kind}: use --features."
            )
        named.append(name)
    out = {
        args.target,
        args.row_id,
        args.group,
        *logits,
        *given,
        *(name for glob in args.exclude for name in table.match(glob)),
    }
    table.need(given)
    _numeric(table, [score] if score else [])
    if not named and not pattern and not given:
        named = _usable(table, (name for name in table.columns if name not in out), NUMBERS if numbers else ANY)
    features = [name for name in dict.fromkeys(named) if name not in out]
    features = _numeric(table, features) if numbers or pattern or given else _usable(table, features, ANY)
    if not features and not pattern and not given:
        raise InvalidInputError(
            f"{table.path} has no columns{' of numbers' * numbers} to use as features: it has {listed(table.columns)}."
        )
    return Schema(
        tuple(features),
        tuple(logits),
        probabilities=args.probabilities is not None,
        table=any(table.columns[name].kind != "matrix" for name in features),
        classes=tuple(args.classes.split(",")) if args.classes else table.classes or _class_names(logits, pattern),
        target=args.target,
        id=args.row_id or "",
        answer=args.answer or "",
        score=score or "",
        confidence=args.confidence_column is not None,
    )


def schema_for(model: Any, table: Table) -> Schema:
    """Return the columns that a model reads: those it knows, or, where it was saved from Python without names, what its rows suggest."""
    schema: Schema = model.schema_
    if schema.names:
        return schema
    if schema.kind == "network":
        return replace(schema, features=("features",) if schema.n_features else (), logits=("logits",))
    if schema.kind == "any":
        raise InvalidInputError("the model was fitted on rows that are not numbers, such as texts: use it in Python.")
    return replace(schema, features=tuple(_usable(table, table.columns, ("number", "matrix"))))


def as_they_are(args: argparse.Namespace, schema: Schema, labeled: Table, unlabeled: Table) -> tuple[Schema, list[str]]:
    """Return the columns of a fit, a data frame where there are texts or gaps, and a note about those that are left out.

    Texts and truth values that nobody asked for need not be in the traffic.
    """
    chosen = [
        name
        for name in schema.features
        if args.features or name in unlabeled.columns or labeled.columns[name].kind in ("number", "matrix")
    ]
    texts = tuple(name for name in chosen if labeled.columns[name].kind not in NUMBERS)
    left = left_out(rows_of(Schema(texts, n_features=len(texts), frame=True), labeled.read(texts))) if texts else []
    names = [name for name, _ in left]
    kept = tuple(name for name in chosen if name not in names)
    notes = [str(left_out_warning(left))] if left else []
    if not kept:
        raise InvalidInputError(f"{labeled.path} has no columns to use as features. {' '.join(notes)}")
    tables = [(table, [name for name in kept if name in table.columns]) for table in (labeled, unlabeled)]
    frame = any(table.columns[name].kind not in NUMBERS for table, own in tables for name in own)
    frame = frame or any(_has_gaps(table.read(own)) for table, own in tables)
    return replace(schema, features=kept, frame=frame), notes


def _has_gaps(block: Block) -> bool:
    """Tell whether there is a gap among numbers; what is not finite is refused elsewhere."""
    return any(bool(np.isnan(block[name]).any()) for name in block if block[name].dtype.kind == "f")


def named_by(schema: Schema, fitted: Schema) -> Schema:
    """Return the columns that a fitted model uses, with what the options say of them."""
    if not fitted.made:
        return schema
    used = {name: getattr(fitted, name) for name in ("features", "n_features", "frame", "made", "origin")}
    return replace(schema, **used)


def measured(schema: Schema, X: Any) -> Schema:
    """Return the same columns with the numbers per row that were read."""
    found = Schema.of(X)
    return replace(schema, n_features=found.n_features, n_logits=found.n_logits)


def rows_of(schema: Schema, block: Block) -> Any:
    """Return the input of a model for a block of rows: a matrix, a data frame, or `Activations` with an outside classifier."""
    if schema.frame:
        columns = {name: _with_gaps(block, name) for name in schema.names}
    else:
        columns = block.finite(name for name in schema.names if name != schema.answer)
        if schema.answer:
            columns[schema.answer] = _labels(block, schema.answer)
    return schema.rows(columns, block.source, block.start)


def read_rows(schema: Schema, table: Table) -> Any:
    """Return the input of a model for all rows of a table."""
    schema.check(table.columns, table.path)
    return rows_of(schema, table.read(schema.names))


def labels_of(schema: Schema, table: Table, column: str, named: bool = False) -> NDArray[Any]:
    """Return the labels of all rows of a table: whole numbers or texts; class indices with an outside classifier, unless the model has names of its classes."""
    block = table.read([column])
    values = _labels(block, column)
    if schema.logits and not schema.classes and not named and values.dtype.kind == "U":
        raise InvalidInputError(
            f"column '{column}' of {table.path} holds texts, and the order of the classes in the logits is not known: "
            "pass --classes A,B,..."
        )
    return schema.codes(values, f"column '{column}' of {table.path}")


def groups_of(column: str | None, *tables: Table) -> list[NDArray[Any] | None]:
    """Return the groups of the rows of tables; None for a table without the column, which one of them must have."""
    if not column:
        return [None] * len(tables)
    if not any(column in table.columns for table in tables):
        tables[0].need([column])
    return [table.read([column])[column] if column in table.columns else None for table in tables]


def learn_answers(
    schema: Schema, table: Table, groups: NDArray[Any] | None, rng: np.random.Generator
) -> tuple[Schema, NDArray[np.intp], str]:
    """Learn from a third of the labeled rows how often given answers are wrong; return the schema that knows it, the other rows, and what was learned."""
    names = [name for name in (schema.answer, schema.score) if name]
    block, y = table.read([*names, schema.target]), labels_of(schema, table, schema.target)
    source = f"column '{schema.target}' of {table.path}"
    score = (
        None if not schema.score else block.finite([schema.score])[schema.score] * (-1.0 if schema.confidence else 1.0)
    )
    said = _labels(block, schema.answer) if schema.answer else None
    truth = y if schema.answer else judged(y, source) == RIGHT
    of = np.unique(groups, return_inverse=True)[1] if groups is not None else np.arange(len(y))
    chosen = rng.permutation(int(of.max()) + 1)[: (int(of.max()) + 1) // 3]
    held = np.isin(of, chosen)
    given = GivenAnswers.learn(
        None if said is None else said[held], truth[held], None if score is None else score[held]
    )
    if said is not None:  # labels of the other rows are classes, too
        labels = dict.fromkeys([*given.classes[:-1], *map(str, said.tolist()), *map(str, y.tolist())])
        given = given.with_labels([name for name in labels if name != given.classes[-1]])
    wrong = float(np.mean(~truth[held] if said is None else said[held].astype(str) != truth[held].astype(str)))
    told = f"how often answers are wrong was learned from {int(held.sum()):,} labeled rows that do nothing else; {percent(wrong)} of them are."
    return replace(schema, given=given, classes=given.classes), np.flatnonzero(~held), told


@contextmanager
def naming_classes(schema: Schema) -> Iterator[None]:
    """Let a refusal call a class by its name where the model knows an index."""
    try:
        yield
    except InfeasibleProblemError as error:
        if not schema.classes or "label" not in error.facts:
            raise
        named = {**error.facts, "label": schema.classes[error.facts["label"]]}
        raise InfeasibleProblemError(error.message, **named) from error


def _with_gaps(block: Block, name: str) -> NDArray[Any]:
    """Return a column with None where a text means a gap."""
    column = block.table.column(name)
    if arrow_kind(column.type)[0] != "text":
        return block[name]
    # No array of texts: each cell of one takes as much as the longest.
    cells = np.empty(len(column), dtype=object)
    cells[:] = [None if value in block.gaps else value for value in column.to_pylist()]
    return cells


def _usable(table: Table, names: Iterable[str], kinds: Collection[str]) -> list[str]:
    """Return the columns of these kinds; all that hold what is not clear are refused together."""
    names = list(names)
    if unclear := [name for name in names if table.columns[name].kind == "unclear"]:
        what = "; ".join(f"column '{name}' holds {table.columns[name].remark}" for name in unclear)
        raise InvalidInputError(
            f"{table.path} is not clear: {what}. Write decimals with a point, or leave the columns out with --exclude."
        )
    return [name for name in names if table.columns[name].kind in kinds]


def _numeric(table: Table, names: Sequence[str]) -> list[str]:
    """Refuse columns that do not hold numbers."""
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
    return tuple(name[len(pattern) - 1 :] for name in logits)


def _labels(block: Block, name: str) -> NDArray[Any]:
    """Check a column of labels: whole numbers, truth values or texts without gaps."""
    values = block[name]
    what, kind = f"column '{name}' of {block.source}", values.dtype.kind
    if values.ndim == 1 and kind == "b":
        return np.where(values, "true", "false")
    if values.ndim == 1 and kind in "iuf":
        if kind == "f" and (bad := np.flatnonzero(~np.isfinite(values) | (values != np.floor(values)))).size:
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
