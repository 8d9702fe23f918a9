import numpy as np
import pytest
from scipy import stats

from poscod.exceptions import InvalidInputError
from poscod.theory import (
    GaussianWorld,
    corrected_sigmoid,
    corrected_sigmoid_parameters,
    prior_from_a,
    source_posterior,
)

PRIORS = [(0.05, 0.2), (0.3, 0.5), (0.7, 0.85), (1.0, 0.6)]


def gaussian_pair(d, seed=0):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(d, d)) / np.sqrt(d)
    covariance = factor @ factor.T + 0.5 * np.eye(d)
    return rng.normal(size=d), rng.normal(size=d) + 0.7, covariance


@pytest.mark.parametrize(("pi", "pi_u"), PRIORS)
@pytest.mark.parametrize("d", [1, 2, 20])
def test_corrected_sigmoid_is_the_exact_posterior(d, pi, pi_u):
    m_id, m_ood, covariance = gaussian_pair(d)
    world = GaussianWorld([m_id], [m_ood], covariance_id=covariance, covariance_ood=covariance)
    X = np.random.default_rng(1).normal(size=(500, d)) * 3
    theta, a = corrected_sigmoid_parameters(m_id, m_ood, covariance, pi, pi_u)
    sigmoid = corrected_sigmoid(X, theta, a)
    direct = source_posterior(world.log_density_id(X), world.log_density_ood(X), pi, pi_u)
    assert np.ptp(direct) > 0.3 * (1 - pi_u)  # the posterior varies: not a comparison of constants
    np.testing.assert_allclose(sigmoid, direct, rtol=2e-13, atol=1e-300)
    p_id, p_ood = (stats.multivariate_normal(m, covariance).pdf(X) for m in (m_id, m_ood))
    plain = (1 - pi_u) * p_id / ((1 - pi_u) * p_id + pi_u * (pi * p_ood + (1 - pi) * p_id))
    np.testing.assert_allclose(sigmoid, plain, rtol=1e-10)


@pytest.mark.parametrize(("pi", "pi_u"), PRIORS)
def test_prior_and_ratio_are_recovered_from_the_parameters(pi, pi_u):
    m_id, m_ood, covariance = gaussian_pair(3)
    theta, a = corrected_sigmoid_parameters(m_id, m_ood, covariance, pi, pi_u)
    assert 0 <= a < pi_u / (1 - pi_u)
    assert prior_from_a(a, pi_u) == pytest.approx(pi, abs=1e-15)
    assert 1 + a - a / pi_u == pytest.approx(pi, abs=1e-14)
    # errata 7: the exact ratio needs no subtraction, log g = u + log((1 - pi_u) / (pi_u pi)).
    X = np.random.default_rng(2).normal(size=(50, 3))
    world = GaussianWorld([m_id], [m_ood], covariance_id=covariance, covariance_ood=covariance)
    u = X @ theta[:-1] + theta[-1]
    np.testing.assert_allclose(u + np.log((1 - pi_u) / (pi_u * pi)), world.log_ratio(X), atol=1e-13)


def test_the_printed_signs_are_wrong():
    # errata 1: with the direction as printed the sigmoid misses the posterior by far.
    m_id, m_ood, covariance = gaussian_pair(2)
    theta, a = corrected_sigmoid_parameters(m_id, m_ood, covariance, 0.3, 0.6)
    prior = np.log(0.6 * 0.3 / 0.4)
    printed = np.append(-theta[:-1], 2 * prior - theta[-1])
    world = GaussianWorld([m_id], [m_ood], covariance_id=covariance, covariance_ood=covariance)
    X = np.vstack([m_id, m_ood])
    exact = source_posterior(world.log_density_id(X), world.log_density_ood(X), 0.3, 0.6)
    assert np.abs(corrected_sigmoid(X, printed, a) - exact).min() > 0.05
    assert exact[0] > exact[1]


def test_unequal_covariances_are_outside_the_model():
    # errata 1: log g is quadratic then, and no linear u reproduces it; the residual of the best line shows it.
    world = GaussianWorld([[0.0]], [[1.0]], covariance_ood=4.0)
    x = np.linspace(-3, 3, 50)
    log_ratio = world.log_ratio(x[:, None])
    assert np.ptp(log_ratio - np.polyval(np.polyfit(x, log_ratio, 1), x)) > 1.0
    np.testing.assert_allclose(log_ratio, np.polyval(np.polyfit(x, log_ratio, 2), x), atol=1e-10)


def test_extreme_inputs_stay_finite():
    np.testing.assert_array_equal(corrected_sigmoid([[1e5], [-1e5]], [1.0, 0.0], 3.0), [0.0, 0.25])
    np.testing.assert_array_equal(source_posterior([-1e5, 0.0], [0.0, -1e5], 1.0, 0.5), [0.0, 1.0])
    np.testing.assert_allclose(source_posterior([-5.0], [-2.0], pi=0.0, pi_u=0.7), [0.3])


def test_parameters_outside_the_range_are_refused():
    with pytest.raises(InvalidInputError, match=r"a must be below pi_u / \(1 - pi_u\) = 1, got 1"):
        prior_from_a(1.0, 0.5)
    with pytest.raises(InvalidInputError, match="a must be a number in"):
        prior_from_a(-0.1, 0.5)
    with pytest.raises(InvalidInputError, match="pi must be a number in"):
        corrected_sigmoid_parameters([0.0], [1.0], 1.0, pi=0.0, pi_u=0.5)
    with pytest.raises(InvalidInputError, match="pi_u must be a number in"):
        corrected_sigmoid_parameters([0.0], [1.0], 1.0, pi=0.3, pi_u=1.0)
    with pytest.raises(InvalidInputError, match="mean_ood must have as many rows as mean_id"):
        corrected_sigmoid_parameters([0.0], [1.0, 2.0], 1.0, pi=0.3, pi_u=0.5)
    with pytest.raises(InvalidInputError, match="X must have 1 columns"):
        corrected_sigmoid([[1.0, 2.0]], [1.0, 0.0], 0.5)
