# SPDX-License-Identifier: BSD-3-Clause
"""What is counted: four ways to put every decision into exactly one cell.

Convention: bins are right-closed and fixed by a reference, so counts of any two workers can be added. Rejected rows are in the
last cell of "risk" and "label" and in the second half of "ratio"; the threshold is an edge of "score". So the share accepted
follows from any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.decision import REASONS, Decisions

Counts = NDArray[np.int64]
Codes = NDArray[np.int64]


class Cells(NamedTuple):
    """Borders of the cells.

    Attributes
    ----------
    score, ratio, risk : ndarray
        Edges between the bins of s, log g and r.
    classes : list
        Labels in the order of their cells.
    threshold : float
    """

    score: Floats
    ratio: Floats
    risk: Floats
    classes: list[Any]
    threshold: float


class Partition(NamedTuple):
    """One way to put decisions into cells.

    Attributes
    ----------
    code : callable (decisions, cells) -> cell of each decision
    rejected : callable cells -> whether each cell holds rejected rows; its length is the number of cells
    """

    code: Callable[[Decisions, Cells], Codes]
    rejected: Callable[[Cells], NDArray[np.bool_]]


def label_codes(labels: NDArray[Any], classes: Sequence[Any]) -> Codes:
    """Return the place of each label among the classes; the number of classes where it is unknown.

    Examples
    --------
    >>> label_codes(np.array(["b", "z"]), ["a", "b"]).tolist()
    [1, 2]
    """
    labels = np.asarray(labels)
    if labels.dtype == object:
        labels = np.array([_key(label) for label in labels.tolist()], dtype=str)
    distinct, inverse = np.unique(labels, return_inverse=True)
    # Through text: labels that went through CSV or JSON must meet those of the model.
    place = {_key(name): code for code, name in enumerate(classes)}
    found = [place.get(_key(name), len(classes)) for name in distinct.tolist()]
    return np.array(found, dtype=np.int64)[inverse.ravel()]


def _key(label: Any) -> str:
    whole = isinstance(label, (float, np.floating)) and label.is_integer()
    return str(int(label)) if whole else str(label)


def missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which labels are None, NaN, NaT or another mark of a gap.

    Examples
    --------
    >>> missing(np.array([0.0, None, float("nan"), "nan"], dtype=object)).tolist()
    [False, True, True, False]
    """
    gaps = ("None", "nan", "NaT", "<NA>")
    found = [not isinstance(label, str) and str(label) in gaps for label in labels.tolist()]
    return np.array(found, dtype=bool)


def _ratio(decisions: Decisions, cells: Cells) -> Codes:
    bins = np.searchsorted(cells.ratio, decisions.log_ratio, side="left")
    return np.where(decisions.accept, bins, bins + len(cells.ratio) + 1)


def _risk(decisions: Decisions, cells: Cells) -> Codes:
    bins = np.searchsorted(cells.risk, decisions.risk, side="left")
    return np.where(decisions.accept, bins, len(cells.risk) + 1)


def _label(decisions: Decisions, cells: Cells) -> Codes:
    return np.where(decisions.accept, label_codes(decisions.label, cells.classes), len(cells.classes) + 1)


def _last(n: int) -> NDArray[np.bool_]:
    return np.arange(n) == n - 1


_REASON_CODES = {name: code for code, name in enumerate(REASONS)}

PARTITIONS: dict[str, Partition] = {
    "score": Partition(
        lambda d, c: np.searchsorted(c.score, d.score, side="left"),
        lambda c: np.append(c.score, np.inf) > c.threshold,
    ),
    "ratio": Partition(_ratio, lambda c: np.arange(2 * (len(c.ratio) + 1)) > len(c.ratio)),
    "risk": Partition(_risk, lambda c: _last(len(c.risk) + 2)),
    "label": Partition(_label, lambda c: _last(len(c.classes) + 2)),
}
"""The partitions by name; every decision is in one cell of each."""


def count(decisions: Decisions, cells: Cells) -> dict[str, Counts]:
    """Count valid decisions in every partition."""
    return {
        name: np.bincount(p.code(decisions, cells), minlength=len(p.rejected(cells))).astype(np.int64)
        for name, p in PARTITIONS.items()
    }


def count_reasons(decisions: Decisions) -> Counts:
    """Count decisions by reason, in the order of `poscod.decision.REASONS`."""
    return np.array([int(np.sum(decisions.reason == name)) for name in _REASON_CODES], dtype=np.int64)


def quantile_edges(sample: Floats, other: Floats, bins: int, *, at: float | None = None) -> Floats:
    """Return edges that split two samples, weighed alike, into bins of about the same size."""
    levels = np.arange(1, bins) / bins
    edges = [np.quantile(part, levels, method="inverted_cdf") for part in (sample, other) if len(part)]
    joined = np.sort(np.concatenate(edges))[:: len(edges)]
    if at is not None:
        joined = np.append(joined, at)
    unique = np.unique(joined[np.isfinite(joined)])
    top = max(float(part.max()) for part in (sample, other) if len(part))
    return unique[(unique < top) | (unique == at)]
