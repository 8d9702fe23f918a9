# SPDX-License-Identifier: BSD-3-Clause
"""Margin: the gap between the two largest logits.

Convention: higher = reject sooner; a wide gap is a confidence, so it is negated.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._score import Score


@final
class Margin(Score):
    """Gap between the largest and the second largest logit, negated.

    Notes
    -----
    ``s(x) = -(z_(1) - z_(2))`` with z_(1) >= z_(2) the two largest of the K >= 2 logits.

    References
    ----------
    .. [1] T. Scheffer, C. Decomain, S. Wrobel, "Active Hidden Markov Models for Information Extraction", IDA 2001.

    Examples
    --------
    >>> Margin()(Activations(logits=[[1.0, 4.0, 2.0], [5.0, 0.0, 0.0]]))
    array([-2., -5.])
    """

    name: ClassVar[str] = "margin"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    citation: ClassVar[str] = "Scheffer et al., IDA 2001"

    def _score(self, block: Activations) -> Floats:
        if block.n_classes < 2:
            raise InvalidInputError("Score 'margin' needs logits of at least two classes, got one.")
        largest = np.partition(np.asarray(block.logits, dtype=np.float64), -2, axis=1)[:, -2:]
        return np.asarray(largest[:, 0] - largest[:, 1])
