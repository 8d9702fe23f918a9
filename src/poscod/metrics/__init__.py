# SPDX-License-Identifier: BSD-3-Clause
"""How good is a score? Arrays in, floats or small named tuples out.

A score is an uncertainty (higher = reject sooner); TPR is the share of ID accepted, FPR the share of OOD accepted. One
place sorts and groups ties (`_counts`), curves are arithmetic on counts, points and areas one formula on curves.
"""

from poscod.metrics._areas import augrc, aupr, aurc, auroc, ausrt, oscr
from poscod.metrics._curves import (
    OscrCurve,
    ScodCurve,
    SelectiveRiskCurve,
    oscr_curve,
    scod_curve,
    selective_risk_curve,
)
from poscod.metrics._intervals import (
    METRICS,
    Comparison,
    DegenerateIntervalWarning,
    Interval,
    Metric,
    binomial_interval,
    bootstrap,
    compare,
)
from poscod.metrics._points import fpr_at_tpr, fpr_at_tpr_ood_positive, scod_risk

__all__ = [
    "METRICS",
    "Comparison",
    "DegenerateIntervalWarning",
    "Interval",
    "Metric",
    "OscrCurve",
    "ScodCurve",
    "SelectiveRiskCurve",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "ausrt",
    "binomial_interval",
    "bootstrap",
    "compare",
    "fpr_at_tpr",
    "fpr_at_tpr_ood_positive",
    "oscr",
    "oscr_curve",
    "scod_curve",
    "scod_risk",
    "selective_risk_curve",
]
