# SPDX-License-Identifier: BSD-3-Clause
"""FPR, the risk-TPR curve and its area without OOD labels: from ID rows, unlabeled rows and the OOD prior.

Convention: T = TPR, A = share of unlabeled rows accepted, pi = share of OOD among unlabeled rows, F = FPR. They obey
``A = (1 - pi) T + pi F``, so ``F = T - (T - A) / pi``. ID and unlabeled rows are independent samples that the rule was not
chosen on, ID rows among the unlabeled follow the same law as the ID sample, and pi comes with its own uncertainty. The SCOD risk is
``(1 - alpha) R_S + alpha F`` with R_S from labeled ID rows; intervals of a curve are pointwise.

Direction of safety: F grows with pi (where T > A). Mixture data can certify only a **lower** bound of pi, because OOD inputs
that look like ID inputs leave no trace; hence only a lower bound of F. The one upper bound that holds for every pi is F <= A.

References
----------
.. [1] E. C. Fieller, "Some Problems in Interval Estimation", JRSS B 16(2), 1954.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.utils import check_random_state

from poscod import _show
from poscod._validation import Floats, check_count, check_number, check_vector
from poscod.exceptions import InvalidInputError
from poscod.metrics import Counts, Interval, aurc_of, auroc_of, binomial_interval, check_sample, rank, required
from poscod.problem import ScodProblem


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
        Upper bound of F at the given level for **every** pi, provided that F <= T; 1 where more of the unlabeled rows are accepted
        than of the ID rows, which speaks against that.
    informative : bool
        False if the interval is [0, 1], if pi contradicts the data, or if known inputs of the traffic have moved, or may have: the interval is from 0 to
        ``upper_any_prior`` then.
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

    def __repr__(self) -> str:
        return (
            f"UnlabeledFPR({_show.words(self)}, {100 * self.level:g} %{'' if self.informative else ': ' + self.reason})"
        )


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
    """Estimate the FPR of a rule from what it accepts of an ID sample and of an unlabeled mixture.

    Parameters
    ----------
    n_accepted_id, n_id : int
        Number of ID rows accepted, and of all ID rows.
    n_accepted_unlabeled, n_unlabeled : int
        Number of unlabeled rows accepted, and of all unlabeled rows.
    pi : float in [0, 1]
        Share of OOD among the unlabeled rows.
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
    With m ID rows and n unlabeled rows, ``F = T - (T - A) / pi`` has by the delta method the variance
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
    'pi = 0.005 is too small for 2000 ID and 5000 unlabeled rows to say anything about the FPR.'
    """
    m, n = check_count(n_id, "n_id"), check_count(n_unlabeled, "n_unlabeled")
    accepted = _check_accepted(n_accepted_unlabeled, "n_accepted_unlabeled", n)
    t = _check_accepted(n_accepted_id, "n_accepted_id", m) / m
    return fpr_from_rates(t, m, accepted, n, check_prior(pi, pi_variance, pi_interval, level), level)


def fpr_from_rates(t: float, m: float, accepted: int, n: int, prior: Prior, level: float) -> UnlabeledFPR:
    """Return `unlabeled_fpr` for a TPR whose variance is that of m rows, which need not be a whole number."""
    a = accepted / n
    upper = binomial_interval(accepted, n, level=level, side="upper").high if a <= t else 1.0
    rates = fpr_of(np.array(t), np.array(a), m, n, prior, normal_quantile(level))
    clipped, unclipped, reason = _clipped(rates), float(rates.estimate), ""
    if np.isnan(clipped.estimate):
        reason = (
            f"pi = {prior.value:g} is too small for {m:.0f} ID and {n} unlabeled rows to say anything about the FPR."
        )
        if rates.high < 0.0 or rates.low > 1.0:
            reason = (
                f"pi = {prior.value:g} contradicts TPR = {t:.4g} and the share {a:.4g} of unlabeled rows accepted, which give "
                f"FPR = {unclipped:.4g}: check pi and that the ID rows follow the same law as those in the mixture."
            )
    estimate, low, high, error = (float(value) for value in clipped)
    return UnlabeledFPR(estimate, low, high, level, unclipped, error, upper, not reason, reason)


def without_stillness(fpr: UnlabeledFPR, why: str) -> UnlabeledFPR:
    """Return what holds of an FPR where the ID inputs of the mixture are not like the ID sample: neither TPR nor pi is that of the mixture, but ``F <= A`` needs neither."""
    bound = f"at most {100 * fpr.upper_any_prior:.3g} % of OOD inputs are accepted, unless more of them than of known inputs are"
    return fpr._replace(
        estimate=math.nan,
        low=0.0,
        high=fpr.upper_any_prior,
        unclipped=math.nan,
        standard_error=math.inf,
        informative=False,
        reason=f"{why}, so that only this is certain: {bound}.",
    )


def fpr_of(tpr: Floats, accepted: Floats, m: float, n: int, prior: Prior, z: float) -> Rates:
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


def _clipped(rates: Rates) -> Rates:
    """Return F and its ends in [0, 1]; NaN in [0, 1] where nothing is known: outside by more than its error, or anywhere."""
    unknown = ((rates.low <= 0.0) & (rates.high >= 1.0)) | (rates.high < 0.0) | (rates.low > 1.0)
    estimate, low, high = (np.clip(value, 0.0, 1.0) for value in rates[:3])
    return Rates(
        np.where(unknown, np.nan, estimate),
        np.where(unknown, 0.0, low),
        np.where(unknown, 1.0, high),
        rates.standard_error,
    )


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


class UnlabeledCurve(NamedTuple):
    """Operating points at required TPRs, estimated without OOD labels.

    Attributes
    ----------
    tpr_min : ndarray of shape (t,)
        Required TPRs.
    threshold : ndarray of shape (t,)
        lambda: the smallest ID score that accepts the required share; -inf at 0, where nothing is accepted.
    tpr, accepted : ndarray of shape (t,)
        Share of ID rows and of unlabeled rows accepted.
    selective_risk : ndarray of shape (t,)
        Mean loss of the accepted ID rows; NaN where none is.
    fpr, fpr_low, fpr_high : ndarray of shape (t,)
        F and its interval, in [0, 1]; NaN and [0, 1] where not informative.
    risk, risk_low, risk_high : ndarray of shape (t,)
        SCOD risk and its interval; 0 at tpr_min = 0, NaN where F is.
    informative : ndarray of shape (t,), bool
        False where the interval of F would be [0, 1] or outside of it: pi is too small or contradicts the data.
    level : float
        Nominal coverage of each interval.
    """

    tpr_min: Floats
    threshold: Floats
    tpr: Floats
    accepted: Floats
    selective_risk: Floats
    fpr: Floats
    fpr_low: Floats
    fpr_high: Floats
    risk: Floats
    risk_low: Floats
    risk_high: Floats
    informative: NDArray[np.bool_]
    level: float


def unlabeled_scod_curve(
    score_id: Any,
    loss_id: Any,
    score_unlabeled: Any,
    pi: float,
    *,
    alpha: float = 0.5,
    tpr: Any = None,
    pi_variance: float | None = None,
    pi_interval: Any = None,
    level: float = 0.95,
) -> UnlabeledCurve:
    """Estimate TPR, FPR, selective risk and SCOD risk at required TPRs from ID rows and an unlabeled mixture.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Rejection scores of ID rows that nothing was fitted on.
    loss_id : array-like of shape (m,)
        Loss on each of them.
    score_unlabeled : array-like of shape (n,)
        Rejection scores of unlabeled rows that nothing was fitted on.
    pi : float in [0, 1]
        Share of OOD among the unlabeled rows.
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input.
    tpr : array-like of shape (t,), default=None
        Required TPRs; None is 0, 0.01, ..., 1.
    pi_variance : float, default=None
        Variance of the estimate of pi; None (with no interval either) treats pi as known.
    pi_interval : pair of float, default=None
        Confidence interval of pi at the same level, instead of a variance.
    level : float in (0, 1), default=0.95
        Nominal coverage of each interval.

    Returns
    -------
    curve : UnlabeledCurve

    Notes
    -----
    F and its interval are those of `unlabeled_fpr`. Given the number of accepted ID rows, their mean loss does not depend
    on that number, so the errors of R_S and F are uncorrelated and the distances to the ends of both intervals, weighted
    by 1 - alpha and alpha, add in squares. The variance of R_S is that of the accepted losses over their number.

    At a fixed TPR the risk is ``(1 - alpha) R_S + (alpha / pi) A`` plus a constant: an error of pi moves a whole curve but
    hardly changes which of two scores is better.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> score, ood = rng.normal(size=4000), rng.normal(2.0, 1.0, 1000)
    >>> loss = rng.random(4000) < 0.1
    >>> mixture = np.append(rng.normal(size=4000), ood)
    >>> curve = unlabeled_scod_curve(score, loss, mixture, 0.2, alpha=0.3, tpr=[0.8, 0.95])
    >>> bool((np.abs(curve.fpr - np.mean(ood[:, None] <= curve.threshold, axis=0)) < 0.1).all())
    True
    """
    score, loss, mixture = _check_rows(score_id, loss_id, score_unlabeled)
    problem = ScodProblem(alpha=alpha)
    targets = np.linspace(0.0, 1.0, 101) if tpr is None else check_vector(tpr, "tpr", allow_inf=False)
    if len(targets) and (targets.min() < 0.0 or targets.max() > 1.0):
        raise InvalidInputError(f"tpr must hold numbers in [0, 1], got {targets.min():g} to {targets.max():g}.")
    prior, z = check_prior(pi, pi_variance, pi_interval, level), normal_quantile(level)
    m, n = len(score), len(mixture)
    order = np.argsort(score)
    ordered, lost = score[order], loss[order]
    k = np.ceil(required(m, targets)).astype(np.intp)
    none = k == 0
    threshold = np.where(none, -np.inf, ordered[np.maximum(k, 1) - 1])
    n_id = np.where(none, 0, np.searchsorted(ordered, threshold, side="right"))
    share_id = n_id / m
    share_unlabeled = np.where(none, 0.0, np.searchsorted(np.sort(mixture), threshold, side="right") / n)
    fpr, fpr_low, fpr_high, _ = _clipped(fpr_of(share_id, share_unlabeled, m, n, prior, z))
    unknown = np.isnan(fpr)
    mean, error = _mean_and_error(lost, n_id)
    centre = np.where(unknown, 0.5, fpr)
    middle = problem.risk(mean, centre)
    below = _distance(problem.alpha, z * error, centre - fpr_low)
    above = _distance(problem.alpha, z * error, fpr_high - centre)
    low, high = np.maximum(middle - below, 0.0), middle + above
    risk = np.where(unknown & (problem.alpha > 0.0), np.nan, middle)

    def or_zero(values: Floats) -> Floats:  # nothing accepted, nothing risked
        return np.where(none, 0.0, values)

    return UnlabeledCurve(
        targets,
        threshold,
        share_id,
        share_unlabeled,
        mean,
        or_zero(fpr),
        or_zero(fpr_low),
        or_zero(fpr_high),
        or_zero(risk),
        or_zero(low),
        or_zero(high),
        ~unknown | none,
        level,
    )


def unlabeled_ausrt(
    score_id: Any,
    loss_id: Any,
    score_unlabeled: Any,
    pi: float | Callable[..., float],
    *,
    alpha: float = 0.5,
    pi_variance: float | None = None,
    pi_interval: Any = None,
    n_resamples: int = 500,
    level: float = 0.95,
    random_state: Any = None,
) -> Interval:
    """Estimate the area under the SCOD risk from ID rows and an unlabeled mixture.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Rejection scores of ID rows that nothing was fitted on.
    loss_id : array-like of shape (m,)
        Loss on each of them.
    score_unlabeled : array-like of shape (n,)
        Rejection scores of unlabeled rows that nothing was fitted on.
    pi : float in (0, 1] or callable
        Share of OOD among the unlabeled rows, or a function of (score_id, score_unlabeled) that estimates it, such as
        `poscod.ratio.estimate_prior`, which is then called on every resample.
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input.
    pi_variance : float, default=None
        Variance of the estimate of pi, from other rows than these; None treats a given pi as known.
    pi_interval : pair of float, default=None
        Confidence interval of pi at the same level, instead of a variance.
    n_resamples : int, default=500
        Number of bootstrap resamples.
    level : float in (0, 1), default=0.95
        Nominal coverage.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn.

    Returns
    -------
    area : Interval
        Named tuple (estimate, low, high, level).

    Notes
    -----
    ``AuSRT = (1 - alpha) AURC + alpha (1/2 - (AUROC_U - 1/2) / pi)``, where AURC is the area of the selective risk by
    trapezoid and AUROC_U that of unlabeled against ID rows: ``AUROC_U - 1/2 = pi (AUROC - 1/2)``, because ID rows among the
    unlabeled tie with ID rows on average. This is the area of the **raw** curve, ``ausrt(..., envelope=False)``, up to a
    strip of width 1/m, one row however many are tied with it; the envelope takes minima of noisy estimates and has no unbiased label-free form. ``1 - AUROC`` is
    clipped to [0, 1].

    The interval is the percentile bootstrap over ID and unlabeled rows. Given pi with its uncertainty, pi is drawn
    anew (normal on either side) and taken as independent of these rows. Given a function, pi is estimated anew on
    each resample, which carries the covariance but also repeats the function's bias.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> score, loss = rng.normal(size=2000), rng.random(2000) < 0.1
    >>> mixture = np.append(rng.normal(size=2000), rng.normal(2.0, 1.0, 500))
    >>> area = unlabeled_ausrt(score, loss, mixture, 0.2, alpha=0.3, n_resamples=100, random_state=0)
    >>> area.low < 0.7 * 0.1 + 0.3 * 0.0786 < area.high  # 1 - AUROC of two normals at distance 2
    True
    """
    score, loss, mixture = _check_rows(score_id, loss_id, score_unlabeled)
    alpha = check_number(alpha, "alpha", 0.0, 1.0)
    n_resamples = check_count(n_resamples, "n_resamples")
    z = normal_quantile(level)
    rng = check_random_state(random_state)
    m, n = len(score), len(mixture)
    if callable(pi):
        if pi_variance is not None or pi_interval is not None:
            raise InvalidInputError("pi_variance and pi_interval must be None where pi is a function, got a value.")
        function, prior = pi, check_prior(pi(score, mixture), None, None, level)
    else:
        prior = check_prior(pi, pi_variance, pi_interval, level)

        def function(*_: Floats) -> float:
            draw = rng.standard_normal() / z
            return prior.value + draw * (prior.above if draw > 0.0 else prior.below)

    ranking = rank(score, mixture)
    estimate = _area(ranking.counts(loss), alpha, prior.value)
    draws = np.empty(n_resamples)
    for i in range(n_resamples):
        times = [np.bincount(rng.randint(size, size=size), minlength=size) for size in (m, n)]
        value = function(np.repeat(score, times[0]), np.repeat(mixture, times[1]))
        draws[i] = _area(ranking.counts(loss, *(t.astype(np.float64) for t in times)), alpha, value)
    low, high = np.quantile(draws, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(estimate, float(low), float(high), level)


def _distance(alpha: float, risk_distance: Floats, fpr_distance: Floats) -> Floats:
    """Add the distances of two uncorrelated estimates to the ends of their intervals; one of weight 0 may be undefined."""
    terms = [(1.0 - alpha, risk_distance), (alpha, fpr_distance)]
    return np.asarray(np.sqrt(sum((weight * distance) ** 2 for weight, distance in terms if weight > 0.0)))


def _area(counts: Counts, alpha: float, pi: float) -> float:
    """Return the area with 1 - AUROC in [0, 1]; a pi of 0 or less is one that is barely positive."""
    accepted_ood = 0.5 - (auroc_of(counts) - 0.5) / max(pi, 1e-12)
    return ScodProblem(alpha=alpha).risk(aurc_of(counts, area="trapezoid"), min(1.0, max(0.0, accepted_ood)))


def _mean_and_error(loss: Floats, n: Any) -> tuple[Floats, Floats]:
    """Return the mean of the first n losses and its standard error; NaN for n = 0."""
    total, square = (np.append(0.0, np.cumsum(values))[n] for values in (loss, loss**2))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / n
        variance = np.maximum(square / n - mean**2, 0.0)
        # Half a row with the largest loss seen: a mean loss of exactly 0 is not known exactly.
        floor = loss.max() ** 2 * 0.5 / n
        return mean, np.sqrt(np.maximum(variance, floor) / n)


def _check_rows(score_id: Any, loss_id: Any, score_unlabeled: Any) -> tuple[Floats, Floats, Floats]:
    mixture = check_vector(score_unlabeled, "score_unlabeled")
    score, loss, *_ = check_sample(score_id, loss_id)
    if len(score) == 0 or len(mixture) == 0 or loss is None:
        raise InvalidInputError(
            f"score_id, loss_id and score_unlabeled must have rows, got {len(score)} ID and {len(mixture)} unlabeled rows."
        )
    return score, loss, mixture
