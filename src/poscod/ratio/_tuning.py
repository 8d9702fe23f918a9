# SPDX-License-Identifier: BSD-3-Clause
"""Label-free tuning: scale and power of g from held-out ID rows and mixture, with no OOD label.

Convention: from ``A = (1 - pi) T + pi F``, at a fixed TPR the SCOD risk is ``(1 - alpha) R_S + (alpha / pi) A`` up to a constant. The
tuned ratio is ``g' = exp(log_scale) g^power``; the default (1, 0) is left only for a gain of more than `margin` standard errors (two:
the best of 24 settings beats the default by one standard error by chance).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from poscod._validation import Floats, check_number, check_vector

POWERS = (0.5, 0.7, 1.0, 1.4, 2.0)
LOG_SCALES = (-2.0, -1.0, 0.0, 1.0, 2.0)
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
# Fewer expected OOD rows than this cannot rank 25 settings.
MIN_OOD = 300.0


class Tuning(NamedTuple):
    """Power and log-scale of the tuned ratio, its estimated gain in SCOD risk and the standard error of the gain."""

    power: float
    log_scale: float
    gain: float
    standard_error: float


def tune_ratio(
    log_ratio_id: ArrayLike,
    risk_id: ArrayLike,
    log_ratio_unlabeled: ArrayLike,
    risk_unlabeled: ArrayLike,
    *,
    ood_prior: float,
    loss_id: Any = None,
    alpha: float = 0.5,
    margin: float = 2.0,
) -> Tuning:
    """Choose scale and power of g by the label-free SCOD risk of the linear rule r + beta g.

    Parameters
    ----------
    log_ratio_id, log_ratio_unlabeled : array-like of shape (m,) and (n,)
        Out-of-sample log g of ID rows and of the mixture.
    risk_id, risk_unlabeled : array-like of shape (m,) and (n,)
        Conditional risk r.
    ood_prior : float in (0, 1]
        Share of OOD rows in the mixture.
    loss_id : array-like of shape (m,), default=None
        Losses of the ID rows; None uses their conditional risk.
    alpha : float in (0, 1), default=0.5
        Relative cost of accepting an OOD row.
    margin : float, default=2.0
        Standard errors that a gain must exceed.

    Returns
    -------
    tuning : Tuning
        (1, 0) with gain 0 where the mixture holds fewer than 300 expected OOD rows or no setting is better by more than
        the margin.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> log_g = np.r_[rng.normal(-2, 2, 9000), rng.normal(2, 2, 1000)]
    >>> tune_ratio(rng.normal(-2, 2, 9000), rng.uniform(0, 0.2, 9000), log_g, rng.uniform(0, 0.2, 10000), ood_prior=0.1)[:2]
    (1.0, 0.0)
    """
    log_id = check_vector(log_ratio_id, "log_ratio_id", allow_inf=False)
    log_u = check_vector(log_ratio_unlabeled, "log_ratio_unlabeled", allow_inf=False)
    r_id = check_vector(risk_id, "risk_id", n=len(log_id), like="log_ratio_id", minimum=0.0)
    r_u = check_vector(risk_unlabeled, "risk_unlabeled", n=len(log_u), like="log_ratio_unlabeled", minimum=0.0)
    pi = check_number(ood_prior, "ood_prior", 0.0, 1.0, closed="right")
    alpha = check_number(alpha, "alpha", 0.0, 1.0, closed="neither")
    margin = check_number(margin, "margin", 0.0, np.inf, closed="left")
    loss = r_id if loss_id is None else check_vector(loss_id, "loss_id", n=len(log_id), like="log_ratio_id")
    default = Tuning(1.0, 0.0, 0.0, 0.0)
    if pi * len(log_u) < MIN_OOD:
        return default
    with np.errstate(divide="ignore"):
        log_r_id, log_r_u = np.log(r_id), np.log(r_u)

    def cost(power: float, log_scale: float) -> tuple[Floats, Floats]:
        """Return each row's part of the risk, averaged over the TPR targets."""
        part_id, part_u = np.zeros(len(log_id)), np.zeros(len(log_u))
        for t in TARGETS:
            log_beta = np.log(alpha * t / (1.0 - alpha)) + log_scale
            s_id = np.logaddexp(log_r_id, log_beta + power * log_id)
            s_u = np.logaddexp(log_r_u, log_beta + power * log_u)
            cut = np.quantile(s_id, t, method="inverted_cdf")
            part_id += (1.0 - alpha) / t * loss * (s_id <= cut)
            part_u += alpha / pi * (s_u <= cut)
        return part_id / len(TARGETS), part_u / len(TARGETS)

    base_id, base_u = cost(1.0, 0.0)
    best = default
    for power in POWERS:
        for log_scale in LOG_SCALES:
            new_id, new_u = cost(power, log_scale)
            gap_id, gap_u = base_id - new_id, base_u - new_u
            gain = float(gap_id.mean() + gap_u.mean())
            error = float(np.sqrt(gap_id.var() / len(gap_id) + gap_u.var() / len(gap_u)))
            if gain > max(best.gain, margin * error):
                best = Tuning(power, log_scale, gain, error)
    return best
