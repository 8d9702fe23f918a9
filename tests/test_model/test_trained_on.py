"""Rows that a given classifier was trained on: found at fit, said, and nothing is promised from them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from poscod import POSCOD, Activations
from poscod.model import load
from poscod.problem import Budget, RiskBound
from poscod.ratio import CorrectedSigmoid, SeenByClassifierWarning, training_trace

PAPER = CorrectedSigmoid("paper", l2=1e-3)
CENTRES = np.random.default_rng(5).normal(0.0, 0.9, (4, 12))
CLASSIFIERS = {
    "forest": lambda: RandomForestClassifier(40, random_state=0),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=40, early_stopping=False),
    "network": lambda: make_pipeline(StandardScaler(), MLPClassifier((60,), tol=1e-3, max_iter=500, random_state=0)),
    "logistic": lambda: LogisticRegression(C=10.0, max_iter=2000),
    "under-confident": lambda: LogisticRegression(C=1e-3, max_iter=2000),
    "over-confident": lambda: GaussianNB(),
}
LEARN_BY_HEART = ("forest", "boosting", "network", "logistic")


def rows(n, seed, share=(1, 1, 1)):
    """Three overlapping classes; a fourth is OOD."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=np.array(share) / sum(share))
    return CENTRES[y] * 0.8 + rng.normal(size=(n, 12)), y


def traffic(n, seed, pi, near=True, share=(1, 1, 1)):
    rng = np.random.default_rng(seed + 1000)
    k = round(pi * n)
    ood = CENTRES[3] * 0.8 + rng.normal(size=(k, 12)) if near else 4.0 * rng.normal(size=(k, 12))
    return np.vstack([rows(n - k, seed + 2000, share)[0], ood])


def fitted(template, X, y, log, **more):
    """Return a model and what was said of training rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = POSCOD(template, PAPER, random_state=0, **more).fit(X, y, X_unlabeled=log)
    return model, [w.message for w in caught if isinstance(w.message, SeenByClassifierWarning)]


@pytest.mark.parametrize("name", LEARN_BY_HEART)
def test_training_rows_are_named_and_nothing_is_promised(name):
    X, y = rows(400, 0)
    model, said = fitted(FrozenEstimator(CLASSIFIERS[name]().fit(X, y)), X, y, traffic(400, 1, 0.15))
    assert len(said) == 1
    assert str(said[0]).startswith("X looks like rows the classifier was trained on and nothing is promised, because ")
    assert str(said[0]).endswith("or the classifier unfitted, so that it is cross-fitted.")
    assert said[0].facts["rows"] == 400
    assert model.rule_.promise is None
    assert str(model.rule_).endswith(
        "Nothing is promised about the share of ID inputs accepted: the labeled rows look like rows the classifier was trained on."
    )


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize(
    ("pi", "near", "share"), [(0.0, True, (1, 1, 1)), (0.3, True, (1, 1, 1)), (0.3, False, (6, 2, 1))]
)
def test_held_out_rows_are_not_accused(name, pi, near, share):
    classifier = FrozenEstimator(CLASSIFIERS[name]().fit(*rows(400, 0)))
    model, said = fitted(classifier, *rows(400, 3), traffic(400, 4, pi, near, share))
    assert not said
    assert model.rule_.promise is not None


def test_an_unfitted_classifier_is_not_suspected():
    X, y = rows(300, 0)
    assert not fitted(CLASSIFIERS["forest"](), X, y, traffic(300, 1, 0.1))[1]


def test_outputs_are_enough():
    """As `poscod fit --probabilities` gives them, with columns and without."""
    X, y = rows(400, 0)
    forest, log = CLASSIFIERS["forest"]().fit(X, y), traffic(400, 1, 0.15)
    for columns in (True, False):

        def seen(X, y=None, columns=columns):
            return Activations(X if columns else None, np.log(forest.predict_proba(X).clip(1e-9)), y)

        assert fitted(None, seen(X, y), None, seen(log))[1][0].facts["trace"] == "hard_rows"
        assert not fitted(None, seen(*rows(400, 3)), None, seen(log))[1]


def test_without_traffic_training_rows_are_found_where_the_classifier_can_be_asked():
    X, y = rows(400, 0)
    model, said = fitted(FrozenEstimator(CLASSIFIERS["forest"]().fit(X, y)), X, y, None)
    assert said[0].facts["trace"] == "between"
    assert model.rule_.promise is None


def test_no_door_gives_the_promise_back(tmp_path):
    X, y = rows(500, 0)
    frozen = FrozenEstimator(CLASSIFIERS["logistic"]().fit(X, y))
    model, _ = fitted(frozen, X, y, traffic(400, 1, 0.15), threshold="guaranteed", tpr_min=0.8)
    asked = [model, model.at(alpha=0.2), model.with_rule(RiskBound(0.3, 0.1)), model.with_rule(Budget(0.1))]
    assert [m.rule_.promise for m in asked] == [None] * 4
    assert "trained on" in model.rule_.to_dict()["sentence"]
    assert "of the traffic seen at fit is rejected; nothing is promised" in str(asked[3].rule_)
    model.save(tmp_path / "m.poscod")
    assert load(tmp_path / "m.poscod").rule_ == model.rule_
    assert load(tmp_path / "m.poscod").at(tpr_min=0.7).rule_.promise is None


def test_a_share_and_frames_and_categories_are_looked_at():
    pd = pytest.importorskip("pandas")
    X, y = rows(500, 0)
    forest = FrozenEstimator(CLASSIFIERS["forest"]().fit(X, y))
    assert fitted(forest, X, y, traffic(400, 1, 0.15), calibration=0.5)[1]
    frame, log = (pd.DataFrame(part, columns=[f"c{j}" for j in range(12)]) for part in (X, traffic(400, 1, 0.15)))
    named = FrozenEstimator(CLASSIFIERS["forest"]().fit(frame, y))
    assert fitted(named, frame, y, log)[1][0].facts["trace"] == "between"
    words, said = (part.iloc[:, :6].round(0).astype(str) for part in (frame, log))
    texts = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(C=100.0, max_iter=2000)).fit(
        words, y
    )
    assert fitted(FrozenEstimator(texts), words, y, said)[1]


def separable(n, seed):
    """Three classes that a line tells apart, nearly always."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return 2.0 * CENTRES[y] + rng.normal(size=(n, 12)), y


def test_errors_that_are_all_on_one_side_still_balance():
    """Without one wrong answer the errors pull along the weights, which shrinkage holds back; beyond that they cancel."""
    X, y = separable(300, 0)
    for classifier in (LogisticRegression(max_iter=3000), make_pipeline(StandardScaler(), LogisticRegression(C=30.0, max_iter=3000))):  # fmt: skip
        classifier.fit(X, y)
        assert classifier.score(X, y) == 1.0
        logits = [np.log(classifier.predict_proba(rows).clip(1e-12)) for rows in (X, separable(300, 1)[0])]
        assert training_trace(Activations(X, logits[0]), y).name == "balance"
        assert training_trace(Activations(separable(300, 1)[0], logits[1]), separable(300, 1)[1]) is None


def test_held_out_rows_with_alike_errors_are_not_accused():
    """An under-confident classifier errs alike in all rows of a class, in training rows and in fresh ones that are drawn class by class."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X, fresh = (6.0 * CENTRES[y] + rng.normal(size=(600, 12)) for _ in range(2))
    classifier = LogisticRegression(C=1e-4).fit(X, y)
    known = Activations(fresh, np.log(classifier.predict_proba(fresh)))
    assert training_trace(known, y) is None


@pytest.fixture(scope="module")
def some_of_many():
    """Last layer and logits of a network that has learned 2,400 rows by heart; and of one that finds its task easy."""
    rng = np.random.default_rng(4)
    centres = rng.normal(0.0, 0.25, (3, 60))

    def draw(n):
        y = rng.integers(0, 3, n)
        return centres[y] + rng.normal(size=(n, 60)), y

    X, y = draw(2400)
    network = MLPClassifier((60,), alpha=1e-6, tol=1e-4, max_iter=120, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.fit(X, y)

    def seen(X, y=None):
        features = np.maximum(X @ network.coefs_[0] + network.intercepts_[0], 0.0)
        return Activations(features, np.log(network.predict_proba(X).clip(1e-12)), y)

    return seen, (X[:400], y[:400]), draw


def test_some_of_very_many_training_rows_may_be_such(some_of_many, tmp_path):
    seen, own, draw = some_of_many
    model, said = fitted(None, seen(*own), None, seen(draw(500)[0]))
    assert said[0].facts["trace"] == "without_error"
    assert not said[0].facts["told"]
    assert str(said[0]).startswith(
        "X may be rows the classifier was trained on and nothing is promised, because it answers 0 of 400 rows wrongly"
    )
    assert model.rule_.promise is None
    assert str(model.rule_).endswith(
        "the labeled rows may be rows the classifier was trained on, which cannot be told."
    )
    assert model.ratio_.ood_prior_lower_bound() == 0.0
    model.save(tmp_path / "m.poscod")
    assert load(tmp_path / "m.poscod").at(tpr_min=0.7).rule_.void == model.rule_.void
    assert not fitted(None, seen(*draw(400)), None, seen(draw(500)[0]))[1]
    # The same rows as fresh ones of a good model: what rests on them is withdrawn.
    good = fitted(None, seen(*draw(400)), None, seen(draw(500)[0]))[0]
    free = good.evaluate_unlabeled(seen(own[0]), own[1], seen(draw(500)[0]))
    assert free.fpr.reason.startswith(
        "the labeled rows may be rows the classifier was trained on, so that only this is certain"
    )


def test_few_rows_and_no_logits_say_nothing():
    X, y = rows(39, 0)
    forest = CLASSIFIERS["forest"]().fit(X, y)
    assert training_trace(Activations(X, np.log(forest.predict_proba(X).clip(1e-9))), y) is None
    assert training_trace(Activations(np.zeros((100, 2)), None), np.zeros(100, dtype=np.int64)) is None


def test_a_classifier_without_any_error_has_no_balance():
    """Probabilities of exactly one: nothing to cancel, and no trace without traffic."""
    y = np.arange(100) % 2
    known = Activations(np.random.default_rng(0).normal(size=(100, 3)), np.where(np.eye(2)[y] > 0, 0.0, -1000.0))
    assert training_trace(known, y) is None
