# SPDX-License-Identifier: BSD-3-Clause
"""An ONNX network seen as features and logits.

Convention: the last layer is the Gemm, or the MatMul with its Add, whose result is the network's logits; features are what it is given. Both
become outputs, so that a runtime returns them, or inputs of the rule that is put behind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from poscod._optional import require
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
    path = Path(os.fspath(model))
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        return onnx.load(str(path))
    except Exception as error:
        raise InvalidInputError(
            f"{path} could not be read as an ONNX model ({type(error).__name__}: {error})."
        ) from None


def opset_of(model: Any) -> int:
    """Return the version of the standard operators."""
    version = next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if version < 13:
        raise InvalidInputError(
            f"backbone must use version 13 of the ONNX operators or later, got {version}: convert it with "
            "onnx.version_converter.convert_version, or export it again."
        )
    return version


def find_ends(model: Any, features: str | None = None, logits: str | None = None) -> Ends:
    """Find features and logits of a network."""
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = _constants(model)
    logits = _logits_name(model, logits, makers)
    found = _last_layer(logits, makers, constants)
    if features is None:
        if found is None:
            candidates = [n.input[0] for n in model.graph.node if n.op_type == "Gemm"]
            raise InvalidInputError(
                f"The network's output '{logits}' is not made by a linear layer: pass features=, the name of the value before the last "
                f"layer{' (candidates: ' + ', '.join(candidates[-4:]) + ')' if candidates else ''}."
            )
        return found
    known = set(makers) | {value.name for value in model.graph.input}
    if features not in known:
        raise InvalidInputError(f"features must be the name of a value of the network, got '{features}'.")
    if found is not None and found.features == features:
        return found
    return Ends(features, logits, None, None)


def expose(model: Any, ends: Ends) -> Any:
    """Return a copy of a network whose outputs are features and logits."""
    onnx = require("onnx", extra="onnx", feature="Reading an ONNX model")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    infos = {info.name: info for info in (*copy.graph.output, *copy.graph.value_info, *copy.graph.input)}
    if any(name not in infos for name in (ends.features, ends.logits)):
        inferred = onnx.shape_inference.infer_shapes(copy).graph
        infos |= {info.name: info for info in (*inferred.value_info, *inferred.output)}
    kind = onnx.TensorProto.FLOAT
    kept = []
    for name in dict.fromkeys((ends.features, ends.logits)):
        info = infos.get(name)
        known = info.type.tensor_type.elem_type if info is not None else 0
        kept.append(onnx.helper.make_tensor_value_info(name, known or kind, None))
    del copy.graph.output[:]
    copy.graph.output.extend(kept)
    return copy


def behind(front: Any, rule: Any, features: str | None, logits: str | None, inputs: dict[str, int]) -> Any:
    """Put the rule behind a network."""
    onnx = require("onnx", extra="onnx", feature="Exporting to ONNX")
    if "features" in inputs:
        ends = find_ends(front, features, logits)
        if ends.weight is not None and ends.weight.shape[1] != inputs["features"]:
            if inputs["features"] != inputs["logits"]:
                raise InvalidInputError(
                    f"backbone makes {ends.weight.shape[1]} features and the model was fitted on {inputs['features']}: take the network "
                    "whose activations the model was fitted on."
                )
            ends = ends._replace(features=ends.logits)  # the model was fitted on logits alone
    else:
        name = _logits_name(front, logits, {n: node for node in front.graph.node for n in node.output})
        ends = Ends(name, name, None, None)
    if ends.weight is not None and len(ends.weight) != inputs["logits"]:
        raise InvalidInputError(
            f"backbone has {len(ends.weight)} classes and the model {inputs['logits']}: take the network the model was fitted with."
        )
    exposed = expose(front, ends)
    _match_types(onnx, exposed, rule)
    pairs = [(getattr(ends, name), name) for name in inputs]
    taken = {name for node in exposed.graph.node for name in node.output} & {out.name for out in rule.graph.output}
    if taken:
        raise InvalidInputError(
            f"backbone already has a value called '{min(taken)}': rename it, the rule's output has that name."
        )
    try:
        merged = onnx.compose.merge_models(exposed, rule, io_map=pairs, outputs=[out.name for out in rule.graph.output])
    except Exception as error:
        raise InvalidInputError(f"backbone could not be joined with the rule ({error}).") from None
    onnx.helper.set_model_props(merged, {entry.key: entry.value for entry in rule.metadata_props})
    merged.producer_name = "poscod"
    return merged


def _match_types(onnx: Any, front: Any, rule: Any) -> None:
    """Let the network's last values have the type the rule takes."""
    wanted = rule.graph.input[0].type.tensor_type.elem_type
    for value in front.graph.output:
        kind = value.type.tensor_type.elem_type
        if kind != wanted:
            names = onnx.TensorProto.DataType.Name
            raise InvalidInputError(
                f"backbone gives {names(kind)} and the rule takes {names(wanted)}: pass dtype='float32' or 'float64' as the network does."
            )


def _logits_name(model: Any, logits: str | None, makers: dict[str, Any]) -> str:
    outputs = [value.name for value in model.graph.output]
    if logits is not None:
        if logits not in makers:
            raise InvalidInputError(
                f"logits must be the name of a value of the network, got '{logits}': its outputs are {outputs}."
            )
        return logits
    if "logits" in outputs:
        return "logits"
    if len(outputs) != 1:
        raise InvalidInputError(f"The network has the outputs {outputs}: pass logits=, the one that is the logits.")
    return outputs[0]


def _constants(model: Any) -> dict[str, NDArray[Any]]:
    onnx = require("onnx", extra="onnx", feature="Reading an ONNX model")
    small = {}
    for tensor in model.graph.initializer:
        if len(tensor.dims) in (1, 2):
            small[tensor.name] = onnx.numpy_helper.to_array(tensor)
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            small[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    return small


def _last_layer(name: str, makers: dict[str, Any], constants: dict[str, NDArray[Any]]) -> Ends | None:
    """Walk back from the logits to the linear layer that made them."""
    logits = name
    while name in makers and makers[name].op_type in SILENT:
        name = makers[name].input[0]
    node = makers.get(name)
    bias = None
    if node is not None and node.op_type == "Add":
        side = next((i for i in (0, 1) if node.input[i] in constants), None)
        if side is None:
            return None
        bias, node = constants[node.input[side]].reshape(-1), makers.get(node.input[1 - side])
    if node is None or node.op_type not in ("Gemm", "MatMul") or node.input[1] not in constants:
        return None
    weight = constants[node.input[1]]
    attributes = {entry.name: entry for entry in node.attribute}
    if node.op_type == "MatMul":
        return Ends(node.input[0], logits, weight.T, bias)
    scale = attributes["alpha"].f if "alpha" in attributes else 1.0
    beta = attributes["beta"].f if "beta" in attributes else 1.0
    if "transA" in attributes and attributes["transA"].i:
        return None
    weight = scale * (weight if "transB" in attributes and attributes["transB"].i else weight.T)
    if len(node.input) > 2 and node.input[2] in constants:
        bias = beta * constants[node.input[2]].reshape(-1)
    return Ends(node.input[0], logits, weight, bias)
