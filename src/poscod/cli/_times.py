# SPDX-License-Identifier: BSD-3-Clause
"""When rows of a log came, for commands that say so of groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod.cli._columns import Table
from poscod.cli._names import NAMES
from poscod.exceptions import InvalidInputError
from poscod.monitor import check_width, read_moments

TIME_WORDS = "dates, seconds since 1970, or texts that sort by time"
"""What a column of times may hold."""


def times_of(table: Table, name: str) -> NDArray[Any]:
    """Return the time of each row; numbers are seconds since 1970, as the monitor reads them, and gaps are refused."""
    values = table.read([name])[name]
    gaps = np.array([value is None or value != value for value in values.tolist()], dtype=bool)
    if values.ndim != 1 or gaps.any():
        where = f"a gap at row {int(np.argmax(gaps)) + 1}" if gaps.any() else "lists"
        raise InvalidInputError(f"column '{name}' of {table.path} must hold a time in every row, got {where}.")
    if values.dtype.kind not in "iuf":
        return values
    try:
        return read_moments(values, check_width("1w"))
    except InvalidInputError as error:
        raise InvalidInputError(error.told(NAMES)) from None
