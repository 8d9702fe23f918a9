# SPDX-License-Identifier: BSD-3-Clause
"""The strong recipe: prior apart, rich representation, candidates weighed by held-out likelihood.

Convention: ``log g = kappa * u + shift - log(pi_U / (1 - pi_U)) - log pi`` with u linear in ``[consensus | evidence |
features]`` around an ID-only start; when the mixture shows no OOD rows, ``log g`` is the ID-only rule
``tilt * consensus - log E_ID exp(tilt * consensus)``, which needs no mixture and has E_ID[g] = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from poscod._validation import Floats
from poscod.ratio._crossfit import CrossFit, Table, cross_fit, start_from
from poscod.ratio._likelihood import log_a, row_losses

# Effect size of the ID-only start: a shift of 1.5 standard deviations of the consensus, AUROC .86 for a normal score.
TILT = 1.5
# Weights of candidates are exp(-TEMPER * excess loss): flatter than Bayes, because fold models are correlated.
TEMPER = 0.3
EVIDENCE_L2 = (1e-1, 1e-2, 1e-3, 1e-4)
FEATURE_L2 = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
# A path stops when its candidates can no longer get a weight above exp(-TEMPER * STOP).
STOP = 30.0
# Penalties of the evidence, best first, that get a path over the penalty of the features.
PATHS = 3


@dataclass(frozen=True)
class Start:
    """Where candidates grow from: the ID-only rule, or g = 1; ``u = tilt * consensus + constant``."""

    tilt: float
    constant: float


@dataclass(frozen=True)
class Blend:
    """A weighted mean of candidates, which is again linear: ``u = tilt * consensus + theta^T columns + intercept``."""

    tilt: float
    theta: Floats
    intercept: float
    u: Floats
    weights: dict[str, float]
    best: CrossFit
    best_start: Start


def log_mean_exp(values: Floats, weight: Floats) -> float:
    """Return log of the weighted mean of exp(values)."""
    return float(logsumexp(values, b=weight / weight.sum()))


def search(
    table: Table,
    n_evidence: int,
    pi: float,
    consensus: Floats,
    log_norm: float,
    *,
    evidence_l2: tuple[float, ...] = EVIDENCE_L2,
    feature_l2: tuple[float, ...] = FEATURE_L2,
) -> Blend:
    """Fit candidates from the ID-only rule to features and evidence, and blend them by held-out likelihood."""
    n, columns = table.matrix.shape
    n_features = columns - 1 - n_evidence
    null = table.log_odds_u + float(np.log(pi))
    starts = {True: Start(TILT, null - log_norm), False: Start(0.0, null)}
    offset = {key: start.tilt * consensus + start.constant for key, start in starts.items()}
    found: dict[str, tuple[Start, CrossFit]] = {}
    # One unit of prior standard deviation around the ID-only tilt, in units of the mean loss.
    tilt_l2 = np.array([1.0 / n])

    def add(name: str, informed: bool, l2: Floats, warm: CrossFit) -> CrossFit:
        fit = cross_fit(table, l2, pi, offset[informed], warm)
        found[name] = (starts[informed], fit)
        return fit

    def path(name: str, informed: bool, lead: Floats, warm: CrossFit) -> None:
        """Let the features in, from a strong penalty to a weak one, until held-out rows have had enough."""
        for l2 in feature_l2:
            before = warm.loss
            warm = add(f"{name}features {l2:g}", informed, np.r_[lead, np.full(n_features, l2)], warm)
            if warm.loss > max(before, min(fit.loss for _, fit in found.values()) + STOP):
                break

    warm = start_from(table, pi, offset[True], 0)
    found["id_only"] = (starts[True], warm)
    warm = add("consensus", True, tilt_l2, warm)
    scores: dict[float, CrossFit] = {}
    for l2 in evidence_l2:
        scores[l2] = warm = add(f"evidence {l2:g}", True, np.r_[tilt_l2, np.full(n_evidence, l2)], warm)
    # The two best penalties of the evidence, each with a path over the penalty of the features.
    for l2 in sorted(scores, key=lambda key: scores[key].loss)[:PATHS]:
        path(f"evidence {l2:g}, ", True, np.r_[tilt_l2, np.full(n_evidence, l2)], scores[l2])
    # And without any evidence, for data on which distance from ID rows says nothing.
    path("", False, np.zeros(0), start_from(table, pi, offset[False], 1 + n_evidence))
    return _blend(found, columns)


def _blend(found: dict[str, tuple[Start, CrossFit]], columns: int) -> Blend:
    """Average candidates with weights from their held-out loss; every family starts with the same weight."""
    loss = np.array([fit.loss for _, fit in found.values()])
    weight = np.exp(-TEMPER * (loss - loss.min()))
    # Columns used, and whether from the ID-only start: a long path must not win by its number of candidates.
    family = [(start.tilt > 0.0, len(fit.l2)) for start, fit in found.values()]
    weight /= np.array([family.count(member) for member in family])
    weight /= weight.sum()
    theta = np.zeros(columns)
    tilt, intercept = 0.0, 0.0
    u = np.zeros(len(next(iter(found.values()))[1].u))
    for share, (start, fit) in zip(weight.tolist(), found.values(), strict=True):
        mean = fit.theta
        theta[fit.first : fit.first + len(mean)] += share * mean
        tilt += share * start.tilt
        intercept += share * (fit.intercept + start.constant)
        u += share * fit.u
    best_start, best = list(found.values())[int(loss.argmin())]
    return Blend(tilt, theta, intercept, u, dict(zip(found, weight.tolist(), strict=True)), best, best_start)


def recalibrate(u: Floats, table: Table, pi: float, *, spread: float = 0.5) -> tuple[float, float]:
    """Return (kappa, shift) of the two-parameter map kappa * u + shift with the best held-out likelihood."""
    n = len(u)
    weight = table.weight / table.weight.sum() * n
    la = log_a(pi, table.log_odds_u)

    def loss(q: Floats) -> tuple[float, Floats]:
        kappa = np.exp(q[0])
        value, slope = row_losses(kappa * u + q[1], table.unlabeled, la)
        slope *= weight
        total = float(weight @ value) + 0.5 * (q[0] / spread) ** 2
        return total / n, np.array([kappa * float(slope @ u) + q[0] / spread**2, float(slope.sum())]) / n

    before, _ = loss(np.zeros(2))
    result = minimize(loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(-2.0, 2.0), (-20.0, 20.0)])
    if n * (before - float(result.fun)) <= 2.0:
        return 1.0, 0.0
    return float(np.exp(result.x[0])), float(result.x[1])


def estimate_and_search(
    table: Table,
    n_evidence: int,
    consensus: Floats,
    log_norm: float,
    prior: Callable[[Blend | None], float],
    *,
    pi: float | None = None,
) -> tuple[float, Blend]:
    """Alternate prior and ratio: a short search for a score, the prior from it, then the full search."""
    if pi is None:
        first = float(np.clip(prior(None), 0.01, 0.9))
        short = search(
            table, n_evidence, first, consensus, log_norm, evidence_l2=EVIDENCE_L2[1:3], feature_l2=FEATURE_L2[1::2]
        )
        pi = float(np.clip(prior(short), 1e-3, 0.999))
    return pi, search(table, n_evidence, pi, consensus, log_norm)
