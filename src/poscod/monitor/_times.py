# SPDX-License-Identifier: BSD-3-Clause
"""Which window a moment falls into.

Convention: windows are aligned: window i is ``[i w, (i + 1) w)`` for the width w, so all workers agree on them without talking to
each other. A width in text, such as "1h", counts time since 1970 in UTC; a number counts in the unit of ``at`` itself.
"""

from __future__ import annotations

import datetime
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import check_vector
from poscod.exceptions import InvalidInputError

UNITS: dict[str, int] = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
"""Units of a window's width and their seconds."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICRO = 1_000_000
_STEP = datetime.timedelta(microseconds=1)
_YEARS = np.array(["0001-01-01", "9999-12-31T23:59:59.999999"], dtype="datetime64[us]").astype(np.int64)


class Width(NamedTuple):
    """A checked width.

    Attributes
    ----------
    size : float
        Microseconds for a clock, units of ``at`` otherwise.
    clock : bool
        Whether ``at`` is a moment in time.
    """

    size: float
    clock: bool


def check_width(window: Any) -> Width:
    """Check the width of windows.

    Examples
    --------
    >>> check_width("2h").size / 3_600_000_000, check_width(500)
    (2.0, Width(size=500.0, clock=False))
    """
    match = re.fullmatch(r"(\d+)\s*(s|min|h|d|w)", window.strip()) if isinstance(window, str) else None
    if match and int(match.group(1)):
        return Width(int(match.group(1)) * UNITS[match.group(2)] * _MICRO, True)
    if isinstance(window, (int, float, np.number)) and window is not True and 0.0 < float(window) < float("inf"):
        return Width(float(window), False)
    allowed = (
        f"a text such as '15min', '1h', '1d' (units {', '.join(UNITS)}) or a positive number in the unit of {{at}}"
    )
    raise InvalidInputError(f"{{parameter}} must be {allowed}, got {{got!r}}.", parameter="window", got=window)


def window_index(at: Any, n: int, width: Width) -> NDArray[np.int64]:
    """Return the window of each row.

    Examples
    --------
    >>> day = check_width("1d")
    >>> window_index(["1970-01-02", "1970-01-03T01:00:00+02:00"], 2, day).tolist(), window_index(86400.0, 2, day).tolist()
    ([1, 1], [1, 1])
    """
    values = np.asarray(at)
    if values.ndim == 0:
        return np.repeat(window_index(values[None], 1, width), n)
    if values.ndim != 1 or len(values) != n:
        message = "{parameter} must be one moment or one per decision ({allowed}), got shape {got}."
        raise InvalidInputError(message, parameter="at", allowed=n, got=values.shape)
    if width.clock:
        return read_moments(values, width).astype(np.int64) // int(width.size)
    if values.dtype.kind not in "iuf":
        message = "{parameter} must hold numbers where {window} is a number: for dates it is a text such as 1d."
        raise InvalidInputError(message, parameter="at")
    with np.errstate(over="ignore"):
        place = np.floor(check_vector(values, "at", allow_inf=False) / width.size)
    if len(place) and np.abs(place).max() > 2**53:
        message = "{parameter} lies too many windows from zero: check its unit or give a wider {window}."
        raise InvalidInputError(message, parameter="at")
    return place.astype(np.int64)


def window_start(index: int, width: Width) -> str | float:
    """Return the beginning of a window: ISO text in UTC for a clock, else a number."""
    if not width.clock:
        return index * width.size
    return (_EPOCH + index * int(width.size) * _STEP).isoformat().replace("+00:00", "Z")


def age_in_days(since: str, index: int, width: Width) -> float:
    """Return the days from a date to the beginning of a window; NaN where windows are not times."""
    if not width.clock:
        return float("nan")
    return (index * width.size - float(_moment(since, 0))) / (UNITS["d"] * _MICRO)


def read_moments(values: NDArray[Any], width: Width, start: int = 0) -> NDArray[np.datetime64]:
    """Read moments, however they are written."""
    if values.dtype.kind == "M":
        _refuse(np.isnat(values), values, start, "no gaps")
        moments = values.astype("datetime64[us]").astype(np.int64)
    elif values.dtype.kind in "iuf":
        seconds = values.astype(np.float64)
        _refuse(~np.isfinite(seconds), values, start, "finite numbers")
        _refuse(np.abs(seconds) > 2.6e11, values, start, "seconds since 1970, up to the year 9999 (check the unit)")
        moments = np.floor(seconds * _MICRO).astype(np.int64)
    else:
        # Logs repeat moments: each distinct text is read once.
        seen: dict[Any, int] = {}
        moments = np.empty(len(values), dtype=np.int64)
        for row, value in enumerate(values.tolist()):
            if value not in seen:
                seen[value] = _moment(value, start + row)
            moments[row] = seen[value]
    # Both ends of the window must be dates, too: they are printed.
    begin = moments // int(width.size) * int(width.size)
    outside = (begin < _YEARS[0]) | (begin > _YEARS[1] - int(width.size))
    _refuse(
        outside, values, start, "moments in windows within the years 1 to 9999 (leave out rows without a real time)"
    )
    return moments.astype("datetime64[us]")


def _refuse(wrong: NDArray[np.bool_], values: NDArray[Any], start: int, allowed: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise _refusal(allowed, values[row], start + row)


def _refusal(allowed: str, got: Any, row: int) -> InvalidInputError:
    message = "{parameter} must hold {allowed}, got {got} at row {row}."
    return InvalidInputError(message, parameter="at", allowed=allowed, got=got, row=row)


def _moment(value: Any, row: int) -> int:
    try:
        if isinstance(value, str):
            # Python 3.10 does not know the Z of UTC.
            value = datetime.datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            value = datetime.datetime(value.year, value.month, value.day)
        moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.timezone.utc)
        return (moment - _EPOCH) // _STEP
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise _refusal("dates such as 2026-01-31T12:00:00Z (UTC where no zone is given)", value, row) from None
