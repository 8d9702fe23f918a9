# SPDX-License-Identifier: BSD-3-Clause
"""The class mix of the traffic's ID part: its value, its estimate, its test."""

from poscod.mix._class_mix import ClassMix
from poscod.mix._estimate import (
    LEAST_EXPECTED,
    Likely,
    effective,
    estimate_mix,
    groups_of,
    interval_of,
    most_likely,
    rows_needed,
    served,
    shares_of,
)

__all__ = ["ClassMix", "estimate_mix"]
