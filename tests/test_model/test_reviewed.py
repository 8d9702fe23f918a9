"""Verdicts in fit: what people said of rows of the traffic corrects g and pi, and settles drift; without evidence nothing changes."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import check_grad
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from poscod import OOD, POSCOD, Activations
from poscod.backends.onnx import export_rule
from poscod.exceptions import InvalidInputError
from poscod.metrics import auroc
from poscod.model import InputsDriftedError, InputsDriftedWarning
from poscod.model._reviewed import Reviewed
from poscod.model._rows import keys_of
from poscod.problem import RiskBound, ScodProblem
from poscod.ratio import CorrectedSigmoid, EMRatio, FixedLinear, Side
from poscod.ratio import _verdicts as verdicts
from poscod.ratio._crossfit import side_losses
from poscod.review import queue
from poscod.selector import solve

CENTRES = np.random.default_rng(1).normal(0.0, 1.2, (3, 6))


def known(n, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return CENTRES[y] + rng.normal(size=(n, 6)) + shift, y


def world(n=450, k=45, seed=0, shift=0.0):
    """Labeled rows, a log with k OOD rows at its end, and its verdicts: class or OOD."""
    X, y = known(n, seed)
    log, said = known(n - k, seed + 1, shift)
    strange = np.random.default_rng(seed + 2).normal(0.0, 0.8, (k, 6)) + np.array([2.5, -2.5, 2.5, -2.5, 0.0, 0.0])
    return X, y, np.vstack([log, strange]), [*said.tolist(), *[OOD] * k]


X, Y, LOG, SAID = world()
ROWS = np.random.default_rng(3).permutation(len(LOG))[:90]
VERDICTS = [SAID[i] for i in ROWS]
TEMPLATE = {"tpr_min": 0.9, "alpha": 0.4, "random_state": 0}


def fit(X=X, y=Y, log=LOG, rows=ROWS, said=None, **options):
    said = [SAID[i] for i in rows] if said is None else said
    model = POSCOD(LogisticRegression(), **{**TEMPLATE, **options})
    return model.fit(X, y, X_unlabeled=log, X_reviewed=log[rows], y_reviewed=said)


@pytest.fixture(scope="module")
def plain():
    return POSCOD(LogisticRegression(), **TEMPLATE).fit(X, Y, X_unlabeled=LOG)


@pytest.fixture(scope="module")
def refit():
    return fit()


def test_the_rule_counts_the_verdicts_and_pi_is_near_the_truth(plain, refit):
    assert refit.rule_.verdicts == refit.calibration_.verdicts == 90
    assert "90 verdicts of people were used" in str(refit.rule_)
    assert refit.rule_.to_dict()["verdicts"] == 90
    assert plain.rule_.verdicts == 0
    assert "verdicts" not in str(plain.rule_)
    assert abs(refit.ood_prior_ - 0.1) < 0.03
    low, high = refit.ratio_.ood_prior_interval(0.95)
    assert low <= refit.ood_prior_ <= high
    assert refit.ratio_.ood_prior_lower_bound(0.95) <= refit.ood_prior_


def test_rows_that_are_not_in_the_log_and_empty_verdicts(refit):
    rest = np.setdiff1d(np.arange(len(LOG)), ROWS)
    outside = POSCOD(LogisticRegression(), **TEMPLATE).fit(
        X, Y, X_unlabeled=LOG[rest], X_reviewed=LOG[ROWS], y_reviewed=VERDICTS
    )
    assert outside.calibration_.verdicts == 90
    more = np.r_[ROWS, rest[:10]]
    some = fit(rows=more, said=[*VERDICTS, *[None] * 5, *[""] * 5])
    assert np.array_equal(some.log_ratio(LOG), refit.log_ratio(LOG))


def test_files_and_graphs_decide_the_same(refit, tmp_path):
    refit.save(tmp_path / "m.poscod")
    again = POSCOD.load(tmp_path / "m.poscod")
    far = np.vstack([LOG, 50.0 * LOG[:5]])
    assert np.array_equal(again.decide(far).score, refit.decide(far).score)
    runtime = pytest.importorskip("onnxruntime")
    proto = export_rule(refit)
    accept, log_ratio = runtime.InferenceSession(proto.SerializeToString()).run(["accept", "log_ratio"], {"input": far})
    own = refit.decide(far)
    assert np.array_equal(accept, own.accept)
    assert np.abs(log_ratio - own.log_ratio).max() < 1e-4
    facts = {entry.key: entry.value for entry in proto.metadata_props}
    assert "90 verdicts" in json.loads(facts["poscod.sentence"])


@pytest.mark.parametrize("kind", ["frame", "sparse", "network"])
def test_every_kind_of_rows(kind, refit):
    def made(x):
        if kind == "frame":
            return pd.DataFrame(x, columns=list("abcdef"))
        return sparse.csr_array(x) if kind == "sparse" else Activations(x, -0.5 * ((x[:, None] - CENTRES) ** 2).sum(2))

    classifier = None if kind == "network" else LogisticRegression()
    model = POSCOD(classifier, **TEMPLATE).fit(
        made(X), Y, X_unlabeled=made(LOG), X_reviewed=made(LOG[ROWS]), y_reviewed=VERDICTS
    )
    assert model.calibration_.verdicts == 90
    if kind == "frame":
        assert np.allclose(model.log_ratio(made(LOG)), refit.log_ratio(LOG))


@pytest.mark.parametrize(
    "ratio",
    [CorrectedSigmoid("paper", l2=1e-3), EMRatio(LogisticRegression()), FixedLinear(np.ones(6), 0.0)],
    ids=["paper", "em", "fixed"],
)
def test_every_ratio_is_corrected(ratio):
    # Verdicts contradict a ratio that is wrong: strangers must be strange afterwards.
    model = fit(ratio=ratio)
    g = model.log_ratio(LOG)
    assert g[-45:].mean() > g[:-45].mean() + 2.0


def test_a_ratio_that_says_never_is_corrected_too():
    """Log g of minus hundreds is read as -50 by the likelihood, and so it must be by what it corrects: strangers are strange afterwards."""
    model = fit(ratio=FixedLinear(np.zeros(6), -500.0))
    g = model.log_ratio(LOG)
    assert g[-45:].mean() > 0.0 > g[:-45].mean()
    assert model.calibration_.log_ratio.mean() < 0.0 < model.calibration_.traffic_log_ratio.max()


@pytest.mark.parametrize("calibration", ["auto", 0.5])
def test_a_gap_in_a_reviewed_row_does_not_take_the_features_from_the_ratio(calibration):
    rows = LOG[ROWS].copy()
    rows[3, 2] = np.nan
    model = POSCOD(HistGradientBoostingClassifier(max_iter=3), calibration=calibration, **TEMPLATE)
    with pytest.raises(InvalidInputError, match="X_reviewed must hold finite numbers like X, got gaps"):
        model.fit(X, Y, X_unlabeled=LOG, X_reviewed=rows, y_reviewed=VERDICTS)


@pytest.mark.parametrize("options", [{"calibration": 0.5}, {"threshold": "guaranteed", "delta": 0.2}])
def test_other_plans(options):
    model = fit(**options)
    assert model.calibration_.verdicts == 90
    assert abs(model.ood_prior_ - 0.1) < 0.05


def test_closed_gate_stays_closed_without_a_stranger_and_opens_with_some():
    fresh = known(400, 9)[0]
    said = known(400, 9)[1].tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = POSCOD(LogisticRegression(), **TEMPLATE).fit(X, Y, X_unlabeled=fresh)
        still = fit(log=fresh, rows=np.arange(40), said=said[:40])
        strange = fit(log=fresh, rows=np.arange(40), said=[*[OOD] * 4, *said[4:40]])
    assert plain.ood_prior_ == still.ood_prior_ == 0.0
    assert np.array_equal(plain.log_ratio(X), still.log_ratio(X))
    assert still.calibration_.verdicts == 40
    assert strange.ood_prior_ > 0.0


def test_clean_ood_rows_are_verdicts_of_one_kind(plain):
    model = fit(rows=np.arange(len(LOG) - 45, len(LOG))[::2])
    strange = LOG[-45:][1::2]
    assert model.decide(strange).accept.mean() <= plain.decide(strange).accept.mean()


def test_verdicts_settle_drift():
    X, y, log, said = world(1200, 60, seed=5, shift=np.r_[0.6, -0.6, 0.0, 0.0, 0.0, 0.0])
    fresh = known(2000, 11, np.r_[0.6, -0.6, 0.0, 0.0, 0.0, 0.0])[0]
    rows = np.random.default_rng(0).permutation(len(log))[:120]
    arguments = {"X_reviewed": log[rows], "y_reviewed": [said[i] for i in rows]}
    model = POSCOD(LogisticRegression(), tpr_min=0.95, on_drift="raise", random_state=0)
    with pytest.warns(InputsDriftedWarning, match="120 verdicts say which inputs are OOD"):
        model.fit(X, y, X_unlabeled=log, **arguments)  # settled, so not refused
    assert model.calibration_.settled
    assert model.rule_.promise.settled
    assert not model.rule_.promise.moved
    assert "Known inputs of the traffic have moved, and it is for them" in str(model.rule_)
    assert model.rule_.promise.condition.startswith("It speaks of the known inputs of the traffic, which have moved")
    assert 0.93 <= model.decide(fresh).accept.mean() <= 0.97
    # The threshold is set on rows of the traffic, each by its chance to be known: certain where somebody has looked.
    chance, stands = model.calibration_.traffic_known, model.calibration_.standing("zero_one")
    assert model.rule_.rows == len(log) == len(chance)
    accepted = model.rule_.decide(stands.scored).accept
    assert abs(np.average(accepted, weights=chance) - 0.95) < 0.002
    assert model.estimates().tpr.low <= 0.95 <= model.estimates().tpr.high
    by_key = dict(zip(model.calibration_.traffic_keys.tolist(), chance.tolist(), strict=True))
    assert [by_key[key] for key in keys_of(log[rows]).tolist()] == [float(said[i] is not OOD) for i in rows]
    assert model.decide(log[-60:]).accept.mean() < 0.1
    assert abs(model.ood_prior_ - 0.05) < 0.03
    assert model.ratio_.ood_prior_lower_bound(0.95) == 0.0


@pytest.mark.parametrize("calibration", ["auto", 0.5])
def test_nothing_is_guaranteed_for_known_inputs_that_have_moved(calibration):
    X, y, log, said = world(900, 45, seed=5, shift=np.r_[0.7, -0.7, 0.0, 0.0, 0.0, 0.0])
    rows = np.random.default_rng(0).permutation(len(log))[:120]
    arguments = {"X_reviewed": log[rows], "y_reviewed": [said[i] for i in rows]}
    how = {"threshold": "guaranteed", "calibration": calibration, "tpr_min": 0.9, "random_state": 0}
    with pytest.warns(InputsDriftedWarning):
        model = POSCOD(LogisticRegression(), **how).fit(X, y, X_unlabeled=log, **arguments)
    assert model.rule_.promise.moved == "drift"
    assert model.calibration_.traffic_known is None
    assert "Known inputs of the traffic seem to have moved: it is not promised for them." in str(model.rule_)
    settled = replace(model.calibration_, settled=True)  # as without a guarantee
    with pytest.raises(InvalidInputError, match="nothing is guaranteed about them"):
        solve(ScodProblem(0.5, 0.9), settled, delta=0.1)
    with pytest.raises(InvalidInputError, match="nothing is guaranteed about them"):
        solve(RiskBound(0.1, ranking=ScodProblem(0.5, 0.9)), settled)


def test_one_verdict_does_not_settle_drift():
    """Drift asks for some rejected rows; with fewer, what was decided about drift stands, and strangers are not let in."""
    X, y, log, said = world(500, 50, seed=5, shift=np.r_[0.8, -0.8, 0.0, 0.0, 0.0, 0.0])
    one = {"X_reviewed": log[:1], "y_reviewed": said[:1]}
    with pytest.raises(InputsDriftedError, match="rejected rows to settle it"):
        POSCOD(LogisticRegression(), on_drift="raise", **TEMPLATE).fit(X, y, X_unlabeled=log, **one)
    with pytest.warns(InputsDriftedWarning, match="Look at"):
        model = POSCOD(LogisticRegression(), **TEMPLATE).fit(X, y, X_unlabeled=log, **one)
    assert not model.calibration_.settled
    assert model.decide(log[-50:]).accept.mean() < 0.5


def test_class_verdicts_calibrate_r_where_the_mix_is_the_same():
    rng = np.random.default_rng(0)
    logits = np.log(rng.dirichlet([1.0, 1.0], 400))
    codes = (rng.random(400) < 0.5).astype(np.int64)  # the logits carry nothing
    reviewed = Reviewed(None, np.r_[codes[:200], -1], np.full(201, -1))
    seen = Activations(logits=np.r_[logits[:200], [[9.0, 0.0]]])

    class Mix:
        changed = False

    cold = reviewed.temperature(1.0, logits[200:], logits[200:].argmax(axis=1), seen, Mix)
    assert cold > 1.0
    Mix.changed = True
    assert reviewed.temperature(1.0, logits[200:], logits[200:].argmax(axis=1), seen, Mix) == 1.0


def test_verdicts_have_their_part_of_the_likelihood_of_the_ratio():
    """p(U, O | x) = e^u / (1 + a + e^u) and p(U, known | x) = a / (1 + a + e^u): together they are what an unlabeled row has."""
    u, la = np.r_[np.linspace(-30.0, 30.0, 13), 700.0, -700.0], 0.4
    plain, ood, same = (
        side_losses(u, 0, la, None if s is None else np.full(len(u), s, np.int8)) for s in (None, 1, -1)
    )
    assert np.allclose(np.logaddexp(-ood[0], -same[0]), -plain[0])
    labeled = side_losses(u, len(u), la)
    assert np.allclose(same[0] + la, labeled[0])
    assert np.allclose(same[1], labeled[1])
    near = np.abs(u) < 100.0
    for said in (ood, same):
        step = side_losses(u + 1e-6, 0, la, np.full(len(u), 1 if said is ood else -1, np.int8))[0] - said[0]
        assert np.allclose(step[near] / 1e-6, said[1][near], atol=1e-5)


@pytest.mark.filterwarnings("ignore::poscod.ratio.NoOODEvidenceWarning")
def test_verdicts_find_strangers_where_unlabeled_rows_show_none():
    """Strangers between the classes, which look more familiar than known inputs do: the whole ratio is learned again with what people say of rows there."""
    (X, y), fresh = known(700, 60), known(2000, 61)[0]
    centre = CENTRES[0] + np.array([0.0, 1.2, 0.0, 0.0, 1.2, 0.0])
    strange = centre + 0.7 * np.random.default_rng(4).normal(size=(400, 6))
    log, label = known(650, 62)
    log, said = np.vstack([log, strange[:50]]), [*label.tolist(), *[OOD] * 50]
    rows = np.unique(np.r_[np.argsort(((log - centre) ** 2).sum(axis=1))[:60], np.arange(0, 700, 16)])
    plain = POSCOD(LogisticRegression(), **TEMPLATE).fit(X, y, X_unlabeled=log)
    model = fit(X, y, log, rows, [said[i] for i in rows])
    assert model.ratio_.base.ood_prior is None
    assert model.ratio_.base.gate_open_ > plain.ratio_.gate_open_
    before, after = (auroc(m.log_ratio(fresh), m.log_ratio(strange[50:])) for m in (plain, model))
    assert before < 0.6
    assert after > 0.9
    assert abs(model.ood_prior_ - 50 / 700) < 0.03


@pytest.mark.parametrize("calibration", ["auto", 0.5])
def test_class_verdicts_repair_a_mix_that_strangers_fake(calibration):
    """Strangers exactly where a class lies are more of that class to unlabeled rows; verdicts say how many of them are not."""
    errors = []
    for seed in range(2):
        (X, y), (log, label) = known(900, 70 + seed), known(700, 80 + seed)
        strange = CENTRES[0] + np.random.default_rng(seed).normal(size=(200, 6))
        log, said = np.vstack([log, strange]), [*label.tolist(), *[OOD] * 200]
        rows = np.random.default_rng(9 + seed).permutation(len(log))[:150]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = POSCOD(LogisticRegression(), calibration=calibration, **TEMPLATE).fit(X, y, X_unlabeled=log)
            model = fit(X, y, log, rows, [said[i] for i in rows], calibration=calibration)
        true = np.bincount(label) / len(label)
        errors.append([0.5 * np.abs(m.calibration_.mix.traffic - true).sum() for m in (plain, model)])
    before, after = np.mean(errors, axis=0)
    assert before > 0.08
    assert after < 0.6 * before


def test_the_gradient_is_that_of_the_likelihood():
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, 8)) for n in (30, 20, 12)]
    sides = tuple(Side(None, rng.normal(size=len(part)), rng.random(len(part)) + 0.5) for part in x)
    likelihood = verdicts._Likelihood(x, sides, rng.random(12) < 0.4, 0.2)
    weight = rng.random(12)
    for still in (True, False):
        candidate = verdicts.Candidate(np.full(6, 3.0), still)
        at = rng.normal(0.0, 0.3, 8)
        error = check_grad(*(lambda p, j=j, c=candidate: likelihood._loss(p, c, weight)[j] for j in range(2)), at)
        assert error < 1e-4


@pytest.mark.slow
def test_pi_is_not_the_share_of_ood_among_reviewed_rows():
    """Rows chosen by log g are mostly OOD: pi stays what it is, over many draws of a world whose log g is known but for a shift."""
    found, share = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        is_ood = rng.random(3000) < 0.07
        x, own = rng.normal(0.0, 1.0, 3000) + 2.0 * is_ood, rng.normal(size=3000)
        log_g = 2.0 * x - 2.0
        rows = [Activations(v[:, None], np.c_[v, -v]) for v in (own, x)]
        wrong = 1.0  # the ratio that is corrected says e times too much
        top = np.argsort(-(log_g + rng.normal(size=3000)))[:200]
        sides = Side(rows[0], 2.0 * own - 2.0 + wrong), Side(rows[1], log_g + wrong)
        learned = verdicts.learn(
            *sides, Side(rows[1][top], log_g[top] + wrong), is_ood[top], 0.07, doubt=verdicts.DOUBT, places=top
        )
        found.append(learned.pi - is_ood.mean())
        share.append(is_ood[top].mean())
        assert not learned.moved
    assert np.mean(share) > 0.4
    assert abs(np.mean(found)) < 0.006
    assert np.std(found) < 0.012


def test_averages_leave_the_start_only_with_evidence():
    rng = np.random.default_rng(2)
    x, own = rng.normal(size=600), rng.normal(size=600)
    is_ood = rng.random(600) < expit(2.0 * x - 2.0 + logit(0.1))
    rows = [Activations(v[:, None], np.c_[v, -v]) for v in (own, x)]
    some = np.arange(30)
    right = 2.0 * x - 2.0
    learned = verdicts.learn(
        Side(rows[0], 2.0 * own - 2.0), Side(rows[1], right), Side(rows[1][some], right[some]), is_ood[some], 0.1,
        doubt=verdicts.DOUBT, places=some,
    )  # fmt: skip
    inside = np.abs(x) < 2.0
    assert np.abs(learned.correction(rows[1], right) - right)[inside].max() < 1.0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"X_reviewed": LOG[:5]}, "X_reviewed needs y_reviewed beside it"),
        ({"y_reviewed": [0]}, "y_reviewed needs X_reviewed beside it"),
        ({"X_reviewed": LOG[:5], "y_reviewed": [0] * 4}, "y_reviewed must have as many rows as X_reviewed (5), got 4"),
        ({"X_reviewed": LOG[:2], "y_reviewed": [0, 7]}, "must hold a class ('0', '1', '2'), poscod.OOD"),
        ({"X_reviewed": LOG[:2], "y_reviewed": [None, ""]}, "y_reviewed must hold a verdict"),
        ({"X_reviewed": X[:2], "y_reviewed": [OOD, None]}, "an input that is labeled"),
        (
            {"X_reviewed": Activations(LOG[:2], LOG[:2, :3]), "y_reviewed": [0, 0]},
            "X_reviewed must be of the kind of X",
        ),
        ({"X_reviewed": X, "y_reviewed": Y}, "X_reviewed holds exactly the rows of X"),
        ({"X_reviewed": LOG[:2], "y_reviewed": [0, OOD], "X_unlabeled": None}, "there is no traffic"),
    ],
)
@pytest.mark.filterwarnings("ignore::poscod.model.NoUnlabeledDataWarning")
def test_one_sentence_for_bad_input(given, sentence):
    with pytest.raises(InvalidInputError) as error:
        POSCOD(LogisticRegression(), **TEMPLATE).fit(X, Y, **{"X_unlabeled": LOG, **given})
    assert sentence in str(error.value)


def test_other_columns_are_refused():
    frames = [pd.DataFrame(rows, columns=list("abcdef")) for rows in (X, LOG)]
    other = pd.DataFrame(LOG[:3], columns=list("abcdeg"))
    with pytest.raises(InvalidInputError, match="X_reviewed lacks the column 'f'"):
        POSCOD(LogisticRegression(), **TEMPLATE).fit(
            frames[0], Y, X_unlabeled=frames[1], X_reviewed=other, y_reviewed=[0, 1, OOD]
        )


@pytest.mark.parametrize("moved", [True, False])
def test_verdicts_settle_what_unlabeled_rows_cannot_tell(moved):
    """With three columns known inputs that moved and strangers near them are the same to unlabeled rows; people tell them apart."""
    rng = np.random.default_rng(0)

    def inputs(n, shift=0.0):
        y = rng.integers(0, 2, n)
        return rng.normal(size=(n, 3)) + np.c_[2.5 * y, np.full(n, shift), np.zeros(n)], y

    x, y = inputs(800)
    log, said = inputs(800, 0.7) if moved else inputs(600)
    said = said.tolist()
    if not moved:
        log, said = np.vstack([log, rng.normal(size=(200, 3)) + np.array([1.2, 1.2, 0.0])]), said + [OOD] * 200
    new = POSCOD(LogisticRegression(), alpha=0.4, tpr_min=0.9, random_state=0)
    with pytest.warns(InputsDriftedWarning, match="cannot tell"):
        before = clone(new).fit(x, y, X_unlabeled=log)
    assert before.calibration_.drift.said == "undecided"
    assert before.ratio_.ood_prior_lower_bound() == 0.0
    at = queue(before, log, 120, random_state=0).index
    how = {"X_unlabeled": log, "X_reviewed": log[at], "y_reviewed": [said[i] for i in at]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = clone(new).fit(x, y, **how)
    known_inputs = inputs(3000, 0.7 if moved else 0.0)[0]
    assert 0.87 < after.decide(known_inputs).accept.mean() < (0.96 if moved else 0.93)
    if moved:
        assert before.decide(known_inputs).accept.mean() < 0.8
        assert (after.calibration_.drift.said, after.calibration_.drift.verdicts) == ("drift", 120)
        assert after.rule_.promise.settled
        assert after.ood_prior_ < 0.02
    else:
        assert after.calibration_.drift is None
        assert after.rule_.promise.moved is None
        assert after.ood_prior_ == pytest.approx(0.25, abs=0.06)


def test_a_few_verdicts_that_are_all_alike_leave_some_doubt():
    """Without stillness nothing else says how many inputs are OOD: twenty known ones must not say that there are none."""
    rng = np.random.default_rng(0)

    def inputs(n, shift):
        y = rng.integers(0, 2, n)
        return rng.normal(size=(n, 6)) + np.c_[2.5 * y, np.full((n, 3), shift), np.zeros((n, 2))], y

    x, y = inputs(500, 0.0)
    log, said = inputs(475, 0.6)
    strangers = rng.normal(size=(200, 6)) + np.array([0.0, 0.0, 0.0, 0.0, 4.0, 4.0])
    how = {"X_unlabeled": np.vstack([log, strangers[:25]]), "X_reviewed": log[:20], "y_reviewed": said[:20]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = POSCOD(LogisticRegression(), alpha=0.4, tpr_min=0.9, random_state=0).fit(x, y, **how)
    assert model.calibration_.drift.said == "drift"
    assert 0.01 < model.ood_prior_ < 0.2
    # It is two thirds where twenty verdicts say that there are none.
    assert model.decide(strangers[25:]).accept.mean() < 0.45
