# SPDX-License-Identifier: BSD-3-Clause
"""fDBD: distance to the decision boundaries, relative to the distance from the centre of ID data.

Convention: higher = reject sooner; the published ratio is a confidence, so it is negated.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._moments import mean
from poscod.scores._score import Score


@final
class FDBD(Score):
    """Fast decision-boundary distance.

    Attributes
    ----------
    mean_ : ndarray of shape (d,)
        Mean features of the ID rows.
    gap_ : ndarray of shape (K, K)
        |w_c - w_y| between the rows of the last weight.

    Notes
    -----
    ``s(x) = -(1/(K - 1)) sum_{y != c} (z_c - z_y) / (|w_c - w_y| |phi - mu|)`` with z the K logits, c the predicted
    class, w the rows of the last weight, phi the d features of x and mu their mean over ID rows. The fraction
    (z_c - z_y) / |w_c - w_y| is the distance of phi to the boundary between c and y. A class with the same weights
    as c has no boundary and is left out of the sum.

    References
    ----------
    .. [1] L. Liu, Y. Qin, "Fast Decision Boundary based Out-of-Distribution Detector", ICML 2024.

    Examples
    --------
    >>> head = {"weight": [[1.0, 0.0], [0.0, 1.0]]}
    >>> score = FDBD().fit(Activations([[1.0, 1.0]], [[1.0, 1.0]], **head))
    >>> score(Activations([[2.0, 1.0], [4.0, 4.0]], [[2.0, 1.0], [4.0, 4.0]])).round(4) + 0.0
    array([-0.7071,  0.    ])
    """

    name: ClassVar[str] = "fdbd"
    needs: ClassVar[tuple[str, ...]] = ("features", "logits")
    fit_needs: ClassVar[tuple[str, ...]] = ("features", "logits", "weight")
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Liu & Qin, ICML 2024"

    def _fit(self, activations: Activations) -> None:
        weight = np.asarray(activations.weight, dtype=np.float64)
        if len(weight) < 2:
            raise InvalidInputError("Fitting the score 'fdbd' needs at least two classes, got one.")
        self.mean_ = mean(activations.features)
        # One class at a time: a (K, K, d) array of differences would not fit.
        self.gap_ = np.stack([np.sqrt(((weight - row) ** 2).sum(axis=1)) for row in weight])

    def _score(self, block: Activations) -> Floats:
        logits = np.asarray(block.logits, dtype=np.float64)
        predicted = logits.argmax(axis=1)
        gap = self.gap_[predicted]
        lead = logits[np.arange(len(logits)), predicted][:, None] - logits
        reach = np.where(gap > 0, lead, 0.0) / np.where(gap > 0, gap, 1.0)
        centred = np.asarray(block.features, dtype=np.float64) - self.mean_
        norm = np.sqrt(np.einsum("nd,nd->n", centred, centred))
        # A row at the very centre is as much inside as can be: large, yet finite.
        return np.asarray(-reach.sum(axis=1) / (logits.shape[1] - 1) / np.maximum(norm, 1e-150))
