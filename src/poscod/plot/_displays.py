# SPDX-License-Identifier: BSD-3-Clause
"""The one list of displays."""

from __future__ import annotations

from poscod.plot._curves import RiskCurveDisplay
from poscod.plot._display import Display
from poscod.plot._distributions import ScoreDistributionDisplay
from poscod.plot._plane import PlaneDisplay
from poscod.plot._rejections import RejectionDisplay
from poscod.plot._reliability import ReliabilityDisplay

DISPLAYS: dict[str, type[Display]] = {
    "curves": RiskCurveDisplay,
    "distributions": ScoreDistributionDisplay,
    "plane": PlaneDisplay,
    "rejections": RejectionDisplay,
    "reliability": ReliabilityDisplay,
}
"""Name -> display; feeds the tests and the docs."""
