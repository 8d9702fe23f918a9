"""Drift and strangers are told apart as far as unlabeled rows can tell, and whatever rests on stillness is withdrawn."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.model import InputsDriftedWarning
from poscod.model._drift import InputsDriftedError
from poscod.ratio import CorrectedSigmoid, strangeness
from poscod.selector import Drift

CENTRES = np.random.default_rng(1).normal(0.0, 1.2, (3, 10))
NAMES = [f"x{j}" for j in range(10)]


def known(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return CENTRES[y] + rng.normal(size=(n, 10)), y


def later(n, seed, shift=0.2):
    X = known(n, seed)[0]
    X[:, [2, 5, 7]] += shift
    X[:, 5] += shift
    return X


def strange(n, seed):
    return np.random.default_rng(seed).normal(0.0, 0.7, (n, 10)) + 4.0 * np.array([1, -1] * 5)


@pytest.fixture(scope="module")
def drifted():
    X, y = known(1500, 0)
    frame, traffic = (pd.DataFrame(rows, columns=NAMES) for rows in (X, later(1500, 1)))
    with pytest.warns(
        InputsDriftedWarning, match=r"have moved, as drift does \(most of all x5 \(\+0.\d+ sd\)"
    ) as caught:
        model = POSCOD(LogisticRegression(), random_state=0).fit(frame, y, X_unlabeled=traffic)
    return model, str(caught[0].message)


def fit(X, y, traffic, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputsDriftedWarning)
        warnings.filterwarnings("ignore", message=".*cannot be told.*")
        return POSCOD(LogisticRegression(), random_state=0, **more).fit(X, y, X_unlabeled=traffic)


def test_moved_columns_are_named_and_nothing_is_certified(drifted):
    model, message = drifted
    drift = model.calibration_.drift
    assert drift.columns[0] == "x5"
    assert set(drift.columns) <= {"x2", "x5", "x7"}
    assert not drift.strangers
    assert model.ratio_.ood_prior_lower_bound() == 0.0
    assert model.ratio_.ood_prior_interval()[0] == 0.0
    assert model.ood_prior_ > 0.2
    assert model.rule_.promise.moved == "drift"
    assert "no longer are" in model.rule_.promise.condition
    assert str(model.rule_).endswith("seem to have moved: it is not promised for them.")
    assert "on_drift='id_only'" in message
    assert "certified" in message
    # Most of the rejected traffic would be answered by the risk alone, and be right.
    assert 0.5 < drift.rejections <= 1.0


def test_another_rule_and_a_file_keep_it(drifted, tmp_path):
    model, _ = drifted
    assert model.at(alpha=0.2).rule_.promise.moved == "drift"
    model.save(tmp_path / "m.poscod")
    loaded = POSCOD.load(tmp_path / "m.poscod")
    assert loaded.calibration_.drift == model.calibration_.drift
    assert loaded.ratio_.ood_prior_lower_bound() == 0.0


@pytest.mark.parametrize("pi", [0.0, 0.05, 0.3])
def test_strangers_are_strangers(pi):
    X, y = known(1500, 0)
    n = int(1500 * pi)
    model = fit(X, y, np.vstack([known(1500 - n, 1)[0], strange(n, 2)]))
    assert model.calibration_.drift is None
    assert abs(model.ood_prior_ - pi) < 0.03
    assert model.rule_.promise.moved is None


def test_both_are_named_where_both_are_there():
    X, y = known(1500, 0)
    with pytest.warns(InputsDriftedWarning, match="strangers beside them"):
        POSCOD(LogisticRegression(), random_state=0).fit(
            X, y, X_unlabeled=np.vstack([later(1350, 1, 0.4), strange(150, 2)])
        )


def test_id_only_learns_nothing_from_moved_traffic(drifted):
    X, y = known(1500, 0)
    traffic = later(1500, 1)
    with pytest.warns(InputsDriftedWarning, match="Nothing was learned from this traffic"):
        model = POSCOD(LogisticRegression(), random_state=0, on_drift="id_only").fit(X, y, X_unlabeled=traffic)
    assert not model.ratio_.gate_open_
    assert model.ood_prior_ == 0.0
    assert (
        model.calibration_.drift == drifted[0].calibration_.drift or model.calibration_.drift.columns[0] == "column 5"
    )
    fresh = later(4000, 5)
    assert (
        model.decide(fresh).accept.mean() > drifted[0].decide(pd.DataFrame(fresh, columns=NAMES)).accept.mean() + 0.05
    )


def test_raise_refuses_and_other_words_are_refused():
    X, y = known(900, 0)
    with pytest.raises(InputsDriftedError, match="have moved"):
        POSCOD(LogisticRegression(), random_state=0, on_drift="raise").fit(X, y, X_unlabeled=later(900, 1, 0.5))
    with pytest.raises(InvalidInputError, match="on_drift must be one of 'id_only', 'raise', 'warn', got 'stop'"):
        POSCOD(on_drift="stop").fit(X, y, X_unlabeled=X[:50] + 1.0)


def test_held_out_rows_are_looked_at_too():
    X, y = known(2400, 0)
    with pytest.warns(InputsDriftedWarning):
        POSCOD(LogisticRegression(), random_state=0, calibration=0.5).fit(X, y, X_unlabeled=later(1500, 1, 0.5))


def test_a_ratio_without_a_certificate_is_not_asked():
    X, y = known(900, 0)

    class Duck(CorrectedSigmoid.__mro__[2]):  # a scikit-learn estimator with fit and log_ratio
        def fit(self, X_id, X_unlabeled):
            self.ood_prior_ = 0.3
            return self

        def log_ratio(self, X):
            return np.zeros(len(X))

    assert (
        POSCOD(LogisticRegression(), Duck(), random_state=0).fit(X, y, X_unlabeled=later(600, 1)).calibration_.drift
        is None
    )


def test_strangeness_is_an_auroc():
    rng = np.random.default_rng(0)
    a, b = np.round(rng.normal(size=300), 1), np.round(rng.normal(0.8, 1.0, 200), 1)
    weight, ood = rng.random(300), rng.random(200)
    above = (b[:, None] > a) + 0.5 * (b[:, None] == a)
    expected = ood @ above @ weight / ood.sum() / weight.sum()
    assert strangeness((a, b), weight, ood) == pytest.approx(expected)


@pytest.mark.parametrize("strange_share", [0.35, 0.5, 0.9])
def test_rows_to_look_at_settle_it_nineteen_times_in_twenty(strange_share):
    n, least = Drift("drift", (), (), (), 0.5, strange_share, False, False).look
    rng = np.random.default_rng(0)
    assert (rng.binomial(n, 0.1, 4000) >= least).mean() <= 0.06
    assert (rng.binomial(n, strange_share, 4000) < least).mean() <= 0.06


def test_drift_as_a_document():
    drift = Drift("drift", ("a", "b"), (0.41, 0.01), (1.0, 1.5), 0.8, 0.7, True, False)
    document = drift.to_dict()
    assert document["sentence"] == drift.sentence()
    assert "a (+0.41 sd), b (spread x 1.5)" in document["sentence"]
    assert document["sentence"].startswith("Most of the traffic is not like the labeled rows")
    assert (document["look"], document["strangers_of_them"]) == drift.look
