# SPDX-License-Identifier: BSD-3-Clause
"""SHE: inner product of the features with the stored pattern of the predicted class.

Convention: higher = reject sooner; the published inner product is a confidence, so it is negated.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._moments import class_means, classes_of
from poscod.scores._score import Score


@final
class SHE(Score):
    """Simplified Hopfield energy.

    Attributes
    ----------
    patterns_ : ndarray of shape (K, d)
        Mean features of the correctly classified ID rows of each class; zeros for a class without such a row.

    Notes
    -----
    ``s(x) = -phi^T m_c`` with phi the d features of x, c its predicted class and m_c the stored pattern of c: the mean
    features of ID rows that belong to c and are predicted as c (without labels: that are predicted as c). A class
    that was never seen right has the pattern 0, hence the score 0.

    References
    ----------
    .. [1] J. Zhang et al., "Out-of-Distribution Detection Based on In-Distribution Data Patterns Memorization with
       Modern Hopfield Energy", ICLR 2023.

    Examples
    --------
    >>> train = Activations([[2.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]], labels=[0, 1])
    >>> SHE().fit(train)(Activations([[1.0, 1.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]))
    array([-2., -6.])
    """

    name: ClassVar[str] = "she"
    needs: ClassVar[tuple[str, ...]] = ("features", "logits")
    fit_needs: ClassVar[tuple[str, ...]] = ("features", "logits")
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Zhang et al., ICLR 2023"

    def _fit(self, activations: Activations) -> None:
        classes = classes_of(activations, f"Fitting the score '{self.name}'")
        right = np.where(classes == activations.logits.argmax(axis=1), classes, -1)
        if (right < 0).all():
            raise InvalidInputError(
                f"Fitting the score '{self.name}' needs rows that are classified correctly, got none."
            )
        present, means, _ = class_means(activations.features, right)
        self.patterns_ = np.zeros((activations.n_classes, activations.n_features))
        self.patterns_[present] = means

    def _score(self, block: Activations) -> Floats:
        predicted = block.logits.argmax(axis=1)
        features = np.asarray(block.features, dtype=np.float64)
        return np.asarray(-np.einsum("nd,nd->n", features, self.patterns_[predicted]))
