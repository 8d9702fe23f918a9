"""From the library's objects to plain values that JSON can hold.

Convention: a number that is undefined or infinite is None; arrays are lists; an `Interval` is a dictionary of estimate, low, high, level.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from poscod.metrics import Interval


def plain(value: Any) -> Any:
    """Return a value as JSON knows it.

    Parameters
    ----------
    value : object

    Returns
    -------
    value : None, bool, int, float, str, list or dict
        Whatever else it is becomes its text.

    Examples
    --------
    >>> plain({"a": np.array([1.5, np.nan]), "b": np.bool_(True), "c": Interval(0.5, 0.0, float("inf"), 0.95)})
    {'a': [1.5, None], 'b': True, 'c': {'estimate': 0.5, 'low': 0.0, 'high': None, 'level': 0.95}}
    """
    if value is None or isinstance(value, (str, bool)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Interval):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(entry) for entry in value.tolist()]
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return str(value)
