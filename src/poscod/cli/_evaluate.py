# SPDX-License-Identifier: BSD-3-Clause
"""Measure a model on fresh rows, beside the rules it competes with.

The rows of --id are labeled rows of known classes that nothing was fitted on. With --ood, rows known to be out-of-distribution, all
rates are measured directly. With --unlabeled, fresh traffic, they are estimated without a single OOD label. Every rule
(r alone, which is MSP, g alone, SIRC, and the model's own) gets its threshold from the same calibration rows at the same required TPR.

With --reviewed, a queue of `poscod review` on --unlabeled that people have filled in, OOD share, TPR, FPR and error on that traffic follow from
their verdicts, whether or not the model is right; --id may then be left out.

Convention: intervals are in brackets; the document of --json and of -o FILE.json is the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from poscod._files import replacing
from poscod._json import plain
from poscod.cli._console import Console, add_output_options, json_text, percent, ranged
from poscod.cli._dask import add_engine_options, evaluate_on_dask, logs_for, on_dask, open_cluster
from poscod.cli._fresh import Judged, add_fresh_options, given_tables, read_fresh, reused_rows
from poscod.cli._inputs import schema_for
from poscod.cli._models import add_model_options, load_model
from poscod.cli._reviewed import add_reviewed_options, read_reviewed
from poscod.cli._rules import compare_rules, rules_table
from poscod.cli._tables import check_output
from poscod.exceptions import InvalidInputError
from poscod.model import Sample, keys_of, measure_promise, read_sample
from poscod.ratio import finding_words
from poscod.report import (
    assessed_words,
    assessment_rows,
    mix_section,
    mix_words,
    promise_section,
    promise_sentence,
)
from poscod.review import assess

EXAMPLES = (
    "poscod evaluate model.poscod --id test.parquet --target label --ood ood.parquet",
    "poscod evaluate model.poscod --id test.csv --target label --unlabeled log.csv --json",
    "poscod evaluate model.poscod --reviewed queue.csv --unlabeled log.csv",
    "poscod evaluate model.poscod --id test/ --target label --ood ood/ --engine dask --scheduler tcp://10.0.0.5:8786",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    add_fresh_options(parser)
    add_reviewed_options(parser.add_argument_group("verdicts"))
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the document of --json, indented")
    add_engine_options(parser)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Measure a model."""
    console = Console.of(args)
    check_output(args.output, [args.model, *given_tables(args).values(), *([args.reviewed] if args.reviewed else [])])
    if args.output and Path(args.output).suffix.lower() != ".json":
        raise InvalidInputError(f"--output must end in .json, got '{args.output}'.")
    dask = on_dask(args)
    review: dict[str, Any] | None = None
    if args.reviewed:
        review = _assess(args, console)
        if not args.id:
            _say(
                args,
                console,
                {"command": "evaluate", "model": str(args.model), "review": review},
                _reviewed_story(review),
            )
            return
    if dask:
        with open_cluster(args, console) as cluster:
            judged = evaluate_on_dask(args, load_model(args), cluster)
    else:
        judged = _in_memory(args, console)
    sample, rules = judged.sample, judged.rules
    document = _document(judged, mix_section(judged.model, sample), args)
    story = _story(document, rules, sample)
    if review is not None:
        document["review"] = review
        story += ["", *_reviewed_story(review)]
    _say(args, console, document, story)


def _say(args: argparse.Namespace, console: Console, document: dict[str, Any], story: list[str]) -> None:
    """Write the document where it is asked for, and give the answer."""
    if args.output:
        with replacing(Path(args.output)) as file:
            file.write(json_text(document, indent=1).encode())
    console.answer(document, *story, *([f"Written: {args.output}"] if args.output else []))


def _assess(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Return what verdicts say of the rule on the traffic."""
    if not args.unlabeled:
        raise InvalidInputError("--reviewed is a queue of rows of a log: give that log as --unlabeled, too.")
    model = load_model(args)
    with logs_for(args, console) as logs:
        log = logs.open(args.unlabeled)
        schema = schema_for(model, log)
        X = logs.read(schema, log)
        queue, verdicts = read_reviewed(args.reviewed, model, schema, log)
        with console.working("measuring"):
            found = assess(model, X, queue, verdicts, level=args.level, missing=args.missing)
    return {"rule": model.rule_.to_dict(), **found.to_dict(), "fitted_with": model.rule_.verdicts}


def _reviewed_story(review: dict[str, Any]) -> list[str]:
    rows = assessment_rows(review)
    width, wide = (max(len(row[i]) for row in rows) for i in (0, 1))
    lines = [f"{name:<{width}}  {value:>{wide}}  ({ends})" for name, value, ends in rows]
    return [f"Rule: {review['rule']['sentence']}", assessed_words(review), "", *lines]


def _in_memory(args: argparse.Namespace, console: Console) -> Judged:
    """Measure rows in memory."""
    model = load_model(args)
    fresh = read_fresh(args, model)
    known, traffic = fresh.rows["id"], fresh.rows.get("unlabeled")
    with console.working("measuring"):
        options = {"pi": args.pi, "level": args.level, "class_mix": args.class_mix}
        sample = read_sample(model, known, fresh.y, fresh.rows.get("ood"), traffic, **options)
        reused = reused_rows(model, {name: keys_of(model.scorer_.prepared(rows)) for name, rows in fresh.rows.items()})
        return Judged(model, sample, compare_rules(sample), reused)


def _document(judged: Judged, mix: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    sample = judged.sample
    document: dict[str, Any] = {
        "command": "evaluate",
        "model": str(args.model),
        "rows": sample.sizes,
        "rule": sample.rule.to_dict(),
        "alpha": sample.alpha,
        "level": sample.level,
        "class_mix": mix,
        "promise": promise_section(sample.rule, measure_promise(sample)),
        "rules": judged.rules,
        "warnings": judged.reused,
    }
    if sample.prior is not None:
        findings = [] if sample.diagnosis is None else finding_words(sample.diagnosis)
        document |= {"ood_prior": sample.prior, "findings": findings}
    plain_document: dict[str, Any] = plain(document)
    return plain_document


def _story(document: dict[str, Any], rules: list[dict[str, Any]], sample: Sample) -> list[str]:
    names = {"id": "ID", "ood": "OOD", "unlabeled": "unlabeled"}
    counts = ", ".join(f"{count:,} {names[name]}" for name, count in document["rows"].items())
    lines = [
        f"Rows: {counts}; {100 * sample.level:g} % intervals in brackets.",
        f"Rule: {sample.rule}",
        *mix_words(document["class_mix"]),
        "",
        *rules_table(rules),
        *["Areas are those of a sample of the rows."] * any(n > len(sample.groups[k]) for k, n in sample.sizes.items()),
        "",
        promise_sentence(document["promise"], document["rows"]["id"]),
    ]
    if sample.prior is not None:
        share, free = sample.prior, rules[-1]["label_free"]
        fpr, risk = free["fpr"], free["risk"].estimate
        shown = f"{ranged(fpr)}, SCOD risk {risk:.3f}." if fpr.informative else f"is not known: {fpr.reason}"
        lines += [
            f"Without OOD labels: OOD in the traffic {ranged(share)}, traffic accepted {percent(free['accepted'].estimate)}.",
            f"Without OOD labels: OOD accepted {shown}",
        ]
    return [*lines, *(f"Note: {text}" for text in [*document.get("findings", []), *document["warnings"]])]
