# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a summary: each function measures one thing and returns plain values.

Convention: nothing is formatted here; shares are in [0, 1], risks in units of the loss, every rate has an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from poscod.decision import REASONS
from poscod.labels import codes_of
from poscod.metrics import Interval
from poscod.model import Measured, Sample, fresh_document, mix_document, share_at_fit
from poscod.plot import PlaneDisplay, RejectionDisplay, plane_window
from poscod.ratio import ReviewedRatio
from poscod.risk import reliability
from poscod.rule import Promise, Rule


def model_section(model: Any) -> dict[str, Any]:
    """Return what was fitted."""
    scorer, loss = model.scorer_, model.rule_.problem.loss
    return {
        "classifier": _name(scorer.classifier),
        "ratio": None if scorer.ratio is None else _name(scorer.ratio),
        "temperature": scorer.temperature,
        "uses_features": scorer.uses_features,
        "held_out": model.calibration_.held_out,
        "loss": loss if isinstance(loss, str) else [list(row) for row in loss],
    }


def mix_section(model: Any, sample: Sample, names: list[str] | None = None) -> dict[str, Any]:
    """Return the class mix that is served, that of fresh traffic where it is another one, and for which of them rates are.

    Notes
    -----
    ``of`` is "traffic" where rates are for the mix of the traffic, fresh or of the fit, and "labeled" where they are for the labeled rows as they come.
    """
    return {
        "of": "labeled" if sample.mix is None else "traffic",
        "at_fit": mix_document(model, names),
        "here": fresh_document(model, sample.mix, names),
    }


def promise_section(rule: Rule, measured: Measured) -> dict[str, Any]:
    """Return what was promised and whether fresh rows agree.

    Notes
    -----
    ``verdict`` compares the interval of the promised quantity with its bound: "held" if all of it keeps the promise, "missed" if none of it
    does, "open" otherwise; "none" where nothing is promised. What is measured is TPR then. It is that of all classes together: it can contradict
    a promise for every class, and not show that it held.
    """
    promise = rule.promise
    if promise is None:
        nothing = dict.fromkeys([*Promise("tpr", 1.0).to_dict(), "words"])
        return {**nothing, "measured": measured.tpr, "verdict": "none"}
    found: Interval = getattr(measured, promise.quantity)
    # The end of the interval that speaks against the promise, and the one that speaks for it, as distances on the right side.
    sign = 1.0 if promise.quantity == "tpr" else -1.0
    worst, best = sorted(sign * (end - promise.bound) for end in (found.low, found.high))
    verdict = "held" if worst >= 0.0 else "missed" if best < 0.0 else "open"
    if verdict == "held" and promise.over == "classes":
        verdict = "open"  # all classes together do not show that each one keeps it
    return {**promise.to_dict(), "words": str(promise), "measured": found, "verdict": verdict}


def plane_section(sample: Sample, max_points: int = 1200) -> dict[str, Any]:
    """Return points and boundaries of the plane."""
    display = PlaneDisplay.from_sample(sample, max_points=max_points)
    right, window = plane_window(display.risk, display.log_ratio)
    lines = {name: {"risk": line[0], "log_ratio": line[1]} for name, line in display.boundaries.items()}
    shown = {name: int(np.sum(display.group == name)) for name in sample.groups}
    # JSON has no infinity; a point at infinity is drawn at the edge.
    at = np.where(np.isfinite(display.log_ratio), display.log_ratio, np.clip(display.log_ratio, *window))
    points = {**display.columns(), "log_ratio": at}
    return {"points": points, "boundaries": lines, "right": right, "window": list(window), "shown": shown}


def rejections_section(sample: Sample, class_names: list[str]) -> dict[str, Any]:
    """Return counts by class and reason; ID rows by true class, others by the classifier's answer."""
    display = RejectionDisplay.from_sample(sample)
    found = {}
    for name in sample.groups:
        table = display.count[display.group == name].reshape(len(class_names), len(REASONS))
        counts = [dict(zip(REASONS, row, strict=True)) for row in table]
        found[name] = {
            "total": dict(zip(REASONS, table.sum(axis=0), strict=True)),
            "classes": [{"name": name, "count": c} for name, c in zip(class_names, counts, strict=True)],
        }
    return found


def reliability_section(sample: Sample) -> dict[str, Any]:
    """Return how honest r is on the fresh ID rows."""
    weight = sample.weight_id
    result = reliability(sample.known.risk, sample.loss, sample_weight=weight, n_bins=10, level=sample.level)
    return {
        "bins": {key: getattr(result, key) for key in ("predicted", "observed", "low", "high", "n")},
        "error": result.error,
        "p_value": result.p_value,
        "mean_risk": float(np.average(sample.known.risk, weights=weight)),
        "mean_loss": float(np.average(sample.loss, weights=weight)),
    }


def ratio_section(model: Any, sample: Sample) -> dict[str, Any] | None:
    """Return the OOD share found at fit and here, and the checks of g; None where no ratio was learned."""
    ratio = model.scorer_.ratio
    if ratio is None:
        return None
    return {
        "at_fit": share_at_fit(model, sample.level),
        "certified": ratio.ood_prior_lower_bound(sample.level),
        "here": sample.prior,
        "diagnosis": sample.diagnosis,
    }


def examples_section(
    sample: Sample,
    class_names: list[str],
    columns: Mapping[str, Mapping[str, Any]],
    why: Callable[[str, Any], list[str]],
    n: int,
    max_columns: int,
) -> list[dict[str, Any]]:
    """Return the rows with the highest score of each group and reason, and the dearest mistakes among accepted ID rows; `why` says what makes some rows unfamiliar."""
    classes, found = sample.calibration.classes, []
    for group, rows in sample.groups.items():
        table = dict(list(columns.get(group, {}).items())[:max_columns])
        answer = codes_of(classes, rows.label)
        picks = {reason: _highest(rows.score, rows.reason == reason, n) for reason in REASONS if reason != "accepted"}
        if group == "id":
            picks["accepted, but wrong"] = _highest(sample.loss, rows.accept & (sample.loss > 0), n)
        found += [
            {
                "group": group,
                "reason": reason,
                "row": i,
                "answer": class_names[answer[i]],
                "truth": None if group != "id" or sample.codes is None else class_names[sample.codes[i]],
                **{key: float(getattr(rows, key)[i]) for key in ("risk", "log_ratio", "score")},
                "cells": {key: values[i] for key, values in table.items()},
                "detail": words,
            }
            for reason, places in picks.items()
            for i, words in zip(places.tolist(), why(group, places), strict=True)
        ]
    return found


def _highest(score: Any, mask: Any, n: int) -> Any:
    places = np.flatnonzero(mask)
    return places[np.argsort(-score[places], kind="stable")][:n]


def rates_section(measured: Measured) -> dict[str, Any]:
    """Return tpr and selective risk, and FPR and SCOD risk from OOD rows and from unlabeled rows."""
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
    if isinstance(estimator, ReviewedRatio):
        return f"{_name(estimator.base)}, corrected by verdicts"
    steps = getattr(estimator, "steps", None)
    if steps:
        return " → ".join(type(step).__name__ for _, step in steps)
    return {"NetworkHead": "a network's own logits"}.get(type(estimator).__name__, type(estimator).__name__)
