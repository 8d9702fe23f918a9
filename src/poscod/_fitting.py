# SPDX-License-Identifier: BSD-3-Clause
"""How the labelled rows are used: which train the classifier, which fit g and calibrate r, which set the threshold.

Convention: no row is scored by a part that was fitted on it. `fit_parts` returns fitted parts and, in `Calibration`, the arrays
from which any threshold follows; nothing here knows costs.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import has_fit_parameter

from poscod._inputs import (
    NetworkHead,
    as_indexable,
    columns_without_numbers,
    has_features,
    logits_of,
    n_rows,
    same_rows,
    split_unlabeled,
    take,
    view,
)
from poscod._validation import Floats, check_weight
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError, PoscodWarning
from poscod.risk import TemperatureScaling, TemperatureWarning

# Unlabelled rows kept for budgets and problems about the traffic.
_TRAFFIC_ROWS = 20_000

Indices = NDArray[np.intp]


class NoUnlabeledDataWarning(PoscodWarning):
    """Without unlabelled traffic the ratio cannot be learned; the rule uses the conditional risk alone."""


class Calibration(NamedTuple):
    """Arrays from which thresholds are made.

    Attributes
    ----------
    logits, log_ratio, codes, weight : ndarray of m rows
        Of ID rows that no part was fitted on; codes are true class indices, weight may be None.
    traffic_logits, traffic_log_ratio : ndarray of n rows
        Of unlabelled rows; the ratio was fitted on them.
    """

    logits: Floats
    log_ratio: Floats
    codes: NDArray[np.int64]
    weight: Floats | None
    traffic_logits: Floats
    traffic_log_ratio: Floats


class Parts(NamedTuple):
    """Everything that is fitted."""

    classifier: Any
    ratio: Any
    temperature: float
    calibration: Calibration
    uses_features: bool


class Labelled(NamedTuple):
    """Labelled rows: as they came, their labels, class indices and weights; and weights of rows marked as unlabelled."""

    X: Any
    y: NDArray[Any]
    codes: NDArray[np.int64]
    weight: Floats | None
    traffic_weight: Floats | None


def refuse_copy(X: Any, X_unlabeled: Any) -> None:
    """Refuse traffic that is a copy of the labelled rows: nothing could be learned, and something was surely mixed up."""
    if X_unlabeled is not None and same_rows(X, X_unlabeled):
        raise InvalidInputError(
            "X_unlabeled holds exactly the rows of X: the unlabelled rows must be traffic of their own."
        )


def label_rows(X: Any, y: Any, X_unlabeled: Any, weight: Any) -> tuple[Labelled, Any, NDArray[Any]]:
    """Tell labelled from unlabelled rows and encode the labels."""
    y = column_or_1d(y, warn=True)
    if len(y) != n_rows(X):
        raise InvalidInputError(f"y must have as many rows as X ({n_rows(X)}), got {len(y)}.")
    weight = check_weight(weight, "sample_weight", len(y), like="X")
    labelled, traffic = split_unlabeled(X, y, X_unlabeled)
    X, y = take(X, labelled), y[labelled]
    check_classification_targets(y)
    if isinstance(X, Activations):
        classes, codes = np.arange(X.n_classes), y.astype(np.int64)
    else:
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise InvalidInputError(f"y must hold at least two classes, got one class: {classes.tolist()}.")
    marked = weight is not None and len(labelled) < len(weight)
    rows = Labelled(
        X,
        y,
        codes,
        None if weight is None else weight[labelled],
        np.delete(weight, labelled) if marked else None,
    )
    return rows, None if traffic is None or n_rows(traffic) == 0 else as_indexable(traffic), classes


def fit_parts(
    template: Any,
    ratio: Any,
    rows: Labelled,
    traffic: Any,
    calibration: Any,
    classes: NDArray[Any],
    rng: np.random.RandomState,
) -> Parts:
    """Fit classifier, temperature and ratio, each on rows of its own."""
    frozen = isinstance(template, (FrozenEstimator, NetworkHead))
    if isinstance(calibration, float):
        train, inside, outside = _shares(rows.codes, 1.0 if frozen else calibration, rng)
        classifier = _fit_classifier(template, rows, train, classes)
        pairs = [(inside, outside)]
    else:
        fold = _folds(rows.codes, calibration, rng)
        pairs = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(calibration)]
        inside = np.arange(len(fold))
        classifier = _fit_classifier(template, rows, inside, classes)
    features = has_features(classifier, rows.X, *([] if traffic is None else [traffic]))
    known = view(classifier, rows.X, with_features=features)
    if len(pairs) > 1 and not frozen:
        known = Activations(known.features, _out_of_fold(template, rows, pairs, classes), table=True)
    temperature = _temperature(known[inside].logits, rows.codes[inside])
    seen = None if traffic is None else view(classifier, traffic, with_features=features)
    fitted, held, log_ratio = None, [], []
    for learn, score in pairs:
        fitted = _fit_ratio(ratio, known[learn], seen, (rows.weight, rows.traffic_weight), learn)
        held.append(score)
        log_ratio.append(log_ratio_of(fitted, known[score]))
    if len(pairs) > 1:
        fitted = _fit_ratio(ratio, known, seen, (rows.weight, rows.traffic_weight), inside)
    order = np.concatenate(held)
    kept = None if seen is None else seen[:: -(-len(seen) // _TRAFFIC_ROWS)]
    arrays = Calibration(
        np.asarray(known[order].logits, dtype=np.float64),
        np.concatenate(log_ratio),
        rows.codes[order],
        None if rows.weight is None else rows.weight[order],
        np.zeros((0, len(classes))) if kept is None else np.asarray(kept.logits, dtype=np.float64),
        np.zeros(0) if kept is None else log_ratio_of(fitted, kept),
    )
    return Parts(classifier, fitted, temperature, arrays, features)


def log_ratio_of(ratio: Any, rows: Activations) -> Floats:
    """Return log g; -inf everywhere where no ratio was learned."""
    return np.full(len(rows), -np.inf) if ratio is None else np.asarray(ratio.log_ratio(rows))


def _shares(codes: NDArray[np.int64], held: float, rng: np.random.RandomState) -> tuple[Indices, Indices, Indices]:
    """Split rows, class by class, into training rows and two halves of the held-out share."""
    parts: tuple[list[Indices], list[Indices], list[Indices]] = ([], [], [])
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        # The cut moves by a random fraction of a row, so that small classes are not always rounded the same way.
        cuts = np.floor(np.array([1.0 - held, 1.0 - held / 2.0]) * len(members) + rng.random_sample()).astype(int)
        for part, chosen in zip(parts, np.split(members, np.minimum(cuts, len(members))), strict=True):
            part.append(chosen)
    train, inside, outside = (np.sort(np.concatenate(part)) for part in parts)
    if held < 1.0 and len(np.unique(codes[train])) < len(np.unique(codes)):
        raise InvalidInputError("Some class has too few rows to train the classifier: add rows or lower calibration.")
    if len(inside) == 0 or len(outside) == 0:
        raise InvalidInputError(
            f"{len(codes)} labelled rows are too few to hold out any for calibration: add rows or use folds."
        )
    return train, inside, outside


def _folds(codes: NDArray[np.int64], k: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    least = int(np.bincount(codes)[np.unique(codes)].min())
    if least < k:
        raise InvalidInputError(
            f"calibration={k} folds need at least {k} rows of every class, got {least} of the rarest."
        )
    fold = np.empty(len(codes), dtype=np.int64)
    splitter = StratifiedKFold(k, shuffle=True, random_state=rng.randint(2**31 - 1))
    for i, (_, held) in enumerate(splitter.split(codes[:, None], codes)):
        fold[held] = i
    return fold


def _fit_classifier(template: Any, rows: Labelled, train: Indices, classes: NDArray[Any]) -> Any:
    if isinstance(template, NetworkHead):
        return template.fit(rows.X)
    classifier = clone(template)
    if isinstance(template, FrozenEstimator):
        if not np.array_equal(np.asarray(classifier.classes_), classes):
            raise InvalidInputError(
                f"The frozen classifier knows the classes {np.asarray(classifier.classes_).tolist()} and y holds "
                f"{classes.tolist()}: give labelled rows of exactly its classes."
            )
        return classifier
    arguments = {}
    if rows.weight is not None and has_fit_parameter(classifier, "sample_weight"):
        arguments["sample_weight"] = rows.weight[train]
    try:
        return classifier.fit(take(rows.X, train), rows.y[train], **arguments)
    except ValueError as error:
        names = columns_without_numbers(rows.X) if "could not convert" in str(error) else []
        if not names:
            raise
        raise InvalidInputError(
            f"X must hold numbers for this classifier, got columns that hold none ({', '.join(map(repr, names))}): leave them out, or "
            "encode them in the classifier's pipeline, for example by OneHotEncoder in a ColumnTransformer."
        ) from error


def _out_of_fold(template: Any, rows: Labelled, pairs: list[tuple[Indices, Indices]], classes: NDArray[Any]) -> Floats:
    """Score every row by a classifier that has not seen it."""
    logits = np.empty((len(rows.y), len(classes)))
    for learn, score in pairs:
        logits[score] = logits_of(_fit_classifier(template, rows, learn, classes), take(rows.X, score))
    return logits


def _temperature(logits: Floats, codes: NDArray[np.int64]) -> float:
    with warnings.catch_warnings():
        # Few rows without an error leave the posterior as it is, which is what anyone would do.
        warnings.simplefilter("ignore", TemperatureWarning)
        return TemperatureScaling().fit(logits, codes).temperature_


def _fit_ratio(
    ratio: Any,
    rows: Activations,
    traffic: Activations | None,
    weights: tuple[Floats | None, Floats | None],
    learn: Indices,
) -> Any:
    if traffic is None:
        return None
    arguments = {}
    if weights[0] is not None:
        arguments["sample_weight_id"] = _mean_one(weights[0][learn])
    if weights[1] is not None:
        arguments["sample_weight_unlabeled"] = _mean_one(weights[1])
    return clone(ratio).fit(rows, traffic, **arguments)


def _mean_one(weight: Floats) -> Floats:
    """Scale weights so that a side counts with its number of rows: weights have no unit."""
    return weight / weight.mean()
