# SPDX-License-Identifier: BSD-3-Clause
"""log g in a graph: linear ratios and the default one, with its neighbours and covariances.

Convention: formulas and types follow `poscod.ratio`; large products are taken in the type of the features, everything else in the wide type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poscod.backends.onnx._graph import Graph
from poscod.backends.onnx._risk import Top, split_top
from poscod.exceptions import InvalidInputError
from poscod.ratio import (
    CLIP,
    CORRECTED_UP_TO,
    CORRECTION_BOUND,
    FARTHEST,
    FOLDED_MEAN,
    LOG_LIMIT,
    RESOLVED,
    TILT,
    TINY,
    Correction,
    Landmarks,
    LinearRatio,
    ReviewedRatio,
    StrongRatio,
    Trees,
)

# Farther than any row, and harmless in float32.
FAR = 1e30


def log_ratio(graph: Graph, ratio: Any, features: str, logits: str, n_classes: int) -> str:
    """Return log g of shape (n, 1)."""
    if isinstance(ratio, ReviewedRatio):
        out = log_ratio(graph, ratio.base, features, logits, n_classes)
        return graph.clip(_corrected(graph, ratio.correction, out, features, logits, n_classes), -LOG_LIMIT, LOG_LIMIT)
    model = getattr(ratio, "model_", None)
    if isinstance(model, LinearRatio):
        out = _linear(graph, model, features)
    elif isinstance(model, StrongRatio):
        out = _strong(graph, model, features, logits if "logits" in ratio.columns_ else None, n_classes)
    else:
        raise InvalidInputError(
            f"ratio must be linear or the default to be exported, got {type(ratio).__name__}: fit with CorrectedSigmoid(), "
            "StandardSigmoid(), NNPU(), WOODS() or FixedLinear(...) instead."
        )
    return graph.clip(out, -LOG_LIMIT, LOG_LIMIT)


def _corrected(graph: Graph, model: Correction, log_g: str, features: str, logits: str, n_classes: int) -> str:
    """Log g with what verdicts add to it: bounded columns times theta."""
    far = CORRECTED_UP_TO
    columns = [graph.clip(log_g, -far, far), _logit_evidence(graph, logits, split_top(graph, logits, n_classes))]
    if model.sees_features:
        columns.append(graph.cast(features, graph.wide))
    standard = graph.standardise(graph("Concat", *columns, axis=1), model.mean, 1.0 / model.scale, graph.wide)
    bounded = graph.clip(standard, -CORRECTION_BOUND, CORRECTION_BOUND)
    added = graph("Add", graph("MatMul", bounded, graph.real(model.theta[:, None])), graph.real(model.intercept))
    return graph("Add", graph("Max", log_g, graph.real(-far)), added)


def _linear(graph: Graph, model: LinearRatio, features: str) -> str:
    """theta^T (x - mean) / scale + intercept, folded where Python folds it."""
    mean, scale = model.scaler.mean, model.scaler.scale
    weight, constant = model.theta / scale, model.intercept
    if np.max(np.abs(mean) / scale, initial=0.0) <= FOLDED_MEAN:
        constant -= float(mean @ weight)
    else:
        features = graph("Sub", features, graph.constant(mean, graph.narrow))
    return graph("Add", graph.product(features, weight[:, None]), graph.real(constant))


def _strong(graph: Graph, model: StrongRatio, features: str, logits: str | None, n_classes: int) -> str:
    """Tilt * consensus + theta^T [consensus | evidence | features] + intercept, trees on these columns, and the broad part beside it."""
    shape = model.representation
    top = None if logits is None else split_top(graph, logits, n_classes)
    marks = shape.banks[0]
    if not isinstance(marks, Landmarks):
        raise InvalidInputError(
            "The model's ratio is of the first edition and cannot be exported: fit the model again with this version."
        )
    raw = _place(graph, marks, features, None if top is None else top.where)
    if logits is not None and top is not None:
        raw = graph("Concat", _logit_evidence(graph, logits, top), _norms(graph, features), raw, axis=1)
    standard = graph.standardise(raw, shape.mean, 1.0 / shape.scale, graph.wide)
    # The consensus is the sum of the views, each a standardised blend: linear in the evidence.
    blend = np.sum([view / scale for view, _, scale in shape.views], axis=0) / shape.spread
    offset = (sum(mean / scale for _, mean, scale in shape.views) + shape.centre) / shape.spread
    consensus = graph("Sub", graph("MatMul", standard, graph.real(blend[:, None])), graph.real(offset))
    consensus = graph.clip(consensus, -2 * CLIP, 2 * CLIP)
    own, evidence, rest = np.split(model.theta, [1, 1 + len(shape.names)])
    out = graph("Add", graph("Mul", consensus, graph.real(model.tilt + own)), graph.real(model.intercept))
    bounded = graph.clip(standard, -CLIP, CLIP)
    if evidence.any():
        out = graph("Add", out, graph("MatMul", bounded, graph.real(evidence[:, None])))
    if rest.any() or model.trees is not None:
        scaled = _bounded(graph, graph.standardise(features, model.scaler.mean, 1.0 / model.scaler.scale, graph.narrow))
        out = graph("Add", out, graph.product(scaled, rest[:, None])) if rest.any() else out
        if model.trees is not None:
            columns = [graph.cast(consensus, graph.narrow), graph.cast(bounded, graph.narrow), scaled]
            out = graph("Add", out, _trees(graph, model.trees, graph("Concat", *columns, axis=1)))
    if model.broad > 0.0:
        id_only = graph("Sub", graph("Mul", consensus, graph.real(TILT)), graph.real(model.log_norm))
        parts = (out, np.log1p(-model.broad)), (id_only, np.log(model.broad))
        both = [graph("Add", part, graph.real(share)) for part, share in parts]
        out = graph.reduce("ReduceLogSumExp", graph("Concat", *both, axis=1))
    return out


def _trees(graph: Graph, trees: Trees, columns: str) -> str:
    """Weight * u of the sum of the leaves that a row is in."""
    value = graph("Gather", columns, graph.constant(trees.feature, "int64"), axis=1)
    left = graph.cast(graph("LessOrEqual", value, graph.constant(trees.threshold, graph.narrow)), "float32")
    turns = graph("MatMul", graph("Transpose", left, perm=[1, 0, 2]), graph.constant(trees.path, "float32"))
    inside = graph.cast(graph("Equal", turns, graph.constant(trees.lefts, "float32")), graph.wide)
    leaf = graph("MatMul", inside, graph.real(trees.value[:, :, None]))
    total = graph("Squeeze", graph("ReduceSum", leaf, graph.constant([0], "int64")), graph.constant([0], "int64"))
    score = graph("Add", total, graph.real(trees.base))
    known = graph("Exp", graph("Min", graph("Sub", graph.real(trees.log_a), score), graph.real(0.0)))
    rest = graph.log_at_least(graph("Sub", graph.real(1.0), known), graph.real(trees.least))
    return graph("Mul", graph("Add", score, rest), graph.real(trees.weight))


def _logit_evidence(graph: Graph, logits: str, top: Top) -> str:
    """Energy, max logit, log(1 - MSP), log entropy, margin."""
    total = graph.reduce("ReduceLogSumExp", logits)
    log_p = graph("Sub", logits, total)
    entropy = graph("Neg", graph.reduce("ReduceSum", graph("Mul", graph("Exp", log_p), log_p)))
    rest = graph("Sub", graph.reduce("ReduceLogSumExp", top.others), total)
    columns = [
        graph("Neg", total),
        graph("Neg", top.best),
        graph("Max", rest, graph.real(-60.0)),
        graph.log_at_least(entropy, graph.real(1e-26)),
        graph("Sub", graph.reduce("ReduceMax", top.others), top.best),
    ]
    return graph("Concat", *columns, axis=1)


def _norms(graph: Graph, features: str) -> str:
    """Minus the logarithms of the L1 and the L2 norm."""
    absolute = graph.cast(graph("Abs", features), graph.wide)
    norms = graph.reduce("ReduceSum", absolute), graph("Sqrt", graph.squares(features))
    return graph("Concat", *(graph("Neg", graph.log_at_least(norm, graph.real(TINY))) for norm in norms), axis=1)


def _place(graph: Graph, marks: Landmarks, features: str, predicted: str | None) -> str:
    """Neighbours, class means, residual and, with a network, the predicted class and the whole."""
    tiny = graph.real(TINY)
    x = _bounded(graph, graph.standardise(features, marks.centre, marks.scale, graph.narrow))
    z = graph("MatMul", x, graph.constant(marks.axes, graph.narrow))
    square = graph.product(graph("Mul", z, z), marks.measures)
    along, minor, spread = (graph("Gather", square, graph.constant([k], "int64"), axis=1) for k in range(3))
    length = graph.squares(x)
    nothing = graph.real([[0.0]])
    rest = nothing if marks.complete else graph("Max", graph("Sub", length, along), nothing)
    points = graph.product(z, marks.whitening)
    cross = graph("MatMul", points, graph.real(-2.0 * marks.means.T))
    to_class = graph("Add", graph("Add", graph.squares(points), cross), graph.real(np.sum(marks.means**2, axis=1)))
    to_class = graph("Max", graph("Add", to_class, graph("Div", rest, graph.real(marks.inside))), tiny)
    resolved = graph("Add", graph("Mul", length, graph.real(RESOLVED)), tiny)
    residual = graph.log_at_least(graph("Add", rest, minor), resolved)
    near = _near(graph, marks, _unit(graph, features) if marks.unit else x, predicted)
    columns = [near, graph("Log", graph.reduce("ReduceMin", to_class)), graph("Mul", residual, graph.real(0.5))]
    if predicted is not None:
        columns.append(graph("Log", graph("GatherElements", to_class, predicted, axis=1)))
        whole = graph("Add", spread, graph("Div", rest, graph.real(marks.outside)))
        columns.append(graph.log_at_least(whole, tiny))
    return graph("Concat", *columns, axis=1)


def _bounded(graph: Graph, x: str) -> str:
    bounded = graph("Max", x, graph.constant(-FARTHEST, graph.narrow))
    return graph("Min", bounded, graph.constant(FARTHEST, graph.narrow))


def _unit(graph: Graph, features: str) -> str:
    norm = graph("Max", graph("Sqrt", graph.squares(features)), graph.real(TINY))
    return graph("Div", features, graph.cast(norm, graph.narrow))


def _near(graph: Graph, marks: Landmarks, x: str, predicted: str | None) -> str:
    """Logarithm of the squared distance to the nearest row of the own class: rows of the others are pushed away."""
    half = 0.5 * np.einsum("md,md->m", marks.rows, marks.rows)
    if marks.unit:
        half[:] = 0.5
    closeness = graph("MatMul", x, graph.constant(marks.rows.T, graph.narrow))
    closeness = graph("Sub", closeness, graph.constant(half, graph.narrow))
    index = (
        graph.constant([0], "int64") if predicted is None else graph("Squeeze", predicted, graph.constant([1], "int64"))
    )
    share, pushed = marks.nearest()
    best = None
    for k in range(share.shape[1]):
        away = graph("Gather", graph.constant(np.where(pushed[:, k], -FAR, 0.0), graph.narrow), index, axis=0)
        found = graph.cast(graph.reduce("ReduceMax", graph("Add", closeness, away)), graph.wide)
        found = graph("Mul", found, graph("Gather", graph.real(share[:, k : k + 1]), index, axis=0))
        best = found if best is None else graph("Add", best, found)
    assert best is not None
    square = graph.real([[1.0]]) if marks.unit else graph.squares(x)
    floor = graph("Add", graph("Mul", square, graph.real(RESOLVED)), graph.real(TINY))
    return graph.log_at_least(graph("Sub", square, graph("Mul", best, graph.real(2.0))), floor)
