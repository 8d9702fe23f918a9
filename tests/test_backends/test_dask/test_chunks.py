"""Rows in chunks: what is picked, spread and brought here are the rows that were meant."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod import Activations
from poscod.backends.dask import DaskActivations, Passes
from poscod.backends.dask._chunks import as_chunks, draw

N = 300
CUTS = st.lists(st.integers(0, N), max_size=4).map(lambda cuts: tuple(np.diff([0, *sorted(cuts), N]).tolist()))


@given(cuts=CUTS, rows=st.one_of(st.sets(st.integers(0, N - 1), min_size=1), st.sets(st.integers(0, N - 1), min_size=1, max_size=3)))  # fmt: skip
def test_picked_rows_are_those_of_an_index(cuts, rows):
    """Many rows travel as bits, few as numbers."""
    X = np.arange(2.0 * N).reshape(N, 2)
    chunks = as_chunks(da.from_array(X, chunks=(cuts, 2)), "X", Passes())
    chosen = np.array(sorted(rows))
    assert all(chunks.lengths)
    np.testing.assert_array_equal(chunks.pick(chosen).bring(Passes(), "rows"), X[chosen])
    assert len(chunks.pick(chosen)) == len(chosen)
    parts = Passes().collect(chunks.map(_pair, each=(chunks.spread(X[:, 1]),)).parts, "pairs")
    assert all(np.array_equal(rows[:, 1], values) for rows, values in parts)


def _pair(rows, values):
    return rows, values


def test_every_kind_of_rows_comes_back_as_it_is():
    X = np.arange(12.0).reshape(6, 2)
    array = da.from_array(X, chunks=(4, 1))  # columns in chunks, too
    frame = pd.DataFrame(X, columns=["a", "b"], index=range(10, 16))
    kinds = {
        "array": (array, X),
        "frame": (dd.from_pandas(frame, npartitions=2), frame),
        "network": (DaskActivations(array, array + 1.0, table=True), Activations(X + 1.0, X, table=True)),
        "logits": (DaskActivations(array), Activations(None, X)),
    }
    for lazy, rows in kinds.values():
        found = as_chunks(lazy, "X", Passes()).pick(np.array([1, 4, 5])).bring(Passes(), "rows")
        assert type(found) is type(rows)
        if isinstance(rows, Activations):
            np.testing.assert_array_equal(found.logits, rows.logits[[1, 4, 5]])
            assert (found.features is None) == (rows.features is None)
            assert found.table == rows.table
        elif isinstance(rows, pd.DataFrame):
            pd.testing.assert_frame_equal(found, rows.iloc[[1, 4, 5]])


def test_a_sample_is_uniform_and_in_order():
    counts = np.zeros(12)
    for seed in range(2000):
        rows = draw(12, 5, np.random.default_rng(seed))
        assert np.all(np.diff(rows) > 0)
        counts[rows] += 1
    # Every row in 5 of 12 samples: standard deviation 22.
    assert counts == pytest.approx(np.full(12, 2000 * 5 / 12), abs=100)
    assert draw(5, 5, np.random.default_rng(0)).tolist() == draw(5, 9, np.random.default_rng(1)).tolist() == [0, 1, 2, 3, 4]  # fmt: skip
