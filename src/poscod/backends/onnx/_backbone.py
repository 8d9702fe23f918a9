# SPDX-License-Identifier: BSD-3-Clause
"""An ONNX network seen as features and logits.

Convention: the last layer is the Gemm, or the MatMul with its Add, whose result is the network's logits; features are what it is given. Both
become outputs, so that a runtime returns them, or inputs of the rule that is put behind.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from numpy.typing import NDArray

from poscod._optional import require
from poscod.backends._running import reason
from poscod.exceptions import InvalidInputError

# Operations after the last layer that change no number.
SILENT = {"Identity", "Flatten", "Reshape", "Squeeze", "Cast"}


class Ends(NamedTuple):
    """Names of features and logits, and the last layer where it is known."""

    features: str
    logits: str
    weight: NDArray[Any] | None
    bias: NDArray[Any] | None


def open_model(model: Any) -> Any:
    """Return a model from a file, or the model."""
    onnx = require("onnx", extra="onnx", feature="Reading an ONNX model")
    if isinstance(model, onnx.ModelProto):
        return model
    try:
        return onnx.load(os.fspath(model))
    except OSError:
        raise
    except Exception as error:
        raise InvalidInputError(f"{model} could not be read as an ONNX model ({reason(error)}).") from None


def opset_of(model: Any) -> int:
    """Return the version of the standard operators."""
    version = next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if version < 13:
        raise InvalidInputError(
            "{parameter} must use version 13 of the ONNX operators or later, got {got}: convert it with "
            "onnx.version_converter.convert_version, or export it again.",
            parameter="backbone",
            got=version,
        )
    return version


def find_ends(model: Any, features: str | None = None, logits: str | None = None) -> Ends:
    """Find features and logits of a network."""
    makers = {name: node for node in model.graph.node for name in node.output}
    logits = logits_name(model, logits)
    found = _last_layer(model, logits, makers)
    if features is None:
        if found is None:
            candidates = [n.input[0] for n in model.graph.node if n.op_type == "Gemm"]
            raise InvalidInputError(
                "The network's output '{got}' is not made by a linear layer: pass {features}, the name of the value before the last layer "
                "(candidates: {allowed}).",
                got=logits,
                allowed=", ".join(candidates[-4:]) or "none",
            )
        return found
    _check_value(model, features, "features")
    return found if found is not None and found.features == features else Ends(features, logits, None, None)


def logits_name(model: Any, logits: str | None) -> str:
    """Return the name of the logits: the one given, the output of that name, or the only output."""
    outputs = [value.name for value in model.graph.output]
    if logits is not None:
        return _check_value(model, logits, "logits")
    if "logits" not in outputs and len(outputs) != 1:
        raise InvalidInputError(
            "The network has the outputs {got}: pass {logits}, the one that is the logits.", got=outputs
        )
    return "logits" if "logits" in outputs else outputs[0]


def _check_value(model: Any, name: str, parameter: str) -> str:
    """Return the name of a value that the network has."""
    made = [output for node in model.graph.node for output in node.output]
    if name not in made and all(name != value.name for value in model.graph.input):
        raise InvalidInputError(
            "{parameter} must be the name of a value of the network, got '{got}': the last ones are {allowed}.",
            parameter=parameter,
            got=name,
            allowed=", ".join(made[-4:]),
        )
    return name


def expose(model: Any, ends: Ends) -> Any:
    """Return a copy of a network whose outputs are features and logits."""
    onnx = require("onnx", extra="onnx", feature="Reading an ONNX model")
    copy = onnx.shape_inference.infer_shapes(model)
    infos = (*copy.graph.input, *copy.graph.value_info, *copy.graph.output)
    kinds = {info.name: info.type.tensor_type.elem_type for info in infos}
    kept = [
        onnx.helper.make_tensor_value_info(name, kinds.get(name) or onnx.TensorProto.FLOAT, None)
        for name in dict.fromkeys((ends.features, ends.logits))
    ]
    del copy.graph.output[:]
    copy.graph.output.extend(kept)
    return copy


def behind(front: Any, rule: Any, features: str | None, logits: str | None, inputs: dict[str, int]) -> Any:
    """Put the rule behind a network."""
    onnx = require("onnx", extra="onnx", feature="Exporting to ONNX")
    ends = _ends_for(front, features, logits, inputs)
    exposed = expose(front, ends)
    wanted, names = rule.graph.input[0].type.tensor_type.elem_type, onnx.TensorProto.DataType.Name
    for value in exposed.graph.output:
        if (kind := value.type.tensor_type.elem_type) != wanted:
            raise InvalidInputError(
                "{backbone} gives {got} and the rule takes {allowed}: pass {dtype} float32 or float64, as the network does.",
                got=names(kind),
                allowed=names(wanted),
            )
    outputs = [out.name for out in rule.graph.output]
    pairs = [(getattr(ends, name), name) for name in inputs]
    try:
        merged = onnx.compose.merge_models(exposed, rule, io_map=pairs, outputs=outputs)
    except Exception as error:
        raise InvalidInputError(f"backbone could not be joined with the rule ({error}).") from None
    onnx.helper.set_model_props(merged, {entry.key: entry.value for entry in rule.metadata_props})
    merged.producer_name = "poscod"
    return merged


def _ends_for(front: Any, features: str | None, logits: str | None, inputs: dict[str, int]) -> Ends:
    """Find the values that a rule takes, and refuse a network it was not fitted with."""
    if "features" not in inputs:
        name = logits_name(front, logits)
        return Ends(name, name, None, None)
    ends = find_ends(front, features, logits)
    if ends.weight is None:
        return ends
    n_classes, n_features = ends.weight.shape
    if n_classes == inputs["logits"] and n_features == inputs["features"]:
        return ends
    if n_classes == inputs["logits"] == inputs["features"]:
        return ends._replace(features=ends.logits)  # the model was fitted on logits alone
    raise InvalidInputError(
        "{backbone} makes {got[0]} features and {got[1]} logits and the model was fitted on {features} and {logits}: take the "
        "network whose activations the model was fitted on.",
        got=(n_features, n_classes),
        **inputs,
    )


def _last_layer(model: Any, logits: str, makers: dict[str, Any]) -> Ends | None:
    """Walk back from the logits to the linear layer that made them."""
    onnx = require("onnx", extra="onnx", feature="Reading an ONNX model")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    name = logits
    while name in makers and makers[name].op_type in SILENT:
        name = makers[name].input[0]
    node, bias = makers.get(name), None
    if node is not None and node.op_type == "Add":
        side = next((i for i in (0, 1) if node.input[i] in tensors), None)
        if side is None:
            return None
        bias, node = node.input[side], makers.get(node.input[1 - side])
    if node is None or node.op_type not in ("Gemm", "MatMul") or node.input[1] not in tensors:
        return None
    options = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    if options.get("transA"):
        return None
    bias = bias or next((given for given in node.input[2:] if given in tensors), None)
    to_array = onnx.numpy_helper.to_array
    weight = to_array(tensors[node.input[1]])
    weight = options.get("alpha", 1.0) * (weight if options.get("transB") else weight.T)
    constant = None if bias is None else options.get("beta", 1.0) * to_array(tensors[bias]).reshape(-1)
    return Ends(node.input[0], logits, weight, constant)
