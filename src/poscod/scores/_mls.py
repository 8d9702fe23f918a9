# SPDX-License-Identifier: BSD-3-Clause
"""MLS: the largest logit.

Convention: higher = reject sooner; the published confidence max_y z_y is negated.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._score import Score


@final
class MLS(Score):
    """Maximum logit score, negated.

    Notes
    -----
    ``s(x) = -max_y z_y`` with z the K logits.

    References
    ----------
    .. [1] D. Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", ICML 2022.

    Examples
    --------
    >>> MLS()(Activations(logits=[[0.0, 3.0], [5.0, 0.0]]))
    array([-3., -5.])
    """

    name: ClassVar[str] = "mls"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    citation: ClassVar[str] = "Hendrycks et al., ICML 2022"

    def _score(self, block: Activations) -> Floats:
        return np.asarray(-block.logits.max(axis=1), dtype=np.float64)
