# SPDX-License-Identifier: BSD-3-Clause
"""What a rule achieves on fresh rows in chunks: the numbers and intervals of `POSCOD.evaluate`, from counts that add up.

Convention: rows are decided and judged by the model itself, on the workers; chunks return counts of accepted rows and of their
losses (`Tally`), and the formulas of the library do the rest. Rows must be fresh: rows that nothing was fitted on.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from poscod._comparison import Competitor, Measured, check_ratio, diagnosed, measured_of, own_rule
from poscod._evaluation import Evaluation, Tally, UnlabeledEvaluation, share_of, tally
from poscod._validation import Floats, check_number
from poscod.backends.dask._chunks import Chunks, as_labels, bring
from poscod.backends.dask._cluster import Cluster
from poscod.backends.dask._decide import decider, rows_for
from poscod.backends.dask._order import ends
from poscod.backends.dask._pieces import measure
from poscod.backends.dask._selector import acceptance
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.metrics import Interval
from poscod.ratio._diagnose import Diagnosis
from poscod.selector import CalibrationArrays


class Judged(NamedTuple):
    """What rules need of some rows.

    Attributes
    ----------
    risk, log_ratio : ndarray of shape (n,)
    loss : ndarray of shape (n,) or None
        Loss of the answers; None where labels are not known.
    """

    risk: Floats
    log_ratio: Floats
    loss: Floats | None


@dataclass(frozen=True, eq=False)
class ChunkedSample:
    """Fresh rows as a fitted model sees them, in chunks: `poscod._comparison.Sample` on a cluster.

    Parameters
    ----------
    groups : dict of str to Chunks
        Chunks of `Judged` under "id", "ood" and "unlabelled".
    prior : Interval or None
        Share of OOD inputs in the traffic.
    calibration : CalibrationArrays
        What thresholds are chosen on.
    alpha, level : float
    loss_values : ndarray
        Every value that the loss can have.
    cluster : Cluster
    """

    groups: dict[str, Chunks]
    prior: Interval | None
    calibration: CalibrationArrays
    alpha: float
    level: float
    loss_values: Floats
    cluster: Cluster

    @property
    def zero_one(self) -> bool:
        """Whether a mistake always costs 1."""
        return set(self.loss_values) <= {0.0, 1.0}

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each group."""
        return {name: len(rows) for name, rows in self.groups.items()}


def evaluate(
    model: POSCOD, X_id: Any, y_id: Any, X_ood: Any, *, level: float = 0.95, cluster: Cluster | None = None
) -> Evaluation:
    """Measure a rule on fresh labelled ID rows and clean OOD rows, as `POSCOD.evaluate` does.

    Parameters
    ----------
    model : POSCOD
        Fitted, in memory or on a cluster.
    X_id : dask DataFrame, dask Array of shape (n, d) or DaskActivations
        Of a frame the columns that the model was fitted on are used, or all where it knows no names.
    y_id : dask Array of shape (n,), dask Series or array-like
        Labels of X_id, in the order of the rows. They are brought to this process.
    X_ood : like X_id
    level : float in (0, 1), default=0.95
        Coverage of each interval.
    cluster : Cluster, default=None
        An open one; None opens one for this call.

    Returns
    -------
    evaluation : Evaluation
        TPR, FPR, selective risk and SCOD risk with intervals: of the same decisions the same numbers, to the last bit.

    Notes
    -----
    One pass over each table; a chunk returns two numbers and one count per value of the loss.
    """
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        sample = read_chunks(model, {"id": X_id, "ood": X_ood}, y_id, running, level=level, keep=False)
        found = measure_rule(own_rule(model), sample).with_ood
    assert found is not None
    return found


def evaluate_unlabeled(
    model: POSCOD,
    X_id: Any,
    y_id: Any,
    X_unlabeled: Any,
    *,
    pi: float | None = None,
    level: float = 0.95,
    cluster: Cluster | None = None,
) -> UnlabeledEvaluation:
    """Measure a rule without any OOD label, as `POSCOD.evaluate_unlabeled` does.

    Parameters
    ----------
    model : POSCOD
        Fitted, in memory or on a cluster.
    X_id : dask DataFrame, dask Array of shape (n, d) or DaskActivations
        Of a frame the columns that the model was fitted on are used, or all where it knows no names.
    y_id : dask Array of shape (n,), dask Series or array-like
        Labels of X_id, in the order of the rows. They are brought to this process.
    X_unlabeled : like X_id
        Traffic; not the rows the ratio was fitted on.
    pi : float in (0, 1], default=None
        Share of OOD inputs in this traffic where it is known; None estimates it here.
    level : float in (0, 1), default=0.95
        Coverage of each interval.
    cluster : Cluster, default=None
        An open one; None opens one for this call.

    Returns
    -------
    evaluation : UnlabeledEvaluation
        The numbers of one memory; see `poscod.POSCOD.evaluate_unlabeled`.

    Notes
    -----
    Where pi is estimated, r and log g of all rows stay in the memory of the workers, 16 bytes per row, for the passes that count
    (see `estimate_prior`). Otherwise one pass over each table.
    """
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        rows = {"id": X_id, "unlabelled": X_unlabeled}
        sample = read_chunks(model, rows, y_id, running, pi=pi, level=level, keep=pi is None)
        found = measure_rule(own_rule(model), sample).without
    assert found is not None
    return found


def read_chunks(
    model: POSCOD,
    rows: Mapping[str, Any],
    y: Any,
    cluster: Cluster,
    *,
    pi: float | None = None,
    level: float = 0.95,
    keep: bool = True,
) -> ChunkedSample:
    """Decide once on every group of rows, on the workers."""
    check_is_fitted(model, "threshold_")
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    pi = None if pi is None else check_number(pi, "pi", 0.0, 1.0, closed="right")
    slim, groups = decider(model), {}
    for name, X in rows.items():
        chunks = rows_for(model, X, f"X_{_ARGUMENTS[name]}", cluster)
        if not len(chunks):
            raise InvalidInputError(f"X_{_ARGUMENTS[name]} must have at least one row, got none.")
        if name == "id":
            labels = as_labels(y, cluster)
            if len(labels) != len(chunks):
                raise InvalidInputError(f"y must have as many rows as X ({len(chunks)}), got {len(labels)}.")
            parts = chunks.zipped(labels, cluster).map(_judged, slim)
        else:
            parts = chunks.map(_seen, slim)
        judged = Chunks(tuple(parts), tuple(n for n in chunks.lengths if n), None)
        groups[name] = judged.kept(cluster) if keep else judged
    prior = None
    if "unlabelled" in groups:
        prior = (
            _share(groups["id"], groups["unlabelled"], level, cluster) if pi is None else Interval(pi, pi, pi, level)
        )
    arrays = model._arrays(model.problem_)
    return ChunkedSample(groups, prior, arrays, model._alpha(), level, model._loss_values(), cluster)


def measure_rule(rule: Competitor, sample: ChunkedSample) -> Measured:
    """Measure a rule on fresh rows."""
    tallies = {
        name: sample.cluster.reduce(rows.map(_tally, rule, sample.loss_values), _sum, "counts")
        for name, rows in sample.groups.items()
    }
    return measured_of(tallies, sample)


def areas(rule: Competitor, sample: ChunkedSample, wanted: Mapping[str, dict[str, Any]]) -> dict[str, float]:
    """Compute metrics of a rule's score over all thresholds."""
    known, ood = sample.groups["id"], sample.groups.get("ood")
    pairs = Chunks(tuple(known.map(_pairs, rule)), known.lengths, None)
    other = None if ood is None else Chunks(tuple(ood.map(_scores, rule)), ood.lengths, None)
    return measure(pairs, other, wanted, sample.cluster)


def check_ratio_chunks(
    model: POSCOD, X_id: Any, y: Any, X_unlabeled: Any, cluster: Cluster, *, level: float = 0.95
) -> Diagnosis | None:
    """Check a model's g on the same few fresh rows as in one memory."""
    sides = []
    for X, name in ((X_id, "X_id"), (X_unlabeled, "X_unlabeled")):
        chunks = rows_for(model, X, name, cluster)
        picked = diagnosed(len(chunks))
        sides.append((bring(chunks.pick(picked, cluster), cluster, "rows to check"), picked))
    return check_ratio(model, sides[0][0], np.asarray(y)[sides[0][1]], sides[1][0], level=level)


_ARGUMENTS = {"id": "id", "ood": "ood", "unlabelled": "unlabeled"}


def _share(known: Chunks, traffic: Chunks, level: float, cluster: Cluster) -> Interval:
    """Estimate the OOD prior of fresh rows as `poscod._evaluation.estimate_share` does."""
    ratios = [Chunks(tuple(side.map(_log_ratio)), side.lengths, np.zeros(0)) for side in (known, traffic)]
    every = Chunks((*ratios[0].parts, *ratios[1].parts), (*known.lengths, *traffic.lengths), None)
    low, high = ends(every, cluster)
    few = min(len(known), len(traffic)) < 2
    return share_of(None if few or low == high else acceptance(ratios[0], ratios[1], cluster), level)


def _judged(pair: tuple[Any, Any], model: POSCOD) -> Judged:
    decisions, loss = model._judge(*pair)
    return Judged(decisions.risk, decisions.log_ratio, loss)


def _seen(rows: Any, model: POSCOD) -> Judged:
    decisions = model.decide(rows)
    return Judged(decisions.risk, decisions.log_ratio, None)


def _log_ratio(rows: Judged) -> Floats:
    return rows.log_ratio


def _scores(rows: Judged, rule: Competitor) -> Floats:
    return rule.score(rows)


def _pairs(rows: Judged, rule: Competitor) -> tuple[Floats, Floats | None]:
    return rule.score(rows), rows.loss


def _tally(rows: Judged, rule: Competitor, loss_values: Floats) -> Tally:
    return tally(rule.score(rows) <= rule.threshold, rows.loss, loss_values)


def _sum(parts: list[Tally]) -> Tally:
    return functools.reduce(operator.add, parts)
