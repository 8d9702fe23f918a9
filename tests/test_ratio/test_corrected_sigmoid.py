from __future__ import annotations

import warnings

import numpy as np
import pytest

from poscod import Activations
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid, NoOODEvidenceWarning, UndeterminedPriorWarning


def gaussians(rng, d, pi, m, n, distance=2.5):
    """ID and mixture of Gaussians that share a covariance, test rows and the exact log g (Theorem 4, errata 1)."""
    mu = np.full(d, distance / np.sqrt(d))
    k = round(pi * n)
    test = np.vstack([rng.normal(size=(1000, d)), mu + rng.normal(size=(1000, d))])
    exact = test @ mu - 0.5 * mu @ mu
    return rng.normal(size=(m, d)), np.vstack([rng.normal(size=(n - k, d)), mu + rng.normal(size=(k, d))]), test, exact


@pytest.mark.parametrize(("d", "pi", "m", "n"), [(2, 0.3, 6000, 3000), (20, 0.5, 3000, 6000), (20, 0.9, 4000, 3000)])
def test_paper_recipe_finds_the_exact_ratio(rng, d, pi, m, n):
    x_id, x_u, test, exact = gaussians(rng, d, pi, m, n)
    est = CorrectedSigmoid("paper").fit(x_id, x_u)
    assert est.ood_prior_ == pytest.approx(pi, abs=0.05)
    assert np.corrcoef(est.log_ratio(test), exact)[0, 1] > 0.98
    assert np.sqrt(np.mean((est.log_ratio(test) - exact) ** 2)) < 1.0
    assert est.a_ == pytest.approx(n / m * (1 - est.ood_prior_))
    low, high = est.ood_prior_interval(0.99)
    assert low < pi < high


@pytest.mark.parametrize(("d", "pi", "m", "n"), [(2, 0.3, 2000, 1500), (20, 0.15, 2000, 2500), (60, 0.5, 900, 1100)])
def test_strong_recipe_finds_ratio_and_prior(rng, d, pi, m, n):
    x_id, x_u, test, exact = gaussians(rng, d, pi, m, n, distance=3.0)
    est = CorrectedSigmoid().fit(x_id.astype(np.float32), x_u.astype(np.float32))
    assert est.gate_open_
    assert est.ood_prior_ == pytest.approx(pi, abs=0.05)
    assert np.corrcoef(est.log_ratio(test.astype(np.float32)), exact)[0, 1] > 0.93
    low, high = est.ood_prior_interval(0.99)
    assert low <= pi <= high
    assert est.ood_prior_lower_bound(0.99) <= pi
    assert sum(est.candidates_.values()) == pytest.approx(1.0)


def test_a_known_prior_is_used_as_it_is(rng):
    x_id, x_u, test, exact = gaussians(rng, 3, 0.25, 2000, 2000)
    for recipe in ("paper", "strong"):
        est = CorrectedSigmoid(recipe, ood_prior=0.25).fit(x_id, x_u)
        assert est.ood_prior_ == 0.25
        assert est.ood_prior_interval() == (0.25, 0.25)
        assert np.corrcoef(est.log_ratio(test), exact)[0, 1] > 0.95


def test_joint_fit_and_fixed_prior_agree(rng):
    x_id, x_u, test, _ = gaussians(rng, 2, 0.4, 3000, 3000)
    joint = CorrectedSigmoid("paper").fit(x_id, x_u)
    fixed = CorrectedSigmoid("paper", ood_prior=joint.ood_prior_).fit(x_id, x_u)
    np.testing.assert_allclose(joint.log_ratio(test), fixed.log_ratio(test), atol=0.1)


def test_weights_equal_repetition(rng):
    x_id, x_u, test, _ = gaussians(rng, 2, 0.4, 800, 600)
    counts = rng.integers(1, 4, size=len(x_u))
    repeated = CorrectedSigmoid("paper").fit(x_id, np.repeat(x_u, counts, axis=0))
    weighted = CorrectedSigmoid("paper").fit(x_id, x_u, sample_weight_unlabeled=counts)
    np.testing.assert_allclose(repeated.log_ratio(test), weighted.log_ratio(test), atol=0.02)
    assert repeated.a_ == pytest.approx(weighted.a_, rel=1e-2)


def test_zero_weight_removes_rows_from_the_strong_recipe(rng):
    x_id, x_u, test, _ = gaussians(rng, 3, 0.3, 900, 700)
    far = np.full((300, 3), -6.0) + rng.normal(size=(300, 3))
    weight = np.r_[np.ones(900), np.zeros(300)]
    est = CorrectedSigmoid().fit(np.vstack([x_id, far]), x_u, sample_weight_id=weight)
    without = CorrectedSigmoid().fit(x_id, x_u)
    # Other rows, other folds: equal up to the noise of the split, which far rows with a weight would dwarf.
    assert np.corrcoef(est.log_ratio(test), without.log_ratio(test))[0, 1] > 0.97
    assert est.ood_prior_ == pytest.approx(without.ood_prior_, abs=0.04)


@pytest.mark.parametrize("recipe", ["paper", "strong"])
def test_row_order_does_not_matter(rng, recipe):
    x_id, x_u, test, _ = gaussians(rng, 4, 0.3, 500, 400)
    est = CorrectedSigmoid(recipe).fit(x_id, x_u)
    mixed = CorrectedSigmoid(recipe).fit(x_id[rng.permutation(500)], x_u[rng.permutation(400)])
    assert mixed.ood_prior_ == pytest.approx(est.ood_prior_, abs=1e-3)
    np.testing.assert_allclose(mixed.log_ratio(test), est.log_ratio(test), atol=0.02)


def test_mixture_identical_to_id_closes_the_gate(rng):
    x = rng.normal(size=(400, 5))
    with pytest.warns(NoOODEvidenceWarning, match="rows on both sides"):
        est = CorrectedSigmoid().fit(x, x)
    assert not est.gate_open_
    assert est.ood_prior_ == 0.0
    assert est.ood_prior_interval()[0] == 0.0
    # The ID-only rule still ranks far rows above near ones, and E_ID[g] is about one.
    far, near = est.log_ratio(8.0 + rng.normal(size=(100, 5))), est.log_ratio(rng.normal(size=(2000, 5)))
    assert far.min() > np.median(near)
    assert np.mean(np.exp(near)) == pytest.approx(1.0, abs=0.3)


def test_paper_recipe_warns_where_nothing_determines_the_prior(rng):
    x = rng.normal(size=(300, 2))
    with pytest.warns(UndeterminedPriorWarning, match="recipe='strong'"):
        est = CorrectedSigmoid("paper").fit(x, x)
    assert np.isfinite(est.log_ratio(x)).all()


@pytest.mark.parametrize("options", [{}, {"recipe": "paper", "l2": 1e-3, "ood_prior": 0.5}])
def test_separable_data_stay_finite(rng, options):
    x_id = rng.normal(size=(200, 3))
    x_u = np.vstack([rng.normal(size=(100, 3)), 1e3 + rng.normal(size=(100, 3))])
    est = CorrectedSigmoid(**options).fit(x_id, x_u)
    far = est.log_ratio(np.array([[1e6, 1e6, 1e6], [0.0, 0.0, 0.0]]))
    assert np.isfinite(far).all()
    assert far[0] > 0 > far[1]
    assert est.ood_prior_ == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("recipe", ["paper", "strong"])
def test_constant_feature_changes_nothing(rng, recipe):
    x_id, x_u, test, _ = gaussians(rng, 2, 0.4, 400, 400)
    constant = [np.hstack([x, np.full((len(x), 1), 3.0)]) for x in (x_id, x_u, test)]
    plain = CorrectedSigmoid(recipe, ood_prior=0.4).fit(x_id, x_u)
    more = CorrectedSigmoid(recipe, ood_prior=0.4).fit(*constant[:2])
    # The folds depend on the rows' bytes, so the strong recipe agrees up to the noise of another split.
    atol = 1e-6 if recipe == "paper" else 1.0
    assert np.median(np.abs(plain.log_ratio(test) - more.log_ratio(constant[2]))) < atol


def test_only_constant_features(rng):
    with pytest.warns(NoOODEvidenceWarning):
        est = CorrectedSigmoid().fit(np.ones((50, 2)), np.ones((60, 2)))
    np.testing.assert_allclose(est.log_ratio(np.ones((3, 2))), 0.0, atol=1e-6)


def test_copies_of_a_row_are_one_observation(rng):
    """Each of 40 distinct rows fifty times: the test of pi = 0 must see 40 rows per side, not 2000."""
    x_id, x_u = (np.repeat(rng.normal(size=(40, 3)), 50, axis=0) for _ in range(2))
    with pytest.warns(NoOODEvidenceWarning):
        est = CorrectedSigmoid().fit(x_id, x_u)
    assert np.isfinite(est.log_ratio(x_u)).all()


@pytest.mark.parametrize(
    ("x_id", "x_u", "message"),
    [
        (np.zeros((50, 2)), np.zeros((0, 2)), "X_unlabeled must have at least 2 rows, got 0"),
        (np.zeros((1, 2)), np.zeros((50, 2)), "X_id must have at least 2 rows, got 1"),
        (np.zeros((19, 2)), np.zeros((50, 2)), "at least 20 rows each"),
        (np.zeros((50, 2)), np.zeros((50, 3)), "X_unlabeled must have 2 columns of features"),
        (np.full((50, 2), np.nan), np.zeros((50, 2)), "X_id must be finite, got nan at row 0"),
        (np.zeros((50, 2)), np.full((50, 2), np.inf), "X_unlabeled must be finite"),
        ([["a"]] * 50, np.zeros((50, 1)), "X_id must be an array of real numbers"),
    ],
)
def test_bad_rows(x_id, x_u, message):
    with pytest.raises(InvalidInputError, match=message):
        CorrectedSigmoid().fit(x_id, x_u)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "papr"}, "did you mean 'paper'"),
        ({"prior": "bbee"}, "did you mean 'bbe'"),
        ({"l2": -1.0}, "l2 must be a number"),
        ({"l2": "auto"}, "l2 must be a number"),
        ({"ood_prior": 0.0}, r"ood_prior must be a number in \(0, 1\]"),
        ({"gate_level": 1.0}, "gate_level"),
        ({"n_folds": 1}, "n_folds must be a whole number >= 2"),
        ({"max_iter": 0}, "max_iter"),
        ({"random_state": None}, "random_state"),
    ],
)
def test_bad_parameters_are_found_in_fit(options, message):
    est = CorrectedSigmoid(**options)
    with pytest.raises(InvalidInputError, match=message):
        est.fit(np.zeros((50, 2)), np.zeros((50, 2)))


def test_bad_weights(rng):
    x = rng.normal(size=(30, 2))
    with pytest.raises(InvalidInputError, match="sample_weight_id must have as many rows"):
        CorrectedSigmoid().fit(x, x, sample_weight_id=np.ones(29))
    with pytest.raises(InvalidInputError, match="sample_weight_unlabeled must contain a positive"):
        CorrectedSigmoid().fit(x, x, sample_weight_unlabeled=np.zeros(30))


def test_inputs_are_not_changed_and_prediction_checks_columns(rng):
    x_id, x_u, test, _ = gaussians(rng, 3, 0.4, 200, 200)
    copies = x_id.copy(), x_u.copy()
    est = CorrectedSigmoid().fit(x_id, x_u)
    np.testing.assert_array_equal(copies[0], x_id)
    np.testing.assert_array_equal(copies[1], x_u)
    with pytest.raises(InvalidInputError, match="X must have 3 columns"):
        est.log_ratio(test[:, :2])
    assert est.log_ratio(test[:0]).shape == (0,)
    np.testing.assert_allclose(np.log(est.ratio(test)), est.log_ratio(test))


def test_prediction_does_not_depend_on_the_batch(rng):
    x_id, x_u, test, _ = gaussians(rng, 6, 0.4, 300, 300)
    est = CorrectedSigmoid().fit(x_id, x_u)
    whole = est.log_ratio(test[:50])
    single = np.concatenate([est.log_ratio(test[i : i + 1]) for i in range(50)])
    np.testing.assert_allclose(whole, single, rtol=1e-9, atol=1e-9)


def network(rng, n, shift):
    """Features of a ten-class network: ID rows sit at a class mean, OOD rows (shift = 0) near the origin."""
    means = 4.0 * np.eye(10, 16)
    label = rng.integers(0, 10, n)
    features = (shift * means[label] + rng.normal(size=(n, 16))).astype(np.float32)
    return Activations(features, (features @ (means.T)).astype(np.float32), label if shift else None)


def join(a, b):
    return Activations(np.concatenate([a.features, b.features]), np.concatenate([a.logits, b.logits]))


def test_activations_use_the_logits(rng):
    ident, hidden = network(rng, 2500, 1.0), network(rng, 200, 0.0)
    mixture = join(network(rng, 1800, 1.0), hidden)
    est = CorrectedSigmoid().fit(ident, mixture)
    assert est.ood_prior_ == pytest.approx(0.1, abs=0.04)
    test_id, test_ood = est.log_ratio(network(rng, 300, 1.0)), est.log_ratio(network(rng, 300, 0.0))
    assert np.mean(test_ood[:, None] > test_id[None]) > 0.97
    with pytest.raises(InvalidInputError, match="same kind"):
        est.log_ratio(test_id[:, None])


def test_gate_closed_on_a_network_is_better_than_chance(rng):
    with pytest.warns(NoOODEvidenceWarning):
        est = CorrectedSigmoid().fit(network(rng, 300, 1.0), network(rng, 300, 1.0))
    test_id, test_ood = est.log_ratio(network(rng, 300, 1.0)), est.log_ratio(network(rng, 300, 0.0))
    assert np.mean(test_ood[:, None] > test_id[None]) > 0.9


def test_search_on_part_of_the_rows_uses_all_for_the_fit(rng, monkeypatch):
    import poscod.ratio._search as recipe

    x_id, x_u, test, exact = gaussians(rng, 5, 0.3, 2500, 2000, distance=3.0)
    whole = CorrectedSigmoid().fit(x_id, x_u)
    monkeypatch.setattr(recipe, "SEARCH_NUMBERS", 0)
    part = CorrectedSigmoid().fit(x_id, x_u)
    assert part.ood_prior_ == pytest.approx(0.3, abs=0.04)
    assert np.corrcoef(part.log_ratio(test), whole.log_ratio(test))[0, 1] > 0.97
    assert np.corrcoef(part.log_ratio(test), exact)[0, 1] > 0.97


def test_search_on_part_of_a_network(rng, monkeypatch):
    """The final fit of evidence and of evidence with features, on all rows."""
    import poscod.ratio._search as recipe

    monkeypatch.setattr(recipe, "SEARCH_NUMBERS", 0)
    ident, mixture = network(rng, 1600, 1.0), join(network(rng, 1400, 1.0), network(rng, 200, 0.0))
    test_id, test_ood = network(rng, 300, 1.0), network(rng, 300, 0.0)
    for penalties in ((), recipe.FEATURE_L2):
        monkeypatch.setattr(recipe, "FEATURE_L2", penalties)
        est = CorrectedSigmoid().fit(ident, mixture)
        log_id, log_ood = est.log_ratio(test_id), est.log_ratio(test_ood)
        assert np.mean(log_ood[:, None] > log_id[None]) > 0.97
        assert est.ood_prior_ == pytest.approx(0.125, abs=0.05)


def test_memory_map_and_float32_stay_what_they_are(rng, tmp_path, monkeypatch):
    import poscod.ratio._design as design

    x_id, x_u, test, _ = gaussians(rng, 4, 0.3, 3000, 3000)
    path = tmp_path / "rows.npy"
    np.save(path, np.vstack([x_id, x_u]).astype(np.float32))
    rows = np.load(path, mmap_mode="r")
    small = CorrectedSigmoid("paper", l2=1e-4).fit(rows[:3000], rows[3000:])
    monkeypatch.setattr(design, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(design, "BLOCK_BYTES", 1)
    blocks = CorrectedSigmoid("paper", l2=1e-4).fit(rows[:3000], rows[3000:])
    np.testing.assert_allclose(small.log_ratio(test), blocks.log_ratio(test), atol=0.05)


def test_l2_by_held_out_likelihood(rng):
    x_id, x_u, _, _ = gaussians(rng, 30, 0.4, 300, 300)
    est = CorrectedSigmoid("paper", l2="cv", ood_prior=0.4).fit(x_id, x_u)
    assert est.l2_ >= 1e-3  # 300 rows and 30 columns need a penalty


def test_clone_and_params():
    from sklearn.base import clone

    est = clone(CorrectedSigmoid("paper", l2=0.1))
    assert est.get_params()["l2"] == 0.1
    with pytest.raises(Exception, match="not fitted"):
        est.log_ratio(np.zeros((2, 2)))


def test_no_numerical_warnings_on_hostile_scales(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoOODEvidenceWarning)
        x = np.concatenate([rng.normal(size=(100, 3)) * [1e-12, 1.0, 1e8], np.zeros((5, 3))])
        est = CorrectedSigmoid().fit(x, np.concatenate([x, 100 * x[:20] + 5.0]))
        assert np.isfinite(est.log_ratio(1e9 * x)).all()


@pytest.mark.parametrize("pi", [0.3, 0.9])
def test_discrete_rows_are_counted(pi):
    """One-hot rows of 20 levels, five of which never occur in ID: how often a level occurs is all there is."""
    rng = np.random.default_rng(0)
    x_id = np.eye(20)[rng.integers(0, 15, 2000)]
    ood = rng.random(2000) < pi
    x_u = np.eye(20)[np.where(ood, rng.integers(15, 20, 2000), rng.integers(0, 15, 2000))]
    est = CorrectedSigmoid().fit(x_id, x_u)
    assert est.ood_prior_ == pytest.approx(pi, abs=0.06)
    log_ratio = est.log_ratio(np.eye(20))
    assert log_ratio[15:].min() > log_ratio[:15].max()


def test_a_second_fit_keeps_nothing_of_the_first(rng):
    x_id = rng.normal(size=(400, 2))
    est = CorrectedSigmoid().fit(x_id, np.vstack([rng.normal(size=(300, 2)), rng.normal(5, 1, (100, 2))]))
    assert est.ood_prior_lower_bound() > 0.1
    est.set_params(recipe="paper", l2=0.1, ood_prior=0.3).fit(x_id, rng.normal(size=(400, 2)))
    assert est.ood_prior_lower_bound() == 0.0


def test_a_larger_share_of_unseen_kinds_sees_them_better():
    """g is a mixture of what was learned and of the ID-only rule, linear in the share; kinds on the other side of the ID rows are no longer the most certain ID."""
    rng = np.random.default_rng(6)
    draw = lambda n, at: rng.normal(size=(n, 4)) + np.array([at, 0.0, 0.0, 0.0])  # noqa: E731
    x_id, mixture, fresh = draw(800, 0.0), np.concatenate([draw(640, 0.0), draw(160, 5.0)]), draw(4000, 0.0)
    seen, mean = [], []
    for share in (0.0, 0.1, 0.5):
        est = CorrectedSigmoid(unseen_share=share).fit(x_id, mixture)
        assert est.model_.broad == share
        cut = np.quantile(est.log_ratio(fresh, deciding=True), 0.95)
        seen.append(float(np.mean(est.log_ratio(draw(500, -5.0), deciding=True) > cut)))
        mean.append(float(np.exp(est.log_ratio(fresh, deciding=True)).mean()))
    assert seen[0] < 0.05
    assert seen[1] > 0.3
    assert seen[2] > 0.8
    np.testing.assert_allclose(mean[1], 0.8 * mean[0] + 0.2 * mean[2])
