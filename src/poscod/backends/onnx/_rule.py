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
from poscod._inputs import NetworkHead
from poscod._validation import check_choice, check_count
from poscod.backends.onnx._backbone import behind, open_model, opset_of
from poscod.backends.onnx._classifier import classifier_logits
from poscod.backends.onnx._graph import REALS, Graph
from poscod.backends.onnx._ratio import log_ratio
from poscod.backends.onnx._risk import answer
from poscod.decision import _MAIN_SHARE, REASONS
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.strategies._scores import _TANGENT_AT

OUTPUTS = ("label", "accept", "reason", "risk", "log_ratio", "score", "posterior")
OPSET, FIRST_OPSET, IR_VERSION = 17, 13, 8
# exp leaves single precision above 88.
TANGENT_AT = {"float64": _TANGENT_AT, "float32": 80.0}
LARGEST = 2**31 - 2**20


def export_rule(
    model: POSCOD,
    path: str | os.PathLike[str] | None = None,
    *,
    backbone: Any = None,
    features: str | None = None,
    logits: str | None = None,
    dtype: str | None = None,
    precision: str = "float64",
    opset: int | None = None,
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
    opset : int, default=None
        Version of the operators; None is 17, or that of the network.

    Returns
    -------
    graph : onnx.ModelProto

    Notes
    -----
    Against Python on real activations the score differs by less than 1e-5 of its size in double precision. In single precision rows
    whose score is within rounding of the threshold may be decided otherwise.
    """
    if not isinstance(model, POSCOD):
        raise InvalidInputError(f"model must be a fitted POSCOD, got {type(model).__name__}.")
    check_is_fitted(model, "threshold_")
    network = isinstance(model.classifier_, NetworkHead)
    dtype = ("float32" if network else "float64") if dtype is None else dtype
    for name, value in (("dtype", dtype), ("precision", precision)):
        check_choice(value, name, dict.fromkeys(REALS))
    front = None if backbone is None else open_model(backbone)
    if front is not None and not network:
        raise InvalidInputError(
            "backbone needs a model that was fitted on Activations: this one has a classifier of its own."
        )
    version = check_count(
        opset if opset is not None else (OPSET if front is None else opset_of(front)), "opset", FIRST_OPSET
    )
    graph = Graph(version, dtype, precision)
    inputs = _build(graph, model, network)
    proto = _model(graph, model, inputs, IR_VERSION if front is None else front.ir_version)
    if front is not None:
        proto = behind(front, proto, features, logits, inputs)
    if proto.ByteSize() > LARGEST:
        raise InvalidInputError("The graph is larger than 2 GB, which ONNX files cannot hold: fit on fewer features.")
    if path is not None:
        with replacing(Path(path)) as file:
            file.write(proto.SerializeToString())
    return proto


def _build(graph: Graph, model: POSCOD, network: bool) -> dict[str, int]:
    """Add the operations and return the inputs with their columns."""
    k = len(model.classes_)
    ratio = model.ratio_
    columns: dict[str, int] = {} if ratio is None else ratio.columns_
    if network:
        z = graph.cast("logits", graph.wide)
        x: str = "features"
        inputs = {"logits": k} if ratio is None else {"features": columns["features"], "logits": k}
    else:
        z = classifier_logits(graph, model.classifier_, graph.cast("input", graph.wide))
        x = "input" if model.uses_features_ else graph.cast(z, graph.narrow)
        inputs = {"input": int(model.n_features_in_)}
    _, _, risk = answer(graph, z, k, model.temperature_, model.problem_.loss_matrix(k))
    rows = graph.constant([-1], "int64")
    if ratio is None:
        g = graph("Sub", graph("Mul", risk, graph.real(0.0)), graph.real(np.inf), to="log_ratio")
    else:
        values = log_ratio(graph, ratio, x, z if "logits" in columns else None, k)
        g = graph("Reshape", values, rows, to="log_ratio")
    score, part = _score(graph, risk, g, model.beta_)
    accept = graph("LessOrEqual", score, graph.real(model.threshold_), to="accept")
    _reason(graph, part, score, accept)
    return inputs


def _score(graph: Graph, risk: str, log_ratio: str, beta: float) -> tuple[str, str]:
    """Return s = r + beta g and the part of it that is risk."""
    if beta == 0.0:
        return graph("Identity", risk, to="score"), risk
    edge = TANGENT_AT[graph.wide]
    alone = np.isinf(beta)
    exponent = log_ratio if alone else graph("Add", log_ratio, graph.real(np.log(abs(beta))))
    beyond = graph("Max", graph("Sub", exponent, graph.real(edge)), graph.real(0.0))
    term = graph("Mul", graph("Exp", graph("Min", exponent, graph.real(edge))), graph("Add", beyond, graph.real(1.0)))
    if alone:
        return graph("Identity", term, to="score"), graph("Mul", risk, graph.real(0.0))
    return graph("Add" if beta > 0 else "Sub", risk, term, to="score"), risk


def _reason(graph: Graph, part: str, score: str, accept: str) -> None:
    """Index of the reason, in the order of `REASONS`."""
    index = {name: graph.constant(place, "int64") for place, name in enumerate(REASONS)}
    ambiguous = graph("GreaterOrEqual", part, graph("Mul", score, graph.real(_MAIN_SHARE)))
    unfamiliar = graph("LessOrEqual", part, graph("Mul", score, graph.real(1.0 - _MAIN_SHARE)))
    chosen = graph("Where", unfamiliar, index["unfamiliar"], index["both"])
    chosen = graph("Where", ambiguous, index["ambiguous"], chosen)
    graph("Where", accept, index["accepted"], chosen, to="reason")


def _model(graph: Graph, model: POSCOD, inputs: dict[str, int], ir_version: int) -> Any:
    helper, types = graph.onnx.helper, graph.onnx.TensorProto
    real = {"float32": types.FLOAT, "float64": types.DOUBLE}
    kinds = {"label": types.INT64, "accept": types.BOOL, "reason": types.INT64}
    k = len(model.classes_)
    given = [helper.make_tensor_value_info(name, real[graph.narrow], ["rows", width]) for name, width in inputs.items()]
    made = [
        helper.make_tensor_value_info(
            name, kinds.get(name, real[graph.wide]), ["rows", k] if name == "posterior" else ["rows"]
        )
        for name in OUTPUTS
    ]
    body = helper.make_graph(graph.nodes, "poscod", given, made, graph.constants)
    proto = helper.make_model(body, opset_imports=[helper.make_opsetid("", graph.opset)], ir_version=ir_version)
    proto.producer_name, proto.producer_version = "poscod", sys.modules["poscod"].__version__
    # To the last digit: a program that sets another threshold starts from this one.
    facts = {
        "classes": model.classes_.tolist(),
        "reasons": list(REASONS),
        "threshold": float(model.threshold_),
        "beta": repr(float(model.beta_)),
        "ood_prior": float(model.ood_prior_),
        "reject_label": model.reject_label
        if isinstance(model.reject_label, (str, int, float))
        else str(model.reject_label),
    }
    helper.set_model_props(proto, {f"poscod.{name}": json.dumps(value) for name, value in facts.items()})
    graph.onnx.checker.check_model(proto)
    return proto
