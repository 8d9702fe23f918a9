# SPDX-License-Identifier: BSD-3-Clause
"""Worlds made of Gaussians, where r and g are known in closed form, and the finite worlds that stand for them.

Convention: the ID law is a mixture whose components carry class labels, the OOD law is a mixture without labels;
rows of X are inputs; ratios are logarithms (`log_ratio` is log p_O - log p_I), and so is everything that can underflow. A
discretisation in `DISCRETISATIONS` is a matrix of points and two weight vectors, so that a sum over points with the
first (second) weights approximates the ID (OOD) expectation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import expit, logsumexp
from sklearn.utils import check_random_state

from poscod._validation import (
    Floats,
    as_array,
    check_choice,
    check_count,
    check_labels,
    check_matrix,
    check_number,
    check_vector,
)
from poscod.decision import rejection_score
from poscod.exceptions import InvalidInputError
from poscod.problem import ScodProblem
from poscod.theory._finite import FiniteWorld, Solution, risk_of

Classifier = Callable[[Floats], ArrayLike]


class GaussianWorld:
    """A known world: ID is a mixture of labeled Gaussians, OOD a mixture of Gaussians.

    Parameters
    ----------
    mean_id : array-like of shape (k, d)
        Means of the ID components.
    mean_ood : array-like of shape (m, d)
        Means of the OOD components.
    label : array-like of shape (k,), default=None
        Class index of each ID component; every class 0, ..., K - 1 needs one. None makes each its own class.
    covariance_id, covariance_ood : float, array-like of shape (d, d) or (k or m, d, d), default=1.0
        Variance of every coordinate, one matrix for all components, or one matrix each.
    weight_id, weight_ood : array-like of shape (k,) and (m,), default=None
        Positive component weights, scaled to sum to one; None makes them equal.

    Attributes
    ----------
    n_features, n_classes : int
    label : ndarray of shape (k,), int64

    Notes
    -----
    ``p_I(x, y) = sum over k with label y of w_k N(x; mean_k, C_k)`` and ``p_O(x) = sum_m v_m N(x; mean_m, D_m)``
    give the posterior ``p_I(y | x) = p_I(x, y) / p_I(x)``, the conditional risk r and the ratio g = p_O / p_I.

    Examples
    --------
    >>> world = GaussianWorld(mean_id=[[-1.0], [1.0]], mean_ood=[[4.0]], weight_id=[0.3, 0.7])
    >>> world.posterior([[0.0]]).round(6)
    array([[0.3, 0.7]])
    >>> solution = world.solve(ScodProblem(alpha=0.2, tpr_min=0.8))
    >>> round(solution.risk, 5), round(solution.tpr, 5)
    (0.08951, 0.8)
    """

    def __init__(
        self,
        mean_id: Any,
        mean_ood: Any,
        *,
        label: Any = None,
        covariance_id: Any = 1.0,
        covariance_ood: Any = 1.0,
        weight_id: Any = None,
        weight_ood: Any = None,
    ) -> None:
        self._id = Mixture.build(mean_id, covariance_id, weight_id, "id")
        self._ood = Mixture.build(mean_ood, covariance_ood, weight_ood, "ood")
        if self._id.n_features != self._ood.n_features:
            raise InvalidInputError(
                f"mean_ood must have as many columns as mean_id ({self._id.n_features}), got {self._ood.n_features}."
            )
        k = len(self._id.mean)
        self.label: NDArray[np.int64] = check_labels(np.arange(k) if label is None else label, "label", k, n=k)
        self.n_features = self._id.n_features
        self.n_classes = int(self.label.max()) + 1
        missing = np.setdiff1d(np.arange(self.n_classes), self.label)
        if len(missing):
            raise InvalidInputError(
                f"label must name every class 0, ..., {self.n_classes - 1}, got none of {missing[0]}."
            )

    def log_density_id(self, X: ArrayLike) -> Floats:
        """Return log p_I of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Inputs.

        Returns
        -------
        log_density : ndarray of shape (n,)
        """
        return self._id.log_density(self._check(X))

    def log_density_ood(self, X: ArrayLike) -> Floats:
        """Return log p_O of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Inputs.

        Returns
        -------
        log_density : ndarray of shape (n,)
        """
        return self._ood.log_density(self._check(X))

    def log_ratio(self, X: ArrayLike) -> Floats:
        """Return log g = log p_O - log p_I of each row; finite also where both densities underflow.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Inputs.

        Returns
        -------
        log_ratio : ndarray of shape (n,)

        Examples
        --------
        >>> GaussianWorld([[0.0]], [[2.0]]).log_ratio([[1.0], [0.0], [500.0]])
        array([  0.,  -2., 998.])
        """
        return self.log_density_ood(X) - self.log_density_id(X)

    def posterior(self, X: ArrayLike) -> Floats:
        """Return p_I(y | x).

        Parameters
        ----------
        X : array-like of shape (n, d)
            Inputs.

        Returns
        -------
        posterior : ndarray of shape (n, K)
            Rows sum to one.
        """
        log_component = self._id.log_components(self._check(X))
        joint = np.stack([logsumexp(log_component[:, self.label == y], axis=1) for y in range(self.n_classes)], axis=1)
        posterior = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True), dtype=np.float64)

    def conditional_risk(self, X: ArrayLike, problem: ScodProblem, classifier: Classifier | None = None) -> Floats:
        """Return r, the expected loss of the classifier's answer at each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Inputs.
        problem : ScodProblem
            Gives the loss.
        classifier : callable X -> class indices of shape (n,), default=None
            None is the Bayes classifier of the loss.

        Returns
        -------
        risk : ndarray of shape (n,)
            ``r(x) = sum_y p_I(y | x) l(y, h(x))``.
        """
        X = self._check(X)
        return risk_of(self.posterior(X), problem, None if classifier is None else classifier(X), "classifier(X)")

    def rejection_score(self, X: ArrayLike, problem: ScodProblem, classifier: Classifier | None = None) -> Floats:
        """Return s = r + beta g, the score to compare with a solution's threshold.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Inputs.
        problem : ScodProblem
            What is asked.
        classifier : callable X -> class indices of shape (n,), default=None
            None is the Bayes classifier of the loss.

        Returns
        -------
        score : ndarray of shape (n,)
            Higher = reject sooner; g itself at alpha = 1.
        """
        return rejection_score(self.conditional_risk(X, problem, classifier), self.log_ratio(X), problem.beta)

    def discretise(
        self, *, method: str = "quadrature", size: int = 200_000, random_state: Any = None
    ) -> tuple[Floats, FiniteWorld]:
        """Return a finite world that stands for this one.

        Parameters
        ----------
        method : {"quadrature", "monte_carlo"}, default="quadrature"
            A tensor grid (at most 2 features) or an importance sample from (p_I + p_O) / 2 (any number).
        size : int, default=200_000
            Number of points to aim at.
        random_state : int, RandomState or None, default=None
            For "monte_carlo".

        Returns
        -------
        X : ndarray of shape (n, d)
            The points, in the order of the finite world's rows.
        world : FiniteWorld
            The same world on these points.

        Examples
        --------
        >>> X, finite = GaussianWorld([[0.0]], [[2.0]]).discretise(size=2000)
        >>> round(float(finite.p_ood @ X[:, 0]), 12)
        2.0
        """
        build = check_choice(method, "method", DISCRETISATIONS)
        X, p_id, p_ood = build(self._id, self._ood, check_count(size, "size"), check_random_state(random_state))
        return X, FiniteWorld(p_id, p_ood, self.posterior(X))

    def solve(
        self,
        problem: ScodProblem,
        classifier: Classifier | None = None,
        *,
        method: str = "quadrature",
        size: int = 200_000,
        random_state: Any = None,
    ) -> Solution:
        """Return the optimal selector, solved exactly on a discretisation of this world.

        Parameters
        ----------
        problem : ScodProblem
            What is asked.
        classifier : callable X -> class indices of shape (n,), default=None
            None is the Bayes classifier of the loss.
        method : {"quadrature", "monte_carlo"}, default="quadrature"
            How to discretise, see `discretise`.
        size : int, default=200_000
            Number of points to aim at.
        random_state : int, RandomState or None, default=None
            For "monte_carlo".

        Returns
        -------
        solution : Solution
            accept belongs to the points `discretise` returns for the same arguments; elsewhere accept where
            ``rejection_score(X, problem) <= threshold``.

        Notes
        -----
        The error of the risk is O(h^2) for a grid with distance h between nodes, and O(1 / sqrt(size)) for a
        sample, whose optimum is in addition optimistic by O(1 / size).

        Examples
        --------
        >>> world = GaussianWorld([[-1.0], [1.0]], [[4.0]])
        >>> problem = ScodProblem(alpha=0.2, tpr_min=0.8)
        >>> exact = world.solve(problem).risk
        >>> abs(world.solve(problem, method="monte_carlo", random_state=0).risk - exact) < 0.002
        True
        """
        X, world = self.discretise(method=method, size=size, random_state=random_state)
        return world.solve(problem, None if classifier is None else classifier(X))

    def sample_id(self, n: int, random_state: Any = None) -> tuple[Floats, NDArray[np.int64]]:
        """Draw labeled ID inputs.

        Parameters
        ----------
        n : int
            Number of draws.
        random_state : int, RandomState or None, default=None
            Seed of everything that is drawn.

        Returns
        -------
        X : ndarray of shape (n, d)
        y : ndarray of shape (n,), int64
            Class of the component each row was drawn from.
        """
        X, component = self._id.sample(check_count(n, "n"), check_random_state(random_state))
        return X, self.label[component]

    def sample_ood(self, n: int, random_state: Any = None) -> Floats:
        """Draw OOD inputs.

        Parameters
        ----------
        n : int
            Number of draws.
        random_state : int, RandomState or None, default=None
            Seed of everything that is drawn.

        Returns
        -------
        X : ndarray of shape (n, d)
        """
        return self._ood.sample(check_count(n, "n"), check_random_state(random_state))[0]

    def sample_mixture(self, n: int, pi: float, random_state: Any = None) -> tuple[Floats, NDArray[np.bool_]]:
        """Draw unlabeled traffic: each row is OOD with probability pi.

        Parameters
        ----------
        n : int
            Number of draws.
        pi : float in [0, 1]
            OOD prior.
        random_state : int, RandomState or None, default=None
            Seed of everything that is drawn.

        Returns
        -------
        X : ndarray of shape (n, d)
        is_ood : ndarray of shape (n,), bool

        Examples
        --------
        >>> X, is_ood = GaussianWorld([[0.0]], [[100.0]]).sample_mixture(50, pi=0.2, random_state=0)
        >>> bool(((X[:, 0] > 50) == is_ood).all())
        True
        """
        n, pi = check_count(n, "n"), check_number(pi, "pi", 0.0, 1.0)
        rng = check_random_state(random_state)
        is_ood = np.asarray(rng.random_sample(n) < pi, dtype=np.bool_)
        X = np.where(is_ood[:, None], self._ood.sample(n, rng)[0], self._id.sample(n, rng)[0])
        return X, is_ood

    def _check(self, X: ArrayLike) -> Floats:
        """Check a matrix of inputs and return it as float64."""
        return check_matrix(X, "X", columns=self.n_features).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weighted Gaussians in d dimensions.

    Parameters
    ----------
    mean : ndarray of shape (k, d)
    cholesky : ndarray of shape (k, d, d)
        Lower triangular factor L of each covariance L L^T.
    weight : ndarray of shape (k,)
        Positive, summing to one.

    Examples
    --------
    >>> mixture = Mixture.build([[0.0], [4.0]], 1.0, [0.25, 0.75], "id")
    >>> mixture.log_density(np.array([[2.0]])).round(6)
    array([-2.918939])
    """

    mean: Floats
    cholesky: Floats
    weight: Floats

    @classmethod
    def build(cls, mean: Any, covariance: Any, weight: Any, side: str) -> Mixture:
        """Check the parameters a user gives and factorise the covariances once."""
        centre = check_matrix(mean, f"mean_{side}").astype(np.float64)
        k, d = centre.shape
        if not k or not d:
            raise InvalidInputError(
                f"mean_{side} must have a row per component and a column per feature, got {(k, d)}."
            )
        share = check_vector(np.ones(k) if weight is None else weight, f"weight_{side}", n=k, allow_inf=False)
        if share.min() <= 0:
            raise InvalidInputError(f"weight_{side} must be positive, got {share.min():g}: leave that component out.")
        return cls(centre, _factorise(covariance, f"covariance_{side}", k, d), share / share.sum())

    @property
    def n_features(self) -> int:
        """Number of dimensions d."""
        return self.mean.shape[1]

    @property
    def spread(self) -> Floats:
        """Standard deviation of each coordinate in each component, shape (k, d)."""
        return np.asarray(np.sqrt((self.cholesky**2).sum(axis=2)), dtype=np.float64)

    def log_components(self, X: Floats) -> Floats:
        """Return log(weight_k N(x; mean_k, covariance_k)).

        Notes
        -----
        ``log w_k - |z|^2 / 2 - sum_i log L_ii - (d / 2) log 2 pi`` with ``z = L^-1 (x - mean_k)``.
        """
        out = np.empty((len(X), len(self.mean)))
        for k, (mean, factor) in enumerate(zip(self.mean, self.cholesky, strict=True)):
            z = solve_triangular(factor, (X - mean).T, lower=True, check_finite=False)
            out[:, k] = np.log(self.weight[k]) - 0.5 * (z**2).sum(axis=0) - np.log(np.diag(factor)).sum()
        return out - 0.5 * self.n_features * np.log(2.0 * np.pi)

    def log_density(self, X: Floats) -> Floats:
        """Return the log density of each row."""
        return np.asarray(logsumexp(self.log_components(X), axis=1), dtype=np.float64)

    def sample(self, n: int, rng: np.random.RandomState) -> tuple[Floats, NDArray[np.int64]]:
        """Draw rows and the component each came from."""
        component = rng.choice(len(self.weight), size=n, p=self.weight).astype(np.int64)
        X = rng.standard_normal((n, self.n_features))
        for k, (mean, factor) in enumerate(zip(self.mean, self.cholesky, strict=True)):
            rows = component == k
            X[rows] = X[rows] @ factor.T + mean
        return X, component


def _factorise(covariance: Any, name: str, k: int, d: int) -> Floats:
    """Return the Cholesky factor of every component's covariance, shape (k, d, d)."""
    matrix = as_array(covariance, name).astype(np.float64)
    if matrix.ndim == 0:
        matrix = matrix * np.eye(d)
    if matrix.shape not in ((d, d), (k, d, d)):
        raise InvalidInputError(
            f"{name} must be a number or have shape {(d, d)} or {(k, d, d)}, got shape {matrix.shape}."
        )
    matrix = np.broadcast_to(matrix, (k, d, d))
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.transpose(0, 2, 1), rtol=1e-10, atol=0.0):
        raise InvalidInputError(f"{name} must be finite and symmetric: pass (C + C.T) / 2.")
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise InvalidInputError(f"{name} must be positive definite: add a small multiple of the identity.") from None


# Mass outside +-9 standard deviations is 2e-19; Gauss-Legendre with 8 nodes on a panel of at most one
# standard deviation integrates a Gaussian to about 1e-13.
_REACH, _NODES = 9.0, 8
_MASS_TOLERANCE = 1e-6
_MAX_POINTS = 4_000_000


# Rows x, and their masses under ID and OOD, each summing to one.
Points = tuple[Floats, Floats, Floats]


def quadrature(mixture_id: Mixture, mixture_ood: Mixture, size: int, rng: np.random.RandomState) -> Points:
    """Return a tensor grid of Gauss-Legendre panels, refined around every component.

    Notes
    -----
    With h the distance of neighbouring nodes, the optimal risk has error O(h^2), although the accepted set
    has a sharp boundary: by duality ``R* = ((1 - alpha) / t) max over lambda of (lambda t - E_I (lambda - s)_+)``
    (t = tpr_min, s the score), and the integrand has a kink but no jump. FPR and R_S one by one have error O(h).
    """
    d = mixture_id.n_features
    if d > 2:
        raise InvalidInputError(f"method='quadrature' must have at most 2 features, got {d}: use method='monte_carlo'.")
    mean = np.vstack([mixture_id.mean, mixture_ood.mean])
    spread = np.vstack([mixture_id.spread, mixture_ood.spread])
    panels = max(int(2 * _REACH), int(size ** (1.0 / d) / (_NODES * len(mean))))
    axes = [_axis(mean[:, j], spread[:, j], panels) for j in range(d)]
    n = int(np.prod([len(x) for x, _ in axes]))
    if n > max(_MAX_POINTS, 2 * size):
        raise InvalidInputError(
            f"method='quadrature' must have fewer components in two dimensions, got {len(mean)}: the grid would have "
            f"{n:,} points; use method='monte_carlo'."
        )
    X = np.stack([grid.ravel() for grid in np.meshgrid(*(x for x, _ in axes), indexing="ij")], axis=1)
    weight = axes[0][1] if d == 1 else np.outer(axes[0][1], axes[1][1]).ravel()
    masses = []
    for mixture in (mixture_id, mixture_ood):
        mass = weight * np.exp(mixture.log_density(X))
        total = float(mass.sum())
        if abs(total - 1.0) > _MASS_TOLERANCE:
            raise InvalidInputError(
                f"size must be larger for these covariances, got {size}: the grid holds a mass of {total:.9g} "
                "instead of 1 (or use method='monte_carlo')."
            )
        masses.append(mass / total)
    return X, masses[0], masses[1]


def monte_carlo(mixture_id: Mixture, mixture_ood: Mixture, size: int, rng: np.random.RandomState) -> Points:
    """Return an importance sample, half from ID and half from OOD.

    Notes
    -----
    The proposal is ``q = (p_I + p_O) / 2``, so both importance weights are bounded:
    ``p_I / q = 2 / (1 + g) <= 2`` and ``p_O / q = 2 g / (1 + g) <= 2`` with g = p_O / p_I, computed from log g.
    Masses are the weights divided by their sum. The optimum over a sample is optimistic by O(1 / size).
    """
    half = (size + 1) // 2
    X = np.vstack([mixture_id.sample(half, rng)[0], mixture_ood.sample(half, rng)[0]])
    log_ratio = mixture_ood.log_density(X) - mixture_id.log_density(X)
    p_id, p_ood = expit(-log_ratio), expit(log_ratio)
    return X, p_id / p_id.sum(), p_ood / p_ood.sum()


DISCRETISATIONS: dict[str, Callable[[Mixture, Mixture, int, np.random.RandomState], Points]] = {
    "quadrature": quadrature,
    "monte_carlo": monte_carlo,
}


def _axis(mean: Floats, spread: Floats, panels: int) -> tuple[Floats, Floats]:
    """Return nodes and weights on one axis: the union of every component's panels."""
    # The union keeps a narrow component inside a wide one, and two far apart, equally well resolved.
    edges = np.unique(
        np.concatenate([m + s * np.linspace(-_REACH, _REACH, panels + 1) for m, s in zip(mean, spread, strict=True)])
    )
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    half = np.diff(edges)[:, None] / 2.0
    centre = (edges[:-1, None] + edges[1:, None]) / 2.0
    return (centre + half * node).ravel(), (half * weight).ravel()
