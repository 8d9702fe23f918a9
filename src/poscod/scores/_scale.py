# SPDX-License-Identifier: BSD-3-Clause
"""SCALE: scale all features by a factor that the largest ones set, then take the energy.

Convention: higher = reject sooner; the published confidence is minus the energy.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._shaping import check_percentile, head_energy, kept_count, largest_mask, sum_ratio


@final
class Scale(Score):
    """Activation scaling without pruning.

    Parameters
    ----------
    percentile : float in [0, 100), default=85.0
        Share p of the features that the factor leaves out, in percent.

    Notes
    -----
    ``s(x) = -log sum_y exp(w_y^T t + b_y)`` with w_y, b_y the last layer and ``t = phi exp(S1 / S2)``, where phi are
    the d features of x, S1 their sum and S2 the sum of the m = d - round(d p / 100) largest. Made for features after
    ReLU; S1 / S2 is clipped to [0, d / m], which changes nothing for those.

    References
    ----------
    .. [1] K. Xu, R. Chen, G. Franchi, A. Yao, "Scaling for Training Time and Post-hoc Out-of-distribution Detection
       Enhancement", ICLR 2024.

    Examples
    --------
    >>> x = Activations(features=[[4.0, 1.0]], weight=[[1.0, 1.0], [0.0, 0.0]])
    >>> Scale(percentile=50)(x).round(4)  # 5 exp(5 / 4)
    array([-17.4517])
    """

    name: ClassVar[str] = "scale"
    needs: ClassVar[tuple[str, ...]] = ("features", "weight", "bias")
    citation: ClassVar[str] = "Xu et al., ICLR 2024"

    def __init__(self, *, percentile: float = 85.0) -> None:
        self.percentile = percentile

    def _check_parameters(self) -> None:
        check_percentile(self.percentile)

    def _score(self, block: Activations) -> Floats:
        features = np.asarray(block.features, dtype=np.float64)
        kept = kept_count(block.n_features, self.percentile)
        factor = np.exp(sum_ratio(features, largest_mask(features, kept), kept))
        return head_energy(features * factor[:, None], block.weight, block.bias)
