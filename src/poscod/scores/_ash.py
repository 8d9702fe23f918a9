# SPDX-License-Identifier: BSD-3-Clause
"""ASH: prune the smallest features of each row, then take the energy.

Convention: higher = reject sooner; the published confidence is minus the energy.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._shaping import check_percentile, head_energy, kept_count, largest_mask, sum_ratio

CITATION = "Djurisic et al., ICLR 2023"


@final
class AshP(Score):
    """Activation shaping, variant P: prune.

    Parameters
    ----------
    percentile : float in [0, 100), default=65.0
        Share p of the features that is pruned, in percent.

    Notes
    -----
    ``s(x) = -log sum_y exp(w_y^T t + b_y)`` with w_y, b_y the last layer and t the d features of x, of which only
    the m = d - round(d p / 100) largest are kept and the others set to 0.

    References
    ----------
    .. [1] A. Djurisic, N. Bozanic, A. Ashok, R. Liu, "Extremely Simple Activation Shaping for Out-of-Distribution
       Detection", ICLR 2023.

    Examples
    --------
    >>> x = Activations(features=[[4.0, 1.0]], weight=[[1.0, 1.0], [0.0, 0.0]])
    >>> AshP(percentile=50)(x).round(4)
    array([-4.0181])
    """

    name: ClassVar[str] = "ash_p"
    needs: ClassVar[tuple[str, ...]] = ("features", "weight", "bias")
    citation: ClassVar[str] = CITATION

    def __init__(self, *, percentile: float = 65.0) -> None:
        self.percentile = percentile

    def _check_parameters(self) -> None:
        check_percentile(self.percentile)

    def _score(self, block: Activations) -> Floats:
        features = np.asarray(block.features, dtype=np.float64)
        mask = largest_mask(features, kept_count(block.n_features, self.percentile))
        return head_energy(np.where(mask, features, 0.0), block.weight, block.bias)


@final
class AshB(Score):
    """Activation shaping, variant B: prune and binarise.

    Parameters
    ----------
    percentile : float in [0, 100), default=65.0
        Share p of the features that is pruned, in percent.

    Notes
    -----
    ``s(x) = -log sum_y exp(w_y^T t + b_y)`` with w_y, b_y the last layer and t zero except for the
    m = d - round(d p / 100) largest of the d features of x, which all become (sum of all features) / m. Among
    equal features the first columns are kept.

    References
    ----------
    .. [1] A. Djurisic, N. Bozanic, A. Ashok, R. Liu, "Extremely Simple Activation Shaping for Out-of-Distribution
       Detection", ICLR 2023.

    Examples
    --------
    >>> x = Activations(features=[[4.0, 1.0]], weight=[[1.0, 1.0], [0.0, 0.0]])
    >>> AshB(percentile=50)(x).round(4)
    array([-5.0067])
    """

    name: ClassVar[str] = "ash_b"
    needs: ClassVar[tuple[str, ...]] = ("features", "weight", "bias")
    citation: ClassVar[str] = CITATION

    def __init__(self, *, percentile: float = 65.0) -> None:
        self.percentile = percentile

    def _check_parameters(self) -> None:
        check_percentile(self.percentile)

    def _score(self, block: Activations) -> Floats:
        features = np.asarray(block.features, dtype=np.float64)
        kept = kept_count(block.n_features, self.percentile)
        fill = features.sum(axis=1, keepdims=True) / kept
        return head_energy(np.where(largest_mask(features, kept), fill, 0.0), block.weight, block.bias)


@final
class AshS(Score):
    """Activation shaping, variant S: prune and scale.

    Parameters
    ----------
    percentile : float in [0, 100), default=90.0
        Share p of the features that is pruned, in percent.

    Notes
    -----
    ``s(x) = -log sum_y exp(w_y^T t + b_y)`` with w_y, b_y the last layer and t the m = d - round(d p / 100) largest
    of the d features of x times exp(S1 / S2), the others 0; S1 is the sum of all features, S2 the sum of the kept
    ones. Made for features after ReLU; S1 / S2 is clipped to [0, d / m], which changes nothing for those.

    References
    ----------
    .. [1] A. Djurisic, N. Bozanic, A. Ashok, R. Liu, "Extremely Simple Activation Shaping for Out-of-Distribution
       Detection", ICLR 2023.

    Examples
    --------
    >>> x = Activations(features=[[4.0, 1.0]], weight=[[1.0, 1.0], [0.0, 0.0]])
    >>> AshS(percentile=50)(x).round(4)  # 4 exp(5 / 4)
    array([-13.9614])
    """

    name: ClassVar[str] = "ash_s"
    needs: ClassVar[tuple[str, ...]] = ("features", "weight", "bias")
    citation: ClassVar[str] = CITATION

    def __init__(self, *, percentile: float = 90.0) -> None:
        self.percentile = percentile

    def _check_parameters(self) -> None:
        check_percentile(self.percentile)

    def _score(self, block: Activations) -> Floats:
        features = np.asarray(block.features, dtype=np.float64)
        kept = kept_count(block.n_features, self.percentile)
        mask = largest_mask(features, kept)
        factor = np.exp(sum_ratio(features, mask, kept))
        return head_energy(np.where(mask, features, 0.0) * factor[:, None], block.weight, block.bias)
