# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood ratio g(x) = p_O(x) / p_I(x), learned from ID rows and an unlabeled mixture.

Every estimator has ``fit(X_id, X_unlabeled)``, ``log_ratio(X)``, ``ratio(X)``, ``ood_prior_`` and ``ood_prior_interval(level)``.
ID rows must be rows the classifier was not trained on.
"""

from poscod.ratio._baselines import NNPU, WOODS
from poscod.ratio._corrected_sigmoid import CorrectedSigmoid
from poscod.ratio._design import Design, Moments, Scaler, fit_scaler, moments, scaler_of
from poscod.ratio._diagnose import (
    FINDINGS,
    Diagnosis,
    diagnose,
    diagnose_rows,
    finding_words,
    format_diagnosis,
    log_rho,
)
from poscod.ratio._em import EMRatio
from poscod.ratio._evidence import FARTHEST, RESOLVED, TINY, Landmarks, logit_evidence
from poscod.ratio._first_edition import FirstBank
from poscod.ratio._fixed import FixedLinear
from poscod.ratio._likelihood import Fit, loss_sums
from poscod.ratio._linear import FOLDED_MEAN, Joint, LinearRatio, information
from poscod.ratio._moved import PART, find_moved, moved_words, p_ood, strangeness
from poscod.ratio._prior import PRIORS, Acceptance, acceptance, estimate_prior, prior_interval, rows_to_notice
from poscod.ratio._quick import Quick, quick_ratio
from poscod.ratio._ratio import (
    LOG_LIMIT,
    NoOODEvidenceWarning,
    Ratio,
    SeenByClassifierWarning,
    UndeterminedPriorWarning,
    cross_fit,
)
from poscod.ratio._representation import CLIP, Representation
from poscod.ratio._rows import (
    as_rows,
    check_like,
    columns_of,
    content_folds,
    group_keys,
    mixed,
    number_copies,
    observations,
    odd_factors,
    one_of_each,
    row_hash,
)
from poscod.ratio._standard_sigmoid import StandardSigmoid
from poscod.ratio._strong_recipe import TILT, StrongRatio
from poscod.ratio._training_rows import Ask, training_trace
from poscod.ratio._trees import Trees
from poscod.ratio._verdicts import (
    CORRECTED_UP_TO,
    CORRECTION_BOUND,
    DOUBT,
    EVEN,
    Correction,
    ReviewedRatio,
    Side,
    learn,
)

__all__ = [
    "NNPU",
    "PRIORS",
    "WOODS",
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
