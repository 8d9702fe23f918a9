# SPDX-License-Identifier: BSD-3-Clause
"""From the library's objects to plain values that JSON can hold.

Convention: JSON has neither NaN nor infinity: NaN is null, and an infinite number is null or, where the caller says so, a number that
stands for it. Arrays, tuples and sets are lists, a named tuple is a dictionary of its fields, whatever else there is becomes its text.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["LARGEST", "plain"]

LARGEST = sys.float_info.max


def plain(value: Any, *, infinity: float | None = None) -> Any:
    """Return a value as JSON knows it.

    Examples
    --------
    >>> plain({"a": np.array([1.5, np.nan]), 2: (np.bool_(True), "x"), "b": -np.inf})
    {'a': [1.5, None], '2': [True, 'x'], 'b': None}
    >>> plain({"beta": float("inf"), "kind": b"x"}, infinity=LARGEST)
    {'beta': 1.7976931348623157e+308, 'kind': "b'x'"}
    """
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None if infinity is None or math.isnan(value) else math.copysign(infinity, value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(item, infinity=infinity) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, infinity=infinity) for item in value]
    return str(value)
