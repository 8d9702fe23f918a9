# SPDX-License-Identifier: BSD-3-Clause
"""EBO: the free energy of the logits.

Convention: higher = reject sooner; the energy is published as an uncertainty, its negative as the confidence.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_number
from poscod.activations import Activations
from poscod.scores._score import Score
from poscod.scores._softmax import log_sum_exp


@final
class Energy(Score):
    """Free energy of the logits.

    Parameters
    ----------
    temperature : float > 0, default=1.0
        Temperature T.

    Notes
    -----
    ``s(x) = -T log sum_y exp(z_y / T)`` with z the K logits and T the temperature.

    References
    ----------
    .. [1] W. Liu, X. Wang, J. Owens, Y. Li, "Energy-based Out-of-distribution Detection", NeurIPS 2020.

    Examples
    --------
    >>> Energy()(Activations(logits=[[0.0, 0.0], [5.0, 0.0]])).round(4)
    array([-0.6931, -5.0067])
    """

    name: ClassVar[str] = "ebo"
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    citation: ClassVar[str] = "Liu et al., NeurIPS 2020"

    def __init__(self, *, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def _check_parameters(self) -> None:
        check_number(self.temperature, "temperature", 0.0, np.inf, closed="neither")

    def _score(self, block: Activations) -> Floats:
        return free_energy(block.logits, self.temperature)


def free_energy(logits: NDArray[Any], temperature: float = 1.0) -> Floats:
    """Return -T log sum exp(logits / T) of a checked block."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    return -temperature * log_sum_exp(scaled)
