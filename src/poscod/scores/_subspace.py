# SPDX-License-Identifier: BSD-3-Clause
"""The part of the features that ID data hardly uses: shared by Residual and ViM.

Convention: directions are columns; the origin is the point where the last layer gives zero logits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigh, pinv

from poscod._validation import Floats, check_count
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._moments import covariance


def check_dim(dim: Any) -> None:
    """Check the dimension of the principal subspace: None or a whole number."""
    if dim is not None:
        check_count(dim, "dim")


def principal_dim(dim: int | None, n_features: int) -> int:
    """Return the dimension of the principal subspace, by the published rule when none is given."""
    if dim is None:
        dim = 1000 if n_features >= 2048 else 512 if n_features >= 768 else n_features // 2
    if dim >= n_features:
        raise InvalidInputError(f"dim must be below the number of features ({n_features}), got {dim}.")
    return dim


def fit_residual_space(activations: Activations, dim: int | None) -> tuple[Floats, Floats]:
    """Return the origin and the directions left over by the principal subspace."""
    dim = principal_dim(dim, activations.n_features)
    weight = np.asarray(activations.weight, dtype=np.float64)
    origin: Floats = -np.asarray(pinv(weight), dtype=np.float64) @ np.asarray(activations.bias, dtype=np.float64)
    _, vectors = eigh(covariance(activations.features, origin))  # eigenvalues in increasing order
    return origin, np.ascontiguousarray(vectors[:, : activations.n_features - dim])


def residual_norm(features: Floats, origin: Floats, directions: Floats) -> Floats:
    """Return the length of the features along the left-over directions."""
    along = (features - origin) @ directions
    return np.asarray(np.sqrt(np.einsum("nq,nq->n", along, along)))
