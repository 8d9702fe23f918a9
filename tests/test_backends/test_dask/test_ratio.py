from __future__ import annotations

import functools

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poscod import Activations
from poscod.backends import dask as backend
from poscod.exceptions import InvalidInputError
from poscod.model import load, save
from poscod.ratio import CorrectedSigmoid, StandardSigmoid, UndeterminedPriorWarning, _linear

M, N = 500, 700


@functools.cache
def rows(dtype):
    rng = np.random.default_rng(5)
    mixing = rng.normal(size=(3, 3))
    known = rng.normal(size=(M, 3)) @ mixing + [4.0, -1.0, 0.0]
    mixture = rng.normal(size=(N, 3)) @ mixing + [4.0, -1.0, 0.0]
    mixture[: N // 4] += [0.5, 3.0, 2.0]
    return known.astype(dtype), mixture.astype(dtype)


@functools.cache
def in_memory(dtype, **parameters):
    return CorrectedSigmoid("paper", **parameters).fit(*rows(dtype))


def cut(n):
    """Ways to cut n rows into chunks, empty ones among them."""
    return st.lists(st.integers(0, n), max_size=6).map(lambda cuts: tuple(np.diff([0, *sorted(cuts), n]).tolist()))


def assert_same(found, expected, rel=1e-8):
    np.testing.assert_allclose(found.model_.theta, expected.model_.theta, rtol=rel, atol=rel)
    assert found.model_.intercept == pytest.approx(expected.model_.intercept, rel=rel)
    assert found.ood_prior_ == pytest.approx(expected.ood_prior_, rel=rel)
    assert found.a_ == pytest.approx(expected.a_, rel=rel)
    assert found.ood_prior_interval() == pytest.approx(expected.ood_prior_interval(), rel=rel)
    assert found.l2_ == expected.l2_
    assert found.columns_ == expected.columns_


def check_chunks(dtype, cut_id, cut_u, columns, **parameters):
    known, mixture = rows(dtype)
    found = backend.fit_ratio(
        CorrectedSigmoid("paper", **parameters),
        da.from_array(known, chunks=(cut_id, columns)),
        da.from_array(mixture, chunks=(cut_u, columns)),
    )
    assert_same(found, in_memory(dtype, **parameters))


DTYPES = st.sampled_from([np.float32, np.float64])


@settings(max_examples=5)
@given(dtype=DTYPES, cut_id=cut(M), cut_u=cut(N))
def test_joint_fit_is_that_of_rows_in_memory_for_any_chunks(dtype, cut_id, cut_u):
    check_chunks(dtype, cut_id, cut_u, 3)


@settings(max_examples=20)
@given(dtype=DTYPES, cut_id=cut(M), cut_u=cut(N), columns=st.integers(1, 3))
def test_fit_with_a_known_prior_is_that_of_rows_in_memory_for_any_chunks(dtype, cut_id, cut_u, columns):
    check_chunks(dtype, cut_id, cut_u, columns, ood_prior=0.2, l2=1e-3)


@pytest.mark.slow
@settings(max_examples=60)
@given(dtype=DTYPES, cut_id=cut(M), cut_u=cut(N), columns=st.integers(1, 3))
def test_joint_fit_for_many_chunks(dtype, cut_id, cut_u, columns):
    check_chunks(dtype, cut_id, cut_u, columns)


@pytest.mark.parametrize("parameters", [{"ood_prior": 0.3}, {"l2": 0.02}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_known_prior_and_penalty(dtype, parameters):
    known, mixture = rows(dtype)
    found = backend.fit_ratio(
        CorrectedSigmoid("paper", **parameters),
        da.from_array(known, chunks=(150, 3)),
        da.from_array(mixture, chunks=(301, 3)),
    )
    assert_same(found, in_memory(dtype, **parameters))


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning")  # dask 2026.8 on pandas 3.1
def test_frames_networks_and_unknown_lengths(tmp_path):
    known, mixture = rows(np.float32)
    names = ["a", "b", "c"]
    frames = [pd.DataFrame(part, columns=names) for part in (known, mixture)]
    for name, frame in zip(("id", "u"), frames, strict=True):
        (tmp_path / name).mkdir()
        for index, start in enumerate(range(0, len(frame), 170)):
            frame[start : start + 170].to_parquet(tmp_path / name / f"part-{index}.parquet", index=False)
    lazy = [dd.read_parquet(tmp_path / name) for name in ("id", "u")]
    fit = functools.partial(backend.fit_ratio, CorrectedSigmoid("paper", ood_prior=0.3))
    expected = in_memory(np.float32, ood_prior=0.3)
    found = fit(*lazy)
    assert_same(found, expected)
    save(found, tmp_path / "ratio.poscod")
    np.testing.assert_array_equal(load(tmp_path / "ratio.poscod").log_ratio(known), found.log_ratio(known))
    assert_same(fit(*(frame.to_dask_array() for frame in lazy)), expected)  # lengths are counted
    logits = [np.stack([part[:, 0], -part[:, 0]], axis=1) for part in (known, mixture)]
    network = fit(
        *(
            backend.DaskActivations(da.from_array(a, chunks=(200, 2)), da.from_array(b, chunks=(200, 3)))
            for a, b in zip(logits, (known, mixture), strict=True)
        )
    )
    assert network.columns_ == {"features": 3, "logits": 2}
    np.testing.assert_allclose(network.log_ratio(Activations(known, logits[0])), expected.log_ratio(known), rtol=1e-8)


def test_a_sample_of_all_rows_is_the_fit_in_memory():
    known, mixture = rows(np.float64)
    lazy = da.from_array(known, chunks=(99, 3)), da.from_array(mixture, chunks=(99, 3))
    ratio = StandardSigmoid(l2=0.01)
    found = backend.fit_ratio(ratio, *lazy, sample_rows=10_000)
    np.testing.assert_array_equal(found.log_ratio(known), ratio.fit(known, mixture).log_ratio(known))
    part = backend.fit_ratio(ratio, *lazy, sample_rows=200)
    assert 0.0 < np.abs(part.log_ratio(known) - found.log_ratio(known)).max() < 2.0


def test_a_penalty_chosen_by_folds_is_that_of_rows_in_memory():
    lazy = [da.from_array(part, chunks=(150, 3)) for part in rows(np.float64)]
    found = backend.fit_ratio(CorrectedSigmoid("paper", l2="cv"), *lazy)
    assert found.l2_ > 0.0
    assert_same(found, in_memory(np.float64, l2="cv"))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_more_rows_the_same_sample_chooses_the_penalty_here_and_in_memory(monkeypatch, dtype, weighted):
    monkeypatch.setattr(_linear, "L2_ROWS", 90)
    known, mixture = rows(dtype)
    known = np.concatenate([known, np.repeat(known[:1], 40, axis=0)])  # copies on both sides of a border between chunks
    weights = [np.random.default_rng(0).uniform(0.5, 2.0, len(part)) if weighted else None for part in (known, mixture)]
    ratio = CorrectedSigmoid("paper", l2="cv")
    names = ("sample_weight_id", "sample_weight_unlabeled")
    expected = ratio.fit(known, mixture, **dict(zip(names, weights, strict=True)))
    for chunks in (150, 301):
        lazy = [da.from_array(part, chunks=(chunks, 3)) for part in (known, mixture)]
        assert_same(backend.fit_ratio(ratio, *lazy, **dict(zip(names, weights, strict=True))), expected)


@pytest.mark.parametrize("ratio", [CorrectedSigmoid(), StandardSigmoid()])
def test_what_needs_memory_is_refused_and_never_sampled_silently(ratio):
    lazy = [da.from_array(part, chunks=(99, 3)) for part in rows(np.float64)]
    with pytest.raises(InvalidInputError, match=r"needs its rows in memory, .* pass sample_rows"):
        backend.fit_ratio(ratio, *lazy)


def test_an_undetermined_prior_is_said(rng):
    same = da.from_array(rng.normal(size=(300, 2)), chunks=(100, 2))
    with pytest.warns(UndeterminedPriorWarning, match="does not determine the OOD prior"):
        backend.fit_ratio(CorrectedSigmoid("paper"), same, same)


def test_bad_input_is_refused_in_a_sentence():
    good = da.ones((4, 2), chunks=(2, 2))
    fit = functools.partial(backend.fit_ratio, CorrectedSigmoid("paper"))
    with pytest.raises(InvalidInputError, match=r"X_id must be a two-dimensional Dask array, .* got ndarray"):
        fit(np.ones((4, 2)), good)
    with pytest.raises(InvalidInputError, match="X_unlabeled must have at least 2 rows, got 1"):
        fit(good, good[:1])
    with pytest.raises(InvalidInputError, match="X_unlabeled must be finite"):
        fit(good, da.full((4, 2), np.nan, chunks=2))
    with pytest.raises(InvalidInputError, match="same chunks of rows"):
        fit(backend.DaskActivations(good, good.rechunk((4, 2))), backend.DaskActivations(good))
    with pytest.raises(InvalidInputError, match="X_unlabeled must have 2 columns"):
        fit(good, da.ones((4, 3), chunks=2))
