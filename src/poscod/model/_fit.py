# SPDX-License-Identifier: BSD-3-Clause
"""From rows and a plan to a scorer and its calibration; nothing here knows costs.

Convention: `fit_on` is the one fit. It asks an engine to look at rows, which lie in memory (`Memory`) or in chunks on a cluster, and no engine
decides anything.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, column_or_1d, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import has_fit_parameter, validate_data

from poscod._validation import Floats, check_labels, check_weight, refusal
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError, PoscodWarning, warn_caller
from poscod.model._plan import Indices, Step, make_plan
from poscod.model._rows import chunks, columns_without_numbers, is_numeric, marked_rows, n_rows, same_rows, take
from poscod.model._schema import Schema, listed
from poscod.model._scorer import NetworkHead, Scorer, log_ratio_of, needs_transform, unchecked, view
from poscod.risk import TemperatureScaling, TemperatureWarning
from poscod.selector import Calibration

# Unlabeled rows kept for budgets and problems about the traffic.
TRAFFIC_ROWS = 20_000


class NoUnlabeledDataWarning(PoscodWarning):
    """Without unlabeled traffic the ratio cannot be learned; the rule uses the conditional risk alone."""


class Labeled(NamedTuple):
    """Labeled rows: where they are, their labels, class indices and weights."""

    at: Indices
    y: NDArray[Any]
    codes: NDArray[np.int64]
    weight: Floats | None

    def take(self, rows: Indices) -> Labeled:
        """Return some of them."""
        return Labeled(
            self.at[rows], self.y[rows], self.codes[rows], None if self.weight is None else self.weight[rows]
        )


class Kept(NamedTuple):
    """Rows after scoring, here in memory: which ones, their logits (not yet calibrated) and log g."""

    rows: Indices
    logits: Floats
    log_ratio: Floats


class Memory:
    """Rows in memory: the engine whose attributes and methods any other one has, too.

    ``like`` are some rows of X, for their kind and their columns; ``folds`` tells whether it can cross-fit, ``has_traffic`` whether traffic was given
    beside X. Positions count the rows of X. `look` comes before `temperature`, `fit_ratio` and the scores.
    """

    folds = True

    def __init__(self, X: Any, traffic: Any) -> None:
        self.like = X
        self._traffic = None if traffic is None or n_rows(traffic) == 0 else traffic
        self.has_traffic = traffic is not None

    def __len__(self) -> int:
        return n_rows(self.like)

    def split_off(self, marked: Indices) -> int:
        """Take the rows at these positions, if any, as the traffic."""
        if len(marked):
            self._traffic = take(self.like, marked)
        return 0 if self._traffic is None else n_rows(self._traffic)

    def train(self, template: Any, rows: Labeled, classes: NDArray[Any]) -> Any:
        """Fit a classifier; a frozen one is only checked."""
        if isinstance(template, (NetworkHead, FrozenEstimator)):
            return given_classifier(template, self.like, classes)
        return fit_classifier(template, take(self.like, rows.at), rows)

    def look(self, classifier: Any, at: Indices) -> bool:
        """View rows and traffic once."""
        self._at, transforms = at, needs_transform(classifier, self.like)
        self._known = view(classifier, take(self.like, at), transforms=transforms)
        self._seen = None if self._traffic is None else view(classifier, self._traffic, transforms=transforms)
        if isinstance(self.like, Activations):
            return True
        views = [self._known, *([] if self._seen is None else [self._seen])]
        finite = all(rows.features is not None and np.isfinite(rows.features).all() for rows in views)
        # Numbers of the training rows are read as they come: a gap among them may come again.
        if finite and is_numeric(self.like) and not hasattr(self.like, "tocsr"):
            finite = all(np.isfinite(np.asarray(block, dtype=np.float64)).all() for block in chunks(self.like))
        if not finite:
            self._known = unchecked(None, self._known.logits)
            self._seen = None if self._seen is None else unchecked(None, self._seen.logits)
        return finite

    def cross_fit(self, template: Any, rows: Labeled, steps: list[Step], classes: NDArray[Any]) -> None:
        """Replace the logits of every row by those of a classifier that has not seen it."""
        logits = np.empty((len(self._at), len(classes)))
        for learn, score in steps:
            classifier = self.train(template, rows.take(learn), classes)
            logits[score] = view(classifier, take(self.like, rows.at[score]), with_features=False).logits
        self._known = unchecked(self._known.features, logits)

    def temperature(self, at: Indices, codes: NDArray[np.int64]) -> float:
        """Calibrate the logits."""
        return temperature_of(self._rows(at).logits, codes)

    def fit_ratio(self, ratio: Any, at: Indices, weight: Floats | None, traffic_weight: Floats | None) -> Any:
        """Fit a ratio."""
        return clone(ratio).fit(self._rows(at), self._seen, **ratio_weights(weight, traffic_weight))

    def score(self, ratio: Any, at: Indices) -> Kept:
        """Score all of the rows."""
        return _kept(np.arange(len(at)), ratio, self._rows(at))

    def score_traffic(self, ratio: Any, rows: int) -> Kept:
        """Score every k-th row of the traffic."""
        assert self._seen is not None
        chosen = np.arange(0, len(self._seen), -(-len(self._seen) // rows))
        return _kept(chosen, ratio, self._seen[chosen])

    def _rows(self, at: Indices) -> Activations:
        return self._known if len(at) == len(self._at) else self._known[np.searchsorted(self._at, at)]


def fit_on(model: Any, engine: Any, y: Any, sample_weight: Any) -> Any:
    """Fit a POSCOD on the rows that an engine looks at, and return it."""
    problem, calibration = model._asked(), model._held_out()
    if not (engine.folds or isinstance(calibration, float)):
        raise refusal(
            "calibration",
            "must be a share of the rows here, got {got} folds: rows are plenty, hold some out.",
            got=calibration,
        )
    network = isinstance(engine.like, Activations)
    for stale in ("n_features_in_", "feature_names_in_"):  # of an earlier fit on rows of another kind
        vars(model).pop(stale, None)
    if not network:
        validate_data(model, engine.like, skip_check_array=True)
    rows, marked, weights = _read_labels(engine, y, sample_weight, network)
    classes, codes = (
        (np.arange(engine.like.n_classes), rows.codes) if network else np.unique(rows.y, return_inverse=True)
    )
    if len(classes) < 2:
        raise refusal("y", "must hold at least two classes, got one class: {got}.", got=classes.tolist())
    rows = rows._replace(codes=codes)
    problem.loss_matrix(len(classes))
    n_unlabeled = engine.split_off(marked)
    if n_unlabeled == 0:
        warn_caller(
            NoUnlabeledDataWarning(
                "No unlabeled rows were given, so the ratio g cannot be learned and the rule uses the conditional risk alone: "
                "pass X_unlabeled or mark rows of y with -1."
            )
        )
    template = model._template(network)
    scorer, found = _fit_parts(
        engine,
        template,
        model._ratio() if n_unlabeled else None,
        rows,
        weights,
        calibration,
        classes,
        model.random_state,
    )
    model.classes_, model.scorer_, model.calibration_ = classes, scorer, found
    model.schema_ = Schema.of(engine.like)
    model.rule_ = model._solve(problem)
    return model


def _read_labels(
    engine: Any, y: Any, weight: Any, network: bool
) -> tuple[Labeled, Indices, tuple[Floats | None, Floats | None]]:
    """Tell labeled from unlabeled rows; return also the weights of both."""
    y = column_or_1d(y, warn=True)
    if len(y) != len(engine):
        raise InvalidInputError(
            "{y} must have as many rows as {X} ({allowed}), got {got}.", allowed=len(engine), got=len(y)
        )
    weight = check_weight(weight, "sample_weight", len(y), like="X")
    mark = marked_rows(y)
    at, marked = np.flatnonzero(~mark), np.flatnonzero(mark)
    if len(marked) and engine.has_traffic:
        raise InvalidInputError(
            "{y} marks {got} rows as unlabeled (-1) and {X_unlabeled} is given, too: leave those rows out, or pass no other traffic.",
            got=len(marked),
        )
    check_classification_targets(y[at])
    codes = check_labels(y[at], "y", engine.like.n_classes) if network else np.zeros(len(at), dtype=np.int64)
    own = None if weight is None else weight[at]
    other = None if weight is None or not len(marked) else weight[marked]
    return Labeled(at, y[at], codes, own), marked, (own, other)


def _fit_parts(
    engine: Any,
    template: Any,
    ratio: Any,
    rows: Labeled,
    weights: tuple[Floats | None, Floats | None],
    calibration: float,
    classes: NDArray[Any],
    random_state: Any,
) -> tuple[Scorer, Calibration]:
    """Fit classifier, temperature and ratio, each on rows of its own, and score the rows that set thresholds."""
    frozen = isinstance(template, (FrozenEstimator, NetworkHead))
    plan = make_plan(rows.codes, calibration, frozen, check_random_state(random_state))
    classifier = engine.train(template, rows.take(plan.train), classes)
    uses_features = engine.look(classifier, rows.at[plan.held])
    if plan.folds and not frozen:
        engine.cross_fit(template, rows, plan.steps, classes)
    temperature = engine.temperature(rows.at[plan.learn], rows.codes[plan.learn])

    def learned(chosen: Indices) -> Any:
        if ratio is None:
            return None
        own = None if weights[0] is None else weights[0][chosen]
        return engine.fit_ratio(ratio, rows.at[chosen], own, weights[1])

    fitted, kept = None, []
    for learn, score in plan.steps:
        fitted = learned(learn)
        found = engine.score(fitted, rows.at[score])
        kept.append(found._replace(rows=score[found.rows]))
    if plan.folds:
        fitted = learned(plan.learn)
    order = np.concatenate([part.rows for part in kept])
    seen = (
        Kept(order[:0], np.zeros((0, len(classes))), np.zeros(0))
        if ratio is None
        else engine.score_traffic(fitted, TRAFFIC_ROWS)
    )
    return Scorer(
        classifier, fitted, temperature, classes, uses_features, needs_transform(classifier, engine.like)
    ), Calibration(
        classes,
        np.concatenate([part.logits for part in kept]) / temperature,
        np.concatenate([part.log_ratio for part in kept]),
        rows.codes[order],
        None if rows.weight is None else rows.weight[order],
        seen.logits / temperature,
        seen.log_ratio,
        0.0 if fitted is None else float(fitted.ood_prior_),
        held_out=not plan.folds,
    )


def temperature_of(logits: Floats, codes: NDArray[np.int64]) -> float:
    """Return the temperature that calibrates logits."""
    with warnings.catch_warnings():
        # Few rows without an error leave the posterior as it is, which is what anyone would do.
        warnings.simplefilter("ignore", TemperatureWarning)
        return TemperatureScaling().fit(logits, codes).temperature_


def given_classifier(template: Any, like: Any, classes: NDArray[Any]) -> Any:
    """Return a classifier that is not trained here, after a look at its classes."""
    if isinstance(template, NetworkHead):
        return template.fit(like)
    classifier = clone(template)
    if not np.array_equal(np.asarray(classifier.classes_), classes):
        raise InvalidInputError(
            f"The frozen classifier knows the classes {np.asarray(classifier.classes_).tolist()} and y holds "
            f"{classes.tolist()}: give labeled rows of exactly its classes."
        )
    return classifier


def fit_classifier(template: Any, X: Any, rows: Labeled) -> Any:
    """Train a classifier on rows in memory."""
    classifier = clone(template)
    arguments = {}
    if rows.weight is not None and has_fit_parameter(classifier, "sample_weight"):
        arguments["sample_weight"] = rows.weight
    try:
        return classifier.fit(X, rows.y, **arguments)
    except ValueError as error:
        first = classifier[0] if isinstance(classifier, Pipeline) else classifier
        tags = get_tags(first).input_tags
        takes_texts = tags.string or tags.categorical or isinstance(first, ColumnTransformer)
        names = [] if takes_texts else columns_without_numbers(X)
        if not names:
            raise
        raise InvalidInputError(
            "{X} must hold numbers for this classifier, got columns that hold none ({got}): leave them out, or encode them in the "
            "classifier's pipeline, for example by OneHotEncoder in a ColumnTransformer.",
            got=", ".join(map(repr, names)),
            columns=names,
        ) from error


def ratio_weights(weight: Floats | None, traffic_weight: Floats | None) -> dict[str, Floats]:
    """Return weights as a ratio takes them, scaled so that a side counts with its number of rows: weights have no unit."""
    given = {"sample_weight_id": weight, "sample_weight_unlabeled": traffic_weight}
    return {name: values / values.mean() for name, values in given.items() if values is not None}


def check_traffic(X: Any, X_unlabeled: Any) -> None:
    """Refuse traffic of another kind, with other columns, or that is a copy of the labeled rows: something was mixed up."""
    if X_unlabeled is None:
        return
    if isinstance(X, Activations) != isinstance(X_unlabeled, Activations):
        raise InvalidInputError("X_unlabeled must be of the kind of X: Activations or not.")
    names = [list(map(str, rows.columns)) for rows in (X, X_unlabeled) if hasattr(rows, "columns")]
    if len(names) == 2 and names[0] != names[1]:
        raise InvalidInputError(
            "{X_unlabeled} must have the columns of {X} in the same order ({allowed}), got {got}.",
            allowed=listed(names[0]),
            got=listed(names[1]),
        )
    if same_rows(X, X_unlabeled):
        raise InvalidInputError(
            "{X_unlabeled} holds exactly the rows of {X}: the unlabeled rows must be traffic of their own.",
            rows=n_rows(X),
        )


def _kept(chosen: Indices, ratio: Any, rows: Activations) -> Kept:
    return Kept(chosen, np.asarray(rows.logits, dtype=np.float64), log_ratio_of(ratio, rows))
