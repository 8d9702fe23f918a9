# SPDX-License-Identifier: BSD-3-Clause
"""What is counted: four ways to put every decision into exactly one cell.

Convention: bins are right-closed and fixed by a reference, so counts of any two workers can be added. Cells of "score", "ratio" and "risk" are
bins by answers, `bin * (K + 1) + answer`, where the answer K is one that the reference does not know: answers tell classes apart, so that another class mix
can be told from other inputs. Rejected rows have the last bin of "risk", the second half of the bins of "ratio" and the bins of "score" above the threshold, and
the last cell of "label".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.decision import Decisions

Counts = NDArray[np.int64]
Codes = NDArray[np.int64]
JOINT = ("score", "ratio", "risk")
"""Partitions into bins by answers; a window leaves most of their cells empty."""
MOST_CELLS = 2000
"""Bins by answers that a partition may have, about: many classes leave few bins."""


class Cells(NamedTuple):
    """Borders of the cells.

    Attributes
    ----------
    score, ratio, risk : ndarray
        Edges between the bins of s, log g and r.
    classes : list
        Labels in the order of their cells.
    threshold : float
        Where the score is cut; an edge of its bins.
    """

    score: Floats
    ratio: Floats
    risk: Floats
    classes: list[Any]
    threshold: float


class Layout(NamedTuple):
    """What the cells of a partition hold.

    Attributes
    ----------
    rejected : ndarray of bool
        Whether their rows were rejected.
    answer : ndarray of int
        The answer of their rows; K where it is unknown or not counted.
    """

    rejected: NDArray[np.bool_]
    answer: Codes


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


def codes(decisions: Decisions, cells: Cells) -> dict[str, Codes]:
    """Return the cell of each decision, by partition."""
    accept, k = decisions.accept, len(cells.classes)
    answer = label_codes(decisions.label, cells.classes)
    bins = {
        "score": np.searchsorted(cells.score, decisions.score, side="left"),
        "ratio": np.searchsorted(cells.ratio, decisions.log_ratio, side="left") + (len(cells.ratio) + 1) * ~accept,
        "risk": np.where(accept, np.searchsorted(cells.risk, decisions.risk, side="left"), len(cells.risk) + 1),
    }
    return {name: code * (k + 1) + answer for name, code in bins.items()} | {"label": np.where(accept, answer, k + 1)}


def layouts(cells: Cells) -> dict[str, Layout]:
    """Return what the cells hold, by partition."""
    k, above = len(cells.classes), len(cells.ratio) + 1
    bins = {
        "score": np.append(cells.score, np.inf) > cells.threshold,
        "ratio": np.arange(2 * above) >= above,
        "risk": np.arange(len(cells.risk) + 2) > len(cells.risk),
    }
    out = {
        name: Layout(np.repeat(rejected, k + 1), np.tile(np.arange(k + 1), len(rejected)))
        for name, rejected in bins.items()
    }
    return out | {"label": Layout(np.arange(k + 2) > k, np.minimum(np.arange(k + 2), k))}


def count(decisions: Decisions, cells: Cells) -> dict[str, Counts]:
    """Count valid decisions in every partition."""
    sizes = layouts(cells)
    return {
        name: np.bincount(code, minlength=len(sizes[name].answer)).astype(np.int64)
        for name, code in codes(decisions, cells).items()
    }


def count_by_class(decisions: Decisions, truth: Codes, cells: Cells) -> dict[str, Counts]:
    """Count decisions on ID rows in every partition, class by class: one row of counts for each."""
    k, sizes = len(cells.classes), layouts(cells)
    out = {}
    for name, code in codes(decisions, cells).items():
        size = len(sizes[name].answer)
        out[name] = np.bincount(truth * size + code, minlength=k * size).reshape(k, size).astype(np.int64)
    return out


def sparse(counts: Counts) -> dict[str, list[int]]:
    """Return counts as JSON types: cells that hold rows, and how many.

    Examples
    --------
    >>> sparse(np.array([[0, 3], [0, 1]]))
    {'cells': [1, 3], 'rows': [3, 1]}
    """
    flat = counts.ravel()
    cells = np.flatnonzero(flat)
    return {"cells": cells.tolist(), "rows": flat[cells].tolist()}


def read_counts(values: Any, length: int) -> Counts:
    """Read a vector of counts."""
    if not isinstance(values, list) or len(values) != length or not all(type(v) is int and v >= 0 for v in values):
        raise ValueError(f"expected {length} whole numbers >= 0")
    return np.array(values, dtype=np.int64)


def read_sparse(document: Any, shape: tuple[int, ...]) -> Counts:
    """Read what `sparse` has written."""
    cells, rows = document["cells"], document["rows"]
    whole = all(isinstance(part, list) and all(type(v) is int for v in part) for part in (cells, rows))
    counts = np.zeros(int(np.prod(shape)), dtype=np.int64)
    if not whole or len(cells) != len(set(cells)) or len(cells) != len(rows) or min(rows, default=1) < 0:
        raise ValueError("expected different cells, and a whole number >= 0 of rows for each")
    if cells and not 0 <= min(cells) <= max(cells) < len(counts):
        raise ValueError(f"expected cells below {len(counts)}")
    counts[cells] = rows
    return counts.reshape(shape)


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
