# SPDX-License-Identifier: BSD-3-Clause
"""Choose rows of a log for people to look at.

Part of the rows are a random audit of the whole log, the others are rows where a look pays: near the threshold, likely OOD, or where r and g disagree. The
output is a table with an empty column verdict, why a row is there, what was decided, and all columns of the row. People write a class, or ood,
into the column verdict; `poscod evaluate --reviewed` then says how good the rule is on this log, whether or not the model is right. A name that ends
in .json writes tasks for Label Studio.

With --from-log, nothing is drawn: the output holds the rows of the table on which the service has verdicts, found by their names, as
`poscod fit --reviewed` takes them.

Convention: rows are in random order, so that whoever stops early has seen a sample of the same kind.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path

from poscod.cli._columns import Table
from poscod.cli._console import Console, add_output_options
from poscod.cli._dask import add_engine_options, logs_for
from poscod.cli._inputs import schema_for
from poscod.cli._models import add_model_options, load_model
from poscod.cli._reviewed import TASKS, check_names, queue_formats, write_queue, write_reviewed
from poscod.cli._tables import FORMATS, check_output
from poscod.exceptions import InvalidInputError
from poscod.review import queue
from poscod.serve import DEFAULT_LOG, read_verdicts

EXAMPLES = (
    "poscod review model.poscod log.csv -n 100 -o queue.csv",
    "poscod review model.poscod log.parquet -n 200 --row-id ticket -o tasks.json",
    "poscod review model.poscod log.parquet --row-id ticket --from-log sqlite:///decisions.db -o reviewed.parquet",
    "poscod review model.poscod logs/ -n 200 --engine dask -o queue.csv",
    "poscod evaluate model.poscod --reviewed queue.csv --unlabeled log.csv",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument("table", help="the log: rows that the model decides on")
    parser.add_argument("-n", "--number", type=int, default=100, metavar="N", help="rows to look at")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="queue to write: a table, or .json for Label Studio; - is CSV on standard output",
    )
    parser.add_argument("--row-id", metavar="COLUMN", help="name of each row (default: as in `poscod fit`)")
    parser.add_argument(
        "--aim",
        default="numbers",
        help="what verdicts are for: numbers (narrow intervals of `poscod evaluate --reviewed`, default), or refit (OOD rows, from which the next fit learns most)",
    )
    parser.add_argument(
        "--audit",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="share of the rows that is spread evenly over the log; the rest goes where a look pays",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument(
        "--from-log",
        nargs="?",
        const=os.environ.get("POSCOD_LOG", DEFAULT_LOG),
        metavar="URL",
        help="draw nothing: write the rows that have a verdict in the database of `poscod serve --log` (URL: as there; without one POSCOD_LOG, or "
        f"{DEFAULT_LOG})",
    )
    add_engine_options(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Choose rows for people to look at."""
    console = Console.of(args)
    suffix = Path(args.output).suffix.lower()
    if args.output != "-" and suffix != TASKS and (suffix not in FORMATS or suffix in (".npy", ".npz")):
        raise InvalidInputError(f"--output must end in {queue_formats()}, got '{args.output}'.")
    check_output(args.output, [args.model, args.table])
    model = load_model(args)
    with logs_for(args, console) as logs:
        table = logs.open(args.table)
        check_names(table, args.row_id)
        schema = schema_for(model, table)
        if args.from_log:
            _from_log(args, console, table, args.row_id or schema.id)
            return
        rows = logs.read(schema, table)
        with console.working("choosing"):
            chosen = queue(model, rows, args.number, aim=args.aim, audit=args.audit, random_state=args.seed)
        lost = write_queue(args.output, chosen, table, schema, args.row_id or schema.id, Path(args.model).name)
    strata = Counter(chosen.stratum.tolist())
    notes = [f"column '{name}' holds lists, which CSV cannot: it was left out." for name in lost]
    console.answer(
        {
            "command": "review",
            "model": str(args.model),
            "output": str(args.output),
            "rows": chosen.n_rows,
            "queue": len(chosen),
            "answered": int(chosen.accept.sum()),
            "strata": dict(strata.most_common()),
            "least_probability": float(chosen.probability.min()),
            "warnings": notes,
        },
        f"Rule: {model.rule_}",
        f"{len(chosen):,} of {chosen.n_rows:,} rows to look at: "
        + "; ".join(f"{count:,} {name}" for name, count in strata.most_common())
        + ".",
        "Write a class, or ood, into the column verdict; keep every row, also those without a verdict.",
        *(f"Note: {note}" for note in notes),
        f"Written: {args.output}",
        *(
            [
                f"Then: poscod evaluate {args.model} --reviewed {args.output} --unlabeled {args.table}"
                + " --engine dask" * (args.engine == "dask")
            ]
            if args.output != "-"
            else []
        ),
    )


def _from_log(args: argparse.Namespace, console: Console, table: Table, row_id: str) -> None:
    """Write the rows on which the service has verdicts."""
    if not row_id:
        raise InvalidInputError("--from-log finds rows by their names: give the column that holds them as --row-id.")
    if Path(args.output).suffix.lower() == TASKS:
        raise InvalidInputError(
            f"--from-log writes a table, got the output '{args.output}': let it end in .csv or .parquet."
        )
    said = read_verdicts(args.from_log)
    found, twice, lost = write_reviewed(args.output, said, table, row_id)
    left = len(said) - len(found) - len(twice)
    notes = [f"column '{name}' holds lists, which CSV cannot: it was left out." for name in lost]
    notes += [
        f"{len(twice):,} verdicts were left out, because several rows have their name, such as '{name}', and they are about one of them."
        for name in twice[:1]
    ]
    notes += [f"{left:,} other verdicts are about rows that {args.table} does not hold."] * (left > 0)
    console.answer(
        {
            "command": "review",
            "model": str(args.model),
            "output": str(args.output),
            "verdicts": len(said),
            "rows": len(found),
            "warnings": notes,
        },
        f"{len(found):,} rows of {args.table} have a verdict.",
        *(f"Note: {note}" for note in notes),
        f"Written: {args.output}",
    )
