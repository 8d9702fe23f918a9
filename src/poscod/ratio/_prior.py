# SPDX-License-Identifier: BSD-3-Clause
"""The OOD prior from two samples of a one-dimensional score: estimators, an interval, and a test of "no OOD at all".

Convention: a score is an uncertainty (higher = less like ID) and must be out-of-sample, i.e. the row was not used to
fit it. At a threshold c, ``T = P_I(s <= c)`` and ``A = P_U(s <= c)``; ``A = (1 - pi) T + pi F >= (1 - pi) T``, so
``pi >= 1 - A / T`` at every threshold whatever the OOD data, with equality where no OOD row is accepted (F = 0). Under pi = 0 the
two sides of a fold are exchangeable, so the test permutes labels within folds. The interval joins two answers, the sampling error of
the estimate and the profile likelihood of a log-linear ratio, because each is too short where the assumption of the other holds.

References
----------
.. [1] G. Blanchard, G. Lee, C. Scott, "Semi-Supervised Novelty Detection", JMLR 2010 (the bound pi >= 1 - A / T).
.. [2] C. Scott, "A Rate of Convergence for Mixture Proportion Estimation", AISTATS 2015.
.. [3] S. Garg, Y. Wu, A. Smola, S. Balakrishnan, Z. Lipton, "Mixture Proportion Estimation and PU Learning:
   A Modern Approach", NeurIPS 2021 (best bin estimation, BBE).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.stats import beta as beta_distribution
from scipy.stats import chi2, norm

from poscod._validation import Floats, check_choice, check_number, check_vector, check_weight
from poscod.exceptions import InvalidInputError
from poscod.ratio._likelihood import log_a, row_losses

GRID = 400
CERTIFIED = 0.05
"""Error probability of the lower bound that no estimate of the prior is below."""


class Acceptance(NamedTuple):
    """Shares of ID rows (tpr) and of unlabeled rows (accepted) below each threshold (cut), and effective sizes.

    ``above`` is the mean score of unlabeled rows beyond the last cut, where no ID row lies; ``spread`` the standard error that the prior has from what was
    estimated before, as the weights of ID rows.
    """

    tpr: Floats
    accepted: Floats
    n_id: float
    n_unlabeled: float
    cut: Floats
    above: float
    spread: float = 0.0


def acceptance(
    score_id: ArrayLike, score_unlabeled: ArrayLike, weight_id: Any = None, weight_unlabeled: Any = None
) -> Acceptance:
    """Return T and A at up to `GRID` thresholds, from strict to loose."""
    s_id = check_vector(score_id, "score_id")
    s_u = check_vector(score_unlabeled, "score_unlabeled")
    if len(s_id) == 0 or len(s_u) == 0:
        raise InvalidInputError(
            f"score_id and score_unlabeled must have at least one row, got {len(s_id)} and {len(s_u)}."
        )
    w_id = check_weight(weight_id, "weight_id", len(s_id))
    w_u = check_weight(weight_unlabeled, "weight_unlabeled", len(s_u))
    # Thresholds are ID quantiles: T is then spread evenly, and the number of looks does not grow with n.
    m = len(s_id)
    ranks = np.unique(
        -(-m * np.arange(1, GRID + 1, dtype=np.int64) // GRID)
    )  # the smallest k with k / m >= j / GRID, for every j
    cuts = np.unique(np.sort(s_id)[ranks - 1])
    tpr, n_id = _share_below(s_id, w_id, cuts)
    tpr, cuts = tpr[tpr > 0.0], cuts[tpr > 0.0]  # rows without weight make no threshold
    accepted, n_u = _share_below(s_u, w_u, cuts)
    beyond = s_u > cuts[-1]
    above = (
        float(np.average(s_u[beyond], weights=None if w_u is None else w_u[beyond])) if accepted[-1] < 1.0 else cuts[-1]
    )
    return Acceptance(tpr, accepted, n_id, n_u, cuts, float(above))


def _share_below(score: Floats, weight: Floats | None, cuts: Floats) -> tuple[Floats, float]:
    order = np.argsort(score, kind="stable")
    place = np.searchsorted(score[order], cuts, side="right")
    if weight is None:
        return place / len(score), float(len(score))
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    return total[place] / total[-1], float(total[-1] ** 2 / np.sum(weight**2))


def bbe(curve: Acceptance, *, delta: float = 0.1, gamma: float = 0.01) -> float:
    """Return 1 - A/T at the threshold where its upper confidence bound is smallest [3]_."""
    width = np.sqrt(np.log(4.0 / delta) / 2.0) * (curve.n_id**-0.5 + curve.n_unlabeled**-0.5)
    best = int(np.argmin((curve.accepted + (1.0 + gamma) * width) / curve.tpr))
    return _clip(1.0 - curve.accepted[best] / curve.tpr[best])


def standard_error(curve: Acceptance) -> Floats:
    """Return the standard error of 1 - A/T at each threshold (delta method)."""
    t, a = curve.tpr, curve.accepted
    # Half a row on either side: a share of exactly 0 or 1 is not known exactly.
    a_in = np.clip(a, 0.5 / curve.n_unlabeled, 1.0 - 0.5 / curve.n_unlabeled)
    t_in = np.clip(t, 0.5 / curve.n_id, 1.0 - 0.5 / curve.n_id)
    variance = a_in * (1.0 - a_in) / curve.n_unlabeled + (a / t) ** 2 * t_in * (1.0 - t_in) / curve.n_id
    return np.asarray(np.sqrt(variance) / t)


def lcb_grid(
    curve: Acceptance, *, z: float = 3.0, targets: tuple[float, ...] = (0.5, 0.65, 0.8, 0.9, 0.95, 0.98)
) -> float:
    """Return 1 - A/T at the TPR target where it exceeds zero by most standard errors' worth."""
    place = np.unique([int(np.argmin(np.abs(curve.tpr - target))) for target in targets])
    estimate = 1.0 - curve.accepted / curve.tpr
    best = place[int(np.argmax((estimate - z * standard_error(curve))[place]))]
    return _clip(estimate[best])


def scott(curve: Acceptance, *, delta: float = 0.1, looks: int = 20) -> float:
    """Return one minus the smallest ratio of Clopper-Pearson bounds over a few thresholds [2]_."""
    place = np.unique([int(np.argmin(np.abs(curve.tpr - t))) for t in np.linspace(1.0 / looks, 1.0, looks)])
    level = delta / (2.0 * len(place))
    k_u, k_id = curve.accepted[place] * curve.n_unlabeled, curve.tpr[place] * curve.n_id
    upper = np.where(
        k_u < curve.n_unlabeled,
        beta_distribution.ppf(1.0 - level, k_u + 1.0, np.maximum(curve.n_unlabeled - k_u, 1e-9)),
        1.0,
    )
    lower = beta_distribution.ppf(level, k_id, curve.n_id - k_id + 1.0)
    return _clip(1.0 - float(np.min(upper / np.maximum(lower, 1e-300))))


def mean_prior(curve: Acceptance) -> float:
    """Return the mean of "bbe" and "lcb_grid": they err in different directions."""
    return 0.5 * (bbe(curve) + lcb_grid(curve))


def _clip(value: float) -> float:
    return float(np.clip(value, 0.0, 1.0))


PRIORS: dict[str, Callable[[Acceptance], float]] = {
    "bbe": bbe,
    "lcb_grid": lcb_grid,
    "scott": scott,
    "mean": mean_prior,
}


def estimate_prior(
    score_id: ArrayLike,
    score_unlabeled: ArrayLike,
    method: str = "mean",
    *,
    weight_id: Any = None,
    weight_unlabeled: Any = None,
) -> float:
    """Estimate the share of OOD rows in the unlabeled sample.

    Parameters
    ----------
    score_id, score_unlabeled : array-like of shape (m,) and (n,)
        Out-of-sample uncertainties: higher = less like ID.
    method : {"mean", "bbe", "lcb_grid", "scott"}, default="mean"
        Key of `PRIORS`. "scott" is a lower bound, the others are point estimates; "mean" is the mean of "bbe" and
        "lcb_grid".
    weight_id, weight_unlabeled : array-like, default=None
        Row weights.

    Returns
    -------
    pi : float in [0, 1]

    Notes
    -----
    All rest on ``pi = max_c 1 - A(c)/T(c)``, which is the prior if some region holds ID rows and no OOD rows, and a
    lower bound of it otherwise: mixture data alone can never certify an upper bound.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> ood = rng.normal(6.0, 1.0, 2000)
    >>> mixture = np.concatenate([rng.normal(0.0, 1.0, 6000), ood])
    >>> abs(estimate_prior(rng.normal(0.0, 1.0, 8000), mixture) - 0.25) < 0.02
    True
    """
    rule = check_choice(method, "method", PRIORS)
    return rule(acceptance(score_id, score_unlabeled, weight_id, weight_unlabeled))


DRAWS = 200


def rows_to_notice(pi: float, *, power: float = 0.8, delta: float = 0.05, tpr: float = 0.95) -> int:
    """Return the rows per side below which a share pi cannot be told from zero, even if no OOD row is accepted.

    Parameters
    ----------
    pi : float in (0, 1]
        Share to detect.
    power : float in (0, 1), default=0.8
        Probability of detection.
    delta : float in (0, 1), default=0.05
        Probability of a false alarm at pi = 0.
    tpr : float in (0, 1), default=0.95
        Share of ID accepted where the sides are compared.

    Returns
    -------
    n : int
        Number of draws.

    Notes
    -----
    ``n = (z_delta + z_power)^2 * 2 (1 - tpr) / (tpr pi^2)``; an imperfect score needs ``1 / (1 - FPR/TPR)^2`` times more.

    Examples
    --------
    >>> rows_to_notice(0.01)
    6508
    """
    pi = check_number(pi, "pi", 0.0, 1.0, closed="right")
    power, delta, tpr = (
        check_number(value, name, 0.0, 1.0, closed="neither")
        for name, value in (("power", power), ("delta", delta), ("tpr", tpr))
    )
    z = norm.ppf(1.0 - delta) + norm.ppf(power)
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
    below, above = (
        np.hypot(max(0.0, side), z * curve.spread) for side in (pi - min(low, pi - width), max(high, pi + width) - pi)
    )
    return max(0.0, pi - float(below)), min(1.0, pi + float(above))
