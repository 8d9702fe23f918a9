# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of Gaussians: exact log densities and samples.

Convention: rows of X are inputs, components are indexed by k, everything that can underflow is a logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from poscod._validation import Floats, as_array, check_matrix, check_vector
from poscod.exceptions import InvalidInputError


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
