"""tpr_over="classes" on the object users hold: every class of fresh rows, other costs, clones, grids, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from poscod import POSCOD, Activations, ScodProblem
from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.model import read_sample, rule_at, rules_of
from poscod.monitor import Reference
from poscod.problem import Budget, CostProblem, CoverageProblem, RiskBound
from poscod.ratio import CorrectedSigmoid
from poscod.report._sections import promise_section
from poscod.report._words import promise_sentence
from poscod.selector import rows_needed, solve
from poscod.theory import GaussianWorld

FAST = CorrectedSigmoid(recipe="paper", l2=1e-4)
# The third class lies between the others and near the strangers: most of what is rejected is of that class.
WORLD = GaussianWorld([[0.0, 0.0], [5.0, 0.0], [2.5, 1.5]], [[2.5, 5.0]])


@pytest.fixture(scope="module")
def data():
    X, y = WORLD.sample_id(1800, random_state=0)
    U, _ = WORLD.sample_mixture(800, pi=0.2, random_state=1)
    return X, y, U


@pytest.fixture(scope="module")
def fitted(data):
    X, y, U = data
    asked = POSCOD(LogisticRegression(), FAST, alpha=0.3, tpr_min=0.9, delta=0.1, random_state=0)

    def fit(**parameters):
        return clone(asked).set_params(**parameters).fit(X, y, X_unlabeled=U)

    return {
        "all": fit(),
        "classes": fit(tpr_over="classes"),
        "all guaranteed": fit(threshold="guaranteed"),
        "classes guaranteed": fit(threshold="guaranteed", tpr_over="classes"),
    }


def tpr_by_class(model, n=20_000):
    X, y = WORLD.sample_id(n, random_state=5)
    accept = model.decide(X).accept
    return np.array([accept[y == k].mean() for k in range(3)])


def test_every_class_of_fresh_rows_is_accepted(fitted):
    """The hard class is short of the TPR that all classes together reach, guaranteed or not; with "classes" it is not."""
    assert tpr_by_class(fitted["all"]).min() < 0.84
    assert tpr_by_class(fitted["all guaranteed"]).min() < 0.9
    assert tpr_by_class(fitted["classes"]).min() == pytest.approx(0.9, abs=0.02)
    assert tpr_by_class(fitted["classes guaranteed"]).min() >= 0.9
    assert len(fitted["classes guaranteed"].calibration_) == len(fitted["all guaranteed"].calibration_)


def test_what_is_asked_stays(fitted, tmp_path):
    for name in ("classes", "classes guaranteed"):
        model = fitted[name]
        delta = model.delta if "guaranteed" in name else None
        model.save(tmp_path / "m.poscod")
        for kept in (model, POSCOD.load(tmp_path / "m.poscod")):
            assert kept.get_params()["tpr_over"] == kept.rule_.promise.over == "classes"
            moved = kept.at(alpha=0.1, tpr_min=0.85)
            assert moved.tpr_over == moved.rule_.promise.over == "classes"
            expected = solve(
                ScodProblem(0.1, 0.85), kept.calibration_, delta=delta, chosen_later=True, tpr_over="classes"
            )
            assert moved.rule_ == expected
            back = kept.budget(0.1).at(tpr_min=0.85)  # a budget has no TPR, and what follows has one again
            assert back.rule_.promise.over == "classes"
            assert clone(kept).tpr_over == "classes"
        assert model.budget(0.1).rule_.promise is None
    assert fitted["classes guaranteed"].control_risk(0.4).rule_.promise.over == "all"


def test_a_grid_searches_over_it(data):
    X, y, U = data
    rows, marked = np.vstack([X, U]), np.append(y, np.full(len(U), -1))
    search = GridSearchCV(
        POSCOD(LogisticRegression(), FAST, random_state=0),
        {"tpr_over": ["all", "classes"]},
        cv=ShuffleSplit(1, random_state=0),
    ).fit(rows, marked)
    assert search.best_estimator_.rule_.promise.over == search.best_params_["tpr_over"]
    assert len(set(search.cv_results_["mean_test_score"])) == 2


def test_rivals_are_asked_for_the_same(fitted):
    X, y = WORLD.sample_id(300, random_state=6)
    sample = read_sample(fitted["classes"], X, y, None, None)
    own, *rivals = rules_of(sample)
    known = sample.calibration.known("zero_one")
    for rule in (own, *rivals):
        accept = rule.score(known) <= rule.threshold
        assert min(accept[sample.calibration.codes == k].mean() for k in range(3)) >= 0.9
    assert rule_at("poscod", sample, 0.9).threshold == own.threshold


def test_a_report_does_not_call_it_held_for_all_classes_together(fitted):
    X, y = WORLD.sample_id(4000, random_state=7)
    measured = fitted["classes guaranteed"].evaluate(X, y, X[:5])
    assert measured.tpr.low > 0.9
    section = promise_section(fitted["classes guaranteed"].rule_, measured)
    assert (section["verdict"], section["over"]) == ("open", "classes")
    shown = {**section, "measured": measured.tpr._asdict()}
    assert "not contradicted: TPR of every class is at least 0.9" in promise_sentence(shown, 4000)
    assert "on 4,000 fresh rows TPR of all classes together is 0.9" in promise_sentence(shown, 4000)
    assert promise_section(fitted["all guaranteed"].rule_, measured)["verdict"] == "held"


def test_documents_written_before_are_read(fitted):
    """A reference whose rule says nothing of classes and mixes."""
    document = json.loads(json.dumps(Reference.from_model(fitted["all"]).to_dict()))
    for field in ("over", "mix"):
        del document["rule"]["promise"][field]
    assert Reference.from_dict(document).tpr_promised == 0.9


@pytest.mark.parametrize(
    "problem",
    [CostProblem(0.3, 2.0), CoverageProblem(), Budget(0.1), RiskBound(0.2)],
    ids=lambda problem: type(problem).__name__,
)
def test_problems_without_a_tpr_are_refused(data, problem):
    X, y, U = data
    with pytest.raises(
        InvalidInputError,
        match=f"^tpr_over = 'classes' needs a problem that asks for a TPR, such as ScodProblem, got {type(problem).__name__}: use",
    ):
        POSCOD(problem=problem, tpr_over="classes").fit(X, y, X_unlabeled=U)


def test_other_words_are_refused(data):
    X, y, U = data
    with pytest.raises(InvalidInputError, match="tpr_over must be one of 'all', 'classes', got 'every'"):
        POSCOD(tpr_over="every").fit(X, y, X_unlabeled=U)


@pytest.mark.filterwarnings("ignore::poscod.model.ClassMixWarning")  # true: labeled rows of a class are left out
def test_a_rare_class_is_named(data):
    X, y, U = data
    few = np.flatnonzero((y != 2) | (np.cumsum(y == 2) <= 40))
    model = POSCOD(LogisticRegression(), FAST, tpr_min=0.9, threshold="guaranteed", tpr_over="classes", random_state=0)
    needed = rows_needed(0.9, delta=0.05 / 3)
    with pytest.raises(
        InfeasibleProblemError, match=rf"needs at least {needed} held-out rows of each class, got 1\d? of class 2"
    ):
        model.fit(X[few], y[few], X_unlabeled=U)
    empirical = clone(model).set_params(threshold="empirical").fit(X[few], y[few], X_unlabeled=U)
    assert empirical.rule_.promise.over == "classes"


@pytest.mark.parametrize("threshold", ["empirical", "guaranteed"])
def test_a_class_of_a_network_without_labels_is_named(data, threshold):
    """A network may know more classes than the labeled rows do."""
    X, y, U = data
    head = FrozenEstimator(LogisticRegression().fit(X[::3], y[::3]))
    X, y = (part[np.arange(len(part)) % 3 > 0] for part in (X, y))  # rows that it was not trained on
    rows, traffic = (
        Activations(part, np.column_stack([head.decision_function(part), np.full(len(part), -20.0)]), labels)
        for part, labels in ((X, y), (U, None))
    )
    model = POSCOD(None, FAST, tpr_min=0.9, threshold=threshold, random_state=0)
    assert model.fit(rows, X_unlabeled=traffic).rule_.promise.over == "all"
    with pytest.raises(InfeasibleProblemError, match=r"(none|0) of class 3") as told:
        model.set_params(tpr_over="classes").fit(rows, X_unlabeled=traffic)
    assert (told.value.facts["label"], told.value.facts["got"]) == (3, 0)
