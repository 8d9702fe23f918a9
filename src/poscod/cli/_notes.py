# SPDX-License-Identifier: BSD-3-Clause
"""What ``poscod fit`` has to say about the tables and about g beside its numbers: doubts, and what to do about each.

Convention: a note is one or two sentences that name the user's columns, rows and options; no note is said without a measured reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod.cli._columns import Column
from poscod.cli._console import percent
from poscod.metrics import auroc
from poscod.model import Schema, share_at_fit

SEPARATES = 0.98
"""AUROC of one column between the two tables from which on it is named.

Strangers alone reach it only where they are nearly all of the traffic: with a share pi of them, AUROC is at most
(1 + pi) / 2, and 0.98 takes pi = 0.96.
"""
NEARLY_ALL = 0.8
"""Estimated OOD share from which on something else than strangers is likely."""
# Values of a column that are compared: enough for two decimals of AUROC.
_COMPARED = 10_000


def column_notes(
    known: Mapping[str, NDArray[Any]], traffic: Mapping[str, NDArray[Any]], names: Iterable[str]
) -> list[str]:
    """Name columns that count rows, or that tell the labeled rows from the traffic by themselves.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> known = {"day": rng.uniform(0, 30, 100), "size": rng.normal(0, 1, 100)}
    >>> traffic = {"day": rng.uniform(30, 60, 100), "size": rng.normal(1, 1, 100)}
    >>> [note[:39] for note in column_notes(known, traffic, known)]
    ["column 'day' alone tells the labeled ro"]
    """
    notes = []
    for name in names:
        both = known[name], traffic[name]
        if any(column.ndim > 1 or column.dtype.kind not in "fiub" for column in both):
            continue
        values, other = (_some(column[~np.isnan(column)]) for column in (side.astype(np.float64) for side in both))
        if not len(values) or not len(other):
            continue
        apart = values.max() < other.min() or other.max() < values.min()
        area = 1.0 if apart else auroc(values, other)
        if (area := max(area, 1.0 - area)) >= SEPARATES:
            why = "its values do not overlap" if apart else f"AUROC {area:.3f}"
            doubt = f"alone tells the labeled rows from the traffic ({why}): a row number or a time?"
        elif all(_counts_rows(column) for column in both):
            doubt = "counts the rows of both tables: a row number?"
        else:
            continue
        option = shlex.quote(name)
        notes.append(f"column '{name}' {doubt} --row-id {option} or --exclude {option} leaves it out.")
    return notes


def _some(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every k-th value, with the least and the greatest."""
    stride = -(-len(values) // _COMPARED)
    return values if stride == 1 else np.r_[values[::stride], values.min(), values.max()]


def _counts_rows(values: NDArray[Any]) -> bool:
    """Tell whether every value is the one before and the same step."""
    steps = np.diff(values.astype(np.float64))
    return len(steps) > 1 and steps[0] != 0 and bool((steps == steps[0]).all())


def list_notes(schema: Schema, labeled: Mapping[str, Column], unlabeled: Mapping[str, Column]) -> list[str]:
    """Say where columns of lists are left out that would help, or are taken for features and look like logits."""
    lists = [column for name, column in labeled.items() if column.kind == "matrix" and name in unlabeled]
    notes = []
    for name, _, width, _ in lists:
        option = shlex.quote(name)
        if schema.logits and not schema.features and name not in schema.logits:
            size = f"lists of {width} numbers" if width else "lists of numbers"
            notes.append(f"column '{name}' ({size}) is not used: --embedding {option} makes the ratio stronger.")
        elif not schema.logits and name in schema.features and "logit" in name.lower():
            notes.append(f"column '{name}' is used as features. A classifier's own outputs? Then --logits {option}.")
    return notes


def share_notes(model: Any, held: float | str, n_labeled: int) -> list[str]:
    """Say what is doubtful about the estimated OOD share; more is checked by `poscod evaluate` on fresh traffic."""
    ratio = model.scorer_.ratio
    if ratio is None:
        return []
    if not getattr(ratio, "gate_open_", True):
        if not isinstance(held, float) or model.scorer_.network:
            return []  # it sees all of them, or as many as there can be
        seen = round(n_labeled * held / 2)
        return [f"the ratio sees about {seen:,} of your {n_labeled:,} labeled rows; --calibration auto gives it more."]
    if model.calibration_.drift is not None:  # of which the story speaks
        return []
    _, low, high, _ = share_at_fit(model)
    if model.calibration_.ood_prior > NEARLY_ALL and low > 0.0:
        return [
            "nearly all traffic is called OOD: something other than strangers differs between the two tables; see "
            "docs/what-can-go-wrong.md."
        ]
    if low == 0.0:
        return [
            "the share is uncertain (its interval starts at 0); the rule is used all the same. More rows narrow it: "
            "docs/how-much-data.md."
        ]
    if high - low > 0.5:
        return [f"the share of OOD inputs is hardly known ({percent(low)} to {percent(high)}): add unlabeled rows."]
    return []
