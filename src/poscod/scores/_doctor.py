# SPDX-License-Identifier: BSD-3-Clause
"""DOCTOR: odds of an error under the softmax, averaged over a random answer.

Convention: higher = reject sooner; the published statistic is an uncertainty already.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._softmax import split_softmax


@final
class Doctor(Score):
    """The D_alpha statistic of DOCTOR.

    Notes
    -----
    ``s(x) = (1 - q) / q`` with ``q = sum_y p_y^2``, ``p = softmax(z)`` and z the K logits (temperature 1, no input
    perturbation). 1 - q is summed as p_y (1 - p_y), so that confident rows keep their order. D_beta,
    (1 - max p) / max p, orders rows exactly as MSP and has no score of its own.

    References
    ----------
    .. [1] F. Granese, M. Romanelli, D. Gorla, C. Palamidessi, P. Piantanida, "DOCTOR: A Simple Method for Detecting
       Misclassification Errors", NeurIPS 2021.

    Examples
    --------
    >>> Doctor()(Activations(logits=[[0.0, 0.0], [40.0, 0.0]]))
    array([1.00000000e+00, 8.49670851e-18])
    """

    name: ClassVar[str] = "doctor"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    citation: ClassVar[str] = "Granese et al., NeurIPS 2021"

    def _score(self, block: Activations) -> Floats:
        softmax = split_softmax(block.logits)
        p = np.exp(softmax.log_p)
        other = 1.0 - p
        other[np.arange(len(p)), softmax.top] = np.exp(softmax.log_one_minus_top)
        return np.asarray(np.einsum("nk,nk->n", p, other) / np.einsum("nk,nk->n", p, p))
