# SPDX-License-Identifier: BSD-3-Clause
"""Cross-fitting: one set of folds serves classifier, ratio and threshold, and every row is used for all three.

Convention: labeled and unlabeled rows of a fold are seen through one classifier, trained on the labeled rows outside the fold. Without OOD rows both
sides then look the same, whatever the classifier does with rows it has seen. Classifier and ratio that decide are fitted on all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.model._drift import drift_of
from poscod.model._mix import Seen, bias_of, carry_error, find_mix, in_mix
from poscod.model._parts import (
    TRAFFIC_ROWS,
    Labeled,
    Unlabeled,
    fit_classifier,
    given_classifier,
    ratio_groups,
    ratio_weights,
    temperature_of,
)
from poscod.model._plan import Folds, Indices, Keys
from poscod.model._range import Guard, beyond, extents, fold_distances, measured, numeric_columns, ranges_of, scale_of
from poscod.model._reviewed import Reviewed, check_finite, learn_from
from poscod.model._rows import LEAST_PROBABILITY, keys_of, take
from poscod.model._scorer import (
    NetworkHead,
    Scorer,
    all_finite,
    features_of,
    names_of,
    needs_transform,
    unchecked,
    view,
)
from poscod.model._trained_on import trained_on, withdraw
from poscod.ratio import Ratio, Side, cross_fit
from poscod.selector import Calibration

# A column is the same in two pipelines if nearly all rows have nearly the same value in it, in units of its standard deviation. The mean of 80 % of
# 40 rows is so far from the mean of all of them once in a thousand times; directions that follow noise, and weights of rare words, differ by more.
SAME_VALUE, NEARLY_ALL = 0.25, 0.95


class UnstableFeaturesError(PoscodError):
    """What a pipeline makes of a row depends on the rows it was fitted on: features of different folds are not comparable."""


def fit_folds(
    X: Any,
    traffic: Any,
    template: Any,
    ratio: Any,
    rows: Labeled,
    unlabeled: Unlabeled,
    plan: Folds,
    key_traffic: Keys,
    classes: NDArray[Any],
    class_mix: str | Floats,
    reviewed: Reviewed | None = None,
    unseen: Sequence[int] = (),
) -> tuple[Scorer, Calibration]:
    """Fit classifier, temperature and ratio by cross-fitting, and score every row by parts that have not seen it; see `UnstableFeaturesError`."""
    rest, held = rows.take(plan.rest), rows.take(plan.held)
    own = take(X, rest.at)
    if isinstance(template, (FrozenEstimator, NetworkHead)):
        classifier = given_classifier(template, X, classes)
        transforms, informed = needs_transform(classifier, X), np.ones(len(rest.at), dtype=bool)
        known = view(classifier, own, transforms=transforms)
        seen = None if traffic is None else view(classifier, traffic, transforms=transforms)
    else:
        classifier = fit_classifier(template, own, rest)
        transforms = needs_transform(classifier, X)
        known, seen, informed = _out_of_fold(classifier, template, (own, traffic), rest, plan, classes, transforms)
    fresh = view(classifier, take(X, held.at), transforms=transforms) if len(held.at) else None
    looked = None if reviewed is None else view(classifier, reviewed.rows, transforms=transforms)
    views = [part for part in (known, seen, fresh) if part is not None]
    uses_features = isinstance(X, Activations) or all_finite(views)
    if looked is not None and uses_features:
        check_finite(looked)
    if not uses_features:
        known = unchecked(None, known.logits)
        seen, fresh, looked = (None if part is None else unchecked(None, part.logits) for part in (seen, fresh, looked))
    if not informed.any():
        raise InvalidInputError(
            "{y} has a single row of every class, {got} in all: no row is left to check what was learned from the others; add rows.",
            got=len(informed),
        )
    suspect = trained_on(template, classifier, own, known, rest.codes, seen)
    temperature = temperature_of(known.logits[informed], rest.codes[informed])
    folds = plan.fold, plan.traffic
    mix = find_mix(class_mix, rest, lambda: Seen(known, rest, seen, unlabeled, folds), temperature, classes, reviewed)
    if reviewed is not None and looked is not None and seen is not None:
        looked = reviewed.view(looked, seen)
        temperature = reviewed.temperature(temperature, known.logits[informed], rest.codes[informed], looked, mix)
    fitted, log_ratio, log_traffic, drift = None, np.full(len(known), -np.inf), np.zeros(0), None
    own_weight, settles = rest.weight, False
    if ratio is not None:
        fitted = clone(ratio)
        given = (known, seen, *folds)
        weights: dict[str, Any] = ratio_weights(in_mix(mix, rest), unlabeled.weight)
        weights.update(ratio_groups(fitted, rest.group, unlabeled.group))
        # Anything with fit and log_ratio is a ratio.
        if isinstance(fitted, Ratio):
            log_ratio, log_traffic = fitted.cross_fit(*given, deciding=True, **weights)
        else:
            log_ratio, log_traffic = cross_fit(fitted, *given, **weights)
        carry_error(fitted, mix, log_ratio, rest, log_traffic)
        if suspect is not True:  # rows of another kind look moved, too
            drift = drift_of(
                X,
                classifier,
                transforms,
                (known, seen),
                (log_ratio, log_traffic),
                (in_mix(mix, rest), unlabeled.weight),
                folds,
                (rest.group, unlabeled.group),
                fitted,
            )
        withdraw(fitted, suspect)
        frozen = isinstance(template, (FrozenEstimator, NetworkHead))

        def align(ratio: Any) -> None:
            if isinstance(ratio, Ratio) and ratio.realigns and seen is not None and not frozen:
                ratio.realign(seen, _served(classifier, traffic, seen, transforms))

        align(fitted)
        if reviewed is not None and looked is not None and seen is not None:
            sides_ = (
                Side(known, log_ratio, in_mix(mix, rest), rest.group),
                Side(seen, log_traffic, unlabeled.weight, unlabeled.group),
            )
            learned = learn_from(reviewed, looked, *sides_, fitted, drift, folds, align)
            before, drift, settles = log_ratio, learned.drift, learned.moved and fresh is None
            fitted, (log_ratio, log_traffic) = learned.ratio, learned.log_ratio
            own_weight = learned.weight(before, log_ratio, rest.weight)
    guard = None
    if fitted is not None:
        assert seen is not None
        sides = (known.features, seen.features) if transforms else (own, traffic)
        if sides[0] is not None:
            columns = numeric_columns(sides[0])
            parts = [(measured(side, columns), fold) for side, fold in zip(sides, folds, strict=True)]
            labeled, distance = fold_distances(parts, unseen)
            guard = Guard(ranges_of(labeled, extents(parts[1][0])), columns, scale_of(log_ratio))
            log_ratio, log_traffic = (
                beyond(values, far, guard.scale) for values, far in zip((log_ratio, log_traffic), distance, strict=True)
            )
    scorer = Scorer(classifier, fitted, temperature, classes, uses_features, transforms, bias_of(mix), guard)
    sets = rest
    if fresh is not None:
        known, sets, log_ratio = fresh, held, scorer.seen(take(X, held.at), fresh)[1]
        own_weight = held.weight
    kept = np.arange(0) if fitted is None else _some(key_traffic, TRAFFIC_ROWS)
    chance = None
    if settles and reviewed is not None and fitted is not None:
        chance = reviewed.chance(log_traffic, fitted.ood_prior_, unlabeled.weight)[kept]
    traffic_logits = np.zeros((0, len(classes))) if seen is None else seen.logits[kept]
    return scorer, Calibration(
        classes,
        scorer.calibrated(known.logits),
        log_ratio,
        sets.codes,
        own_weight,
        scorer.calibrated(traffic_logits),
        log_traffic[kept],
        0.0 if fitted is None else float(fitted.ood_prior_),
        held_out=fresh is not None,
        mix=mix,
        drift=drift,
        groups=sets.group,
        trained_on=suspect,
        traffic_keys=None if fitted is None else keys_of(take(traffic, kept)),
        traffic_held=True,
        verdicts=0 if reviewed is None else len(reviewed.codes),
        settled=settles,
        traffic_known=chance,
    )


def _served(classifier: Any, traffic: Any, seen: Activations, transforms: bool) -> Activations:
    """Return the traffic as the classifier of all rows sees it: its logits, beside the features as they are."""
    return unchecked(seen.features, view(classifier, traffic, with_features=False, transforms=transforms).logits)


def _out_of_fold(
    classifier: Any,
    template: Any,
    sides: tuple[Any, Any],
    rest: Labeled,
    plan: Folds,
    classes: NDArray[Any],
    transforms: bool,
) -> tuple[Activations, Activations | None, NDArray[np.bool_]]:
    """Return both sides as classifiers see them that were trained outside the fold of a row, and which rows have a class that theirs knew."""
    folds = plan.fold, plan.traffic
    logits = [np.empty((len(fold), len(classes))) for fold in folds]
    features = [_Features(classifier, side, len(fold), transforms) for side, fold in zip(sides, folds, strict=True)]
    informed = np.ones(len(plan.fold), dtype=bool)
    for k in range(int(plan.fold.max()) + 1):
        outside, inside = np.flatnonzero(plan.fold != k), [np.flatnonzero(fold == k) for fold in folds]
        learn = rest.take(outside)
        part = fit_classifier(template, take(sides[0], outside), learn)
        for side, at, out, made in zip(sides, inside, logits, features, strict=True):
            if not len(at):
                continue
            seen = made.view(part, take(side, at))
            # A class that the rows outside the fold do not hold is all but impossible there.
            out[at] = np.log(LEAST_PROBABILITY)
            out[np.ix_(at, np.unique(learn.codes))] = seen.logits
            made.add(part, at, seen.features)
        informed[inside[0]] = np.isin(rest.codes[inside[0]], learn.codes)
    codes = rest.codes, None
    both = [unchecked(made.values, out, own) for made, out, own in zip(features, logits, codes, strict=True)]
    return both[0], None if sides[1] is None else both[1], informed


class _Features:
    """Features of one side: the numbers of the rows, which no classifier has touched, or what the pipeline of each fold makes of its rows."""

    def __init__(self, classifier: Any, rows: Any, n: int, transforms: bool) -> None:
        self._last, self._rows, self._n, self._made = classifier, rows, n, transforms
        self.values = None if transforms or rows is None else features_of(classifier, rows, transforms=False)

    def view(self, classifier: Any, rows: Any) -> Activations:
        """Return what the classifier of a fold sees in rows of the fold."""
        try:
            return view(classifier, rows, with_features=self._made, transforms=self._made)
        except ValueError as error:
            if not self._made:
                raise
            raise UnstableFeaturesError(
                "A pipeline of a fold refuses rows of it."
            ) from error  # e.g. a category it does not know

    def add(self, classifier: Any, at: Indices, made: NDArray[Any] | None) -> None:
        """Take what the pipeline of a fold has made, if it is what the last pipeline makes; values are compared in the first fold."""
        if not self._made:
            return
        if self.values is None:
            again = features_of(self._last, take(self._rows, at), transforms=True)
            if made is None or again is None:  # too wide for the ratio, which sees logits alone
                self._made = False
                return
            if not _same_columns(made, again):
                raise UnstableFeaturesError("Pipelines make other values.")
            self.values = np.empty((self._n, made.shape[1]), dtype=made.dtype)
        if made is None or made.shape[1] != self.values.shape[1] or names_of(classifier) != names_of(self._last):
            raise UnstableFeaturesError("Pipelines make other columns.")
        self.values[at] = made


def _same_columns(one: NDArray[Any], two: NDArray[Any]) -> bool:
    """Tell whether two pipelines make the same of nearly all rows, column by column."""
    if one.shape != two.shape:
        return False
    with np.errstate(invalid="ignore"):
        near = np.abs(one - two) <= SAME_VALUE * np.nanstd(two, axis=0)
    return bool(((near | (one == two) | (np.isnan(one) & np.isnan(two))).mean(axis=0) >= NEARLY_ALL).all())


def _some(keys: Keys, most: int) -> Indices:
    """Return the places of no more than so many rows, chosen by what they are."""
    return np.arange(len(keys)) if len(keys) <= most else np.sort(np.argsort(keys, kind="stable")[:most])
