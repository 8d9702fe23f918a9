# SPDX-License-Identifier: BSD-3-Clause
"""POSCOD on rows in chunks: the steps of `POSCOD.fit`, each a pass or a few, with the same split of the rows.

Convention: what is fitted here is a plain `POSCOD`. Labels come to this process (the split is drawn from them as in one memory); rows do
so only where a sample of stated size was asked for, and as the few rows that a model keeps to set other thresholds.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from poscod._fitting import (
    _TRAFFIC_ROWS,
    Calibration,
    Labelled,
    NoUnlabeledDataWarning,
    _fit_classifier,
    _mean_one,
    _shares,
    label_rows,
    log_ratio_of,
)
from poscod._inputs import NetworkHead, _numbers, has_features, logits_of, view
from poscod._validation import Floats, check_count, check_labels
from poscod.activations import Activations
from poscod.backends.dask._chunks import Chunks, as_chunks, as_labels, bring, draw, spread
from poscod.backends.dask._cluster import Cluster
from poscod.backends.dask._decide import decider
from poscod.backends.dask._ratio import check_sampled, fit_linear, is_linear, sampled
from poscod.backends.dask._selector import guaranteed_threshold, tpr_threshold
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.problem import ScodProblem
from poscod.ratio import CorrectedSigmoid
from poscod.risk import TemperatureWarning
from poscod.risk._temperature import centre, slope_sum, temperature_of


class _Split(NamedTuple):
    """Rows by their use; codes are true class indices of the labelled rows among them."""

    train: NDArray[np.intp]
    inside: Chunks
    inside_codes: NDArray[np.int64]
    outside: Chunks
    outside_codes: NDArray[np.int64]
    traffic: Chunks | None
    weights: _Weights


class _Weights(NamedTuple):
    """Sample weights of rows by their use; None counts every row once."""

    inside: Floats | None
    outside: Floats | None
    traffic: Floats | None


def fit(
    model: POSCOD,
    X: Any,
    y: Any,
    X_unlabeled: Any = None,
    sample_weight: Any = None,
    *,
    cluster: Cluster | None = None,
    sample_rows: int | None = None,
    keep_rows: int = 100_000,
    persist: bool = False,
) -> POSCOD:
    """Fit `POSCOD` on rows in chunks.

    Parameters
    ----------
    model : POSCOD
        What to fit. Its classifier is `FrozenEstimator` of a fitted one (None with DaskActivations), and its ratio
        ``CorrectedSigmoid(recipe="paper")`` with a fixed l2, unless `sample_rows` is given.
    X : dask Array of shape (n, d), dask DataFrame or DaskActivations
        Labelled rows; rows whose label is -1 are the unlabelled traffic.
    y : dask Array of shape (n,), dask Series or array-like
        Labels, in the order of the rows. They are brought to this process.
    X_unlabeled : like X, default=None
        The traffic, where it is not marked in y.
    sample_weight : dask Array of shape (n,), dask Series or array-like, default=None
        Weights of the rows of X, in their order. They are brought to this process.
    cluster : Cluster, default=None
        An open one; None opens one for this call.
    sample_rows : int, default=None
        Classifiers and ratios that need their rows in one memory are fitted on so many rows of each kind, drawn at random; all where
        there are no more. None refuses such parts.
    keep_rows : int, default=100000
        ID rows whose logits and log-ratio the model keeps, to set other thresholds later (`POSCOD.at`). The threshold itself is
        always set on all held-out rows.
    persist : bool, default=False
        Read the rows once and hold them in the memory of the workers, instead of reading them in every pass.

    Returns
    -------
    model : POSCOD
        A fitted clone, to be used and saved without a cluster.

    Notes
    -----
    With the same random_state the rows are split as by `POSCOD.fit` on the same rows in the same order, and theta, pi, temperature
    and threshold agree with it to rounding.
    """
    fitted: POSCOD = clone(model)
    problem = ScodProblem(fitted.alpha, fitted.tpr_min, fitted.loss)
    share = fitted._calibration()
    if not isinstance(share, float):
        raise InvalidInputError(
            f"calibration must be a share of the rows on a cluster, got {share} folds: rows are plenty, hold some out."
        )
    check_count(keep_rows, "keep_rows")
    if sample_rows is not None:
        check_count(sample_rows, "sample_rows")
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        rows = as_chunks(X, "X", running)
        traffic = None if X_unlabeled is None else as_chunks(X_unlabeled, "X_unlabeled", running)
        if persist:
            rows, traffic = rows.kept(running), None if traffic is None else traffic.kept(running)
        network = isinstance(rows.like, Activations)
        if not network:
            validate_data(fitted, rows.like, skip_check_array=True)
            if traffic is not None:
                validate_data(fitted, traffic.like, reset=False, skip_check_array=True)
        template = fitted._template(rows.like)
        ratio = CorrectedSigmoid() if fitted.ratio is None else fitted.ratio
        labels = as_labels(y, running)
        places = np.arange(0 if traffic is None else max(1, len(traffic)))
        known, marked, fitted.classes_ = label_rows(
            np.arange(len(rows)),
            labels,
            None if traffic is None else places,
            None if sample_weight is None else as_labels(sample_weight, running),
        )
        if fitted.threshold == "guaranteed" and known.weight is not None:
            raise InvalidInputError("threshold='guaranteed' takes no sample_weight: a guarantee counts rows.")
        if network:
            fitted.classes_ = np.arange(rows.like.n_classes)
            known = known._replace(codes=check_labels(known.y, "y", len(fitted.classes_)))
        problem.loss_matrix(len(fitted.classes_))
        if marked is None:
            warnings.warn(
                "No unlabelled rows were given, so the ratio g cannot be learned and the rule uses the conditional risk alone: "
                "pass X_unlabeled or mark rows of y with -1.",
                NoUnlabeledDataWarning,
                stacklevel=2,
            )
        elif not is_linear(ratio):
            check_sampled(ratio, sample_rows)
        rng = check_random_state(fitted.random_state)
        frozen = isinstance(template, (FrozenEstimator, NetworkHead))
        if not frozen and sample_rows is None:
            raise InvalidInputError(
                "classifier must be fitted already, as FrozenEstimator(fitted) or as logits in DaskActivations: pass one, or "
                "sample_rows to train it on a random sample."
            )
        train, inside, outside = _shares(known.codes, 1.0 if frozen else share, rng)
        split = _Split(
            known.X[train],
            rows.pick(known.X[inside], running),
            known.codes[inside],
            rows.pick(known.X[outside], running),
            known.codes[outside],
            None if marked is None else traffic if traffic is not None else rows.pick(marked, running),
            _Weights(
                None if known.weight is None else _mean_one(known.weight[inside]),
                None if known.weight is None else known.weight[outside],
                None if known.traffic_weight is None else _mean_one(known.traffic_weight),
            ),
        )
        seed = int(rng.randint(2**31 - 1))
        fitted.classifier_ = _classifier(
            template, rows, known, train, fitted.classes_, (sample_rows or 0, seed), running
        )
        return _fit_parts(fitted, ratio, problem, rows, split, (sample_rows, keep_rows, seed), running)


def _fit_parts(
    fitted: POSCOD,
    ratio: Any,
    problem: ScodProblem,
    rows: Chunks,
    split: _Split,
    sizes: tuple[int | None, int, int],
    cluster: Cluster,
) -> POSCOD:
    """Fit temperature, ratio and threshold around a classifier."""
    classifier = fitted.classifier_
    sample_rows, keep_rows, seed = sizes
    tables = [rows] if split.traffic is None else [rows, split.traffic]
    numbers = [part for table in tables for part in table.map(_has_features, classifier)]
    features = bool(cluster.reduce(numbers, all, "features"))
    fitted.uses_features_ = features
    fitted.temperature_ = _temperature(split.inside, split.inside_codes, classifier, cluster)
    fitted.ratio_ = None
    if split.traffic is not None and is_linear(ratio) and sample_rows is None:
        sides = [_matrices(side, classifier, features) for side in (split.inside, split.traffic)]
        width, dtype = cluster.collect(sides[0].map(_kind)[:1], "columns")[0]
        columns = {"features": width, "logits": len(fitted.classes_)}
        weights = split.weights.inside, split.weights.traffic
        fitted.ratio_ = fit_linear(ratio, sides[0], sides[1], columns, dtype, cluster, weights)
    elif split.traffic is not None:
        assert sample_rows is not None
        weights = split.weights.inside, split.weights.traffic
        parts, drawn = sampled([split.inside, split.traffic], sample_rows, seed, cluster, weights)
        arguments = {
            name: _mean_one(weight)
            for name, weight in zip(("sample_weight_id", "sample_weight_unlabeled"), drawn, strict=True)
            if weight is not None
        }
        fitted.ratio_ = clone(ratio).fit(
            *(view(classifier, part, with_features=features) for part in parts), **arguments
        )
    fitted.ood_prior_ = 0.0 if fitted.ratio_ is None else float(fitted.ratio_.ood_prior_)
    keep = draw(len(split.outside), keep_rows, seed)
    logits, log_ratio = _scored(split.outside.pick(keep, cluster), fitted, cluster)
    seen = np.zeros((0, len(fitted.classes_))), np.zeros(0)
    if split.traffic is not None:
        step = -(-len(split.traffic) // _TRAFFIC_ROWS)
        seen = _scored(split.traffic.pick(np.arange(0, len(split.traffic), step), cluster), fitted, cluster)
    held = split.weights.outside
    kept = None if held is None else held[keep]
    fitted.calibration_ = Calibration(logits, log_ratio, split.outside_codes[keep], kept, *seen)
    fitted._set_problem(problem)
    if len(keep) < len(split.outside):
        scores = split.outside.map(_scores, decider(fitted))
        vector = Chunks(tuple(cluster.keep(scores)), split.outside.lengths, np.zeros(0))
        if fitted.threshold == "guaranteed":
            rule: Any = guaranteed_threshold(vector, fitted.tpr_min, delta=fitted.delta, cluster=cluster)
        else:
            weight = None if held is None else spread(held, split.outside.lengths, cluster)
            rule = tpr_threshold(vector, fitted.tpr_min, weight=weight, cluster=cluster)
        # The rows that are kept give another threshold; what was promised is told by this one.
        fitted.threshold_, fitted.tau_ = rule.threshold, rule.tau
        fitted.tpr_threshold_, fitted.tpr_rows_ = rule.threshold, len(split.outside)
    return fitted


def _classifier(
    template: Any,
    rows: Chunks,
    known: Labelled,
    train: NDArray[np.intp],
    classes: NDArray[Any],
    sample: tuple[int, int],
    cluster: Cluster,
) -> Any:
    """Return the fitted classifier; one that has to be trained gets a sample of the training rows."""
    if isinstance(template, (FrozenEstimator, NetworkHead)):
        return _fit_classifier(template, known._replace(X=rows.like), train[:0], classes)
    chosen = train[draw(len(train), *sample)]
    part = bring(rows.pick(known.X[chosen], cluster), cluster, "training rows")
    weight = None if known.weight is None else known.weight[chosen]
    seen = Labelled(part, known.y[chosen], known.codes[chosen], weight, None)
    if len(np.unique(seen.codes)) < len(classes):
        raise InvalidInputError(
            f"sample_rows = {sample[0]} training rows hold only some of the classes: draw more, or train the classifier elsewhere."
        )
    return _fit_classifier(template, seen, np.arange(len(chosen)), classes)


def _temperature(rows: Chunks, codes: NDArray[np.int64], classifier: Any, cluster: Cluster) -> float:
    """Solve for the temperature; every step of the root finder is a pass over the rows that calibrate r."""
    paired = rows.zipped(codes.astype(np.int32), cluster)

    def slope(inverse: float) -> float:
        parts = paired.map(_slope, classifier, inverse)
        return float(cluster.reduce(parts, sum, "temperature")) / len(codes)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperatureWarning)
        return temperature_of(slope, len(codes))


def _slope(pair: tuple[Any, NDArray[np.int32]], classifier: Any, inverse: float) -> float:
    rows, codes = pair
    logits = np.asarray(logits_of(classifier, rows), dtype=np.float64)
    return slope_sum(centre(logits, codes.astype(np.int64)), inverse)


def _has_features(rows: Any, classifier: Any) -> bool:
    return has_features(classifier, rows)


def _matrices(rows: Chunks, classifier: Any, features: bool) -> Chunks:
    return Chunks(tuple(rows.map(_matrix, classifier, features)), tuple(n for n in rows.lengths if n), None)


def _matrix(rows: Any, classifier: Any, features: bool) -> NDArray[Any]:
    """Return what the ratio sees as features, without asking the classifier where it need not be."""
    if isinstance(rows, Activations):
        return np.asarray(rows.logits if rows.features is None else rows.features)
    found = _numbers(classifier, rows) if features else None
    return logits_of(classifier, rows) if found is None else found


def _kind(matrix: NDArray[Any]) -> tuple[int, Any]:
    return int(matrix.shape[1]), matrix.dtype


def _scored(rows: Chunks, fitted: POSCOD, cluster: Cluster) -> tuple[Floats, Floats]:
    """Return logits and log g of some rows, here."""
    parts = cluster.collect(rows.map(_score, fitted.classifier_, fitted.ratio_, fitted.uses_features_), "kept rows")
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _score(rows: Any, classifier: Any, ratio: Any, features: bool) -> tuple[Floats, Floats]:
    seen = view(classifier, rows, with_features=features)
    return np.asarray(seen.logits, dtype=np.float64), log_ratio_of(ratio, seen)


def _scores(rows: Any, model: POSCOD) -> Floats:
    return model.decide(rows).score
