# SPDX-License-Identifier: BSD-3-Clause
"""log g in a graph: linear ratios and the default one, with its neighbours and covariances.

Convention: formulas and types follow `poscod.ratio`; large products are taken in the type of the features, everything else in the wide type.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod.backends.onnx._graph import Graph
from poscod.backends.onnx._risk import Top, split_top
from poscod.exceptions import InvalidInputError
from poscod.ratio import CLIP, FOLDED_MEAN, LOG_LIMIT, NEIGHBOURS, TINY, Bank, LinearRatio, Representation, StrongRatio


def log_ratio(graph: Graph, ratio: Any, features: str, logits: str | None, n_classes: int) -> str:
    """Return log g of shape (n, 1)."""
    model = getattr(ratio, "model_", None)
    if isinstance(model, LinearRatio):
        out = _linear(graph, model, features)
    elif isinstance(model, StrongRatio):
        out = _strong(graph, model, features, logits, n_classes)
    else:
        raise InvalidInputError(
            f"ratio must be linear or the default to be exported, got {type(ratio).__name__}: fit with CorrectedSigmoid(), "
            "StandardSigmoid(), NNPU(), WOODS() or FixedLinear(...) instead."
        )
    return graph.clip(out, -LOG_LIMIT, LOG_LIMIT)


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
    """Tilt * consensus + theta^T [consensus | evidence | features] + intercept."""
    shape = model.representation
    top = None if logits is None else split_top(graph, logits, n_classes)
    raw = _places(graph, shape, features, None if top is None else top.where)
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
    if evidence.any():
        part = graph("MatMul", graph.clip(standard, -CLIP, CLIP), graph.real(evidence[:, None]))
        out = graph("Add", out, part)
    if rest.any():
        scaled = graph.standardise(features, model.scaler.mean, 1.0 / model.scaler.scale, graph.narrow)
        out = graph("Add", out, graph.product(scaled, rest[:, None]))
    return out


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


def _places(graph: Graph, shape: Representation, features: str, predicted: str | None) -> str:
    """Mean over the banks of where the rows lie."""
    norm = graph("Max", graph("Sqrt", graph.squares(features)), graph.real(TINY))
    unit = graph("Div", features, graph.cast(norm, graph.narrow))
    places = [_place(graph, bank, features, unit, predicted) for bank in shape.banks]
    total = functools.reduce(lambda first, second: graph("Add", first, second), places)
    return graph("Div", total, graph.real(float(len(places))))


def _place(graph: Graph, bank: Bank, features: str, unit: str, predicted: str | None) -> str:
    """Neighbours, class means, residual and, with a network, the predicted class and the whole."""
    tiny = graph.real(TINY)
    x = graph.standardise(features, bank.centre, bank.scale, graph.narrow)
    near = _near(graph, bank.neighbours, unit if bank.unit else x)
    points = graph.product(x, bank.whitening)
    cross = graph("MatMul", points, graph.real(-2.0 * bank.means.T))
    to_class = graph("Add", graph("Add", graph.squares(points), cross), graph.real(np.sum(bank.means**2, axis=1)))
    to_class = graph("Max", to_class, tiny)
    residual = graph.log_at_least(graph.squares(graph.product(x, bank.minor)), tiny)
    columns = [near, graph("Log", graph.reduce("ReduceMin", to_class)), graph("Mul", residual, graph.real(0.5))]
    if predicted is not None:
        columns.append(graph("Log", graph("GatherElements", to_class, predicted, axis=1)))
        columns.append(graph.log_at_least(graph.squares(graph.product(x, bank.whitening_global)), tiny))
    return graph("Concat", *columns, axis=1)


def _near(graph: Graph, rows: NDArray[Any], x: str) -> str:
    """Logarithm of the mean squared distance to the nearest rows of a bank."""
    k = min(NEIGHBOURS, len(rows))
    half = 0.5 * np.einsum("ij,ij->i", rows, rows)
    closeness = graph("MatMul", x, graph.constant(rows.T, graph.narrow))
    closeness = graph("Sub", closeness, graph.constant(half, graph.narrow))
    best = graph("TopK", closeness, graph.constant([k], "int64"), more=("index",), axis=1)
    mean = graph("Mul", graph.reduce("ReduceSum", graph.cast(best, graph.wide)), graph.real(2.0 / k))
    square = graph.squares(x)
    floor = graph("Add", graph("Mul", square, graph.real(1e-6)), graph.real(TINY))
    return graph.log_at_least(graph("Sub", square, mean), floor)
