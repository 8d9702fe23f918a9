"""Groups and near-copies: a group is on one side of everything, errors count groups, and near-copies are found where there are some."""

from __future__ import annotations

import re
import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.naive_bayes import GaussianNB

from poscod import POSCOD, Activations
from poscod.exceptions import InfeasibleProblemError, InvalidInputError
from poscod.model import NearCopiesWarning
from poscod.model._groups import near_copies
from poscod.monitor import Reference
from poscod.problem import RiskBound
from poscod.ratio import CorrectedSigmoid, EMRatio, NoOODEvidenceWarning
from poscod.ratio._rows import group_keys, independent_rows

pytestmark = pytest.mark.filterwarnings("ignore::poscod.ratio.UndeterminedPriorWarning")
FAST = CorrectedSigmoid(recipe="paper", l2=1e-4)
CENTRES = np.random.default_rng(0).normal(0.0, 1.0, (3, 10))


def draw(n, rng):
    y = rng.integers(0, 3, n)
    return CENTRES[y] + rng.normal(size=(n, 10)), y


def copied(n, times, jitter, rng):
    X, y = draw(n, rng)
    X = np.repeat(X, times, axis=0)
    return X + jitter * rng.normal(size=X.shape), np.repeat(y, times), np.repeat(np.arange(n), times)


def users(n, rng, first=0):
    """Rows of users who differ more from each other than their rows do; sizes are 1 to 7."""
    y = rng.integers(0, 2, n)
    centre = np.stack([2.5 * y, np.zeros(n)], axis=1) + rng.normal(size=(n, 2))
    group = np.repeat(np.arange(n), rng.integers(1, 8, n))
    return centre[group] + 0.2 * rng.normal(size=(len(group), 2)), y[group], first + group


class Notebook(ClassifierMixin, BaseEstimator):
    """Notes which groups, the first column, it was fitted on and asked about."""

    fits: ClassVar[list] = []

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X[:, 1:], y)
        self.classes_, self.groups_, self.asked_ = self.inner_.classes_, set(X[:, 0]), []
        Notebook.fits.append(self)
        return self

    def predict_proba(self, X):
        self.asked_.append(set(X[:, 0]))
        return self.inner_.predict_proba(X[:, 1:])


@pytest.mark.parametrize(("n", "times"), [(240, 10), (1200, 2)])
@pytest.mark.parametrize("given", [True, False])
def test_near_copies_are_no_ood(n, times, given):
    """Before, pi_hat was .7 to .99 with a certificate, and the TPR .3 to .94."""
    rng = np.random.default_rng(3)
    X, y, group = copied(n, times, 0.1, rng)
    traffic, fresh = draw(2400, rng)[0], draw(8000, rng)[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = POSCOD(random_state=0).fit(X, y, traffic, groups=group if given else None)
    assert model.ood_prior_ <= 0.03
    assert model.ratio_.ood_prior_lower_bound() <= 0.03
    # Of 240 originals the TPR is known to .014 only; of 1,200 to .006.
    assert abs(model.decide(fresh).accept.mean() - 0.95) <= (0.03 if n == 240 else 0.02)
    named = [w.message.facts for w in caught if isinstance(w.message, NearCopiesWarning)]
    if given:
        assert not named
        assert model.rule_.promise.groups == n
    else:
        assert 0.95 * n * times < named[0]["rows"] <= n * times
        assert 0.9 * n < named[0]["found"] <= 1.05 * n


def test_strangers_are_found_beside_near_copies():
    rng = np.random.default_rng(0)
    X, y, _ = copied(240, 10, 0.1, rng)
    traffic = np.concatenate([draw(1400, rng)[0], 0.7 * rng.normal(size=(600, 10)) + 2.0])
    with pytest.warns(NearCopiesWarning):
        model = POSCOD(random_state=0).fit(X, y, traffic)
    assert abs(model.ood_prior_ - 0.3) < 0.06
    assert model.ratio_.ood_prior_lower_bound() <= 0.3
    assert model.decide(0.7 * rng.normal(size=(500, 10)) + 2.0).accept.mean() < 0.1


@pytest.mark.parametrize(
    "how", [{}, {"threshold": "guaranteed", "delta": 0.3}, {"calibration": 0.5}, {"calibration": 4}]
)
@pytest.mark.filterwarnings("ignore::poscod.model.ClassMixWarning")  # traffic of noise has any mix
def test_a_group_is_on_one_side_of_every_split(how):
    rng = np.random.default_rng(1)
    X, y, group = users(150, rng)
    X = np.column_stack([group, X])
    Notebook.fits.clear()
    # Some groups go on in the traffic: it is never looked at by what has seen them.
    traffic = np.column_stack([np.r_[group[:200], 10**6 + np.arange(200)], rng.normal(size=(400, 2))])
    model = POSCOD(Notebook(), FAST, tpr_min=0.8, random_state=0, **how)
    model.fit(X, y, traffic, groups=group, groups_unlabeled=traffic[:, 0])
    assert len(Notebook.fits) == (1 if how.get("calibration") == 0.5 else 1 + how.get("calibration", 5))
    # The first fit is that of all rows which are not held out, the others leave a fold out; by shares there is one fit.
    if how.get("calibration") == 0.5:
        held = Notebook.fits[0].asked_[0]
        assert held
        assert not held & Notebook.fits[0].groups_
    for fit in Notebook.fits[1:]:
        assert len(fit.asked_) == 2, "both sides of the fold"
        assert not set.union(*fit.asked_) & fit.groups_
    if "threshold" in how:
        assert model.calibration_.n_groups < 60
        assert model.rule_.promise.groups == model.calibration_.n_groups


def test_ratio_counts_groups():
    rng = np.random.default_rng(2)
    X, _, group = copied(100, 8, 0.05, rng)
    U, _, other = copied(120, 8, 0.05, rng)
    for estimator in (CorrectedSigmoid(gate_level=None), EMRatio(LogisticRegression())):
        rows, groups = clone(estimator).fit(X, U), clone(estimator).fit(X, U, groups_id=group, groups_unlabeled=other)
        assert (rows.acceptance_.n_id, rows.acceptance_.n_unlabeled) == pytest.approx((800, 960))
        assert (groups.acceptance_.n_id, groups.acceptance_.n_unlabeled) == pytest.approx((100, 120))
        assert rows.ood_prior_lower_bound() > 0.0  # the copies of a row are in other folds
        assert groups.ood_prior_lower_bound() == 0.0
    strange = U + 3.0 * (other < 50)[:, None]
    wide = [
        np.diff(CorrectedSigmoid("paper", l2=0.01).fit(X, strange, **how).ood_prior_interval())[0]
        for how in ({}, {"groups_id": group, "groups_unlabeled": other})
    ]
    assert wide[1] > 1.5 * wide[0]
    with pytest.raises(InvalidInputError, match=r"groups_id must hold one group for each of the 800 rows of X_id"):
        CorrectedSigmoid().fit(X, U, groups_id=group[:5])


@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("fits", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_the_gate_keeps_its_level_with_groups(sized, fits):
    """Users with several rows on both sides: rows alone open the gate in nearly all fits. The level is .05, and as much is exceeded once in a thousand times."""
    opened = 0
    for seed in range(fits):
        rng = np.random.default_rng(seed)
        (X, _, one), (U, _, two) = users(60, rng), users(80, rng, first=10**6)
        if sized:  # far out users have more rows
            far = [np.repeat(np.arange(len(g)), 1 + 4 * (np.abs(x[:, 1]) > 1.0)) for x, g in ((X, one), (U, two))]
            X, one, U, two = X[far[0]], one[far[0]], U[far[1]], two[far[1]]
            X, U = X + 0.01 * rng.normal(size=X.shape), U + 0.01 * rng.normal(size=U.shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoOODEvidenceWarning)
            opened += CorrectedSigmoid().fit(X, U, groups_id=one, groups_unlabeled=two).gate_open_
    assert opened <= binom.ppf(0.999, fits, 0.05)


def test_thresholds_count_every_group_once():
    rng = np.random.default_rng(4)
    X, y, group = users(400, rng)
    model = POSCOD(GaussianNB(), FAST, tpr_min=0.8, class_mix="labeled", random_state=0)
    model.fit(X, y, rng.normal(size=(300, 2)), groups=group)
    rows = model.calibration_
    score = model.rule_.score(rows.known("zero_one"))
    share = pd.Series(score <= model.threshold_).groupby(rows.groups).mean().mean()
    assert 0.8 <= share < 0.81
    sentence = str(model.rule_)
    assert (
        f"each group counting once, are accepted: met on average over {len(X):,} calibration rows of 400 groups"
        in sentence
    )
    assert "a random one of a fresh group" in model.rule_.promise.condition
    assert model.rule_.to_dict()["promise"]["groups"] == 400


def test_guarantees_take_one_row_of_each_group(tmp_path):
    rng = np.random.default_rng(5)
    X, y, group = users(400, rng)
    model = POSCOD(GaussianNB(), FAST, tpr_min=0.8, threshold="guaranteed", class_mix="labeled", random_state=0)
    model.fit(X, y, rng.normal(size=(300, 2)), groups=group)
    held = model.calibration_
    one = held.independent()
    assert len(one) == held.n_groups == model.rule_.promise.groups
    assert model.rule_.rows == len(held) > 2 * len(one)
    assert re.search(rf"over {len(one)} held-out groups \({len(held)} rows\)\.", str(model.rule_))
    # The rows are drawn from all places of a group.
    places = pd.Series(np.arange(len(held))).groupby(held.groups).rank().to_numpy()
    chosen = np.isin(held.log_ratio, one.log_ratio)
    assert {1, 2, 3, 4, 5} <= set(places[chosen].astype(int))
    assert model.with_rule(RiskBound(0.3, 0.1)).rule_.promise.groups == len(one)
    with pytest.raises(
        InfeasibleProblemError, match=r"needs at least 229 held-out ID rows, got 100.* A group counts as one row\.$"
    ):
        model.at(tpr_min=0.987)
    model.save(tmp_path / "m.poscod")
    again = POSCOD.load(tmp_path / "m.poscod")
    assert again.at(tpr_min=0.85).rule_ == model.at(tpr_min=0.85).rule_
    assert Reference.from_model(model).n_id == len(one)


def test_marked_rows_have_their_groups_in_groups():
    rng = np.random.default_rng(6)
    X, y, group = users(120, rng)
    U, _, other = users(100, rng, first=500)
    both = POSCOD(GaussianNB(), random_state=0), POSCOD(GaussianNB(), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both[0].fit(X, y, U, groups=group, groups_unlabeled=other)
        both[1].fit(np.concatenate([X, U]), np.r_[y, np.full(len(U), -1)], groups=np.r_[group, other])
    np.testing.assert_allclose(both[0].log_ratio(U), both[1].log_ratio(U))
    assert both[0].threshold_ == pytest.approx(both[1].threshold_)
    with pytest.raises(InvalidInputError, match="are the groups of the rows of X_unlabeled, which is not given"):
        both[1].fit(np.concatenate([X, U]), np.r_[y, np.full(len(U), -1)], groups_unlabeled=other)


def test_bad_groups_are_refused_in_a_sentence():
    X, y, group = users(50, np.random.default_rng(0))
    U = np.random.default_rng(1).normal(size=(60, 2))
    model = POSCOD(GaussianNB(), FAST)
    with pytest.raises(
        InvalidInputError, match=rf"^groups must hold one group for each of the {len(X)} rows of X, got shape \(3,\)\.$"
    ):
        model.fit(X, y, U, groups=group[:3])
    with pytest.raises(
        InvalidInputError, match=r"^groups_unlabeled must hold one group for each of the 60 rows of X_unlabeled"
    ):
        model.fit(X, y, U, groups_unlabeled=group[:3])
    with pytest.raises(InvalidInputError, match=r"^groups must hold at least two groups of labeled rows, got one"):
        model.fit(X, y, U, groups=np.zeros(len(X)))


def test_names_of_groups():
    keys = group_keys([1.0, 1, "1", "a", None, float("nan"), pd.NA], "groups", "X", 7)
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys.tolist())) == 5
    assert group_keys(pd.Series([None, "a"]), "groups", "X", 2)[1] == keys[3]
    assert group_keys(np.array([1.0, np.nan]), "groups", "X", 2)[0] == keys[0]
    assert independent_rows(np.ones(7), keys) == pytest.approx(49 / 13)


def test_scikit_learn_passes_groups():
    rng = np.random.default_rng(7)
    X, y, group = users(90, rng)
    U, _, other = users(60, rng, first=500)
    rows, labels, groups = np.concatenate([X, U]), np.r_[y, np.full(len(U), -1)], np.r_[group, other]
    with config_context(enable_metadata_routing=True):
        inner = POSCOD(GaussianNB(), FAST, random_state=0).set_fit_request(groups=True)
        search = GridSearchCV(inner, {"calibration": [2, 3]}, cv=GroupKFold(3)).fit(rows, labels, groups=groups)
    best = search.best_estimator_
    assert best.rule_.promise.groups == 90
    assert clone(best).fit(rows, labels, groups=groups).threshold_ == best.threshold_


def test_activations_have_groups():
    rng = np.random.default_rng(8)
    X, y, group = copied(120, 5, 0.1, rng)
    U = draw(600, rng)[0]
    rows, traffic = (Activations(part, part @ CENTRES.T - 0.5 * (CENTRES**2).sum(1)) for part in (X, U))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = POSCOD(random_state=0).fit(rows, y, traffic, groups=group)
        found = POSCOD(random_state=0).fit(rows, y, traffic)
    assert given.rule_.promise.groups == 120
    assert given.ood_prior_ == found.ood_prior_ == 0.0
    assert sum(isinstance(w.message, NearCopiesWarning) for w in caught) == 1


def finds(X, y, traffic):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearCopiesWarning)
        return near_copies(X, traffic, np.asarray(y, dtype=np.int64)) is not None


def halves(X, y):
    n = len(X) // 2
    return X[:n], y[:n], np.array(X[n:], dtype=np.float64)


def ordinary(name, rng):
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        order = rng.permutation(len(y))
        return halves(X[order], y[order])
    if name == "discrete":  # most rows occur several times
        return halves(rng.integers(0, 3, (1200, 5)).astype(float), rng.integers(0, 2, 1200))
    if name == "ticks":  # dummies, and one column of fine steps
        X = rng.integers(0, 3, (1200, 5)).astype(float)
        X[:, 0] = rng.integers(0, 10**5, 1200)
        return halves(X, rng.integers(0, 2, 1200))
    if name == "heavy":
        X = rng.standard_cauchy((1200, 4))
        return halves(X, X[:, 0] > 0)
    if name == "tight":  # one class in a small place, and less of it in the traffic
        y = rng.random(1200) < np.repeat([0.5, 0.15], 600)
        return halves(rng.normal(size=(1200, 5)) * np.where(y, 0.01, 1.0)[:, None], y)
    X, y, traffic = halves(*draw(1200, rng))
    if name == "strange":
        traffic[:540] += 8.0
    elif name == "elsewhere":
        traffic += 8.0
    return X, y, traffic


@pytest.mark.parametrize("name", ["digits", "discrete", "ticks", "heavy", "tight", "strange", "elsewhere", "plain"])
def test_ordinary_rows_are_no_near_copies(name):
    assert sum(finds(*ordinary(name, np.random.default_rng(seed))) for seed in range(30)) <= 1


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("kind", ["array", "frame", "gaps"])
def test_near_copies_are_found(share, kind):
    rng = np.random.default_rng(9)
    X, y = draw(600, rng)
    some = rng.permutation(600)[: int(600 * share)]
    X, y = np.concatenate([X, X[some] + 0.05 * rng.normal(size=(len(some), 10))]), np.r_[y, y[some]]
    X *= 10.0 ** np.arange(-5, 5)  # units mean nothing
    traffic = draw(700, rng)[0] * 10.0 ** np.arange(-5, 5)
    if kind == "frame":
        X, traffic = (pd.DataFrame(part).assign(text="a") for part in (X, traffic))
    elif kind == "gaps":
        X[::50, 3], traffic[::50, 3] = np.nan, np.nan
    with pytest.warns(NearCopiesWarning) as caught:
        group = near_copies(X, traffic, y)
    pairs = [group[i] == group[600 + j] for j, i in enumerate(some)]
    assert np.mean(pairs) > 0.9
    assert caught[0].message.facts["found"] >= 0.85 * len(some)
    assert not finds(X[:600], y[:600], traffic)


def test_equal_rows_are_no_near_copies_and_stay_with_their_copies():
    rng = np.random.default_rng(10)
    X, y = draw(300, rng)
    again = np.repeat(np.arange(300), 4)
    traffic = draw(500, rng)[0]
    assert not finds(X[again], y[again], traffic)
    near = np.concatenate([X[again], X + 0.01 * rng.normal(size=X.shape)])
    with pytest.warns(NearCopiesWarning, match="1500 of 1500 rows of X are near-copies of each other, in 300 groups"):
        group = near_copies(near, traffic, np.r_[y[again], y])
    assert (group[:1200] == np.repeat(group[1200:], 4)).all()
