# SPDX-License-Identifier: BSD-3-Clause
"""Is there any OOD in the mixture? A permutation test, an interval for the prior, and the sample size that could tell.

Convention: scores are out-of-sample uncertainties; under pi = 0 the two sides of a fold are exchangeable, so labels
are permuted within folds. The interval joins two answers, the sampling error of the estimate and the profile
likelihood of a log-linear ratio, because each is too short where the assumption of the other holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import chi2, norm, rankdata

from poscod._validation import Floats, check_number
from poscod.ratio._likelihood import log_a, row_losses
from poscod.ratio._prior import Acceptance

TARGETS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.995)
MAX_ROWS = 20000
DRAWS = 200


def gate_p_value(
    scores: Sequence[Floats],
    unlabeled: NDArray[np.bool_],
    fold: NDArray[Any],
    weight: Floats,
    *,
    permutations: int = 399,
    seed: int = 0,
) -> float:
    """Test pi = 0 against "unlabelled rows are more unlike ID than ID rows are"."""
    rng = np.random.default_rng(seed)
    keep = np.arange(len(unlabeled))
    if len(keep) > MAX_ROWS:
        keep = np.sort(rng.choice(keep, MAX_ROWS, replace=False))
    z, groups, w = unlabeled[keep], fold[keep], weight[keep] / weight[keep].mean()
    columns = []
    for score in scores:
        s = score[keep]
        columns.append(rankdata(s) / len(s))
        columns += [(s > np.quantile(s, target)).astype(np.float64) for target in TARGETS]
    table = np.stack(columns, axis=1) * w[:, None]
    labels = np.empty((permutations + 1, len(z)), dtype=np.float32)
    labels[0] = z
    for group in np.unique(groups):
        place = np.flatnonzero(groups == group)
        table[place] -= table[place].mean(axis=0)
        own = np.tile(z[place].astype(np.float32), (permutations, 1))
        labels[1:, place] = rng.permuted(own, axis=1)
    spread = np.sqrt(np.einsum("ij,ij->j", table, table))
    table = table[:, spread > 0] / spread[spread > 0]
    if table.shape[1] == 0:
        return 1.0
    statistic = (labels @ table.astype(np.float32)).max(axis=1)
    # Equal statistics count against the observed one; the tolerance covers float32 sums.
    return float(np.mean(statistic >= statistic[0] - 1e-5))


def rows_to_notice(pi: float, *, power: float = 0.8, level: float = 0.05, tpr: float = 0.95) -> int:
    """Return the rows per side below which a share pi cannot be told from zero, even if no OOD row is accepted.

    Parameters
    ----------
    pi : float in (0, 1]
        Share to detect.
    power : float in (0, 1), default=0.8
        Probability of detection.
    level : float in (0, 1), default=0.05
        Probability of a false alarm at pi = 0.
    tpr : float in (0, 1), default=0.95
        Share of ID accepted where the sides are compared.

    Returns
    -------
    n : int

    Notes
    -----
    ``n = (z_level + z_power)^2 * 2 (1 - tpr) / (tpr pi^2)``; an imperfect score needs ``1 / (1 - FPR/TPR)^2`` times more.

    Examples
    --------
    >>> rows_to_notice(0.01)
    6508
    """
    pi = check_number(pi, "pi", 0.0, 1.0, closed="right")
    power, level, tpr = (
        check_number(value, name, 0.0, 1.0, closed="neither")
        for name, value in (("power", power), ("level", level), ("tpr", tpr))
    )
    z = norm.ppf(1.0 - level) + norm.ppf(power)
    return int(np.ceil(z**2 * 2.0 * (1.0 - tpr) / (tpr * pi**2)))


def bootstrap_prior(curve: Acceptance, rule: Callable[[Acceptance], float], *, seed: int = 0) -> Floats:
    """Return draws of a prior estimate when both samples are drawn again."""
    rng = np.random.default_rng(seed)
    id_mass = np.diff(curve.tpr, prepend=0.0)
    u_mass = np.r_[np.diff(curve.accepted, prepend=0.0), max(0.0, 1.0 - curve.accepted[-1])]
    m, n = round(curve.n_id), round(curve.n_unlabeled)
    out = np.empty(DRAWS)
    for draw in range(DRAWS):
        tpr = np.cumsum(rng.multinomial(m, id_mass / id_mass.sum())) / m
        accepted = np.cumsum(rng.multinomial(n, u_mass / u_mass.sum()))[:-1] / n
        seen = tpr > 0
        out[draw] = rule(curve._replace(tpr=tpr[seen], accepted=accepted[seen], cut=curve.cut[seen]))
    return out


def profile_interval(curve: Acceptance, level: float) -> tuple[float, float]:
    """Return the priors that a log-linear ratio of the score cannot rule out.

    Notes
    -----
    Model: ``log g = kappa s + b``, kappa and b free (exact for Gaussians that share a covariance); the interval holds
    the priors whose profile log-likelihood is within ``chi2(level) / 2`` of the best.
    """
    id_mass = np.r_[np.diff(curve.tpr, prepend=0.0), 0.0] * curve.n_id
    u_mass = np.r_[np.diff(curve.accepted, prepend=0.0), max(0.0, 1.0 - curve.accepted[-1])] * curve.n_unlabeled
    middle = np.r_[curve.cut[:1], 0.5 * (curve.cut[1:] + curve.cut[:-1]), curve.above]
    if np.count_nonzero(id_mass + u_mass) < 2:  # all rows in one place say nothing about their mixture
        return 0.0, 1.0
    spread = max(float(np.sqrt(np.cov(middle, aweights=id_mass + u_mass))), 1e-12)
    s = np.r_[middle, middle] - float(np.average(middle, weights=id_mass + u_mass))
    s /= spread
    mass = np.r_[id_mass, u_mass]
    z = np.repeat([False, True], len(middle))
    odds = float(np.log(curve.n_unlabeled / curve.n_id))

    def loss(q: Floats, la: float) -> tuple[float, Floats]:
        value, slope = row_losses(q[0] * s + q[1], z, la)
        slope = slope * mass
        return float(mass @ value), np.array([float(slope @ s), float(slope.sum())])

    grid = np.r_[np.geomspace(1e-4, 0.1, 25), np.linspace(0.11, 0.99, 45), 0.9999]
    best = np.full(len(grid), np.inf)
    for order in (range(len(grid)), range(len(grid) - 1, -1, -1)):  # both ways: warm starts differ
        q = np.array([1.0, odds + np.log(grid[order[0]])])
        for i in order:
            run = minimize(
                loss,
                q,
                args=(log_a(float(grid[i]), odds),),
                jac=True,
                method="L-BFGS-B",
                bounds=[(0.0, 200.0), (-200.0, 200.0)],
            )
            q = run.x
            best[i] = min(best[i], float(run.fun))
    inside = np.flatnonzero(best <= best.min() + 0.5 * chi2.ppf(level, 1))
    # One step of the grid on either side: the border lies between the last point inside and the next.
    low = 0.0 if inside[0] == 0 else float(grid[inside[0] - 1])
    return low, float(grid[min(inside[-1] + 1, len(grid) - 1)]) if inside[-1] + 1 < len(grid) else 1.0


def prior_interval(
    curve: Acceptance, rule: Callable[[Acceptance], float], pi: float, level: float
) -> tuple[float, float]:
    """Return an interval for the OOD prior."""
    z = float(norm.ppf(0.5 + 0.5 * level))
    width = z * float(np.std(bootstrap_prior(curve, rule)))
    low, high = profile_interval(curve, level)
    return max(0.0, min(low, pi - width)), min(1.0, max(high, pi + width))
