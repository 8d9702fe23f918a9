# SPDX-License-Identifier: BSD-3-Clause
"""The part of a summary that says what unknown inputs of the traffic are: groups of similar ones with example rows, and how long a list with a promise is.

Convention: what `poscod strangers` says of the same log. Fresh labeled rows say what known inputs reach where the model keeps no rows that can.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from poscod.exceptions import InvalidInputError, PoscodWarning
from poscod.model import n_rows
from poscod.report._format import count, fixed, percent, shortened
from poscod.review import StrangerGroup, stranger_groups, strangers

LEVEL = 0.1
"""False discovery rate of the list whose length is said."""


def strangers_section(
    model: Any,
    X: Any,
    X_unlabeled: Any,
    class_names: list[str],
    columns: Mapping[str, Any],
    limits: tuple[int, int],
    level: float,
) -> dict[str, Any] | None:
    """Return groups of likely unknown inputs and the length of a list of them; None without a ratio or without traffic. Limits: example rows, and their columns."""
    if model.scorer_.ratio is None or X_unlabeled is None or n_rows(X) < 2:
        return None
    n_examples, max_columns = limits
    classes = model.scorer_.classes.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoscodWarning)  # drift has a place of its own
        try:
            found, known = strangers(model, X_unlabeled, LEVEL), None
        except InvalidInputError:
            found, known = strangers(model, X_unlabeled, LEVEL, X_id=X), X
        groups = stranger_groups(model, X_unlabeled, X_id=known, level=level)
    shown = dict(list(columns.items())[:max_columns])

    def told(group: StrangerGroup) -> dict[str, Any]:
        return {
            "rows": len(group),
            "size": group.size,
            "apart": [{"column": name, "shift": shift} for name, shift in group.apart],
            "answer": class_names[classes.index(group.answer)],
            "answer_share": group.answer_share,
            "examples": [
                {"row": row, "cells": {key: values[row] for key, values in shown.items()}}
                for row in group.index[:n_examples].tolist()
            ],
            "nearest": group.nearest,
        }

    return {
        "list": {"level": LEVEL, "rows": len(found), "known_at_most": found.false_discoveries(), "least": found.least},
        "groups": [told(group) for group in groups],
    }


def strangers_words(section: Mapping[str, Any] | None) -> list[str]:
    """Say what the section holds: first the list, then each group in a sentence."""
    if section is None:
        return []
    found = section["list"]
    words = [
        f"{count(found['rows'])} inputs can be listed as unknown so that on average at most {percent(found['level'], 0)} of the list are known; with probability 95 % no "
        f"more than {count(found['known_at_most'])} of them are."
        if found["rows"]
        else f"No list of unknown inputs can be given with at most {percent(found['level'], 0)} known ones on it: too few stand out, or there are too few known rows to compare with."
    ]
    if not section["groups"]:
        return [*words, "Too few inputs are likely unknown to form groups."]
    return [*words, *map(group_words, section["groups"])]


def group_words(group: Mapping[str, Any]) -> str:
    """Say what a group is."""
    size = group["size"]
    apart = ", ".join(
        f"{shortened(x['column'])} ({'+' * (x['shift'] > 0)}{fixed(x['shift'], 1)} sd)" for x in group["apart"]
    )
    return (
        f"About {count(round(size['estimate']))} unknown inputs ({count(round(size['low']))} to {count(round(size['high']))}) among {count(group['rows'])} that are alike: a new "
        f"class? {'Set apart by ' + apart + '. ' if apart else ''}The classifier would answer {shortened(group['answer'])} for {percent(group['answer_share'], 0)} of them."
    )
