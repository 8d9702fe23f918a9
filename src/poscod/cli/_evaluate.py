# SPDX-License-Identifier: BSD-3-Clause
"""Measure a model on fresh rows, beside the rules it competes with.

The rows of --id are labelled rows of known classes that nothing was fitted on. With --ood, rows known to be out-of-distribution, all
rates are measured directly. With --unlabelled, fresh traffic, they are estimated without a single OOD label. Every rule
(MSP alone, g alone, SIRC, and the model's own) gets its threshold from the same calibration rows at the same required TPR.

Convention: intervals are in brackets; the document of --json and of -o FILE.json is the same.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from poscod._comparison import Measured, Sample, check_ratio, read_sample
from poscod._files import replacing
from poscod._json import plain
from poscod.cli._console import Console, add_output_options, percent
from poscod.cli._engine import add_engine_options, evaluate_on_dask, on_dask, open_cluster
from poscod.cli._fresh import add_fresh_options, read_fresh
from poscod.cli._models import add_model_options, load_model
from poscod.cli._rules import compare_rules, long_table, rules_table
from poscod.cli._tables import FORMATS, TableWriter, check_output
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.ratio import FINDINGS
from poscod.report._sections import promise_section
from poscod.report._words import promise_sentence

EXAMPLES = (
    "poscod evaluate model.poscod --id test.parquet --target label --ood ood.parquet",
    "poscod evaluate model.poscod --id test.csv --target label --unlabelled log.csv --json",
    "poscod evaluate model.poscod --id test/ --target label --ood ood/ --engine dask --scheduler tcp://10.0.0.5:8786",
)

VERDICTS: dict[str, str] = {"held": "kept", "open": "not contradicted", "missed": "missed", "none": "none"}
"""Verdict of the report on a promise to what this command calls it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    add_fresh_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the numbers: .json, .csv or another table")
    add_engine_options(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Measure a model."""
    console = Console.of(args)
    check_output(args.output, [args.model, *(path for path in (args.id, args.ood, args.unlabelled) if path)])
    if args.output and Path(args.output).suffix.lower() not in (".json", *FORMATS):
        raise InvalidInputError(f"--output must end in .json, {', '.join(FORMATS)}, got '{args.output}'.")
    if on_dask(args):
        with open_cluster(args, console) as cluster:
            return _finish(args, console, *evaluate_on_dask(args, load_model(args), cluster))
    model = load_model(args)
    fresh = read_fresh(args, model)
    rows, y = fresh.rows, fresh.y
    with console.working("measuring"):
        sample = read_sample(
            model, rows["id"], y, rows.get("ood"), rows.get("unlabelled"), pi=args.pi, level=args.level
        )
        rules = compare_rules(model, sample)
        found = (
            check_ratio(model, rows["id"], y, rows["unlabelled"], level=args.level) if "unlabelled" in rows else None
        )
    return _finish(args, console, model, sample, rules, found)


def _finish(
    args: argparse.Namespace, console: Console, model: POSCOD, sample: Any, rules: list[dict[str, Any]], found: Any
) -> None:
    """Write and tell what was measured."""
    findings = [] if found is None else [FINDINGS[name] for name in found["findings"]]
    document = _document(model, sample, rules, findings, args)
    if args.output:
        _write(Path(args.output), document, rules)
    console.answer(document, *_story(document, rules, sample), *([f"Written: {args.output}"] if args.output else []))


def _reused(sample: Any) -> list[str]:
    """Say where rows that were given as fresh are those that the model file keeps of its fit, as r and log g show.

    Notes
    -----
    Only where most rows of the fit differ from each other in r and g: equal inputs prove nothing. More than half of them must be found again.
    Rows of cross-fitting are kept as other ratios saw them, and rows on a cluster are not looked at.
    """
    if not isinstance(sample, Sample):
        return []
    kept = sample.calibration
    groups = {
        "--id": (kept.risk, kept.log_ratio, sample.known),
        "--unlabelled": (kept.traffic_risk, kept.traffic_log_ratio, sample.traffic),
    }
    notes = []
    for option, (risk, log_ratio, fresh) in groups.items():
        if fresh is None:
            continue
        old, new = _pairs(risk, log_ratio), _pairs(fresh.risk, fresh.log_ratio)
        if len(old) >= max(20, len(risk) / 2) and len(old & new) > len(old) / 2:
            notes.append(f"rows of {option} are rows of the fit: the numbers are too good. Give fresh rows.")
    return notes


def _pairs(risk: Any, log_ratio: Any) -> set[tuple[float, float]]:
    return set(zip(np.round(risk, 7).tolist(), np.round(log_ratio, 6).tolist(), strict=True))


def _document(
    model: POSCOD, sample: Any, rules: list[dict[str, Any]], findings: list[str], args: argparse.Namespace
) -> dict[str, Any]:
    own = next(row for row in rules if row["rule"] == "poscod")
    promise = promise_section(model, sample, Measured(own["tpr"], own["selective_risk"], None, None))
    document: dict[str, Any] = {
        "command": "evaluate",
        "model": str(args.model),
        "rows": sample.sizes,
        "alpha": sample.alpha,
        "tpr_min": promise["tpr_min"],
        "level": sample.level,
        "promise": promise | {"verdict": VERDICTS[promise["verdict"]]},
        "rules": rules,
        "warnings": _reused(sample),
    }
    if sample.prior is not None:
        document |= {"ood_share": sample.prior, "findings": findings}
    plain_document: dict[str, Any] = plain(document)
    return plain_document


def _story(document: dict[str, Any], rules: list[dict[str, Any]], sample: Any) -> list[str]:
    counts = ", ".join(
        f"{count:,} {name.upper() if name != 'unlabelled' else name}" for name, count in document["rows"].items()
    )
    level, promise = f"{100 * sample.level:g} %", document["promise"]
    none = promise["verdict"] == "none"
    asked = "" if none else f", tpr_min = {promise['tpr_min']:g}"
    lines = [
        f"Rows: {counts}; alpha = {document['alpha']:g}{asked}; {level} intervals in brackets.",
        "",
        *rules_table(rules),
        "",
    ]
    lines.append(
        promise_sentence(promise, document)
        if none
        else f"Promise of {percent(promise['tpr_min'])} ID accepted: {promise['verdict']} (measured {percent(promise['tpr']['estimate'])}, "
        f"interval {percent(promise['tpr']['low'])} to {percent(promise['tpr']['high'])})."
    )
    if sample.prior is not None:
        free = next(row for row in rules if row["rule"] == "poscod")["label_free"]
        share = sample.prior
        lines.append(
            f"Without OOD labels: {percent(share.estimate)} of the traffic is OOD (interval {percent(share.low)} to "
            f"{percent(share.high)}), {percent(free['accepted'].estimate)} of it is accepted."
        )
        fpr = free["fpr"]
        lines.append(
            f"Without OOD labels: OOD accepted {percent(fpr.estimate)} (interval {percent(fpr.low)} to {percent(fpr.high)}), SCOD "
            f"risk {free['risk'].estimate:.3f}."
            if fpr.informative
            else f"Without OOD labels: OOD accepted is not known: {fpr.reason}"
        )
        lines += [f"Note: {text}" for text in document["findings"]]
    return [*lines, *(f"Note: {text}" for text in document["warnings"])]


def _write(path: Path, document: dict[str, Any], rules: list[dict[str, Any]]) -> None:
    if path.suffix.lower() == ".json":
        with replacing(path) as file:
            file.write((json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode())
        return
    lines = long_table(rules)
    with TableWriter(path) as table:
        table.write({name: np.array([line[name] for line in lines]) for name in lines[0]})
