from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod import Activations
from poscod.exceptions import InvalidInputError
from poscod.ratio._evidence import fit_bank, logit_evidence, norm_evidence
from poscod.ratio._rows import Rows, as_rows, columns_of, content_folds, row_hash


def test_hash_depends_on_content_only(rng):
    x = rng.normal(size=(300, 5)).astype(np.float32)
    order = rng.permutation(300)
    h = row_hash(x, 0)
    np.testing.assert_array_equal(h[order], row_hash(x[order], 0))
    assert len(np.unique(h)) == 300
    assert (row_hash(np.vstack([x, x]), 0)[300:] == h).all()
    assert (row_hash(x, 1) != h).any()


def test_minus_zero_is_zero():
    assert row_hash(np.array([[0.0], [-0.0]]), 0).tolist() == row_hash(np.array([[-0.0], [0.0]]), 0).tolist()


@given(m=st.integers(10, 80), n=st.integers(10, 80), k=st.integers(2, 6))
def test_folds_are_even_and_copies_stay_together(m, n, k):
    rng = np.random.default_rng(m * 100 + n)
    x_id, x_u = rng.normal(size=(m, 2)), rng.normal(size=(n, 2))
    x_u[0] = x_id[3]
    x_id[1] = x_id[0]
    fold_id, fold_u = content_folds(row_hash(x_id, 0), row_hash(x_u, 0), k)
    assert fold_id[0] == fold_id[1]
    assert fold_u[0] == fold_id[3]
    counts = np.bincount(fold_id, minlength=k)
    assert counts.max() - counts.min() <= 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((0, 3)), "X must have at least 1 row, got 0"),
        (np.zeros((4, 0)), "X must have at least one column"),
        ([[1.0, np.nan]], "X must be finite"),
        (np.zeros(5), "two-dimensional"),
    ],
)
def test_bad_rows(values, message):
    with pytest.raises(InvalidInputError, match=message):
        as_rows(values, "X")


def test_sparse_rows_are_refused():
    from scipy.sparse import csr_matrix

    with pytest.raises(InvalidInputError, match="got a sparse matrix"):
        as_rows(csr_matrix(np.eye(3)), "X")


def test_kinds_do_not_mix(rng):
    network = as_rows(Activations(rng.normal(size=(5, 3)), rng.normal(size=(5, 2))), "X_id")
    with pytest.raises(InvalidInputError, match="same kind"):
        as_rows(rng.normal(size=(5, 3)), "X", like=columns_of(network))
    with pytest.raises(InvalidInputError, match="3 columns of features"):
        as_rows(Activations(rng.normal(size=(5, 4)), rng.normal(size=(5, 2))), "X", like=columns_of(network))


def test_logits_alone_are_their_own_features(rng):
    logits = rng.normal(size=(6, 3))
    rows = as_rows(Activations(logits=logits), "X")
    assert rows.features is rows.logits


def test_logit_evidence_against_plain_formulas(rng):
    z = rng.normal(0, 3, size=(50, 4))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    top = np.sort(z, axis=1)
    expected = np.stack(
        [
            -np.log(np.exp(z).sum(axis=1)),
            -z.max(axis=1),
            np.log(1 - p.max(axis=1)),
            np.log(-(p * np.log(p)).sum(axis=1)),
            top[:, -2] - top[:, -1],
        ],
        axis=1,
    )
    np.testing.assert_allclose(logit_evidence(z), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("classes", [1, 2, 30])
def test_evidence_is_finite(rng, scale, classes):
    z = (scale * rng.normal(size=(40, classes))).astype(np.float32)
    assert np.isfinite(logit_evidence(z)).all()
    assert np.isfinite(norm_evidence(np.zeros((3, 2)))).all()


@pytest.mark.parametrize("network", [False, True])
def test_bank_calls_far_rows_far(rng, network):
    x = rng.normal(5.0, 1.0, size=(400, 6))
    logits = x[:, :3] if network else None
    bank = fit_bank(Rows(x, logits))
    far = np.abs(rng.normal(0, 40, size=(100, 6)))
    near = rng.normal(5.0, 1.0, size=(100, 6))
    places = [bank.place(Rows(q, q[:, :3] if network else None)) for q in (near, far)]
    assert places[0].shape == (100, 5 if network else 3)
    for column in range(places[0].shape[1]):
        assert np.median(places[1][:, column]) > np.median(places[0][:, column])


def test_bank_distance_equals_brute_force(rng):
    x = rng.normal(size=(60, 4))
    q = rng.normal(size=(7, 4))
    bank = fit_bank(Rows(x))
    scaled_x, scaled_q = ((v - x.mean(axis=0)) / x.std(axis=0) for v in (x, q))
    squared = ((scaled_q[:, None] - scaled_x[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(bank.place(Rows(q))[:, 0], np.log(np.sort(squared, axis=1)[:, :10].mean(axis=1)))
