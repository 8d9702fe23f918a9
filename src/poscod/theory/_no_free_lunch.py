# SPDX-License-Identifier: BSD-3-Clause
"""Theorem 3 with numbers: worlds that share the ID law, in which no one rule is good everywhere.

Convention: every construction has the same posterior at all points, so that the selective risk is the same for
every selector and the excess SCOD risk is alpha FPR. `CONSTRUCTIONS` is the one list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

import numpy as np

from poscod._validation import Floats, check_choice, check_number
from poscod.exceptions import InvalidInputError
from poscod.problem import ScodProblem
from poscod.theory._finite import FiniteWorld

_ERROR_RATE = 0.25


class NoFreeLunch(NamedTuple):
    """Worlds a learner cannot tell apart from ID data, and what this costs.

    Attributes
    ----------
    worlds : tuple of FiniteWorld
        All have the same p_id and the same posterior.
    optimal_risk : tuple of float
        The smallest SCOD risk in each world; FPR is zero at each optimum.
    excess : float
        Any selector with TPR >= tpr_min - slack has at least this excess risk in at least one of the worlds.
    selector : ndarray of shape (n,)
        A selector whose excess is at most that in every world: the bound is tight.
    """

    worlds: tuple[FiniteWorld, ...]
    optimal_risk: tuple[float, ...]
    excess: float
    selector: Floats


# Worlds of the uniform construction: each holds as many points as there are worlds.
MAX_POINTS = 2000


class _Sketch(NamedTuple):
    """A construction before the worlds are built: one row of p_ood per world."""

    p_id: Floats
    p_ood: Floats
    worst_fpr: float
    selector: Floats


def _three_point(t: float, slack: float) -> _Sketch:
    """Return two worlds on three points; see `no_free_lunch` for the masses."""
    if t >= 0.5:
        share = max(0.0, 1.0 - slack / (1.0 - t))
        p_id = np.array([1.0 - t, 1.0 - t, 2.0 * t - 1.0])
        p_ood = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
        # With a slack beyond 1 - t the third point alone suffices.
        third = 1.0 if share > 0 else (t - slack) / (2.0 * t - 1.0)
        return _Sketch(p_id, p_ood, share / 2.0, np.array([share / 2.0, share / 2.0, third]))
    p_id = np.array([t, t, 1.0 - 2.0 * t])
    p_ood = np.array([[0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])
    need = t - slack
    # FPR_1 + FPR_2 per unit of ID mass is 1 / (2 t) on the first two points and 1 / (1 - 2 t) on the third.
    if 2.0 * t >= 1.0 - 2.0 * t:
        return _Sketch(p_id, p_ood, need / (4.0 * t), np.array([need / (2.0 * t), need / (2.0 * t), 0.0]))
    third = need / (1.0 - 2.0 * t)
    return _Sketch(p_id, p_ood, third / 2.0, np.array([0.0, 0.0, third]))


def _uniform(t: float, slack: float) -> _Sketch:
    """Return n >= 1 / (1 - t) worlds on n equally likely points, OOD sitting on one of them in each."""
    # Rounding may put 1 / (1 - t) a hair above a whole number, e.g. 10.000000000000002 at t = 0.9.
    n = max(2, ceil(1.0 / (1.0 - t) * (1.0 - 1e-9)))
    if n > MAX_POINTS:
        raise InvalidInputError(
            f"tpr_min must be at most {1.0 - 1.0 / MAX_POINTS:g} for the uniform construction (it makes 1 / (1 - tpr_min) "
            f"worlds), got {t:g}: use construction='three_point'."
        )
    return _Sketch(np.full(n, 1.0 / n), np.eye(n), t - slack, np.full(n, t - slack))


CONSTRUCTIONS: dict[str, Callable[[float, float], _Sketch]] = {"three_point": _three_point, "uniform": _uniform}


def no_free_lunch(problem: ScodProblem, *, slack: float = 0.0, construction: str = "three_point") -> NoFreeLunch:
    """Return worlds with one ID law in which every selector fails at least once.

    Parameters
    ----------
    problem : ScodProblem
        With tpr_min < 1 and the loss "zero_one" or "absolute" (the example has two classes) or a 2 x 2 matrix.
    slack : float in [0, tpr_min), default=0.0
        How far below tpr_min the TPR of a selector may fall.
    construction : {"three_point", "uniform"}, default="three_point"
        Two worlds on three points, or n worlds on the smallest number n >= 1 / (1 - tpr_min) of points; the latter
        has the largest excess a construction with one posterior at all points can have.

    Returns
    -------
    no_free_lunch : NoFreeLunch

    Notes
    -----
    With t = tpr_min, e = slack, and FPR_i the FPR of one selector c in world i:

    three_point, t >= 1/2
        ID masses (1 - t, 1 - t, 2 t - 1), OOD on point i. ``FPR_1 + FPR_2 = c_1 + c_2 >= 1 - e / (1 - t)``.
    three_point, t < 1/2
        ID masses (t, t, 1 - 2 t), OOD half on point i, half on point 3.
        ``FPR_1 + FPR_2 = (c_1 + c_2) / 2 + c_3 >= (t - e) min(1 / (2 t), 1 / (1 - 2 t))``.
    uniform
        ID masses 1 / n, OOD on point i. ``(1 / n) sum_i FPR_i = TPR >= t - e``.

    In each world the other points hold an ID mass of at least t, so the optimum has FPR = 0; the selective risk is
    the same for all selectors; hence the largest excess is at least alpha times half the sum (the mean for
    "uniform"). The selector that ignores x and accepts with probability t - e has FPR = t - e in every world, so
    no construction of this kind can promise more than "uniform" does. docs/theory.md has the proofs.

    Examples
    --------
    Nothing learned from ID data alone is within 0.19 of the optimum in all of twenty worlds:

    >>> result = no_free_lunch(ScodProblem(alpha=0.2, tpr_min=0.95), construction="uniform")
    >>> len(result.worlds), round(result.excess, 12)
    (20, 0.19)
    >>> round(no_free_lunch(ScodProblem(alpha=0.2, tpr_min=0.95)).excess, 12)
    0.1
    """
    t = problem.tpr_min
    if t == 1.0:
        raise InvalidInputError("problem.tpr_min must be below 1, got 1: there is nothing to reject then.")
    slack = check_number(slack, "slack", 0.0, t, closed="left", hint="A TPR of tpr_min - slack must be positive.")
    sketch = check_choice(construction, "construction", CONSTRUCTIONS)(t, slack)
    posterior = np.tile([1.0 - _ERROR_RATE, _ERROR_RATE], (len(sketch.p_id), 1))
    worlds = tuple(FiniteWorld(sketch.p_id, p_ood, posterior) for p_ood in sketch.p_ood)
    optimal_risk = tuple(world.solve(problem).risk for world in worlds)
    return NoFreeLunch(worlds, optimal_risk, problem.alpha * sketch.worst_fpr, sketch.selector)
