# SPDX-License-Identifier: BSD-3-Clause
"""The corrected-sigmoid likelihood and its maximisation.

Convention: ``u(x) = theta^T phi(x) + b`` is the log-odds of "OOD and unlabeled" against "ID and labeled",
``p(z = I | x) = 1 / (1 + a + exp(u))`` with ``a = pi_U / (1 - pi_U) * (1 - pi)``; everything is computed in log
space, and the objective is the weighted mean of the negative log-likelihood plus ``0.5 * sum(l2_j theta_j^2)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from poscod._validation import Floats
from poscod.ratio._design import Columns

# Below this the estimate is the edge of the parameter space, not a number: a start must be able to leave it.
PI_FLOOR = 1e-6
# A further start is followed to its end only if it comes this close to the best objective in a few iterations.
TRIAL, TRIAL_GAP = 10, 1e-5
# Priors that a joint fit starts from.
STARTS = (0.02, 0.1, 0.3, 0.7)


@dataclass(frozen=True)
class Fit:
    """A fitted ``u``: coefficients on standardised columns, intercept, prior and the objective reached."""

    theta: Floats
    intercept: float
    pi: float
    objective: float


def log_a(pi: float, log_odds_u: float) -> float:
    """Return log a = log(pi_U / (1 - pi_U)) + log(1 - pi); -inf at pi = 1."""
    return log_odds_u + (np.log1p(-pi) if pi < 1.0 else -np.inf)


def row_losses(u: Floats, unlabeled: NDArray[np.bool_], la: float) -> tuple[Floats, Floats]:
    """Return the negative log-likelihood of each row and its derivative with respect to u."""
    top = np.logaddexp(0.0, la)  # log(1 + a)
    loss = np.logaddexp(top, u)
    slope = expit(u - top)
    if np.isneginf(la):
        loss[unlabeled] -= u[unlabeled]
        slope[unlabeled] -= 1.0
    else:
        loss[unlabeled] -= np.logaddexp(la, u[unlabeled])
        slope[unlabeled] -= expit(u[unlabeled] - la)
    return loss, slope


def _prior_slope(u: Floats, unlabeled: NDArray[np.bool_], weight: Floats, la: float, pi: float) -> float:
    """Return the derivative of the weighted loss with respect to logit(pi), since da/dlogit(pi) = -a pi."""
    top = np.logaddexp(0.0, la)
    total = float(weight @ np.exp(la - np.logaddexp(top, u)))
    mixed = float(weight[unlabeled] @ expit(la - u[unlabeled]))
    return -pi * (total - mixed)


def loss_sums(
    params: Floats,
    design: Columns,
    unlabeled: NDArray[np.bool_],
    weight: Floats,
    log_odds_u: float,
    pi: float | None,
) -> tuple[float, Floats]:
    """Return the weighted negative log-likelihood of some rows and its gradient: sums, so those of parts add up."""
    d = design.n_columns
    theta, intercept = params[:d], params[d]
    prior = float(expit(params[d + 1])) if pi is None else pi
    la = log_a(prior, log_odds_u)
    value, prior_slope = 0.0, 0.0
    gradient = np.zeros(len(params))
    for rows, block in design.blocks():
        z, w = unlabeled[rows], weight[rows]
        u = (block @ theta.astype(block.dtype)).astype(np.float64) + intercept
        loss, slope = row_losses(u, z, la)
        slope *= w
        value += float(w @ loss)
        gradient[:d] += block.T @ slope.astype(block.dtype)
        gradient[d] += float(slope.sum())
        if pi is None:
            prior_slope += _prior_slope(u, z, w, la, prior)
    if pi is None:
        gradient[d + 1] = prior_slope
    return value, gradient


def penalised(sums: tuple[float, Floats], params: Floats, l2: Floats) -> tuple[float, Floats]:
    """Add the penalty ``0.5 * sum(l2_j theta_j^2)`` and its gradient to sums over all rows."""
    value, gradient = sums
    theta = params[: len(l2)]
    gradient = gradient.copy()
    gradient[: len(l2)] += l2 * theta
    return value + 0.5 * float(l2 @ theta**2), gradient


def fit_likelihood(
    design: Columns,
    unlabeled: NDArray[np.bool_],
    weight: Floats,
    l2: Floats,
    *,
    pi: float | None,
    starts: Sequence[float] = STARTS,
    warm: Fit | None = None,
    max_iter: int = 300,
) -> Fit:
    """Maximise the penalised likelihood of rows in memory."""
    log_odds_u = float(logit(float(weight[unlabeled].sum())))

    def evaluate(params: Floats) -> tuple[float, Floats]:
        return penalised(loss_sums(params, design, unlabeled, weight, log_odds_u, pi), params, l2)

    return maximise(evaluate, design.n_columns, log_odds_u, pi=pi, starts=starts, warm=warm, max_iter=max_iter)


def maximise(
    evaluate: Callable[[Floats], tuple[float, Floats]],
    d: int,
    log_odds_u: float,
    *,
    pi: float | None,
    starts: Sequence[float] = STARTS,
    warm: Fit | None = None,
    max_iter: int = 300,
) -> Fit:
    """Maximise a penalised likelihood of d columns with L-BFGS, wherever its rows are."""
    best: Fit | None = None
    theta = np.zeros(d) if warm is None else warm.theta
    gtol = 1e-4 if pi is not None else 1e-5

    def descend(first: Floats, iterations: int) -> tuple[Fit, Floats]:
        result = minimize(
            evaluate,
            first,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations, "gtol": gtol, "ftol": 1e-9, "maxcor": 20},
        )
        prior = float(np.clip(expit(result.x[d + 1]), PI_FLOOR, 1.0)) if pi is None else pi
        return Fit(result.x[:d].copy(), float(result.x[d]), prior, float(result.fun)), result.x

    for start in starts if pi is None else (pi,):
        first = np.zeros(d + (2 if pi is None else 1))
        # Without a warm start g = 1 everywhere, the null model at this prior; later starts keep the direction found
        # so far and only have to correct the prior.
        first[:d] = theta
        first[d] = log_odds_u + np.log(max(start, PI_FLOOR)) if warm is None else warm.intercept
        if pi is None:
            first[d + 1] = logit(start)
        fit, end = descend(first, max_iter if best is None else min(TRIAL, max_iter))
        if best is not None and fit.objective < best.objective + TRIAL_GAP and max_iter > TRIAL:
            fit, end = descend(end, max_iter - TRIAL)
        if best is None or fit.objective < best.objective:
            best = fit
        theta = best.theta
    assert best is not None
    return best
