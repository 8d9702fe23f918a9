# SPDX-License-Identifier: BSD-3-Clause
"""One number from two: s(x) from the conditional risk and the likelihood ratio, or from any two scores."""

from poscod.decision import rejection_score
from poscod.strategies._curves import plugin_curve, tuned_areas, tuned_curve
from poscod.strategies._family import STRATEGIES, linear, product, sirc, sirc_parameters

__all__ = [
    "STRATEGIES",
    "linear",
    "plugin_curve",
    "product",
    "sirc",
    "tuned_curve",
]
