# SPDX-License-Identifier: BSD-3-Clause
"""What people look at, and what their verdicts say: a part of the summary, and its words.

Convention: as everywhere in a summary nothing is formatted in `review_section`; the words below are for the page and for the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from poscod._validation import refusal
from poscod.labels import codes_of
from poscod.report._format import count, fixed, interval, percent
from poscod.review import QUANTITIES, Queue, assess
from poscod.verdict import NOT_REVIEWED, STRANGER, verdict_codes

_REASONS = {
    "ambiguous": "the classifier is likely wrong here",
    "unfamiliar": "unlike the training data",
    "both": "a bit doubtful and a bit unlike the training data",
}
_SHARES = ("ood_prior", "tpr", "fpr", "error")


def decision_words(answer: str, reason: str) -> str:
    """Return a decision in words.

    Examples
    --------
    >>> decision_words("cat", "unfamiliar")
    'rejected: unlike the training data (the answer would be cat)'
    """
    return (
        f"answered: {answer}"
        if reason == "accepted"
        else f"rejected: {_REASONS[reason]} (the answer would be {answer})"
    )


def review_section(
    model: Any,
    X: Any,
    queue: Queue,
    verdicts: Any,
    class_names: list[str],
    columns: Mapping[str, Any],
    why: Callable[[Any], list[str]],
    max_columns: int,
    level: float,
    missing: str = "worst",
) -> dict[str, Any]:
    """Return the rows of a queue as people look at them and, with verdicts, what these say of the rule."""
    if not isinstance(queue, Queue):
        raise refusal("review", "must be a Queue of poscod.review.queue, got {got}.", got=type(queue).__name__)
    classes = model.scorer_.classes
    answer = codes_of(classes, queue.answer)
    codes = None if verdicts is None else verdict_codes(verdicts, classes, "verdicts", len(queue), like="review")
    found = None if verdicts is None else assess(model, X, queue, verdicts, level=level, missing=missing)
    table = dict(list(columns.items())[:max_columns])
    said = {STRANGER: "ood", NOT_REVIEWED: None, **dict(enumerate(class_names))}
    rows = [
        {
            "row": int(row),
            "why": str(queue.why[i]),
            "answer": class_names[answer[i]],
            "accept": bool(queue.accept[i]),
            "reason": str(queue.reason[i]),
            "probability": float(queue.probability[i]),
            "verdict": None if codes is None else said[int(codes[i])],
            "cells": {key: values[row] for key, values in table.items()},
            "detail": detail,
        }
        for i, (row, detail) in enumerate(zip(queue.index, why(queue.index), strict=True))
    ]
    document = None if found is None else {**found.to_dict(), "fitted_with": model.rule_.verdicts}
    return {"rows": queue.n_rows, "queue": rows, "assessment": document}


def assessment_rows(assessment: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what verdicts say, a row a quantity: its name, the estimate and the interval."""
    rows = []
    for name, words in QUANTITIES.items():
        value, show = assessment[name], "percent" if name in _SHARES else "fixed"
        rows.append((words, (percent if show == "percent" else fixed)(value["estimate"]), interval(value, show)))
    return rows


def review_words(review: Mapping[str, Any] | None) -> list[str]:
    """Return what is to be known of the table and of the numbers."""
    if review is None:
        return []
    n = len(review["queue"])
    drawn = f"{count(n)} of {count(review['rows'])} rows of the traffic, part of them drawn at random and part where a look pays."
    if review["assessment"] is None:
        return [
            drawn,
            "No verdicts yet: write a class, or ood, beside each row of the queue, and the numbers of this rule on this traffic follow, whether or not "
            "the model is right.",
        ]
    return [drawn, assessed_words(review["assessment"])]


def assessed_words(assessment: Mapping[str, Any]) -> str:
    """Return from what the numbers come and what they mean."""
    left = assessment["missing"]
    without = f" ({count(left)} row{'s' * (left > 1)} of the queue without)" if left else ""
    used = assessment.get("fitted_with", 0)
    note = f" The model was fitted with {count(used)} verdicts: where they are these, the numbers are too good, and a new queue says more."
    return (
        f"By {count(assessment['reviewed'])} verdicts{without} on {count(assessment['rows'])} rows of this traffic; {percent(assessment['level'], 0)} intervals, "
        "which hold whether or not the model is right and whether or not inputs have moved." + note * (used > 0)
    )
