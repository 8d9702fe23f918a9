# SPDX-License-Identifier: BSD-3-Clause
"""From logits to posterior, answer and conditional risk, in a graph.

Convention: the same formulas as `poscod.risk`, with the largest logit taken out of every sum, so that confident rows keep their order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from poscod._validation import Floats
from poscod.backends.onnx._graph import Graph

# Stands for minus infinity where a class is left out of a sum; far below any logit, and finite in single precision.
NEVER = -1e30


class Top(NamedTuple):
    """The largest logit and the others."""

    where: str
    best: str
    others: str


def split_top(graph: Graph, logits: str, n_classes: int) -> Top:
    """Split logits into the largest and the others."""
    index = graph("ArgMax", logits, axis=1, keepdims=1)
    best = graph.reduce("ReduceMax", logits)
    mask = graph("Equal", index, graph.constant(np.arange(n_classes)[None, :], "int64"))
    return Top(index, best, graph("Where", mask, graph.real(NEVER), logits))


def answer(graph: Graph, logits: str, n_classes: int, temperature: float, bias: Floats | None, loss: Floats) -> str:
    """Add posterior and answer, and return the conditional risk."""
    rows = graph.constant([-1], "int64")
    scaled = graph("Div", logits, graph.real(temperature))
    if bias is not None:
        scaled = graph("Add", scaled, graph.real(bias[None, :]))
    posterior = graph("Softmax", scaled, axis=1, name="posterior")
    if np.array_equal(loss, 1.0 - np.eye(n_classes)):
        top = split_top(graph, scaled, n_classes)
        label = top.where
        risk = graph("Sigmoid", graph.reduce("ReduceLogSumExp", graph("Sub", top.others, top.best)))
    else:
        expected = graph("MatMul", posterior, graph.real(loss))
        label = graph("ArgMin", expected, axis=1, keepdims=1)
        risk = graph("GatherElements", expected, label, axis=1)
    graph("Reshape", label, rows, name="label")
    return graph("Reshape", risk, rows, name="risk")
