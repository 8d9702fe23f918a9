# SPDX-License-Identifier: BSD-3-Clause
"""What is counted: four ways to put every decision into exactly one cell.

Convention: bins are right-closed and fixed by a reference, so counts of any two workers can be added. Rejected rows are in the
last cell of "risk" and "label" and in the second half of "ratio"; the threshold is an edge of "score". So the share accepted
follows from any of them.
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
    accept = decisions.accept
    ratio = np.searchsorted(cells.ratio, decisions.log_ratio, side="left")
    risk = np.searchsorted(cells.risk, decisions.risk, side="left")
    return {
        "score": np.searchsorted(cells.score, decisions.score, side="left"),
        "ratio": np.where(accept, ratio, ratio + len(cells.ratio) + 1),
        "risk": np.where(accept, risk, len(cells.risk) + 1),
        "label": np.where(accept, label_codes(decisions.label, cells.classes), len(cells.classes) + 1),
    }


def rejected(cells: Cells) -> dict[str, NDArray[np.bool_]]:
    """Return which cells hold rejected rows, by partition; as many as there are cells."""
    risk, label = len(cells.risk) + 2, len(cells.classes) + 2
    return {
        "score": np.append(cells.score, np.inf) > cells.threshold,
        "ratio": np.arange(2 * (len(cells.ratio) + 1)) > len(cells.ratio),
        "risk": np.arange(risk) == risk - 1,
        "label": np.arange(label) == label - 1,
    }


def count(decisions: Decisions, cells: Cells) -> dict[str, Counts]:
    """Count valid decisions in every partition."""
    sizes = rejected(cells)
    return {
        name: np.bincount(code, minlength=len(sizes[name])).astype(np.int64)
        for name, code in codes(decisions, cells).items()
    }


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
