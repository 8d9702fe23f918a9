"""What single scores promise beyond the common test."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poscod import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores import SCORES, one_minus_msp
from poscod.scores._features import published_dim
from poscod.scores._nearest import largest_products
from poscod.scores._shaping import largest_mask


def logits(*rows):
    return Activations(logits=np.array(rows, dtype=np.float64))


def head_world(n=60, d=8, k=3, seed=0):
    rng = np.random.default_rng(seed)
    features, weight, bias = np.maximum(rng.normal(size=(n, d)), 0), rng.normal(size=(k, d)), rng.normal(size=k)
    return Activations(features, features @ weight.T + bias, rng.integers(0, k, n), weight, bias)


# --- softmax ------------------------------------------------------------------------------------------------------


def test_one_minus_msp_does_not_saturate():
    gaps = np.array([1.0, 20.0, 40.0, 100.0, 300.0, 700.0])
    np.testing.assert_allclose(one_minus_msp(np.c_[gaps, 0 * gaps]), np.exp(-gaps) / (1 + np.exp(-gaps)), rtol=1e-12)
    assert one_minus_msp([[1.0, 1.0, 1.0]])[0] == pytest.approx(2 / 3, rel=1e-15)
    assert one_minus_msp([[5.0]])[0] == 0.0
    assert one_minus_msp(np.zeros((0, 3))).shape == (0,)
    assert one_minus_msp(np.array([[3e4, -3e4]], dtype=np.float32)).dtype == np.float64


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6), st.floats(-1e4, 1e4))
def test_one_minus_msp_ignores_shifts_and_is_a_probability(row, shift):
    value = one_minus_msp([row])[0]
    assert 0.0 <= value <= 1.0 - 1.0 / len(row) + 1e-15
    assert one_minus_msp([np.array(row) + shift])[0] == pytest.approx(value, rel=1e-7, abs=1e-300)


def test_one_minus_msp_refuses_what_is_not_logits():
    for bad, message in (([[np.nan]], "logits must be finite"), ([1.0], "two-dimensional"), ([[]], "at least one col")):
        with pytest.raises(InvalidInputError, match=message):
            one_minus_msp(bad)


@pytest.mark.parametrize("name", ["msp", "entropy", "doctor", "gen", "margin"])
def test_confident_rows_keep_their_order(name):
    gaps = np.linspace(1, 600, 200)
    values = SCORES[name]()(logits(*np.c_[gaps, 0 * gaps, 0 * gaps - 1]))
    assert (np.diff(values) < 0).all()


def test_odin_at_high_temperature_keeps_the_order_of_tiny_differences():
    gaps = 5 + np.arange(100) * 1e-6
    values = SCORES["odin"]()(logits(*np.c_[gaps + 1000, 0 * gaps + 1000, 0 * gaps + 999]))
    assert (np.diff(values) < 0).all()
    np.testing.assert_allclose(SCORES["odin"](temperature=1)(logits([2, 1])), SCORES["msp"]()(logits([2, 1])))


def test_energy_temperature():
    values = SCORES["ebo"](temperature=2.0)(logits([1.0, 3.0]))
    assert values[0] == pytest.approx(-2 * np.log(np.exp(0.5) + np.exp(1.5)))


def test_gen_counts_only_the_largest():
    row = [3.0, 2.0, 1.0, 0.0]
    p = np.exp(row) / np.exp(row).sum()
    for m in (1, 2, 3, 4, 9):
        expected = ((p * (1 - p)) ** 0.3)[:m].sum()
        assert SCORES["gen"](gamma=0.3, n_largest=m)(logits(row))[0] == pytest.approx(expected, rel=1e-12)


def test_no_column_is_refused():
    with pytest.raises(InvalidInputError, match="Score 'msp' needs logits with at least one column, got none"):
        SCORES["msp"]()(Activations(logits=np.zeros((3, 0))))


def test_margin_needs_two_classes():
    with pytest.raises(InvalidInputError, match="needs logits of at least two classes, got one"):
        SCORES["margin"]()(logits([1.0]))
    one_class = Activations([[1.0]], [[1.0]], weight=[[1.0]])
    with pytest.raises(InvalidInputError, match="'fdbd' needs at least two classes, got one"):
        SCORES["fdbd"]().fit(one_class)


@pytest.mark.parametrize("name", ["msp", "mls", "ebo", "odin", "entropy", "doctor", "gen"])
def test_a_single_class_is_certain(name):
    assert np.isfinite(SCORES[name]()(logits([1.0], [-2.0]))).all()


# --- parameters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("ebo", {"temperature": 0}, r"temperature must be a number in \(0, inf\), got 0"),
        ("odin", {"temperature": -1}, "temperature must be a number"),
        ("gen", {"gamma": 1.0}, r"gamma must be a number in \(0, 1\), got 1"),
        ("gen", {"n_largest": 0}, "n_largest must be a whole number >= 1, got 0"),
        ("ash_p", {"percentile": 100}, r"percentile must be a number in \[0, 100\), got 100"),
        ("ash_b", {"percentile": -1}, "percentile must be"),
        ("ash_s", {"percentile": "90"}, "percentile must be"),
        ("scale", {"percentile": 100.0}, "percentile must be"),
        ("react", {"percentile": 101}, r"percentile must be a number in \[0, 100\], got 101"),
        ("dice", {"sparsity": 100}, r"sparsity must be a number in \[0, 100\), got 100"),
        ("knn", {"k": 0}, "k must be a whole number >= 1, got 0"),
        ("knn", {"k": 61}, r"k must be at most the number of rows in the bank \(60\), got 61"),
        ("knn", {"k": 10, "bank_size": 9}, r"the number of rows in the bank \(9\), got 10"),
        ("knn", {"bank_size": 0}, "bank_size must be a whole number >= 1, got 0"),
        ("nnguide", {"k": 2.5}, "k must be a whole number >= 1, got 2.5"),
        ("residual", {"dim": 0}, "dim must be a whole number >= 1, got 0"),
        ("residual", {"dim": 8}, r"dim must be below the number of features \(8\), got 8"),
        ("vim", {"dim": 9}, r"dim must be below the number of features \(8\), got 9"),
    ],
)
def test_bad_parameters_are_refused_at_fit_not_at_init(name, parameters, message):
    score = SCORES[name](**parameters)
    act = head_world()
    with pytest.raises(InvalidInputError, match=message):
        score.fit(act)(act)


# --- shaping ------------------------------------------------------------------------------------------------------


def test_ties_keep_the_first_columns():
    mask = largest_mask(np.array([[1.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [4.0, 3.0, 2.0, 1.0]]), 2)
    np.testing.assert_array_equal(mask, [[0, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0]])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.integers(1, 9))
def test_mask_keeps_the_wanted_number(row, kept):
    kept = min(kept, len(row))
    mask = largest_mask(np.array([row], dtype=np.float64), kept)
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    assert set(np.flatnonzero(mask[0]).tolist()) == set(order[:kept])


@pytest.mark.parametrize("name", ["ash_p", "ash_s", "scale"])
def test_shaping_without_pruning(name):
    act = head_world()
    values = SCORES[name](percentile=0)(act)
    factor = 1.0 if name == "ash_p" else np.e  # sum over all / sum over all = 1
    expected = -np.log(np.exp(factor * act.features @ act.weight.T + act.bias).sum(axis=1))
    np.testing.assert_allclose(values, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["ash_s", "scale"])
def test_negative_features_do_not_overflow(name):
    features = np.array([[-5.0, -4.0, -3.0], [1e-9, -1.0, -1.0], [1e-300, 0.0, 9.0], [1.0, 1.0, -2.0]])
    act = Activations(features, weight=np.eye(3))
    assert np.isfinite(SCORES[name](percentile=60)(act)).all()


def test_ash_s_orients_at_a_milder_percentile():
    """The named exception of the common test comes from pruning all but 2 of 24 features, not from a sign."""
    rng = np.random.default_rng(0)
    weight = np.kron(np.eye(4), np.ones(6)) - 0.15
    labels = rng.integers(0, 4, 200)
    inside = np.maximum(np.where(weight[labels] > 0, 2.5, 0.1) + rng.normal(scale=0.6, size=(200, 24)), 0)
    outside = np.maximum(0.6 + rng.normal(scale=0.6, size=(200, 24)), 0)
    score = SCORES["ash_s"](percentile=65)
    own, other = (score(Activations(x, weight=weight)) for x in (inside, outside))
    assert (other[:, None] > own[None, :]).mean() > 0.9


def test_react_clips_at_the_percentile():
    act = head_world()
    score = SCORES["react"](percentile=70).fit(act)
    assert score.clip_ == pytest.approx(np.percentile(act.features, 70))
    np.testing.assert_allclose(SCORES["react"](percentile=100).fit(act)(act), SCORES["ebo"]()(act), rtol=1e-12)


def test_dice_without_sparsity_is_energy():
    act = head_world()
    np.testing.assert_allclose(SCORES["dice"](sparsity=0).fit(act)(act), SCORES["ebo"]()(act), rtol=1e-12)
    kept = (SCORES["dice"](sparsity=75).fit(act).weight_ != 0).mean()
    assert kept == pytest.approx(0.25, abs=0.05)


# --- features -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mahalanobis", "relative_mahalanobis", "she"])
def test_without_labels_predicted_classes_are_used(name):
    act = head_world()
    unlabeled = Activations(act.features, act.logits)
    predicted = Activations(act.features, act.logits, act.logits.argmax(axis=1))
    np.testing.assert_array_equal(SCORES[name]().fit(unlabeled)(act), SCORES[name]().fit(predicted)(act))


@pytest.mark.parametrize("name", ["mahalanobis", "relative_mahalanobis", "she"])
def test_unlabeled_rows_among_labeled_ones_are_refused(name):
    act = head_world()
    labels = np.array(act.labels)
    labels[7] = -1
    with pytest.raises(InvalidInputError, match="needs ID rows with a class each, got label -1 at row 7"):
        SCORES[name]().fit(Activations(act.features, act.logits, labels))


def test_classes_from_nowhere_are_refused():
    with pytest.raises(InvalidInputError, match="needs labels, or logits to predict them, got neither"):
        SCORES["mahalanobis"]().fit(Activations(features=np.ones((3, 2))))


def test_she_without_a_right_row_is_refused():
    with pytest.raises(InvalidInputError, match="rows that are classified correctly, got none"):
        SCORES["she"]().fit(Activations([[1.0]], [[1.0, 0.0]], [1]))


def test_constant_and_duplicate_features_are_ignored_by_mahalanobis():
    act = head_world()
    wider = Activations(np.c_[act.features, np.full(60, 3.0), act.features[:, 0]], None, act.labels)
    np.testing.assert_allclose(
        SCORES["mahalanobis"]().fit(wider)(wider), SCORES["mahalanobis"]().fit(act)(act), rtol=1e-7
    )


def test_mahalanobis_is_invariant_under_affine_maps():
    act = head_world()
    moved = act.features @ np.random.default_rng(1).normal(size=(8, 8)) + 5.0
    for name in ("mahalanobis", "relative_mahalanobis"):
        other = Activations(moved, labels=act.labels)
        np.testing.assert_allclose(SCORES[name]().fit(other)(other), SCORES[name]().fit(act)(act), rtol=1e-7)


@pytest.mark.parametrize(("d", "dim"), [(2048, 1000), (2047, 512), (768, 512), (767, 383), (64, 32)])
def test_published_rule_for_the_principal_dimension(d, dim):
    assert published_dim(d) == dim


def test_vim_is_the_order_of_the_virtual_softmax():
    act = head_world()
    score = SCORES["vim"](dim=3).fit(act)
    residual = SCORES["residual"](dim=3).fit(act)(act)
    virtual = score.scale_ * residual
    p = np.exp(virtual) / (np.exp(virtual) + np.exp(act.logits).sum(axis=1))
    np.testing.assert_array_equal(np.argsort(p), np.argsort(score(act)))
    assert score.scale_ == pytest.approx(act.logits.max(axis=1).mean() / residual.mean())


def test_vim_without_residual_is_refused():
    features = np.c_[np.arange(1.0, 5.0), np.zeros(4)]
    act = Activations(features, features, weight=np.eye(2))
    with pytest.raises(InvalidInputError, match="outside the principal subspace, got none: lower dim"):
        SCORES["vim"](dim=1).fit(act)


def test_fdbd_at_the_mean_and_equal_weights():
    act = Activations([[1.0, 0.0]], [[2.0, 1.0, 0.0]], weight=[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    value = SCORES["fdbd"]().fit(act)(act)
    assert np.isfinite(value).all()
    assert value[0] < -1e100


# --- neighbours ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_blocked_search_finds_the_largest(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, m, d = (data.draw(st.integers(1, high)) for high in (6, 900, 4))
    k = data.draw(st.integers(1, min(m, 40)))
    queries, bank = (np.round(rng.normal(size=(rows, d)), data.draw(st.integers(0, 8))) for rows in (n, m))
    penalty = rng.normal(size=m)
    found = np.sort(largest_products(queries, bank, k, penalty), axis=1)
    expected = np.sort(queries @ bank.T - penalty, axis=1)[:, -k:]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_knn_agrees_with_scikit_learn():
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(0)
    bank, queries = rng.normal(size=(3000, 6)), rng.normal(size=(1500, 6))
    values = SCORES["knn"]().fit(Activations(bank))(Activations(queries))
    scaled = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (bank, queries)]
    expected = NearestNeighbors(n_neighbors=50, algorithm="brute").fit(scaled[0]).kneighbors(scaled[1])[0][:, -1]
    np.testing.assert_allclose(values, expected, rtol=1e-9)


def test_bank_is_drawn_reproducibly():
    act = head_world(200)
    drawn = SCORES["knn"](k=3, bank_size=50, random_state=1).fit(act)
    assert drawn.bank_.shape == (50, 8)
    np.testing.assert_array_equal(drawn.bank_, SCORES["knn"](k=3, bank_size=50, random_state=1).fit(act).bank_)
    assert not np.array_equal(drawn.bank_, SCORES["knn"](k=3, bank_size=50, random_state=2).fit(act).bank_)
    assert SCORES["nnguide"](bank_size=500).fit(act).bank_.shape == (200, 8)
    assert SCORES["nnguide"](bank_size=20).fit(act).bank_.shape == (20, 8)


def test_k_can_be_lowered_after_fit_but_not_beyond_the_bank():
    act = head_world()
    score = SCORES["knn"](k=5).fit(act)
    np.testing.assert_array_equal(score.set_params(k=2)(act), SCORES["knn"](k=2).fit(act)(act))
    with pytest.raises(InvalidInputError, match="k must be at most"):
        score.set_params(k=61)(act)


def test_zero_features_have_distance_one():
    train = Activations(np.array([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_allclose(SCORES["knn"](k=1).fit(train)(Activations([[0.0, 0.0]])), [1.0])
    zeros = Activations(np.zeros((3, 2)))
    np.testing.assert_allclose(SCORES["knn"](k=1).fit(zeros)(Activations([[0.0, 0.0], [3.0, 4.0]])), [0.0, 1.0])
