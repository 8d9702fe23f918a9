# SPDX-License-Identifier: BSD-3-Clause
"""Norms of the features: far inputs excite a network less.

Convention: higher = reject sooner; a large norm is a confidence, so norms are negated.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._score import Score


@final
class L1Norm(Score):
    """L1 norm of the features, negated.

    Notes
    -----
    ``s(x) = -sum_i |phi_i(x)|`` with phi the d features; the feature half of GradNorm.

    References
    ----------
    .. [1] R. Huang, A. Geng, Y. Li, "On the Importance of Gradients for Detecting Distributional Shifts in the
       Wild", NeurIPS 2021.

    Examples
    --------
    >>> L1Norm()(Activations(features=[[1.0, -2.0], [0.0, 0.5]]))
    array([-3. , -0.5])
    """

    name: ClassVar[str] = "l1_norm"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    citation: ClassVar[str] = "Huang et al., NeurIPS 2021"

    def _score(self, block: Activations) -> Floats:
        return np.asarray(-np.abs(np.asarray(block.features, dtype=np.float64)).sum(axis=1))


@final
class L2Norm(Score):
    """Euclidean norm of the features, negated.

    Notes
    -----
    ``s(x) = -sqrt(sum_i phi_i(x)^2)`` with phi the d features.

    References
    ----------
    .. [1] S. Vaze, K. Han, A. Vedaldi, A. Zisserman, "Open-Set Recognition: A Good Closed-Set Classifier Is All
       You Need?", ICLR 2022.

    Examples
    --------
    >>> L2Norm()(Activations(features=[[3.0, -4.0], [0.0, 0.5]]))
    array([-5. , -0.5])
    """

    name: ClassVar[str] = "l2_norm"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    citation: ClassVar[str] = "Vaze et al., ICLR 2022"

    def _score(self, block: Activations) -> Floats:
        features = np.asarray(block.features, dtype=np.float64)
        return np.asarray(-np.sqrt(np.einsum("nd,nd->n", features, features)))
