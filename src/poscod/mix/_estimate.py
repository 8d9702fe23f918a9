# SPDX-License-Identifier: BSD-3-Clause
"""The class mix of the traffic's ID part from posteriors: maximum likelihood, its error, and a test of "unchanged".

Convention: eta are calibrated posteriors for the mix p of the labeled rows. An unlabeled row counts by its probability h of being ID, so that OOD rows have no
say; with h from a ratio this is EM over K + 1 parts, of which the ratio holds the last one.

References
----------
.. [1] M. Saerens, P. Latinne, C. Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori Probabilities", Neural
   Computation 14(1), 2002 (EM for the mix).
.. [2] A. Alexandari, A. Kundaje, A. Shrikumar, "Maximum Likelihood with Bias-Corrected Calibration is Hard-To-Beat at Label Shift
   Adaptation", ICML 2020.
.. [3] S. Garg, S. Balakrishnan, Z. Lipton, "Domain Adaptation under Open Set Label Shift", NeurIPS 2022.
.. [4] R. Varadhan, C. Roland, "Simple and Globally Convergent Methods for Accelerating the Convergence of Any EM Algorithm", Scandinavian Journal of Statistics
   35(2), 2008.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import chi2

from poscod._validation import Floats, check_labels, check_matrix, check_number, check_vector, check_weight
from poscod.exceptions import InvalidInputError
from poscod.mix._class_mix import ClassMix

STEPS = 1000
ENOUGH = 1e-7
"""Steps of EM, and the change of the mix (sum over classes) at which they end."""
LEAST_ALONE = 20.0
"""Rows that a class must have on either side, in expectation, for its own difference to be tested beside the sum of all."""
LEAST_EXPECTED = 5.0
"""Rows that a class must have on either side, in expectation, to be tested alone: rarer ones are tested together."""


class Likely(NamedTuple):
    """The most likely mix of some traffic, before anything is decided.

    Attributes
    ----------
    weight, share : ndarray of shape (K,)
        w and q.
    covariance : ndarray of shape (K, K)
        Of the shares.
    statistic, p_value : float
        Of the test of "unchanged": a squared distance in units of its noise, which is `dimension` on average where nothing changed.
    dimension : int
        Groups of classes that were compared, less one.
    """

    weight: Floats
    share: Floats
    covariance: Floats
    statistic: float
    p_value: float
    dimension: int


def estimate_mix(
    posterior_id: Any,
    codes: Any,
    posterior_traffic: Any,
    *,
    id_probability: Any = None,
    weight_id: Any = None,
    weight_traffic: Any = None,
    test_level: float = 0.05,
    level: float = 0.95,
) -> ClassMix:
    """Estimate the class mix of the ID part of the traffic, and test whether it is that of the labeled rows.

    Parameters
    ----------
    posterior_id : array-like of shape (m, K)
        p(y | x) of labeled rows, by a classifier that has not seen them, calibrated on such rows.
    codes : array-like of shape (m,)
        Class indices of these rows.
    posterior_traffic : array-like of shape (n, K)
        p(y | x) of unlabeled rows, by the same classifier.
    id_probability : array-like of shape (n,), default=None
        Probability of each unlabeled row to be ID, ``(1 - pi) / (1 - pi + pi g)`` with g against the ID part of the traffic; None takes all of them for ID.
    weight_id, weight_traffic : array-like, default=None
        Row weights.
    test_level : float in (0, 1), default=0.05
        Error probability of the test: how often an unchanged mix is taken for another one.
    level : float in (0, 1), default=0.95
        Coverage of each interval.

    Returns
    -------
    mix : ClassMix
        Where the test does not reject, ``traffic`` is the mix of the labeled rows; the intervals are those of the estimate either way.

    Notes
    -----
    The estimate maximises ``sum_i h_i log sum_k w_k eta_k(x_i)`` over ``sum_k w_k pbar_k = 1`` by EM [1]_, where pbar is the mean of eta over the labeled rows:
    with p itself, any error of calibration would look like another mix. Its error comes from both samples (delta method).

    The test compares the means of eta over both sides: T^2 = D' C^-1 D, with D their difference and C its covariance from the pooled rows, is chi-square with
    K - 1 degrees of freedom (Pearson's test of homogeneity, for answers that are not certain). It rests on no calibration, since both sides are seen by the same functions. Classes with fewer than 5 expected rows are compared together.
    The largest difference of one class is tested beside T^2, each at half of the level: a single class that moved is lost in the sum over many.
    Where it rejects, the estimate is shrunk towards p by ``1 - (K - 1) / T^2``, the share of T^2 that is not noise (James and Stein): with many classes and
    few rows most of the apparent change is chance. No weight becomes zero by that, not even for a class that is gone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, q):
    ...     y = rng.choice(2, n, p=q)
    ...     x = rng.normal(4.0 * y)
    ...     p = 1.0 / (1.0 + np.exp(8.0 - 4.0 * x))
    ...     return y, np.stack([1.0 - p, p], axis=1)
    >>> y, eta = draw(1000, [0.5, 0.5])
    >>> mix = estimate_mix(eta, y, draw(1000, [0.8, 0.2])[1])
    >>> mix.changed, mix.traffic.round(1).tolist()
    (True, [0.8, 0.2])
    >>> estimate_mix(eta, y, draw(1000, [0.5, 0.5])[1]).changed
    False
    """
    eta, seen = check_matrix(posterior_id, "posterior_id"), check_matrix(posterior_traffic, "posterior_traffic")
    code = check_labels(codes, "codes", eta.shape[1], n=len(eta))
    if seen.shape[1] != eta.shape[1]:
        raise InvalidInputError(
            "{parameter} must have one column a class like posterior_id ({allowed}), got {got}.",
            parameter="posterior_traffic",
            allowed=eta.shape[1],
            got=seen.shape[1],
        )
    own = check_weight(weight_id, "weight_id", len(eta), like="posterior_id")
    other = check_weight(weight_traffic, "weight_traffic", len(seen), like="posterior_traffic")
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    test_level = check_number(test_level, "test_level", 0.0, 1.0, closed="neither")
    h = np.ones(len(seen)) if id_probability is None else check_vector(id_probability, "id_probability")
    h = h if other is None else h * other
    weight = np.ones(len(eta)) if own is None else own
    needed = rows_needed(np.bincount(code, weight, eta.shape[1]))
    if effective(h) < needed or effective(weight) < needed:
        raise InvalidInputError(
            "A class mix needs at least {needed} labeled rows and as many unlabeled ones, got {n_id} and {n_unlabeled}: add rows.",
            needed=needed,
            n_id=len(eta),
            n_unlabeled=len(seen),
        )
    likely = most_likely(eta, code, weight, seen, h)
    return served(likely, shares_of(code, weight, eta.shape[1]), test_level=test_level, level=level, rows=effective(h))


def rows_needed(counts: Any) -> int:
    """Return the rows of a side from which two groups of classes can be compared: the smaller one has `LEAST_EXPECTED` of them."""
    share = np.sort(np.asarray(counts, dtype=np.float64))
    share = share[share > 0.0] / share.sum()
    # The most even split into two groups that rare classes allow.
    below = np.cumsum(share)[:-1]
    return int(np.ceil(LEAST_EXPECTED / np.minimum(below, 1.0 - below).max(initial=1e-9))) if len(share) > 1 else 10**9


def shares_of(codes: NDArray[np.int64], weight: Floats, k: int) -> Floats:
    """Return the class mix of labeled rows."""
    count = np.bincount(codes, weight, k)
    return np.asarray(count / count.sum())


def effective(weight: Floats) -> float:
    """Return the number of equal rows that say as much as rows with these weights."""
    return float(weight.sum() ** 2 / np.maximum(np.sum(weight**2), 1e-300))


def most_likely(
    eta: Floats, codes: NDArray[Any], weight: Floats, seen: Floats, h: Floats, spread: Floats | None = None
) -> Likely:
    """Return the most likely mix of rows that count by h; classes without labeled rows are left out.

    `spread` is the covariance of the shares that the weights give the classes, where these were estimated on other rows; the test allows for it.
    """
    k = eta.shape[1]
    p = shares_of(codes, weight, k)
    there = p > 0.0
    own, other = (np.maximum(rows[:, there], 1e-300) for rows in (eta, seen))
    own, other = (rows / rows.sum(axis=1, keepdims=True) for rows in (own, other))
    place = np.cumsum(there)[codes] - 1
    a, b = h / h.sum(), weight / weight.sum()
    mean = b @ own
    w = _em(other, a, mean)
    share = w * p[there]
    total = float(share.sum())
    noise = np.zeros((int(there.sum()), int(there.sum())))
    if spread is not None:
        by_class = np.stack([np.average(own[place == k], axis=0, weights=b[place == k]) for k in range(len(noise))])
        noise = by_class.T @ spread[np.ix_(there, there)] @ by_class
    statistic, dimension, p_value = _test(own, b, other, a, noise)
    covariance = _covariance(own, place, b, other, a, w, p[there], mean)
    full = Likely(np.ones(k), np.zeros(k), np.zeros((k, k)), statistic, p_value, dimension)
    full.weight[there], full.share[there] = w / total, share / total
    full.covariance[np.ix_(there, there)] = covariance
    return full


def served(likely: Likely, labeled: Floats, *, test_level: float, level: float, rows: float) -> ClassMix:
    """Return the mix to serve: that of the labeled rows, or, where the test rejects, the most likely one, shrunk towards it."""
    variance = np.diag(likely.covariance)
    low, high = interval_of(likely.share, variance, rows, level)
    # Classes that the sample did not hold, or that have no labeled rows at all: nothing was learned of them.
    unknown = (likely.share == 0.0) & (variance == 0.0)
    low, high = np.where(unknown, 0.0, low), np.where(unknown, 1.0, high)
    same = ClassMix(labeled, labeled, low, high, level, likely.p_value, False, likely.covariance)
    if likely.p_value > test_level:
        return same
    kept = max(0.0, 1.0 - likely.dimension / likely.statistic)
    share = np.where(unknown, labeled, likely.share * (1.0 - float(labeled[unknown].sum())))
    traffic = labeled + kept * (share - labeled)
    return replace(same, traffic=traffic / traffic.sum(), changed=True)


def _em(eta: Floats, mass: Floats, mean: Floats) -> Floats:
    """Return w that maximises ``sum_i mass_i log(eta_i w)`` where ``w mean = 1``: EM, every two steps of which are taken further along their turn [4]_."""

    def step(w: Floats) -> tuple[Floats, float]:
        v = eta @ w
        return (mass / v) @ eta * w / mean, float(mass @ np.log(v))

    w, best = np.ones(eta.shape[1]), -np.inf
    safe = w
    for _ in range(STEPS):
        one, value = step(w)
        if value < best:  # too far: the plain steps never lose
            w, (one, value) = safe, step(safe)
        best = value
        two, _ = step(one)
        first, turn = one - w, two - one - (one - w)
        if float(np.abs(two - one) @ mean) < ENOUGH:
            w = two
            break
        length = max(1.0, float(np.linalg.norm(first) / max(float(np.linalg.norm(turn)), 1e-300)))
        safe = two
        far = w + 2.0 * length * first + length**2 * turn
        # A weight of zero is where EM stays for ever.
        w = np.maximum(far, 0.1 * two)
        w = w / float(w @ mean)
    return np.asarray(w / float(w @ mean))


def _test(own: Floats, b: Floats, other: Floats, a: Floats, extra: Floats) -> tuple[float, int, float]:
    """Return the statistic of the test of equal means, its dimension and its p-value; extra is covariance that both samples do not show."""
    rows = [effective(side) for side in (b, a)]
    share = np.array(rows) / sum(rows)
    # Groups by what both sides say: chosen by one of them, they would favour a difference.
    member = groups_of((share[0] * (b @ own) + share[1] * (a @ other)) * min(rows))
    left, right = own @ member, other @ member
    size = member.shape[1]
    if size < 2:
        return 0.0, 1, 1.0
    mean_left, mean_right = b @ left, a @ right
    gap = mean_right - mean_left
    # Under the null both sides have one covariance, and together they know it best (as in Pearson's chi-square).
    centre = share[0] * mean_left + share[1] * mean_right
    noise = np.zeros((size, size))
    for side, mass, part in ((left, b, share[0]), (right, a, share[1])):
        centred = (side - centre) * np.sqrt(part * mass)[:, None]
        noise += centred.T @ centred
    noise = noise * (1.0 / rows[0] + 1.0 / rows[1]) + member.T @ extra @ member
    values, vectors = np.linalg.eigh(noise)
    # Shares sum to one, so that one direction carries nothing; others may carry next to nothing.
    kept = values > 1e-9 * values[-1]
    kept[0] = False
    if not kept.any():
        return 0.0, 1, 1.0
    statistic = float(np.sum((vectors.T @ gap)[kept] ** 2 / values[kept]))
    dimension = int(kept.sum())
    # One class that moved is lost among many that did not: the largest difference is tested, too.
    many = centre * min(rows) >= LEAST_ALONE
    largest = np.max(np.abs(gap[many]) / np.sqrt(np.maximum(np.diag(noise)[many], 1e-300)), initial=0.0)
    alone = 2.0 * float(ndtr(-largest)) * int(many.sum())
    return statistic, dimension, min(1.0, 2.0 * min(float(chi2.sf(statistic, dimension)), alone if many.any() else 1.0))


def groups_of(expected: Floats) -> Floats:
    """Return which classes are compared together, as a matrix: rare ones are gathered until they have enough expected rows."""
    member, group, sizes = np.zeros(len(expected), dtype=np.int64), 0, [0.0]
    for k in np.argsort(expected, kind="stable"):
        if sizes[group] >= LEAST_EXPECTED:
            group += 1
            sizes.append(0.0)
        member[k] = group
        sizes[group] += expected[k]
    if group and sizes[group] < LEAST_EXPECTED:
        member[member == group] = group - 1
    return np.asarray(member[:, None] == np.arange(member.max() + 1), dtype=np.float64)


def _covariance(
    own: Floats,
    codes: NDArray[np.int64],
    b: Floats,
    other: Floats,
    a: Floats,
    w: Floats,
    p: Floats,
    mean: Floats,
) -> Floats:
    """Return the covariance of q by the delta method: rows of either side move it by their influence."""
    v = other @ w
    part = other / v[:, None]
    curvature = (part * a[:, None]).T @ part
    k = len(p)
    # A class that is gone has no curvature of its own; a little of the whole keeps its influence finite.
    curvature[np.diag_indices(k)] += 1e-6 * np.trace(curvature) / k
    inverse = np.linalg.inv(curvature)
    moved = (part - mean) @ inverse.T * p * a[:, None]
    known = -((own - mean) @ inverse.T) * p
    known[np.arange(len(own)), codes] += w[codes]
    known -= w * p
    known *= b[:, None]
    spread = moved.T @ moved + known.T @ known
    # Shares sum to one.
    total = float(w @ p)
    turn = np.eye(k) - np.outer(w * p / total, np.ones(k))
    return np.asarray(turn @ spread @ turn.T / total**2)


def interval_of(share: Floats, variance: Floats, rows: float, level: float) -> tuple[Floats, Floats]:
    """Return Wilson's interval with the number of rows that the variance stands for; a share of zero is not known to be zero."""
    inside = np.clip(share, 0.5 / rows, 1.0 - 0.5 / rows)
    size = inside * (1.0 - inside) / np.maximum(variance, inside * (1.0 - inside) / rows)
    z2 = float(ndtri(0.5 + 0.5 * level)) ** 2
    middle = (share + 0.5 * z2 / size) / (1.0 + z2 / size)
    half = np.sqrt(z2 / size * (share * (1.0 - share) + 0.25 * z2 / size)) / (1.0 + z2 / size)
    # Less than one row on a side is none: the interval ends at the border.
    low = np.where(share * rows < 1.0, 0.0, middle - half)
    high = np.where((1.0 - share) * rows < 1.0, 1.0, middle + half)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
