# SPDX-License-Identifier: BSD-3-Clause
"""Displays: arrays in, a picture and a table out.

Every display stores arrays and computes nothing when it draws: ``from_*`` computes through lower layers, ``plot`` draws with
matplotlib (extra ``plot``), ``frame`` returns the same numbers as a pandas DataFrame.
"""

from poscod.plot._curves import RiskCurveDisplay
from poscod.plot._display import RULE_NAMES, Display
from poscod.plot._plane import PlaneDisplay, plane_window, thin
from poscod.plot._rejections import RejectionDisplay
from poscod.plot._terms import ReliabilityDisplay, ScoreDistributionDisplay

__all__ = [
    "Display",
    "PlaneDisplay",
    "RejectionDisplay",
    "ReliabilityDisplay",
    "RiskCurveDisplay",
    "ScoreDistributionDisplay",
]
