from __future__ import annotations

import numpy as np
import pytest

from poscod.ratio import CorrectedSigmoid, _linear


@pytest.fixture
def sides(rng):
    mixture = rng.normal(size=(900, 3))
    mixture[:200] += [2.5, 0.0, 1.0]
    return rng.normal(size=(700, 3)), mixture


def fit(known, mixture, **parameters):
    return CorrectedSigmoid("paper", l2="cv", **parameters).fit(known, mixture)


def test_a_penalty_from_a_part_of_the_rows_is_fitted_on_all(monkeypatch, sides):
    monkeypatch.setattr(_linear, "L2_ROWS", 150)
    part = fit(*sides)
    given = CorrectedSigmoid("paper", l2=part.l2_).fit(*sides)
    # The fit of the part is only where the fit of all rows starts.
    np.testing.assert_allclose(part.log_ratio(sides[0]), given.log_ratio(sides[0]), atol=0.02)
    assert part.ood_prior_ == pytest.approx(given.ood_prior_, abs=0.005)


@pytest.mark.parametrize("ood_prior", [None, 0.2])
def test_the_part_is_drawn_by_content_and_not_by_order(monkeypatch, rng, sides, ood_prior):
    monkeypatch.setattr(_linear, "L2_ROWS", 150)
    known, mixture = sides
    first = fit(known, mixture, ood_prior=ood_prior)
    moved = fit(rng.permutation(known), rng.permutation(mixture), ood_prior=ood_prior)
    assert moved.l2_ == first.l2_
    np.testing.assert_allclose(moved.log_ratio(known), first.log_ratio(known), atol=1e-4)


def test_copies_keep_their_share_in_the_part(monkeypatch, rng):
    monkeypatch.setattr(_linear, "L2_ROWS", 400)
    seen = []

    def bring(places):
        seen.extend(places)
        raise StopIteration

    hashes = rng.integers(0, 2**63, 2000).astype(np.uint64)
    hashes[rng.permutation(2000)[:1000]] = 7  # half of the table is one row
    with pytest.raises(StopIteration):
        _linear.choose_l2((2000, 90), lambda side: hashes, bring, pi=None, n_folds=5, seed=0)
    assert [len(at) for at in seen] == [400, 90]
    assert np.mean(hashes[seen[0]] == 7) == pytest.approx(0.5, abs=0.1)


def test_a_start_from_other_rows_means_the_same_ratio(sides):
    """Columns of other means and scales, another share of traffic, a column that is constant in one of them."""
    known, mixture = (np.column_stack([side, np.full(len(side), 3.0)]) for side in sides)
    part = _linear.linear_data(*_pair(known[:300], mixture[:200]))
    fitted = part.fit(0.01, pi=None)
    ratio = _linear.to_ratio(fitted, part.scaler, part.log_odds_u)
    wide = np.column_stack([known[:, :3] * [1.0, 4.0, 0.1] + 5.0, np.arange(700.0)])
    joint = _linear.linear_data(*_pair(wide, mixture)).joint
    start = _linear.Chosen(0.01, ratio, fitted.pi).start(joint)
    assert np.isfinite(start.theta).all()
    again = _linear.to_ratio(start, joint.scaler, joint.log_odds_u)
    rows = _linear.Rows(mixture)
    np.testing.assert_allclose(again(rows), ratio(rows), rtol=1e-9, atol=1e-9)


def _pair(known, mixture):
    weights = _linear.pair_weights(None, None, len(known), len(mixture))
    return _linear.Rows(known), _linear.Rows(mixture), *weights
