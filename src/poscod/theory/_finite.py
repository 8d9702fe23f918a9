# SPDX-License-Identifier: BSD-3-Clause
"""The exact optimum where the input space has finitely many points, by Theorem 2 and by a linear program.

Convention: a point is a row. Masses are probabilities of points, TPR is the ID mass accepted and FPR the OOD
mass accepted, and a selector is an array of acceptance probabilities of shape (n,). A solver in `SOLVERS` sees only points
with positive ID mass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from sklearn.exceptions import UndefinedMetricWarning

from poscod._validation import Floats, as_array, check_choice, check_labels, check_matrix, check_vector, refusal
from poscod.decision import rejection_score
from poscod.exceptions import InvalidInputError, PoscodError, warn_caller
from poscod.problem import ScodProblem
from poscod.risk import bayes_decision, expected_loss
from poscod.selector import accept_probability, tpr_threshold

_SUM_TOLERANCE = 1e-6  # room for float32


class Evaluation(NamedTuple):
    """What a selector achieves in a known world.

    Attributes
    ----------
    risk : float
        SCOD risk (1 - alpha) R_S + alpha FPR.
    tpr, fpr : float
        ID and OOD mass accepted.
    selective_risk : float
        Mean loss on accepted ID inputs; NaN if none is accepted.
    """

    risk: float
    tpr: float
    fpr: float
    selective_risk: float


class Solution(NamedTuple):
    """An optimal selector and what it achieves.

    Attributes
    ----------
    accept : ndarray of shape (n,)
        Acceptance probability c of each point.
    risk : float
        The smallest SCOD risk among all selectors with TPR >= tpr_min.
    tpr, fpr, selective_risk : float
        Its parts; tpr equals tpr_min up to rounding.
    threshold : float
        lambda, in units of the score s = r + beta g (s = g at alpha = 1).
    tau : float
        Acceptance probability at a tie with lambda.
    """

    accept: Floats
    risk: float
    tpr: float
    fpr: float
    selective_risk: float
    threshold: float
    tau: float


@dataclass(frozen=True, eq=False)
class FiniteWorld:
    """A known ID law, OOD law and posterior on n points.

    Parameters
    ----------
    p_id, p_ood : array-like of shape (n,)
        Mass of each point under ID and OOD: non-negative, summing to 1 within 1e-6 (then made exact).
    posterior : array-like of shape (n, K)
        p_I(y | x), one row per point: non-negative, summing to 1 within 1e-6 (then made exact). Rows where
        p_id is zero may hold anything, also NaN; they are replaced by the uniform posterior.

    Attributes
    ----------
    n_points, n_classes : int
    class_prior : ndarray of shape (K,)
        Share of each class among ID inputs.
    log_ratio : ndarray of shape (n,)
        log g = log p_O - log p_I; +inf wherever p_id is zero.

    Notes
    -----
    A point with ``p_I = 0`` cannot raise TPR and contributes nothing to R_S, and accepting it can only raise
    FPR. The optimal selectors returned here reject all such points: for alpha > 0 because they must (if p_O
    is positive), for alpha = 0, and where p_O is zero too, because accepting them cannot help.

    Examples
    --------
    Three points: an easy one, a hard one, and one where OOD inputs gather.

    >>> world = FiniteWorld(p_id=[0.5, 0.3, 0.2], p_ood=[0.1, 0.1, 0.8],
    ...                     posterior=[[1.0, 0.0], [0.4, 0.6], [0.0, 1.0]])
    >>> solution = world.solve(ScodProblem(alpha=0.3, tpr_min=0.7))
    >>> solution.accept.round(4)
    array([1.    , 0.6667, 0.    ])
    >>> round(solution.risk, 4), round(solution.tpr, 4), round(solution.fpr, 4)
    (0.13, 0.7, 0.1667)
    """

    p_id: Floats
    p_ood: Floats
    posterior: Floats

    def __post_init__(self) -> None:
        p_id = _check_mass(self.p_id, "p_id")
        p_ood = _check_mass(self.p_ood, "p_ood", n=len(p_id))
        posterior = _check_posterior(self.posterior, known=p_id > 0)
        for name, value in {"p_id": p_id, "p_ood": p_ood, "posterior": posterior}.items():
            value.setflags(write=False)  # each is our own copy
            object.__setattr__(self, name, value)

    @property
    def n_points(self) -> int:
        """Number of points n."""
        return len(self.p_id)

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return self.posterior.shape[1]

    @property
    def class_prior(self) -> Floats:
        """Share of each class among ID inputs, shape (K,)."""
        return self.p_id @ self.posterior

    @property
    def log_ratio(self) -> Floats:
        """Logarithm of g = p_O / p_I, shape (n,); +inf wherever p_id is zero."""
        return log_mass_ratio(self.p_id, self.p_ood)

    def with_class_mix(self, class_mix: ArrayLike) -> FiniteWorld:
        """Return the world in which ID inputs have another class mix and each class, like OOD, has the law it had.

        Parameters
        ----------
        class_mix : array-like of shape (K,)
            Share q of each class among ID inputs: non-negative, summing to 1 within 1e-6 (then made exact). Zero for a class that is absent from this
            world, because nothing says what its inputs would be; zero for any other class removes it.

        Returns
        -------
        world : FiniteWorld
            The same points, classes and OOD law.

        Notes
        -----
        With p the `class_prior`, ``w = q / p`` and ``v(x) = sum_k w_k p_I(k | x)`` the new ID law is ``p_I v``, the new posterior ``w_k p_I(k | x) / v`` and the
        new ratio ``g / v`` [1]_. docs/theory.md has the proof, and the optimum for such a law.

        References
        ----------
        .. [1] M. Saerens, P. Latinne, C. Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori Probabilities", Neural
           Computation 14(1), 2002.

        Examples
        --------
        >>> world = FiniteWorld([0.4, 0.6], [0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]])
        >>> world.class_prior
        array([0.7, 0.3])
        >>> other = world.with_class_mix([0.1, 0.9])
        >>> other.class_prior.round(6), other.p_id.round(6)
        (array([0.1, 0.9]), array([0.057143, 0.942857]))
        """
        q, p = _check_mass(class_mix, "class_mix", n=self.n_classes, like="the classes of the world"), self.class_prior
        lost = np.flatnonzero((q > 0) & ~(p > 0))
        if len(lost):
            raise refusal(
                "class_mix",
                "must be 0 for class {absent}, which has no ID mass in this world, got {got:g}.",
                absent=int(lost[0]),
                got=float(q[lost[0]]),
            )
        joint = self.posterior * np.divide(q, p, out=np.zeros_like(q), where=p > 0)
        v = joint.sum(axis=1)
        posterior = np.divide(joint, v[:, None], out=np.zeros_like(joint), where=v[:, None] > 0)
        mass = self.p_id * v
        return FiniteWorld(mass / mass.sum(), self.p_ood, posterior)

    def conditional_risk(self, problem: ScodProblem, classifier: ArrayLike | None = None) -> Floats:
        """Return r, the expected loss of the classifier's answer at each point.

        Parameters
        ----------
        problem : ScodProblem
            Gives the loss.
        classifier : array-like of shape (n,), default=None
            Class index answered at each point; None is the Bayes classifier of the loss.

        Returns
        -------
        risk : ndarray of shape (n,)
            ``r(x) = sum_y p_I(y | x) l(y, h(x))``; without meaning where p_id is zero.

        Examples
        --------
        >>> world = FiniteWorld([0.5, 0.5], [0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        >>> world.conditional_risk(ScodProblem(loss=[[0, 1], [5, 0]]), classifier=[0, 0])
        array([0.5, 4. ])
        """
        return risk_of(self.posterior, problem, classifier, "classifier")

    def rejection_score(self, problem: ScodProblem, classifier: ArrayLike | None = None) -> Floats:
        """Return s = r + beta g, the score Theorem 2 compares with lambda.

        Parameters
        ----------
        problem : ScodProblem
            What is asked.
        classifier : array-like of shape (n,), default=None
            Class index answered at each point; None is the Bayes classifier.

        Returns
        -------
        score : ndarray of shape (n,)
            Higher = reject sooner; g itself at alpha = 1; +inf wherever p_id is zero.

        Examples
        --------
        >>> world = FiniteWorld([0.5, 0.5], [0.2, 0.8], [[0.9, 0.1], [0.3, 0.7]])
        >>> world.rejection_score(ScodProblem(alpha=0.2, tpr_min=0.8)).round(6)
        array([0.18, 0.62])
        """
        score = np.full(self.n_points, np.inf)
        known = self.p_id > 0
        risk = self.conditional_risk(problem, classifier)
        score[known] = rejection_score(risk[known], self.log_ratio[known], problem.beta)
        return score

    def evaluate(self, accept: ArrayLike, problem: ScodProblem, classifier: ArrayLike | None = None) -> Evaluation:
        """Return what a given selector achieves.

        Parameters
        ----------
        accept : array-like of shape (n,)
            Acceptance probability of each point, in [0, 1].
        problem : ScodProblem
            Gives alpha and the loss; whether TPR reaches tpr_min is not checked here.
        classifier : array-like of shape (n,), default=None
            Class index answered at each point; None is the Bayes classifier.

        Returns
        -------
        evaluation : Evaluation
            selective_risk is NaN, with an `UndefinedMetricWarning`, if no ID mass is accepted; so is the risk
            unless alpha = 1.

        Notes
        -----
        ``TPR = sum p_I c``, ``FPR = sum p_O c``, ``R_S = sum p_I r c / TPR``.

        Examples
        --------
        >>> world = FiniteWorld([0.5, 0.5], [0.0, 1.0], [[0.9, 0.1], [0.3, 0.7]])
        >>> result = world.evaluate([1.0, 0.5], ScodProblem(alpha=0.2))
        >>> [round(value, 6) for value in result]
        [0.233333, 0.75, 0.5, 0.166667]
        """
        c = check_vector(accept, "accept", n=self.n_points, like="the world", minimum=0.0)
        if c.max() > 1.0:
            raise InvalidInputError(f"accept must hold probabilities in [0, 1], got {c.max():g}.")
        return self._evaluate(c, self.conditional_risk(problem, classifier), problem)

    def solve(self, problem: ScodProblem, classifier: ArrayLike | None = None, method: str = "closed_form") -> Solution:
        """Return the selector with the smallest SCOD risk among all with TPR >= tpr_min.

        Parameters
        ----------
        problem : ScodProblem
            What is asked.
        classifier : array-like of shape (n,), default=None
            Class index answered at each point; None is the Bayes classifier of the problem's loss, which is
            optimal together with the selector (Theorem 1). The selector is optimal for any classifier.
        method : {"closed_form", "lp"}, default="closed_form"
            Theorem 2, O(n log n), or a linear program as an independent check.

        Returns
        -------
        solution : Solution
            Both methods reach the same risk; where several points tie at lambda they may split them differently.

        Notes
        -----
        minimise ``(1 - alpha) R_S + alpha FPR`` over c in [0, 1]^n with ``TPR >= tpr_min``. An optimum has TPR =
        tpr_min and accepts where ``s(x) = r(x) + beta g(x) < lambda``, with probability tau where s = lambda;
        r is the conditional risk, g = p_O / p_I, beta = alpha tpr_min / (1 - alpha). docs/theory.md has the proof.

        Examples
        --------
        >>> world = FiniteWorld([0.6, 0.4], [0.1, 0.9], [[0.8, 0.2], [0.0, 1.0]])
        >>> problem = ScodProblem(alpha=0.4, tpr_min=0.9)
        >>> [round(world.solve(problem, method=name).risk, 9) for name in ("closed_form", "lp")]
        [0.39, 0.39]
        """
        solver = check_choice(method, "method", SOLVERS)
        risk = self.conditional_risk(problem, classifier)
        known = self.p_id > 0
        accept = np.zeros(self.n_points)
        accept[known], threshold, tau = solver(self.p_id[known], self.p_ood[known], risk[known], problem)
        return Solution(accept, *self._evaluate(accept, risk, problem), threshold, tau)

    def _evaluate(self, accept: Floats, risk: Floats, problem: ScodProblem) -> Evaluation:
        """Return what a checked selector achieves, given the conditional risk of each point."""
        accepted = self.p_id * accept
        tpr, fpr = float(accepted.sum()), float((self.p_ood * accept).sum())
        if not tpr > 0:
            message = "selective_risk is undefined because no ID mass is accepted: it is set to NaN."
            warn_caller(UndefinedMetricWarning(message))
        selective_risk = float((accepted * risk).sum()) / tpr if tpr > 0 else float("nan")
        return Evaluation(problem.risk(selective_risk, fpr), tpr, fpr, selective_risk)


def risk_of(posterior: Floats, problem: ScodProblem, label: ArrayLike | None, name: str) -> Floats:
    """Return the expected loss of given answers, or of the Bayes classifier."""
    loss = problem.loss_matrix(posterior.shape[1])
    if label is None:
        return bayes_decision(posterior, loss).risk
    return expected_loss(posterior, check_labels(label, name, posterior.shape[1], n=len(posterior)), loss)


def _check_mass(values: Any, name: str, n: int | None = None, like: str = "p_id") -> Floats:
    """Check a probability vector and return its own copy, scaled to sum to one."""
    mass = check_vector(values, name, n=n, like=like, allow_inf=False, minimum=0.0)
    total = float(mass.sum())
    if abs(total - 1.0) > _SUM_TOLERANCE:
        raise InvalidInputError(f"{name} must sum to 1, got {total:.12g}: divide it by its sum in float64.")
    return mass / total


def _check_posterior(values: Any, known: NDArray[np.bool_]) -> Floats:
    """Check the posterior where it has a meaning and return its own copy, rows scaled to sum to one."""
    posterior = np.array(as_array(values, "posterior"), dtype=np.float64)
    if posterior.ndim == 2 and len(posterior) == len(known) and posterior.shape[1]:
        posterior[~known] = 1.0 / posterior.shape[1]
    posterior = check_matrix(posterior, "posterior", rows=len(known))
    if not posterior.shape[1]:
        raise InvalidInputError("posterior must have one column per class, got none.")
    total = posterior.sum(axis=1)
    bad = np.flatnonzero((posterior.min(axis=1) < 0) | (np.abs(total - 1.0) > _SUM_TOLERANCE))
    if len(bad):
        raise InvalidInputError(
            f"posterior must have non-negative rows that sum to 1 wherever p_id is positive, "
            f"got {posterior[bad[0]].tolist()} at row {bad[0]}."
        )
    posterior /= total[:, None]
    return posterior


# HiGHS accepts tolerances down to this value; its default 1e-7 would be coarser than the tests.
_TOLERANCE = 1e-10


# Acceptance probability of each point, lambda and tau.
Selector = tuple[Floats, float, float]


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
    return accept, float(threshold.threshold), float(threshold.tau)


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
    return accept, float(score[accept > _TOLERANCE].max()), tau


SOLVERS: dict[str, Callable[[Floats, Floats, Floats, ScodProblem], Selector]] = {
    "closed_form": closed_form,
    "lp": linear_program,
}
