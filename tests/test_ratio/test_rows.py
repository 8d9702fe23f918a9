from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod import Activations
from poscod.exceptions import InvalidInputError
from poscod.ratio._evidence import LandmarkFactory, logit_evidence, norm_evidence
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


def landmarks(rows, fold=None, k=-1):
    return LandmarkFactory(rows, np.zeros(len(rows), dtype=int) if fold is None else fold).without(k)


@pytest.mark.parametrize("network", [False, True])
def test_landmarks_call_far_rows_far(rng, network):
    x = rng.normal(5.0, 1.0, size=(400, 6))
    logits = x[:, :3] if network else None
    found = landmarks(Rows(x, logits))
    far = np.abs(rng.normal(0, 40, size=(100, 6)))
    near = rng.normal(5.0, 1.0, size=(100, 6))
    places = [found.place(Rows(q, q[:, :3] if network else None)) for q in (near, far)]
    assert places[0].shape == (100, 5 if network else 3)
    for column in range(places[0].shape[1]):
        assert np.median(places[1][:, column]) > np.median(places[0][:, column])


@pytest.mark.parametrize("d", [2, 4, 40])
@pytest.mark.parametrize("network", [False, True])
def test_distance_equals_brute_force_in_the_own_class(rng, d, network):
    x, q = rng.normal(size=(160, d)) + 1.0, rng.normal(size=(31, d)) + 1.0
    logits = (x[:, :1] * [1.0, -1.0, 0.0], q[:, :1] * [1.0, -1.0, 0.0]) if network else (None, None)
    found = landmarks(Rows(x, logits[0]))
    if network:
        v, w = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, q))
        own = logits[1].argmax(axis=1)[:, None] == logits[0].argmax(axis=1)
    else:
        v, w = ((rows - x.mean(axis=0)) / x.std(axis=0) for rows in (x, q))
        own = np.ones((len(q), len(x)), dtype=bool)
    squared = ((w[:, None] - v[None]) ** 2).sum(axis=2)
    expected = []
    for distances, mask in zip(squared, own, strict=True):
        mine = distances[mask]
        groups = min(max(1, min(8, round(32 / d))), len(mine))
        expected.append(np.mean([mine[k::groups].min() for k in range(groups)]))
    np.testing.assert_allclose(found.place(Rows(q, logits[1]))[:, 0], np.log(expected), rtol=1e-6, atol=1e-6)
    share, other = found.nearest()
    assert share.sum(axis=1) == pytest.approx(1.0)
    code = np.zeros(len(q), dtype=int) if logits[1] is None else logits[1].argmax(axis=1)
    rows = found.rows
    table = ((w[:, None] - rows[None]) ** 2).sum(axis=2)[:, None, :] + np.where(other[code], np.inf, 0.0)
    np.testing.assert_allclose(
        np.log((share[code] * np.where(share[code] > 0, table.min(axis=2), 0.0)).sum(axis=1)),
        np.log(expected),
        rtol=1e-6,
    )


@pytest.mark.parametrize("shape", [(200, 5), (60, 90), (900, 150)])
@pytest.mark.parametrize("network", [False, True])
def test_landmarks_without_a_fold_are_those_of_the_other_rows(rng, shape, network):
    x = rng.normal(size=shape) @ rng.normal(size=(shape[1], shape[1])) + 3.0
    logits = rng.normal(size=(len(x), 4)) if network else None
    fold = rng.integers(0, 5, len(x))
    x[:, -1] = np.where(fold == 2, x[:, -1], 0.1)  # constant outside the fold: rounding must not become its scale
    queries = Rows(rng.normal(size=(20, shape[1])), rng.normal(size=(20, 4)) if network else None)
    rows = Rows(x, logits)
    found, alone = landmarks(rows, fold, 2), landmarks(rows[fold != 2])
    np.testing.assert_allclose(found.place(queries), alone.place(queries), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [300, 4000])
def test_distances_to_classes_are_mahalanobis_distances(rng, n):
    # With all axes and the shrinkage undone by hand: an independent formula from the rows themselves.
    d = 6
    code = rng.integers(0, 3, n)
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 4.0 * code[:, None]
    logits = np.eye(3)[code]
    found = landmarks(Rows(x, logits, table=True))
    s = (x - x.mean(axis=0)) / x.std(axis=0)
    count = np.bincount(code, minlength=3)
    means = np.stack([s[code == k].sum(axis=0) / (count[k] + 1.0) for k in range(3)])
    inside = s - means[code]
    within = inside.T @ inside / n
    shrink = d / (n + d)
    within = (1.0 - shrink) * within + shrink * np.trace(within) / d * np.eye(d)
    q = s[:50]
    away = q[:, None] - means[None]
    expected = np.einsum("nki,ij,nkj->nk", away, np.linalg.inv(within), away)
    place = found.place(Rows(x[:50], logits[:50], table=True))
    np.testing.assert_allclose(place[:, 1], np.log(expected.min(axis=1)), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(place[:, 3], np.log(expected[np.arange(50), code[:50]]), rtol=1e-6, atol=1e-6)


def test_a_class_without_rows_is_compared_with_all(rng):
    x, q = rng.normal(size=(50, 40)), rng.normal(size=(5, 40))
    logits = np.tile([1.0, 0.0, 0.0], (50, 1))
    found = landmarks(Rows(x, logits))
    by_class = [found.place(Rows(q, np.tile(row, (5, 1))))[:, 0] for row in np.eye(3)]
    np.testing.assert_array_equal(by_class[1], by_class[0])
