# SPDX-License-Identifier: BSD-3-Clause
"""Energy after shaping: ASH, SCALE and ReAct change the features before the last layer, DICE the layer itself.

Convention: higher = reject sooner; the published confidence is minus the energy. Features are a float64 block (n, d)
that is never changed.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_number
from poscod.activations import Activations
from poscod.scores._moments import mean
from poscod.scores._score import Score
from poscod.scores._softmax import free_energy


@dataclass(eq=False, repr=False, kw_only=True)
class _Shaping(Score):
    """Energy of features that are shaped row by row, by their largest entries."""

    needs = ("features", "weight", "bias")
    percentile: float = 65.0

    def _check_parameters(self) -> None:
        # At 100 nothing would be left.
        check_number(self.percentile, "percentile", 0.0, 100.0, closed="left")

    def _score(self, block: Activations) -> Floats:
        features = np.asarray(block.features, dtype=np.float64)
        kept = max(1, block.n_features - round(block.n_features * self.percentile / 100.0))
        return head_energy(self._shape(features, largest_mask(features, kept), kept), block.weight, block.bias)

    @abstractmethod
    def _shape(self, features: Floats, mask: NDArray[np.bool_], kept: int) -> Floats:
        """Return the features that the last layer sees."""


class AshP(_Shaping):
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

    name = "ash_p"

    def _shape(self, features: Floats, mask: NDArray[np.bool_], kept: int) -> Floats:
        return np.where(mask, features, 0.0)


class AshB(_Shaping):
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

    name = "ash_b"

    def _shape(self, features: Floats, mask: NDArray[np.bool_], kept: int) -> Floats:
        return np.where(mask, features.sum(axis=1, keepdims=True) / kept, 0.0)


@dataclass(eq=False, repr=False, kw_only=True)
class AshS(_Shaping):
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

    name = "ash_s"
    percentile: float = 90.0

    def _shape(self, features: Floats, mask: NDArray[np.bool_], kept: int) -> Floats:
        return np.where(mask, features, 0.0) * np.exp(sum_ratio(features, mask, kept))[:, None]


@dataclass(eq=False, repr=False, kw_only=True)
class Scale(_Shaping):
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

    name = "scale"
    percentile: float = 85.0

    def _shape(self, features: Floats, mask: NDArray[np.bool_], kept: int) -> Floats:
        return features * np.exp(sum_ratio(features, mask, kept))[:, None]


@dataclass(eq=False, repr=False, kw_only=True)
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

    name = "react"
    needs = ("features",)
    fit_needs = ("features", "weight", "bias")
    percentile: float = 90.0

    def _check_parameters(self) -> None:
        check_number(self.percentile, "percentile", 0.0, 100.0)

    def _fit(self, activations: Activations) -> None:
        everything = np.array(activations.features).reshape(-1)
        self.clip_ = float(np.percentile(everything, self.percentile, overwrite_input=True))  # one copy, not two
        self.weight_ = np.array(activations.weight, dtype=np.float64)
        self.bias_ = np.array(activations.bias, dtype=np.float64)

    def _score(self, block: Activations) -> Floats:
        features = np.minimum(np.asarray(block.features, dtype=np.float64), self.clip_)
        return head_energy(features, self.weight_, self.bias_)


@dataclass(eq=False, repr=False, kw_only=True)
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

    name = "dice"
    needs = ("features",)
    fit_needs = ("features", "weight", "bias")
    sparsity: float = 90.0

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


def head_energy(features: Floats, weight: NDArray[Any], bias: NDArray[Any]) -> Floats:
    """Return the free energy of the logits W phi + b."""
    return free_energy(features @ np.asarray(weight, dtype=np.float64).T + np.asarray(bias, dtype=np.float64))


def largest_mask(features: Floats, kept: int) -> NDArray[np.bool_]:
    """Mark the largest features of each row; among equal ones the first columns win."""
    n_features = features.shape[1]
    if kept >= n_features:
        return np.ones(features.shape, dtype=bool)
    limit = np.partition(features, n_features - kept, axis=1)[:, n_features - kept, None]
    mask = features > limit
    tied = features == limit
    room = kept - mask.sum(axis=1, keepdims=True)
    mask |= tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= room)
    return mask


def sum_ratio(features: Floats, mask: NDArray[np.bool_], kept: int) -> Floats:
    """Return the sum of all features over the sum of the kept ones."""
    everything = features.sum(axis=1)
    largest = np.where(mask, features, 0.0).sum(axis=1)
    bound = features.shape[1] / kept
    # largest = 0 means that all features are zero (ratio irrelevant) or that some are negative (clipped anyway).
    safe = np.where(largest > 0, largest, 1.0)
    limited = np.clip(everything, 0.0, bound * safe)
    return np.asarray(limited / safe)
