# SPDX-License-Identifier: BSD-3-Clause
"""ReAct: clip the features at a level ID data rarely exceeds, then take the energy.

Convention: higher = reject sooner; the published confidence is minus the energy.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_number
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._shaping import head_energy


@final
class ReAct(Score):
    """Energy of rectified features.

    Parameters
    ----------
    percentile : float in [0, 100], default=90.0
        Percentile of all ID activations at which features are clipped.

    Attributes
    ----------
    clip_ : float
        The level c.
    weight_ : ndarray of shape (K, d)
        Weight of the last layer.
    bias_ : ndarray of shape (K,)
        Bias of the last layer.

    Notes
    -----
    ``s(x) = -log sum_y exp(w_y^T min(phi, c) + b_y)`` with phi the d features of x, w_y, b_y the last layer, min
    taken per feature, and c the percentile of all n d activations of the ID rows (linear interpolation).

    References
    ----------
    .. [1] Y. Sun, C. Guo, Y. Li, "ReAct: Out-of-distribution Detection With Rectified Activations", NeurIPS 2021.

    Examples
    --------
    >>> head = {"weight": [[1.0, 1.0], [0.0, 0.0]]}
    >>> score = ReAct(percentile=100).fit(Activations(features=[[1.0, 2.0], [0.0, 3.0]], **head))
    >>> score(Activations(features=[[9.0, 1.0]])).round(4)
    array([-4.0181])
    """

    name: ClassVar[str] = "react"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    fit_needs: ClassVar[tuple[str, ...]] = ("features", "weight", "bias")
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Sun et al., NeurIPS 2021"

    def __init__(self, *, percentile: float = 90.0) -> None:
        self.percentile = percentile

    def _check_parameters(self) -> None:
        check_number(self.percentile, "percentile", 0.0, 100.0)

    def _fit(self, activations: Activations) -> None:
        self.clip_ = percentile_of(activations.features, self.percentile)
        self.weight_ = np.array(activations.weight, dtype=np.float64)
        self.bias_ = np.array(activations.bias, dtype=np.float64)

    def _score(self, block: Activations) -> Floats:
        features = np.minimum(np.asarray(block.features, dtype=np.float64), self.clip_)
        return head_energy(features, self.weight_, self.bias_)


def percentile_of(values: NDArray[Any], percentile: float) -> float:
    """Return a percentile of all entries, interpolated in float64, with a single copy of the array."""
    place = (values.size - 1) * percentile / 100.0
    low = int(np.floor(place))
    high = min(low + 1, values.size - 1)
    ordered = np.array(values, order="C").reshape(-1)
    ordered.partition([low, high])
    below, above = float(ordered[low]), float(ordered[high])
    return below + (place - low) * (above - below)
