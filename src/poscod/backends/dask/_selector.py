# SPDX-License-Identifier: BSD-3-Clause
"""The threshold lambda and the OOD prior of scores in chunks: exact, with the formulas of the library.

Convention: what a formula needs of the scores are counts and order statistics; passes over the chunks find them, and the functions of
`poscod.selector` and `poscod.ratio` do the rest.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from poscod._validation import Floats, check_choice, check_number, check_vector
from poscod.backends.dask._chunks import Chunks, as_vector
from poscod.backends.dask._cluster import Cluster
from poscod.backends.dask._order import count_at_most, order_statistics, weighted_statistic
from poscod.exceptions import InvalidInputError
from poscod.ratio import PRIORS
from poscod.ratio._prior import Acceptance, cut_ranks
from poscod.selector._guarantee import GuaranteedThreshold, guarantee_from_counts, guaranteed_rank
from poscod.selector._threshold import Threshold, threshold_from_counts, tpr_rank


def tpr_threshold(score_id: Any, tpr_min: float, *, weight: Any = None, cluster: Cluster | None = None) -> Threshold:
    """Choose lambda and tau as `poscod.selector.tpr_threshold` does, from scores in chunks.

    Parameters
    ----------
    score_id : dask Array of shape (m,) or dask Series
        Rejection scores of ID rows that nothing was fitted on; infinities are allowed.
    tpr_min : float in (0, 1]
        Required share.
    weight : dask Array of shape (m,) or dask Series, default=None
        Sample weights, in the same chunks.
    cluster : Cluster, default=None
        An open one; None opens one for this call.

    Returns
    -------
    threshold : Threshold
        The same numbers as in one memory, to the last bit; with weights the same threshold, and shares to rounding.
    """
    tpr_min = check_number(tpr_min, "tpr_min", 0.0, 1.0, closed="right")
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        scores = _scores(score_id, "score_id", running)
        if weight is not None:
            weights = _scores(weight, "weight", running)
            if weights.lengths != scores.lengths or not len(scores):
                raise InvalidInputError(
                    f"weight must have the rows of score_id in the same chunks, and at least one, got {weights.lengths} and "
                    f"{scores.lengths}."
                )
            value, sums = weighted_statistic(scores.paired(weights), tpr_min, running, "score_id")
            return threshold_from_counts(value, float(sums[0]), float(sums[1]), float(sums[2]), tpr_min)
        found = order_statistics(scores, [tpr_rank(len(scores), tpr_min)], running, "score_id")[0]
    return threshold_from_counts(found.value, float(found.below), float(found.tied), float(len(scores)), tpr_min)


def guaranteed_threshold(
    score_id: Any, tpr_min: float, *, delta: float = 0.05, cluster: Cluster | None = None
) -> GuaranteedThreshold:
    """Choose lambda as `poscod.selector.guaranteed_threshold` does, from scores in chunks.

    Parameters
    ----------
    score_id : dask Array of shape (m,) or dask Series
        Rejection scores of ID rows that nothing was fitted or tuned on.
    tpr_min : float in (0, 1]
        Required share of fresh ID inputs.
    delta : float in (0, 1), default=0.05
        Probability that the promise is broken.
    cluster : Cluster, default=None
        An open one; None opens one for this call.

    Returns
    -------
    threshold : GuaranteedThreshold
        The same numbers as in one memory, to the last bit.
    """
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        scores = _scores(score_id, "score_id", running)
        rank = guaranteed_rank(len(scores), tpr_min, delta=delta)
        found = order_statistics(scores, [rank], running, "score_id")[0]
    return guarantee_from_counts(found.value, found.below + found.tied, len(scores), rank, tpr_min)


def estimate_prior(
    score_id: Any, score_unlabeled: Any, method: str = "mean", *, cluster: Cluster | None = None
) -> float:
    """Estimate the share of OOD rows as `poscod.ratio.estimate_prior` does, from scores in chunks.

    Parameters
    ----------
    score_id, score_unlabeled : dask Array of shape (m,) and (n,), or dask Series
        Out-of-sample uncertainties.
    method : {"mean", "bbe", "lcb_grid", "blanchard", "scott"}, default="mean"
        Key of `poscod.ratio.PRIORS`.
    cluster : Cluster, default=None
        An open one; None opens one for this call.

    Returns
    -------
    pi : float in [0, 1]
        The same number as in one memory: thresholds and counts are exact.
    """
    rule = check_choice(method, "method", PRIORS)
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        return rule(acceptance(score_id, score_unlabeled, running))


def acceptance(score_id: Any, score_unlabeled: Any, cluster: Cluster) -> Acceptance:
    """Return T and A at the thresholds of `poscod.ratio`, from counting passes."""
    known = _scores(score_id, "score_id", cluster)
    mixture = _scores(score_unlabeled, "score_unlabeled", cluster)
    m, n = len(known), len(mixture)
    if m == 0 or n == 0:
        raise InvalidInputError(f"score_id and score_unlabeled must have at least one row, got {m} and {n}.")
    found = order_statistics(known, [int(rank) for rank in cut_ranks(m)], cluster, "score_id")
    at_most = {statistic.value: statistic.below + statistic.tied for statistic in found}
    cuts = np.array(sorted(at_most))
    tpr = np.array([at_most[cut] for cut in cuts.tolist()]) / m
    accepted = count_at_most(mixture, cuts, cluster)
    above = float(cuts[-1])
    if accepted[-1] < n:
        above = cluster.reduce(mixture.map(_sum_above, above), sum, "scores beyond") / int(n - accepted[-1])
    return Acceptance(tpr, accepted / n, float(m), float(n), cuts, float(above))


def _scores(values: Any, name: str, cluster: Cluster) -> Chunks:
    return as_vector(values, name, cluster)


def _sum_above(score: Any, cut: float) -> float:
    values: Floats = check_vector(score, "score")
    return float(values[values > cut].sum())
