# SPDX-License-Identifier: BSD-3-Clause
"""Baselines that learn from the same two samples: nnPU and WOODS, in their linear form.

Convention: both are linear in standardised features. Their published outputs are confidences (high = ID); they are
negated once, here, so that ``log_ratio`` grows with OOD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from poscod._validation import Floats, check_count, check_number
from poscod.ratio._design import Design
from poscod.ratio._linear import LinearData, LinearRatio, linear_data, select_l2
from poscod.ratio._prior import acceptance, bbe
from poscod.ratio._ratio import Ratio
from poscod.ratio._rows import Rows


def _scores(params: Floats, design: Design) -> Floats:
    """Return theta^T x + b of every row."""
    parts = [(block @ params[:-1].astype(block.dtype)).astype(np.float64) + params[-1] for _, block in design.blocks()]
    return np.concatenate(parts)


def _descend(
    data: LinearData, loss: Callable[[Floats], tuple[float, Floats]], l2: float, start: Floats, max_iter: int
) -> Floats:
    """Minimise a loss of the scores, given with its derivative in them, plus the penalty of theta."""

    def objective(params: Floats) -> tuple[float, Floats]:
        theta = np.r_[params[:-1], 0.0]
        value, slope = loss(_scores(params, data.design))
        gradient = np.zeros(len(params))
        for rows, block in data.design.blocks():
            gradient[:-1] += block.T @ slope[rows].astype(block.dtype)
        gradient[-1] = slope.sum()
        return value + 0.5 * l2 * float(theta @ theta), gradient + l2 * theta

    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": max_iter})
    return np.asarray(found.x)


def out_of_sample_prior(data: LinearData, n_folds: int, seed: int) -> tuple[float, float]:
    """Return (prior by BBE, chosen l2) from cross-fitted logistic regressions of ID against mixture."""
    fold = data.folds(n_folds, seed)
    l2 = select_l2(data, fold, 1.0)
    score = np.zeros(len(fold))
    for k in np.unique(fold):
        fit = data.fit(l2, pi=1.0, weight=data.weight * (fold != k))
        score[fold == k] = _scores(np.r_[fit.theta, fit.intercept], data.design)[fold == k]
    z = data.unlabeled
    return bbe(acceptance(score[~z], score[z], data.weight[~z], data.weight[z])), l2


@final
@dataclass(eq=False, repr=False, kw_only=True)
class NNPU(Ratio):
    """Non-negative positive-unlabeled learning with a linear model and the logistic loss.

    Parameters
    ----------
    ood_prior : float in (0, 1) or None, default=None
        Share of OOD rows in the mixture; None uses BBE on out-of-sample scores.
    l2 : float or None, default=None
        Penalty; None takes the one chosen for logistic regression of ID against mixture.
    n_folds : int, default=5
        Folds of the cross-fitting.
    max_iter : int, default=300
        Largest number of steps of the optimiser.
    random_state : int, default=0
        Seed of everything that is drawn.

    Attributes
    ----------
    ood_prior_ : float

    Notes
    -----
    ID rows are the positives. With f the log-odds of ID and ``kappa = 1 - pi``, the risk is ``kappa R_I^+ + max(0, R_U^- - kappa
    R_I^-)``, R^+ and R^- means of log(1 + exp(-f)) and log(1 + exp(f)); then ``log g = log(kappa / pi) - f``.

    References
    ----------
    .. [1] R. Kiryo, G. Niu, M. du Plessis, M. Sugiyama, "Positive-Unlabeled Learning with Non-Negative Risk Estimator",
       NeurIPS 2017.
    """

    prior_ends: ClassVar[str] = "neither"
    l2_words: ClassVar[tuple[str | None, ...]] = (None,)
    ood_prior: float | None = None
    l2: float | None = None
    n_folds: int = 5
    max_iter: int = 300
    random_state: int = 0

    def _fit(self, rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> None:
        data = linear_data(rows_id, rows_u, weight_id, weight_u)
        pi, l2 = out_of_sample_prior(data, self.n_folds, self.random_state)
        pi = float(np.clip(pi, 1e-3, 0.999)) if self.ood_prior is None else self.ood_prior
        l2 = l2 if self.l2 is None else self.l2
        kappa = 1.0 - pi
        z = data.unlabeled
        w_id, w_u = data.weight[~z] / data.weight[~z].sum(), data.weight[z] / data.weight[z].sum()

        def risk(f: Floats) -> tuple[float, Floats]:
            up, down = np.logaddexp(0.0, -f), np.logaddexp(0.0, f)
            bracket = float(w_u @ down[z]) - kappa * float(w_id @ down[~z])
            slope = np.zeros(len(f))
            slope[~z] = -kappa * w_id * expit(-f[~z])
            if bracket > 0.0:
                slope[~z] -= kappa * w_id * expit(f[~z])
                slope[z] = w_u * expit(f[z])
            return kappa * float(w_id @ up[~z]) + max(0.0, bracket), slope

        start = np.zeros(data.design.n_columns + 1)
        start[-1] = np.log(kappa / pi)
        params = _descend(data, risk, l2, start, self.max_iter)
        self.ood_prior_ = pi
        self.model_ = LinearRatio(data.scaler, -params[:-1], float(np.log(kappa / pi) - params[-1]))

    def _interval(self, level: float) -> tuple[float, float]:
        return 0.0, 1.0


@final
@dataclass(eq=False, repr=False, kw_only=True)
class WOODS(Ratio):
    """Constrained training on wild data: few unlabeled rows called ID, at most 5 % of ID rows called OOD.

    Parameters
    ----------
    max_miss : float in (0, 1), default=0.05
        Largest (smoothed) share of ID rows called OOD.
    l2 : float, default=0.001
        Penalty of the linear score.
    rounds : int, default=12
        Outer steps of the augmented Lagrangian.
    max_iter : int, default=100
        Iterations of L-BFGS in one step.

    Attributes
    ----------
    ood_prior_ : float
        NaN: the method ranks rows and estimates no share.

    Notes
    -----
    With E the linear score (high = ID) and sigma the sigmoid, ``min mean_U sigma(E)`` subject to ``mean_I sigma(-E) <=
    max_miss``. It is a ranking: ``log_ratio = -E`` is shifted so that E_ID[g] = 1, its scale is not calibrated.

    References
    ----------
    .. [1] J. Katz-Samuels, J. Nakhleh, R. Nowak, Y. Li, "Training OOD Detectors in their Natural Habitats", ICML 2022.
    """

    max_miss: float = 0.05
    l2: float = 1e-3
    rounds: int = 12
    max_iter: int = 100

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number(self.max_miss, "max_miss", 0.0, 1.0, closed="neither")
        check_count(self.rounds, "rounds")

    def _fit(self, rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> None:
        data = linear_data(rows_id, rows_u, weight_id, weight_u)
        z = data.unlabeled
        w_id, w_u = data.weight[~z] / data.weight[~z].sum(), data.weight[z] / data.weight[z].sum()
        multiplier, stiffness = 0.0, 1.0

        def lagrangian(energy: Floats) -> tuple[float, Floats]:
            miss, kept = expit(-energy[~z]), expit(energy[z])
            gap = float(w_id @ miss) - self.max_miss
            active = stiffness * gap + multiplier >= 0.0
            push = multiplier + stiffness * gap if active else 0.0
            term = multiplier * gap + 0.5 * stiffness * gap**2 if active else -0.5 * multiplier**2 / stiffness
            slope = np.empty(len(energy))
            slope[~z] = -push * w_id * miss * (1.0 - miss)
            slope[z] = w_u * kept * (1.0 - kept)
            return float(w_u @ kept) + term, slope

        # Start from logistic regression: at zero the sigmoid loss of a rare class is flat.
        fit = data.fit(max(self.l2, 1e-4), pi=1.0)
        params = -np.r_[fit.theta, fit.intercept]
        for _ in range(self.rounds):
            params = _descend(data, lagrangian, self.l2, params, self.max_iter)
            gap = float(w_id @ expit(-_scores(params, data.design)[~z])) - self.max_miss
            multiplier = max(0.0, multiplier + stiffness * gap)
            if gap > 0.0:
                stiffness *= 1.5
        log_g = -_scores(params, data.design)[~z]
        norm = float(logsumexp(log_g, b=w_id))
        self.ood_prior_ = float("nan")
        self.model_ = LinearRatio(data.scaler, -params[:-1], float(-params[-1] - norm))

    def _interval(self, level: float) -> tuple[float, float]:
        return 0.0, 1.0
