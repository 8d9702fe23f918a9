# SPDX-License-Identifier: BSD-3-Clause
"""DICE: keep only the weights of the last layer that contribute most on ID data, then take the energy.

Convention: higher = reject sooner; the published confidence is minus the energy.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats, check_number
from poscod.activations import Activations
from poscod.scores._moments import mean
from poscod.scores._score import Score
from poscod.scores._shaping import head_energy


@final
class DICE(Score):
    """Energy through a sparse last layer.

    Parameters
    ----------
    sparsity : float in [0, 100), default=90.0
        Share p of the weights that is set to zero, in percent.

    Attributes
    ----------
    weight_ : ndarray of shape (K, d)
        The sparse weight.
    bias_ : ndarray of shape (K,)
        Bias of the last layer.

    Notes
    -----
    ``s(x) = -log sum_y exp((m_y * w_y)^T phi + b_y)`` with phi the d features of x, w_y, b_y the last layer, and
    m_yi = 1 where the contribution ``w_yi E_ID[phi_i]`` exceeds the p-th percentile of all K d contributions, else 0.

    References
    ----------
    .. [1] Y. Sun, Y. Li, "DICE: Leveraging Sparsification for Out-of-Distribution Detection", ECCV 2022.

    Examples
    --------
    >>> head = {"weight": [[2.0, 1.0], [0.0, 0.0]]}
    >>> score = DICE(sparsity=70).fit(Activations(features=[[1.0, 1.0]], **head))
    >>> score(Activations(features=[[3.0, 9.0]])).round(4)
    array([-6.0025])
    """

    name: ClassVar[str] = "dice"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    fit_needs: ClassVar[tuple[str, ...]] = ("features", "weight", "bias")
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Sun & Li, ECCV 2022"

    def __init__(self, *, sparsity: float = 90.0) -> None:
        self.sparsity = sparsity

    def _check_parameters(self) -> None:
        check_number(self.sparsity, "sparsity", 0.0, 100.0, closed="left")

    def _fit(self, activations: Activations) -> None:
        weight = np.asarray(activations.weight, dtype=np.float64)
        contribution = weight * mean(activations.features)
        # The smallest contribution survives only when nothing is pruned: at 0 percent the layer stays whole.
        limit = np.percentile(contribution, self.sparsity) if self.sparsity > 0 else -np.inf
        self.weight_ = np.where(contribution > limit, weight, 0.0)
        self.bias_ = np.array(activations.bias, dtype=np.float64)

    def _score(self, block: Activations) -> Floats:
        return head_energy(np.asarray(block.features, dtype=np.float64), self.weight_, self.bias_)
