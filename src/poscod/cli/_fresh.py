# SPDX-License-Identifier: BSD-3-Clause
"""Fresh rows for commands that measure a model: labelled ID rows, clean OOD rows, unlabelled traffic.

Convention: columns are found as `poscod fit` has chosen them; rows are read whole, because every rate counts all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from numpy.typing import NDArray

from poscod.cli._inputs import Inputs
from poscod.cli._tables import Table, open_table
from poscod.exceptions import InvalidInputError


class Fresh(NamedTuple):
    """Rows that nothing was fitted on.

    Attributes
    ----------
    tables : dict of str to Table
        The files given, under "id", "ood" and "unlabelled".
    rows : dict of str to rows
        The input of the model for each.
    y : ndarray of shape (n,)
        Labels of the ID rows.
    inputs : Inputs
        Columns the model reads.
    target : str
        Column with the labels.
    """

    tables: dict[str, Table]
    rows: dict[str, Any]
    y: NDArray[Any]
    inputs: Inputs
    target: str


def add_fresh_options(parser: argparse.ArgumentParser) -> None:
    """Add the tables of fresh rows and what is known of them."""
    group = parser.add_argument_group("fresh rows")
    group.add_argument("--id", required=True, metavar="TABLE", help="labelled rows that nothing was fitted on")
    group.add_argument("--target", metavar="COLUMN", help="column with the class (default: as in `poscod fit`)")
    group.add_argument("--ood", metavar="TABLE", help="rows known to be out-of-distribution")
    group.add_argument("--unlabelled", metavar="TABLE", help="fresh traffic, not the rows given to `poscod fit`")
    group.add_argument(
        "--pi", type=float, metavar="SHARE", help="share of OOD inputs in --unlabelled where it is known"
    )
    group.add_argument("--level", type=float, default=0.95, help="coverage of the intervals (default: 0.95)")


def read_fresh(
    args: argparse.Namespace, model: Any, *, opener: Callable[[str], Table] = open_table, reader: Any = Inputs.read
) -> Fresh:
    """Read the tables that a command was given."""
    if args.pi is not None and not args.unlabelled:
        raise InvalidInputError("--pi is the share of OOD inputs in --unlabelled: give that table, too.")
    files = {"id": args.id, "ood": args.ood, "unlabelled": args.unlabelled}
    tables = {name: opener(path) for name, path in files.items() if path}
    inputs = Inputs.of_model(model, tables["id"])
    target = args.target or inputs.target
    if not target:
        raise InvalidInputError(f"{args.model} does not say which column holds the class: pass --target COLUMN.")
    if not inputs.target and target in inputs.features:  # a model saved from Python takes all columns of numbers
        inputs = replace(inputs, features=tuple(name for name in inputs.features if name != target))
    rows = {name: reader(inputs, table) for name, table in tables.items()}
    return Fresh(tables, rows, inputs.labels(tables["id"], target), inputs, target)
