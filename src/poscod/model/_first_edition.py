# SPDX-License-Identifier: BSD-3-Clause
"""Reads model files of protocol 1, the first edition: its class names, and its loose attributes as rule, scorer, calibration and schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from poscod.model._errors import ModelFileError
from poscod.model._schema import Schema
from poscod.model._scorer import Scorer
from poscod.problem import Budget, Problem
from poscod.rule import Promise, Rule
from poscod.selector import Calibration, solve

_RENAMED = {
    "poscod.estimator.POSCOD": "poscod.model._poscod.POSCOD",
    "poscod._inputs.NetworkHead": "poscod.model._scorer.NetworkHead",
    "poscod.ratio._evidence.Bank": "poscod.ratio._first_edition.FirstBank",
}


class FirstCalibration(NamedTuple):
    """What the first edition kept of its calibration rows."""

    logits: Any
    log_ratio: Any
    codes: Any
    weight: Any
    traffic_logits: Any
    traffic_log_ratio: Any


def classes(registry: Mapping[str, type]) -> dict[str, type]:
    """Return the classes of the first edition by the names they had."""
    return {
        **{old: registry[new] for old, new in _RENAMED.items()},
        "poscod._fitting.Calibration": FirstCalibration,
    }


def upgrade(model: Any) -> Any:
    """Return an object of the first edition as one of this edition; a POSCOD decides the same."""
    state: dict[str, Any] = vars(model)
    if not hasattr(model, "with_rule") or "threshold_" not in state:
        return model
    old: FirstCalibration = state.pop("calibration_")
    gone = ("threshold_", "tau_", "beta_", "problem_", "temperature_", "uses_features_", "classifier_", "ratio_")
    threshold, _, slope, problem, temperature, uses_features, classifier, ratio = (state.pop(name) for name in gone)
    rows_behind, told_by = state.pop("tpr_rows_", None), state.pop("tpr_threshold_", None)
    model.scorer_ = Scorer(classifier, ratio, temperature, model.classes_, uses_features)
    model.calibration_ = Calibration(
        model.classes_,
        old.logits / temperature,
        old.log_ratio,
        old.codes,
        old.weight,
        old.traffic_logits / temperature,
        old.traffic_log_ratio,
        state.pop("ood_prior_"),
        held_out=isinstance(model.calibration, float),
    )
    model.schema_ = _schema(model, state.pop("columns_", None))
    rows = len(model.calibration_) if threshold != told_by else rows_behind
    model.rule_ = _rule(model, problem, slope, threshold, rows, told_by)
    model._ask(problem)  # a refit asks for what the file was asked for, not for the threshold that was moved afterwards
    return model


def _rule(model: Any, problem: Problem, slope: float, threshold: float, rows: int, told_by: float | None) -> Rule:
    """Return the rule; a budget or a bound of the risk had moved the threshold of a problem without a trace but the threshold."""
    calibration, delta = model.calibration_, model.delta if model.threshold == "guaranteed" else None
    if problem.tpr_min is None:
        return Rule(problem, slope, threshold, None, rows)
    solved = solve(problem, calibration, delta=delta)
    # The file may come from a machine that rounds otherwise.
    if threshold == told_by or math.isclose(solved.threshold, threshold, rel_tol=1e-9):
        # Whether `at` had chosen the costs later, the file does not say.
        promise = Promise("tpr", problem.tpr_min, None if delta is None else 1.0 - delta, chosen_later=True)
        return Rule(problem, slope, threshold, promise, rows)
    traffic = calibration.traffic(problem.loss)
    line = Rule(problem, slope, threshold)
    share = float(np.mean(line.score(traffic) > threshold)) if len(traffic.risk) else 0.0
    return Rule(Budget(share, problem), slope, threshold, None, rows)


def _schema(model: Any, record: Any) -> Schema:
    """Return the schema: the shell's record of columns, or what the fitted parts tell."""
    if record is not None:
        if not isinstance(record, dict):
            raise ModelFileError("has a record of its columns that is damaged.")
        return Schema.from_dict(record)
    if model.scorer_.network:
        ratio, n_logits = model.scorer_.ratio, len(model.classes_)
        width = 0 if ratio is None else ratio.columns_.get("features") or 0
        # A ratio of logits alone counted them as its features.
        return Schema(n_features=0 if width == n_logits else int(width), n_logits=n_logits)
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        return Schema(tuple(str(name) for name in names), n_features=len(names), frame=True)
    return Schema(n_features=int(getattr(model, "n_features_in_", 0)))
