"""Why an input is unfamiliar: the strange column comes first, whatever the table is made of; networks name the nearest labeled row."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.explanations import WORLDS, count
from poscod import POSCOD, Activations
from poscod.model._explain import _Exchange, _typical, column_parts
from poscod.model._familiar import cells_of
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

FAST = CorrectedSigmoid("paper", l2=1e-3)


@pytest.mark.parametrize("world", WORLDS)
def test_the_strange_column_comes_first(world):
    """One column lies four standard deviations off, another one in every row: named first in at least 90 % of the rows."""
    n, first, _ = count(world, "shift", 0)
    assert n > 100
    assert first >= 0.9 * n


@pytest.mark.slow
@pytest.mark.parametrize("world", [world for world in WORLDS if world != "skewed"])
def test_a_value_that_only_its_row_makes_strange(world):
    """Inside the range of its column, beside what the other columns say. Independent columns ("skewed") make no such value strange."""
    counts = np.sum([count(world, "jump", seed) for seed in range(2)], axis=0)
    assert counts[1] >= 0.8 * counts[0]
    assert counts[2] >= 0.9 * counts[0]


def table(n, rng):
    y = rng.integers(2, size=n)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n) + 2 * y,
            "weight": 50 + 10 * y + 10 * rng.normal(size=n),
            "colour": rng.choice(["red", "blue", "green"], size=n),
            "kind": pd.Categorical(np.where(rng.random(n) < 0.9, np.array(["a", "b"])[y], "c")),
        }
    )
    frame.loc[rng.random(n) < 0.05, "weight"] = np.nan
    return frame, y


@pytest.fixture(scope="module")
def mixed():
    """A model of a table with numbers, gaps, texts and a category, in a pipeline of the user."""
    rng = np.random.default_rng(0)
    (X, y), (U, _), (odd, _) = table(400, rng), table(250, rng), table(50, rng)
    odd["colour"] = "mauve"
    prepare = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["size", "weight"]),
        (OneHotEncoder(handle_unknown="ignore"), ["colour", "kind"]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = POSCOD(make_pipeline(prepare, LogisticRegression()), random_state=0)
        model.fit(X, y, X_unlabeled=pd.concat([U, odd], ignore_index=True))
    return model, table(6, np.random.default_rng(1))[0]


def test_columns_of_a_mixed_table_keep_their_names_and_units(mixed, tmp_path):
    model, rows = mixed
    rows.loc[0, "size"], rows.loc[1, "colour"] = 40.0, "mauve"
    found = model.decide(rows, explain=True)
    assert found.reason[:2].tolist() == ["unfamiliar"] * 2
    assert found.detail[0].startswith("size = 40: ")
    assert ", largest seen 5" in found.detail[0]
    assert found.detail[1].startswith("colour = 'mauve': ")
    assert found.detail[1].endswith(" similar rows, never seen")
    assert (found.detail[found.accept] == "").all()
    model.save(tmp_path / "m.poscod")
    again = POSCOD.load(tmp_path / "m.poscod").decide(rows, explain=True)
    assert again.detail.tolist() == found.detail.tolist()
    assert not hasattr(model.decide(rows), "detail")


def test_parts_of_a_linear_ratio():
    """What each column adds to a linear log g is known: an oracle for the exchange."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 4))
    y = (X[:, 0] > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = POSCOD(LogisticRegression(), FAST, random_state=0).fit(
            X, y, X_unlabeled=np.r_[X[:99] + 0.01, X[:50] + 3]
        )
    slope = np.array([0.0, 1.0, -2.0, 4.0])

    class Linear:
        def seen(self, rows):
            return None, np.asarray(rows) @ slope

    familiar, rows = model.scorer_.familiar, rng.normal(size=(7, 4))
    cells = cells_of(rows, familiar.cells)
    near = familiar.near(cells, 1)
    change = _Exchange(cells, _typical(familiar, near), near)
    parts, left = column_parts(Linear(), familiar, rows, change, rows @ slope)
    np.testing.assert_allclose(left, familiar.cells.numbers[near[:, 0]] @ slope)
    beside = familiar.near(cells, 1, np.tile(np.arange(4), (7, 1)))[:, :, 0]
    single = rows - np.stack([familiar.cells.numbers[beside[:, j], j] for j in range(4)], axis=1)
    after = rows - familiar.cells.numbers[near[:, 0]]
    np.testing.assert_allclose(parts, 0.5 * slope * (single + after))


def test_polars_and_a_category_that_is_new():
    rng = np.random.default_rng(0)
    (X, y), (U, _) = table(300, rng), table(150, rng)
    U.loc[:40, "size"] += 9.0
    prepare = make_column_transformer(
        (SimpleImputer(), ["size", "weight"]), (OneHotEncoder(handle_unknown="ignore"), ["colour"])
    )
    fit = lambda frame: POSCOD(make_pipeline(prepare, LogisticRegression()), FAST, random_state=0).fit(  # noqa: E731
        frame(X), y, X_unlabeled=frame(U)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for frame in (pl.from_pandas, lambda part: part):
            found = fit(frame).decide(frame(U[:5]), explain=True)
            assert all(words.startswith("size = ") for words in found.detail)


def test_a_network_names_the_nearest_row_and_what_speaks():
    world = GaussianWorld(5 * np.eye(3, 16), [-np.ones(16)])
    head = LogisticRegression().fit(*world.sample_id(400, random_state=9))
    rows = lambda X, y=None: Activations(X, np.log(head.predict_proba(X)), y, classes=["cat", "dog", "eel"])  # noqa: E731
    X, y = world.sample_id(300, random_state=0)
    traffic, _ = world.sample_mixture(150, pi=0.3, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no answer is wrong: they may be training rows
        model = POSCOD(ratio=FAST, random_state=0).fit(rows(X, y), X_unlabeled=rows(traffic))
    found = model.decide(rows(traffic), explain=True)
    asked = np.flatnonzero(found.reason == "unfamiliar")
    assert len(asked) > 10
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    for i in asked:
        best = int((unit @ traffic[i]).argmax())
        assert found.detail[i].startswith(f"nearest labeled row: {best + 1} ({['cat', 'dog', 'eel'][y[best]]})")
    assert np.mean(["farther from it than" in words for words in found.detail[asked]]) > 0.8


def test_texts_name_the_nearest_row_and_rows_without_a_ratio_nothing():
    rng = np.random.default_rng(0)
    words = [["send", "buy", "parcel"], ["broken", "repair", "error"], ["rain", "goal", "tax"]]
    draw = lambda k, n: [" ".join(rng.choice([*words[k], "please"], 5)) for _ in range(n)]  # noqa: E731
    texts, y = np.array(draw(0, 80) + draw(1, 80), dtype=object), np.repeat(["order", "help"], 80)
    traffic = np.array(draw(0, 30) + draw(1, 30) + draw(2, 30), dtype=object)
    model = POSCOD(make_pipeline(TfidfVectorizer(), LogisticRegression()), FAST, tpr_min=0.9, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.fit(texts, y, X_unlabeled=traffic).decide(traffic, explain=True)
        rejected = found.detail[np.isin(found.reason, ["unfamiliar", "both"])]
        assert len(rejected) > 10
        assert all(words.startswith("nearest labeled row: ") for words in rejected)
        alone = model.fit(texts, y).decide(traffic, explain=True)
    assert set(alone.detail) == {""}


def test_numbers_written_as_texts_and_columns_of_lists():
    """Where a table is prepared, texts that are numbers are numbers; a column of lists is not exchanged, and alone the nearest row is named."""
    rng = np.random.default_rng(0)

    def rows(n, shift):
        y = rng.integers(2, size=n)
        a, b = rng.normal(size=n) + 3 * y, rng.normal(size=(n, 3)) + y[:, None] + shift[1]
        return pd.DataFrame({"a": [f"{v:.3f}" for v in a + shift[0]], "b": list(b), "long": ["x" * 5000] * n}), y

    (X, y), (U, _), (odd, _), (far, _) = rows(300, (0, 0)), rows(150, (0, 0)), rows(40, (50, 0)), rows(40, (0, 50))
    log = pd.concat([U, odd, far], ignore_index=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = POSCOD(None, FAST, random_state=0).fit(X, y, X_unlabeled=log)
        alone = POSCOD(None, FAST, random_state=0).fit(X[["b"]], y, X_unlabeled=log[["b"]])
    assert model.scorer_.familiar.cells.width == 1  # neither lists nor long texts are kept
    found = model.decide(odd, explain=True)
    assert all(words.startswith("a = ") and "largest seen" in words for words in found.detail)
    assert all(words.startswith("no single column; nearest") for words in model.decide(far, explain=True).detail)
    assert all(words.startswith("nearest labeled row: ") for words in alone.decide(far[["b"]], explain=True).detail)
