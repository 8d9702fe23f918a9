# SPDX-License-Identifier: BSD-3-Clause
"""All areas and points of one score at once: `METRICS` on counts from one sort.

Convention: a field is what the function of its name returns with its defaults and the alpha and tpr_min given here, to the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from poscod._validation import check_number
from poscod.metrics._counts import Counts, Ranking, check_sample, is_defined, rank
from poscod.metrics._values import METRICS, first_reaching


class Summary(NamedTuple):
    """Areas and points of a score.

    Attributes
    ----------
    augrc, aupr, aurc, auroc, ausrt, oscr : float
        Areas over all thresholds.
    fpr_at_tpr, fpr_at_tpr_ood_positive, scod_risk : float
        Points under TPR >= tpr_min.
    threshold, tpr, selective_risk : float
        The point of `scod_curve` with the smallest TPR >= tpr_min, which is the one of `fpr_at_tpr`.
    """

    augrc: float
    aupr: float
    aurc: float
    auroc: float
    ausrt: float
    fpr_at_tpr: float
    fpr_at_tpr_ood_positive: float
    oscr: float
    scod_risk: float
    threshold: float
    tpr: float
    selective_risk: float


def summary(
    score_id: Any,
    loss_id: Any,
    score_ood: Any,
    *,
    alpha: float = 0.5,
    tpr_min: float = 0.95,
    weight_id: Any = None,
    weight_ood: Any = None,
) -> Summary:
    """Compute all areas and points of a score from one sort.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Uncertainty of the ID rows (higher = reject sooner).
    loss_id : array-like of shape (m,)
        Loss of the classifier on the ID rows; for `oscr` a row is right iff its loss is zero.
    score_ood : array-like of shape (n,)
        Uncertainty of the OOD rows.
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input, for `ausrt` and `scod_risk`.
    tpr_min : float in (0, 1], default=0.95
        Required share of ID rows accepted; for `fpr_at_tpr_ood_positive`, of OOD rows rejected.
    weight_id, weight_ood : array-like of shape (m,) and (n,), default=None
        Sample weights.

    Returns
    -------
    summary : Summary
        Named tuple; each field equals what the function of its name returns. What is undefined without ID or OOD rows is NaN,
        and one warning names it.

    Examples
    --------
    >>> values = summary([0.1, 0.2, 0.4, 0.6], [0, 0, 1, 1], [0.3, 0.5], alpha=0.25, tpr_min=0.75)
    >>> values.auroc, values.scod_risk
    (0.625, 0.375)
    >>> values.threshold, values.tpr, values.fpr_at_tpr
    (0.4, 0.75, 0.5)
    """
    alpha = check_number(alpha, "alpha", 0.0, 1.0)
    tpr_min = check_number(tpr_min, "tpr_min", 0.0, 1.0, closed="right")
    score_id, loss, score_ood, weight_id, weight_ood = check_sample(score_id, loss_id, score_ood, weight_id, weight_ood)
    assert loss is not None  # it was given, or refused
    ranking = rank(score_id, score_ood, order_ood=weight_ood is not None)
    counts = ranking.counts(loss, weight_id, weight_ood)
    params = {
        "ausrt": {"alpha": alpha},
        "fpr_at_tpr": {"tpr_min": tpr_min},
        "fpr_at_tpr_ood_positive": {"tpr_min": tpr_min},
        "scod_risk": {"alpha": alpha, "tpr_min": tpr_min},
    }
    # OOD rows that cost nothing need not exist.
    free = {name for name in params if alpha == 0.0 and "alpha" in params[name]}
    selective = [name for name, metric in METRICS.items() if "score_ood" not in metric.inputs]
    undefined = [name for name in METRICS if counts.total_id == 0 or name not in {*free, *selective}]
    if is_defined(counts, f"each of {', '.join(undefined)}"):
        undefined = []
    values = dict.fromkeys(Summary._fields, float("nan"))
    if counts.total_id == 0:
        return Summary(**values)
    of_id = _at_id_rows(ranking, counts)
    for name in selective:
        values[name] = METRICS[name].of_counts(of_id)
    del of_id  # little memory is quick memory
    for name in METRICS.keys() - {*selective, *undefined}:
        metric, of_both = METRICS[name], counts
        if metric.prepare_loss is not None and not np.array_equal(prepared := metric.prepare_loss(loss), loss):
            of_both = ranking.counts(prepared, weight_id, weight_ood)
        values[name] = metric.of_counts(of_both, **params.get(name, {}))
    first = first_reaching(counts, tpr_min)
    values["threshold"] = float(counts.threshold[first])
    values["tpr"] = float(counts.n_id[first] / counts.total_id)
    values["selective_risk"] = float(counts.loss[first] / counts.n_id[first])
    return Summary(**values)


def _at_id_rows(ranking: Ranking, counts: Counts) -> Counts:
    """Leave out thresholds that are no ID row's: what counting the ID rows alone gives, so that sums have its order."""
    ranks = ranking.rank_id
    at = np.flatnonzero(np.append(ranks[:1] > 0, ranks[1:] > ranks[:-1]))
    return counts._replace(
        n_id=counts.n_id[at], loss=counts.loss[at], threshold=counts.threshold[at], n_ood=counts.n_ood[at]
    )
