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
from poscod.review import StrangerGroup, rate_words, stranger_groups, strangers

LEVEL = 0.1
"""False discovery rate of the list whose length is said."""
_WORDS = {"X": "the log", "X_id": "the fresh rows", "model": "the model"}


def strangers_section(
    model: Any,
    X_unlabeled: Any,
    class_names: list[str],
    columns: Mapping[str, Any],
    limits: tuple[int, int],
    level: float,
    *,
    X_id: Any = None,
    times: Any = None,
) -> dict[str, Any] | None:
    """Return groups of likely unknown inputs and the length of a list of them, or why there are none; None without a ratio or without traffic. Limits: example rows, and their columns."""
    if model.scorer_.ratio is None or X_unlabeled is None:
        return None
    n_examples, max_columns = limits
    classes = model.scorer_.classes.tolist()
    fresh = [] if X_id is None or n_rows(X_id) < 2 else [X_id]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PoscodWarning)  # drift has a place of its own
        for known in (None, *fresh):
            try:
                found = strangers(model, X_unlabeled, LEVEL, X_id=known)
                break
            except InvalidInputError as error:
                refused = error.told(_WORDS)
        else:
            return {"refused": refused, "list": None, "groups": []}
        groups = stranger_groups(model, X_unlabeled, X_id=known, level=level, times=times)
    shown = dict(list(columns.items())[:max_columns])

    def told(group: StrangerGroup) -> dict[str, Any]:
        return {
            "rows": len(group),
            "size": group.size,
            "rate": group.rate,
            "period": group.period,
            "first": None if group.first is None else str(group.first),
            "last": None if group.last is None else str(group.last),
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


def strangers_page(section: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the templates of the section read."""
    return {"strangers": section, "strangers_words": strangers_words(section), "rate_words": rate_words}


def strangers_words(section: Mapping[str, Any] | None) -> list[str]:
    """Say what the section holds: first the list, then each group in a sentence."""
    if section is None:
        return []
    if "refused" in section:
        return [f"Nothing is said of groups: {section['refused']}"]
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
    size, often = group["size"], ""
    if group.get("rate") is not None:  # summaries of earlier versions have no rate
        often = f", {rate_words(group['rate']['estimate'], group['period'])}"
    when = f" They came from {group['first']} to {group['last']}." if group.get("first") else ""
    apart = ", ".join(
        f"{shortened(x['column'])} ({'+' * (x['shift'] > 0)}{fixed(x['shift'], 1)} sd)" for x in group["apart"]
    )
    return (
        f"About {count(round(size['estimate']))} unknown inputs ({count(round(size['low']))} to {count(round(size['high']))}) among {count(group['rows'])} that are alike{often}: a new "
        f"class? {'Set apart by ' + apart + '. ' if apart else ''}The classifier would answer {shortened(group['answer'])} for {percent(group['answer_share'], 0)} of them.{when}"
    )
