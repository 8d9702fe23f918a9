# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a summary: each function measures one thing and returns plain values.

Convention: nothing is formatted here; shares are in [0, 1], risks in units of the loss, every rate has an interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from poscod._comparison import Measured, Sample, check_ratio, keeps_tpr, measure, required_tpr, rules_of
from poscod.decision import REASONS, Decisions
from poscod.metrics import Interval
from poscod.metrics._intervals import mean_loss_interval
from poscod.plot import (
    PlaneDisplay,
    RejectionDisplay,
    ReliabilityDisplay,
    RiskCurveDisplay,
    ScoreDistributionDisplay,
)
from poscod.plot._plane import plane_window
from poscod.risk import reliability


def model_section(model: Any) -> dict[str, Any]:
    """Return what was fitted."""
    problem = model.problem_
    loss = problem.loss if isinstance(problem.loss, str) else [list(row) for row in problem.loss]
    return {
        "classifier": _name(model.classifier_),
        "ratio": None if model.ratio_ is None else _name(model.ratio_),
        "problem": type(problem).__name__,
        "alpha": model._alpha(),
        "tpr_min": getattr(problem, "tpr_min", None),
        "loss": loss,
        "threshold_kind": model.threshold,
        "delta": model.delta if model.threshold == "guaranteed" else None,
        "calibration": model.calibration,
        "beta": model.beta_,
        "threshold": model.threshold_,
        "tau": model.tau_,
        "temperature": model.temperature_,
        "uses_features": model.uses_features_,
        "n_features": getattr(model, "n_features_in_", None),
    }


def promise_section(model: Any, sample: Sample, measured: Measured) -> dict[str, Any]:
    """Return what was promised and whether fresh rows agree.

    Notes
    -----
    ``verdict`` compares the interval of TPR with the required one: "held" if all of it is at least that, "missed" if all of it is
    below, "open" otherwise; "none" where the threshold promises no TPR.
    """
    kept = keeps_tpr(model, sample)
    tpr_min = required_tpr(model, sample)
    verdict = "none"
    if kept:
        verdict = "held" if measured.tpr.low >= tpr_min else "missed" if measured.tpr.high < tpr_min else "open"
    guaranteed = kept and model.threshold == "guaranteed"
    return {
        "tpr_min": tpr_min,
        "tpr": measured.tpr,
        "verdict": verdict,
        "guaranteed": guaranteed,
        "confidence": 1.0 - model.delta if guaranteed else None,
    }


def rates_section(measured: Measured, sample: Sample) -> dict[str, Any]:
    """Return what the model's own rule achieves, beside accepting everything."""
    every = mean_loss_interval(sample.loss, level=sample.level, values=sample.loss_values)
    return {**_rates(measured), "loss_of_all": every, "zero_one": sample.zero_one}


def rules_section(model: Any, sample: Sample) -> list[dict[str, Any]]:
    """Return the model's own rule and its competitors at the same required TPR."""
    return [{"name": rule.name, **_rates(measure(rule, sample))} for rule in rules_of(model, sample)]


def plane_section(model: Any, sample: Sample, max_points: int = 1200) -> dict[str, Any]:
    """Return points and boundaries of the plane."""
    display = PlaneDisplay.from_sample(model, sample, max_points=max_points)
    columns = display.columns()
    right, window = plane_window(columns["risk"], columns["log_ratio"])
    lines = {name: {"risk": line[0], "log_ratio": line[1]} for name, line in display.boundaries.items()}
    shown = {name: int(np.sum(columns["group"] == name)) for name in sample.groups}
    # JSON has no infinity; a point at infinity is drawn at the edge.
    at = columns["log_ratio"]
    columns["log_ratio"] = np.where(np.isfinite(at), at, np.clip(at, *window))
    return {"points": columns, "boundaries": lines, "right": right, "window": list(window), "shown": shown}


def curves_section(model: Any, sample: Sample) -> dict[str, Any]:
    """Return risk against required TPR of all rules, in long form."""
    return RiskCurveDisplay.from_sample(model, sample).columns()


def distributions_section(sample: Sample) -> dict[str, Any]:
    """Return histograms of r and log g, in long form."""
    return ScoreDistributionDisplay.from_sample(sample).columns()


def rejections_section(model: Any, sample: Sample, y: Any, class_names: list[str]) -> dict[str, Any]:
    """Return counts by class and reason; ID rows by true class, others by the classifier's answer."""
    found = {}
    for name, rows in sample.groups.items():
        label = np.asarray(y) if name == "id" else rows.label
        counts = RejectionDisplay.from_decisions(rows, label, model.classes_).columns()["count"]
        table = counts.reshape(len(class_names), len(REASONS))
        found[name] = {
            "total": dict(zip(REASONS, table.sum(axis=0), strict=True)),
            "classes": [
                {"name": class_names[k], "count": dict(zip(REASONS, row, strict=True))} for k, row in enumerate(table)
            ],
        }
    return found


def reliability_section(sample: Sample) -> dict[str, Any]:
    """Return how honest r is on the fresh ID rows."""
    result = reliability(sample.known.risk, sample.loss, n_bins=10, level=sample.level)
    return {
        "bins": ReliabilityDisplay.from_reliability(result).columns(),
        "error": result.error,
        "p_value": result.p_value,
        "mean_risk": float(sample.known.risk.mean()),
        "mean_loss": float(sample.loss.mean()),
    }


def ratio_section(model: Any, sample: Sample, X: Any, y: Any, X_unlabeled: Any) -> dict[str, Any] | None:
    """Return the OOD share found at fit and here, and the checks of g; None where no ratio was learned."""
    if model.ratio_ is None:
        return None
    low, high = model.ratio_.ood_prior_interval(sample.level)
    found: dict[str, Any] = {
        "at_fit": Interval(model.ood_prior_, low, high, sample.level),
        "certified": model.ratio_.ood_prior_lower_bound(sample.level),
        "here": sample.prior,
        "diagnosis": None,
    }
    if X_unlabeled is not None:
        found["diagnosis"] = check_ratio(model, X, y, X_unlabeled, level=sample.level)
    return found


def examples_section(
    model: Any,
    sample: Sample,
    y: Any,
    class_names: list[str],
    columns: Mapping[str, Mapping[str, Any]],
    n: int,
    max_columns: int,
) -> list[dict[str, Any]]:
    """Return the rows with the highest score of each group and reason, and the dearest mistakes among accepted ID rows."""
    truth = np.searchsorted(model.classes_, np.asarray(y))
    found = []
    for name, rows in sample.groups.items():
        table = dict(list(columns.get(name, {}).items())[:max_columns])
        answer = np.searchsorted(model.classes_, rows.label)
        picks = {reason: _highest(rows.score, rows.reason == reason, n) for reason in REASONS if reason != "accepted"}
        if name == "id":
            picks["accepted, but wrong"] = _highest(sample.loss, rows.accept & (sample.loss > 0), n)
        for reason, places in picks.items():
            for i in places.tolist():
                found.append(
                    {
                        "group": name,
                        "reason": reason,
                        "row": i,
                        "answer": class_names[answer[i]],
                        "truth": class_names[truth[i]] if name == "id" else None,
                        **_numbers(rows, i),
                        "cells": {key: values[i] for key, values in table.items()},
                    }
                )
    return found


def _numbers(rows: Decisions, i: int) -> dict[str, float]:
    return {key: float(getattr(rows, key)[i]) for key in ("risk", "log_ratio", "score")}


def _highest(score: Any, mask: Any, n: int) -> Any:
    places = np.flatnonzero(mask)
    return places[np.argsort(-score[places], kind="stable")][:n]


def _rates(measured: Measured) -> dict[str, Any]:
    """Return tpr and selective risk, and FPR and SCOD risk from OOD rows and from unlabelled rows."""
    known, free = measured.with_ood, measured.without
    return {
        "tpr": measured.tpr,
        "selective_risk": measured.selective_risk,
        "fpr": None if known is None else known.fpr,
        "risk": None if known is None else known.risk,
        "accepted": None if free is None else free.accepted,
        "free_fpr": None if free is None else Interval(free.fpr.estimate, free.fpr.low, free.fpr.high, free.fpr.level),
        "free_fpr_note": None if free is None or free.fpr.informative else free.fpr.reason,
        "free_fpr_upper": None if free is None else free.fpr.upper_any_prior,
        "free_risk": None if free is None else free.risk,
    }


def _name(estimator: Any) -> str:
    """Return the name of an estimator; of a pipeline or a frozen one, of what is inside."""
    inner = getattr(estimator, "estimator", None)
    if type(estimator).__name__ == "FrozenEstimator" and inner is not None:
        return f"{_name(inner)} (already trained)"
    steps = getattr(estimator, "steps", None)
    if steps:
        return " → ".join(type(step).__name__ for _, step in steps)
    return {"NetworkHead": "a network's own logits"}.get(type(estimator).__name__, type(estimator).__name__)
