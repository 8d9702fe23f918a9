# SPDX-License-Identifier: BSD-3-Clause
"""How good is a score? Arrays in, floats or small named tuples out.

A score is an uncertainty (higher = reject sooner); TPR is the share of ID accepted, FPR the share of OOD accepted. One
place sorts and groups ties (`_counts`), curves are arithmetic on counts, points and areas one formula on counts.
"""

from poscod.metrics._counts import Counts, check_sample, count, rank, required, rounding_of
from poscod.metrics._curves import scod_curve, selective_risk_curve
from poscod.metrics._intervals import (
    DegenerateIntervalWarning,
    Interval,
    binomial_interval,
    bootstrap,
    compare,
    counted_loss_interval,
    loss_steps,
    mean_loss_interval,
    share_interval,
)
from poscod.metrics._summary import summary
from poscod.metrics._values import (
    METRICS,
    augrc,
    aupr,
    aurc,
    aurc_of,
    auroc,
    auroc_of,
    ausrt,
    fpr_at_tpr,
    fpr_at_tpr_ood_positive,
    oscr,
    scod_risk,
)

__all__ = [
    "METRICS",
    "Interval",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "ausrt",
    "binomial_interval",
    "bootstrap",
    "compare",
    "fpr_at_tpr",
    "oscr",
    "scod_curve",
    "scod_risk",
    "selective_risk_curve",
    "summary",
]
