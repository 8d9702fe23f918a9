# SPDX-License-Identifier: BSD-3-Clause
"""Watch the traffic: the OOD share over time, and whether the rule still does what it did.

The log is a table with a column of times; either new rows, which the model decides, or decisions that `poscod predict` has
written. Nothing needs a label. Without --ood, --unlabeled or --reference, what is known of OOD comes from the unlabeled rows
of the fit, and intervals are wider. With --state the counts are kept in a file and every log is added to them once.

Convention: rows are read and counted in blocks, so that memory does not grow with the log. Exit code 3 with --fail-on.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._files import alone, replacing
from poscod._validation import check_choice
from poscod.cli._columns import Block, Table
from poscod.cli._console import Console, add_alias, add_output_options, percent
from poscod.cli._inputs import read_rows, rows_of, schema_for
from poscod.cli._log_groups import strangers_of
from poscod.cli._models import add_model_options, load_model
from poscod.cli._names import NAMES
from poscod.cli._reviewed import class_codes, said_of
from poscod.cli._rules import text_table
from poscod.cli._tables import check_output, files_of, open_table
from poscod.decision import Decisions
from poscod.exceptions import InvalidInputError
from poscod.model import Schema
from poscod.monitor import SEVERITIES, Monitor, Reference, read_moments
from poscod.report import FORMATS, strangers_words, write
from poscod.verdict import NOT_REVIEWED, OOD, STRANGER

EXAMPLES = (
    "poscod monitor model.poscod log.parquet --time at -o report.html",
    "poscod monitor model.poscod decisions.csv --time at --window 1h --ood-limit 0.05",
    "poscod monitor model.poscod today.csv --time at --state state.json --fail-on error",
    "poscod monitor model.poscod log.csv --time at --groups -o report.html",
)

BLOCK = 16384
"""Block that are counted at a time."""
_SHOWN = 20
_CLASSES = 5
_COLUMNS = [field.name for field in fields(Decisions)]
_PARAMETERS = ("window", "ood_limit", "level", "false_alarm")
_KNOWN = ("ood", "unlabeled", "reference")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument("log", help="table of new rows, or of decisions written by `poscod predict`")
    parser.add_argument(
        "--time", metavar="COLUMN", help="column with the time of each row (dates, or seconds since 1970)"
    )
    parser.add_argument("--window", help="15min, 1h, 1d, ...; or a number of rows without --time (default: 1d)")
    parser.add_argument(
        "--prefix", default="", metavar="TEXT", help="what `poscod predict --prefix` put before its columns"
    )
    parser.add_argument(
        "--label",
        metavar="COLUMN",
        help="true labels where they have arrived; gaps are allowed, others are OOD",
    )
    parser.add_argument(
        "--verdict",
        metavar="COLUMN",
        help="what people said of rows that were drawn at random: a class, or ood; gaps are allowed, other words are refused",
    )
    parser.add_argument(
        "--group",
        metavar="COLUMN",
        help="what rows belong to that are alike, such as a session: one row of each counts in a window",
    )
    parser.add_argument(
        "--groups",
        action="store_true",
        help="also say what the OOD inputs of this log are: groups of similar rows, how many come in a week, and typical ones; needs the rows themselves, in memory",
    )
    known = parser.add_argument_group("what is known of OOD inputs (one of them)").add_mutually_exclusive_group()
    known.add_argument("--ood", metavar="FILE", help="table of clean OOD rows that nothing was fitted on")
    known.add_argument("--unlabeled", metavar="FILE", help="table of fresh traffic")
    add_alias(known, "--unlabelled", "unlabeled")
    known.add_argument("--reference", metavar="FILE", help="reference written by --save-reference")
    parser.add_argument("--save-reference", metavar="FILE", help="write the reference to use it again")
    parser.add_argument(
        "--calibrated", metavar="DATE", help="when the model was calibrated (default: date of its file)"
    )
    parser.add_argument(
        "--ood-limit", type=float, metavar="SHARE", help="OOD share that raises an alarm (default: 0.1)"
    )
    parser.add_argument("--level", type=float, help="coverage of each interval (default: 0.95)")
    parser.add_argument(
        "--false-alarm", type=float, metavar="P", help="probability of any false alarm, ever (default: 0.05)"
    )
    parser.add_argument("--state", metavar="FILE", help="file of counts to continue, or to begin")
    severe = [name for name in SEVERITIES if name != "info"]
    parser.add_argument("--fail-on", choices=severe, help="exit code 3 for active findings like that")
    parser.add_argument("-o", "--output", metavar="FILE", help="report to write: .html, .md or .json")
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Count a log and say what it shows."""
    console = Console.of(args)
    if args.label and args.verdict:
        raise InvalidInputError("--label and --verdict both say what rows are: give one of the two.")
    if (args.label or args.verdict) and not args.time:
        option = "--label" if args.label else "--verdict"
        raise InvalidInputError(f"{option} needs --time: a label belongs to the window of its row.")
    _check_outputs(args)
    with alone(Path(args.state)) if args.state else nullcontext():  # of two runs on one state one would be lost
        _count(args, console)


def _count(args: argparse.Namespace, console: Console) -> None:
    model, table = load_model(args), open_table(args.log)
    schema = schema_for(model, table)
    monitor, logs = _monitor(args, model, schema)
    digest = _digest(args.log)
    if digest in logs:
        raise InvalidInputError(f"{args.log} is already counted in {args.state}: a log is added once.")
    with console.progress("counting", table.n_rows) as advance:
        for block, decisions in _decided(args, table, schema, model):
            at = block[args.time] if args.time else None
            if at is not None and monitor.width.clock:
                at = read_moments(at, monitor.width, block.start)
            groups = block[args.group] if args.group else None
            monitor.update(decisions, at, groups)
            if args.label:
                _labels(monitor, decisions, block[args.label], at, groups, schema)
            elif args.verdict:
                _labels(monitor, decisions, _verdicts(block, args.verdict, model, schema), at, groups, schema)
            advance(block.n_rows)
    summary = monitor.summary()
    if schema.classes:  # the reference knows codes
        for share in summary["reference"]["mix"]["classes"]:
            share["class"] = schema.classes[share["class"]]
    if args.groups:
        summary["strangers"] = strangers_of(model, table, schema, args.time, monitor.level)
    if args.output:
        write(summary, args.output, title=f"What the monitor saw: {Path(args.log).name}")
    if args.save_reference:
        _write(args.save_reference, monitor.reference.to_dict())
    if args.state:
        # Last: a log is counted when everything else was written, and can be given again when it was not.
        state = {"state": monitor.state(), "reference": monitor.reference.to_dict(), "logs": sorted({*logs, digest})}
        _write(args.state, state)
    written = [f"Written: {path}" for path in (args.output, args.state, args.save_reference) if path]
    document = {"command": "monitor", "output": args.output, "rule": model.rule_.to_dict(), **summary}
    console.answer(document, f"Rule: {model.rule_}", *_lines(summary), *written)
    if args.fail_on:
        least = SEVERITIES[args.fail_on]
        if any(SEVERITIES[finding["severity"]] >= least for finding in summary["findings"]):
            raise SystemExit(3)


def _monitor(args: argparse.Namespace, model: Any, schema: Schema) -> tuple[Monitor, list[str]]:
    """Return the monitor to continue, or a new one, and what it has already counted."""
    given = {name: value for name in _PARAMETERS if (value := getattr(args, name)) is not None}
    if not args.time and "window" in given:
        try:
            given["window"] = float(args.window)
        except ValueError:
            raise InvalidInputError(
                f"--window {args.window} needs times: give --time, or a number of rows as the window."
            ) from None
    if args.state and Path(args.state).exists():
        return _continued(args, given)
    if not args.time and "window" not in given:
        raise InvalidInputError(
            "--time must name the column of times; without times give a number of rows as --window."
        )
    if args.reference:
        return Monitor(Reference.from_dict(_read(args.reference)), **given), []
    tables = {name: path for name in ("ood", "unlabeled") if (path := getattr(args, name))}
    rows = {name: read_rows(schema, open_table(path, whole=True)) for name, path in tables.items()}
    changed = datetime.datetime.fromtimestamp(Path(args.model).stat().st_mtime, datetime.timezone.utc)
    return Monitor(Reference.from_model(model, **rows, created=args.calibrated or changed.date()), **given), []


def _continued(args: argparse.Namespace, given: dict[str, Any]) -> tuple[Monitor, list[str]]:
    """Return the monitor of a state, which has its own reference and parameters, and what it has counted."""
    for option in (*_KNOWN, "calibrated"):
        if getattr(args, option):
            raise InvalidInputError(
                f"{args.state} has a reference of its own, got --{option}: leave the option out or begin another state."
            )
    data = _read(args.state)
    monitor = Monitor.from_state(data.get("state"), Reference.from_dict(data.get("reference")))
    for name, value in given.items():
        if getattr(monitor, name) != value:
            raise InvalidInputError(
                f"{args.state} was begun with {NAMES[name]} {getattr(monitor, name)}, got {value}: leave the option out or begin "
                "another state."
            )
    logs = data.get("logs")
    if not isinstance(logs, list):
        raise InvalidInputError(f"{args.state} is damaged: it does not list its logs.")
    return monitor, [str(log) for log in logs]


def _decided(args: argparse.Namespace, table: Table, schema: Schema, model: Any) -> Iterator[tuple[Block, Decisions]]:
    """Read the log in blocks, with the decisions it holds or those of the model."""
    extra = table.need(name for name in (args.time, args.label, args.verdict, args.group) if name)
    named = {name: args.prefix + name for name in _COLUMNS}
    if all(name in table.columns for name in named.values()):
        for block in table.chunks(BLOCK, dict.fromkeys([*named.values(), *extra])):
            yield block, _read_decisions(block, named, schema)
        return
    schema.check(table.columns, table.path)
    for block in table.chunks(BLOCK, dict.fromkeys([*schema.names, *extra])):
        yield block, model.decide(rows_of(schema, block))


def _read_decisions(block: Block, named: dict[str, str], schema: Schema) -> Decisions:
    columns = {name: block[column] for name, column in named.items()}
    for name in ("risk", "log_ratio", "score"):
        if columns[name].dtype.kind not in "fiu":
            raise InvalidInputError(
                f"column '{named[name]}' of {block.source} must hold numbers, got {columns[name].dtype}."
            )
        columns[name] = columns[name].astype(np.float64)
    accept = columns["accept"]
    if accept.dtype.kind not in "biu" or not np.isin(accept, (0, 1)).all():
        raise InvalidInputError(f"column '{named['accept']}' of {block.source} must hold true or false in every row.")
    columns["accept"] = accept.astype(bool)
    columns["reason"] = columns["reason"].astype(str)
    if schema.classes:
        columns["label"] = _codes(columns["label"], schema)
    return Decisions(**columns)


def _codes(labels: NDArray[Any], schema: Schema) -> NDArray[Any]:
    """Turn names of classes into the codes that the model and its reference know; others stay as they are."""
    codes = {str(name): str(code) for code, name in enumerate(schema.classes)}
    return np.array([codes.get(str(label), f"'{label}'") for label in labels.tolist()])


def _verdicts(block: Block, column: str, model: Any, schema: Schema) -> NDArray[Any]:
    """Return verdicts as labels: the class as people know it, something else where it is OOD, None where nobody has looked."""
    names = schema.labels(model.scorer_.classes)
    said = said_of(block, column, names)
    codes = class_codes(said, names, column, block.source, block.start).tolist()
    words = {STRANGER: OOD, NOT_REVIEWED: None, **dict(enumerate(names.tolist()))}
    labels = np.empty(len(codes), dtype=object)
    labels[:] = [words[code] for code in codes]
    return labels


def _labels(
    monitor: Monitor, decisions: Decisions, y: NDArray[Any], at: Any, groups: NDArray[Any] | None, schema: Schema
) -> None:
    known = np.array([value is not None and value == value and str(value) != "" for value in y.tolist()], dtype=bool)
    if known.any():
        labels = _codes(y[known], schema) if schema.classes else y[known]
        monitor.update_labels(decisions[known], labels, at[known], None if groups is None else groups[known])


def _lines(summary: dict[str, Any]) -> Iterator[str]:
    windows = summary["windows"]
    yield f"{summary['totals']['decisions']:,} decisions in {len(windows)} windows of {summary['parameters']['window']}."
    if len(windows) > _SHOWN:
        yield f"The last {_SHOWN}:"
    judged = any(w["labeled"] for w in windows[-_SHOWN:])
    names = ["by labels", "interval"] * judged
    rows = [["from", "decisions", "accepted", "OOD share", "interval", *names, "wrong answers", "interval", *names]]
    for w in windows[-_SHOWN:]:
        accepted = percent(w["accepted"] / w["n"]) if w["n"] else ""
        told = _cells(w["pi_labeled"])
        cells = [*_cells(w["pi"]), *[f"{told[0]} of {w['labeled']:,}", told[1]] * judged]
        cells += [*_cells(w["error"]), *_cells(w["error_labeled"]) * judged]
        rows.append([str(w["start"]), f"{w['n']:,}", accepted, *cells])
    yield from text_table(rows)
    yield from _mix_lines(summary)
    yield from strangers_words(summary.get("strangers"))
    if summary["totals"]["no_alarm"]:
        yield summary["totals"]["no_alarm"]
    for finding in summary["findings"]:
        yield f"{finding['code']} {finding['severity']}: {finding['sentence']} {finding['meaning']} {finding['action']} ({finding['link']})"


def _cells(share: dict[str, Any]) -> list[str]:
    """Return an estimate and its interval as two cells."""
    estimate = "not known" if share["estimate"] is None else percent(share["estimate"])
    return [estimate, f"{percent(share['low'])} to {percent(share['high'])}"]


def _mix_lines(summary: dict[str, Any]) -> Iterator[str]:
    """Say the class mix of the last window that knows it: classes whose shares moved most first."""
    known = [w["mix"] for w in summary["windows"] if any(share is not None for share in w["mix"]["estimate"])]
    if not known:
        return
    rows = [
        (served["class"], served["traffic"], *shares)
        for served, *shares in zip(
            summary["reference"]["mix"]["classes"],
            *(known[-1][end] for end in ("estimate", "low", "high")),
            strict=True,
        )
        if shares[0] is not None
    ]
    rows = sorted(rows, key=lambda row: -abs(row[2] - row[1]))[:_CLASSES]
    table = [[str(name), *(percent(share) for share in shares)] for name, *shares in rows]
    yield "Class mix of the ID inputs, served and in the last window:"
    yield from text_table([["class", "served", "now", "from", "to"], *table])


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse, before any work is done, outputs that are inputs or each other, and a report of unknown form."""
    sources = [args.model, args.log, *(path for name in _KNOWN if (path := getattr(args, name)))]
    seen: dict[Path, str] = {}
    for name in ("output", "state", "save_reference"):
        path, option = getattr(args, name), f"--{name.replace('_', '-')}"
        check_output(path, sources)
        if path and (other := seen.setdefault(Path(path).resolve(), option)) != option:
            raise InvalidInputError(f"{other} and {option} must be different files, got {path} for both.")
    if args.output:
        check_choice(Path(args.output).suffix.lower(), "The extension of --output", FORMATS)


def _read(path: str) -> dict[str, Any]:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise InvalidInputError(f"{path} was not written by `poscod monitor`: give a file that it has written.")
    return data


def _write(path: str, data: dict[str, Any]) -> None:
    with replacing(Path(path)) as file:
        file.write((json.dumps(data, allow_nan=False) + "\n").encode())


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    for part in files_of(Path(path)):
        with part.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()
