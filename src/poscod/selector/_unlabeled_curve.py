# SPDX-License-Identifier: BSD-3-Clause
"""The risk-TPR curve and its area without OOD labels.

Convention: as in `_unlabeled`; the SCOD risk is ``(1 - alpha) R_S + alpha F`` with R_S from labelled ID rows and F from the
mixture. The threshold for a target is the order statistic of the ID sample, as in `tpr_threshold`, and every value speaks of
the rule at that threshold. Intervals are pointwise: they do not hold for all targets together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from poscod._validation import Floats, check_count, check_number, check_vector
from poscod.exceptions import InvalidInputError
from poscod.metrics import Counts, Interval, aurc_of, auroc_of, check_sample, rank, required
from poscod.problem import ScodProblem
from poscod.selector._unlabeled import check_prior, fpr_of, normal_quantile


class UnlabeledCurve(NamedTuple):
    """Operating points at required TPRs, estimated without OOD labels.

    Attributes
    ----------
    tpr_min : ndarray of shape (t,)
        Required TPRs.
    threshold : ndarray of shape (t,)
        lambda: the smallest ID score that accepts the required share; -inf at 0, where nothing is accepted.
    tpr, accepted : ndarray of shape (t,)
        Share of ID rows and of unlabelled rows accepted.
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
    """Estimate TPR, FPR, selective risk and SCOD risk at required TPRs from ID rows and an unlabelled mixture.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Rejection scores of ID rows that nothing was fitted on.
    loss_id : array-like of shape (m,)
        Loss on each of them.
    score_unlabeled : array-like of shape (n,)
        Rejection scores of unlabelled rows that nothing was fitted on.
    pi : float in [0, 1]
        Share of OOD among the unlabelled rows.
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
    rates = fpr_of(share_id, share_unlabeled, m, n, prior, z)
    mean, error = _mean_and_error(lost, n_id)
    # Outside of [0, 1] by more than its error, or anywhere in it: nothing is known about F (as in `unlabeled_fpr`).
    unknown = ((rates.low <= 0.0) & (rates.high >= 1.0)) | (rates.high < 0.0) | (rates.low > 1.0)
    fpr = np.where(unknown, np.nan, np.clip(rates.estimate, 0.0, 1.0))
    fpr_low = np.where(unknown, 0.0, np.clip(rates.low, 0.0, 1.0))
    fpr_high = np.where(unknown, 1.0, np.clip(rates.high, 0.0, 1.0))
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
    """Estimate the area under the SCOD risk from ID rows and an unlabelled mixture.

    Parameters
    ----------
    score_id : array-like of shape (m,)
        Rejection scores of ID rows that nothing was fitted on.
    loss_id : array-like of shape (m,)
        Loss on each of them.
    score_unlabeled : array-like of shape (n,)
        Rejection scores of unlabelled rows that nothing was fitted on.
    pi : float in (0, 1] or callable
        Share of OOD among the unlabelled rows, or a function of (score_id, score_unlabeled) that estimates it, such as
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

    Returns
    -------
    area : Interval
        Named tuple (estimate, low, high, level).

    Notes
    -----
    ``AuSRT = (1 - alpha) AURC + alpha (1/2 - (AUROC_U - 1/2) / pi)``, where AURC is the area of the selective risk by
    trapezoid and AUROC_U that of unlabelled against ID rows: ``AUROC_U - 1/2 = pi (AUROC - 1/2)``, because ID rows among the
    unlabelled tie with ID rows on average. This is the area of the **raw** curve, ``ausrt(..., envelope=False)``, up to a
    strip of width 1/m; the envelope takes minima of noisy estimates and has no unbiased label-free form. ``1 - AUROC`` is
    clipped to [0, 1].

    The interval is the percentile bootstrap over ID and unlabelled rows. Given pi with its uncertainty, pi is drawn
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
            f"score_id, loss_id and score_unlabeled must have rows, got {len(score)} ID and {len(mixture)} unlabelled rows."
        )
    return score, loss, mixture
