from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from poscod.exceptions import InvalidInputError
from poscod.ratio import NNPU, WOODS, CorrectedSigmoid, EMRatio, FixedLinear, Ratio, StandardSigmoid

FAMILY = {
    "strong": CorrectedSigmoid(),
    "paper": CorrectedSigmoid("paper", l2=1e-4),
    "standard": StandardSigmoid(),
    "em": EMRatio(LogisticRegression()),
    "nnpu": NNPU(),
    "woods": WOODS(),
    "fixed": FixedLinear(np.full(4, 1.5), -4.5, ood_prior=0.3),
}


def gaussians(rng, d=4, pi=0.3, m=1500, n=1200, distance=3.0):
    mu = np.full(d, distance / np.sqrt(d))
    k = round(pi * n)
    test = np.vstack([rng.normal(size=(500, d)), mu + rng.normal(size=(500, d))])
    return (
        rng.normal(size=(m, d)),
        np.vstack([rng.normal(size=(n - k, d)), mu + rng.normal(size=(k, d))]),
        test,
        test @ mu - 0.5 * mu @ mu,
    )


@pytest.mark.parametrize("name", sorted(FAMILY))
def test_family_shares_one_interface(rng, name):
    x_id, x_u, test, exact = gaussians(rng)
    est = FAMILY[name]
    assert isinstance(est, Ratio)
    assert est.fit(x_id, x_u) is est
    log_g = est.log_ratio(test)
    assert log_g.shape == (1000,)
    assert log_g.dtype == np.float64
    assert np.isfinite(log_g).all()
    assert np.corrcoef(log_g, exact)[0, 1] > 0.93
    low, high = est.ood_prior_interval(0.9)
    assert 0.0 <= low <= high <= 1.0
    assert 0.0 <= est.ood_prior_lower_bound() <= 0.3
    with pytest.raises(InvalidInputError, match="level"):
        est.ood_prior_interval(0.0)


@pytest.mark.parametrize("name", ["strong", "paper", "em", "nnpu"])
def test_prior_is_estimated(rng, name):
    x_id, x_u, _, _ = gaussians(rng, n=1500, m=1800)
    assert FAMILY[name].fit(x_id, x_u).ood_prior_ == pytest.approx(0.3, abs=0.06)


@pytest.mark.parametrize("name", sorted(FAMILY))
def test_empty_mixture_is_refused(rng, name):
    with pytest.raises(InvalidInputError, match="X_unlabeled must have at least"):
        FAMILY[name].fit(rng.normal(size=(40, 2)), np.zeros((0, 2)))


def test_standard_sigmoid_on_clean_ood_is_the_exact_ratio(rng):
    x_id, x_ood, test, exact = gaussians(rng, pi=1.0, n=5000, m=2000)
    est = StandardSigmoid().fit(x_id, x_ood)
    assert est.ood_prior_ == 1.0
    assert est.ood_prior_interval() == (1.0, 1.0)
    assert np.sqrt(np.mean((est.log_ratio(test) - exact) ** 2)) < 0.6


def test_standard_sigmoid_equals_scikit_learn(rng):
    x_id, x_ood, test, _ = gaussians(rng, pi=1.0, n=300, m=500)
    x = np.vstack([x_id, x_ood])
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    model = LogisticRegression(C=1.0 / (0.01 * 800), tol=1e-8, max_iter=1000).fit(scaled, np.repeat([0, 1], [500, 300]))
    expected = model.decision_function((test - x.mean(axis=0)) / x.std(axis=0)) + np.log(500 / 300)
    np.testing.assert_allclose(StandardSigmoid(l2=0.01).fit(x_id, x_ood).log_ratio(test), expected, atol=0.02)


def test_em_around_trees_learns_a_shape_no_line_can(rng):
    """OOD on a ring around ID: linear in nothing, easy for trees."""
    angle = rng.uniform(0, 2 * np.pi, 500)
    ring = 4.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.3 * rng.normal(size=(500, 2))
    x_id, inner = rng.normal(size=(900, 2)), rng.normal(size=(600, 2))
    trees = EMRatio(HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=8), max_iter=2, n_folds=3)
    est = trees.fit(x_id, np.vstack([inner, ring[:300]]))
    log_id, log_ring = est.log_ratio(rng.normal(size=(400, 2))), est.log_ratio(ring[300:])
    assert np.mean(log_ring[:, None] > log_id[None]) > 0.95
    assert est.ood_prior_ == pytest.approx(300 / 900, abs=0.07)
    assert est.losses_[est.n_iter_] == min(est.losses_)


def test_em_with_logistic_regression_agrees_with_the_corrected_sigmoid(rng):
    x_id, x_u, test, _ = gaussians(rng, m=4000, n=4000)
    em = EMRatio(LogisticRegression(C=100), ood_prior=0.3, max_iter=30).fit(x_id, x_u)
    direct = CorrectedSigmoid("paper", ood_prior=0.3, l2=1e-6).fit(x_id, x_u)
    assert np.corrcoef(em.log_ratio(test), direct.log_ratio(test))[0, 1] > 0.995
    assert np.sqrt(np.mean((em.log_ratio(test) - direct.log_ratio(test)) ** 2)) < 0.7


def test_em_start_alone_is_a_ratio(rng):
    x_id, x_u, test, exact = gaussians(rng)
    est = EMRatio(LogisticRegression(), max_iter=0).fit(x_id, x_u)
    assert est.n_iter_ == 0
    assert np.corrcoef(est.log_ratio(test), exact)[0, 1] > 0.8


def test_em_refuses_what_cannot_work(rng):
    x = rng.normal(size=(50, 2))
    with pytest.raises(InvalidInputError, match="sample_weight, got KNeighborsClassifier"):
        EMRatio(KNeighborsClassifier()).fit(x, x)
    with pytest.raises(InvalidInputError, match="at least 20 rows each"):
        EMRatio(LogisticRegression()).fit(x[:10], x)
    with pytest.raises(InvalidInputError, match="ood_prior"):
        EMRatio(LogisticRegression(), ood_prior=1.0).fit(x, x)


def test_nnpu_gradient(rng):
    """The fit is a stationary point of the published risk, written out naively."""
    x_id, x_u, _, _ = gaussians(rng, d=2, m=400, n=300)
    est = NNPU(ood_prior=0.3, l2=0.01).fit(x_id, x_u)
    model = est.model_
    f_id, f_u = (np.log(0.7 / 0.3) - est.log_ratio(x) for x in (x_id, x_u))

    def risk(scale):
        a, b = scale * f_id, scale * f_u
        positive = 0.7 * np.logaddexp(0, -a).mean()
        rest = np.logaddexp(0, b).mean() - 0.7 * np.logaddexp(0, a).mean()
        # Scaling f scales theta and the intercept alike.
        return positive + max(0.0, rest) + 0.005 * scale**2 * float(model.theta @ model.theta)

    best = risk(1.0)
    assert best <= risk(0.9) + 1e-6
    assert best <= risk(1.1) + 1e-6


def test_woods_keeps_its_constraint(rng):
    x_id, x_u, _, _ = gaussians(rng, m=2000, n=2000)
    est = WOODS(max_miss=0.05).fit(x_id, x_u)
    assert np.isnan(est.ood_prior_)
    assert est.ood_prior_interval() == (0.0, 1.0)
    assert np.mean(est.ratio(x_id)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("est", "message"),
    [
        (StandardSigmoid(l2=-1.0), "l2"),
        (NNPU(l2=-1.0), "l2"),
        (NNPU(ood_prior=0.0), "ood_prior"),
        (WOODS(max_miss=0.0), "max_miss"),
    ],
)
def test_bad_parameters(est, message):
    with pytest.raises(InvalidInputError, match=message):
        est.fit(np.zeros((30, 2)), np.zeros((30, 2)))
