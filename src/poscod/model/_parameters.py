# SPDX-License-Identifier: BSD-3-Clause
"""What the parameters of a `POSCOD` ask for: the problem, how rows are held out, and the parts to fit.

Convention: parameters are read here and checked at `fit`; nothing is stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poscod._validation import check_choice, check_count, check_number, refusal
from poscod.exceptions import InvalidInputError
from poscod.model._scorer import NetworkHead
from poscod.problem import Problem, ScodProblem
from poscod.ratio import CorrectedSigmoid
from poscod.selector import TPR_OVER


def asked(model: Any) -> Problem:
    """Return the problem that the parameters ask for."""
    short = (model.alpha, model.tpr_min, model.loss)
    check_choice(model.tpr_over, "tpr_over", TPR_OVER)
    if model.problem is None:
        return ScodProblem(*short)
    if not isinstance(model.problem, Problem):
        raise refusal("problem", "must be a problem of poscod.problem, got {got!r}.", got=model.problem)
    if ScodProblem(*short) != ScodProblem():
        raise InvalidInputError("problem excludes alpha, tpr_min and loss: put them into the problem.")
    if model.tpr_over == "classes" and model.problem.tpr_min is None:
        raise refusal(
            "tpr_over",
            "= 'classes' needs a problem that asks for a TPR, such as ScodProblem, got {got}: use {tpr_over} = 'all' or another problem.",
            got=type(model.problem).__name__,
        )
    return model.problem


def held_out(model: Any) -> float | int | str:
    """Return how rows are held out: "auto", a share (float) or a number of folds (int)."""
    check_choice(model.threshold, "threshold", {"empirical": 0, "guaranteed": 1})
    check_number(model.delta, "delta", 0.0, 1.0, closed="neither")
    if isinstance(model.calibration, str):
        if model.calibration != "auto":
            raise refusal(
                "calibration", "must be 'auto', a share or a number of folds, got {got!r}.", got=model.calibration
            )
        return "auto"
    if not isinstance(model.calibration, (int, np.integer)) or isinstance(model.calibration, bool):
        return check_number(model.calibration, "calibration", 0.0, 1.0, closed="neither")
    if model.threshold == "guaranteed":
        raise InvalidInputError(
            "{threshold}='guaranteed' needs rows that nothing was fitted on: {parameter} must be 'auto' or a share, got {got} folds.",
            parameter="calibration",
            got=model.calibration,
        )
    return check_count(model.calibration, "calibration", 2)


def template_of(model: Any, network: bool, prepared: bool) -> Any:
    """Return the classifier to fit; prepared rows, which are never sparse, are centered, because the columns of a category sum to 1."""
    if network:
        if model.classifier is not None:
            raise InvalidInputError(
                "classifier must be None with Activations: the network's logits are the classifier."
            )
        return NetworkHead()
    if model.classifier is not None:
        return model.classifier
    return make_pipeline(StandardScaler(with_mean=prepared), LogisticRegression(max_iter=1000))


def ratio_to_fit(model: Any) -> Any:
    """Return the ratio to fit."""
    return CorrectedSigmoid() if model.ratio is None else model.ratio
