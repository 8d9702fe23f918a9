# SPDX-License-Identifier: BSD-3-Clause
"""Run a benchmark, and make tables, ablations and comparisons of its results.

SPEC is a TOML file or an embedded benchmark (gaussian, digits). `run` computes what is missing in the output folder, so a run that was
interrupted goes on where it stopped; the other commands read the folder and compute nothing anew.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from poscod._files import replacing
from poscod.benchmark import FORMATS, TABLES, compare, read_results, read_spec, render, table
from poscod.benchmark import run as run_benchmark
from poscod.cli._bench_images import extract_images
from poscod.cli._console import Console, add_output_options

EXAMPLES = (
    "poscod bench run digits -o digits",
    "poscod bench run cifar10.toml -o cifar10 --jobs 8",
    "poscod bench tables cifar10 --table estimators --format latex",
    "poscod bench tables cifar10 --format csv -o tables/",
)

_BEAT = 30.0
"""Seconds between two lines of progress where there is no terminal."""
_SUFFIXES = {"csv": ".csv", "latex": ".tex", "markdown": ".md"}
_ABLATIONS = ("alpha", "pi")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_run(actions.add_parser("run", help="compute what is missing and write the long table", allow_abbrev=False))
    shown = {
        "tables": "the paper's tables from the results of a run",
        "ablate": "AuSRT against the relative cost or against the share of OOD in the mixture",
        "compare": "side by side with the numbers printed in the paper",
    }
    for name, text in shown.items():
        action = actions.add_parser(name, help=text, allow_abbrev=False)
        action.add_argument("out", metavar="OUT", help="folder of a run, or its results.csv")
        if name == "tables":
            action.add_argument(
                "--table",
                action="append",
                choices=sorted(set(TABLES) - set(_ABLATIONS)),
                help="which table; may be given more than once (default: all that the results can fill)",
            )
        if name == "ablate":
            action.add_argument("--over", choices=_ABLATIONS, action="append", help="default: both")
        if name != "compare":
            action.add_argument("--alpha", type=float, default=0.5, help="relative cost (default: 0.5)")
            action.add_argument("--pi", type=float, help="share of OOD in the mixture (default: the largest)")
        action.add_argument("--format", choices=sorted(FORMATS), default="markdown", help="default: markdown")
        action.add_argument(
            "-o", "--output", help="file to write instead of printing, or a folder/ for one file per table"
        )
        add_output_options(action)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="TOML file, or an embedded benchmark: gaussian, digits")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="folder of cells and results")
    parser.add_argument("--root", help="folder of the data, instead of the specification's")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.action == "run":
        _run(args)
        return
    rows = read_results(args.out)
    if args.action == "compare":
        tables = [compare(rows)]
    else:
        asked = args.over or _ABLATIONS if args.action == "ablate" else args.table
        names = asked or [name for name in TABLES if name not in _ABLATIONS]
        tables = [table(name, rows, alpha=args.alpha, pi=args.pi) for name in names]
        # A table that cannot be filled is shown empty where it was asked for by name, and left out elsewhere.
        tables = [t for t in tables if t.body or asked]
    console = Console.of(args)
    if not args.output or args.output == "-":
        text = "\n".join(render(t, args.format) for t in tables)
        Console(json=args.json, quiet=args.quiet).answer({"tables": [t.document() for t in tables]}, text.rstrip("\n"))
        return
    target = Path(args.output)
    if args.output.endswith(("/", os.sep)) or target.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        files = {target / f"{t.name}{_SUFFIXES[args.format]}": render(t, args.format) for t in tables}
    else:
        files = {target: "\n".join(render(t, args.format) for t in tables)}
    for path, text in files.items():
        with replacing(path) as file:
            file.write(text.encode())
    said = [str(path) for path in files]
    console.answer({"files": said, "tables": len(tables)}, f"{len(tables)} tables in {', '.join(said)}")


def _run(args: argparse.Namespace) -> None:
    spec = read_spec(args.spec)
    if args.root:
        spec = dataclasses.replace(spec, root=args.root)
    console = Console(json=args.json, quiet=args.quiet)
    start = time.monotonic()
    if spec.source == "openood":
        spec = extract_images(spec, Path(args.output, "activations"), lambda line: _tell(console, line))
    with contextlib.ExitStack() as stack:
        finished = run_benchmark(spec, args.output, n_jobs=args.jobs, progress=_progress(console, stack))
    wall = time.monotonic() - start
    console.answer(
        {
            "results": str(finished.path),
            "rows": finished.rows,
            "computed": finished.computed,
            "reused": finished.reused,
            "wall_seconds": round(wall, 1),
            "cpu_seconds": round(finished.cpu_seconds, 1),
        },
        f"{finished.computed} cells computed and {finished.reused} reused in {wall:.0f} s "
        f"(CPU time of all cells {finished.cpu_seconds:.0f} s).",
        f"{finished.rows} rows in {finished.path}; see `poscod bench tables {args.output}`.",
    )


def _tell(console: Console, line: str) -> None:
    """Write a line about work under way."""
    if not console.quiet:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _progress(console: Console, stack: contextlib.ExitStack) -> Callable[[int, int, str], None]:
    """Show a bar on a terminal; elsewhere a line with the time left every half minute."""
    update: list[Callable[[int], object]] = []
    start = time.monotonic()
    last = [start]

    def show(done: int, total: int, what: str) -> None:
        if console.live:
            if not update:
                update.append(stack.enter_context(console.progress("cells", total, "cells")))
            update[0](1)
        elif time.monotonic() - last[0] >= _BEAT:
            last[0] = time.monotonic()
            left = (last[0] - start) / done * (total - done)
            _tell(console, f"{done} of {total} cells, about {left / 60:.1f} min left (last: {what})")

    return show
