# SPDX-License-Identifier: BSD-3-Clause
"""The OOD prior from two samples of a one-dimensional score: one mapping of estimators.

Convention: a score is an uncertainty (higher = less like ID) and must be out-of-sample, i.e. the row was not used to
fit it. At a threshold c, ``T = P_I(s <= c)`` and ``A = P_U(s <= c)``; ``A = (1 - pi) T + pi F >= (1 - pi) T``, so
``pi >= 1 - A / T`` at every threshold whatever the OOD data, with equality where no OOD row is accepted (F = 0).

References
----------
.. [1] G. Blanchard, G. Lee, C. Scott, "Semi-Supervised Novelty Detection", JMLR 2010.
.. [2] C. Scott, "A Rate of Convergence for Mixture Proportion Estimation", AISTATS 2015.
.. [3] S. Garg, Y. Wu, A. Smola, S. Balakrishnan, Z. Lipton, "Mixture Proportion Estimation and PU Learning:
   A Modern Approach", NeurIPS 2021 (best bin estimation, BBE).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta as beta_distribution

from poscod._validation import Floats, check_choice, check_number, check_vector, check_weight
from poscod.exceptions import InvalidInputError

GRID = 400


class Acceptance(NamedTuple):
    """Shares of ID rows (tpr) and of unlabelled rows (accepted) below each threshold (cut), and effective sizes.

    ``above`` is the mean score of unlabelled rows beyond the last cut, where no ID row lies.
    """

    tpr: Floats
    accepted: Floats
    n_id: float
    n_unlabeled: float
    cut: Floats
    above: float


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


def blanchard(curve: Acceptance, *, delta: float = 0.1) -> float:
    """Return one minus the smallest ratio of an upper bound of A to a lower bound of T, with uniform widths [1]_."""
    root = np.sqrt(np.log(4.0 / delta) / 2.0)
    upper = curve.accepted + root * curve.n_unlabeled**-0.5
    lower = curve.tpr - root * curve.n_id**-0.5
    safe = lower > 0.0
    return _clip(1.0 - float(np.min(upper[safe] / lower[safe]))) if safe.any() else 0.0


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
    "blanchard": blanchard,
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
    """Estimate the share of OOD rows in the unlabelled sample.

    Parameters
    ----------
    score_id, score_unlabeled : array-like of shape (m,) and (n,)
        Out-of-sample uncertainties: higher = less like ID.
    method : {"mean", "bbe", "lcb_grid", "blanchard", "scott"}, default="mean"
        Key of `PRIORS`. "blanchard" and "scott" are lower bounds, the others point estimates; "mean" is the mean of
        "bbe" and "lcb_grid".
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


def certified_lower_bound(
    score_id: ArrayLike,
    score_unlabeled: ArrayLike,
    *,
    level: float = 0.95,
    weight_id: Any = None,
    weight_unlabeled: Any = None,
) -> float:
    """Return a lower bound of the prior that needs no assumption on the OOD data.

    Parameters
    ----------
    score_id, score_unlabeled : array-like of shape (m,) and (n,)
        Out-of-sample uncertainties; any score gives a valid bound, a good one gives a useful one.
    level : float in (0, 1), default=0.95
        Probability with which the bound holds.
    weight_id, weight_unlabeled : array-like, default=None
        Row weights.

    Returns
    -------
    lower : float in [0, 1]

    Examples
    --------
    >>> import numpy as np
    >>> certified_lower_bound(np.zeros(500), np.r_[np.zeros(400), np.ones(100)]) > 0.1
    True
    """
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    return scott(acceptance(score_id, score_unlabeled, weight_id, weight_unlabeled), delta=1.0 - level)
