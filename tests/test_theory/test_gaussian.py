import numpy as np
import pytest
from scipy import integrate, optimize, stats

from poscod import ScodProblem
from poscod.exceptions import InvalidInputError
from poscod.theory import GaussianWorld
from poscod.theory._gaussian import DISCRETISATIONS

WEIGHT, MEAN, SD, MEAN_OOD, SD_OOD = np.array([0.3, 0.7]), np.array([-1.0, 1.5]), np.array([1.0, 0.8]), 3.0, 0.5
LOSS = np.array([[0.0, 1.0], [3.0, 0.0]])
TILTED = np.array([[1.0, 0.6], [0.6, 2.0]])


def line_world():
    return GaussianWorld(
        MEAN[:, None],
        [[MEAN_OOD]],
        covariance_id=(SD**2)[:, None, None],
        covariance_ood=SD_OOD**2,
        weight_id=WEIGHT,
    )


def plane_world():
    return GaussianWorld(
        [[0.0, 0.0], [2.0, 1.0], [-2.0, 1.5]],
        [[2.0, -2.0], [4.0, 3.0]],
        label=[0, 1, 0],
        covariance_id=TILTED,
        covariance_ood=[np.eye(2), 0.5 * np.eye(2)],
        weight_id=[2.0, 3.0, 1.0],
        weight_ood=[0.25, 0.75],
    )


def exact_line(alpha, t):
    """Solve the one-dimensional world by root finding, normal CDFs and adaptive integration; no grid is summed."""

    def joint(x):
        return WEIGHT[:, None] * stats.norm.pdf(np.atleast_1d(x), MEAN[:, None], SD[:, None])

    def loss_density(x):
        return (LOSS.T @ joint(x)).min(axis=0)

    def score(x):
        p_id = joint(x).sum(axis=0)
        return loss_density(x) / p_id + alpha * t / (1 - alpha) * stats.norm.pdf(x, MEAN_OOD, SD_OOD) / p_id

    grid = np.linspace(-8, 9, 20_001)  # only to bracket roots
    values = score(grid)

    def accepted(lam):
        inside = values <= lam
        change = np.flatnonzero(inside[1:] != inside[:-1])
        ends = [optimize.brentq(lambda x: score(x)[0] - lam, grid[i], grid[i + 1], xtol=1e-14) for i in change]
        ends = ([-np.inf] if inside[0] else []) + ends + ([np.inf] if inside[-1] else [])
        return np.reshape(ends, (-1, 2))

    def mass(intervals, mean, sd):
        return np.diff(stats.norm.cdf(intervals, mean, sd), axis=1).sum()

    def tpr(lam):
        return sum(w * mass(accepted(lam), m, s) for w, m, s in zip(WEIGHT, MEAN, SD, strict=True))

    lam = optimize.brentq(lambda v: tpr(v) - t, values.min() + 1e-9, 50.0, xtol=1e-14)
    intervals = accepted(lam)
    answer_changes = optimize.brentq(lambda x: np.diff(LOSS.T @ joint(x), axis=0)[0, 0], -1.0, 1.5, xtol=1e-14)
    loss = 0.0
    for low, high in np.clip(intervals, -12, 14):
        points = [answer_changes] if low < answer_changes < high else None
        loss += integrate.quad(
            lambda x: loss_density(x)[0], low, high, points=points, epsabs=1e-13, epsrel=1e-11, limit=400
        )[0]
    fpr = mass(intervals, MEAN_OOD, SD_OOD)
    return (1 - alpha) * loss / t + alpha * fpr, fpr, lam


@pytest.mark.parametrize(("alpha", "t"), [(0.2, 0.8), (0.37, 0.9), (0.8, 0.6)])
def test_quadrature_equals_root_finding_and_integration(alpha, t):
    risk, fpr, lam = exact_line(alpha, t)
    world, problem = line_world(), ScodProblem(alpha, t, LOSS)
    solution = world.solve(problem)
    assert solution.risk == pytest.approx(risk, abs=1e-8)
    assert solution.fpr == pytest.approx(fpr, abs=1e-4)
    assert solution.threshold == pytest.approx(lam, abs=1e-4)
    assert solution.tpr == pytest.approx(t, abs=1e-12)
    # Fresh data, the rule in its functional form: TPR and FPR as promised.
    n = 200_000
    score_id = world.rejection_score(world.sample_id(n, random_state=0)[0], problem)
    score_ood = world.rejection_score(world.sample_ood(n, random_state=1), problem)
    assert (score_id <= solution.threshold).mean() == pytest.approx(t, abs=5 * np.sqrt(t * (1 - t) / n))
    assert (score_ood <= solution.threshold).mean() == pytest.approx(fpr, abs=5 * np.sqrt(fpr * (1 - fpr) / n))


def test_grid_error_falls_with_the_square_of_the_spacing():
    risk = exact_line(0.2, 0.8)[0]
    world, problem = line_world(), ScodProblem(0.2, 0.8, LOSS)
    sizes = np.array([1_000, 4_000, 16_000, 64_000])
    error = np.array([abs(world.solve(problem, size=int(size)).risk - risk) for size in sizes])
    assert (error <= 30.0 / sizes.astype(float) ** 2 + 1e-10).all()
    assert error[0] > 1e-7  # the coarsest grid is visibly off, so the bound above says something


def test_grid_in_the_plane_equals_the_line_it_was_turned_from():
    # The line, times a second coordinate that is the same for ID and OOD, turned by 0.5 radians against the grid.
    turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    covariance = [turn @ np.diag([sd**2, 2.0]) @ turn.T for sd in SD]
    world = GaussianWorld(
        np.column_stack([MEAN, [0.0, 0.0]]) @ turn.T,
        np.array([[MEAN_OOD, 0.0]]) @ turn.T,
        covariance_id=covariance,
        covariance_ood=turn @ np.diag([SD_OOD**2, 2.0]) @ turn.T,
        weight_id=WEIGHT,
    )
    solution = world.solve(ScodProblem(0.2, 0.8, LOSS), size=400_000)
    risk, fpr, _ = exact_line(0.2, 0.8)
    assert solution.risk == pytest.approx(risk, abs=5.0 / len(solution.accept))  # error ~ h^2 ~ 1 / n
    assert solution.fpr == pytest.approx(fpr, abs=2e-3)


@pytest.mark.parametrize("classifier", [None, lambda X: (X[:, 1] > 0.3).astype(int)])
def test_monte_carlo_agrees_with_quadrature_within_its_error(classifier):
    world, problem = plane_world(), ScodProblem(alpha=0.3, tpr_min=0.9, loss=LOSS)
    exact = world.solve(problem, classifier).risk
    if classifier is not None:
        assert exact > world.solve(problem).risk + 0.01  # the given classifier is used, and it is worse than Bayes
    draws = np.array(
        [
            world.solve(problem, classifier, method="monte_carlo", size=4_000, random_state=seed).risk
            for seed in range(60)
        ]
    )
    error = draws.std(ddof=1) / np.sqrt(len(draws))
    assert error < 0.01 * exact  # otherwise the next line would not say much
    assert abs(draws.mean() - exact) < 4 * error


def test_monte_carlo_works_in_many_dimensions():
    # Eight more coordinates, the same for ID and OOD, change nothing: the answer is that of the line.
    mean_id, mean_ood = np.zeros((2, 9)), np.zeros((1, 9))
    mean_id[:, 0], mean_ood[0, 0] = MEAN, MEAN_OOD
    cov_id, cov_ood = np.tile(np.eye(9), (2, 1, 1)), np.eye(9)
    cov_id[:, 0, 0], cov_ood[0, 0] = SD**2, SD_OOD**2
    world = GaussianWorld(mean_id, mean_ood, covariance_id=cov_id, covariance_ood=cov_ood, weight_id=WEIGHT)
    problem = ScodProblem(0.2, 0.8, LOSS)
    draws = [world.solve(problem, method="monte_carlo", size=20_000, random_state=seed).risk for seed in range(20)]
    assert abs(np.mean(draws) - exact_line(0.2, 0.8)[0]) < 4 * np.std(draws, ddof=1) / np.sqrt(20)


def test_importance_weights_are_bounded_by_two():
    _, world = plane_world().discretise(method="monte_carlo", size=50_001, random_state=0)
    assert world.n_points == 50_002
    # Masses are weights over their sum, which is n up to sampling error.
    assert max(world.p_id.max(), world.p_ood.max()) * world.n_points < 2.05


@pytest.mark.parametrize("name", DISCRETISATIONS)
def test_discretisation_keeps_moments(name):
    world = plane_world()
    X, finite = world.discretise(method=name, size=100_000, random_state=3)
    tolerance = 1e-9 if name == "quadrature" else 0.05
    np.testing.assert_allclose(finite.p_id @ X, [2 / 3, 0.75], atol=tolerance)
    np.testing.assert_allclose(finite.p_ood @ X, [3.5, 1.75], atol=tolerance)
    np.testing.assert_allclose(finite.p_id @ finite.posterior, [0.5, 0.5], atol=tolerance)
    assert finite.p_id @ np.exp(world.log_ratio(X)) == pytest.approx(1.0, abs=tolerance)  # E_ID[g] = 1, errata 5


def test_grid_resolves_far_apart_and_nested_components():
    world = GaussianWorld([[0.0], [1e6]], [[1e6], [2.0]], covariance_id=[[[1.0]], [[1e6]]], covariance_ood=1e-4)
    X, finite = world.discretise(size=20_000)
    assert finite.p_id @ X[:, 0] == pytest.approx(5e5, rel=1e-9)
    assert finite.p_ood @ (X[:, 0] - 2.0) ** 2 == pytest.approx(((1e6 - 2.0) ** 2 + 2e-4) / 2, rel=1e-9)
    inside = np.abs(X[:, 0] - 2.0) < 1.0
    assert finite.p_ood[inside].sum() == pytest.approx(0.5, abs=1e-9)


def test_grid_covers_a_steep_covariance():
    steep = np.array([[1.0, 9.0], [9.0, 100.0]])
    X, finite = GaussianWorld([[0.0, 0.0]], [[1.0, 1.0]], covariance_id=steep, covariance_ood=4.0).discretise()
    np.testing.assert_allclose((X * finite.p_id[:, None]).T @ X, steep, rtol=1e-9)


def test_densities_posterior_risk_and_ratio_match_scipy():
    world = plane_world()
    X = np.random.default_rng(0).normal(size=(200, 2)) * 3
    parts = [
        w * stats.multivariate_normal(m, TILTED).pdf(X)
        for w, m in zip([2 / 6, 3 / 6, 1 / 6], [[0, 0], [2, 1], [-2, 1.5]], strict=True)
    ]
    joint = np.column_stack([parts[0] + parts[2], parts[1]])
    p_id = joint.sum(axis=1)
    p_ood = 0.25 * stats.multivariate_normal([2, -2], np.eye(2)).pdf(X)
    p_ood += 0.75 * stats.multivariate_normal([4, 3], 0.5 * np.eye(2)).pdf(X)
    np.testing.assert_allclose(np.exp(world.log_density_id(X)), p_id, rtol=1e-10)
    np.testing.assert_allclose(np.exp(world.log_density_ood(X)), p_ood, rtol=1e-10)
    np.testing.assert_allclose(np.exp(world.log_ratio(X)), p_ood / p_id, rtol=1e-10)
    posterior = joint / p_id[:, None]
    np.testing.assert_allclose(world.posterior(X), posterior, rtol=1e-10, atol=1e-15)
    problem = ScodProblem(alpha=0.2, tpr_min=0.7, loss=LOSS)
    risk = (posterior @ LOSS).min(axis=1)
    np.testing.assert_allclose(world.conditional_risk(X, problem), risk, rtol=1e-9, atol=1e-15)
    always_one = world.conditional_risk(X, problem, lambda X: np.ones(len(X), dtype=int))
    np.testing.assert_allclose(always_one, posterior[:, 0], rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(
        world.rejection_score(X, problem), risk + 0.2 * 0.7 / 0.8 * p_ood / p_id, rtol=1e-9, atol=1e-15
    )


def test_everything_is_finite_where_densities_underflow():
    world, far = plane_world(), np.array([[3000.0, 0.0], [-2000.0, 5000.0], [0.0, 0.0]])
    assert (np.exp(world.log_density_id(far))[:2] == 0).all()
    assert np.isfinite(world.log_ratio(far)).all()
    np.testing.assert_allclose(world.posterior(far).sum(axis=1), 1.0)
    assert np.isfinite(world.rejection_score(far, ScodProblem(alpha=0.3))).all()


def test_samples_follow_the_world():
    world, n = plane_world(), 100_000
    X, y = world.sample_id(n, random_state=0)
    assert y.dtype == np.int64
    assert y.mean() == pytest.approx(0.5, abs=5 * np.sqrt(0.25 / n))
    np.testing.assert_allclose(X[y == 1].mean(axis=0), [2.0, 1.0], atol=0.04)
    np.testing.assert_allclose(np.cov(X[y == 1].T), TILTED, atol=0.06)
    # Calibration joins labels and densities: the mean posterior of a class, over rows where it is high, is its share.
    confident = world.posterior(X)[:, 1] > 0.8
    expected, rows = world.posterior(X)[confident, 1].mean(), confident.sum()
    assert (y[confident] == 1).mean() == pytest.approx(expected, abs=5 * np.sqrt(0.25 / rows))
    Z = world.sample_ood(n, random_state=1)
    np.testing.assert_allclose(Z.mean(axis=0), [3.5, 1.75], atol=0.06)
    M, is_ood = world.sample_mixture(n, pi=0.2, random_state=2)
    assert is_ood.mean() == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / n))
    np.testing.assert_allclose(M[is_ood].mean(axis=0), [3.5, 1.75], atol=0.12)
    np.testing.assert_allclose(M[~is_ood].mean(axis=0), [2 / 3, 0.75], atol=0.05)
    np.testing.assert_array_equal(
        world.sample_mixture(50, 0.2, random_state=5)[0], world.sample_mixture(50, 0.2, random_state=5)[0]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mean_ood": [[1.0, 2.0]]}, "mean_ood must have as many columns as mean_id"),
        ({"mean_id": np.empty((0, 1))}, "mean_id must have a row per component"),
        ({"mean_id": [0.0, 1.0]}, "mean_id must be two-dimensional"),
        ({"weight_id": [1.0, 0.0]}, "weight_id must be positive, got 0"),
        ({"weight_ood": [1.0, 1.0]}, "weight_ood must have as many rows"),
        ({"covariance_id": [1.0, 2.0]}, "covariance_id must be a number or have shape"),
        ({"covariance_ood": -1.0}, "covariance_ood must be positive definite"),
        ({"covariance_ood": np.inf}, "covariance_ood must be finite and symmetric"),
        ({"mean_id": np.zeros((1, 2)), "mean_ood": np.zeros((1, 2)), "covariance_id": [[1, 0.5], [0, 1]]}, "symmetric"),
        ({"label": [0]}, "label must have as many rows"),
        ({"label": [1, 1]}, "label must name every class 0, ..., 1, got none of 0"),
    ],
)
def test_bad_worlds_are_refused_with_a_sentence(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        GaussianWorld(**{"mean_id": [[0.0], [1.0]], "mean_ood": [[2.0]]} | arguments)


def test_bad_arguments_are_refused_with_a_sentence():
    world = GaussianWorld(np.zeros((1, 3)), np.ones((1, 3)))
    with pytest.raises(InvalidInputError, match="at most 2 features, got 3: use method='monte_carlo'"):
        world.solve(ScodProblem())
    with pytest.raises(InvalidInputError, match="method must be one of 'monte_carlo', 'quadrature'"):
        world.solve(ScodProblem(), method="grid")
    with pytest.raises(InvalidInputError, match="X must have 3 columns"):
        world.log_ratio([[1.0]])
    with pytest.raises(InvalidInputError, match="pi must be a number in"):
        world.sample_mixture(5, pi=1.2)


def test_a_grid_with_too_many_points_is_refused():
    mean = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(InvalidInputError, match=r"fewer components.*points; use method='monte_carlo'"):
        GaussianWorld(mean, mean + 1.0).solve(ScodProblem())


def test_a_grid_too_coarse_for_a_narrow_ridge_is_refused():
    ridge = [[1.0, 0.99999], [0.99999, 1.0]]
    world = GaussianWorld([[0.0, 0.0]], [[3.0, 0.0]], covariance_id=ridge)
    with pytest.raises(InvalidInputError, match="size must be larger"):
        world.solve(ScodProblem(), size=1_000)
