# SPDX-License-Identifier: BSD-3-Clause
"""log g in a graph: linear ratios and the default one, with its neighbours and covariances.

Convention: formulas and types follow `poscod.ratio`; large products are taken in the type of the features, everything else in the wide type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poscod.backends.onnx._graph import Graph
from poscod.backends.onnx._risk import split_top
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
    return graph("Min", graph("Max", out, graph.real(-LOG_LIMIT)), graph.real(LOG_LIMIT))


def _linear(graph: Graph, model: LinearRatio, features: str) -> str:
    """theta^T (x - mean) / scale + intercept, folded where Python folds it."""
    mean, scale = model.scaler.mean, model.scaler.scale
    weight, constant = model.theta / scale, model.intercept
    if np.max(np.abs(mean) / scale, initial=0.0) <= FOLDED_MEAN:
        constant -= float(mean @ weight)
    else:
        features = graph("Sub", features, graph.constant(mean, graph.narrow))
    product = graph("MatMul", features, graph.constant(weight[:, None], graph.narrow))
    return graph("Add", graph.cast(product, graph.wide), graph.real(constant))


def _strong(graph: Graph, model: StrongRatio, features: str, logits: str | None, n_classes: int) -> str:
    """Tilt * consensus + theta^T [consensus | evidence | features] + intercept."""
    shape = model.representation
    top = None if logits is None else split_top(graph, logits, n_classes)
    raw = _places(graph, shape, features, None if top is None else top.where)
    if logits is not None and top is not None:
        raw = graph("Concat", _logit_evidence(graph, logits, top, n_classes), _norms(graph, features), raw, axis=1)
    standard = graph("Mul", graph("Sub", raw, graph.real(shape.mean)), graph.real(1.0 / shape.scale))
    views = None
    for blend, mean, scale in shape.views:
        view = graph("Sub", graph("MatMul", standard, graph.real(blend[:, None])), graph.real(mean))
        view = graph("Mul", view, graph.real(1.0 / scale))
        views = view if views is None else graph("Add", views, view)
    if views is None:
        raise InvalidInputError("This ratio has no evidence to export: fit it again.")
    consensus = _clip(
        graph, graph("Mul", graph("Sub", views, graph.real(shape.centre)), graph.real(1.0 / shape.spread)), 2 * CLIP
    )
    q = len(shape.names)
    out = graph("Add", graph("Mul", consensus, graph.real(model.tilt + model.theta[0])), graph.real(model.intercept))
    if model.theta[1 : 1 + q].any():
        part = graph("MatMul", _clip(graph, standard, CLIP), graph.real(model.theta[1 : 1 + q, None]))
        out = graph("Add", out, part)
    if model.theta[1 + q :].any():
        centred = graph("Sub", features, graph.constant(model.scaler.mean, graph.narrow))
        scaled = graph("Mul", centred, graph.constant(1.0 / model.scaler.scale, graph.narrow))
        part = graph("MatMul", scaled, graph.constant(model.theta[1 + q :, None], graph.narrow))
        out = graph("Add", out, graph.cast(part, graph.wide))
    return out


def _logit_evidence(graph: Graph, logits: str, top: Any, n_classes: int) -> str:
    """Energy, max logit, log(1 - MSP), log entropy, margin."""
    total = graph.reduce("ReduceLogSumExp", logits, keep=True)
    log_p = graph("Sub", logits, total)
    entropy = graph("Neg", graph.reduce("ReduceSum", graph("Mul", graph("Exp", log_p), log_p), keep=True))
    if n_classes > 1:
        rest = graph("Sub", graph.reduce("ReduceLogSumExp", top.others, keep=True), total)
        second = graph.reduce("ReduceMax", top.others, keep=True)
    else:
        rest, second = graph("Sub", total, total), top.best
    columns = [
        graph("Neg", total),
        graph("Neg", top.best),
        graph("Max", rest, graph.real(-60.0)),
        graph.log_at_least(entropy, graph.real(1e-26)),
        graph("Sub", second, top.best),
    ]
    return graph("Concat", *columns, axis=1)


def _norms(graph: Graph, features: str) -> str:
    """Minus the logarithms of the L1 and the L2 norm."""
    tiny = graph.real(TINY)
    absolute = graph.cast(graph("Abs", features), graph.wide)
    norms = graph.reduce("ReduceSum", absolute, keep=True), graph("Sqrt", graph.squares(features))
    return graph("Concat", *(graph("Neg", graph.log_at_least(norm, tiny)) for norm in norms), axis=1)


def _places(graph: Graph, shape: Representation, features: str, predicted: str | None) -> str:
    """Mean over the banks of where the rows lie."""
    unit = None
    if any(bank.unit for bank in shape.banks):
        norm = graph("Max", graph("Sqrt", graph.squares(features)), graph.real(TINY))
        unit = graph("Div", features, graph.cast(norm, graph.narrow))
    total = None
    for bank in shape.banks:
        place = _place(graph, bank, features, unit, predicted)
        total = place if total is None else graph("Add", total, place)
    assert total is not None
    return graph("Div", total, graph.real(float(len(shape.banks))))


def _place(graph: Graph, bank: Bank, features: str, unit: str | None, predicted: str | None) -> str:
    """Neighbours, class means, residual and, with a network, the predicted class and the whole."""
    tiny = graph.real(TINY)

    def narrow(value: Any) -> str:
        return graph.constant(value, graph.narrow)

    x = graph("Mul", graph("Sub", features, narrow(bank.centre)), narrow(bank.scale))
    near = _near(graph, bank, unit if bank.unit and unit is not None else x)
    points = graph.cast(graph("MatMul", x, narrow(bank.whitening)), graph.wide)
    cross = graph("MatMul", points, graph.real(-2.0 * bank.means.T))
    to_class = graph("Add", graph("Add", graph.squares(points), cross), graph.real(np.sum(bank.means**2, axis=1)))
    to_class = graph("Max", to_class, tiny)
    nearest = graph("Log", graph.reduce("ReduceMin", to_class, keep=True))
    residual = graph.log_at_least(graph.squares(graph("MatMul", x, narrow(bank.minor))), tiny)
    columns = [near, nearest, graph("Mul", residual, graph.real(0.5))]
    if predicted is not None:
        spread = graph.squares(graph("MatMul", x, narrow(bank.whitening_global)))
        columns.append(graph("Log", graph("GatherElements", to_class, predicted, axis=1)))
        columns.append(graph.log_at_least(spread, tiny))
    return graph("Concat", *columns, axis=1)


def _near(graph: Graph, bank: Bank, x: str) -> str:
    """Logarithm of the mean squared distance to the nearest rows of the bank."""
    rows = bank.neighbours
    k = min(NEIGHBOURS, len(rows))
    half = 0.5 * np.einsum("ij,ij->i", rows, rows)
    closeness = graph("MatMul", x, graph.constant(np.ascontiguousarray(rows.T), graph.narrow))
    closeness = graph("Sub", closeness, graph.constant(half, graph.narrow))
    best, index = f"poscod/best_{len(graph.nodes)}", f"poscod/index_{len(graph.nodes)}"
    count = graph.constant([k], "int64")
    graph.nodes.append(
        graph.onnx.helper.make_node("TopK", [closeness, count], [best, index], name=f"{best}_node", axis=1)
    )
    mean = graph("Mul", graph.reduce("ReduceSum", graph.cast(best, graph.wide), keep=True), graph.real(2.0 / k))
    square = graph.squares(x)
    floor = graph("Add", graph("Mul", square, graph.real(1e-6)), graph.real(TINY))
    return graph.log_at_least(graph("Sub", square, mean), floor)


def _clip(graph: Graph, value: str, limit: float) -> str:
    return graph("Min", graph("Max", value, graph.real(-limit)), graph.real(limit))
