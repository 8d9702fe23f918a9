# SPDX-License-Identifier: BSD-3-Clause
"""KL matching: divergence from the typical softmax of the nearest class.

Convention: higher = reject sooner; the published statistic is an uncertainty already.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._entropy import softmax_entropy
from poscod.scores._moments import blocks
from poscod.scores._score import Score
from poscod.scores._softmax import split_softmax


@final
class KLMatching(Score):
    """Smallest KL divergence between the softmax and the class templates.

    Attributes
    ----------
    log_templates_ : ndarray of shape (C, K)
        Logarithm of the mean softmax of the ID rows predicted as each class, for classes that were predicted.

    Notes
    -----
    ``s(x) = min_c sum_y p_y log(p_y / q_cy)`` with ``p = softmax(z)``, z the K logits, and q_c the mean of p over
    the ID rows whose predicted class is c. Labels are not used.

    References
    ----------
    .. [1] D. Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", ICML 2022.

    Examples
    --------
    >>> score = KLMatching().fit(Activations(logits=[[2.0, 0.0], [0.0, 2.0]]))
    >>> score(Activations(logits=[[2.0, 0.0], [0.0, 0.0]])).round(4) + 0.0
    array([0.    , 0.4338])
    """

    name: ClassVar[str] = "kl_matching"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    fit_needs: ClassVar[tuple[str, ...]] = ("logits",)
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Hendrycks et al., ICML 2022"

    def _fit(self, activations: Activations) -> None:
        n_classes = activations.n_classes
        totals, counts = np.zeros((n_classes, n_classes)), np.zeros(n_classes)
        for _, block in blocks(activations.logits):
            softmax = split_softmax(block)
            member = np.zeros((n_classes, len(block)))
            member[softmax.top, np.arange(len(block))] = 1.0
            totals += member @ np.exp(softmax.log_p)
            counts += member.sum(axis=1)
        seen = counts > 0
        # An entry that underflowed is tiny, not impossible: its logarithm stays finite.
        templates = np.maximum(totals[seen] / counts[seen, None], np.finfo(np.float64).tiny)
        self.log_templates_ = np.log(templates)

    def _score(self, block: Activations) -> Floats:
        softmax = split_softmax(block.logits)
        cross = np.exp(softmax.log_p) @ self.log_templates_.T
        return np.asarray(np.maximum(-softmax_entropy(softmax) - cross.max(axis=1), 0.0))
