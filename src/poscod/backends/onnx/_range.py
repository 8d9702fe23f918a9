# SPDX-License-Identifier: BSD-3-Clause
"""Outside of what was seen, in a graph: the nearest values that the ratio reads, and the distance that is added to log g.

Convention: formulas follow `poscod.model`; a matrix of inputs is a value of the narrow type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from poscod._validation import Floats
from poscod.backends.onnx._graph import Graph
from poscod.model import STEEP, Guard
from poscod.ratio import LOG_LIMIT


def between(graph: Graph, x: str, low: Floats, high: Floats) -> str:
    """Return values moved to the nearest one between two ends, column by column."""
    with np.errstate(over="ignore"):
        ends = (graph.constant(end.astype(graph.narrow), graph.narrow) for end in (low, high))
    return graph("Min", graph("Max", x, next(ends)), next(ends))


def distance(graph: Graph, guard: Guard, inputs: Sequence[str]) -> str:
    """Return the distance of each row from what labeled rows held, of shape (n, 1)."""
    total = None
    for x, part in zip(inputs, guard.ranges, strict=True):
        inside = graph.cast(between(graph, x, part.low, part.high), graph.wide)
        gap = graph("Abs", graph("Sub", graph.cast(x, graph.wide), inside))
        # A gap may be too large for a number: it is cut before it is divided.
        steps = graph("Div", graph("Min", gap, graph.real(part.most * part.unit)), graph.real(part.unit))
        own = graph.reduce("ReduceSum", graph("Mul", steps, steps))
        total = own if total is None else graph("Add", total, own)
    assert total is not None
    return graph("Mul", total, graph.real(STEEP))


def beyond(graph: Graph, log_ratio: str, far: str, scale: float) -> str:
    """Return log g of rows at a distance."""
    nothing = graph.real(0.0)
    fade = graph("Max", graph("Sub", graph.real(1.0), far), nothing)
    certain = graph("Mul", graph("Min", log_ratio, nothing), fade)
    whole = graph("Add", graph("Add", certain, graph("Max", log_ratio, nothing)), graph("Mul", far, graph.real(scale)))
    return graph("Min", whole, graph.real(LOG_LIMIT))
