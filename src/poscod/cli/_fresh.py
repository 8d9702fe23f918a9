# SPDX-License-Identifier: BSD-3-Clause
"""Fresh rows for commands that measure a model: labeled ID rows, clean OOD rows, unlabeled traffic.

Convention: columns are found as `poscod fit` has chosen them; rows are read whole, because every rate counts all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from poscod.cli._columns import Table
from poscod.cli._console import add_alias
from poscod.cli._inputs import labels_of, read_rows, schema_for
from poscod.cli._tables import open_table
from poscod.exceptions import InvalidInputError
from poscod.labels import is_text
from poscod.model import POSCOD, Sample, Schema, rows_before


class Fresh(NamedTuple):
    """Rows that nothing was fitted on: tables and inputs under "id", "ood" and "unlabeled", and labels of the ID rows."""

    tables: dict[str, Table]
    rows: dict[str, Any]
    y: NDArray[Any]
    schema: Schema
    target: str


def add_fresh_options(parser: argparse.ArgumentParser) -> None:
    """Add the tables of fresh rows and what is known of them."""
    group = parser.add_argument_group("fresh rows")
    group.add_argument("--id", metavar="TABLE", help="labeled rows that nothing was fitted on")
    group.add_argument("--target", metavar="COLUMN", help="column with the class (default: as in `poscod fit`)")
    group.add_argument("--ood", metavar="TABLE", help="rows known to be out-of-distribution")
    group.add_argument("--unlabeled", metavar="TABLE", help="fresh traffic, not the rows given to `poscod fit`")
    add_alias(group, "--unlabelled", "unlabeled")
    group.add_argument("--pi", type=float, metavar="SHARE", help="share of OOD inputs in --unlabeled where it is known")
    group.add_argument(
        "--class-mix",
        default="traffic",
        metavar="MIX",
        help="known inputs that rates are for. traffic: in the class mix of --unlabeled, or, without it, in the one that the model serves; "
        "labeled: the rows of --id as they come",
    )
    group.add_argument("--level", type=float, default=0.95, help="coverage of the intervals")


def given_tables(args: argparse.Namespace) -> dict[str, str]:
    """Return the tables that a command was given."""
    return {name: path for name in ("id", "ood", "unlabeled") if (path := getattr(args, name))}


def read_fresh(
    args: argparse.Namespace,
    model: Any,
    *,
    opener: Callable[[str], Table] = lambda path: open_table(path, whole=True),
    reader: Callable[[Schema, Any], Any] = read_rows,
) -> Fresh:
    """Read the tables that a command was given."""
    if not args.id:
        raise InvalidInputError("--id is needed: labeled rows that nothing was fitted on.")
    if args.pi is not None and not args.unlabeled:
        raise InvalidInputError("--pi is the share of OOD inputs in --unlabeled: give that table, too.")
    tables = {name: opener(path) for name, path in given_tables(args).items()}
    schema = schema_for(model, tables["id"])
    target = args.target or schema.target
    if not target:
        raise InvalidInputError(f"{args.model} does not say which column holds the class: pass --target COLUMN.")
    if not schema.target and target in schema.features:  # a model saved from Python takes all columns of numbers
        schema = replace(schema, features=tuple(name for name in schema.features if name != target))
    rows = {name: reader(schema, table) for name, table in tables.items()}
    return Fresh(
        tables, rows, labels_of(schema, tables["id"], target, named=is_text(model.scorer_.classes)), schema, target
    )


def shown_columns(table: Table, schema: Schema, limit: int, without: str | None = None) -> dict[str, Any]:
    """Return the columns that example rows show: the id, what the model does not read, then what it reads."""
    order = sorted(table.columns, key=lambda column: (column != schema.id, column in schema.names))
    chosen = [name for name in order if table.columns[name].kind != "matrix" and name != without][: max(limit, 0)]
    return dict(table.read(chosen)) if chosen else {}


class Judged(NamedTuple):
    """A model, what it sees of fresh rows, its rule and rivals, and which rows are not fresh."""

    model: POSCOD
    sample: Sample
    rules: list[dict[str, Any]]
    reused: list[str]


def reused_rows(model: POSCOD, keys: Mapping[str, Any]) -> list[str]:
    """Say where rows that were given as fresh are rows of the fit, by numbers of their content."""
    kept = {"id": model.calibration_.labeled_keys, "unlabeled": model.calibration_.traffic_keys}
    return [
        f"rows of --{name} are rows of the fit: the numbers are too good. Give fresh rows."
        for name, before in kept.items()
        if name in keys and rows_before(before, keys[name])
    ]
