"""Traffic with another class mix: what the default finds, serves and says, against exact answers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.exceptions import InvalidInputError, PoscodWarning
from poscod.mix import most_likely, served
from poscod.model import ClassMixWarning, InputsDriftedWarning
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

CENTRES, INTRUDER = [[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]], [[4.5, 4.5]]
SHARES = np.array([0.6, 0.3, 0.1])
WORLD, SHIFTED = GaussianWorld(CENTRES, INTRUDER), GaussianWorld(CENTRES, INTRUDER, weight_id=SHARES)
FAST = CorrectedSigmoid("paper", l2=1e-3)


@pytest.fixture(scope="module")
def rows():
    X, y = WORLD.sample_id(1500, random_state=0)
    return X, y, SHIFTED.sample_mixture(1200, pi=0.15, random_state=1)[0]


@pytest.fixture(scope="module")
def model(rows):
    X, y, U = rows
    with pytest.warns(ClassMixWarning, match="another class mix than the labeled rows") as told:
        fitted = POSCOD(LogisticRegression(), tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=U)
    assert told[0].filename == __file__
    return fitted


def test_mix_and_ood_share_are_found_and_served(model, rows):
    np.testing.assert_allclose(model.traffic_class_prior_, SHARES, atol=0.04)
    np.testing.assert_allclose(model.class_prior_, np.bincount(rows[1]) / 1500)
    assert model.ood_prior_ == pytest.approx(0.15, abs=0.04)
    mix = model.calibration_.mix
    assert ((mix.low <= SHARES) & (mix.high >= SHARES)).all()
    fresh, y = SHIFTED.sample_id(20_000, random_state=5)
    decisions = model.decide(fresh)
    assert decisions.accept.mean() == pytest.approx(0.9, abs=0.02)
    best = np.mean(SHIFTED.posterior(fresh).argmax(axis=1) != y)
    assert np.mean(decisions.label != y) < best + 0.005
    assert model.rule_.promise.mix == "traffic"
    assert "in the class mix of the traffic" in str(model.rule_)


def test_the_posterior_is_that_of_labeled_rows_times_w(model, rows):
    fresh = SHIFTED.sample_id(500, random_state=6)[0]
    plain = model.classifier_.predict_log_proba(fresh) / model.scorer_.temperature
    weighed = np.exp(plain - plain.max(axis=1, keepdims=True)) * model.traffic_class_prior_ / model.class_prior_
    np.testing.assert_allclose(model.predict_proba(fresh), weighed / weighed.sum(axis=1, keepdims=True), atol=1e-9)


def test_the_mix_of_the_labeled_rows_is_the_first_edition(model, rows):
    X, y, U = rows
    with pytest.warns(InputsDriftedWarning, match="unlabeled rows cannot tell"):
        plain = clone(model).set_params(class_mix="labeled").fit(X, y, X_unlabeled=U)
    np.testing.assert_array_equal(plain.traffic_class_prior_, plain.class_prior_)
    assert plain.scorer_.bias is None
    assert plain.rule_.promise.mix is None
    assert plain.ood_prior_ > 0.3  # what another mix is taken for
    fresh = SHIFTED.sample_id(20_000, random_state=5)[0]
    assert plain.decide(fresh).accept.mean() < 0.9


def test_known_shares_are_served_as_they_are(model, rows):
    X, y, U = rows
    known = clone(model).set_params(class_mix=SHARES, ratio=FAST).fit(X, y, X_unlabeled=U)
    np.testing.assert_allclose(known.traffic_class_prior_, SHARES, atol=1e-9)
    scored = known.rule_.score(known.calibration_.known("zero_one")) <= known.threshold_
    weight = (SHARES / known.class_prior_)[known.calibration_.codes]
    assert np.average(scored, weights=weight) == pytest.approx(0.9, abs=0.005)
    for wrong, message in (
        ([0.5, 0.5], "one share for each of the 3 classes"),
        ([0.5, 0.6, 0.1], "must be 'auto', 'labeled' or the share of each class"),
        ("traffic", "must be 'auto', 'labeled' or the share of each class"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            clone(known).set_params(class_mix=wrong).fit(X, y, X_unlabeled=U)


def test_weights_that_make_the_mix_of_the_traffic_leave_nothing_to_adapt(rows):
    X, y, U = rows
    weight = (SHARES * 3.0)[y]
    model = POSCOD(LogisticRegression(), tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=U, sample_weight=weight)
    assert not model.calibration_.mix.changed
    np.testing.assert_allclose(model.class_prior_, SHARES, atol=0.03)
    assert model.ood_prior_ == pytest.approx(0.15, abs=0.05)


def test_rates_are_for_the_mix_that_is_served_or_for_rows_as_they_come(model):
    X, y = WORLD.sample_id(6000, random_state=7)  # fresh labeled rows of all classes alike
    ood = WORLD.sample_ood(2000, random_state=8)
    served, plain = model.evaluate(X, y, ood), model.evaluate(X, y, ood, class_mix="labeled")
    fresh, y_fresh = SHIFTED.sample_id(40_000, random_state=9)
    decisions = model.decide(fresh)
    assert served.tpr.low <= decisions.accept.mean() <= served.tpr.high
    error = np.mean((decisions.label != y_fresh)[decisions.accept])
    assert served.selective_risk.low <= error <= served.selective_risk.high
    accepted = model.decide(X).accept
    assert plain.tpr.estimate == accepted.mean()
    by_class = np.array([accepted[y == k].mean() for k in range(3)])
    assert served.tpr.estimate == pytest.approx(model.traffic_class_prior_ @ by_class)
    assert served.fpr == plain.fpr


@pytest.mark.slow
def test_ood_rows_next_to_a_class_are_not_taken_for_more_of_it():
    """OOD two standard deviations beside the first class: a closed world would give that class 56 % of the traffic."""
    world = GaussianWorld(3.0 * np.eye(3), [[3.0, 1.4, 1.4]])
    changed, found = 0, []
    for seed in range(12):
        X, y = world.sample_id(1000, random_state=seed)
        U = world.sample_mixture(1000, pi=0.3, random_state=100 + seed)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PoscodWarning)
            model = POSCOD(LogisticRegression(), random_state=seed).fit(X, y, X_unlabeled=U)
        changed += model.calibration_.mix.changed
        found.append(model.ood_prior_)
    assert changed <= 5
    assert np.mean(found) == pytest.approx(0.3, abs=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("pi", [0.0, 0.2])
def test_the_level_of_the_whole_fit(pi):
    """An unchanged mix is taken for another one in 5 % of fits, with and without OOD rows that can be told from every class."""
    changed = 0
    for seed in range(200):
        X, y = WORLD.sample_id(500, random_state=seed)
        U = WORLD.sample_mixture(500, pi=pi, random_state=1000 + seed)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PoscodWarning)
            model = POSCOD(LogisticRegression(), FAST, random_state=seed).fit(X, y, X_unlabeled=U)
        changed += model.calibration_.mix.changed
    assert changed <= binom.isf(1e-3, 200, 0.05)


@pytest.mark.slow
def test_label_free_intervals_cover_under_shift():
    """Intervals of pi and FPR on fresh traffic of the shifted mix; nominal 95 %, 60 fits."""
    hits = np.zeros(3)
    for seed in range(60):
        X, y = WORLD.sample_id(1500, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PoscodWarning)
            model = POSCOD(LogisticRegression(), tpr_min=0.9, random_state=seed)
            model.fit(X, y, X_unlabeled=SHIFTED.sample_mixture(1200, pi=0.2, random_state=1000 + seed)[0])
            fresh = SHIFTED.sample_mixture(2000, pi=0.2, random_state=2000 + seed)[0]
            found = model.evaluate_unlabeled(*WORLD.sample_id(1500, random_state=3000 + seed), fresh)
        fpr = model.decide(WORLD.sample_ood(20_000, random_state=9)).accept.mean()
        tpr = model.decide(SHIFTED.sample_id(20_000, random_state=9)[0]).accept.mean()
        hits += [
            found.ood_prior.low <= 0.2 <= found.ood_prior.high,
            found.fpr.low <= fpr <= found.fpr.high,
            found.tpr.low <= tpr <= found.tpr.high,
        ]
    assert (hits >= binom.ppf(1e-3, 60, 0.95)).all(), hits


def test_score_counts_sample_weights_within_a_class(model, rows):
    X, y = WORLD.sample_id(2000, random_state=11)
    weight = np.where(y == 2, 5.0, 1.0)
    assert model.score(X, y, weight) == pytest.approx(model.score(X, y), abs=1e-9)


def test_a_class_that_the_sample_does_not_hold_keeps_its_share():
    rng = np.random.default_rng(0)
    eta = np.repeat(np.eye(3)[:2] * 0.98 + 0.01, [500, 500], axis=0)
    labeled = np.array([0.49, 0.49, 0.02])
    found = most_likely(
        eta, np.repeat([0, 1], 500), np.ones(1000), eta[rng.permutation(1000)[:600]] * [1.4, 0.6, 1.0], np.ones(600)
    )
    mix = served(found, labeled, test_level=0.999, level=0.95, rows=600.0)
    assert mix.traffic[2] == pytest.approx(0.02)
    assert (mix.low[2], mix.high[2]) == (0.0, 1.0)
