# SPDX-License-Identifier: BSD-3-Clause
"""GEN: generalised entropy of the largest softmax probabilities.

Convention: higher = reject sooner; the published confidence is minus this entropy.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats, check_count, check_number
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._softmax import split_softmax


@final
class GEN(Score):
    """Generalised entropy.

    Parameters
    ----------
    gamma : float in (0, 1), default=0.1
        Exponent; the smaller, the more a small probability counts.
    n_largest : int, default=100
        Number M of largest probabilities that count.

    Notes
    -----
    ``s(x) = sum_j p_(j)^gamma (1 - p_(j))^gamma`` over the min(M, K) largest entries p_(j) of ``p = softmax(z)``,
    z the K logits. Taken in log space: a probability below the smallest float64 still counts.

    References
    ----------
    .. [1] X. Liu, Y. Lochman, C. Zach, "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection",
       CVPR 2023.

    Examples
    --------
    >>> GEN()(Activations(logits=[[0.0, 0.0], [40.0, 0.0]])).round(4)
    array([1.7411, 0.0366])
    """

    name: ClassVar[str] = "gen"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    citation: ClassVar[str] = "Liu et al., CVPR 2023"

    def __init__(self, *, gamma: float = 0.1, n_largest: int = 100) -> None:
        self.gamma = gamma
        self.n_largest = n_largest

    def _check_parameters(self) -> None:
        check_number(self.gamma, "gamma", 0.0, 1.0, closed="neither")
        check_count(self.n_largest, "n_largest")

    def _score(self, block: Activations) -> Floats:
        softmax = split_softmax(block.logits)
        rows = np.arange(len(softmax.top))
        log_p = softmax.log_p
        top = log_p[rows, softmax.top]
        first = np.exp(self.gamma * (top + softmax.log_one_minus_top))
        log_p[rows, softmax.top] = -np.inf  # the largest has its own term, computed without cancellation
        others = min(self.n_largest, block.n_classes) - 1
        if others == 0:
            return np.asarray(first)
        largest = np.partition(log_p, block.n_classes - others, axis=1)[:, block.n_classes - others :]
        terms = np.exp(self.gamma * (largest + np.log1p(-np.exp(largest))))
        return np.asarray(first + terms.sum(axis=1))
