# SPDX-License-Identifier: BSD-3-Clause
"""Numbers and labels of any kind as JSON.

Convention: JSON has no infinity, so an infinite number is written as the largest double with its sign: comparisons such as
``score <= threshold`` come out the same. NaN and None are null. What JSON has no type for is its text.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod import _json
from poscod._json import LARGEST


def plain(value: Any) -> Any:
    """Return a value that JSON can hold; infinities become the largest double."""
    return _json.plain(value, infinity=LARGEST)


def floats(array: NDArray[np.float64]) -> list[float]:
    """Return a column of numbers; infinities become the largest double."""
    return np.clip(array, -LARGEST, LARGEST).tolist()


def column(array: NDArray[Any]) -> list[Any]:
    """Return a column of labels."""
    return array.tolist() if array.dtype.kind in "iubU" else [plain(value) for value in array.tolist()]


def dumps(value: Any) -> bytes:
    """Return the JSON text of a plain value."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass")
