# SPDX-License-Identifier: BSD-3-Clause
"""The decision: lambda and tau, what they promise on fresh data, and how the rule is judged without OOD labels.

`_threshold` reaches a share on a sample and `_solve` solves every problem of the family with it; `_guarantee`, `_risk_bound` and `_risk_control` promise a rate with a stated
probability; `_unlabeled` and `_unlabeled_curve` estimate FPR and SCOD risk from a mixture.
"""

from poscod.selector._calibration import Calibration
from poscod.selector._guarantee import (
    GuaranteedThreshold,
    certified_tpr,
    fpr_bound,
    guaranteed_threshold,
    rows_needed,
)
from poscod.selector._guarantee import guarantee_from_counts as guarantee_from_counts
from poscod.selector._guarantee import guaranteed_rank as guaranteed_rank
from poscod.selector._risk_bound import selective_risk_bound
from poscod.selector._risk_control import RISK_CONTROL, RiskControlledThreshold, risk_controlled_threshold
from poscod.selector._solve import SOLVERS as SOLVERS
from poscod.selector._solve import Task as Task
from poscod.selector._solve import solve
from poscod.selector._threshold import Threshold, accept, accept_probability, tpr_threshold
from poscod.selector._threshold import threshold_from_counts as threshold_from_counts
from poscod.selector._threshold import tpr_rank as tpr_rank
from poscod.selector._unlabeled import UnlabeledFPR, unlabeled_fpr
from poscod.selector._unlabeled import normal_quantile as normal_quantile
from poscod.selector._unlabeled_curve import UnlabeledCurve, unlabeled_ausrt, unlabeled_scod_curve

__all__ = [
    "RISK_CONTROL",
    "Calibration",
    "GuaranteedThreshold",
    "RiskControlledThreshold",
    "Threshold",
    "UnlabeledCurve",
    "UnlabeledFPR",
    "accept",
    "accept_probability",
    "certified_tpr",
    "fpr_bound",
    "guaranteed_threshold",
    "risk_controlled_threshold",
    "rows_needed",
    "selective_risk_bound",
    "solve",
    "tpr_threshold",
    "unlabeled_ausrt",
    "unlabeled_fpr",
    "unlabeled_scod_curve",
]
