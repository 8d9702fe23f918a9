# SPDX-License-Identifier: BSD-3-Clause
"""Answer or abstain on new rows, with the reason for every rejection.

The columns that the model was fitted on are found by name, in any order. All columns of the input are kept, and these are added:
label (the classifier's answer), accept, reason, risk, log_ratio, score, and prediction (the label, or the reject label).

Convention: rows are read, decided and written in blocks, so that memory does not grow with the file.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import fields
from typing import Any

from numpy.typing import NDArray

from poscod._validation import listed
from poscod.cli._columns import Table
from poscod.cli._console import Console, add_output_options, percent
from poscod.cli._dask import FrameTable, add_engine_options, on_dask, open_cluster, predict_on_dask
from poscod.cli._inputs import rows_of, schema_for
from poscod.cli._models import add_model_options, load_model
from poscod.cli._tables import TableWriter, check_output, open_table
from poscod.decision import REASONS, Decisions, Explained
from poscod.exceptions import InvalidInputError
from poscod.model import POSCOD, Schema

EXAMPLES = (
    "poscod predict model.poscod new.parquet -o decisions.parquet",
    "poscod predict model.poscod new.csv --only-decisions -o - | head",
)

BLOCK = 16384
"""Rows that are decided at a time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument("table", help="table of new rows")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="table of decisions to write; - is CSV on standard output"
    )
    parser.add_argument(
        "--only-decisions", action="store_true", help="do not copy the columns of the input (the id column is kept)"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="add a column detail: for unfamiliar rows, the columns that make them so, with their values and what similar labeled rows hold",
    )
    parser.add_argument("--prefix", default="", metavar="TEXT", help="put before the names of the added columns")
    add_engine_options(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Decide on the rows of a table."""
    console = Console.of(args)
    check_output(args.output, [args.model, args.table])
    model = load_model(args)
    if on_dask(args):
        if args.output == "-":
            raise InvalidInputError("--engine dask writes a folder of Parquet files: give its name instead of -.")
        with open_cluster(args, console) as cluster:
            frame = FrameTable(args.table, cluster)
            schema, kept = _choose(args, model, frame)
            reasons = predict_on_dask(model, frame, schema, kept, args, decision_columns)
    else:
        reasons = _in_memory(args, console, model)
    total, accepted = reasons.total(), reasons["accepted"]
    counts = {reason: reasons[reason] for reason in REASONS}
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if reason != "accepted")
    console.answer(
        {
            "command": "predict",
            "rows": total,
            "output": str(args.output),
            "accepted": accepted,
            "reasons": counts,
            "rule": model.rule_.to_dict(),
        },
        f"Rule: {model.rule_}",
        f"{total:,} rows: {accepted:,} accepted ({percent(accepted / total)}), {total - accepted:,} rejected ({rejected}).",
        f"Written: {args.output}",
    )


def _in_memory(args: argparse.Namespace, console: Console, model: POSCOD) -> Counter[str]:
    """Read, decide and write block by block; return how often each reason was given."""
    table = open_table(args.table)
    schema, kept = _choose(args, model, table)
    reasons: Counter[str] = Counter()
    with TableWriter(args.output) as file, console.progress("deciding", table.n_rows) as advance:
        for block in table.chunks(BLOCK, dict.fromkeys([*kept, *schema.names])):
            decisions = model.decide(rows_of(schema, block), explain=args.explain)
            added = decision_columns(decisions, schema, model.reject_label)
            file.write({**{name: block.table[name] for name in kept}, **{args.prefix + k: v for k, v in added.items()}})
            reasons.update(decisions.reason.tolist())
            advance(block.n_rows)
    return reasons


def decision_columns(decisions: Decisions, schema: Schema, reject_label: Any) -> dict[str, NDArray[Any]]:
    """Return decisions as columns of a table, with the labels that people know and the prediction."""
    columns = {field.name: getattr(decisions, field.name) for field in fields(decisions)}
    columns["label"] = schema.labels(decisions.label)
    prediction = type(decisions)(**columns).predictions(reject_label)
    # A model saved from Python may mix numbers and texts, which no column can.
    columns["prediction"] = prediction.astype(str) if prediction.dtype == object else prediction
    return columns


def _choose(args: argparse.Namespace, model: POSCOD, table: Table) -> tuple[Schema, list[str]]:
    """Return what the model reads of a table and the columns that are written, and refuse names that would stand twice."""
    schema = schema_for(model, table)
    schema.check(table.columns, table.path)
    kept = [name for name in ([schema.id] if args.only_decisions else table.columns) if name in table.columns]
    made = fields(Explained if args.explain else Decisions)
    added = {args.prefix + name for name in (*(field.name for field in made), "prediction")}
    if twice := [name for name in kept if name in added]:
        raise InvalidInputError(
            f"{table.path} already has the column{'s' * (len(twice) > 1)} {listed(twice)}: put something before the names of the "
            "added columns, e.g. --prefix poscod_, or use --only-decisions."
        )
    return schema, kept
