# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood ratio g(x) = p_O(x) / p_I(x), learned from ID rows and an unlabelled mixture.

Every estimator has ``fit(X_id, X_unlabeled)``, ``log_ratio(X)``, ``ratio(X)``, ``ood_prior_`` and ``ood_prior_interval(level)``.
ID rows must be rows the classifier was not trained on.
"""

from poscod.ratio._baselines import NNPU, WOODS
from poscod.ratio._corrected_sigmoid import CorrectedSigmoid
from poscod.ratio._diagnose import FINDINGS, diagnose, format_diagnosis
from poscod.ratio._em import EMRatio
from poscod.ratio._fixed import FixedLinear
from poscod.ratio._gate import rows_to_notice
from poscod.ratio._prior import PRIORS, certified_lower_bound, estimate_prior
from poscod.ratio._ratio import Ratio
from poscod.ratio._standard_sigmoid import StandardSigmoid
from poscod.ratio._tuning import Tuning, tune_ratio
from poscod.ratio._warnings import (
    ClassPriorShiftWarning,
    NoOODEvidenceWarning,
    SeenByClassifierWarning,
    UndeterminedPriorWarning,
)

__all__ = [
    "FINDINGS",
    "NNPU",
    "PRIORS",
    "WOODS",
    "ClassPriorShiftWarning",
    "CorrectedSigmoid",
    "EMRatio",
    "FixedLinear",
    "NoOODEvidenceWarning",
    "Ratio",
    "SeenByClassifierWarning",
    "StandardSigmoid",
    "Tuning",
    "UndeterminedPriorWarning",
    "certified_lower_bound",
    "diagnose",
    "estimate_prior",
    "format_diagnosis",
    "rows_to_notice",
    "tune_ratio",
]
