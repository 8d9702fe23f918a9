from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from poscod.exceptions import InvalidInputError
from poscod.risk import TemperatureScaling, TemperatureWarning, bayes_decision_from_logits, reliability


def draw_calibrated(rng, n, k=4, temperature=1.0):
    """Logits z with labels drawn from softmax(z / temperature)."""
    logits = rng.normal(0, 3, (n, k))
    cumulative = softmax(logits / temperature, axis=1).cumsum(axis=1)
    return logits, (rng.random((n, 1)) > cumulative).sum(axis=1).clip(0, k - 1)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_temperature_is_recovered(temperature):
    logits, y = draw_calibrated(np.random.default_rng(0), 20_000, temperature=temperature)
    assert TemperatureScaling().fit(logits, y).temperature_ == pytest.approx(temperature, rel=0.04)


def test_temperature_maximises_the_likelihood(rng):
    logits, y = draw_calibrated(rng, 300, temperature=1.7)
    weight = rng.random(300)
    negative = lambda t: -np.average(log_softmax(logits / t, axis=1)[np.arange(300), y], weights=weight)  # noqa: E731
    best = minimize_scalar(negative, bounds=(0.1, 10), method="bounded", options={"xatol": 1e-10}).x
    fitted = TemperatureScaling().fit(logits, y, sample_weight=weight).temperature_
    assert fitted == pytest.approx(best, rel=1e-5)


def test_weights_are_repetitions(rng):
    logits, y = draw_calibrated(rng, 60)
    weight = rng.integers(0, 3, 60)
    a = TemperatureScaling().fit(logits, y, sample_weight=weight).temperature_
    b = TemperatureScaling().fit(np.repeat(logits, weight, axis=0), np.repeat(y, weight)).temperature_
    assert a == pytest.approx(b, rel=1e-9)


def test_extremes_stay_inside_the_range():
    right, wrong = [[5.0, 0.0], [0.0, 5.0]], [[0.0, 5.0], [5.0, 0.0]]
    with pytest.warns(TemperatureWarning, match="hold no error"):
        assert TemperatureScaling().fit(right, [0, 1]).temperature_ == 1.0
    with pytest.warns(TemperatureWarning, match="no information"):
        assert TemperatureScaling().fit(wrong, [0, 1]).temperature_ == 1e3
    with pytest.warns(TemperatureWarning, match="no information"):
        assert TemperatureScaling().fit([[1.0, 1.0]], [0]).temperature_ == 1e3


def test_scaled_probabilities():
    scaling = TemperatureScaling().fit([[4.0, 0.0]] * 3 + [[0.0, 4.0]], [0, 0, 1, 1])
    np.testing.assert_allclose(scaling.predict_proba([[4.0, 0.0]]), [[0.75, 0.25]], rtol=1e-6)
    with pytest.raises(InvalidInputError, match="logits must have 2 columns, got 3"):
        scaling.predict_proba([[4.0, 0.0, 1.0]])
    with pytest.raises(NotFittedError):
        clone(scaling).predict_proba([[4.0, 0.0]])


@pytest.mark.parametrize(
    ("logits", "y", "message"),
    [
        (np.zeros((0, 2)), [], "at least one row"),
        ([[0.0, 1.0]], [2], "class indices"),
        ([[0.0, np.nan]], [0], "finite"),
        ([[0.0, 1.0]], [0, 1], "as many rows"),
    ],
)
def test_bad_input_is_refused(logits, y, message):
    with pytest.raises(InvalidInputError, match=message):
        TemperatureScaling().fit(logits, y)


def test_calibrated_risk_passes_and_overconfident_risk_fails():
    logits, y = draw_calibrated(np.random.default_rng(2), 8000, temperature=2.0)
    results = {}
    for name, temperature in (("right", 2.0), ("overconfident", 1.0)):
        decision = bayes_decision_from_logits(logits, temperature=temperature)
        results[name] = reliability(decision.risk, decision.label != y, level=0.99)
    inside = (results["right"].low <= results["right"].predicted) & (
        results["right"].predicted <= results["right"].high
    )
    assert inside.mean() > 0.9
    assert results["right"].error < 0.02 < 0.05 < results["overconfident"].error
    assert results["right"].p_value > 0.01
    assert results["overconfident"].p_value < 1e-6


def test_p_values_of_a_calibrated_risk_are_uniform():
    """Counted over 400 samples: p < 0.1 in a tenth of them, 3-sigma band 22 ... 58."""
    rng = np.random.default_rng(4)
    small = 0
    for _ in range(400):
        risk = rng.beta(0.5, 3, 300)
        small += reliability(risk, rng.random(300) < risk).p_value < 0.1
    assert 22 <= small <= 58


def test_bins_hold_equal_numbers_and_keep_ties_together():
    result = reliability(np.repeat([0.1, 0.2, 0.3], [50, 30, 20]), np.zeros(100), n_bins=10)
    assert result.n.tolist() == [50, 30, 20]
    assert result.predicted == pytest.approx([0.1, 0.2, 0.3])
    assert reliability(np.arange(100) / 200, np.zeros(100), n_bins=4).n.tolist() == [25] * 4


def test_p_values_of_other_losses_are_uniform_too():
    """Losses 0, 1 and 4 with mean r: p < 0.1 in a tenth of 400 samples, 3-sigma band 22 ... 58."""
    rng = np.random.default_rng(5)
    small = 0
    for _ in range(400):
        risk = rng.uniform(0.2, 1.5, 300)
        loss = np.where(rng.random(300) < 0.5, rng.random(300) < 0.4 * risk, 4.0 * (rng.random(300) < 0.4 * risk))
        small += reliability(risk, loss).p_value < 0.1
    assert 22 <= small <= 58


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_bins_cover_at_their_level(level, scale):
    """Counted over 60 samples of 10 bins with calibrated r, 0/1 loss and a three times as dear one (4-sigma bands)."""
    rng = np.random.default_rng(6)
    hits, widths = [], []
    for _ in range(60):
        probability = rng.uniform(0.2, 0.6, 2000)
        result = reliability(scale * probability, scale * (rng.random(2000) < probability), n_bins=10, level=level)
        hits.append((result.low <= result.predicted) & (result.predicted <= result.high))
        widths.append(result.high - result.low)
    share = np.mean(hits)
    band = 4 * np.sqrt(level * (1 - level) / 600)
    assert level - band < share < min(1.0, level + band + (0.06 if scale == 1.0 else 0.0))  # exact intervals are wider
    assert np.mean(widths) < scale * (0.15 if level == 0.95 else 0.06)


def test_a_risk_above_one_is_no_probability():
    result = reliability([1.5, 1.5, 1.4], [1, 1, 1], n_bins=1)
    assert 0 < result.p_value < 0.1
    assert (result.low[0], result.high[0]) == (1.0, 1.0)  # Student's t of three equal losses, not a binomial interval


def test_other_losses_use_students_interval(rng):
    loss = rng.gamma(2.0, 1.0, 4000)
    result = reliability(np.full(4000, 2.0) + rng.random(4000) * 1e-6, loss, n_bins=5)
    assert ((result.low < 2.0) & (result.high > 2.0)).all()
    assert result.p_value > 0.01
    one = reliability([0.3], [2.0])
    assert (one.low[0], one.high[0]) == (0.0, np.inf)


def test_certain_predictions():
    assert reliability([0.0, 0.0], [0, 0]).p_value == 1.0
    assert reliability([0.0, 0.0], [0, 1]).p_value == 0.0
    with pytest.raises(InvalidInputError, match="at least one row"):
        reliability([], [])
