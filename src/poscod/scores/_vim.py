# SPDX-License-Identifier: BSD-3-Clause
"""ViM: the residual of the features as one more logit, against the energy of the others.

Convention: higher = reject sooner; the published confidence is minus this difference.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._energy import free_energy
from poscod.scores._moments import blocks
from poscod.scores._score import Score
from poscod.scores._subspace import check_dim, fit_residual_space, residual_norm


@final
class ViM(Score):
    """Virtual-logit matching.

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
    scale_ : float
        Factor a that gives the virtual logit the mean size of the largest logit on ID rows.

    Notes
    -----
    ``s(x) = a |R^T (phi - o)| - log sum_y exp(z_y)`` with phi the features, z the K logits, o and R as in
    `Residual`, and ``a = mean_i max_y z_y(x_i) / mean_i |R^T (phi_i - o)|`` over ID rows. It orders rows as the
    softmax probability of the virtual logit ``a |R^T (phi - o)|`` does.

    References
    ----------
    .. [1] H. Wang, Z. Li, L. Feng, W. Zhang, "ViM: Out-of-Distribution with Virtual-logit Matching", CVPR 2022.

    Examples
    --------
    >>> head = {"weight": [[1.0, 0.0], [-1.0, 0.0]], "bias": [0.0, 0.0]}
    >>> train = Activations([[4.0, 0.1], [-4.0, 0.1], [3.0, -0.1]], [[4.0, -4.0], [-4.0, 4.0], [3.0, -3.0]], **head)
    >>> test = Activations([[5.0, 0.0], [0.0, 2.0]], [[5.0, -5.0], [0.0, 0.0]])
    >>> ViM().fit(train)(test).round(1)
    array([-3.6, 78.4])
    """

    name: ClassVar[str] = "vim"
    needs: ClassVar[tuple[str, ...]] = ("features", "logits")
    fit_needs: ClassVar[tuple[str, ...]] = ("features", "logits", "weight", "bias")
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Wang et al., CVPR 2022"

    def __init__(self, *, dim: int | None = None) -> None:
        self.dim = dim

    def _check_parameters(self) -> None:
        check_dim(self.dim)

    def _fit(self, activations: Activations) -> None:
        self.origin_, self.directions_ = fit_residual_space(activations, self.dim)
        total = sum(
            float(residual_norm(block, self.origin_, self.directions_).sum())
            for _, block in blocks(activations.features)
        )
        if total == 0.0:
            raise InvalidInputError(
                "Fitting the score 'vim' needs ID features with a part outside the principal subspace, got none: "
                "lower dim."
            )
        self.scale_ = float(activations.logits.max(axis=1).sum(dtype=np.float64)) / total

    def _score(self, block: Activations) -> Floats:
        features = np.asarray(block.features, dtype=np.float64)
        return self.scale_ * residual_norm(features, self.origin_, self.directions_) + free_energy(block.logits)
