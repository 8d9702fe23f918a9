# SPDX-License-Identifier: BSD-3-Clause
"""Finitely many points that stand for a continuous world: a tensor grid or a weighted sample.

Convention: a discretisation is a matrix of points and two weight vectors, so that a sum over points with the
first (second) weights approximates the ID (OOD) expectation. `DISCRETISATIONS` is the one list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from poscod._validation import Floats
from poscod.exceptions import InvalidInputError
from poscod.theory._mixture import Mixture

# Mass outside +-9 standard deviations is 2e-19; Gauss-Legendre with 8 nodes on a panel of at most one
# standard deviation integrates a Gaussian to about 1e-13.
_REACH, _NODES = 9.0, 8
_MASS_TOLERANCE = 1e-6
_MAX_POINTS = 4_000_000


class Points(NamedTuple):
    """Points with ID and OOD masses.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    p_id, p_ood : ndarray of shape (n,)
        Each sums to one.
    """

    X: Floats
    p_id: Floats
    p_ood: Floats


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
    return Points(X, masses[0], masses[1])


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
    return Points(X, p_id / p_id.sum(), p_ood / p_ood.sum())


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
