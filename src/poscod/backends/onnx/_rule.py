# SPDX-License-Identifier: BSD-3-Clause
"""The whole decision rule as one ONNX graph.

Convention: inputs are ``features`` and ``logits`` of a network, or ``input`` of a classifier that is part of the rule; the number of rows is free.
Outputs are ``label`` (class index), ``accept``, ``reason`` (index into the list in the metadata), ``risk``, ``log_ratio``, ``score`` and ``posterior``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from poscod._files import replacing
from poscod._json import plain
from poscod._validation import check_choice
from poscod.backends.onnx._backbone import behind, open_model, opset_of
from poscod.backends.onnx._classifier import classifier_logits
from poscod.backends.onnx._graph import REALS, Graph
from poscod.backends.onnx._range import between, beyond, distance
from poscod.backends.onnx._ratio import log_ratio
from poscod.backends.onnx._risk import answer
from poscod.decision import MAIN_SHARE, REASONS, TANGENT_AT
from poscod.exceptions import InvalidInputError
from poscod.model import POSCOD, drift_document, mix_document
from poscod.rule import Rule

OUTPUTS = ("label", "accept", "reason", "risk", "log_ratio", "score", "posterior")
OPSET, IR_VERSION = 17, 8
# exp leaves single precision above 88.
TANGENTS = {"float64": TANGENT_AT, "float32": 80.0}


def export_rule(
    model: POSCOD,
    path: str | os.PathLike[str] | None = None,
    *,
    backbone: Any = None,
    features: str | None = None,
    logits: str | None = None,
    dtype: str | None = None,
    precision: str = "float64",
) -> Any:
    """Write a fitted model as an ONNX graph that any runtime can serve.

    Parameters
    ----------
    model : POSCOD
        Fitted; its ratio is linear or the default, and its classifier a network (`Activations`) or a logistic regression, scaled or not.
    path : str or path-like, default=None
        File to write; None only returns the graph.
    backbone : str, path-like or ModelProto, default=None
        ONNX network whose features and logits the model was fitted on: the result takes the network's inputs.
    features, logits : str, default=None
        Names of these values in the network; None finds them at its last linear layer.
    dtype : {"float32", "float64"}, default=None
        Type of the inputs; None is float32 for networks and float64 for tables. Large products (neighbours, covariances) are taken in it.
    precision : {"float64", "float32"}, default="float64"
        Type of everything else. float64 is what Python does; float32 is for runtimes without doubles.

    Returns
    -------
    graph : onnx.ModelProto
        Its metadata hold, as JSON, ``poscod.rule`` (`Rule.to_dict`: problem, slope, threshold, promise), ``poscod.sentence`` (the rule in
        words), ``poscod.classes``, ``poscod.reasons``, ``poscod.ood_prior`` and ``poscod.class_mix`` (the mix that the graph decides for).

    Notes
    -----
    Against Python on real activations the score differs by about 1e-4 in double precision. In single precision rows
    whose score is within rounding of the threshold may be decided otherwise.
    """
    if not isinstance(model, POSCOD):
        raise InvalidInputError(f"model must be a fitted POSCOD, got {type(model).__name__}.")
    check_is_fitted(model, "rule_")
    network = model.scorer_.network
    if model.schema_.given is not None:
        raise InvalidInputError(
            "model must read numbers alone to become an ONNX graph, and this one reads answers and their scores: use it in Python, the shell or the service."
        )
    if model.scorer_.preparation is not None:
        raise InvalidInputError(
            "model reads a table with texts or gaps, and a graph takes numbers: fit a model on model.scorer_.prepared(frame), which is the table as numbers, and export that one."
        )
    dtype = ("float32" if network else "float64") if dtype is None else dtype
    for name, value in (("dtype", dtype), ("precision", precision)):
        check_choice(value, name, dict.fromkeys(REALS))
    front = None if backbone is None else open_model(backbone)
    if front is not None and not network:
        raise InvalidInputError(
            "backbone needs a model that was fitted on Activations: this one has a classifier of its own."
        )
    graph = Graph(OPSET if front is None else opset_of(front), dtype, precision)
    inputs = _build(graph, model)
    proto = _model(graph, model, inputs, IR_VERSION if front is None else front.ir_version)
    if front is not None:
        proto = behind(front, proto, features, logits, inputs)
    if path is not None:
        with replacing(Path(path)) as file:
            file.write(proto.SerializeToString())
    return proto


def _build(graph: Graph, model: POSCOD) -> dict[str, int]:
    """Add the operations and return the inputs with their columns."""
    scorer, rule = model.scorer_, model.rule_
    k = len(scorer.classes)
    columns: dict[str, int] = {} if scorer.ratio is None else scorer.ratio.columns_
    guard = scorer.guard
    if scorer.network:
        z = graph.cast("logits", graph.wide)
        inputs = {"logits": k} if scorer.ratio is None else {"features": columns["features"], "logits": k}
        given = list(inputs)
    else:
        inputs, given = {"input": model.schema_.n_features}, ["input"]
        read = "input" if guard is None else between(graph, "input", *guard.ranges[0].readable)
        z = classifier_logits(graph, scorer.classifier, graph.cast(read, graph.wide))
    risk = answer(graph, z, k, scorer.temperature, scorer.bias, rule.problem.loss_matrix(k))
    if scorer.ratio is None:
        g = graph("Sub", graph("Mul", risk, graph.real(0.0)), graph.real(np.inf), name="log_ratio")
    else:
        # A model of logits alone takes them for features, too.
        ranges = (
            () if guard is None else guard.ranges[-1:] * len(given) if len(guard.ranges) < len(given) else guard.ranges
        )
        near = [
            between(graph, x, part.read_low, part.read_high) for x, part in zip(given, ranges, strict=False)
        ] or given
        logits = near[-1]
        if not scorer.network:
            logits = (
                z if guard is None else classifier_logits(graph, scorer.classifier, graph.cast(near[0], graph.wide))
            )
        wide = graph.cast(logits, graph.wide) if scorer.network else logits
        x = near[0] if scorer.network or scorer.uses_features else graph.cast(wide, graph.narrow)
        values = log_ratio(graph, scorer.ratio, x, wide, k)
        if guard is not None:
            far = distance(graph, guard, given[-len(guard.ranges) :])
            values = beyond(graph, values, far, guard.scale)
        g = graph("Reshape", values, graph.constant([-1], "int64"), name="log_ratio")
    _decide(graph, rule, risk, g)
    return inputs


def _decide(graph: Graph, rule: Rule, risk: str, log_ratio: str) -> None:
    """Add score, accept and reason."""
    score, part = _score(graph, risk, log_ratio, rule.slope)
    accept = graph("LessOrEqual", score, graph.real(rule.threshold), name="accept")
    index = {name: graph.constant(place, "int64") for place, name in enumerate(REASONS)}
    ambiguous = graph("GreaterOrEqual", part, graph("Mul", score, graph.real(MAIN_SHARE)))
    unfamiliar = graph("LessOrEqual", part, graph("Mul", score, graph.real(1.0 - MAIN_SHARE)))
    chosen = graph("Where", unfamiliar, index["unfamiliar"], index["both"])
    chosen = graph("Where", ambiguous, index["ambiguous"], chosen)
    graph("Where", accept, index["accepted"], chosen, name="reason")


def _score(graph: Graph, risk: str, log_ratio: str, beta: float) -> tuple[str, str]:
    """Return s = r + beta g and the part of it that is risk."""
    if beta == 0.0:
        return graph("Identity", risk, name="score"), risk
    edge = TANGENTS[graph.wide]
    alone = np.isinf(beta)
    exponent = log_ratio if alone else graph("Add", log_ratio, graph.real(np.log(abs(beta))))
    beyond = graph("Max", graph("Sub", exponent, graph.real(edge)), graph.real(0.0))
    term = graph("Mul", graph("Exp", graph("Min", exponent, graph.real(edge))), graph("Add", beyond, graph.real(1.0)))
    if alone:
        return graph("Identity", term, name="score"), graph("Mul", risk, graph.real(0.0))
    return graph("Add" if beta > 0 else "Sub", risk, term, name="score"), risk


def _model(graph: Graph, model: POSCOD, inputs: dict[str, int], ir_version: int) -> Any:
    helper = graph.onnx.helper
    kinds = {"label": "int64", "accept": "bool", "reason": "int64"}
    columns = {"posterior": [len(model.scorer_.classes)]}
    given = [graph.info(name, graph.narrow, ["rows", width]) for name, width in inputs.items()]
    made = [graph.info(name, kinds.get(name, graph.wide), ["rows", *columns.get(name, [])]) for name in OUTPUTS]
    body = helper.make_graph(graph.nodes, "poscod", given, made, graph.constants)
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", graph.opset)], ir_version=ir_version)
    proto.producer_name, proto.producer_version = "poscod", sys.modules["poscod"].__version__
    facts = {
        "classes": model.schema_.labels(model.scorer_.classes),
        "reasons": list(REASONS),
        "rule": model.rule_.to_dict(),
        "sentence": str(model.rule_),
        "ood_prior": model.calibration_.ood_prior,
        "class_mix": mix_document(model),
        "drift": drift_document(model),
    }
    helper.set_model_props(proto, {f"poscod.{name}": json.dumps(plain(value)) for name, value in facts.items()})
    graph.onnx.checker.check_model(proto)
    return proto
