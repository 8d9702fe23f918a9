# SPDX-License-Identifier: BSD-3-Clause
"""The two ways to the optimal selector on finitely many points: Theorem 2 and a linear program.

Convention: a solver sees only points with positive ID mass. It gets their masses and conditional risks as
arrays of shape (n,) and returns the acceptance probabilities with the threshold and the tie probability that
describe them. `SOLVERS` is the one list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from poscod._validation import Floats
from poscod.exceptions import PoscodError
from poscod.problem import ScodProblem
from poscod.selector import accept_probability, tpr_threshold
from poscod.strategies import rejection_score

# HiGHS accepts tolerances down to this value; its default 1e-7 would be coarser than the tests.
_TOLERANCE = 1e-10


class Selector(NamedTuple):
    """A selector on points with positive ID mass.

    Attributes
    ----------
    accept : ndarray of shape (n,)
        Acceptance probability c of each point.
    threshold : float
        lambda: points with a smaller score are accepted, points with a larger one are rejected.
    tau : float
        Acceptance probability at a tie with lambda.
    """

    accept: Floats
    threshold: float
    tau: float


def log_mass_ratio(p_id: Floats, p_ood: Floats) -> Floats:
    """Return log(p_ood / p_id), with +inf wherever p_id is zero.

    Examples
    --------
    >>> log_mass_ratio(np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.5, 0.0, 0.5, 0.0]))
    array([  0., -inf,  inf,  inf])
    """
    out = np.full(p_id.shape, np.inf)
    known = p_id > 0
    # The difference of logarithms survives where the quotient of two subnormal masses would not.
    with np.errstate(divide="ignore"):
        out[known] = np.log(p_ood[known]) - np.log(p_id[known])
    return out


def closed_form(p_id: Floats, p_ood: Floats, risk: Floats, problem: ScodProblem) -> Selector:
    """Return the selector of Theorem 2: a threshold on s = r + beta g with a randomised tie.

    Notes
    -----
    ``s = r + beta g`` with ``beta = alpha tpr_min / (1 - alpha)`` and ``g = p_O / p_I``; s = g at alpha = 1.
    lambda is the tpr_min-quantile of s under p_I and tau makes TPR equal to tpr_min. One sort: O(n log n).
    """
    score = rejection_score(risk, log_mass_ratio(p_id, p_ood), problem.beta)
    threshold = tpr_threshold(score, problem.tpr_min, weight=p_id)
    accept = accept_probability(score, threshold.threshold, threshold.tau)
    return Selector(accept, float(threshold.threshold), float(threshold.tau))


def linear_program(p_id: Floats, p_ood: Floats, risk: Floats, problem: ScodProblem) -> Selector:
    """Return an optimal selector found by a linear program that knows nothing of Theorem 2.

    Notes
    -----
    minimise   ``((1 - alpha) / t) sum_x p_I r c + alpha sum_x p_O c``
    subject to ``sum_x p_I c = t`` and ``0 <= c <= 1``, with t = tpr_min.

    The SCOD risk is a fraction in c, yet nothing is lost by asking for TPR = t. Take a feasible c with
    TPR T > t and shrink it to ``c t / T``: the selective risk is a ratio and stays, FPR shrinks by
    ``t / T <= 1``, and TPR becomes t. So some optimum has TPR = t, where the denominator of the selective
    risk is the constant t and the objective is linear.

    The solver gets it in the rejected ID masses ``y = p_I (1 - c)``, ``sum_x y = 1 - t``, ``0 <= y <= p_I``: the same
    program, in which no small coefficient falls below the solver's resolution and tpr_min = 1 means y = 0.

    A vertex of this polytope has at most one fractional coordinate. Where several points tie at lambda the
    program may accept some and reject others; the risk is the same as with one tau for all of them. ID masses
    below the solver's tolerance of 1e-10 are beyond this method, not beyond `closed_form`.
    """
    alpha, t = problem.alpha, problem.tpr_min
    result = linprog(
        -((1.0 - alpha) / t * risk + alpha * p_ood / p_id),
        A_eq=np.ones((1, len(p_id))),
        b_eq=[1.0 - t],
        bounds=[(0.0, mass) for mass in p_id.tolist()],
        method="highs",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if not result.success:
        raise PoscodError(f"The linear program failed ({result.message}): use method='closed_form' instead.")
    accept = np.clip(1.0 - np.asarray(result.x, dtype=np.float64) / p_id, 0.0, 1.0)
    score = rejection_score(risk, log_mass_ratio(p_id, p_ood), problem.beta)
    fractional = accept[(accept > _TOLERANCE) & (accept < 1.0 - _TOLERANCE)]
    tau = float(fractional[0]) if len(fractional) else 1.0
    return Selector(accept, float(score[accept > _TOLERANCE].max()), tau)


SOLVERS: dict[str, Callable[[Floats, Floats, Floats, ScodProblem], Selector]] = {
    "closed_form": closed_form,
    "lp": linear_program,
}
