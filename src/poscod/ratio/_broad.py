# SPDX-License-Identifier: BSD-3-Clause
"""The broad part of g: a share of the OOD inputs is taken to follow the ID-only rule, whatever the traffic held.

Convention: both parts are log g with E_ID[g] = 1, and so is their mixture.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.ratio._crossfit import side_losses
from poscod.ratio._likelihood import log_a

Pair = tuple[Floats, Floats]
# Shares that are tried, and what one may cost in held-out log-likelihood for each OOD row that is expected.
SHARES = (0.02, 0.05, 0.1, 0.2)
COST = 0.005


def with_broad(learned: Floats, id_only: Floats, share: float) -> Floats:
    """Return log g where a share of the OOD inputs follows the ID-only rule, so that kinds the traffic did not hold are not taken for ID."""
    if share == 0.0:
        return learned
    return np.logaddexp(np.log1p(-share) + learned, np.log(share) + id_only)


def broad_share(learned: Pair, id_only: Pair, weights: Pair, pi: float, said: NDArray[np.int8] | None = None) -> float:
    """Return the largest share of the ID-only rule that held-out rows do not speak against.

    The traffic cannot say which kinds will come; it can say what a share costs on the kinds it holds, in held-out likelihood.
    """
    mass = np.concatenate(weights)
    null = float(np.log(weights[1].sum() / weights[0].sum()) + np.log(pi))
    scaled = mass / mass.sum() * len(mass)

    def loss(share: float) -> float:
        u = np.concatenate([with_broad(one, two, share) for one, two in zip(learned, id_only, strict=True)]) + null
        values, _ = side_losses(u, len(weights[0]), log_a(pi, null - float(np.log(pi))), said)
        return float(scaled @ values)

    found = {share: loss(share) for share in (0.0, *SHARES)}
    most = min(found.values()) + COST * pi * len(learned[1])
    return max(share for share, value in found.items() if value <= most)
