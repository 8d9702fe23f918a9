# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood ratio g(x) = p_O(x) / p_I(x), learned from ID rows and an unlabeled mixture.

Every estimator has ``fit(X_id, X_unlabeled)``, ``log_ratio(X)``, ``ratio(X)``, ``ood_prior_`` and ``ood_prior_interval(level)``.
ID rows must be rows the classifier was not trained on.
"""

from poscod.ratio._baselines import NNPU, WOODS
from poscod.ratio._corrected_sigmoid import CorrectedSigmoid
from poscod.ratio._design import Design as Design
from poscod.ratio._design import Moments as Moments
from poscod.ratio._design import Scaler as Scaler
from poscod.ratio._design import fit_scaler as fit_scaler
from poscod.ratio._design import moments as moments
from poscod.ratio._design import scaler_of as scaler_of
from poscod.ratio._diagnose import FINDINGS as FINDINGS
from poscod.ratio._diagnose import Diagnosis as Diagnosis
from poscod.ratio._diagnose import class_mix as class_mix
from poscod.ratio._diagnose import diagnose
from poscod.ratio._diagnose import format_diagnosis as format_diagnosis
from poscod.ratio._em import EMRatio
from poscod.ratio._evidence import NEIGHBOURS as NEIGHBOURS
from poscod.ratio._evidence import TINY as TINY
from poscod.ratio._evidence import Bank as Bank
from poscod.ratio._fixed import FixedLinear
from poscod.ratio._likelihood import Fit as Fit
from poscod.ratio._likelihood import loss_sums as loss_sums
from poscod.ratio._linear import FOLDED_MEAN as FOLDED_MEAN
from poscod.ratio._linear import Joint as Joint
from poscod.ratio._linear import LinearRatio as LinearRatio
from poscod.ratio._linear import information as information
from poscod.ratio._prior import PRIORS, estimate_prior
from poscod.ratio._prior import Acceptance as Acceptance
from poscod.ratio._prior import acceptance as acceptance
from poscod.ratio._prior import prior_interval as prior_interval
from poscod.ratio._prior import rows_to_notice as rows_to_notice
from poscod.ratio._ratio import LOG_LIMIT as LOG_LIMIT
from poscod.ratio._ratio import (
    ClassPriorShiftWarning,
    NoOODEvidenceWarning,
    Ratio,
    SeenByClassifierWarning,
    UndeterminedPriorWarning,
)
from poscod.ratio._representation import CLIP as CLIP
from poscod.ratio._representation import Representation as Representation
from poscod.ratio._rows import as_rows as as_rows
from poscod.ratio._rows import check_like as check_like
from poscod.ratio._rows import columns_of as columns_of
from poscod.ratio._rows import row_hash as row_hash
from poscod.ratio._standard_sigmoid import StandardSigmoid
from poscod.ratio._strong_recipe import StrongRatio as StrongRatio

__all__ = [
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
    "UndeterminedPriorWarning",
    "diagnose",
    "estimate_prior",
]
