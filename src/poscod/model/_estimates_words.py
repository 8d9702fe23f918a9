# SPDX-License-Identifier: BSD-3-Clause
"""What everybody says of a rule's expected work: one document with lines of text, for shell, report, service and notebooks.

Convention: intervals are in brackets, in the unit of the estimate. A doubt is a sentence that a user should act on.
"""

from __future__ import annotations

import math
from typing import Any

from poscod.metrics import Interval
from poscod.model._choices import Choice, choices_of
from poscod.model._estimates import PER, Estimates, estimates_of

OPTIONS = {"alpha": "--alpha", "tpr_min": "--tpr-min", "budget": "--budget"}
"""What the shell calls the changes that give other rules."""


# Where so few inputs are rejected that less than this share of the wrong answers could be among them, that is said.
HALF = 0.5


def estimates_document(model: Any, level: float = 0.95, prior: Interval | None = None) -> dict[str, Any]:
    """Return what a rule is expected to do as plain values, ready for JSON: `Estimates.to_dict`, a title, lines of text and doubts."""
    return document_of(estimates_of(model, level, prior), None)


def document_of(found: Estimates, choices: list[Choice] | None) -> dict[str, Any]:
    """Return the same of estimates; with other rules the doubt about errors that are not caught names the alpha that does."""
    lines = [{"name": name, "text": text} for name, text in estimates_lines(found)]
    return {**found.to_dict(), "title": title(found), "lines": lines, "doubts": doubts(found, choices)}


def choices_document(model: Any, level: float = 0.95) -> dict[str, Any]:
    """Return what a rule is expected to do, and under ``choices`` the same of a few others, each with the change and the option that give it."""
    choices = choices_of(model, level)
    return {
        **document_of(choices[0].estimates, choices),
        "choices": [
            {"change": c.change, "option": option_of(c), "why": c.why, **c.estimates.to_dict(), "cells": _cells(c)}
            for c in choices
        ],
    }


def option_of(choice: Choice) -> str:
    """Return the options of the shell that give a rule.

    Examples
    --------
    >>> option_of(Choice({"tpr_min": 0.9}, "", None))
    '--tpr-min 0.9'
    """
    return " ".join(f"{OPTIONS[name]} {value:g}" for name, value in choice.change.items()) or "as it is"


def title(found: Estimates) -> str:
    """Say where the numbers come from."""
    log = f" and {found.traffic_rows:,} rows of the log" if found.traffic_rows else ""
    seen = "" if found.unseen or not found.traffic_rows else ", which the ratio was fitted on"
    return f"Expected, from {found.rows:,} held-out labeled rows{log}{seen}; no OOD labels; {100 * found.level:g} % intervals in brackets"


def estimates_lines(found: Estimates) -> list[tuple[str, str]]:
    """Return names and texts of what a rule is expected to do."""
    free, name, most = found.free, *found.majority
    lines = [
        ("classifier right on known inputs", f"{share_text(found.accuracy)}; always '{name}': {100 * most:.1f} %"),
        ("known inputs answered (TPR)", share_text(found.tpr)),
    ]
    if free is not None:
        fpr = Interval(*free.fpr[:4])
        lines.append(
            (
                "unknown inputs answered (FPR)",
                share_text(fpr) if free.fpr.informative else f"not known: {free.fpr.reason}",
            )
        )
    lines.append(("wrong among answers to known inputs", share_text(found.error)))
    if not found.zero_one:
        lines.append(("mean loss of these answers", _ranged(found.selective_risk, "{:.3g}".format)))
    lines.append(("wrong answers caught", _caught(found)))
    lines.append((f"of {PER:,} such inputs", _work(found)))
    if (price := _price(found)) is not None:
        lines.append(("price", price))
    return lines


def doubts(found: Estimates, choices: list[Choice] | None = None) -> list[str]:
    """Return what speaks against using the model as it is."""
    said = []
    if found.trained_on:
        said.append("the labeled rows look like rows the classifier was trained on: every number here is too good.")
    if found.near_chance:
        name, most = found.majority
        said.append(
            f"the classifier is not shown to be better than chance: right on {share_text(found.accuracy)} of known inputs, and always answering '{name}' is on {100 * most:.1f} %. "
            "Check the target column and the features, or take another classifier."
        )
    if found.catches is False:
        ways = [c for c in choices or [] if "alpha" in c.change]
        what = (
            f"{option_of(ways[0])} is the largest at which errors begin to be caught"
            if ways
            else "a smaller alpha counts them more"
        )
        if choices is not None and not ways:
            what = "no smaller alpha changes that: the classifier does not know where it is wrong"
        most = (1.0 - found.tpr.estimate) / max(1.0 - found.accuracy.estimate, 1e-300)
        if most < HALF:
            what += f"; with so few inputs for people no rule can catch more than {100 * most:.0f} % of them, a smaller tpr_min can"
        said.append(
            f"the rule is not shown to catch wrong answers: of {found.wrong:,} it rejects {share_text(found.caught)}, of all known inputs {100 * (1 - found.tpr.estimate):.1f} %. "
            f"It rejects what is unfamiliar; {what}."
        )
    return said


def share_text(share: Interval) -> str:
    """Return a share with its interval.

    Examples
    --------
    >>> share_text(Interval(0.25, 0.2, 0.355, 0.9))
    '25.0 % [20.0, 35.5]'
    """
    if math.isnan(share.estimate):
        return "not known"
    return f"{100 * share.estimate:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def _ranged(value: Interval, text: Any) -> str:
    if math.isnan(value.estimate):
        return "not known"
    high = "any" if math.isinf(value.high) else text(value.high)
    return f"{text(value.estimate)} [{text(value.low)}, {high}]"


def _caught(found: Estimates) -> str:
    if not found.wrong:
        return f"there are none in {found.rows:,} rows"
    return f"{share_text(found.caught)} of {found.wrong:,}"


def _work(found: Estimates) -> str:
    work = {name: f"{value:,.0f}" for name, value in found.workload.items()}
    answered = f"{work['answered_wrongly']} of them wrongly"
    if not math.isnan(found.workload["answered_ood"]):
        ends = f"[{work['answered_ood_low']}, {work['answered_ood_high']}]"
        answered += f", {work['answered_ood']} {ends} of them unknown"
    reasons = ", ".join(f"{work[name]} {name}" for name in ("ambiguous", "unfamiliar", "both"))
    return f"{work['answered']} answered ({answered}), {work['rejected']} for people ({reasons})"


def _price(found: Estimates) -> str | None:
    """Say what the rule counts an accepted OOD input as."""
    if found.price is None:
        return None
    unit = "wrong answers" if found.zero_one else "units of the loss"
    one = "one unknown input answered counts as"
    if math.isinf(found.price.estimate):
        return f"only unknown inputs count: {one} any number of {unit}"
    paid = f"one known input sent to people as {found.reject_price:.2g}"
    return f"{one} {_ranged(found.price, '{:.2g}'.format)} {unit}, {paid}"


def _cells(choice: Choice) -> dict[str, str]:
    """Return a row of the table of choices."""
    found = choice.estimates
    free = found.free
    return {
        "option": option_of(choice),
        "known answered": share_text(found.tpr),
        "unknown answered": "not known" if free is None else share_text(Interval(*free.fpr[:4])),
        "wrong among answers": share_text(found.error),
        "wrong caught": share_text(found.caught) if found.wrong else "none there",
        f"for people of {PER:,}": f"{found.workload['rejected']:,.0f}",
    }
