"""Answers that come from elsewhere: calibrated errors, the label stays, and a posterior that is honest about confusions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid
from poscod.risk import OTHER, AnswersWarning, GivenAnswers

NAMES = np.array(["bill", "card", "loan", "rate"])
TAKEN_FOR = np.array([1, 0, 1, 0])  # a wrong answer is always the same one


def world(rng, n):
    """Answers whose error is known: it rises with a score on an odd scale."""
    y = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    score = np.exp(1.5 * rng.normal(size=n))
    error = np.clip(0.05 + 0.15 * np.log1p(score), 0.0, 0.45)
    wrong = rng.uniform(size=n) < error
    return NAMES[np.where(wrong, TAKEN_FOR[y], y)], NAMES[y], score, error


@pytest.mark.parametrize("scale", [lambda s: s, np.log, lambda s: -1.0 / s], ids=["as it is", "log", "inverse"])
def test_error_is_calibrated_in_any_scale(rng, scale):
    answer, y, score, _ = world(rng, 4000)
    given = GivenAnswers.learn(None, answer == y, scale(score))
    _, _, fresh, error = world(rng, 20000)
    assert np.abs(given.error(None, scale(fresh)) - error).mean() < 0.02
    assert (np.diff(given.errors) >= 0).all()


def test_order_of_the_scores_is_all_that_counts(rng):
    answer, y, score, _ = world(rng, 500)
    one, other = (GivenAnswers.learn(answer, y, values) for values in (score, np.log(score)))
    assert one.errors == other.errors


def test_posterior_is_that_of_the_world_and_the_label_stays(rng):
    answer, y, score, _ = world(rng, 6000)
    given = GivenAnswers.learn(answer[:4000], y[:4000], score[:4000])
    posterior = softmax(given.activations(answer, score).logits, axis=1)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0)
    code = np.searchsorted(NAMES, answer)
    assert given.classes == (*NAMES, OTHER)
    assert (posterior.argmax(axis=1) == code).all()
    np.testing.assert_allclose(1.0 - posterior.max(axis=1), np.minimum(given.error(answer, score), 0.8), atol=1e-6)
    card = answer == "card"  # never said of a "rate"
    assert posterior[card][:, 3].mean() < 0.1 * posterior[card][:, 0].mean()
    shares = posterior[4000:].mean(axis=0)[:4]
    true = (y[4000:, None] == NAMES).mean(axis=0)
    assert np.abs(shares - true).max() < np.abs((answer[4000:, None] == NAMES).mean(axis=0) - true).max() / 2


def test_answers_without_scores_and_free_answers(rng):
    answer, y, score, _ = world(rng, 2000)
    given = GivenAnswers.learn(answer, y)
    for name in NAMES:
        own = answer == name
        assert given.error([name]) == pytest.approx([(answer != y)[own].mean()], abs=0.02)
    assert given.activations(["loan", "a new one"]).logits.argmax(axis=1).tolist() == [2, 4]
    free = GivenAnswers.learn(None, answer == y, score)
    rows = free.activations(None, score, features=np.ones((2000, 2)))
    assert rows.classes.tolist() == ["right", "wrong"]
    assert (rows.logits.argmax(axis=1) == 0).all()  # r is at most a half, and the answer is what is answered
    wide = given.with_labels(["bill", "card", "loan", "rate", "fee"])
    np.testing.assert_allclose(wide.error(answer), given.error(answer))
    assert wide.activations(["fee"]).logits.argmax() == 4


def test_refusals(rng):
    answer, y, score, _ = world(rng, 300)
    with pytest.raises(InvalidInputError, match=r"score must be high where answers are wrong.*AUROC 0\.[0-4]"):
        GivenAnswers.learn(answer, y, -score)
    with pytest.warns(AnswersWarning, match="hardly tells wrong answers from right ones"):
        GivenAnswers.learn(answer, y, rng.normal(size=300))
    with pytest.raises(InvalidInputError, match="at least 20 judged rows"):
        GivenAnswers.learn(answer[:9], y[:9], score[:9])
    with pytest.raises(InvalidInputError, match="answer must be as many as y"):
        GivenAnswers.learn(answer[:200], y, score)
    given = GivenAnswers.learn(answer, y, score)
    with pytest.raises(InvalidInputError, match="score must be given"):
        given.activations(answer)
    with pytest.raises(InvalidInputError, match="answer must be given"):
        given.activations(None, score)
    with pytest.raises(InvalidInputError, match="labels must begin with"):
        given.with_labels(["card", "bill"])
    with pytest.raises(InvalidInputError, match="errors must lie between 0 and 1"):
        GivenAnswers(("a", "b"), (), (1.5,))


def test_model_of_answers_learns_g_from_the_embedding(rng):
    """Strangers get confident answers: only the embedding tells."""
    centre = 3.0 * rng.normal(size=(4, 5))

    def rows(n, strangers=0):
        answer, y, score, _ = world(rng, n)
        x = centre[np.searchsorted(NAMES, y)] + rng.normal(size=(n, 5))
        x[:strangers] = 6.0 + rng.normal(size=(strangers, 5))
        score[:strangers] = rng.permutation(np.sort(score)[: max(strangers, 1)])[:strangers] if strangers else 0.0
        return answer, y, score, x

    judged, labeled, log, fresh = rows(300), rows(500), rows(500, 150), rows(400, 100)
    given = GivenAnswers.learn(*judged[:3])
    known, traffic, new = (given.activations(a, s, x) for a, _, s, x in (labeled, log, fresh))
    model = POSCOD(ratio=CorrectedSigmoid("paper"), tpr_min=0.9, random_state=0)
    decided = model.fit(known, labeled[1], X_unlabeled=traffic).decide(new)
    assert decided.label.tolist() == fresh[0].tolist()
    assert decided.accept[:100].mean() < 0.1
    assert decided.accept[100:].mean() > 0.85
    alone = model.at(alpha=0.0).decide(new)
    assert alone.accept[:100].mean() > 0.8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::poscod.exceptions.PoscodWarning")
def test_guarantee_holds_where_errors_were_learned_from_rows_of_their_own():
    """Counted: TPR >= 0.9 with probability 0.9, over the draw of judged and labeled rows."""
    short = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        answer, y, score, _ = world(rng, 500)
        given = GivenAnswers.learn(answer[:150], y[:150], score[:150])
        x = rng.normal(size=(500, 2)) + np.searchsorted(NAMES, y)[:, None]
        traffic_answer, _, traffic_score, _ = world(rng, 300)
        traffic = given.activations(
            traffic_answer, traffic_score, rng.normal(size=(300, 2)) + 8.0 * (np.arange(300) < 90)[:, None]
        )
        model = POSCOD(
            ratio=CorrectedSigmoid("paper"),
            tpr_min=0.9,
            delta=0.1,
            threshold="guaranteed",
            class_mix="labeled",
            random_state=seed,
        )
        model.fit(given.activations(answer[150:], score[150:], x[150:]), y[150:], X_unlabeled=traffic)
        fresh_answer, fresh_y, fresh_score, _ = world(rng, 4000)
        fresh = given.activations(
            fresh_answer, fresh_score, rng.normal(size=(4000, 2)) + np.searchsorted(NAMES, fresh_y)[:, None]
        )
        short += model.decide(fresh).accept.mean() < 0.9
    assert short <= 12  # P(more | a chance of 0.1) = 0.007
