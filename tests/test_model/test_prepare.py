"""Tables as they are: what becomes of gaps, texts, categories and truth values, and what of that a model sees and says."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.model import LeftOutWarning
from poscod.model._prepare import Preparation
from poscod.ratio import CorrectedSigmoid

FAST = CorrectedSigmoid("paper", l2=0.01)


def gems(n, seed, ood=False):
    """Sizes with gaps, colours, cuts, a flag, and columns that are no inputs; strangers are deeper, and half of them of a cut that nobody labeled."""
    rng = np.random.default_rng(seed)
    color, cut = rng.choice(list("DEFGHIJ"), n), rng.choice(["fair", "good", "ideal"], n, p=[0.2, 0.3, 0.5])
    carat, depth = rng.gamma(3.0, 0.3, n), rng.normal(60.0, 2.0, n)
    worth = 2.0 * carat + 1.5 * np.isin(color, list("DEF")) + (cut == "ideal") + rng.normal(0.0, 0.4, n)
    if ood:
        cut, depth = rng.choice(["rose", "ideal"], n), rng.normal(65.0, 2.0, n)
    frame = pd.DataFrame({"carat": carat, "depth": depth, "color": color, "cut": cut, "certified": rng.random(n) < 0.5})
    frame["seen"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    frame["seller"] = [f"shop {i}" for i in rng.integers(0, 10**6, n)]
    frame.loc[rng.random(n) < 0.1, "depth"] = np.nan
    frame.loc[rng.random(n) < 0.05, "color"] = None
    return frame, np.array(["low", "mid", "high"])[np.digitize(worth, [2.3, 4.0])]


@pytest.fixture(scope="module")
def world():
    X, y = gems(600, 0)
    log = pd.concat([gems(300, 1)[0], gems(100, 2, ood=True)[0]], ignore_index=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        model = POSCOD(ratio=FAST, tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=log)
    return X, y, log, model


def test_numbers_are_those_of_scikit_learn(world):
    X, _, log, model = world
    names = ["carat", "depth", "certified"]
    expected = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median", add_indicator=True), names),
            ("color", OneHotEncoder(min_frequency=6, handle_unknown="ignore", sparse_output=False), ["color", "cut"]),
        ]
    ).fit(X.fillna({"color": "missing"}))
    made = expected.transform(log.fillna({"color": "missing"}))
    found = dict(zip(model.schema_.made, model.scorer_.prepared(log).T, strict=True))
    order = ["carat", "depth", "certified", "depth missing", *(f"color = {c}" for c in "DEFGHIJ"), "color missing"]
    order += [f"cut = {c}" for c in ("fair", "good", "ideal")]
    np.testing.assert_allclose(np.column_stack([found[name] for name in order]), made.astype(float))
    assert found["cut new"].sum() == (log["cut"] == "rose").sum() > 0
    assert model.schema_.origin[model.schema_.made.index("color = D")] == "color"
    assert model.schema_.features == ("carat", "depth", "color", "cut", "certified")


def test_levels_never_seen_and_unheard_of_gaps_are_evidence_and_are_named(world):
    *_, model = world
    fresh = gems(40, 3)[0]
    for change, said in (
        ({"cut": "mauve"}, r"cut = 'mauve': .*, never seen"),
        ({"cut": None}, r"cut is missing: .*, never missing before"),
        ({"carat": np.nan}, r"carat is missing: .*, never missing before"),
    ):
        odd = model.decide(fresh.assign(**change), explain=True)
        assert not odd.accept.any()
        assert np.mean([re.match(said, words) is not None for words in odd.detail]) > 0.9
        assert (odd.log_ratio > model.log_ratio(fresh) + 1.0).all()
    usual = model.decide(fresh.assign(depth=np.nan), explain=True)
    assert usual.accept.mean() > 0.7


def test_order_extra_columns_and_polars_do_not_matter(world, tmp_path):
    polars = pytest.importorskip("polars")
    X, y, log, model = world
    fresh = gems(50, 4)[0]
    score = model.decide(fresh).score
    for same in (fresh[fresh.columns[::-1]].assign(more=1), polars.from_pandas(fresh), fresh.drop(columns=["seller"])):
        np.testing.assert_array_equal(model.decide(same).score, score)
    typed = fresh.astype({"color": "category", "cut": "string", "certified": "int"})
    np.testing.assert_array_equal(model.decide(typed).score, score)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        again = POSCOD(ratio=FAST, tpr_min=0.9, random_state=0)
        again.fit(polars.from_pandas(X), y, X_unlabeled=polars.from_pandas(log))
    np.testing.assert_array_equal(again.decide(fresh).score, score)
    assert model.save(tmp_path / "m.poscod") == []
    loaded = POSCOD.load(tmp_path / "m.poscod")
    np.testing.assert_array_equal(loaded.decide(fresh).score, score)
    assert loaded.schema_ == model.schema_


def test_rows_marked_as_unlabeled_are_not_learned_from(world):
    X, y, log, model = world
    both, marks = pd.concat([X, log], ignore_index=True), np.append(y.astype(object), [-1] * len(log))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        marked = POSCOD(ratio=FAST, tpr_min=0.9, random_state=0).fit(both, marks)
    assert marked.schema_ == model.schema_
    np.testing.assert_array_equal(marked.decide(log).score, model.decide(log).score)


def test_what_is_left_out_is_said_once(world):
    X, y, log, _ = world
    with pytest.warns(LeftOutWarning, match=r"'seen' \(dates.*; 'seller' \(a name for each row") as caught:
        POSCOD(GaussianNB(), FAST, random_state=0).fit(X, y, X_unlabeled=log)
    assert caught[0].message.facts["columns"] == ["seen", "seller"]


def test_all_problems_come_at_once(world):
    X, y, log, model = world
    bad = X.assign(carat=[np.inf, *X["carat"][1:]], depth=["deep", *X["depth"].astype(str)[1:]])
    with pytest.raises(InvalidInputError) as caught:
        POSCOD(ratio=FAST).fit(bad, y, X_unlabeled=log)
    assert str(caught.value).startswith(
        "X cannot be read: column 'carat' must hold finite numbers, got inf at row 1; column 'depth' holds numbers, and then 'deep' at row 1"
    )
    with pytest.raises(
        InvalidInputError, match="'carat' must hold numbers, got 'big' at row 2; column 'depth' must hold"
    ):
        model.decide(log.head(2).assign(carat=["1.5", "big"], depth="x"))
    with pytest.raises(InvalidInputError, match="X lacks the columns 'color', 'cut'"):
        model.decide(log.drop(columns=["color", "cut"]))
    with pytest.raises(InvalidInputError, match="X must be a data frame with the columns"):
        model.decide(np.zeros((2, 5)))


@pytest.mark.parametrize(
    ("values", "made"),
    [
        (["1", "2.5", "?", " 3 "] * 5, ("x", "x missing")),
        (["007", "008"] * 10, ("x = 007", "x = 008", "x new")),
        ([True, False, None, True] * 5, ("x", "x missing")),
        (["1", "2", "other"] * 10, ("x = 1", "x = 2", "x = other", "x new")),
        ([[1.0, 2.0], [3.0, 4.0]] * 10, ("x[0]", "x[1]")),
        (pd.Categorical([1, 2] * 10), ("x = 1", "x = 2", "x new")),
        (pd.array([1, None] * 10, dtype="Int64"), ("x", "x missing")),
        (
            ["a"] * 12 + ["b"] * 6 + ["c", "d"],
            ("x = a", "x = b", "x rare"),
        ),  # one row in ten has a level alone: new ones are no news
    ],
)
def test_kinds_of_columns(values, made):
    frame = pd.DataFrame({"x": values, "gap": [None, *"ab" * 9, "a"][: len(values)] if len(values) == 20 else "a"})
    found = Preparation.of(frame, None)
    assert tuple(name for name, origin in zip(found.made, found.origin, strict=True) if origin == "x") == made
    assert np.isfinite(found.rows(frame)).all()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([f"name {i}" for i in range(40)], "a name for each row"),
        ([f"word {i // 2}" for i in range(40)] + ["a"] * 2, "different texts"),
        (["2026-01-02", "2025-12-24 10:00"] * 20, "dates"),
        (["1.2.2026", "03.04.2025"] * 20, "dates"),
        ([None] * 40, "nothing but gaps"),
        ([{"a": 1}] * 40, "holds dict"),
    ],
)
def test_what_is_left_out(values, why):
    frame = pd.DataFrame({"x": values, "a": np.arange(len(values)) % 3})
    if "different" in why:
        frame = pd.concat([frame] + [frame.assign(x=frame["x"] + "!" * k) for k in range(1, 6)], ignore_index=True)
    found = Preparation.of(frame, None)
    assert [name for name, _ in found.left_out] == ["x"]
    assert why in found.left_out[0][1]


def test_a_labeled_row_is_coded_as_a_fresh_one():
    """A level that one labeled row alone has was never seen in the others; later, as it has been seen, it is rare."""
    frame = pd.DataFrame({"x": ["a"] * 100 + ["b"] * 100 + ["c"]})
    found = Preparation.of(frame, None)
    assert found.made == ("x = a", "x = b", "x rare", "x new")
    assert found.unseen == (3,)
    assert found.rows(frame, own=True)[-1].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert found.rows(frame)[-1].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert found.rows(pd.DataFrame({"x": ["d"]})).tolist() == [[0.0, 0.0, 0.0, 1.0]]


@pytest.mark.filterwarnings("ignore:The joint likelihood")
def test_a_classifier_that_prepares_itself_is_left_alone(world):
    X, y, log, _ = world
    X, log = X.drop(columns=["seen", "seller"]), log.drop(columns=["seen", "seller"])
    own = make_column_transformer(
        (SimpleImputer(), ["carat", "depth"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["color", "cut"]),
        remainder="passthrough",
    )
    model = POSCOD(make_pipeline(own, GaussianNB()), FAST, random_state=0)
    assert model.fit(X, y, X_unlabeled=log).scorer_.preparation is None
    trees = HistGradientBoostingClassifier(max_iter=5, categorical_features=["color", "cut"])
    typed = [side.astype({"color": "category", "cut": "category"}) for side in (X, log)]
    assert POSCOD(trees, FAST, random_state=0).fit(typed[0], y, X_unlabeled=typed[1]).scorer_.preparation is None
    with pytest.raises(InvalidInputError, match="prepare must be one of 'always', 'auto', 'never', got 'yes'"):
        POSCOD(prepare="yes").fit(X, y, X_unlabeled=log)
    with pytest.raises(InvalidInputError, match="prepare = 'always' needs rows in a data frame, got ndarray"):
        POSCOD(prepare="always").fit(np.zeros((4, 1)), [0, 1, 0, 1])


def test_frames_of_numbers_are_taken_as_they_are(world):
    X, y, log, _ = world
    numbers = [side[["carat", "depth"]].fillna(60.0) for side in (X, log)]
    framed = POSCOD(ratio=FAST, random_state=0).fit(numbers[0], y, X_unlabeled=numbers[1])
    plain = POSCOD(ratio=FAST, prepare="never", random_state=0).fit(numbers[0], y, X_unlabeled=numbers[1])
    assert framed.scorer_.preparation is None
    np.testing.assert_array_equal(framed.decide(numbers[1]).score, plain.decide(numbers[1]).score)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_drift_verdicts_groups_and_copies_speak_of_the_columns_of_the_table():
    from poscod import OOD
    from poscod.review import queue, stranger_groups, strangers

    (X, y), log = gems(700, 0), pd.concat([gems(500, 1)[0], gems(150, 2, ood=True)[0]], ignore_index=True)
    moved = gems(600, 1)[0]
    moved["carat"], moved["depth"] = moved["carat"] + 0.6, moved["depth"] + 3.0
    drifted = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=moved)
    drift = drifted.calibration_.drift
    assert drift is not None
    assert set(drift.columns) <= set(drifted.schema_.made)
    assert {"depth", "carat"} & set(drift.columns)
    groups = np.arange(len(X)) // 2
    model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=log, groups=groups)
    assert len(strangers(model, log).index) > 50
    named = [name for group in stranger_groups(model, log) for name, _ in group.apart]
    assert {"cut new", "depth"} & set(named)
    chosen = queue(model, log, 60, random_state=0)
    verdicts = [OOD if i >= 500 else model.predict_id(log.iloc[[i]])[0] for i in chosen.index]
    again = POSCOD(tpr_min=0.9, random_state=0)
    again.fit(X, y, X_unlabeled=log, X_reviewed=log.iloc[chosen.index], y_reviewed=verdicts)
    assert again.calibration_.verdicts == 60
    fresh = gems(800, 3)[0]
    assert abs(again.decide(fresh).accept.mean() - 0.9) < 0.05
    assert again.decide(gems(300, 4, ood=True)[0]).accept.mean() < 0.35
