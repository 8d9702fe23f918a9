# SPDX-License-Identifier: BSD-3-Clause
"""GradNorm: size of the gradient that pulls the prediction towards uniform, in closed form.

Convention: higher = reject sooner; a large gradient is published as a confidence, so it is negated.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._softmax import split_softmax


@final
class GradNorm(Score):
    """L1 norm of the gradient of KL(uniform || softmax) with respect to the last weight, negated.

    Notes
    -----
    ``s(x) = -|phi|_1 |p - 1/K|_1`` with phi the features, ``p = softmax(z)``, z the K logits. Derivation: the
    divergence is D = -(1/K) sum_y log p_y + const with z = W phi + b, so that dD/dz = p - 1/K and
    dD/dW = (p - 1/K) phi^T, whose entries have absolute sum |p - 1/K|_1 |phi|_1. No gradient is computed, and the
    bias plays no part (temperature 1, as published). OpenOOD sums instead of averaging over classes: K times this.

    References
    ----------
    .. [1] R. Huang, A. Geng, Y. Li, "On the Importance of Gradients for Detecting Distributional Shifts in the
       Wild", NeurIPS 2021.

    Examples
    --------
    >>> GradNorm()(Activations(features=[[1.0, 2.0], [1.0, 2.0]], logits=[[0.0, 0.0], [50.0, 0.0]])).round(4) + 0.0
    array([ 0., -3.])
    """

    name: ClassVar[str] = "gradnorm"
    needs: ClassVar[tuple[str, ...]] = ("features", "logits")
    citation: ClassVar[str] = "Huang et al., NeurIPS 2021"

    def _score(self, block: Activations) -> Floats:
        probability = np.exp(split_softmax(block.logits).log_p)
        pull = np.abs(probability - 1.0 / block.n_classes).sum(axis=1)
        return np.asarray(-np.abs(np.asarray(block.features, dtype=np.float64)).sum(axis=1) * pull)
