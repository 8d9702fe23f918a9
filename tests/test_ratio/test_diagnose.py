from __future__ import annotations

import copy

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from poscod import Activations
from poscod.exceptions import InvalidInputError
from poscod.ratio import (
    PRIORS,
    WOODS,
    CorrectedSigmoid,
    EMRatio,
    NoOODEvidenceWarning,
    SeenByClassifierWarning,
    StandardSigmoid,
    diagnose,
    format_diagnosis,
)


def draw(rng, n, pi, d=3):
    k = round(pi * n)
    return np.vstack([rng.normal(size=(n - k, d)), 2.0 + rng.normal(size=(k, d))])


@pytest.fixture(scope="module")
def original():
    rng = np.random.default_rng(8)
    return CorrectedSigmoid().fit(draw(rng, 2000, 0.0), draw(rng, 2000, 0.3))


@pytest.fixture
def fitted(original):
    return copy.copy(original)  # some tests break it on purpose


def test_a_good_ratio_finds_strangers_and_nothing_else(rng, fitted):
    found = diagnose(fitted, draw(rng, 2000, 0.0), draw(rng, 2500, 0.3))
    assert found["findings"] == ["strangers"]
    assert "strangers" not in diagnose(fitted, draw(rng, 2000, 0.0), draw(rng, 2500, 0.0))["findings"]
    assert found["log_loss"] < found["log_loss_constant"]
    assert found["mean_inverse_rho"][0] == pytest.approx(1.0, abs=0.05)
    # Heavy-tailed: a finite sample of E_ID[g] misses its largest terms, so only the order of magnitude is a check.
    assert 0.1 < found["mean_ratio_id"][0] < 2.0
    assert found["expected_ood"] == pytest.approx(750, rel=0.15)
    assert found["effective_ood"] <= 2500
    assert sum(b["n_id"] + b["n_unlabeled"] for b in found["reliability"]) == 4500
    assert 0.0 <= found["flips"] <= 0.2


def test_a_closed_gate_says_nothing_and_its_equal_rows_share_one_bin(rng):
    with pytest.warns(NoOODEvidenceWarning, match="share of 0.05; a share of 0.02 needs at least 1627"):
        closed = CorrectedSigmoid().fit(draw(np.random.default_rng(3), 300, 0.0), draw(rng, 400, 0.0))
    found = diagnose(closed, draw(rng, 500, 0.0), draw(rng, 700, 0.0))
    assert found["findings"] == ["no_better_than_constant", "few_ood_rows"]
    (only,) = found["reliability"]  # sorted by row they would be bins of ID rows and bins of unlabeled ones
    assert (only["n_id"], only["n_unlabeled"]) == (500, 700)
    assert only["low"] <= only["predicted"] <= only["high"]


def test_a_wrong_scale_is_found(rng, fitted):
    fitted.model_ = (lambda model: lambda rows: 0.4 * model(rows) + 2.0)(fitted.model_)
    found = diagnose(fitted, draw(rng, 2000, 0.0), draw(rng, 2500, 0.3))
    assert "inverse_rho_not_one" in found["findings"]
    assert "unreliable_bins" in found["findings"]


def test_a_useless_ratio_is_found(rng, fitted):
    fitted.model_ = (lambda model: lambda rows: -model(rows))(fitted.model_)
    assert "no_better_than_constant" in diagnose(fitted, draw(rng, 2000, 0.0), draw(rng, 2500, 0.3))["findings"]


def test_few_ood_rows_are_found(rng, fitted):
    assert "few_ood_rows" in diagnose(fitted, draw(rng, 60, 0.0), draw(rng, 60, 0.3))["findings"]


def test_table_for_people(rng, fitted):
    text = format_diagnosis(diagnose(fitted, draw(rng, 500, 0.0), draw(rng, 500, 0.3), n_bins=4))
    assert "OOD prior" in text
    assert "E_U[1 / rho]" in text
    assert len(text.splitlines()) == 8 + 2 + 4


def network(rng, n, mix, noise=1.0):
    label = rng.choice(4, size=n, p=mix)
    features = (3.0 * np.eye(4)[label] + noise * rng.normal(size=(n, 4))).astype(np.float32)
    return Activations(features, 3.0 * features, label)


EVEN = [0.25] * 4


def with_ood(rng, rows):
    k = len(rows) // 5
    far = (-4.0 + rng.normal(size=(k, 4))).astype(np.float32)
    return Activations(np.vstack([rows.features, far]), np.vstack([rows.logits, 3.0 * far]))


def test_weights_of_the_id_rows_are_what_they_stand_for(rng):
    """OOD rows beside class 0, of which the traffic has twice as much: g is right for ID rows that are weighted to that mix alone."""
    mix = np.array([0.55, 0.15, 0.15, 0.15])

    def traffic():
        rows = network(rng, 1200, mix)
        near = (3.0 * np.eye(4)[[0]] + [0.0, -3.0, 0.0, 0.0] + rng.normal(size=(400, 4))).astype(np.float32)
        return Activations(np.vstack([rows.features, near]), np.vstack([rows.logits, 3.0 * near]))

    known, fresh = network(rng, 1500, EVEN), network(rng, 1500, EVEN)
    weights = [mix[rows.labels] / 0.25 for rows in (known, fresh)]
    est = CorrectedSigmoid("paper", l2=1e-3).fit(known, traffic(), sample_weight_id=weights[0])
    log = traffic()
    as_they_come, weighted = diagnose(est, fresh, log), diagnose(est, fresh, log, sample_weight_id=weights[1])
    g = np.exp(est.log_ratio(fresh))
    assert weighted["mean_ratio_id"][0] == pytest.approx(np.average(g, weights=weights[1]))
    assert abs(weighted["mean_ratio_id"][0] - 1.0) < abs(as_they_come["mean_ratio_id"][0] - 1.0)

    def worst(found):
        return max(abs(b["observed"] - b["predicted"]) for b in found["reliability"])

    assert worst(weighted) < worst(as_they_come)
    assert "unreliable_bins" not in weighted["findings"]


def test_equal_weights_change_nothing(rng):
    est = CorrectedSigmoid("paper", l2=1e-3).fit(draw(rng, 300, 0.0), draw(rng, 300, 0.5))
    rows = draw(rng, 200, 0.0), draw(rng, 200, 0.5)
    plain, weighted = diagnose(est, *rows), diagnose(est, *rows, sample_weight_id=np.full(200, 3.0))
    for key in ("log_loss", "mean_ratio_id", "mean_inverse_rho", "findings"):
        assert weighted[key] == pytest.approx(plain[key])
    for a, b in zip(weighted["reliability"], plain["reliability"], strict=True):
        assert a == pytest.approx(b)


def test_rows_seen_by_the_classifier_are_found(rng):
    """A forest is sure of hard rows that it has learned by heart, and of no hard row of the traffic; of rows held out it is not."""

    def rows(n):
        y = rng.integers(0, 3, n)
        return np.eye(3)[y] @ np.full((3, 5), [1.2, -0.5, 0.0, 0.8, 0.3]) * y[:, None] + rng.normal(size=(n, 5)), y

    train, held, log = rows(400), rows(400), rows(500)[0]
    log[:100] += 6.0
    forest = RandomForestClassifier(60, random_state=0).fit(*train)

    def seen(X, y=None):
        return Activations(X, np.log(forest.predict_proba(X).clip(1e-6)), y)

    est = CorrectedSigmoid("paper", l2=1e-3).fit(seen(*held), seen(log))
    with pytest.warns(
        SeenByClassifierWarning, match="X_id looks like rows the classifier was trained on, because it is .* sure"
    ) as caught:
        found = diagnose(est, seen(*train), seen(log))
    assert "seen_by_classifier" in found["findings"]
    assert caught[0].message.facts["trace"] == "hard_rows"
    assert caught[0].message.facts["like"] < 0.25 * caught[0].message.facts["count"]
    assert "seen_by_classifier" not in diagnose(est, seen(*held), seen(log))["findings"]


@pytest.mark.parametrize("strength", [0.01, 0.3, 3.0])
def test_confidence_alone_is_no_trace(rng, strength):
    """Held-out rows of under- and over-confident classifiers."""

    def rows(n):
        made = network(rng, n, EVEN, noise=1.2)
        return Activations(made.features, strength * np.asarray(made.logits), made.labels)

    est = CorrectedSigmoid("paper", l2=1e-3).fit(rows(600), with_ood(rng, rows(600)))
    assert "seen_by_classifier" not in diagnose(est, rows(600), with_ood(rng, rows(600)))["findings"]


def test_honest_network_rows_raise_nothing(rng):
    est = CorrectedSigmoid().fit(network(rng, 1500, EVEN), with_ood(rng, network(rng, 1500, EVEN)))
    found = diagnose(est, network(rng, 1500, EVEN), with_ood(rng, network(rng, 1500, EVEN)))
    assert "seen_by_classifier" not in found["findings"]


def test_ratios_without_a_prior_are_refused(rng):
    est = WOODS().fit(draw(rng, 100, 0.0), draw(rng, 100, 0.5))
    with pytest.raises(InvalidInputError, match="must estimate an OOD prior, got WOODS"):
        diagnose(est, draw(rng, 50, 0.0), draw(rng, 50, 0.5))


def test_clean_ratio_and_closed_gate_can_be_diagnosed(rng):
    clean = StandardSigmoid().fit(draw(rng, 300, 0.0), draw(rng, 300, 1.0))
    assert diagnose(clean, draw(rng, 300, 0.0), draw(rng, 300, 1.0))["flips"] == 0.0
    closed = CorrectedSigmoid().fit(draw(rng, 300, 0.0), draw(rng, 300, 0.9))
    closed.ood_prior_ = 0.0
    assert diagnose(closed, draw(rng, 300, 0.0), draw(rng, 300, 0.0))["expected_ood"] == 0.0


def test_a_prior_below_its_bound_is_raised_and_said():
    """Drift: every row is a little unlike ID rows, and the estimators of a share of OOD rows contradict each other."""
    rng = np.random.default_rng(2)
    known, drifted = (lambda: rng.normal(size=(2400, 10))), (lambda: 1.5 * rng.normal(size=(2400, 10)))
    est = CorrectedSigmoid().fit(known(), drifted())
    assert est.ood_prior_estimate_ < est.ood_prior_lower_bound() == est.ood_prior_
    assert "prior_below_bound" in diagnose(est, known(), drifted())["findings"]


def test_healthy_fits_are_not_said_to_be_below_their_bound():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        est = CorrectedSigmoid().fit(draw(rng, 400, 0.0), draw(rng, 400, 0.3))
        assert est.ood_prior_estimate_ == est.ood_prior_ >= est.ood_prior_lower_bound()
        assert "prior_below_bound" not in diagnose(est, draw(rng, 400, 0.0), draw(rng, 400, 0.3))["findings"]


@pytest.mark.parametrize("make", [CorrectedSigmoid, lambda **more: EMRatio(LogisticRegression(), **more)])
def test_an_estimate_below_the_bound_moves_the_prior_and_not_what_was_learned(make, rng, monkeypatch):
    """An estimator that says 0.05 where 0.5 is true; a prior that is given stays as it is."""
    monkeypatch.setitem(PRIORS, "mean", lambda curve: 0.05)
    x_id, x_u, new = draw(rng, 500, 0.0), draw(rng, 500, 0.5), draw(rng, 50, 0.5)
    est, given = make().fit(x_id, x_u), make(ood_prior=0.05).fit(x_id, x_u)
    assert given.ood_prior_ == est.ood_prior_estimate_ == 0.05
    assert est.ood_prior_ == est.ood_prior_lower_bound() > 0.3
    both = [ratio.log_ratio(new) + np.log(ratio.ood_prior_) for ratio in (est, given)]
    np.testing.assert_allclose(*both, atol=0.3)
    assert all("prior_below_bound" in diagnose(ratio, x_id, x_u)["findings"] for ratio in (est, given))
