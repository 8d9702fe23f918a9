# SPDX-License-Identifier: BSD-3-Clause
"""The decision: lambda, what it promises on fresh data, and how a rule is judged without OOD labels.

`_threshold` reaches a share on a sample, `_every_class` one of each class, and `_solve` solves every problem of the family with it on the rows of a `Calibration`; `_guarantee` and
`_risk_control` promise a rate with a stated probability; `_unlabeled` estimates FPR and SCOD risk from a mixture.
"""

from poscod.selector._calibration import MAY_BE, Calibration
from poscod.selector._drift import Drift, are_strangers
from poscod.selector._guarantee import certified_tpr, fpr_bound, guaranteed_rank, guaranteed_threshold, rows_needed
from poscod.selector._risk_control import RISK_CONTROL, risk_controlled_threshold, selective_risk_bound
from poscod.selector._solve import TPR_OVER, Task, solve
from poscod.selector._threshold import accept_probability, tpr_rank, tpr_threshold
from poscod.selector._unlabeled import (
    UnlabeledFPR,
    check_prior,
    fpr_from_rates,
    normal_quantile,
    unlabeled_ausrt,
    unlabeled_fpr,
    unlabeled_scod_curve,
    without_stillness,
)

__all__ = [
    "Calibration",
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
