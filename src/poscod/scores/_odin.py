# SPDX-License-Identifier: BSD-3-Clause
"""ODIN, its temperature part: MSP of the logits divided by a large temperature.

Convention: higher = reject sooner; the published confidence is turned into one minus it. The input perturbation
of ODIN needs the network and is not part of this score.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats, check_number
from poscod.activations import Activations
from poscod.scores._msp import one_minus_top
from poscod.scores._score import Score


@final
class ODIN(Score):
    """Temperature-scaled softmax, without the input perturbation.

    Parameters
    ----------
    temperature : float > 0, default=1000.0
        Temperature T.

    Notes
    -----
    ``s(x) = 1 - max_y softmax(z / T)_y`` with z the K logits. At T = 1000 every row lies close to 1 - 1/K; the
    order stays exact because logits are shifted by their largest before they are divided, in float64.

    References
    ----------
    .. [1] S. Liang, Y. Li, R. Srikant, "Enhancing the Reliability of Out-of-distribution Image Detection in
       Neural Networks", ICLR 2018.

    Examples
    --------
    >>> ODIN()(Activations(logits=[[0.0, 0.0], [5.0, 0.0]])).round(5)
    array([0.5    , 0.49875])
    """

    name: ClassVar[str] = "odin"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    citation: ClassVar[str] = "Liang et al., ICLR 2018"

    def __init__(self, *, temperature: float = 1000.0) -> None:
        self.temperature = temperature

    def _check_parameters(self) -> None:
        check_number(self.temperature, "temperature", 0.0, np.inf, closed="neither")

    def _score(self, block: Activations) -> Floats:
        return one_minus_top(block.logits, self.temperature)
