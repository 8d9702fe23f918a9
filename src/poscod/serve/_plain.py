"""Numbers and labels of any kind as JSON.

Convention: JSON has no infinity, so an infinite number is written as the largest double with its sign: comparisons such as
``score <= threshold`` come out the same. NaN and None are null. What JSON has no type for is its text.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST", "column", "dumps", "floats", "plain"]

LARGEST = sys.float_info.max


def plain(value: Any) -> Any:
    """Return a value that JSON can hold.

    Parameters
    ----------
    value : object

    Returns
    -------
    value : None, bool, int, float, str, list or dict

    Examples
    --------
    >>> plain({"beta": float("inf"), "classes": np.array([1, 2]), "mark": float("nan"), "kind": b"x"})
    {'beta': 1.7976931348623157e+308, 'classes': [1, 2], 'mark': None, 'kind': "b'x'"}
    """
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else math.copysign(LARGEST, value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return str(value)


def floats(array: NDArray[np.float64]) -> list[float]:
    """Return a column of numbers; infinities become the largest double.

    Parameters
    ----------
    array : ndarray of shape (n,)
        Without NaN.

    Returns
    -------
    numbers : list of float
    """
    return np.clip(array, -LARGEST, LARGEST).tolist()


def column(array: NDArray[Any]) -> list[Any]:
    """Return a column of labels.

    Parameters
    ----------
    array : ndarray of shape (n,)

    Returns
    -------
    labels : list
    """
    return array.tolist() if array.dtype.kind in "iubU" else [plain(value) for value in array.tolist()]


def dumps(value: Any) -> bytes:
    """Return the JSON text of a plain value.

    Parameters
    ----------
    value : JSON value

    Returns
    -------
    text : bytes
    """
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass")
