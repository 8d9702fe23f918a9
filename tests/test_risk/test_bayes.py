from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from poscod import ScodProblem
from poscod.exceptions import InvalidInputError
from poscod.risk import bayes_decision, bayes_decision_from_logits, expected_loss


@st.composite
def posteriors(draw):
    k, n = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    posterior = rng.dirichlet(np.full(k, 0.4), size=n)
    loss = rng.uniform(0.1, 5.0, (k, k)) * (1 - np.eye(k))
    return posterior, loss


def slow_risk(posterior, label, loss):
    return np.array([sum(p[y] * loss[y][a] for y in range(len(p))) for p, a in zip(posterior, label, strict=True)])


@given(case=posteriors(), kind=st.sampled_from(["zero_one", "absolute", "matrix"]))
def test_no_answer_is_better(case, kind):
    posterior, matrix = case
    k = posterior.shape[1]
    loss = matrix if kind == "matrix" else kind
    full = ScodProblem(loss=loss).loss_matrix(k)
    decision = bayes_decision(posterior, loss)
    np.testing.assert_allclose(decision.risk, slow_risk(posterior, decision.label, full), atol=1e-12)
    for answer in range(k):
        labels = np.full(len(posterior), answer)
        risk = expected_loss(posterior, labels, loss)
        np.testing.assert_allclose(risk, slow_risk(posterior, labels, full), atol=1e-12)
        assert (decision.risk <= risk + 1e-12).all()


@given(case=posteriors(), temperature=st.sampled_from([0.3, 1.0, 4.0]))
def test_logits_and_posteriors_agree(case, temperature):
    posterior, loss = case
    logits = np.log(posterior + 1e-9)
    for kind in ("zero_one", "absolute", loss):
        a = bayes_decision_from_logits(logits, kind, temperature=temperature)
        b = bayes_decision(softmax(logits / temperature, axis=1), kind)
        np.testing.assert_array_equal(a.label, b.label)
        np.testing.assert_allclose(a.risk, b.risk, atol=1e-12)


def test_confident_inputs_keep_their_order():
    """1 - max softmax rounds to zero above a gap of about 37; the conditional risk must not."""
    logits = np.array([[gap, 0.0, 0.0] for gap in (30.0, 60.0, 300.0, 600.0)])
    risk = bayes_decision_from_logits(logits).risk
    np.testing.assert_allclose(risk, 2 * np.exp(-logits[:, 0]), rtol=1e-12)
    assert (np.diff(risk) < 0).all()


def test_float32_posteriors_are_normalised(rng):
    posterior = rng.dirichlet(np.ones(1000), size=5).astype(np.float32)
    assert bayes_decision(posterior).risk == pytest.approx(1 - posterior.max(axis=1), abs=1e-5)


def test_asymmetric_loss_changes_the_answer():
    loss = [[0, 1], [10, 0]]  # missing class 1 is ten times as dear
    assert bayes_decision([[0.8, 0.2]], loss).label.tolist() == [1]
    assert bayes_decision([[0.95, 0.05]], loss).label.tolist() == [0]


def test_no_rows():
    decision = bayes_decision(np.zeros((0, 3)))
    assert decision.label.shape == decision.risk.shape == (0,)


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        ([[0.5, 0.6]], "rows must sum to one, got 1.1 at row 0"),
        ([[1.5, -0.5]], "non-negative"),
        ([[np.nan, 1.0]], "finite"),
        ([0.5, 0.5], "two-dimensional"),
        (np.zeros((2, 0)), "one column per class"),
    ],
)
def test_bad_posteriors_are_refused(posterior, message):
    with pytest.raises(InvalidInputError, match=message):
        bayes_decision(posterior)


def test_labels_and_losses_must_fit():
    with pytest.raises(InvalidInputError, match="label must hold class indices"):
        expected_loss([[0.5, 0.5]], [2])
    with pytest.raises(InvalidInputError, match="2 x 2"):
        bayes_decision([[0.5, 0.5]], np.ones((3, 3)) - np.eye(3))
    with pytest.raises(InvalidInputError, match="temperature must be"):
        bayes_decision_from_logits([[0.0, 1.0]], temperature=0.0)
