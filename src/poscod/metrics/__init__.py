# SPDX-License-Identifier: BSD-3-Clause
"""How good is a score? Arrays in, floats or small named tuples out.

A score is an uncertainty (higher = reject sooner); TPR is the share of ID accepted, FPR the share of OOD accepted. One
place sorts and groups ties (`_counts`), curves are arithmetic on counts, points and areas one formula on counts.
"""

from poscod.metrics._counts import Counts as Counts
from poscod.metrics._counts import check_sample as check_sample
from poscod.metrics._counts import count as count
from poscod.metrics._counts import rank as rank
from poscod.metrics._counts import required as required
from poscod.metrics._counts import rounding_of as rounding_of
from poscod.metrics._curves import scod_curve, selective_risk_curve
from poscod.metrics._intervals import DegenerateIntervalWarning as DegenerateIntervalWarning
from poscod.metrics._intervals import Interval, binomial_interval, bootstrap, compare
from poscod.metrics._intervals import counted_loss_interval as counted_loss_interval
from poscod.metrics._intervals import mean_loss_interval as mean_loss_interval
from poscod.metrics._values import METRICS, augrc, aupr, aurc, auroc, ausrt, fpr_at_tpr, oscr, scod_risk
from poscod.metrics._values import aurc_of as aurc_of
from poscod.metrics._values import auroc_of as auroc_of
from poscod.metrics._values import fpr_at_tpr_ood_positive as fpr_at_tpr_ood_positive

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
]
