# SPDX-License-Identifier: BSD-3-Clause
"""What ``poscod fit`` writes and tells of a model: one document, and its story for people.

Convention: numbers of the rule come from `poscod.model.choices_document` alone; the story says what the document holds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

from poscod._validation import listed
from poscod.cli._columns import Column
from poscod.cli._console import Console, percent, ranged
from poscod.cli._models import trust_options
from poscod.cli._notes import list_notes, share_notes
from poscod.cli._rules import estimates_story
from poscod.labels import reject_label_for
from poscod.model import POSCOD, choices_document, drift_document, mix_document, share_at_fit

# What a line about inputs that moved, or may have, begins with.
TITLES = {"drift": "Drift", "undecided": "Drift or strangers"}


class Fitted(NamedTuple):
    """A model that knows its columns, and what there is to say about it.

    `columns` are those of both tables, `rows` their numbers of rows.
    """

    model: POSCOD
    columns: tuple[Mapping[str, Column], Mapping[str, Column]]
    rows: tuple[int, int]
    notes: list[str]


def finish(args: argparse.Namespace, console: Console, fitted: Fitted) -> None:
    """Save the model and tell what was learned."""
    model, schema, columns = fitted.model, fitted.model.schema_, fitted.columns
    notes = [*list_notes(schema, *columns), *fitted.notes, *share_notes(model, args.calibration, fitted.rows[0])]
    if types := model.save(args.output):
        notes.append(
            f"commands that read this model need {trust_options(types)} (types that are not trusted by default)."
        )
    document = {
        "command": "fit",
        "model": str(args.output),
        "labeled": {"file": str(args.labeled), "rows": fitted.rows[0]},
        "unlabeled": {"file": str(args.unlabeled), "rows": fitted.rows[1]},
        "reviewed": {"file": args.reviewed, "verdicts": model.calibration_.verdicts} if args.reviewed else None,
        "features": list(schema.features),
        "logits": list(schema.logits),
        "classes": schema.labels(model.scorer_.classes).tolist(),
        "ignored": [name for name in schema.ignored(columns[0]) if name != args.group],
        "ignored_unlabeled": [
            name for name in schema.ignored(columns[1]) if name not in columns[0] and name != args.group
        ],
        "ood_prior": share_at_fit(model),
        "class_mix": mix_document(model),
        "drift": drift_document(model),
        "rule": model.rule_.to_dict(),
        "estimates": (expected := choices_document(model)),
        "reject_label": reject_label_for(model.reject_label, schema.labels(model.scorer_.classes)),
        "warnings": [*notes, *expected["doubts"]],
    }
    console.answer(document, *_story(model, document))


def _story(model: POSCOD, document: dict[str, Any]) -> list[str]:
    schema, share = model.schema_, document["ood_prior"]
    trained = "; no classifier is trained" if schema.elsewhere else ", a classifier was trained"
    ignored = f" Not used: {listed(document['ignored'], 8)}." if document["ignored"] else ""
    if document["ignored_unlabeled"]:
        ignored += f" Only in {document['unlabeled']['file']}, not used: {listed(document['ignored_unlabeled'], 8)}."
    open_ = getattr(model.scorer_.ratio, "gate_open_", True)
    shown = ranged(share, "95 % interval") if open_ else f"not shown ({percent(share.estimate)})"
    return [
        f"Read {document['labeled']['rows']:,} labeled rows of {len(document['classes'])} classes and "
        f"{document['unlabeled']['rows']:,} unlabeled rows; {schema.words}{trained}.{ignored}",
        f"Estimated share of OOD inputs among the unlabeled rows: {shown}.",
        *([document["class_mix"]["sentence"]] if document["class_mix"]["changed"] else []),
        *(
            []
            if document["drift"] is None
            else [f"{TITLES[document['drift']['said']]}: {document['drift']['sentence']}"]
        ),
        f"Rule: {model.rule_}",
        "",
        *estimates_story(document["estimates"]),
        "",
        *(f"Note: {text}" for text in document["warnings"]),
        f"Saved: {document['model']}",
    ]
