# SPDX-License-Identifier: BSD-3-Clause
"""Write a page for people: what the model does on fresh rows, what it promises, and what other costs would mean.

The rows are those of `poscod evaluate`: --id are labeled rows that nothing was fitted on, --ood rows known to be out-of-distribution,
--unlabeled fresh traffic. The name of the output says the form: report.html opens in any browser without a network and has a
what-if explorer, report.md and report.json hold the same summary.

Convention: r, log g and loss of every row are embedded in the page for its explorer, features and labels are not; example rows
show the id column and columns that the model does not read first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from poscod.cli._console import Console, add_output_options
from poscod.cli._fresh import add_fresh_options, given_tables, read_fresh, shown_columns
from poscod.cli._models import add_model_options, load_model
from poscod.cli._reviewed import add_reviewed_options, read_reviewed
from poscod.cli._tables import check_output
from poscod.cli._times import TIME_WORDS, times_of
from poscod.exceptions import InvalidInputError
from poscod.report import FORMATS, headline, summarise, write
from poscod.review import queue

EXAMPLES = (
    "poscod report model.poscod --id test.parquet --target label --ood ood.parquet -o report.html",
    "poscod report model.poscod --id test.csv --unlabeled log.csv --no-explorer-data -o report.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    add_fresh_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="page to write: .html, .md or .json")
    parser.add_argument("--title", metavar="TEXT", help="title of the page")
    parser.add_argument("--date", metavar="TEXT", help="date to print on the page")
    parser.add_argument("--examples", type=int, default=3, metavar="N", help="example rows of each kind; 0 shows none")
    parser.add_argument("--columns", type=int, default=6, metavar="N", help="columns of your table in an example row")
    parser.add_argument(
        "--max-points",
        type=int,
        metavar="N",
        help="rows of a group that the what-if explorer gets (default: all, so that its numbers are exact)",
    )
    parser.add_argument(
        "--no-explorer-data", action="store_true", help="embed no rows: a smaller page without the what-if explorer"
    )
    parser.add_argument(
        "--no-groups", action="store_true", help="do not look for groups among the likely OOD rows of --unlabeled"
    )
    parser.add_argument(
        "--time",
        metavar="COLUMN",
        help=f"time of each row of --unlabeled ({TIME_WORDS}): says when such groups came, and, where it is a date, how many come in a week",
    )
    group = parser.add_argument_group("rows for people to look at")
    group.add_argument(
        "--review",
        type=int,
        metavar="N",
        help="show a queue of N rows of --unlabeled, as `poscod review -n N` draws it",
    )
    add_reviewed_options(group)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Write the report."""
    console = Console.of(args)
    if Path(args.output).suffix.lower() not in FORMATS:
        raise InvalidInputError(f"--output must end in {', '.join(FORMATS)}, got '{args.output}'.")
    check_output(args.output, [args.model, *given_tables(args).values(), *([args.reviewed] if args.reviewed else [])])
    _check_review(args)
    model = load_model(args)
    fresh = read_fresh(args, model)
    chosen, said = None, None
    if args.reviewed:
        chosen, said = read_reviewed(args.reviewed, model, fresh.schema, fresh.tables["unlabeled"])
    elif args.review is not None:
        chosen = queue(model, fresh.rows["unlabeled"], args.review)
    with console.working("measuring"):
        summary = summarise(
            model,
            X=fresh.rows["id"],
            y=fresh.y,
            X_ood=fresh.rows.get("ood"),
            X_unlabeled=fresh.rows.get("unlabeled"),
            pi=args.pi,
            level=args.level,
            class_mix=args.class_mix,
            title=args.title,
            created=args.date,
            names={"model": Path(args.model).name, **{name: table.path.name for name, table in fresh.tables.items()}},
            class_names=[str(name) for name in fresh.schema.classes] or None,
            columns={
                # The label is shown as the truth anyway.
                name: shown_columns(table, fresh.schema, args.columns, without=fresh.target if name == "id" else None)
                for name, table in fresh.tables.items()
            },
            n_examples=args.examples,
            max_columns=args.columns,
            explorer=not args.no_explorer_data,
            max_points=args.max_points,
            groups=not args.no_groups,
            times=None if args.time is None else times_of(fresh.tables["unlabeled"], args.time),
            review=chosen,
            verdicts=said,
            missing=args.missing,
        )
    write(summary, args.output)
    document = {key: summary[key] for key in ("rows", "level", "rule", "class_mix", "promise", "rates", "rules")}
    console.answer(
        {"command": "report", "model": str(args.model), "output": str(args.output), **document},
        f"Rule: {model.rule_}",
        *headline(summary),
        f"Written: {args.output}",
    )


def _check_review(args: argparse.Namespace) -> None:
    """Refuse options about review that do not go together."""
    if args.review is not None and args.reviewed:
        raise InvalidInputError(
            "--review draws a queue and --reviewed takes one that people have looked at: give one of the two."
        )
    if args.time is not None and not args.unlabeled:
        raise InvalidInputError("--time is a column of --unlabeled: give that table, too.")
    if (args.review is not None or args.reviewed) and not args.unlabeled:
        raise InvalidInputError("--review and --reviewed are about rows of --unlabeled: give that table, too.")
