# SPDX-License-Identifier: BSD-3-Clause
"""MSP: one minus the largest softmax probability.

Convention: higher = reject sooner; the published confidence max_y p(y | x) is turned into 1 - max_y p(y | x).
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from poscod._validation import Floats, check_matrix
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._score import Score
from poscod.scores._softmax import log_rest_of

ROWS = 8192


@final
class MSP(Score):
    """Maximum softmax probability, as an uncertainty.

    Notes
    -----
    ``s(x) = 1 - max_y p(y | x)`` with ``p = softmax(z)`` and z the K logits. Computed as S / (1 + S), where S is
    the sum of exp(z_j - z_max) over the classes j other than the predicted one, so that confident rows keep their
    order instead of all becoming 0.

    References
    ----------
    .. [1] D. Hendrycks, K. Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in
       Neural Networks", ICLR 2017.

    Examples
    --------
    >>> MSP()(Activations(logits=[[0.0, 0.0], [50.0, 0.0]]))
    array([5.00000000e-01, 1.92874985e-22])
    """

    name: ClassVar[str] = "msp"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    citation: ClassVar[str] = "Hendrycks & Gimpel, ICLR 2017"

    def _score(self, block: Activations) -> Floats:
        return one_minus_top(block.logits)


def one_minus_msp(logits: ArrayLike) -> Floats:
    """Return one minus the largest softmax probability of each row, without cancellation.

    Parameters
    ----------
    logits : array-like of shape (n, K)
        Finite logits, K >= 1.

    Returns
    -------
    uncertainty : ndarray of shape (n,), float64
        Between 0 and 1 - 1/K; it reaches 0 only where the number itself is below the smallest float64.

    Notes
    -----
    With z_max the largest logit and S the sum of exp(z_j - z_max) over the other classes, the result is
    S / (1 + S). Subtracting the probability from 1 would give 0 as soon as S is below 1e-16.

    Examples
    --------
    >>> one_minus_msp([[100.0, 0.0], [1.0, 1.0]])
    array([3.72007598e-44, 5.00000000e-01])
    """
    matrix = check_matrix(logits, "logits")
    if matrix.shape[1] == 0:
        raise InvalidInputError("logits must have at least one column, got none.")
    out = np.empty(len(matrix))
    for start in range(0, len(matrix), ROWS):
        out[start : start + ROWS] = one_minus_top(matrix[start : start + ROWS])
    return out


def one_minus_top(logits: NDArray[Any], temperature: float = 1.0) -> Floats:
    """Return 1 - max softmax(logits / temperature) of a checked block."""
    shifted = np.array(logits, dtype=np.float64)
    top = shifted.argmax(axis=1)
    shifted -= shifted[np.arange(len(shifted)), top][:, None]
    shifted /= temperature
    return np.asarray(expit(log_rest_of(shifted, top)))
