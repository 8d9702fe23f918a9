# SPDX-License-Identifier: BSD-3-Clause
"""Metrics of scores in chunks, by counts that add up.

Convention: accept ``score <= threshold``; ties are accepted together. A point of a curve is exact; the area under one is exact up to
`EXACT_ROWS` scores and comes with bounds above.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod import metrics
from poscod._validation import check_number
from poscod.backends.dask._chunks import as_vector
from poscod.backends.dask._cluster import Cluster
from poscod.backends.dask._order import count_at_most, keys_of, order_statistics
from poscod.exceptions import InvalidInputError
from poscod.selector._threshold import tpr_rank

# Scores of both samples that are brought here: 8 bytes each.
EXACT_ROWS = 10_000_000
# Pieces of a histogram per pass.
PIECES = 2**16


class BoundedArea(NamedTuple):
    """An area and the bounds within which it is known.

    Attributes
    ----------
    value, low, high : float
        The area lies in [low, high]; value is the middle.
    """

    value: float
    low: float
    high: float


def auroc(score_id: Any, score_ood: Any, *, cluster: Cluster | None = None) -> BoundedArea:
    """Compute the share of (ID, OOD) pairs in the right order, ties counting one half, with bounds.

    Parameters
    ----------
    score_id, score_ood : dask Array of shape (m,) and (n,), or dask Series
        Uncertainties (higher = reject sooner).
    cluster : Cluster, default=None
        An open one; None opens one for this call.

    Returns
    -------
    area : BoundedArea
        Up to ten million scores together exactly `poscod.metrics.auroc`, with low = value = high. Above that from two histograms of
        the same cuts, which are quantiles of the ID scores: only pairs within one piece are unknown, so that high - low is
        about one over the number of pieces (65,536) where no score is tied, and the true value is inside for certain.
    """
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        known, other = as_vector(score_id, "score_id", running), as_vector(score_ood, "score_ood", running)
        m, n = len(known), len(other)
        if m == 0 or n == 0:
            raise InvalidInputError(f"score_id and score_ood must have at least one row, got {m} and {n}.")
        if m + n <= EXACT_ROWS:
            parts = running.collect([*known.map(np.asarray), *other.map(np.asarray)], "scores")
            split = sum(1 for length in known.lengths if length)
            value = metrics.auroc(np.concatenate(parts[:split]), np.concatenate(parts[split:]))
            return BoundedArea(value, value, value)
        ranks = np.unique(-(-m * np.arange(1, PIECES, dtype=np.int64) // PIECES))
        cuts = np.unique([s.value for s in order_statistics(known, ranks.tolist(), running, "score_id")])
        inside = [_histogram(chunks, cuts, running) for chunks in (known, other)]
    # A piece is a cut alone, or what lies between two cuts: pairs at one cut are ties, and known.
    below = np.concatenate([[0], np.cumsum(inside[0])[:-1]])
    sure = float(below @ inside[1]) + 0.5 * float(inside[0][1::2] @ inside[1][1::2])
    open_ = float(inside[0][::2] @ inside[1][::2])
    low, high = sure / m / n, (sure + open_) / m / n
    return BoundedArea((low + high) / 2.0, low, high)


def fpr_at_tpr(score_id: Any, score_ood: Any, *, tpr_min: float = 0.95, cluster: Cluster | None = None) -> float:
    """Compute the share of OOD rows accepted when at least tpr_min of the ID rows are, exactly.

    Parameters
    ----------
    score_id, score_ood : dask Array of shape (m,) and (n,), or dask Series
        Uncertainties.
    tpr_min : float in (0, 1], default=0.95
        Required share of ID rows accepted.
    cluster : Cluster, default=None
        An open one; None opens one for this call.

    Returns
    -------
    fpr : float
    """
    tpr_min = check_number(tpr_min, "tpr_min", 0.0, 1.0, closed="right")
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        known, other = as_vector(score_id, "score_id", running), as_vector(score_ood, "score_ood", running)
        if not len(other):
            raise InvalidInputError("score_ood must have at least one row, got none.")
        found = order_statistics(known, [tpr_rank(len(known), tpr_min)], running, "score_id")[0]
        return int(count_at_most(other, np.array([found.value]), running)[0]) / len(other)


def _histogram(chunks: Any, cuts: NDArray[np.float64], cluster: Cluster) -> NDArray[np.int64]:
    """Count scores below the first cut, at it, between it and the second, at that, and so on."""
    return np.asarray(cluster.reduce(chunks.map(_pieces, keys_of(cuts)), sum, "histogram"))


def _pieces(score: Any, cuts: NDArray[np.int64]) -> NDArray[np.int64]:
    keys = keys_of(score)
    left, right = (np.searchsorted(cuts, keys, side=side) for side in ("left", "right"))
    return np.bincount(left + right, minlength=2 * len(cuts) + 1).astype(np.int64)
