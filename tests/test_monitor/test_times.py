from __future__ import annotations

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod.exceptions import InvalidInputError
from poscod.monitor._times import UNITS, age_in_days, check_width, read_moments, window_index, window_start


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("15min", 900), ("1h", 3600), ("2d", 172800), ("1w", 604800)]
)
def test_widths_in_text(text, seconds):
    assert check_width(text) == (seconds * 1_000_000, True)


@pytest.mark.parametrize("wrong", ["1y", "0d", "-1h", "h", "", 0, -3.0, float("inf"), float("nan"), None, True])
def test_wrong_widths_are_refused_with_the_units(wrong):
    with pytest.raises(InvalidInputError, match="15min"):
        check_width(wrong)


def test_all_ways_to_write_a_moment_meet_in_one_window():
    width = check_width("1h")
    seconds = 1_767_225_600 + 5400.5  # 2026-01-01T01:30:00.5Z
    moments = [
        seconds,
        np.datetime64("2026-01-01T01:30:00.5"),
        "2026-01-01T01:30:00.500000Z",
        "2026-01-01T04:30:00.5+03:00".replace(".5", ".500"),
        datetime.datetime(2026, 1, 1, 1, 30, tzinfo=datetime.timezone.utc),
        datetime.datetime(2026, 1, 1, 1, 30),
    ]
    found = {int(window_index(moment, 1, width)[0]) for moment in moments}
    assert found == {int(seconds // 3600)}
    assert window_start(found.pop(), width) == "2026-01-01T01:00:00Z"


@given(st.integers(-(10**10), 10**10), st.sampled_from(sorted(UNITS)))
def test_a_moment_lies_between_the_ends_of_its_window(second, unit):
    width = check_width(f"3{unit}")
    index = int(window_index(float(second), 1, width)[0])
    assert index * width.size <= second * 1_000_000 < (index + 1) * width.size


def test_numbers_have_their_own_unit():
    assert window_index([0, 99.5, 100, -1], 4, check_width(100)).tolist() == [0, 0, 1, -1]
    assert window_start(3, check_width(100)) == 300.0


@pytest.mark.parametrize(
    ("at", "window"),
    [
        (["2026-13-01", "2026-01-01"], "1d"),
        ([float("nan"), 1.0], "1d"),
        ([1.0, 2.0, 3.0], "1d"),
        (np.array(["NaT", "2026-01-01"], dtype="datetime64[s]"), "1d"),
        (["2026-01-01"] * 2, 10),
        ([1.7e18, 1.7e18], "1d"),  # nanoseconds
        ([[1.0], [2.0]], "1d"),
        ([None, None], "1d"),
        ([1e300, 0.0], 1e-10),
    ],
)
def test_moments_that_cannot_be_read_are_refused(at, window):
    with pytest.raises(InvalidInputError, match="at "):
        window_index(at, 2, check_width(window))


@pytest.mark.parametrize("wrong", ["9999-12-31", "0001-01-01", 253402300799.0, np.datetime64("9999-12-31T23:59:59")])
def test_sentinels_are_refused_with_their_row(wrong):
    """The window of a moment must end before the year 10000, or no window could be printed any more."""
    width = check_width("1w")
    at = np.array([wrong, wrong], dtype=getattr(wrong, "dtype", None) or object)
    at = np.asarray(at.tolist()) if isinstance(wrong, float) else at
    with pytest.raises(InvalidInputError, match=r"years 1 to 9999.* at row 0"):
        window_index(at, 2, width)
    with pytest.raises(InvalidInputError, match="at row 100"):
        read_moments(at, width, 100)
    last = int(window_index("9999-12-23", 1, width)[0])
    assert window_start(last + 1, width) <= "9999-12-31T"


def test_age():
    width = check_width("1d")
    assert age_in_days("2026-01-01", int(window_index("2026-01-31", 1, width)[0]), width) == 30.0
    assert np.isnan(age_in_days("2026-01-01", 5, check_width(10)))
