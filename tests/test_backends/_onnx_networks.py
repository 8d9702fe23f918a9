"""Small ONNX networks written by hand, so that no test of ONNX needs torch."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def network(d=6, hidden=8, classes=4, ending="gemm", opset=17, kind=np.float32, seed=0, ir=8):
    """Linear, ReLU, linear; the last layer in several ways of writing it."""
    rng = np.random.default_rng(seed)
    parts = {
        "w1": rng.normal(size=(d, hidden)),
        "b1": rng.normal(size=hidden),
        "w2": rng.normal(size=(hidden, classes)),
        "b2": rng.normal(size=classes),
        "w2t": None,
        "shape": np.array([-1, classes]),
    }
    parts["w2t"] = parts["w2"].T.copy()
    arrays = {name: value if name == "shape" else value.astype(kind) for name, value in parts.items()}
    node = helper.make_node
    nodes = [node("Gemm", ["x", "w1", "b1"], ["h"]), node("Relu", ["h"], ["phi"])]
    nodes += {
        "gemm": [node("Gemm", ["phi", "w2", "b2"], ["out"])],
        "transposed": [node("Gemm", ["phi", "w2t", "b2"], ["out"], transB=1)],
        "matmul": [node("MatMul", ["phi", "w2"], ["m"]), node("Add", ["b2", "m"], ["out"])],
        "identity": [node("Gemm", ["phi", "w2", "b2"], ["m"]), node("Identity", ["m"], ["i"]), node("Reshape", ["i", "shape"], ["out"])],
        "softmax": [node("Gemm", ["phi", "w2", "b2"], ["z"]), node("Softmax", ["z"], ["out"])],
        "scaled": [node("Gemm", ["phi", "w2", "b2"], ["out"], alpha=0.5, beta=2.0)],
    }[ending]  # fmt: skip
    used = {name for n in nodes for name in n.input}
    real = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", real, ["n", d])],
        [helper.make_tensor_value_info("out", real, ["n", classes])],
        [numpy_helper.from_array(value, name) for name, value in arrays.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def pooled(classes=3):
    """Images (n, 3, h, w) to logits: mean of each channel, then a linear layer."""
    rng = np.random.default_rng(1)
    arrays = {"w": rng.normal(size=(3, classes)).astype(np.float32), "b": np.zeros(classes, np.float32)}
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixels"], ["p"]),
        helper.make_node("Flatten", ["p"], ["phi"]),
        helper.make_node("Gemm", ["phi", "w", "b"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "pooled",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", classes])],
        [numpy_helper.from_array(value, name) for name, value in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
