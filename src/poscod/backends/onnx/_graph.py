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

    def __call__(
        self, operator: str, *inputs: str, name: str | None = None, more: tuple[str, ...] = (), **attributes: Any
    ) -> str:
        """Add an operation and return the name of its first output; `more` are endings for names of the others."""
        name = f"poscod/{operator.lower()}_{len(self.nodes)}" if name is None else name
        made = [name, *(f"{name}_{ending}" for ending in more)]
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), made, name=f"{name}_node", **attributes))
        return name

    def info(self, name: str, dtype: str, shape: list[Any]) -> Any:
        """Return what a graph says of an input or output."""
        return self.onnx.helper.make_tensor_value_info(name, self._type(dtype), shape)

    def cast(self, value: str, dtype: str) -> str:
        """Return a value in another type."""
        return self("Cast", value, to=self._type(dtype))

    def _type(self, dtype: str) -> int:
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reduce(self, operator: str, value: str) -> str:
        """Reduce the columns of each row to one."""
        if operator == "ReduceSum" or self.opset >= AXES_AS_INPUT:
            return self(operator, value, self.constant([1], "int64"))
        return self(operator, value, axes=[1])

    def standardise(self, value: str, mean: Any, gain: Any, dtype: str) -> str:
        """Return (value - mean) * gain, column by column."""
        return self("Mul", self("Sub", value, self.constant(mean, dtype)), self.constant(gain, dtype))

    def product(self, value: str, matrix: Any) -> str:
        """Return value @ matrix, multiplied in the narrow type and returned in the wide one."""
        return self.cast(self("MatMul", value, self.constant(matrix, self.narrow)), self.wide)

    def clip(self, value: str, low: float, high: float) -> str:
        """Return a value inside an interval."""
        return self("Min", self("Max", value, self.real(low)), self.real(high))

    def squares(self, value: str) -> str:
        """Return the sum of squares of each row, shape (n, 1), in the wide type."""
        value = self.cast(value, self.wide)
        return self.reduce("ReduceSum", self("Mul", value, value))

    def log_at_least(self, value: str, least: str) -> str:
        """Return the logarithm of a value that is at least another."""
        return self("Log", self("Max", value, least))
