# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a fit that do not care where rows lie: labeled rows, training a classifier, its temperature, weights of a ratio.

Convention: positions count the rows of X; class indices follow the order of the classes.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.model._plan import Indices, Keys
from poscod.model._rows import columns_without_numbers
from poscod.model._scorer import NetworkHead
from poscod.ratio import Ratio
from poscod.risk import TemperatureScaling, TemperatureWarning

# Unlabeled rows kept for budgets and problems about the traffic; also rows of either kind that are known again.
TRAFFIC_ROWS = 20_000
# Equal rows prove nothing where they are usual: at least this share of rows must be distinct.
DISTINCT = 0.9


class Labeled(NamedTuple):
    """Labeled rows: where they are, their labels, class indices, weights and groups."""

    at: Indices
    y: NDArray[Any]
    codes: NDArray[np.int64]
    weight: Floats | None
    group: Keys | None = None

    def take(self, rows: Indices) -> Labeled:
        """Return some of them."""
        weight = None if self.weight is None else self.weight[rows]
        group = None if self.group is None else self.group[rows]
        return Labeled(self.at[rows], self.y[rows], self.codes[rows], weight, group)


class Unlabeled(NamedTuple):
    """What is known of the rows of the traffic beside what they hold: weights and groups."""

    weight: Floats | None = None
    group: Keys | None = None

    def take(self, rows: Indices) -> Unlabeled:
        """Return those of some rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Unlabeled(weight, None if self.group is None else self.group[rows])


class Compared(NamedTuple):
    """What is seen of labeled rows and of traffic that are compared to look for drift, and which of those asked for they are."""

    views: tuple[Activations, Activations]
    rows: tuple[Indices, Indices]


class Kept(NamedTuple):
    """Rows after scoring, here in memory: which ones, their logits (not yet calibrated) and log g, and by what they are known again where they stay."""

    rows: Indices
    logits: Floats
    log_ratio: Floats
    keys: Keys | None = None


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
    """Train a classifier on rows in memory; its probabilities are those of the classes of these rows, in order."""
    classifier = clone(template)
    arguments = {}
    if rows.weight is not None and has_fit_parameter(classifier, "sample_weight"):
        arguments["sample_weight"] = rows.weight
    try:
        return classifier.fit(X, rows.y, **arguments)
    except ValueError as error:
        codes = np.unique(rows.codes, return_inverse=True)[1]
        if not np.array_equal(codes, rows.y):
            # Some take 0, 1, 2, ... alone; the scorer knows which class each stands for. What they say of the labels themselves is the better sentence.
            with suppress(ValueError):
                return clone(template).fit(X, codes, **arguments)
        first = classifier[0] if isinstance(classifier, Pipeline) else classifier
        tags = get_tags(first).input_tags
        takes_texts = tags.string or tags.categorical or isinstance(first, ColumnTransformer)
        names = [] if takes_texts else columns_without_numbers(X)
        if not names:
            raise
        raise InvalidInputError(
            "{X} must hold numbers for this classifier, got columns that hold none ({got}): leave them out, encode them in the "
            "classifier's pipeline, for example by OneHotEncoder in a ColumnTransformer, or use prepare='always'.",
            got=", ".join(map(repr, names)),
            columns=names,
        ) from error


def ratio_groups(ratio: Any, group: Keys | None, traffic_group: Keys | None) -> dict[str, Keys]:
    """Return groups as a ratio takes them; anything with fit and log_ratio is a ratio, and need not take any."""
    if not isinstance(ratio, Ratio):
        return {}
    given = {"groups_id": group, "groups_unlabeled": traffic_group}
    return {name: values for name, values in given.items() if values is not None}


def ratio_weights(weight: Floats | None, traffic_weight: Floats | None) -> dict[str, Floats]:
    """Return weights as a ratio takes them, scaled so that a side counts with its number of rows: weights have no unit."""
    given = {"sample_weight_id": weight, "sample_weight_unlabeled": traffic_weight}
    return {name: values / values.mean() for name, values in given.items() if values is not None}
