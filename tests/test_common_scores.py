"""What every score promises, checked over the whole mapping."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from oracles.scores import ORACLES
from poscod import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores import SCORES, Score

NAMES = sorted(SCORES)
FITTED = [name for name in NAMES if SCORES[name].fit_needs]
DOCS = Path(__file__).parents[1] / "docs" / "scores.md"

# A score that does not separate the simulated world, with the reason.
NOT_ORIENTED: dict[str, str] = {
    "ash_s": "at its published 90 % it keeps 2 of these 24 features, and its factor exp(S1 / S2) rewards rows whose sum "
    "is spread over many features, as that of OOD is here; at 65 % it is oriented (test_scores/test_details.py)",
}


def world(rng, n, *, ood=False, d=24, n_classes=4, dtype=np.float64):
    """A network with ReLU features: each class excites its own block of features, far OOD excites all a little."""
    weight = np.zeros((n_classes, d))
    for c in range(n_classes):
        weight[c, c * d // n_classes : (c + 1) * d // n_classes] = 0.8
    weight += np.random.default_rng(5).normal(scale=0.1, size=weight.shape) - 0.15
    bias = np.linspace(-0.2, 0.3, n_classes)
    labels = rng.integers(0, n_classes, n)
    centre = np.full((n, d), 0.6) if ood else np.where(weight[labels] > 0.3, 2.5, 0.1)
    features = np.maximum(centre + rng.normal(scale=0.6, size=(n, d)), 0.0)
    features, weight, bias = (a.astype(dtype) for a in (features, weight, bias))
    return Activations(features, features @ weight.T + bias, None if ood else labels, weight, bias)


@pytest.fixture(scope="module")
def train():
    return world(np.random.default_rng(0), 400)


@pytest.fixture(scope="module")
def test_id():
    return world(np.random.default_rng(1), 90)


@pytest.fixture(scope="module")
def test_ood():
    return world(np.random.default_rng(2), 70, ood=True)


def auroc(score_id, score_ood):
    wins = score_ood[:, None] > score_id[None, :]
    ties = score_ood[:, None] == score_id[None, :]
    return float((wins + 0.5 * ties).mean())


def without(activations, *parts):
    kept = {name: getattr(activations, name) for name in ("features", "logits", "labels", "weight", "bias")}
    if "weight" in parts:
        parts = (*parts, "bias")
    return Activations(**{name: value for name, value in kept.items() if name not in parts})


def test_mapping_is_complete():
    assert len(SCORES) >= 22
    assert set(ORACLES) == set(SCORES)
    assert set(NOT_ORIENTED) <= set(SCORES)
    for name, score in SCORES.items():
        assert score.name == name
        assert issubclass(score.kind, Score)
        assert score.needs


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_keyword_only_and_only_assigned(name):
    signature = inspect.signature(SCORES[name].kind)
    assert all(p.kind is p.KEYWORD_ONLY for p in signature.parameters.values())
    assert SCORES[name]().get_params() == {key: p.default for key, p in signature.parameters.items()}
    assert SCORES[name].kind.__doc__ is not None
    for section in ("Notes", "References", "Examples", "s(x) ="):
        assert section in SCORES[name].kind.__doc__


@pytest.mark.parametrize("name", NAMES)
def test_far_ood_scores_higher(name, train, test_id, test_ood):
    score = SCORES[name]().fit(train)
    area = auroc(score(test_id), score(test_ood))
    if name in NOT_ORIENTED:
        assert area <= 0.5, "no longer an exception: remove it from NOT_ORIENTED"
    else:
        assert area > 0.5


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_slow_oracle(name, train, test_id, test_ood):
    score = SCORES[name]().fit(train)
    for test in (test_id[:25], test_ood[:25]):
        np.testing.assert_allclose(score(test), ORACLES[name](train, test), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_row_order_does_not_matter(name, train, test_id):
    score = SCORES[name]().fit(train)
    order = np.random.default_rng(3).permutation(len(test_id))
    np.testing.assert_allclose(score(test_id[order]), score(test_id)[order], rtol=1e-11, atol=1e-13)
    shuffled = SCORES[name]().fit(train[np.random.default_rng(4).permutation(len(train))])
    np.testing.assert_allclose(shuffled(test_id), score(test_id), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk_rows", [1, 7, 10_000])
def test_blocks_do_not_matter(name, chunk_rows, train, test_id):
    score = SCORES[name]().fit(train)
    np.testing.assert_allclose(score(test_id, chunk_rows=chunk_rows), score(test_id), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", FITTED)
def test_blocks_in_fit_do_not_matter(name, train, test_id, monkeypatch):
    whole = SCORES[name]().fit(train)(test_id)
    # Blocks of 64 rows instead of one block.
    monkeypatch.setattr("poscod.scores._moments.BLOCK_BYTES", 1)
    monkeypatch.setattr("poscod.scores._nearest.QUERY_ROWS", 13)
    monkeypatch.setattr("poscod.scores._nearest.BANK_ROWS", 29)
    np.testing.assert_allclose(SCORES[name]().fit(train)(test_id), whole, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_float32_gives_float64_close_to_it(name):
    rng = np.random.default_rng(6)
    train, test = world(rng, 300, dtype=np.float32), world(rng, 40, dtype=np.float32)
    parts = ("features", "logits", "labels", "weight", "bias")
    train64 = Activations(**{p: np.asarray(getattr(train, p), dtype=np.float64) for p in parts})
    test64 = Activations(**{p: np.asarray(getattr(test, p), dtype=np.float64) for p in parts})
    single = SCORES[name]().fit(train)(test)
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, SCORES[name]().fit(train64)(test64), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_nan_is_refused(name, train, test_id):
    for part in set(SCORES[name].needs) & {"features", "logits"}:
        broken = np.array(getattr(test_id, part))
        broken[3, 1] = np.nan
        values = {p: getattr(test_id, p) for p in ("features", "logits", "weight", "bias")} | {part: broken}
        with pytest.raises(InvalidInputError, match=rf"{part} must be finite, got nan at row 3, column 1"):
            SCORES[name]().fit(train)(Activations(**values))


@pytest.mark.parametrize("name", NAMES)
def test_missing_part_is_named(name, train, test_id):
    score = SCORES[name]().fit(train)
    for part in SCORES[name].needs:
        other = "logits" if part == "features" else "features"
        rest = without(test_id, part) if part != "bias" else None
        if rest is None:
            continue
        assert getattr(rest, other) is not None
        with pytest.raises(InvalidInputError, match=f"Score '{name}' needs {part}, which these activations"):
            score(rest)
    for part in SCORES[name].fit_needs:
        if part != "bias":
            with pytest.raises(InvalidInputError, match=f"Fitting the score '{name}' needs {part}"):
                SCORES[name]().fit(without(train, part))


@pytest.mark.parametrize("name", NAMES)
def test_a_call_reads_no_more_than_it_needs(name, train, test_id):
    score = SCORES[name]().fit(train)
    unused = [p for p in ("features", "logits", "labels", "weight") if p not in SCORES[name].needs]
    np.testing.assert_array_equal(score(without(test_id, *unused)), score(test_id))


@pytest.mark.parametrize("name", FITTED)
def test_unfitted_call_names_fit(name, test_id):
    with pytest.raises(InvalidInputError, match=rf"Score '{name}' is not fitted: call fit\(activations_id\)"):
        SCORES[name]()(test_id)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(FITTED)))
def test_scores_without_fit_work_without_it(name, train, test_id):
    score = SCORES[name]()
    before = score(test_id)
    assert score.fit(train) is score
    np.testing.assert_array_equal(score(test_id), before)


@pytest.mark.parametrize("name", FITTED)
def test_other_number_of_columns_is_refused(name, train):
    score = SCORES[name]().fit(train)
    wider = world(np.random.default_rng(7), 10, d=30, n_classes=5)
    with pytest.raises(InvalidInputError, match="columns, as many as at fit"):
        score(wider)


@pytest.mark.parametrize("name", NAMES)
def test_input_is_not_changed_and_state_is_its_own(name, train, test_id):
    parts = ("features", "logits", "labels", "weight", "bias")
    own = Activations(**{p: np.array(getattr(train, p)) for p in parts})
    score = SCORES[name]().fit(own)
    expected = score(test_id)
    for activations, like in ((own, train),):
        for part in parts:
            np.testing.assert_array_equal(getattr(activations, part), getattr(like, part))
    before = {p: np.array(getattr(test_id, p)) for p in parts}
    score(test_id)
    for part in parts:
        np.testing.assert_array_equal(getattr(test_id, part), before[part])
    for part in parts:  # a caller who reuses its buffers does not change a fitted score
        getattr(own, part)[...] = 0
    np.testing.assert_array_equal(score(test_id), expected)


@pytest.mark.parametrize("name", NAMES)
def test_read_only_and_strided_arrays(name, train, test_id):
    score = SCORES[name]().fit(train)
    values = {p: getattr(test_id, p) for p in ("features", "logits", "weight", "bias")}
    frozen = {p: np.asfortranarray(v) for p, v in values.items()}
    for value in frozen.values():
        value.setflags(write=False)
    np.testing.assert_allclose(score(Activations(**frozen)), score(test_id), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_one_row_and_no_row(name, train, test_id):
    score = SCORES[name]().fit(train)
    np.testing.assert_allclose(score(test_id[:1]), score(test_id)[:1], rtol=1e-11, atol=1e-13)
    empty = score(test_id[:0])
    assert empty.shape == (0,)
    assert empty.dtype == np.float64


@pytest.mark.parametrize("name", FITTED)
def test_fit_on_no_row_is_refused(name, train):
    with pytest.raises(InvalidInputError, match="needs at least one row, got none"):
        SCORES[name]().fit(train[:0])


@pytest.mark.parametrize("name", NAMES)
def test_plain_arrays_are_refused(name, train):
    with pytest.raises(InvalidInputError, match="must be an Activations object, got ndarray"):
        SCORES[name]().fit(train)(train.features)
    with pytest.raises(InvalidInputError, match="chunk_rows must be a whole number >= 1, got 0"):
        SCORES[name]().fit(train)(train, chunk_rows=0)


@pytest.mark.parametrize("name", NAMES)
def test_clone_keeps_parameters_and_drops_state(name, train, test_id):
    score = SCORES[name]().fit(train)
    copy = clone(score)
    assert copy.get_params() == score.get_params()
    np.testing.assert_array_equal(copy.fit(train)(test_id), score(test_id))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0.0, 1e4])
def test_extreme_but_finite_input_gives_finite_scores(name, size, train):
    score = SCORES[name]().fit(train)
    rng = np.random.default_rng(8)
    features = size * rng.choice([0.0, 1.0], size=(30, 24))
    logits = size * rng.choice([-1.0, 0.0, 1.0], size=(30, 4))
    test = Activations(features, logits, weight=train.weight, bias=train.bias)
    assert np.isfinite(score(test)).all()
    extreme = Activations(features, logits, rng.integers(0, 4, 30), train.weight, train.bias)
    parameters = {"k": 5} if "k" in SCORES[name]().get_params() else {}
    if name in FITTED and not (name in ("vim", "she") and size == 0.0):
        assert np.isfinite(SCORES[name](**parameters).fit(extreme)(test)).all()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_finite_rows_give_finite_scores(name, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    d, n_classes, n = data.draw(st.integers(2, 9)), data.draw(st.integers(2, 6)), data.draw(st.integers(1, 20))
    coarse = data.draw(st.sampled_from([0.0, 1.0, 0.01]))

    def draw(*shape):
        values = rng.normal(size=shape)
        return np.round(values / coarse) * coarse if coarse else values

    weight, bias = draw(n_classes, d), draw(n_classes)
    features = draw(n + 3, d)
    act = Activations(features, features @ weight.T + bias, None, weight, bias)
    parameters = {"k": 3} if "k" in SCORES[name]().get_params() else {}
    values = SCORES[name](**parameters).fit(act)(act[:n])
    assert values.shape == (n,)
    assert np.isfinite(values).all()


def test_every_score_is_in_the_docs_table():
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    table = {match.group(1): line for line in lines if (match := re.match(r"\| `(\w+)` \|", line))}
    assert list(table) == list(SCORES)
    for name, line in table.items():
        score = SCORES[name]
        _, formula, needs, fit, defaults, citation = (cell.strip() for cell in line.strip("|").split(" | "))
        assert formula
        assert needs == ", ".join(part for part in score.needs if part != "bias")
        expected = ", ".join(part for part in score.fit_needs if part != "bias")
        assert fit == (f"yes: {expected}" if expected else "no")
        assert defaults == (", ".join(f"{key}={value!r}" for key, value in score().get_params().items()) or "none")
        # The short citation is that of the reference in the docstring.
        references = score.kind.__doc__.split("References")[1]
        surname, year = re.match(r"(\w+)", citation).group(), re.search(r"(?:19|20)\d\d|\d{4}\.\d{5}", citation).group()
        assert f"{surname}," in references or f"{surname} et al." in references, name
        assert year in references, name
