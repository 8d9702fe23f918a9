# SPDX-License-Identifier: BSD-3-Clause
"""Residual: how much of the features lies outside the principal subspace of ID data.

Convention: higher = reject sooner; the published confidence is minus this norm.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._subspace import check_dim, fit_residual_space, residual_norm


@final
class Residual(Score):
    """Norm of the features outside the principal subspace of ID data.

    Parameters
    ----------
    dim : int, default=None
        Dimension D of the principal subspace; None is the published rule 1000 for d >= 2048, 512 for d >= 768,
        else d / 2, with d the number of features.

    Attributes
    ----------
    origin_ : ndarray of shape (d,)
        The point o whose logits are zero (in the least-squares sense).
    directions_ : ndarray of shape (d, d - D)
        Directions R outside the principal subspace.

    Notes
    -----
    ``s(x) = |R^T (phi - o)|`` with phi the features, ``o = -pinv(W) b``, W and b the last layer, and R the
    eigenvectors of ``(1/n) sum_i (phi_i - o)(phi_i - o)^T`` over ID rows that belong to all but the D largest
    eigenvalues.

    References
    ----------
    .. [1] H. Wang, Z. Li, L. Feng, W. Zhang, "ViM: Out-of-Distribution with Virtual-logit Matching", CVPR 2022.

    Examples
    --------
    >>> head = {"weight": [[1.0, 0.0], [-1.0, 0.0]], "bias": [0.0, 0.0]}
    >>> train = Activations(features=[[4.0, 0.1], [-4.0, 0.1], [3.0, -0.1]], **head)
    >>> Residual().fit(train)(Activations(features=[[5.0, 0.0], [0.0, 2.0]])).round(2)
    array([0.04, 2.  ])
    """

    name: ClassVar[str] = "residual"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    fit_needs: ClassVar[tuple[str, ...]] = ("features", "weight", "bias")
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Wang et al., CVPR 2022"

    def __init__(self, *, dim: int | None = None) -> None:
        self.dim = dim

    def _check_parameters(self) -> None:
        check_dim(self.dim)

    def _fit(self, activations: Activations) -> None:
        self.origin_, self.directions_ = fit_residual_space(activations, self.dim)

    def _score(self, block: Activations) -> Floats:
        return residual_norm(np.asarray(block.features, dtype=np.float64), self.origin_, self.directions_)
