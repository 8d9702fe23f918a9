# SPDX-License-Identifier: BSD-3-Clause
"""FPR without OOD labels: from the shares of ID rows and of unlabelled rows that a rule accepts, and the OOD prior.

Convention: T = TPR, A = share of unlabelled rows accepted, pi = share of OOD among unlabelled rows, F = FPR. They obey
``A = (1 - pi) T + pi F``, so ``F = T - (T - A) / pi``. ID and unlabelled rows are independent samples that the rule was not
chosen on, ID rows among the unlabelled follow the same law as the ID sample, and pi comes with its own uncertainty.

Direction of safety: F grows with pi (where T > A). Mixture data can certify only a **lower** bound of pi, because OOD inputs
that look like ID inputs leave no trace; hence only a lower bound of F. The one upper bound that holds for every pi is F <= A.

References
----------
.. [1] E. C. Fieller, "Some Problems in Interval Estimation", JRSS B 16(2), 1954.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from poscod._validation import Floats, check_count, check_number, check_vector
from poscod.exceptions import InvalidInputError
from poscod.metrics import binomial_interval


class UnlabeledFPR(NamedTuple):
    """FPR of a rule, estimated without OOD labels.

    Attributes
    ----------
    estimate : float
        F in [0, 1]; NaN where the data say nothing (``informative`` is False).
    low, high : float
        Confidence interval in [0, 1] at the given level.
    level : float
        Nominal coverage.
    unclipped : float
        T - (T - A) / pi as it comes out: unbiased for known pi, may leave [0, 1]; NaN at pi = 0.
    standard_error : float
        Of ``unclipped`` by the delta method; infinite at pi = 0.
    upper_any_prior : float
        Upper bound of F at the given level for **every** pi, provided that F <= T; 1 where more of the unlabelled rows are accepted
        than of the ID rows, which speaks against that.
    informative : bool
        False if the interval is [0, 1] or if pi contradicts the data.
    reason : str
        Why not, in one sentence; empty if informative.
    """

    estimate: float
    low: float
    high: float
    level: float
    unclipped: float
    standard_error: float
    upper_any_prior: float
    informative: bool
    reason: str


class Prior(NamedTuple):
    """pi with its distances to the ends of its interval at the level in use, and its standard error."""

    value: float
    below: float
    above: float
    standard_error: float


class Rates(NamedTuple):
    """F and the ends of its interval, none of them clipped, and the standard error: arrays of one shape."""

    estimate: Floats
    low: Floats
    high: Floats
    standard_error: Floats


def unlabeled_fpr(
    n_accepted_id: int,
    n_id: int,
    n_accepted_unlabeled: int,
    n_unlabeled: int,
    pi: float,
    *,
    pi_variance: float | None = None,
    pi_interval: Any = None,
    level: float = 0.95,
) -> UnlabeledFPR:
    """Estimate the FPR of a rule from what it accepts of an ID sample and of an unlabelled mixture.

    Parameters
    ----------
    n_accepted_id, n_id : int
        Number of ID rows accepted, and of all ID rows.
    n_accepted_unlabeled, n_unlabeled : int
        Number of unlabelled rows accepted, and of all unlabelled rows.
    pi : float in [0, 1]
        Share of OOD among the unlabelled rows.
    pi_variance : float, default=None
        Variance of the estimate of pi; None (with no interval either) treats pi as known.
    pi_interval : pair of float, default=None
        Confidence interval of pi at the same level, instead of a variance; may be lopsided.
    level : float in (0, 1), default=0.95
        Nominal coverage.

    Returns
    -------
    fpr : UnlabeledFPR

    Notes
    -----
    With m ID rows and n unlabelled rows, ``F = T - (T - A) / pi`` has by the delta method the variance
    ``(A (1 - A) / n + (1 - pi)^2 T (1 - T) / m) / pi^2 + ((T - A) / pi^2)^2 Var(pi)``. The interval does not use it: 1/pi is
    far from linear where pi is uncertain. It collects the values F that are not rejected by
    ``|A - (1 - pi) T - pi F| <= z sqrt(A (1 - A) / n + (1 - pi)^2 T (1 - T) / m + (T - F)^2 Var(pi))`` (Fieller [1]_), z the
    normal quantile; for known pi both are the same. The estimates of pi, T and A are taken as independent. If pi
    was estimated as 1 - A/T on the same rows, their errors offset each other and the interval is too wide, not too narrow.

    The bound without pi: ``A - F = (1 - pi) (T - F)``, so F <= A holds if and only if F <= T (or pi = 1), i.e. if the rule
    prefers ID to OOD at all; ``upper_any_prior`` is the one-sided exact upper bound of A. Since ``T - A = pi (T - F)``, an A
    that is larger than T speaks against the condition, and the bound is 1 then.

    References
    ----------
    .. [1] E. C. Fieller, "Some Problems in Interval Estimation", JRSS B 16(2), 1954.

    Examples
    --------
    >>> fpr = unlabeled_fpr(1900, 2000, 3900, 5000, 0.2, pi_variance=0.01**2)
    >>> round(fpr.estimate, 3), round(fpr.low, 3), round(fpr.high, 3), round(fpr.upper_any_prior, 3)
    (0.1, 0.0, 0.201, 0.79)
    >>> unlabeled_fpr(1900, 2000, 4740, 5000, 0.005).reason
    'pi = 0.005 is too small for 2000 ID and 5000 unlabelled rows to say anything about the FPR.'
    """
    m, n = check_count(n_id, "n_id"), check_count(n_unlabeled, "n_unlabeled")
    accepted = _check_accepted(n_accepted_unlabeled, "n_accepted_unlabeled", n)
    t, a = _check_accepted(n_accepted_id, "n_accepted_id", m) / m, accepted / n
    prior = check_prior(pi, pi_variance, pi_interval, level)
    upper = binomial_interval(accepted, n, level=level, side="upper").high if a <= t else 1.0
    rates = fpr_of(np.array(t), np.array(a), m, n, prior, normal_quantile(level))
    unclipped, low, high = float(rates.estimate), float(rates.low), float(rates.high)
    reason = ""
    if low <= 0.0 and high >= 1.0:
        reason = f"pi = {prior.value:g} is too small for {m} ID and {n} unlabelled rows to say anything about the FPR."
    elif high < 0.0 or low > 1.0:
        reason = (
            f"pi = {prior.value:g} contradicts TPR = {t:.4g} and the share {a:.4g} of unlabelled rows accepted, which give "
            f"FPR = {unclipped:.4g}: check pi and that the ID rows follow the same law as those in the mixture."
        )
        low, high = 0.0, 1.0
    estimate = math.nan if reason else min(1.0, max(0.0, unclipped))
    error = float(rates.standard_error)
    ends = max(0.0, low), min(1.0, high)
    return UnlabeledFPR(estimate, *ends, level, unclipped, error, upper, not reason, reason)


def fpr_of(tpr: Floats, accepted: Floats, m: int, n: int, prior: Prior, z: float) -> Rates:
    """Solve ``A = (1 - pi) T + pi F`` for F, with the Fieller interval and the delta-method error."""
    pi = prior.value
    # Half a row on either side: a share of exactly 0 or 1 is not known exactly.
    t, a = np.clip(tpr, 0.5 / m, 1.0 - 0.5 / m), np.clip(accepted, 0.5 / n, 1.0 - 0.5 / n)
    noise = a * (1.0 - a) / n + (1.0 - pi) ** 2 * t * (1.0 - t) / m
    gap = tpr - accepted
    if pi == 0.0:
        unknown, unbounded = np.full(np.shape(gap), np.nan), np.full(np.shape(gap), np.inf)
        return Rates(unknown, -unbounded, unbounded, unbounded)
    error = np.sqrt(noise / pi**2 + (gap / pi**2 * prior.standard_error) ** 2)
    inner, outer = _fieller(np.abs(gap), z**2 * noise, prior)
    sign = np.where(gap < 0.0, -1.0, 1.0)
    ends = tpr - sign * inner, tpr - sign * outer
    return Rates(tpr - gap / pi, np.minimum(*ends), np.maximum(*ends), error)


def _fieller(gap: Floats, noise: Floats, prior: Prior) -> tuple[Floats, Floats]:
    """Return the interval of gap / pi for gap >= 0, given z^2 times the variance of the gap.

    The ends solve ``(pi D - gap)^2 = noise + D^2 w^2``. A larger pi makes D smaller, so w is the distance to the upper end of
    pi's interval for the lower end of D, and the other way round; without noise the ends are gap / pi at the ends of pi.
    """
    pi = prior.value
    distinct = gap**2 - noise
    width = np.where(distinct >= 0.0, prior.above, prior.below)
    root = np.sqrt(np.maximum(width**2 * gap**2 + noise * (pi**2 - width**2), 0.0))
    room = pi**2 - prior.below**2
    if room <= 0.0:  # pi may be 0: the ratio has no upper end, and no lower one unless the gap is distinct from 0
        return np.where(distinct >= 0.0, distinct / (pi * gap + root + 1e-300), -np.inf), np.full(np.shape(gap), np.inf)
    outer = (pi * gap + np.sqrt(prior.below**2 * gap**2 + noise * room)) / room
    return distinct / (pi * gap + root + 1e-300), outer


def check_prior(pi: float, pi_variance: float | None, pi_interval: Any, level: float) -> Prior:
    """Check pi and its uncertainty, given as a variance or as an interval at the same level or not at all."""
    pi = check_number(pi, "pi", 0.0, 1.0)
    z = normal_quantile(level)
    if pi_variance is not None and pi_interval is not None:
        raise InvalidInputError("pi_variance and pi_interval must not both be given, got both: pass the interval.")
    if pi_interval is not None:
        ends = check_vector(pi_interval, "pi_interval", allow_inf=False)
        if len(ends) != 2 or not 0.0 <= ends[0] <= pi <= ends[1] <= 1.0:
            raise InvalidInputError(
                f"pi_interval must be a pair of numbers in [0, 1] around pi = {pi:g}, got {pi_interval!r}."
            )
        return Prior(pi, pi - float(ends[0]), float(ends[1]) - pi, float(ends[1] - ends[0]) / (2.0 * z))
    if pi_variance is None:
        return Prior(pi, 0.0, 0.0, 0.0)
    error = math.sqrt(check_number(pi_variance, "pi_variance", 0.0, math.inf, closed="left"))
    return Prior(pi, z * error, z * error, error)


def normal_quantile(level: float) -> float:
    """Return z such that a normal variable is within z standard errors with probability level."""
    return float(ndtri(0.5 + check_number(level, "level", 0.0, 1.0, closed="neither") / 2.0))


def _check_accepted(value: int, name: str, total: int) -> int:
    accepted = check_count(value, name, minimum=0)
    if accepted > total:
        raise InvalidInputError(f"{name} must be at most the number of rows ({total}), got {accepted}.")
    return accepted
