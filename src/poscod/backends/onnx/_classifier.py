# SPDX-License-Identifier: BSD-3-Clause
"""Classifiers of scikit-learn in a graph: scaling and logistic regression.

Convention: a classifier becomes its logarithms of probabilities, floored as in `POSCOD`; what is not listed in `STEPS` is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from poscod.backends.onnx._graph import Graph
from poscod.exceptions import InvalidInputError
from poscod.model import LEAST_PROBABILITY


def _standard(step: StandardScaler) -> tuple[Any, Any]:
    gain = 1.0 if step.scale_ is None else 1.0 / step.scale_
    return gain, -step.mean_ * gain if step.with_mean else 0.0


STEPS: dict[type, Callable[[Any], tuple[Any, Any]]] = {
    StandardScaler: _standard,
    MinMaxScaler: lambda step: (step.scale_, step.min_),
    MaxAbsScaler: lambda step: (1.0 / step.scale_, 0.0),
}
"""Steps of a pipeline before the classifier: by what they multiply and what they add."""


def classifier_logits(graph: Graph, classifier: Any, x: str) -> str:
    """Return log p(y | x) of a fitted classifier, shape (n, K)."""
    if isinstance(classifier, FrozenEstimator):
        classifier = classifier.estimator
    steps = classifier.steps if isinstance(classifier, Pipeline) else [("", classifier)]
    *before, classifier = (step for _, step in steps if step not in (None, "passthrough"))
    refused = [step for step in before if type(step) not in STEPS]
    if refused or type(classifier) is not LogisticRegression:
        known = ", ".join(sorted(kind.__name__ for kind in STEPS))
        raise InvalidInputError(
            f"classifier must be a LogisticRegression, alone or behind {known}, to be exported, got "
            f"{type([*refused, classifier][0]).__name__}: give its logits as Activations instead, and put its own ONNX graph in front."
        )
    for step in before:
        gain, offset = STEPS[type(step)](step)
        x = graph("Add", graph("Mul", x, graph.real(gain)), graph.real(offset))
        x = graph.clip(x, *step.feature_range) if getattr(step, "clip", False) else x
    weight, bias = classifier.coef_, classifier.intercept_
    if len(classifier.classes_) == 2:  # one row of coefficients stands for the second class
        weight, bias = np.vstack([np.zeros_like(weight), weight]), np.concatenate([[0.0], np.ravel(bias)])
    margin = graph("Add", graph("MatMul", x, graph.real(weight.T)), graph.real(bias))
    return graph.log_at_least(graph("Softmax", margin, axis=1), graph.real(LEAST_PROBABILITY))
