# SPDX-License-Identifier: BSD-3-Clause
"""Entropy of the softmax.

Convention: higher = reject sooner; entropy is an uncertainty already.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._softmax import SplitSoftmax, split_softmax


@final
class Entropy(Score):
    """Shannon entropy of the softmax, in nats.

    Notes
    -----
    ``s(x) = -sum_y p_y log p_y`` with ``p = softmax(z)`` and z the K logits. No term is negative, so that
    confident rows keep their order.

    References
    ----------
    .. [1] C. E. Shannon, "A Mathematical Theory of Communication", 1948; as a rejection score e.g. in
       B. Lakshminarayanan, A. Pritzel, C. Blundell, "Simple and Scalable Predictive Uncertainty Estimation using
       Deep Ensembles", NeurIPS 2017.

    Examples
    --------
    >>> Entropy()(Activations(logits=[[0.0, 0.0], [5.0, 0.0]])).round(4)
    array([0.6931, 0.0402])
    """

    name: ClassVar[str] = "entropy"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    citation: ClassVar[str] = "Shannon 1948; Lakshminarayanan et al., NeurIPS 2017"

    def _score(self, block: Activations) -> Floats:
        return softmax_entropy(split_softmax(block.logits))


def softmax_entropy(softmax: SplitSoftmax) -> Floats:
    """Return the entropy of a split softmax."""
    return np.asarray(-np.einsum("nk,nk->n", np.exp(softmax.log_p), softmax.log_p))
