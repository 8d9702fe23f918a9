# SPDX-License-Identifier: BSD-3-Clause
"""From rows to a scorer and its calibration; nothing here knows costs.

Convention: `fit_on` is the one fit. By shares it asks an engine to look at rows, which lie in memory (`Memory`) or in chunks on a cluster, and no
engine decides anything; by folds (`_folds`) rows lie in memory.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from poscod._threads import few_threads
from poscod._validation import Floats, check_choice, check_labels, check_weight, refusal
from poscod.activations import Activations, check_label_column
from poscod.exceptions import InvalidInputError, PoscodWarning, warn_caller
from poscod.labels import as_labels, check_reject_label, is_text, marked_rows
from poscod.model._drift import ON_DRIFT, closed, drift_of, looks_at, named, settled, tell
from poscod.model._explain import familiar_rows
from poscod.model._folds import UnstableFeaturesError, fit_folds
from poscod.model._groups import in_groups
from poscod.model._memory import Memory
from poscod.model._mix import MIX_ROWS, bias_of, carry_error, check_mix, find_mix, in_mix
from poscod.model._parameters import asked, held_out, ratio_to_fit, template_of
from poscod.model._parts import (
    TRAFFIC_ROWS,
    Kept,
    Labeled,
    Unlabeled,
)
from poscod.model._plan import Indices, plan_folds, plan_shares
from poscod.model._prepare import Preparation, by_name
from poscod.model._range import Guard, numeric_columns, scale_of
from poscod.model._reviewed import Reviewed, check_finite, learn_from, read_reviewed
from poscod.model._rows import check_classes, doubt_logits, n_numbers, n_rows, row_keys, same_rows, take
from poscod.model._schema import Schema
from poscod.model._scorer import NetworkHead, Scorer, needs_transform, view
from poscod.model._trained_on import trained_on, withdraw
from poscod.problem import RiskBound
from poscod.ratio import Side
from poscod.selector import Calibration

FOLDS, SHARE = 5, 0.5
"""What calibration="auto" means: so many folds, or that share where rows cannot be cross-fitted."""


class NoUnlabeledDataWarning(PoscodWarning):
    """Without unlabeled traffic the ratio cannot be learned; the rule uses the conditional risk alone."""


def fit_on(
    model: Any,
    engine: Any,
    y: Any,
    sample_weight: Any,
    groups: tuple[Any, Any] = (None, None),
    reviewed: tuple[Any, Any] = (None, None),
    given: Any = None,
    preparation: Preparation | None = None,
) -> Any:
    """Fit a POSCOD on the rows that an engine looks at, and return it.

    Groups are those of X and of the traffic given beside it, reviewed are rows and verdicts; `given` are the rows before their preparation.
    """
    problem, calibration = asked(model), held_out(model)
    if not engine.folds and calibration == "auto":
        calibration = SHARE
    if not (engine.folds or isinstance(calibration, float)):
        raise refusal(
            "calibration",
            "must be a share of the rows here, got {got} folds: rows are plenty, hold some out.",
            got=calibration,
        )
    network = isinstance(engine.like, Activations)
    for stale in ("n_features_in_", "feature_names_in_"):  # of an earlier fit on rows of another kind
        vars(model).pop(stale, None)
    if network:
        doubt_logits(engine.like)
    else:
        validate_data(model, engine.like if preparation is None else given, skip_check_array=True)
    rows, marked, weights = _read_labels(engine, y, sample_weight, network)
    classes, codes = (
        (NetworkHead().fit(engine.like).classes_, rows.codes) if network else np.unique(rows.y, return_inverse=True)
    )
    if len(classes) < 2:
        raise refusal("y", "must hold at least two classes, got one class: {got}.", got=classes.tolist())
    check_reject_label(model.reject_label, classes)
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
    looked = read_reviewed(reviewed, engine, rows, classes, n_unlabeled)
    mix, on_drift = check_mix(model.class_mix), model.on_drift
    check_choice(on_drift, "on_drift", ON_DRIFT)
    rows, traffic_group = in_groups(engine, rows, marked, groups, n_unlabeled)
    unlabeled = Unlabeled(weights[1], traffic_group)
    template = template_of(model, network, preparation is not None)
    ratio = ratio_to_fit(model) if n_unlabeled else None
    guaranteed = model.threshold == "guaranteed" or isinstance(problem, RiskBound)

    again = engine.keys(rows.at[:: -(-len(rows.at) // TRAFFIC_ROWS)], take(engine.like, slice(0, 0)))[0]

    def fitted(ratio: Any) -> tuple[Scorer, Calibration]:
        parts = template, ratio, rows, unlabeled, classes, mix
        rng = check_random_state(model.random_state)
        fit: Any = _by_shares if isinstance(calibration, float) else _by_folds
        with few_threads(n_numbers(engine.like, engine.traffic)) if engine.folds else nullcontext():
            scorer, rows_ = fit(engine, *parts, calibration, guaranteed, rng, looked)
        return replace(scorer, preparation=preparation, columns=columns), replace(rows_, labeled_keys=again)

    model.classes_ = classes
    model.schema_ = Schema.of(engine.like) if preparation is None else Schema.prepared(preparation)
    columns = model.schema_.features if model.schema_.frame else ()
    model.scorer_, model.calibration_ = fitted(ratio)
    model.rule_ = model._solve(problem)
    if model.calibration_.drift is not None:
        found, drift = settled(model.calibration_, model.rule_)
        if preparation is not None:
            drift = named(drift, preparation.made)
            found = replace(found, drift=drift)
        tell(drift, on_drift)
        if on_drift == "id_only" and not drift.verdicts:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PoscodWarning)  # what there is to say has been said
                model.scorer_, again = fitted(closed(ratio))
            found = replace(again, drift=drift)
        model.calibration_ = found
        model.rule_ = model._solve(problem)
    if model.scorer_.ratio is not None:
        model.scorer_ = replace(
            model.scorer_,
            familiar=familiar_rows(engine if preparation is None else Memory(given, None), model.scorer_, rows),
        )
    return model


def _read_labels(
    engine: Any, y: Any, weight: Any, network: bool
) -> tuple[Labeled, Indices, tuple[Floats | None, Floats | None]]:
    """Tell labeled from unlabeled rows; return also the weights of both."""
    y = as_labels(column_or_1d(y, warn=True))
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
    codes = _network_codes(engine.like, y[at]) if network else np.zeros(len(at), dtype=np.int64)
    own = None if weight is None else weight[at]
    other = None if weight is None or not len(marked) else weight[marked]
    return Labeled(at, y[at], codes, own), marked, (own, other)


def _network_codes(rows: Activations, y: NDArray[Any]) -> NDArray[np.int64]:
    """Return labels of a network's rows as class indices: they are some, or the names of its classes."""
    if is_text(y):
        return check_label_column(y, len(y), rows.n_classes, rows.classes, name="y")
    return check_labels(y, "y", rows.n_classes)


def _by_folds(
    engine: Memory,
    template: Any,
    ratio: Any,
    rows: Labeled,
    unlabeled: Unlabeled,
    classes: NDArray[Any],
    class_mix: str | Floats,
    calibration: int | str,
    guaranteed: bool,
    rng: np.random.RandomState,
    reviewed: Reviewed | None,
) -> tuple[Scorer, Calibration]:
    """Fit by cross-fitting; "auto" holds rows out where features of different folds would not be comparable."""
    exact = isinstance(calibration, int)
    X, traffic = engine.like, engine.traffic
    keys = row_keys(X, take(X, slice(0, 0)) if traffic is None else traffic, int(rng.randint(2**31 - 1)))
    plan = plan_folds(
        rows.codes,
        (keys[0][rows.at], keys[1]),
        int(calibration) if exact else FOLDS,
        classes,
        exact=exact,
        guaranteed=guaranteed,
        frozen=isinstance(template, (FrozenEstimator, NetworkHead)),
        rng=rng,
        groups=(rows.group, unlabeled.group),
    )
    try:
        return fit_folds(
            X, traffic, template, ratio, rows, unlabeled, plan, keys[1], classes, class_mix, reviewed, engine.unseen
        )
    except UnstableFeaturesError as error:
        if exact:
            raise refusal(
                "calibration",
                "= {got} folds need features that do not depend on the rows a pipeline is fitted on, and those of this one do (as words, rare "
                "categories or components do): use a share such as {allowed}.",
                got=calibration,
                allowed=SHARE,
            ) from error
    return _by_shares(engine, template, ratio, rows, unlabeled, classes, class_mix, SHARE, guaranteed, rng, reviewed)


def _by_shares(
    engine: Any,
    template: Any,
    ratio: Any,
    rows: Labeled,
    unlabeled: Unlabeled,
    classes: NDArray[Any],
    class_mix: str | Floats,
    calibration: float,
    guaranteed: bool,
    rng: np.random.RandomState,
    reviewed: Reviewed | None = None,
) -> tuple[Scorer, Calibration]:
    """Fit classifier, temperature and ratio, each on rows of its own, and score the rows that set thresholds."""
    frozen = isinstance(template, (FrozenEstimator, NetworkHead))
    plan = plan_shares(rows.codes, calibration, frozen, rng, rows.group)
    classifier = engine.train(template, rows.take(plan.train), classes)
    uses_features = engine.look(classifier, rows.at[plan.held])
    temperature = engine.temperature(rows.at[plan.learn], rows.codes[plan.learn])
    fitted, seen = None, Kept(np.arange(0), np.zeros((0, len(classes))), np.zeros(0))
    learn = rows.take(plan.learn)
    sample = cache(lambda: engine.seen(learn, unlabeled, MIX_ROWS))  # one pass over the rows serves both
    suspect: bool | str = False
    if not len(plan.train):
        rows_of = sample()
        suspect = trained_on(template, classifier, engine.like, rows_of.known, rows_of.rows.codes, rows_of.traffic)
    mix = find_mix(class_mix, learn, sample, temperature, classes, reviewed if engine.folds else None)
    transforms = needs_transform(classifier, engine.like)
    looked = None
    if reviewed is not None:
        looked = view(classifier, reviewed.rows, with_features=uses_features, transforms=transforms)
        if uses_features:
            check_finite(looked)
        some = sample()
        temperature = reviewed.temperature(temperature, some.known.logits, some.rows.codes, looked, mix)
    if ratio is not None:
        fitted = engine.fit_ratio(ratio, learn._replace(weight=in_mix(mix, learn)), unlabeled)
    scorer = Scorer(classifier, fitted, temperature, classes, uses_features, transforms, bias_of(mix))
    if fitted is not None:
        columns = None if transforms else numeric_columns(engine.like)
        seen, ranges = engine.score_traffic(scorer, TRAFFIC_ROWS), engine.ranges(learn.at, columns, transforms)
        if ranges is not None:
            scorer = replace(scorer, guard=Guard(ranges, columns, scale_of(seen.log_ratio)))
            seen = engine.score_traffic(scorer, TRAFFIC_ROWS)
    kept = engine.score(scorer, rows.at[plan.score])
    sets = rows.take(plan.score[kept.rows])
    carry_error(fitted, mix, kept.log_ratio, sets, seen.log_ratio)
    drift = None
    if fitted is not None and suspect is not True and looks_at(fitted):
        views, (first, second) = engine.compared(sets.at, seen.rows)
        logs = kept.log_ratio[first], seen.log_ratio[second]
        compared, rest = sets.take(first), unlabeled.take(seen.rows[second])
        weights_, grouped = (in_mix(mix, compared), rest.weight), (compared.group, rest.group)
        drift = drift_of(engine.like, classifier, transforms, views, logs, weights_, None, grouped, fitted)
    withdraw(fitted, suspect)
    weight, settles, chance = sets.weight, False, None
    if reviewed is not None and looked is not None and fitted is not None:
        views, (first, second) = engine.compared(learn.at, seen.rows, MIX_ROWS)
        some, there = learn.take(first), unlabeled.take(seen.rows[second])
        own = engine.score(scorer, some.at).log_ratio
        sides = (
            Side(views[0], own, in_mix(mix, some), some.group),
            Side(views[1], seen.log_ratio[second], there.weight, there.group),
        )
        learned = learn_from(reviewed.among(seen.rows[second]), looked, *sides, fitted, drift)
        fitted, drift, before = learned.ratio, learned.drift, kept.log_ratio
        scorer = replace(scorer, ratio=fitted)
        kept, seen = engine.score(scorer, sets.at), engine.score_traffic(scorer, TRAFFIC_ROWS)
        settles = learned.moved and not guaranteed
        weight = learned.weight(before, kept.log_ratio, sets.weight) if settles else sets.weight
        chance = (
            reviewed.among(seen.rows).chance(seen.log_ratio, fitted.ood_prior_, unlabeled.take(seen.rows).weight)
            if settles
            else None
        )
    return scorer, Calibration(
        classes,
        scorer.calibrated(kept.logits),
        kept.log_ratio,
        sets.codes,
        weight,
        scorer.calibrated(seen.logits),
        seen.log_ratio,
        0.0 if fitted is None else float(fitted.ood_prior_),
        mix=mix,
        drift=drift,
        groups=sets.group,
        trained_on=suspect,
        traffic_keys=seen.keys,
        verdicts=0 if reviewed is None else len(reviewed.codes),
        settled=settles,
        traffic_known=chance,
    )


def check_traffic(X: Any, other: Any, name: str = "X_unlabeled") -> Any:
    """Return traffic with the columns of the labeled rows; refuse one of another kind, without them, or that is a copy: something was mixed up."""
    if other is None:
        return None
    if isinstance(X, Activations) != isinstance(other, Activations):
        raise InvalidInputError(f"{name} must be of the kind of X: Activations or not.")
    if isinstance(X, Activations) and X.classes is not None:
        check_classes(other, X.classes, name)
    if all(hasattr(rows, "columns") for rows in (X, other)):
        other = by_name(other, list(map(str, X.columns)), name)
    if same_rows(X, other):
        raise InvalidInputError(
            f"{{{name}}} holds exactly the rows of {{X}}: the {'unlabeled' if name == 'X_unlabeled' else 'reviewed'} rows must be traffic of their own.",
            rows=n_rows(X),
        )
    return other
