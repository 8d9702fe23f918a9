from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poscod.backends.dask._metrics as area
import poscod.backends.dask._order as order
from poscod import metrics, ratio, selector
from poscod.backends import dask as backend
from poscod.backends.dask._chunks import as_vector
from poscod.backends.dask._selector import acceptance
from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.ratio._prior import acceptance as acceptance_in_memory

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 5e-324, -5e-324, 1.7e308]),
    st.floats(allow_nan=False),
    st.floats(-1.0, 1.0),
)
SCORES = st.lists(NUMBERS, min_size=1, max_size=60).map(np.array)


@st.composite
def chunked(draw, values=SCORES):
    """A vector and a Dask array of it, cut anywhere; chunks may be empty."""
    score = draw(values)
    cuts = sorted(draw(st.lists(st.integers(0, len(score)), max_size=5)))
    return score, da.from_array(score, chunks=(tuple(np.diff([0, *cuts, len(score)]).tolist()),))


@pytest.fixture
def narrowed(monkeypatch):
    """Few values are brought at once; with tiny limits every step of the narrowing is taken."""
    monkeypatch.setattr(order, "FETCH", 3)
    monkeypatch.setattr(order, "COUNTERS", 64)


@given(pair=chunked())
def test_keys_sort_like_the_numbers_and_come_back(pair):
    score, _ = pair
    keys = order.keys_of(score)
    np.testing.assert_array_equal(keys[:, None] < keys, score[:, None] < score)
    np.testing.assert_array_equal(keys[:, None] == keys, score[:, None] == score)
    assert [order.value_of(int(key)) for key in keys] == score.tolist()


@pytest.mark.usefixtures("narrowed")
@settings(max_examples=40)
@given(pair=chunked(), data=st.data())
def test_order_statistics_are_those_of_a_sort(inline, pair, data):
    score, lazy = pair
    ranks = data.draw(st.lists(st.integers(1, len(score)), min_size=1, max_size=6))
    found = order.order_statistics(as_vector(lazy, "score", inline), ranks, inline)
    ordered = np.sort(score)
    for rank, statistic in zip(ranks, found, strict=True):
        value = ordered[rank - 1]
        assert statistic == (value, np.sum(score < value), np.sum(score == value))


@settings(max_examples=50)
@given(pair=chunked(), tpr_min=st.sampled_from([0.07, 0.5, 0.57, 0.9, 1.0]))
def test_threshold_and_tie_probability_are_those_of_one_memory(inline, pair, tpr_min):
    score, lazy = pair
    assert backend.tpr_threshold(lazy, tpr_min, cluster=inline) == selector.tpr_threshold(score, tpr_min)


@settings(max_examples=30)
@given(pair=chunked(), delta=st.sampled_from([0.05, 0.4]))
def test_guaranteed_threshold_is_that_of_one_memory(inline, pair, delta):
    score, lazy = pair
    try:
        expected = selector.guaranteed_threshold(score, 0.8, delta=delta)
    except InfeasibleProblemError as error:
        with pytest.raises(InfeasibleProblemError, match=str(error)[:40]):
            backend.guaranteed_threshold(lazy, 0.8, delta=delta, cluster=inline)
    else:
        assert backend.guaranteed_threshold(lazy, 0.8, delta=delta, cluster=inline) == expected


@settings(max_examples=30)
@given(known=chunked(), mixture=chunked())
def test_curve_of_the_prior_is_that_of_one_memory(inline, known, mixture):
    with np.errstate(invalid="ignore", over="ignore"):  # means of infinities and of the largest numbers, in both
        found = acceptance(known[1], mixture[1], inline)
        expected = acceptance_in_memory(known[0], mixture[0])
    for mine, theirs in zip(found[:5], expected[:5], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    if np.abs(mixture[0]).max() < 1e300:
        assert found.above == pytest.approx(expected.above, rel=1e-12)


@pytest.mark.parametrize("method", sorted(ratio.PRIORS))
def test_prior_of_a_mixture(inline, rng, method):
    known, mixture = rng.normal(size=900), np.r_[rng.normal(size=500), rng.normal(4.0, 1.0, 200)]
    frame = dd.from_pandas(pd.DataFrame({"s": mixture}), npartitions=3)
    found = backend.estimate_prior(da.from_array(known, chunks=77), frame["s"], method, cluster=inline)
    assert found == ratio.estimate_prior(known, mixture, method)
    assert found > 0.05


@settings(max_examples=30)
@given(known=chunked(), other=chunked())
def test_fpr_at_tpr_is_that_of_one_memory(inline, known, other):
    found = backend.fpr_at_tpr(known[1], other[1], tpr_min=0.7, cluster=inline)
    assert found == metrics.fpr_at_tpr(known[0], other[0], tpr_min=0.7)


@settings(max_examples=40)
@given(known=chunked(), other=chunked(), exact=st.booleans())
def test_area_lies_within_its_bounds(inline, known, other, exact):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(area, "EXACT_ROWS", 10**6 if exact else 0)
        patch.setattr(area, "PIECES", 8)
        found = backend.auroc(known[1], other[1], cluster=inline)
    value = metrics.auroc(known[0], other[0])
    assert found.low - 1e-12 <= value <= found.high + 1e-12
    if exact:
        assert found == (value, value, value)


def test_area_of_many_rows_is_known_to_one_piece(inline, rng, monkeypatch):
    known, other = rng.normal(size=20_000), rng.normal(1.0, 1.0, size=9_000)
    monkeypatch.setattr(area, "EXACT_ROWS", 0)
    monkeypatch.setattr(area, "PIECES", 500)
    monkeypatch.setattr(order, "FETCH", 10_000)
    monkeypatch.setattr(order, "COUNTERS", 4096)
    found = backend.auroc(da.from_array(known, chunks=3000), da.from_array(other, chunks=4000), cluster=inline)
    assert found.low <= metrics.auroc(known, other) <= found.high
    assert 0.0 < found.high - found.low < 1.5 / 500


def test_passes_are_few(inline, rng, monkeypatch):
    """Ends, at most four narrowings from 2**64 keys by 2**14 counters, and one to fetch."""
    monkeypatch.setattr(order, "FETCH", 10)
    score = np.r_[np.exp(30 * rng.normal(size=5000)), np.full(3000, 0.25)]
    before = inline.passes
    backend.tpr_threshold(da.from_array(score, chunks=999), 0.9, cluster=inline)
    assert inline.passes - before <= 6


def test_bad_scores_are_refused_in_a_sentence(inline):
    with pytest.raises(InvalidInputError, match="NaN"):
        backend.tpr_threshold(da.from_array(np.array([0.1, np.nan]), chunks=1), 0.9, cluster=inline)
    with pytest.raises(InvalidInputError, match="one-dimensional Dask array"):
        backend.tpr_threshold(np.zeros(3), 0.9, cluster=inline)
    with pytest.raises(InvalidInputError, match="at least one"):
        backend.tpr_threshold(da.zeros(0), 0.9, cluster=inline)
    with pytest.raises(InvalidInputError, match="at least one row"):
        backend.auroc(da.zeros(0), da.zeros(3), cluster=inline)
    with pytest.raises(InvalidInputError, match="at least one row"):
        backend.estimate_prior(da.zeros(2), da.zeros(0), cluster=inline)
    with pytest.raises(InvalidInputError, match="score_ood"):
        backend.fpr_at_tpr(da.zeros(2), da.zeros(0), cluster=inline)
