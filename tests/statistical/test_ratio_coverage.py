"""Promised probabilities of the ratio, checked by simulation on Gaussians of Theorem 4."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import binom

from poscod.ratio import CorrectedSigmoid, NoOODEvidenceWarning, UndeterminedPriorWarning, estimate_prior


def gaussians(rng, d, pi, m, n, distance=2.5):
    mu = np.full(d, distance / np.sqrt(d))
    k = rng.binomial(n, pi)
    return rng.normal(size=(m, d)), np.vstack([rng.normal(size=(n - k, d)), mu + rng.normal(size=(k, d))]), mu


def runs(count, d, pi, m, n, **options):
    for seed in range(count):
        x_id, x_u, mu = gaussians(np.random.default_rng([seed, d]), d, pi, m, n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoOODEvidenceWarning)
            warnings.simplefilter("ignore", UndeterminedPriorWarning)
            yield CorrectedSigmoid(**options).fit(x_id, x_u), mu


def at_least(promised, count):
    """Smallest number of successes that a promise kept exactly reaches in 99.9 % of simulations."""
    return int(binom.ppf(0.001, count, promised))


@pytest.mark.slow
@pytest.mark.parametrize(("d", "pi", "m", "n"), [(2, 0.3, 800, 600), (20, 0.5, 600, 900), (20, 0.15, 1000, 1000)])
def test_interval_holds_the_prior(d, pi, m, n):
    inside = 0
    for est, _ in runs(200, d, pi, m, n):
        low, high = est.ood_prior_interval(0.9)
        inside += low <= pi <= high
    assert inside >= at_least(0.9, 200)


@pytest.mark.slow
def test_paper_interval_holds_the_prior():
    inside = 0
    for est, _ in runs(200, 2, 0.4, 800, 900, recipe="paper"):
        low, high = est.ood_prior_interval(0.9)
        inside += low <= 0.4 <= high
    assert inside >= at_least(0.9, 200)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "n"), [(2, 300), (20, 500)])
def test_gate_closes_without_ood(d, n):
    closed = sum(not est.gate_open_ for est, _ in runs(200, d, 0.0, n, n))
    assert closed >= at_least(0.95, 200)


@pytest.mark.slow
def test_gate_opens_with_ood():
    opened = sum(est.gate_open_ for est, _ in runs(50, 5, 0.2, 500, 500))
    assert opened >= 45


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.5, 3.0])
def test_certified_bound_holds(shift):
    """No assumption: also where OOD rows look like ID rows (shift = 0.5)."""
    count, pi, held = 400, 0.3, 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        k = rng.binomial(500, pi)
        mixture = np.r_[rng.normal(size=500 - k), shift + rng.normal(size=k)]
        held += estimate_prior(rng.normal(size=600), mixture, "scott") <= pi
    assert held >= at_least(0.9, count)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "pi", "share_u"), [(2, 0.1, 0.3), (2, 0.5, 0.5), (20, 0.05, 0.5), (20, 0.9, 0.6), (200, 0.5, 0.5)]
)
def test_log_ratio_converges_to_the_exact_one(d, pi, share_u):
    """The error on fresh rows falls with the number of rows, and is small in the end."""
    errors = []
    for n in (4000, 64000):
        rng = np.random.default_rng(n + d)
        x_id, x_u, mu = gaussians(rng, d, pi, round(n * (1 - share_u)), round(n * share_u), distance=2.0)
        est = CorrectedSigmoid(ood_prior=pi).fit(x_id.astype(np.float32), x_u.astype(np.float32))
        test = np.vstack([rng.normal(size=(2000, d)), mu + rng.normal(size=(2000, d))]).astype(np.float32)
        exact = test @ mu - 0.5 * mu @ mu
        errors.append(float(np.sqrt(np.mean((est.log_ratio(test) - exact) ** 2))))
    assert errors[1] < 0.75 * errors[0]
    assert errors[1] < 0.8
