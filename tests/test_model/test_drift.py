"""Drift and strangers are told apart as far as unlabeled rows can tell, and whatever rests on stillness is withdrawn."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.model import InputsDriftedWarning, drift_document, read_sample
from poscod.model._drift import InputsDriftedError
from poscod.monitor import Monitor, Reference
from poscod.problem import Budget
from poscod.ratio import FINDINGS, CorrectedSigmoid, diagnose, finding_words, strangeness
from poscod.ratio._moved import read
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


@pytest.fixture(scope="module")
def undecided():
    """Three columns, one of which moved: strangers near the labeled rows would look the same."""
    X, y = known(800, 0)
    with pytest.warns(InputsDriftedWarning, match="in a way that unlabeled rows cannot tell") as caught:
        model = POSCOD(LogisticRegression(), alpha=0.3, tpr_min=0.9, random_state=0).fit(
            X[:, [2, 5, 7]], y, X_unlabeled=later(800, 1, 0.4)[:, [2, 5, 7]]
        )
    return model, caught[0].message


def test_what_cannot_be_told_is_said_and_nothing_is_certified(undecided):
    model, message = undecided
    drift = model.calibration_.drift
    assert message.facts["said"] == drift.said == model.rule_.promise.moved == "undecided"
    assert model.ood_prior_ > 0.1
    assert model.ratio_.ood_prior_lower_bound() == model.ratio_.ood_prior_interval()[0] == 0.0
    assert "may no longer be" in model.rule_.promise.condition
    assert str(model.rule_).endswith("cannot be told from OOD inputs: it may not hold for them.")
    n, least = drift.look
    assert f"Look at {n} rejected rows to settle it: {least} or more" in drift.sentence()
    assert drift_document(model)["said"] == "undecided"
    assert drift.columns[0] == "column 1"


def test_a_rule_without_a_promise_carries_it_into_the_monitor(undecided, drifted):
    for model in (undecided[0], drifted[0]):
        budget = model.with_rule(Budget(share=0.2))
        assert budget.rule_.promise is None
        reference = Reference.from_dict(Reference.from_model(budget, created="2026-01-31").to_dict())
        found = [f for f in Monitor(reference).summary()["findings"] if f["code"] == "PSC013"]
        assert drift_document(model)["sentence"] in found[0]["sentence"]


@pytest.fixture(scope="module")
def quiet():
    X, y = known(1500, 0)
    return fit(X, y, np.vstack([known(1350, 1)[0], strange(150, 2)]), alpha=0.3)


def fresh_findings(model, X, y, traffic):
    return read_sample(model, X, y, None, traffic).diagnosis


def test_fresh_traffic_is_looked_at_and_columns_are_named(quiet):
    X, y = known(1500, 10)
    found = fresh_findings(quiet, X, y, np.vstack([later(1350, 11, 0.3), strange(150, 12)]))
    assert {"inputs_drifted", "strangers"} <= set(found["findings"])
    assert found["moved"][0]["column"] == "column 5"
    assert any(
        text.startswith(FINDINGS["inputs_drifted"]) and "Most of all column 5 (" in text
        for text in finding_words(found)
    )


def test_fresh_traffic_that_stood_still_is_not_accused(quiet):
    X, y = known(1500, 10)
    found = fresh_findings(quiet, X, y, np.vstack([known(1200, 11)[0], strange(300, 12)]))
    assert not {"inputs_drifted", "drift_undecided", "class_mix_differs", "near_copies"} & set(found["findings"])
    assert found["moved"] == []
    assert "strangers" in found["findings"]


def test_on_fresh_traffic_that_moved_only_the_bound_without_a_share_is_left(quiet):
    X, y = known(1500, 10)
    strangers_ = strange(150, 12)
    still = quiet.evaluate_unlabeled(X, y, np.vstack([known(1350, 13)[0], strangers_]))
    assert still.fpr.informative
    assert still.ood_prior.low > 0.0
    traffic = np.vstack([later(1350, 11, 0.3), strangers_])
    for given in ({}, {"pi": 0.1}):
        found = quiet.evaluate_unlabeled(X, y, traffic, **given)
        assert not found.fpr.informative
        assert (found.fpr.low, found.fpr.high) == (0.0, found.fpr.upper_any_prior)
        assert quiet.decide(strangers_).accept.mean() <= found.fpr.high < 1.0
        assert np.isnan([found.fpr.estimate, found.risk.estimate]).all()
        assert found.fpr.reason.startswith(
            "known inputs of this traffic seem to have moved, so that only this is certain: at most "
        )
    assert quiet.evaluate_unlabeled(X, y, traffic).ood_prior.low == 0.0
    assert found.ood_prior == (0.1, 0.1, 0.1, 0.95)


def test_another_class_mix_and_copies_are_not_called_drift(quiet):
    X, y = known(1500, 10)
    more, labels = known(6000, 11)
    few = np.vstack([more[labels == 0][:1000], more[labels == 1][:250], more[labels == 2][:250]])
    found = fresh_findings(quiet, X, y, few)
    assert "class_mix_differs" in found["findings"]
    assert not {"inputs_drifted", "drift_undecided"} & set(found["findings"])
    copies = np.repeat(X[:150], 10, axis=0) + np.random.default_rng(3).normal(0.0, 0.01, (1500, 10))
    found = fresh_findings(quiet, copies, np.repeat(y[:150], 10), known(1500, 12)[0])
    assert "near_copies" in found["findings"]
    assert "strangers" not in found["findings"]


def test_diagnose_of_a_ratio_finds_what_fit_says():
    X, moved = known(1500, 0)[0], later(1500, 1, 0.4)
    ratio = CorrectedSigmoid().fit(X, moved)
    assert "inputs_drifted" in diagnose(ratio, known(1500, 2)[0], later(1500, 3, 0.4))["findings"]
    ratio = CorrectedSigmoid().fit(X, np.vstack([known(1200, 1)[0], strange(300, 2)]))
    assert (
        "inputs_drifted"
        not in diagnose(ratio, known(1500, 3)[0], np.vstack([known(1200, 4)[0], strange(300, 5)]))["findings"]
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_tilt_and_a_strange_part_are_read_by_their_likelihood(seed):
    """Scores of known laws, of unequal numbers: the whole shifted, a part far out, nothing at all."""
    rng = np.random.default_rng(seed)
    a, weights = rng.normal(size=1500), (np.ones(1500), np.ones(1000))
    assert read(np.r_[a, rng.normal(0.5, 1.0, 1000)], 1500, weights).favor > 20.0
    assert read(np.r_[a, rng.normal(size=700), rng.normal(3.0, 1.0, 300)], 1500, weights).favor < -20.0
    same = read(np.r_[a, rng.normal(size=1000)], 1500, weights)
    assert same.gain < 8.0
    # The units of a score do not matter, nor does a weight that is the same for all.
    scaled = read(7.0 * np.r_[a, rng.normal(0.5, 1.0, 1000)] + 3.0, 1500, (np.full(1500, 0.2), np.full(1000, 5.0)))
    assert scaled.favor > 20.0
