# SPDX-License-Identifier: BSD-3-Clause
"""List the OOD inputs of a log with a promise, and say what they are.

The list holds rows of the log, the strongest evidence first; on average at most the share --level of it are known inputs. It may be cut anywhere: the column
known_at_most bounds the known inputs down to that row, for all rows at once with probability 95 %. --groups writes the likely OOD rows as groups of similar ones with an
empty column verdict: a class or ood, written there, is what a review says of the row.

Convention: the column index counts rows of the log from 0, as in the queue of a review; the log is read whole, because a list is about all of it.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import listed
from poscod.cli._columns import Table
from poscod.cli._console import Console, add_output_options, percent
from poscod.cli._dask import add_engine_options, logs_for
from poscod.cli._inputs import schema_for
from poscod.cli._models import add_model_options, load_model
from poscod.cli._names import NAMES
from poscod.cli._tables import TableWriter, check_output, format_of
from poscod.cli._times import TIME_WORDS, times_of
from poscod.exceptions import InvalidInputError, PoscodWarning
from poscod.model import Schema
from poscod.review import StrangerGroup, Strangers, stranger_groups, strangers

EXAMPLES = (
    "poscod strangers model.poscod log.csv --level 0.1 -o list.csv",
    "poscod strangers model.poscod log.parquet --id known.parquet --groups groups.csv --time received",
    "poscod strangers model.poscod logs/ --engine dask -o list.parquet",
)

_WORDS = {**NAMES, "X": "the log", "X_id": "--id", "model": "the model", "times": "--time"}
_SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument("table", help="the log: a new one, or the unlabeled table of `poscod fit`")
    parser.add_argument("--level", type=float, default=0.1, help="largest false discovery rate of the list")
    parser.add_argument("-o", "--output", metavar="FILE", help="list to write; - is CSV on standard output")
    parser.add_argument("--groups", metavar="FILE", help="rows to write by groups of similar ones, for verdicts")
    parser.add_argument(
        "--id",
        metavar="TABLE",
        help="rows that are known inputs, as they come in the log and not among those of `poscod fit`: the list rests on them instead of on rows of the fit",
    )
    parser.add_argument(
        "--time",
        metavar="COLUMN",
        help=f"time of each row ({TIME_WORDS}): says when groups came first and last, and, where it is a date, how many come in a week",
    )
    parser.add_argument(
        "--only-list", action="store_true", help="do not copy the columns of the log (the id column is kept)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed where rows are dealt out by chance")
    add_engine_options(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """List OOD inputs."""
    console = Console.of(args)
    if not (args.output or args.groups):
        raise InvalidInputError("give -o FILE for the list, --groups FILE for groups, or both.")
    if args.groups == "-" or (
        args.output and args.groups and Path(args.output).absolute() == Path(args.groups).absolute()
    ):
        raise InvalidInputError("--groups must be a file of its own.")
    inputs = [args.model, args.table, *([args.id] if args.id else [])]
    for path in (args.output, args.groups):
        check_output(path, inputs)
        if path and path != "-":
            format_of(Path(path))
    model = load_model(args)
    with logs_for(args, console) as logs:
        table = logs.open(args.table)
        schema = schema_for(model, table)
        X = logs.read(schema, table)
        X_id = logs.read(schema, logs.open(args.id)) if args.id else None
        kept, lost = _kept(args, table, schema.id)
        times = None if args.time is None else times_of(table, args.time)
        try:
            with console.working("looking for strangers"), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", PoscodWarning)
                found = strangers(model, X, args.level, X_id=X_id, random_state=args.seed)
                how: dict[str, Any] = {"times": times, "X_id": X_id, "random_state": args.seed}
                groups = stranger_groups(model, X, **how) if args.groups else None
        except InvalidInputError as error:
            raise InvalidInputError(error.told(_WORDS)) from error
        if args.output:
            _write(args.output, table, kept, found.index, {"index": found.index, **_evidence(found)})
        if groups is not None:
            index = np.concatenate([np.zeros(0, dtype=np.int64), *(group.index for group in groups)])
            code = np.repeat(np.arange(1, len(groups) + 1), [len(group) for group in groups])
            empty = np.full(len(index), "", dtype=str)
            _write(args.groups, table, kept, index, {"group": code, "index": index, "verdict": empty})
    notes = dict.fromkeys(w.message.told(_WORDS) for w in caught if isinstance(w.message, PoscodWarning))
    notes |= dict.fromkeys(f"column '{name}' holds lists, which CSV cannot: it was left out." for name in lost)
    document = {
        "command": "strangers",
        "model": str(args.model),
        "output": args.output,
        "groups_output": args.groups,
        **found.to_dict(),
        "least": found.least,
        "known_at_most": found.bounds(),
        "groups": None if groups is None else [_named(group, schema).to_dict() for group in groups],
        "warnings": list(notes),
    }
    console.answer(
        document,
        *_story(found),
        *([] if groups is None else _group_lines([_named(group, schema) for group in groups])),
        *(f"Note: {note}" for note in notes),
        *(f"Written: {path}" for path in (args.output, args.groups) if path),
    )


def _named(group: StrangerGroup, schema: Schema) -> StrangerGroup:
    """Return a group with the answer that people know."""
    return replace(group, answer=schema.labels(np.array([group.answer]))[0])


def _story(found: Strangers) -> list[str]:
    """Say what the list is worth."""
    head = f"{len(found):,} of {found.n_rows:,} rows are listed as OOD; on average at most {percent(found.level)} of such a list are known inputs."
    if not len(found):
        needed = (
            f"a list from {found.n_rows:,} rows needs {found.least:,} rows or more that stand out"
            if found.least <= found.n_rows
            else "no list can be given, whatever the rows are"
        )
        return [
            f"No list at this level: with {found.n_known:,} known inputs to compare with, {needed}; try a higher --level, or more rows as --id."
        ]
    basis = (
        "exact, whatever the ratio is"
        if found.exact
        else "not exact, because the ratio has seen some rows, the class mix is estimated, or inputs had moved; --id with fresh known inputs makes it exact"
    )
    return [
        head,
        f"That is {basis}. With probability 95 % no more than {found.false_discoveries():,} of them are known inputs.",
    ]


def _group_lines(groups: list[StrangerGroup]) -> list[str]:
    """Say what the strangers are."""
    if not groups:
        return ["Too few rows are likely OOD to form groups."]
    lines = []
    for number, group in enumerate(groups, 1):
        rows, near = (", ".join(map(str, (at + 1).tolist())) for at in (group.index[:_SHOWN], group.nearest))
        lines.append(f"Group {number}: {group.sentence()}; typical rows {rows}; nearest known rows {near or 'none'}.")
    return [*lines, "Look at some rows of each group, and write a class, or ood, into the column verdict."]


def _kept(args: argparse.Namespace, table: Table, name: str) -> tuple[list[str], list[str]]:
    """Return the columns that are written, and those that CSV cannot hold; refuse names that would stand twice."""
    kept = [column for column in ([name] if args.only_list else table.columns) if column in table.columns]
    added = {"index"} | ({"log_ratio", "p_value", "known_at_most"} if args.output else set())
    added |= {"group", "verdict"} if args.groups else set()
    if twice := [column for column in kept if column in added]:
        raise InvalidInputError(
            f"{table.path} already has the column{'s' * (len(twice) > 1)} {listed(twice)}, which this command adds: rename them, or use --only-list."
        )
    flat = any(path and (path == "-" or Path(path).suffix.lower() == ".csv") for path in (args.output, args.groups))
    lost = [column for column in kept if flat and table.columns[column].kind == "matrix"]
    return [column for column in kept if column not in lost], lost


def _evidence(found: Strangers) -> dict[str, NDArray[Any]]:
    return {"log_ratio": found.log_ratio, "p_value": found.p_value, "known_at_most": found.bounds()}


def _write(path: str, table: Table, kept: list[str], index: NDArray[np.int64], added: dict[str, NDArray[Any]]) -> None:
    """Write rows of a log with columns that are added before its own."""
    rows = table.take(kept, index).table if kept else None
    with TableWriter(path) as file:
        file.write({**added, **{name: rows.column(name) for name in kept}} if rows is not None else added)
