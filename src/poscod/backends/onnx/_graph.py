# SPDX-License-Identifier: BSD-3-Clause
"""Building a graph operation by operation.

Convention: values are names; every internal name starts with ``poscod/``, so that a graph can stand behind another one. Reals have one of two
types: `wide`, in which numbers are combined, and `narrow`, the type of the features, in which large products are taken, as in Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require

REALS = ("float32", "float64")
# From this version on the axes of reductions are an input instead of an attribute.
AXES_AS_INPUT = 18


class Graph:
    """A graph under construction.

    Parameters
    ----------
    opset : int
        Version of the operators, 13 or later.
    narrow, wide : {"float32", "float64"}
    """

    def __init__(self, opset: int, narrow: str, wide: str) -> None:
        self.onnx = require("onnx", extra="onnx", feature="Exporting to ONNX")
        self.opset, self.narrow, self.wide = opset, narrow, wide
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: Any, dtype: str) -> str:
        """Return the name of a constant; equal ones are stored once."""
        array: NDArray[Any] = np.ascontiguousarray(np.asarray(value, dtype=dtype)).reshape(np.shape(value))
        key = dtype, array.shape, array.tobytes()
        if key not in self._known:
            self._known[key] = f"poscod/constant_{len(self.constants)}"
            self.constants.append(self.onnx.numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def real(self, value: Any) -> str:
        """Return the name of a constant of the wide type."""
        return self.constant(value, self.wide)

    def __call__(self, operator: str, *inputs: str, to: str | None = None, **attributes: Any) -> str:
        """Add an operation with one output and return its name."""
        name = f"poscod/{operator.lower()}_{len(self.nodes)}" if to is None else to
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], name=f"{name}_node", **attributes))
        return name

    def cast(self, value: str, dtype: str, to: str | None = None) -> str:
        """Return a value in another type."""
        name = f"poscod/cast_{len(self.nodes)}" if to is None else to
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.nodes.append(self.onnx.helper.make_node("Cast", [value], [name], name=f"{name}_node", to=kind))
        return name

    def reduce(self, operator: str, value: str, *, keep: bool = False) -> str:
        """Reduce the columns of each row."""
        if operator == "ReduceSum" or self.opset >= AXES_AS_INPUT:
            return self(operator, value, self.constant([1], "int64"), keepdims=int(keep))
        return self(operator, value, axes=[1], keepdims=int(keep))

    def squares(self, value: str) -> str:
        """Return the sum of squares of each row, shape (n, 1), in the wide type."""
        value = self.cast(value, self.wide)
        return self.reduce("ReduceSum", self("Mul", value, value), keep=True)

    def log_at_least(self, value: str, least: str) -> str:
        """Return the logarithm of a value that is at least another."""
        return self("Log", self("Max", value, least))
