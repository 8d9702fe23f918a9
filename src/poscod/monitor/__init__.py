# SPDX-License-Identifier: BSD-3-Clause
"""In production: how much of the traffic is OOD, and whether the promise is still kept.

Convention: a model decides, a monitor counts decisions, and they share nothing but a `Reference`. Counts are whole numbers in
fixed cells and windows; OOD shares with intervals and coded findings are functions of counts (docs/monitoring.md).
"""

from poscod.monitor._findings import FINDINGS, SEVERITIES, Finding
from poscod.monitor._monitor import Monitor, Window
from poscod.monitor._reference import Reference
from poscod.monitor._times import check_width, read_moments

__all__ = ["FINDINGS", "Finding", "Monitor", "Reference", "Window"]
