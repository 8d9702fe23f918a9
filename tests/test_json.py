"""Any value becomes one that JSON can hold, and finite values come back as they were.

SPDX-License-Identifier: BSD-3-Clause
"""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod._json import LARGEST, plain
from poscod.metrics import Interval

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner))


@given(VALUES, st.sampled_from([None, LARGEST]))
def test_everything_is_json(value, infinity):
    json.dumps(plain(value, infinity=infinity), allow_nan=False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i)
    )
)
def test_what_json_holds_is_kept(value):
    assert plain(value) == value == json.loads(json.dumps(plain(value)))


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
def test_infinities_keep_their_order(kind):
    values = [kind("-inf"), kind(-1.5), kind(0.0), kind("inf")]
    assert plain(values) == [None, -1.5, 0.0, None]
    found = plain(values, infinity=LARGEST)
    assert found == sorted(found)
    assert found[0] == -LARGEST
    assert all(map(math.isfinite, found))
    assert plain(kind("nan"), infinity=LARGEST) is None


def test_the_library_s_own_values():
    interval = Interval(0.5, float("nan"), np.inf, 0.95)
    assert plain({3: interval}) == {"3": {"estimate": 0.5, "low": None, "high": None, "level": 0.95}}
    assert plain(np.array([["a", 1], [None, 2.5]], dtype=object)) == [["a", 1], [None, 2.5]]
    assert plain(np.datetime64("2024-01-01")) == "2024-01-01"
    assert plain(frozenset({np.int8(3)})) == [3]
    assert type(plain(np.str_("x"))) is str
