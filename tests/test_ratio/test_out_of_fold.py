"""Cross-fitting of any ratio: out-of-fold scores, folds that are checked, and folds by content."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from poscod.exceptions import InvalidInputError, PoscodWarning
from poscod.ratio import NNPU, CorrectedSigmoid, FixedLinear, Ratio, StandardSigmoid
from poscod.ratio._rows import content_folds, number_copies, observations, row_hash

PAPER = CorrectedSigmoid("paper", l2=1e-3)


def draw(n=200, m=150, pi=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X_id, X_u = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
    X_u[: int(pi * m)] += 2.5
    folds = content_folds(row_hash(X_id, 0), row_hash(X_u, 0), 4)
    return X_id, X_u, *folds


@pytest.mark.parametrize("ratio", [PAPER, StandardSigmoid(), NNPU()], ids=lambda r: type(r).__name__)
def test_rows_are_scored_by_fits_without_their_fold(ratio):
    X_id, X_u, fold_id, fold_u = draw()
    fitted = clone(ratio)
    out_id, out_u = Ratio.cross_fit(fitted, X_id, X_u, fold_id, fold_u)
    for k in range(4):
        part = clone(ratio).fit(X_id[fold_id != k], X_u[fold_u != k])
        own, target = (r.log_ratio(X_u[fold_u != k]) for r in (part, fitted))
        slope = target.std() / own.std()  # every fold is told on the scale of the fit on all rows
        for out, rows, fold in ((out_id, X_id, fold_id), (out_u, X_u, fold_u)):
            expected = target.mean() + slope * (part.log_ratio(rows[fold == k]) - own.mean())
            np.testing.assert_allclose(out[fold == k], expected, rtol=1e-12)
    whole = clone(ratio).fit(X_id, X_u)
    assert fitted.ood_prior_ == whole.ood_prior_
    np.testing.assert_array_equal(fitted.log_ratio(X_u), whole.log_ratio(X_u))


def test_weights_follow_their_rows():
    X_id, X_u, fold_id, fold_u = draw()
    rng = np.random.default_rng(1)
    w_id, w_u = rng.uniform(0.5, 2.0, len(X_id)), rng.uniform(0.5, 2.0, len(X_u))
    weights = {"sample_weight_id": w_id, "sample_weight_unlabeled": w_u}
    out_id, _ = clone(PAPER).cross_fit(X_id, X_u, fold_id, fold_u, **weights)
    i, u = fold_id != 2, fold_u != 2
    part = clone(PAPER).fit(X_id[i], X_u[u], sample_weight_id=w_id[i], sample_weight_unlabeled=w_u[u])
    assert np.corrcoef(out_id[~i], part.log_ratio(X_id[~i]))[0, 1] == pytest.approx(1.0, abs=1e-12)
    assert not np.allclose(out_id, clone(PAPER).cross_fit(X_id, X_u, fold_id, fold_u)[0])


def test_a_fold_without_traffic_is_a_fold():
    X_id, X_u, fold_id, fold_u = draw()
    out_id, out_u = clone(PAPER).cross_fit(X_id, X_u[fold_u > 0], fold_id, fold_u[fold_u > 0])
    assert np.isfinite(out_id).all()
    assert np.isfinite(out_u).all()


def test_warnings_are_said_once():
    X_id, X_u, fold_id, fold_u = draw(pi=0.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PoscodWarning)
        Ratio.cross_fit(CorrectedSigmoid(), X_id, X_u, fold_id, fold_u)
    assert len(caught) == 1


def test_a_fixed_ratio_needs_no_data_to_score():
    X_id, X_u, fold_id, fold_u = draw()
    fixed = FixedLinear([1.0, 0.0, 0.0], 0.5)
    out_id, _ = fixed.cross_fit(X_id, X_u, fold_id, fold_u)
    np.testing.assert_allclose(out_id, fixed.log_ratio(X_id))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i, u: (i[:-1], u), "fold_id must hold the fold of each of the 200 rows"),
        (lambda i, u: (i.astype(float), u), "fold_id must hold the fold of each of the 200 rows"),
        (lambda i, u: (i, u - 1), "fold_unlabeled must count folds from 0, got -1"),
        (lambda i, u: (np.zeros_like(i), u), r"fold_id must hold at least two folds, got \[0\]"),
        (lambda i, u: (i, np.zeros_like(u)), "fold_unlabeled must hold at least two folds"),
        (lambda i, u: (i, u + 1), "fold_id must hold rows of every fold 0, ..., 4"),
    ],
)
def test_bad_folds_are_refused(change, message):
    X_id, X_u, fold_id, fold_u = draw()
    with pytest.raises(InvalidInputError, match=message):
        clone(PAPER).cross_fit(X_id, X_u, *change(fold_id, fold_u))


def test_folds_leave_no_class_out_and_follow_copies():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(103, 2))
    codes = np.repeat([0, 1, 2, 3], [60, 40, 2, 1])
    hashes = row_hash(X, 0)
    fold, traffic = content_folds(hashes, hashes[::-1], 5, codes)
    np.testing.assert_array_equal(fold[::-1], traffic)
    assert np.ptp(np.bincount(fold)) <= 2
    # Without a fold something is known of every class that has two rows.
    assert all(len(np.unique(fold[codes == code])) > 1 for code in range(3))
    order = rng.permutation(103)
    np.testing.assert_array_equal(content_folds(hashes[order], hashes, 5, codes[order])[0], fold[order])
    # Copies with different labels stay together.
    both = content_folds(np.append(hashes, hashes[:9]), hashes[:0], 5, np.append(codes, np.full(9, 3)))[0]
    np.testing.assert_array_equal(both[:9], both[103:])


def test_discrete_rows_are_separate_observations():
    rng = np.random.default_rng(0)
    few = row_hash(rng.integers(0, 3, (200, 2)).astype(float), 0)
    other = row_hash(rng.integers(0, 3, (100, 2)).astype(float), 0)
    own, traffic = observations(few, other)
    assert len(np.unique(own)) == 200
    # Copies of the two sides are no pairs: pairs leave the same surplus in every fold, and chance in one fold would be confirmed by the others.
    assert not np.isin(traffic, own).any()
    # Rows that were copied on one side alone are no discrete data.
    repeated = np.repeat(row_hash(rng.normal(size=(50, 2)), 0), 4)
    np.testing.assert_array_equal(observations(repeated, other)[0], repeated)
    # Copies are counted class by class: which label goes where does not depend on the order.
    codes = rng.integers(0, 2, 200)
    order = rng.permutation(200)
    first, second = number_copies(few, codes), number_copies(few[order], codes[order])
    assert set(zip(first.tolist(), codes.tolist(), strict=True)) == set(
        zip(second.tolist(), codes[order].tolist(), strict=True)
    )
