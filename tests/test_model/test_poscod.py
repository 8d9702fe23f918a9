"""The object users hold: relations between its outputs, inputs of every kind, costs that change, errors in one sentence."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poscod import POSCOD, Activations, ScodProblem
from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.model import NoUnlabeledDataWarning, Schema, _scorer
from poscod.model._rows import chunks, same_rows
from poscod.problem import BoundedProblem, CostProblem, CoverageProblem, GeneralisedProblem, PrecisionProblem, RiskBound
from poscod.ratio import CorrectedSigmoid, NoOODEvidenceWarning
from poscod.selector import tpr_threshold
from poscod.strategies import rejection_score
from poscod.theory import GaussianWorld

FAST = CorrectedSigmoid(recipe="paper", l2=1e-4)
WORLD = GaussianWorld([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]], [[3.5, 3.5]], covariance_ood=0.5)


@pytest.fixture(scope="module")
def data():
    X, y = WORLD.sample_id(1500, random_state=0)
    U, _ = WORLD.sample_mixture(800, pi=0.3, random_state=1)
    fresh, y_fresh = WORLD.sample_id(3000, random_state=2)
    return X, y, U, fresh, y_fresh, WORLD.sample_ood(3000, random_state=3)


@pytest.fixture(scope="module")
def model(data):
    X, y, U, *_ = data
    return POSCOD(LogisticRegression(), FAST, alpha=0.3, tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=U)


def test_outputs_are_tied_together(model, data):
    X = data[3]
    d = model.decide(X)
    np.testing.assert_array_equal(d.score, rejection_score(d.risk, d.log_ratio, model.beta_))
    np.testing.assert_array_equal(d.accept, d.score <= model.threshold_)
    np.testing.assert_array_equal(model.acceptance_margin(X), model.threshold_ - d.score)
    np.testing.assert_array_equal(model.rejection_score(X), d.score)
    np.testing.assert_array_equal(model.conditional_risk(X), d.risk)
    np.testing.assert_array_equal(model.log_ratio(X), d.log_ratio)
    np.testing.assert_array_equal(model.predict_id(X), d.label)
    np.testing.assert_array_equal(model.predict(X), np.where(d.accept, d.label, -1))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    np.testing.assert_allclose(d.risk, 1 - model.predict_proba(X).max(axis=1), atol=1e-12)
    assert model.beta_ == ScodProblem(0.3, 0.9).beta
    assert ((d.reason == "accepted") == d.accept).all()
    assert {"ambiguous", "unfamiliar"} <= set(d.reason)


def test_threshold_is_the_order_statistic_of_unseen_rows(model):
    kept = model.calibration_
    risk = 1 - np.exp(kept.logits - np.logaddexp.reduce(kept.logits, axis=1)[:, None]).max(axis=1)
    rule = tpr_threshold(rejection_score(risk, kept.log_ratio, model.beta_), 0.9)
    assert model.threshold_ == pytest.approx(rule.threshold, rel=1e-9)
    assert len(kept.logits) == model.rule_.rows == 1500


def test_decisions_on_fresh_rows(model, data):
    """TPR within 4 sigma of what was asked (calibration and test noise), far fewer OOD rows than a coin would pass."""
    X, y, ood = data[3:]
    result = model.evaluate(X, y, ood)
    assert result.tpr.estimate == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 1500 + 0.09 / 3000))
    assert result.fpr.estimate < 0.1
    assert result.risk.low < result.risk.estimate < result.risk.high
    assert result.risk.estimate == pytest.approx(0.7 * result.selective_risk.estimate + 0.3 * result.fpr.estimate)


def test_costs_change_without_fitting(model, data):
    X = data[3]
    other = model.at(alpha=0.8, tpr_min=0.7)
    assert other is not model
    assert other.ratio_ is model.ratio_
    assert other.classifier_ is model.classifier_
    assert other.get_params()["alpha"] == 0.8
    np.testing.assert_array_equal(other.log_ratio(X), model.log_ratio(X))
    assert other.predict(X).tolist().count(-1) > model.predict(X).tolist().count(-1)
    again = POSCOD(LogisticRegression(), FAST, alpha=0.8, tpr_min=0.7, random_state=0).fit(
        *data[:2], X_unlabeled=data[2]
    )
    assert other.threshold_ == pytest.approx(again.threshold_, rel=1e-9)
    assert model.alpha == 0.3


def test_another_loss_changes_answers_and_risk(model, data):
    X = data[3]
    dear = model.at(loss=[[0, 1, 1], [20, 0, 1], [1, 1, 0]])
    assert (dear.predict_id(X) == 1).sum() > (model.predict_id(X) == 1).sum()
    assert (dear.conditional_risk(X) >= 0).all()
    posterior = model.predict_proba(X)
    expected = (posterior @ np.array([[0, 1, 1], [20, 0, 1], [1, 1, 0.0]])).min(axis=1)
    np.testing.assert_allclose(dear.conditional_risk(X), expected, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_extreme_costs(model, data, alpha):
    X = data[3]
    extreme = model.at(alpha=alpha)
    d = extreme.decide(X)
    assert extreme.beta_ == (0.0 if alpha == 0.0 else np.inf)
    expected = d.risk if alpha == 0.0 else np.exp(d.log_ratio)
    np.testing.assert_allclose(d.score, expected, rtol=1e-9)
    reasons = set(d.reason) - {"accepted"}
    assert reasons == ({"ambiguous"} if alpha == 0.0 else {"unfamiliar"})


def test_budget_rejects_the_given_share_of_traffic(model, data):
    """Of the traffic as parts see it that were not fitted on it, so that new traffic is rejected at that rate, too."""
    new, _ = WORLD.sample_mixture(20_000, pi=0.3, random_state=21)
    for share in (0.02, 0.25):
        budget = model.budget(share)
        kept = budget.rule_.score(budget.calibration_.traffic("zero_one")) > budget.threshold_
        assert np.mean(kept) == pytest.approx(share, abs=2 / len(data[2]))
        assert np.mean(budget.predict(new) == -1) == pytest.approx(share, abs=4 * np.sqrt(share / len(data[2])))
    assert model.budget(0.25).beta_ == model.beta_


def test_risk_control_accepts_as_much_as_it_may(data):
    X, y, U, fresh, y_fresh, ood = data
    model = POSCOD(LogisticRegression(), FAST, alpha=0.0, calibration=0.5, random_state=3).fit(X, y, X_unlabeled=U)
    strict, loose = (model.control_risk(r, delta=0.1) for r in (0.08, 0.12))
    assert strict.threshold_ < loose.threshold_
    for chosen, risk_max in ((strict, 0.08), (loose, 0.12)):
        assert chosen.evaluate(fresh, y_fresh, ood).selective_risk.estimate <= risk_max
    assert model.control_risk(0.12, delta=0.1, method="sgr").threshold_ <= loose.threshold_
    with pytest.raises(InfeasibleProblemError):
        model.control_risk(1e-4)
    dear = model.at(loss=[[0, 1, 1], [2, 0, 1], [1, 1, 0]])
    assert dear.control_risk(0.4).threshold_ == np.inf  # everything may be accepted
    assert dear.control_risk(0.19).threshold_ < 1.0
    folded = POSCOD(LogisticRegression(), FAST, random_state=0).fit(X, y, X_unlabeled=U)
    with pytest.raises(InvalidInputError, match="nothing was fitted on: fit with threshold='guaranteed'"):
        folded.control_risk(0.1)
    asked = POSCOD(LogisticRegression(), FAST, problem=RiskBound(0.12, 0.1), random_state=0).fit(X, y, X_unlabeled=U)
    assert asked.calibration_.held_out  # a bound that is asked for from the start gets rows that nothing was fitted on
    assert asked.rule_.promise.quantity == "selective_risk"


def test_generalised_risk_has_one_ranking(model, data):
    X = data[3]
    a, b = (model.with_rule(GeneralisedProblem(alpha=0.3, tpr_min=t)) for t in (0.6, 0.9))
    np.testing.assert_array_equal(a.rejection_score(X), b.rejection_score(X))
    assert (b.decide(X).accept >= a.decide(X).accept).all()


def test_cost_problem_is_the_bayes_decision(model, data):
    X = data[3]
    chosen = model.with_rule(CostProblem(reject_id=0.2, accept_ood=3.0, reject_ood=0.5, pi=0.4))
    d = chosen.decide(X)
    cost_accept = 0.6 * d.risk + 0.4 * 3.0 * np.exp(d.log_ratio)
    cost_reject = 0.6 * 0.2 + 0.4 * 0.5 * np.exp(d.log_ratio)
    clear = np.abs(cost_accept - cost_reject) > 1e-9
    np.testing.assert_array_equal(d.accept[clear], (cost_accept < cost_reject)[clear])


def test_bounded_problem_meets_its_bound_with_the_smallest_slope(model, data):
    X, y, ood = data[3:]
    free = model.with_rule(BoundedProblem(tpr_min=0.8, fpr_max=1.0))
    assert free.beta_ == 0.0
    tight = model.with_rule(BoundedProblem(tpr_min=0.8, fpr_max=0.02))
    result = tight.evaluate(X, y, ood)
    assert result.fpr.estimate < 0.05
    assert result.tpr.estimate == pytest.approx(0.8, abs=0.1)
    looser = model.with_rule(BoundedProblem(tpr_min=0.8, fpr_max=0.1))
    assert 0.0 < looser.beta_ < tight.beta_
    with pytest.raises(InfeasibleProblemError, match="the smallest estimated FPR is"):
        model.with_rule(BoundedProblem(tpr_min=1.0, fpr_max=0.0))


def test_precision_is_a_bound_on_fpr(model):
    by_precision = model.with_rule(PrecisionProblem(tpr_min=0.8, precision_min=0.95, pi=0.5))
    limit = 0.8 * 0.05 / 0.95
    assert by_precision.beta_ == pytest.approx(model.with_rule(BoundedProblem(0.8, limit)).beta_)


def test_coverage_problem_keeps_to_the_allowed_share_of_traffic(model, data):
    for share in (0.05, 0.3, 0.6):
        chosen = model.with_rule(CoverageProblem(alpha=0.4, reject_max=share))
        assert np.mean(~chosen.decide(data[2]).accept) == pytest.approx(share, abs=0.01)


def test_label_free_evaluation_agrees_with_the_truth(model, data):
    X, y, ood = data[3:]
    traffic, _ = WORLD.sample_mixture(4000, pi=0.25, random_state=9)
    truth = model.evaluate(X, y, ood)
    free = model.evaluate_unlabeled(X, y, traffic)
    assert free.tpr == truth.tpr
    assert free.ood_prior.estimate == pytest.approx(0.25, abs=0.05)
    assert free.fpr.low <= truth.fpr.estimate <= free.fpr.high
    assert free.risk.low <= truth.risk.estimate <= free.risk.high
    known = model.evaluate_unlabeled(X, y, traffic, pi=0.25)
    assert known.ood_prior[:3] == (0.25, 0.25, 0.25)


def test_one_accepted_row_of_another_loss_says_nothing_of_dear_mistakes(model, data):
    X, y, ood = data[3:]
    dear = model.at(loss=[[0, 1, 1], [20, 0, 1], [1, 1, 0]])
    dear.rule_ = dataclasses.replace(dear.rule_, threshold=np.sort(dear.rejection_score(X))[0])
    selective = dear.evaluate(X, y, ood).selective_risk
    # P(loss >= 1) and P(loss >= 20) each have a 97.5 % interval from one row without a loss.
    assert selective.low == 0.0
    assert selective.high == pytest.approx(20.0 * (1.0 - 0.0125), rel=1e-12)


def test_label_free_evaluation_refuses_where_there_is_no_ood(model, data):
    X, y = data[3:5]
    free = model.evaluate_unlabeled(X[:500], y[:500], X[500:900], pi=0.004)
    assert not free.fpr.informative
    assert "too small" in free.fpr.reason
    assert np.isnan(free.risk.estimate)


def test_minus_one_marks_unlabeled_rows(model, data):
    X, y, U, fresh, *_ = data
    marked = POSCOD(LogisticRegression(), FAST, alpha=0.3, tpr_min=0.9, random_state=0).fit(
        np.vstack([X, U]), np.append(y, np.full(len(U), -1))
    )
    np.testing.assert_array_equal(marked.predict(fresh), model.predict(fresh))
    with pytest.raises(InvalidInputError, match="leave those rows out"):
        clone(marked).fit(np.vstack([X, U]), np.append(y, np.full(len(U), -1)), X_unlabeled=U)


def test_text_labels_and_their_order(model, data):
    X, y, U, fresh, *_ = data
    names = np.array(["zebra", "ant", "mole"])
    named = POSCOD(LogisticRegression(), FAST, alpha=0.3, tpr_min=0.9, random_state=0).fit(X, names[y], X_unlabeled=U)
    assert named.classes_.tolist() == ["ant", "mole", "zebra"]
    answer = named.predict(fresh)
    assert answer.dtype.kind == "U"
    assert set(answer.tolist()) == {"ant", "mole", "zebra", "rejected"}
    agree = names[model.predict_id(fresh)] == named.predict_id(fresh)
    assert agree.mean() > 0.97  # other rows train it, the classes are the same
    said = clone(named).set_params(reject_label="unsure").fit(X, names[y], X_unlabeled=U).predict(fresh)
    assert set(said.tolist()) == {"ant", "mole", "zebra", "unsure"}
    mixed = np.append(names[y].astype(object), np.full(len(U), -1, dtype=object))
    again = clone(named).fit(np.vstack([X, U]), mixed).predict(fresh)
    assert (again == answer).all()


def test_data_frames_and_feature_names(model, data):
    X, y, U, fresh, *_ = data
    frame = lambda rows: pd.DataFrame(rows, columns=["a", "b"])  # noqa: E731
    framed = POSCOD(LogisticRegression(), FAST, alpha=0.3, tpr_min=0.9, random_state=0).fit(
        frame(X), y, X_unlabeled=frame(U)
    )
    np.testing.assert_array_equal(framed.predict(frame(fresh)), model.predict(fresh))
    assert framed.feature_names_in_.tolist() == ["a", "b"]
    turned = frame(fresh)[["b", "a"]].assign(c="not used")
    np.testing.assert_array_equal(framed.predict(turned), model.predict(fresh))
    with pytest.raises(InvalidInputError, match=r"X lacks the column 'b' \(is it 'B' there\?\)"):
        framed.predict(frame(fresh).rename(columns={"b": "B"}))
    with pytest.raises(ValueError, match="features"):
        model.predict(fresh[:, :1])


def test_polars_frames(model, data):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    X, y, U, fresh, *_ = data
    frame = lambda rows: polars.DataFrame({"a": rows[:, 0], "b": rows[:, 1]})  # noqa: E731
    framed = POSCOD(LogisticRegression(), FAST, alpha=0.3, tpr_min=0.9, random_state=0)
    framed.fit(frame(X), y, X_unlabeled=frame(U))
    np.testing.assert_array_equal(framed.predict(frame(fresh)), model.predict(fresh))
    assert framed.feature_names_in_.tolist() == ["a", "b"]


def test_metadata_routing_passes_traffic_and_weights(data):
    X, y, U, fresh, *_ = data
    with config_context(enable_metadata_routing=True):
        inner = POSCOD(LogisticRegression(), FAST, random_state=0).set_fit_request(X_unlabeled=True, sample_weight=True)
        routed = make_pipeline(inner).fit(X, y, X_unlabeled=U, sample_weight=np.ones(len(y)))
    plain = POSCOD(LogisticRegression(), FAST, random_state=0).fit(X, y, X_unlabeled=U, sample_weight=np.ones(len(y)))
    np.testing.assert_array_equal(routed.predict(fresh), plain.predict(fresh))


def test_missing_values_that_the_classifier_takes_leave_the_logits(data):
    X, y, U, *_ = data
    holes = X.copy()
    holes[::7, 0] = np.nan
    model = POSCOD(HistGradientBoostingClassifier(max_iter=20), FAST, random_state=0).fit(holes, y, X_unlabeled=U)
    assert not model.scorer_.uses_features
    assert np.isfinite(model.decide(holes[:50]).score).all()


def test_text_pipelines_speak_through_their_features():
    rng = np.random.default_rng(0)
    words = [["cat", "dog", "cow"], ["car", "bus", "van"], ["sun", "rain", "snow"]]
    draw = lambda topic, n: [" ".join(rng.choice(words[topic], 4)) for _ in range(n)]  # noqa: E731
    texts, labels = draw(0, 150) + draw(1, 150), ["animal"] * 150 + ["vehicle"] * 150
    traffic = draw(0, 60) + draw(1, 60) + draw(2, 50)
    model = POSCOD(make_pipeline(CountVectorizer(), LogisticRegression()), FAST, tpr_min=0.9, random_state=0)
    model.fit(np.array(texts, dtype=object), labels, X_unlabeled=np.array(traffic, dtype=object))
    assert np.mean(model.predict(np.array(draw(2, 100), dtype=object)) == "rejected") > 0.9
    assert np.mean(model.predict(np.array(draw(0, 100), dtype=object)) == "animal") > 0.8


def test_sparse_rows(data):
    X, y, U, fresh, *_ = data
    model = POSCOD(LogisticRegression(), FAST, random_state=0).fit(
        sparse.csr_matrix(X), y, X_unlabeled=sparse.csr_matrix(U)
    )
    dense = POSCOD(LogisticRegression(), FAST, random_state=0).fit(X, y, X_unlabeled=U)
    inside = ((fresh >= X.min(axis=0)) & (fresh <= X.max(axis=0))).all(
        axis=1
    )  # beyond, log g also depends on the folds
    assert inside.mean() > 0.9
    np.testing.assert_allclose(
        model.log_ratio(sparse.csr_matrix(fresh[inside])), dense.log_ratio(fresh[inside]), atol=1e-6
    )


def test_frozen_classifier_is_not_trained(data):
    X, y, U, fresh, *_ = data
    frozen = FrozenEstimator(make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:300], y[:300]))
    model = POSCOD(frozen, FAST, random_state=0).fit(X[300:], y[300:], X_unlabeled=U)
    np.testing.assert_array_equal(model.predict_id(fresh), frozen.predict(fresh))
    assert len(model.calibration_.logits) == 1200  # nothing is held out
    with pytest.raises(InvalidInputError, match="exactly its classes"):
        POSCOD(frozen, FAST).fit(X[300:][y[300:] > 0], y[300:][y[300:] > 0], X_unlabeled=U)


def test_activations_of_a_network(data):
    X, y, U, fresh, y_fresh, ood = data
    head = LogisticRegression().fit(X[:300], y[:300])

    def seen(rows, labels=None):
        return Activations(rows, head.decision_function(rows), labels, head.coef_, head.intercept_)

    model = POSCOD(ratio=FAST, tpr_min=0.9, random_state=0).fit(seen(X[300:], y[300:]), X_unlabeled=seen(U))
    np.testing.assert_array_equal(model.predict_id(seen(fresh)), head.predict(fresh))
    result = model.evaluate(seen(fresh), y_fresh, seen(ood))
    assert result.tpr.estimate == pytest.approx(0.9, abs=0.06)
    with pytest.raises(InvalidInputError, match="of the kind given to fit"):
        model.predict(fresh)
    with pytest.raises(InvalidInputError, match="classifier must be None"):
        POSCOD(LogisticRegression()).fit(seen(X, y), X_unlabeled=seen(U))


def test_cross_fitting_scores_every_row_by_parts_that_have_not_seen_it(data):
    X, y, U, fresh, y_fresh, ood = data
    forest = RandomForestClassifier(n_estimators=30, random_state=0)  # answers its own rows almost perfectly
    model = POSCOD(forest, FAST, tpr_min=0.9, calibration=5, random_state=0).fit(X, y, X_unlabeled=U)
    assert len(model.calibration_.logits) == len(X)
    achieved = model.evaluate(fresh, y_fresh, ood).tpr.estimate
    assert achieved == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 1500 + 0.09 / 3000) + 0.01)


@pytest.mark.filterwarnings(
    "ignore::poscod.model.ClassMixWarning"
)  # true: the weights say that nearly all rows are of one class
def test_sample_weights_move_the_threshold(data):
    X, y, U, *_ = data
    uniform = POSCOD(LogisticRegression(), FAST, random_state=0).fit(
        X, y, X_unlabeled=U, sample_weight=np.full(len(y), 3.0)
    )
    plain = POSCOD(LogisticRegression(), FAST, random_state=0).fit(X, y, X_unlabeled=U)
    assert uniform.threshold_ == pytest.approx(plain.threshold_, rel=0.02)
    easy = np.where(y == 0, 10.0, 0.1)
    assert POSCOD(LogisticRegression(), FAST, random_state=0).fit(
        X, y, X_unlabeled=U, sample_weight=easy
    ).threshold_ != pytest.approx(plain.threshold_, rel=0.02)


def test_without_traffic_the_rule_is_the_conditional_risk(data):
    X, y, _, fresh, *_ = data
    with pytest.warns(NoUnlabeledDataWarning, match="conditional risk alone"):
        model = POSCOD(LogisticRegression(), random_state=0).fit(X, y)
    d = model.decide(fresh)
    np.testing.assert_array_equal(d.score, d.risk)
    assert (d.log_ratio == -np.inf).all()
    assert model.ood_prior_ == 0.0
    with pytest.raises(InvalidInputError, match="fit with unlabeled rows"):
        model.budget(0.1)


def test_grid_search_chooses_by_label_free_risk(data):
    """A ratio shrunk to nothing has the same classifier and TPR; only the unlabeled rows tell it from a good one."""
    X, y, U, *_ = data
    rows, marks = np.vstack([X, U]), np.append(y, np.full(len(U), -1))
    blind, good = (CorrectedSigmoid("paper", l2=l2, ood_prior=0.3) for l2 in (1e6, 1e-4))
    search = GridSearchCV(
        POSCOD(LogisticRegression(), alpha=0.8, random_state=0), {"ratio": [blind, good]}, cv=3, error_score="raise"
    ).fit(rows, marks)
    assert search.best_params_["ratio"].l2 == 1e-4
    worse, better = search.cv_results_["mean_test_score"]
    assert better - worse > 0.05


def test_score_bounds_the_risk_and_does_not_reward_finding_no_ood(model, data):
    X, y, ood = data[3:]
    traffic, _ = WORLD.sample_mixture(6000, pi=0.3, random_state=10)
    rows, marks = np.vstack([X, traffic]), np.append(y, np.full(6000, -1))
    truth = model.evaluate(X, y, ood)
    accepted = model.decide(traffic).accept.mean()
    assert -model.score(rows, marks) == pytest.approx(0.7 * truth.selective_risk.estimate + 0.3 * accepted)
    assert -model.score(rows, marks) > truth.risk.estimate
    blind = model.at(alpha=0.0)  # judged at the same costs, a rule that ignores g is worse
    blind.rule_ = dataclasses.replace(blind.rule_, problem=model.rule_.problem)
    assert blind.score(rows, marks) < model.score(rows, marks)


def test_weights_have_no_unit_and_those_of_marked_rows_count(data):
    X, y, U, fresh, *_ = data
    rows, marks = np.vstack([X, U]), np.append(y, np.full(len(U), -1))
    fit = lambda w: POSCOD(LogisticRegression(), FAST, random_state=0).fit(rows, marks, sample_weight=w)  # noqa: E731
    one, small = fit(np.ones(len(marks))), fit(np.full(len(marks), 1e-3))
    assert small.ood_prior_ == pytest.approx(one.ood_prior_, rel=1e-3)
    np.testing.assert_allclose(small.log_ratio(fresh), one.log_ratio(fresh), atol=1e-4)
    far = np.append(np.ones(len(y)), np.where(U.sum(axis=1) > 5, 0.3, 1.0))  # most OOD rows of the traffic count less
    assert fit(far).ood_prior_ < 0.6 * one.ood_prior_


def test_meta_estimators_around_pipelines(data):
    X, y, U, fresh, *_ = data
    search = GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [0.1, 1.0]})
    model = POSCOD(search, FAST, random_state=0).fit(X, y, X_unlabeled=U)
    assert model.scorer_.uses_features
    assert len(model.predict(fresh)) == len(fresh)


def test_columns_of_a_table_are_compared_in_their_own_units():
    """Far inputs along an ID direction: unit vectors of raw columns would call them familiar."""
    rng = np.random.default_rng(0)

    def draw(n):
        labels = rng.integers(0, 2, n)
        return rng.normal(size=(n, 2)) * [1.0, 1e4] + np.outer(labels, [2.0, 0.0]), labels

    X, y = draw(800)
    U = np.vstack([draw(500)[0], draw(100)[0] + [0.0, 1e5]])
    model = POSCOD(make_pipeline(StandardScaler(), LogisticRegression()), random_state=0).fit(X, y, X_unlabeled=U)
    assert (model.predict([[0.0, 1e5], [1.0, 1.2e5]]) == -1).all()
    assert model.ood_prior_ == pytest.approx(1 / 6, abs=0.06)


def test_problems_that_choose_a_slope_are_not_guaranteed(data):
    X, y, U, *_ = data
    model = POSCOD(LogisticRegression(), FAST, tpr_min=0.8, threshold="guaranteed", random_state=0).fit(
        X, y, X_unlabeled=U
    )
    with pytest.raises(InvalidInputError, match="does not cover this problem"):
        model.with_rule(BoundedProblem(0.8, 0.1))


def test_empty_input_is_refused_as_the_classifier_does(model):
    with pytest.raises(ValueError, match="0 sample"):
        model.decide(np.zeros((0, 2)))


def test_chunks_do_not_change_decisions(model, data, monkeypatch):
    whole = model.decide(data[3])
    monkeypatch.setattr(_scorer, "chunks", lambda X: chunks(X, rows=77))
    parts = model.decide(data[3])
    np.testing.assert_array_equal(parts.label, whole.label)
    np.testing.assert_allclose(parts.score, whole.score, rtol=1e-12)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"alpha": 2}, "alpha must be a number"),
        ({"tpr_min": 0}, "tpr_min must be a number"),
        ({"loss": "zero"}, "loss must be one of"),
        ({"loss": np.ones((2, 2)) - np.eye(2)}, "one row and one column per class"),
        ({"threshold": "exact"}, "threshold must be one of"),
        ({"delta": 0}, "delta must be a number"),
        ({"calibration": 1.5}, "calibration must be a number"),
        ({"calibration": 1}, "calibration must be a whole number >= 2"),
        ({"calibration": 3, "threshold": "guaranteed"}, "calibration must be 'auto' or a share"),
        ({"calibration": "folds"}, "calibration must be 'auto', a share or a number of folds, got 'folds'"),
        ({"threshold": "guaranteed", "tpr_min": 0.9999}, "at least 29956"),
    ],
)
def test_bad_parameters_are_refused(data, params, message):
    with pytest.raises((InvalidInputError, InfeasibleProblemError), match=message):
        POSCOD(LogisticRegression(), FAST, random_state=0, **params).fit(*data[:2], X_unlabeled=data[2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y, U: POSCOD().fit(X), "requires y to be passed"),
        (lambda X, y, U: POSCOD().fit(X, y[:5], X_unlabeled=U), "as many rows as X"),
        (lambda X, y, U: POSCOD().fit(X, np.zeros(len(y)), X_unlabeled=U), "at least two classes"),
        (lambda X, y, U: POSCOD().fit(X[:3], [0, 1, 1], X_unlabeled=U), "single row of class 0"),
        (
            lambda X, y, U: POSCOD().fit(X[:1].repeat(2, axis=0), [0, 1], X_unlabeled=U),
            "2 labeled rows are too few to calibrate",
        ),
        (lambda X, y, U: POSCOD(calibration=0.5).fit(X[:3], [0, 1, 1], X_unlabeled=U), "too few"),
        (lambda X, y, U: POSCOD(calibration=7).fit(X[:6], [0, 1, 1, 0, 1, 1], X_unlabeled=U), "7 labeled rows, got 6"),
        (lambda X, y, U: POSCOD().fit(X, y, X_unlabeled=U[:1]), "at least two rows that differ"),
        (
            lambda X, y, U: POSCOD(threshold="guaranteed").fit(X, np.r_[7, y[1:]], X_unlabeled=U),
            "one row of class 7",
        ),
    ],
)
def test_bad_data_is_refused(data, call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(*data[:3])


def test_labels_not_seen_at_fit_are_refused(model, data):
    with pytest.raises(InvalidInputError, match="labels seen at fit, got 7"):
        model.evaluate(data[3][:2], [0, 7], data[5])
    with pytest.raises(InvalidInputError, match="problem excludes alpha"):
        POSCOD(alpha=0.2, problem=BoundedProblem()).fit(*data[:2], X_unlabeled=data[2])
    with pytest.raises(InvalidInputError, match=r"problem must be a problem of poscod\.problem, got 'scod'"):
        POSCOD(problem="scod").fit(*data[:2], X_unlabeled=data[2])


@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        np.ndarray.tolist,
        pd.DataFrame,
        sparse.csr_matrix,
        lambda X: Activations(X, X @ np.eye(2, 3), np.arange(len(X)) % 3),
    ],
    ids=["array", "list", "frame", "sparse", "network"],
)
def test_labeled_rows_given_as_traffic_are_refused(data, kind):
    X, y = data[0][:90], data[1][:90]
    model = POSCOD(ratio=FAST, random_state=0) if kind is not sparse.csr_matrix else POSCOD(LogisticRegression(), FAST)
    for traffic in (kind(X), kind(X.copy())):
        with pytest.raises(InvalidInputError, match="exactly the rows of X: the unlabeled rows must be traffic"):
            model.fit(kind(X), y, X_unlabeled=traffic)
    rows = kind(X)
    with pytest.raises(InvalidInputError, match="exactly the rows of X"):
        model.fit(rows, y, X_unlabeled=rows)


def test_rows_that_differ_in_one_number_are_traffic_of_their_own(data):
    X = data[0][:120]
    other = X.copy()
    other[-1, 0] += 1.0
    for kind in (np.asarray, pd.DataFrame, sparse.csr_matrix):
        assert not same_rows(kind(X), kind(other))
    assert same_rows(pd.DataFrame([[np.nan, 1.0]]), pd.DataFrame([[np.nan, 1.0]]))
    assert not same_rows(X, X[:-1])


def test_warnings_point_at_the_line_of_the_user(data):
    X, y = data[0], data[1]
    same, _ = WORLD.sample_id(300, random_state=7)
    with pytest.warns(NoOODEvidenceWarning) as caught:
        POSCOD(LogisticRegression(), random_state=0).fit(X[:600], y[:600], X_unlabeled=same)
    assert {w.filename for w in caught} == {__file__}
    with pytest.warns(NoOODEvidenceWarning) as caught:
        CorrectedSigmoid().fit(X[:300], same)
    assert {w.filename for w in caught} == {__file__}


def test_texts_among_the_columns_are_named(data):
    X, y, U = data[:3]
    frame, log = (pd.DataFrame(rows, columns=["a", "b"]).assign(name="row-1", day="2026-01-01") for rows in (X, U))
    with pytest.raises(InvalidInputError, match=r"\('name', 'day'\): leave them out, encode them"):
        POSCOD(LogisticRegression(), prepare="never", random_state=0).fit(frame, y, X_unlabeled=log)


SCORERS = ["roc_auc_ovr", "roc_auc_ovo", "neg_log_loss", "average_precision"]


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("classes", [2, 3])
def test_scorers_see_the_calibrated_classifier(data, name, classes):
    """scikit-learn asks decision_function first, so there is none: a margin of accepting is not a class score."""
    X, y, U, fresh, y_fresh, _ = data
    rows, new = y < classes, y_fresh < classes
    if classes == 2 and name.startswith("roc_auc"):
        name = "roc_auc"
    model = POSCOD(LogisticRegression(), FAST, random_state=0).fit(X[rows], y[rows], X_unlabeled=U)
    assert not hasattr(model, "decision_function")

    class Calibrated(ClassifierMixin, BaseEstimator):
        classes_ = model.classes_

        def __sklearn_is_fitted__(self):
            return True

        def fit(self, X, y):
            return self

        def predict(self, X):
            return model.predict_id(X)

        def predict_proba(self, X):
            logits = np.log(model.classifier_.predict_proba(X)) / model.scorer_.temperature
            return np.exp(logits - np.logaddexp.reduce(logits, axis=1)[:, None])

    scorer = get_scorer(name)
    ours, theirs = (scorer(estimator, fresh[new], y_fresh[new]) for estimator in (model, Calibrated()))
    assert ours == pytest.approx(theirs, rel=1e-12)
    assert ours > (-0.6 if name == "neg_log_loss" else 0.85)


class Counter(TransformerMixin, BaseEstimator):
    """Texts to numbers, counting how often it has seen each."""

    seen: ClassVar[dict] = {}

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def transform(self, X):
        for text in np.asarray(X).ravel().tolist():
            Counter.seen[text] = Counter.seen.get(text, 0) + 1
        return np.array([[float(part) for part in text.split()] for text in np.asarray(X).ravel()])


def test_every_row_is_transformed_once(data):
    X, y, U, fresh, *_ = data
    text = lambda rows: np.array([f"{a} {b}" for a, b in rows], dtype=object)  # noqa: E731
    model = POSCOD(make_pipeline(Counter(), LogisticRegression()), FAST, calibration=0.5, random_state=0)
    Counter.seen.clear()
    model.fit(text(X), y, X_unlabeled=text(U))
    assert {Counter.seen[cell] for cell in text(U)} == {1}
    twice = [cell for cell, times in Counter.seen.items() if times > 1]
    assert len(twice) <= 512  # labeled rows that stay with the model, to explain others
    assert {Counter.seen[cell] for cell in twice} <= {2}
    assert len(Counter.seen) == len(X) + len(U)
    assert model.scorer_.uses_features
    Counter.seen.clear()
    d = model.decide(text(fresh))
    assert set(Counter.seen.values()) == {1}
    assert len(Counter.seen) == len(fresh)
    plain = POSCOD(LogisticRegression(), FAST, calibration=0.5, random_state=0).fit(X, y, X_unlabeled=U)
    np.testing.assert_allclose(d.score, plain.decide(fresh).score, rtol=1e-9)


def test_cross_fitting_transforms_traffic_by_one_pipeline(data):
    X, y, U, fresh, *_ = data
    text = lambda rows: np.array([f"{a} {b}" for a, b in rows], dtype=object)  # noqa: E731
    model = POSCOD(make_pipeline(Counter(), LogisticRegression()), FAST, random_state=0)
    Counter.seen.clear()
    model.fit(text(X), y, X_unlabeled=text(U))
    counts = np.array([Counter.seen[cell] for cell in text(U)])
    assert set(counts) == {1, 2}  # the first fold is compared with what the last pipeline makes of it
    assert np.mean(counts == 2) == pytest.approx(0.2, abs=0.02)
    Counter.seen.clear()
    d = model.decide(text(fresh))
    assert set(Counter.seen.values()) == {1}
    assert model.scorer_.uses_features
    assert len(d) == len(fresh)


def test_a_problem_in_the_constructor_is_kept_by_clone_and_search(data):
    X, y, U, *_ = data
    problem = GeneralisedProblem(alpha=0.3, tpr_min=0.7)
    model = POSCOD(LogisticRegression(), FAST, problem=problem, random_state=0).fit(X, y, X_unlabeled=U)
    assert model.rule_.problem == problem == clone(model).problem
    other = model.at(tpr_min=0.8)
    assert other.rule_.problem == GeneralisedProblem(alpha=0.3, tpr_min=0.8) == clone(other).problem
    assert clone(other).fit(X, y, X_unlabeled=U).threshold_ == other.threshold_
    rows, marks = np.vstack([X, U]), np.append(y, np.full(len(U), -1))
    search = GridSearchCV(model, {"problem": [problem, CostProblem(0.2, 2.0, pi=0.3)]}, cv=2, error_score="raise")
    assert search.fit(rows, marks).best_estimator_.rule_.problem in search.param_grid["problem"]


def test_sugar_starts_from_the_current_problem(model):
    other = model.with_rule(ScodProblem(0.2, 0.8))
    assert other.at(alpha=0.3).rule_.problem == ScodProblem(0.3, 0.8)  # None keeps the value
    assert other.get_params()["tpr_min"] == 0.8
    costs = model.with_rule(CostProblem(0.2, 2.0))
    with pytest.raises(InvalidInputError, match="alpha is not a part of CostProblem"):
        costs.at(alpha=0.3)
    assert costs.at(loss="absolute").rule_.problem == CostProblem(0.2, 2.0, loss="absolute")
    assert costs.budget(0.1).rule_.slope == costs.rule_.slope
    assert clone(costs).problem == costs.rule_.problem
    budget = other.budget(0.1)
    assert budget.rule_.problem.ranking == ScodProblem(0.2, 0.8)
    assert budget.at(alpha=0.4).rule_.problem.share == 0.1
    assert budget.at(alpha=0.4).rule_.slope == ScodProblem(0.4, 0.8).beta
    again = budget.with_rule(ScodProblem(0.2, 0.8))
    assert again.problem is None
    assert again.rule_ == other.rule_


def test_a_schema_names_columns_and_must_fit(model, data):
    named = model.with_schema(Schema(features=("a", "b"), n_features=2, target="class"))
    assert named.schema_.names == ("a", "b")
    assert model.schema_.names == ()
    assert named.at(alpha=0.4).schema_ is named.schema_
    with pytest.raises(InvalidInputError, match="schema must describe rows like those given to fit"):
        model.with_schema(Schema(features=("a", "b", "c"), n_features=3))
    assert named.fit(*data[:2], X_unlabeled=data[2]).schema_.names == ()  # a refit leaves nothing stale


def test_what_the_ratio_sees_does_not_depend_on_the_types_of_a_batch(data):
    """Decided once, at fit: the same rows with a flag as 0/1 instead of True and False get the same decisions."""
    X, y, U, fresh, *_ = data
    frame = lambda rows: pd.DataFrame({"a": 100 * rows[:, 0], "b": rows[:, 1], "c": rows[:, 0] > 0})  # noqa: E731
    model = POSCOD(make_pipeline(StandardScaler(), LogisticRegression()), FAST, random_state=0)
    model.fit(frame(X), y, X_unlabeled=frame(U))
    np.testing.assert_array_equal(model.decide(frame(fresh)).score, model.decide(frame(fresh).astype(float)).score)
    mixed = clone(model).fit(frame(X), y, X_unlabeled=frame(U).astype(float))
    assert mixed.ood_prior_ == model.ood_prior_


def test_traffic_of_another_kind_or_with_other_columns_is_refused(data):
    X, y, U, *_ = data
    model = POSCOD(LogisticRegression(), FAST, random_state=0)
    with pytest.raises(InvalidInputError, match="X_unlabeled must be of the kind of X"):
        model.fit(X, y, X_unlabeled=Activations(U, np.zeros((len(U), 3))))
    frames = [pd.DataFrame(rows, columns=["a", "b"]) for rows in (X, U)]
    with pytest.raises(InvalidInputError, match="X_unlabeled lacks the column 'b'"):
        model.fit(frames[0], y, X_unlabeled=frames[1][["a"]])
    turned = clone(model).fit(frames[0], y, X_unlabeled=frames[1][["b", "a"]])
    assert turned.threshold_ == model.fit(*frames[:1], y, X_unlabeled=frames[1]).threshold_


def test_a_fit_forgets_the_columns_of_the_last_one(data):
    X, y, U, *_ = data
    model = POSCOD(LogisticRegression(), FAST, random_state=0)
    model.fit(pd.DataFrame(X, columns=["a", "b"]), y, X_unlabeled=pd.DataFrame(U, columns=["a", "b"]))
    texts = lambda rows: np.array([f"{round(a)} {round(b)}" for a, b in rows], dtype=object)  # noqa: E731
    words = make_pipeline(CountVectorizer(token_pattern=r"\S+"), LogisticRegression())
    model.set_params(classifier=words).fit(texts(X), y, X_unlabeled=texts(U))
    assert not hasattr(model, "feature_names_in_")
    assert len(model.decide(texts(X[:3]))) == 3


def test_compared_rules_are_not_forgotten(data):
    X, y, U, *_ = data
    model = POSCOD(LogisticRegression(), FAST, tpr_min=0.85, threshold="guaranteed", random_state=0)
    many = model.fit(X, y, X_unlabeled=U).at(alpha=0.2, rules=12)
    assert many.at().rule_ == many.rule_
    assert many.at(alpha=0.3).rule_.promise.rules == 12
    assert many.at(rules=1).rule_.promise.rules == 1
    assert model.rule_.promise.rules == 1


def test_asking_for_a_tpr_leaves_a_budget(model):
    budget = model.budget(0.2)
    assert budget.at(alpha=0.4).rule_.problem.share == 0.2
    assert budget.at(tpr_min=0.7).rule_.problem == ScodProblem(0.3, 0.7)
    assert budget.at(tpr_min=0.7).rule_.promise.bound == 0.7


def test_a_risk_bound_needs_a_slope_that_was_not_chosen_on_its_rows(data):
    model = POSCOD(LogisticRegression(), FAST, calibration=0.5, random_state=0).fit(*data[:2], X_unlabeled=data[2])
    assert model.budget(0.1).control_risk(0.2).rule_.problem.ranking == ScodProblem()
    with pytest.raises(InvalidInputError, match="slope is not chosen on the same rows"):
        model.with_rule(BoundedProblem(0.8, 0.5)).control_risk(0.2)
