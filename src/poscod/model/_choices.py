# SPDX-License-Identifier: BSD-3-Clause
"""A few other rules for the same r and g, each with what it is expected to do and the one change that gives it.

Convention: a change is an argument of `POSCOD.at`, or ``budget``, the argument of `POSCOD.budget`; numbers are round, because people type them. Nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from poscod.exceptions import PoscodError
from poscod.metrics import Interval
from poscod.model._estimates import Estimates, estimates_of, share_at_fit

ALPHAS = (0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0)
"""Values of alpha among which the first is looked for that catches errors."""


class Choice(NamedTuple):
    """A rule to choose: what to change (nothing for the rule as it is), why it is shown, and what it is expected to do."""

    change: dict[str, float]
    why: str
    estimates: Estimates


def choices_of(model: Any, level: float = 0.95) -> list[Choice]:
    """Return the rule as it is, and up to three others: another alpha, another required TPR, a budget."""
    prior = share_at_fit(model, level)
    own = estimates_of(model, level, prior)
    found = [Choice({}, "as it is", own)]
    alpha = _errors_caught(model, level, prior) if own.catches is False else _other_price(model, own, prior)
    if alpha is not None:
        found.append(alpha)
    tpr_min = model.rule_.problem.tpr_min or own.tpr.estimate
    # Twice as many known inputs to people; where that were more than half of them, half as many.
    tpr_min = _round(max(2.0 * tpr_min - 1.0, 0.0)) if tpr_min > 0.75 else _round((1.0 + tpr_min) / 2.0)
    rejected = 1.0 - own.reasons["accepted"]
    asked = [
        Choice({"tpr_min": 0.95 if tpr_min == 1.0 else tpr_min}, "known inputs answered", own),
        Choice({"budget": _round(rejected / 2.0) or 0.05}, "half of the work for people", own),
    ]
    for choice in asked:
        if (other := _changed(model, choice.change)) is not None:
            found.append(choice._replace(estimates=estimates_of(other, level, prior)))
    return found


def _errors_caught(model: Any, level: float, prior: Interval) -> Choice | None:
    """Return the largest alpha below the model's own with which more wrong answers are rejected than by chance."""
    alphas = [alpha for alpha in ALPHAS if alpha < model.rule_.problem.alpha]

    def estimates(alpha: float) -> Estimates | None:
        other = _changed(model, {"alpha": alpha})
        return None if other is None else estimates_of(other, level, prior)

    place = _first(len(alphas), lambda i: bool((found := estimates(alphas[i])) and found.catches))
    found = None if place is None else estimates(alphas[place])
    return (
        None
        if place is None or found is None
        else Choice({"alpha": alphas[place]}, "wrong answers begin to be caught", found)
    )


def _other_price(model: Any, own: Estimates, prior: Interval) -> Choice | None:
    """Return the alpha at which one accepted OOD input counts as one wrong answer, or as ten where it does about that already."""
    if own.free is None or own.price is None or not 0.0 < prior.estimate < 1.0:
        return None
    pi, tpr_min = prior.estimate, model.rule_.problem.tpr_min or 1.0
    price = 1.0 if not 0.5 < own.price.estimate < 2.0 else 10.0
    alpha = _round(price * pi / (price * pi + tpr_min * (1.0 - pi)))
    other = _changed(model, {"alpha": alpha})
    if other is None or not 0.0 < alpha < 1.0:
        return None
    words = "about one wrong answer" if price == 1.0 else "about ten wrong answers"
    return Choice({"alpha": alpha}, f"an unknown input counts as {words}", estimates_of(other, own.level, prior))


def _changed(model: Any, change: dict[str, float]) -> Any:
    """Return a model with another rule; None where its problem does not know the change, or nothing fulfils it."""
    try:
        return model.budget(change["budget"]) if "budget" in change else model.at(**change)
    except PoscodError:
        return None


def _first(n: int, holds: Callable[[int], bool]) -> int | None:
    """Return the first of n places at which something holds that goes on to hold; None where it does not at the last."""
    if not n or not holds(n - 1):
        return None
    low, high = 0, n - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _round(value: float) -> float:
    """Return a number with two digits."""
    return float(f"{value:.2g}")
