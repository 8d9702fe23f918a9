# SPDX-License-Identifier: BSD-3-Clause
"""The SCOD problem: what is asked of a selective classifier, as a value.

Minimise ``(1 - alpha) * R_S + alpha * FPR`` subject to ``TPR >= tpr_min`` (Definition 1 of [1]_). The
optimal selector accepts when ``s(x) = r(x) + beta * g(x) <= lambda`` with ``beta = alpha * tpr_min / (1 - alpha)``
(Theorem 2). `NOTATION` lists every symbol once; code, docs and plots use no other names.

References
----------
.. [1] V. Franc, J. Paplham, D. Prusa, "SCOD: From Heuristics to Theory", ECCV 2024.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poscod._validation import Floats, check_choice, check_count, check_labels, check_matrix, check_number, refusal
from poscod.exceptions import InvalidInputError

__all__ = [
    "LOSSES",
    "NOTATION",
    "BoundedProblem",
    "Budget",
    "CostProblem",
    "CoverageProblem",
    "GeneralisedProblem",
    "PrecisionProblem",
    "Problem",
    "RiskBound",
    "ScodProblem",
]

Risk = TypeVar("Risk", float, NDArray[np.float64])

NOTATION: dict[str, str] = {
    "p_I, p_O": "density (or mass) of in-distribution (ID) and out-of-distribution (OOD) inputs",
    "pi": "OOD prior: share of OOD inputs in the traffic",
    "alpha": "relative cost of accepting an OOD input; multiplies FPR",
    "1 - alpha": "weight of the selective risk",
    "tpr_min": "required share of ID inputs to be accepted",
    "l(y, y')": "loss of answering y' when the truth is y; zero iff y = y'",
    "h(x)": "the ID classifier",
    "r(x)": "conditional risk of h: sum over y of p_I(y | x) l(y, h(x))",
    "g(x)": "likelihood ratio p_O(x) / p_I(x); log_ratio is its logarithm",
    "c(x)": "selector: probability that x is accepted",
    "TPR": "share of ID accepted",
    "FPR": "share of OOD accepted",
    "R_S": "selective risk: mean loss on accepted ID inputs",
    "R": "SCOD risk (1 - alpha) R_S + alpha FPR",
    "s(x)": "rejection score r(x) + beta g(x); higher = reject sooner",
    "beta": "slope of the optimal line, alpha tpr_min / (1 - alpha)",
    "lambda": "threshold: accept s(x) <= lambda",
    "tau": "acceptance probability at a tie s(x) = lambda",
}


def _zero_one(n_classes: int) -> Floats:
    """Return the matrix in which every mistake costs one."""
    return 1.0 - np.eye(n_classes)


def _absolute(n_classes: int) -> Floats:
    """Return the matrix in which a mistake costs the distance between class indices (ordinal labels)."""
    index = np.arange(n_classes, dtype=np.float64)
    return np.abs(index[:, None] - index[None, :])


LOSSES: dict[str, Callable[[int], Floats]] = {"zero_one": _zero_one, "absolute": _absolute}


RANGES: dict[str, tuple[float, float, str]] = {
    "alpha": (0.0, 1.0, "both"),
    "tpr_min": (0.0, 1.0, "right"),
    "fpr_max": (0.0, 1.0, "both"),
    "precision_min": (0.0, 1.0, "right"),
    "reject_max": (0.0, 1.0, "left"),
    "reject_id": (0.0, float("inf"), "neither"),
    "reject_ood": (0.0, float("inf"), "left"),
    "pi": (0.0, 1.0, "neither"),
    "share": (0.0, 1.0, "left"),
    "risk_max": (0.0, float("inf"), "neither"),
    "delta": (0.0, 1.0, "neither"),
}
"""Allowed values of every parameter: low, high, and which ends belong to them."""


class Problem:
    """What is asked of a selective classifier. All problems are solved by rules of one family, accept iff r + mu g <= lambda."""

    @property
    def loss(self) -> Any:
        """Loss ``l[y, y']`` of answering y' when the truth is y: a name of `LOSSES` or nested tuples of shape (K, K)."""
        raise NotImplementedError

    @property
    def alpha(self) -> float:
        """Relative cost of accepting an OOD input, by which a rule is judged; 0.5 where a problem has none."""
        return 0.5

    @property
    def tpr_min(self) -> float | None:
        """Required share of ID inputs to be accepted; None where a problem asks for none."""
        return None

    @property
    def words(self) -> str:
        """What is asked, in a phrase.

        Examples
        --------
        >>> ScodProblem(0.3, loss="absolute").words
        'alpha = 0.3, tpr_min = 0.95, loss = absolute'
        >>> Budget(0.02).words
        'share = 0.02, ranked by alpha = 0.5, tpr_min = 0.95'
        """
        return ", ".join(
            f"ranked by {value.words}" if isinstance(value, Problem) else f"{name} = {_word(value)}"
            for name, value in self._asked()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as plain values.

        Returns
        -------
        document : dict
            The name of the class under "kind", and every parameter; ready for JSON.

        Examples
        --------
        >>> ScodProblem(0.3).to_dict()
        {'kind': 'ScodProblem', 'alpha': 0.3, 'tpr_min': 0.95, 'loss': 'zero_one'}
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        plain = {name: value.to_dict() if isinstance(value, Problem) else value for name, value in values.items()}
        if isinstance(plain.get("loss"), tuple):
            plain["loss"] = [list(row) for row in plain["loss"]]
        return {"kind": type(self).__name__, **plain}

    def replace(self, **changes: Any) -> Any:
        """Return the problem with some parameters changed.

        Parameters
        ----------
        **changes : object
            New values by the name of the parameter. A problem that ranks inputs as another one does hands on what it does not have itself.

        Returns
        -------
        problem : Problem
            Of the same kind.

        Examples
        --------
        >>> Budget(0.02).replace(alpha=0.3).ranking.alpha
        0.3
        """
        own = {field.name for field in fields(self)}  # type: ignore[arg-type]
        unknown = {name: value for name, value in changes.items() if name not in own}
        if unknown and "ranking" in own:
            ranking: Any = changes.get("ranking", getattr(self, "ranking", None))
            changes = {**{n: v for n, v in changes.items() if n in own}, "ranking": ranking.replace(**unknown)}
        elif unknown:
            raise refusal(
                next(iter(unknown)),
                "is not a part of {kind} ({words}): choose another problem with {with_rule}, e.g. ScodProblem.",
                kind=type(self).__name__,
                words=self.words,
            )
        return replace(self, **changes)  # type: ignore[type-var]

    def _asked(self) -> list[tuple[str, Any]]:
        """Parameters that say something: not None, not the plain loss, not the usual method."""
        values = [(field.name, getattr(self, field.name)) for field in fields(self)]  # type: ignore[arg-type]
        plain = [("loss", "zero_one"), ("method", "fixed_sequence")]
        return [(name, value) for name, value in values if value is not None and (name, value) not in plain]

    def __post_init__(self) -> None:
        for name, (low, high, closed) in {**RANGES, **self._ranges()}.items():
            # Read from the object itself: a parameter that a problem does not have is a property of this class.
            if name in vars(self) and not (name == "pi" and vars(self)[name] is None):
                object.__setattr__(self, name, check_number(vars(self)[name], name, low, high, closed=closed))
        ranking = vars(self).get("ranking")
        if ranking is not None and (not isinstance(ranking, Problem) or isinstance(ranking, RankedProblem)):
            raise refusal(
                "ranking", "must be a problem with a slope of its own, e.g. ScodProblem(), got {got!r}.", got=ranking
            )
        if isinstance(self.loss, str):
            check_choice(self.loss, "loss", LOSSES)
        elif "loss" in vars(self):
            # Kept as nested tuples: the problem stays hashable, comparable and cannot be edited from outside.
            matrix = _check_loss_matrix(self.loss)
            object.__setattr__(self, "loss", tuple(tuple(row) for row in matrix.tolist()))

    def _ranges(self) -> dict[str, tuple[float, float, str]]:
        """Return ranges of parameters that are narrower here than elsewhere."""
        return {}

    def loss_matrix(self, n_classes: int) -> Floats:
        """Return the loss as a matrix.

        Parameters
        ----------
        n_classes : int
            Number of classes K; a matrix loss must have the same size.

        Returns
        -------
        loss : ndarray of shape (K, K)
            Row = truth, column = answer.
        """
        n_classes = check_count(n_classes, "n_classes")
        if isinstance(self.loss, str):
            return LOSSES[self.loss](n_classes)
        matrix = np.asarray(self.loss, dtype=np.float64)
        if len(matrix) != n_classes:
            raise InvalidInputError(
                f"loss must have one row and one column per class ({n_classes} x {n_classes}), "
                f"got {len(matrix)} x {len(matrix)}."
            )
        return matrix

    def losses(self, y_true: ArrayLike, y_pred: ArrayLike, n_classes: int) -> Floats:
        """Return the loss of each answer.

        Parameters
        ----------
        y_true, y_pred : array-like of shape (n,)
            Class indices 0, ..., K - 1.
        n_classes : int
            Number of classes K.

        Returns
        -------
        loss : ndarray of shape (n,)

        Examples
        --------
        >>> ScodProblem(loss="absolute").losses([0, 2, 1], [2, 2, 0], n_classes=3)
        array([2., 0., 1.])
        """
        truth = check_labels(y_true, "y_true", n_classes)
        answer = check_labels(y_pred, "y_pred", n_classes, n=len(truth))
        return self.loss_matrix(n_classes)[truth, answer]


@dataclass(frozen=True)
class ScodProblem(Problem):
    """Costs and constraints of selective classification in the presence of OOD data.

    Parameters
    ----------
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input. 0 ignores OOD data, 1 ignores misclassification.
    tpr_min : float in (0, 1], default=0.95
        Required share of ID inputs to be accepted.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y. A matrix must be square, finite,
        non-negative, and zero exactly on its diagonal.

    Attributes
    ----------
    beta : float
        Slope of the optimal line; infinite at alpha = 1, where s = g.

    Notes
    -----
    The slope is ``beta = alpha * tpr_min / (1 - alpha)``: alpha multiplies FPR, so a dearer OOD input
    makes the ratio count more.

    Examples
    --------
    >>> problem = ScodProblem(alpha=0.2, tpr_min=0.9)
    >>> round(problem.beta, 6)
    0.225
    >>> round(problem.risk(selective_risk=0.1, fpr=0.3), 6)
    0.14
    >>> ScodProblem(loss=[[0, 1], [5, 0]]).loss_matrix(2)
    array([[0., 1.],
           [5., 0.]])
    """

    alpha: float = 0.5
    tpr_min: float = 0.95
    loss: Any = "zero_one"

    @property
    def beta(self) -> float:
        """Slope of the optimal line, alpha * tpr_min / (1 - alpha)."""
        return float("inf") if self.alpha == 1.0 else self.alpha * self.tpr_min / (1.0 - self.alpha)

    def risk(self, selective_risk: Risk, fpr: Risk) -> Risk:
        """Return the SCOD risk (1 - alpha) R_S + alpha FPR.

        Parameters
        ----------
        selective_risk, fpr : float or ndarray
            The two rates that are weighed.

        Returns
        -------
        risk : float or ndarray
            A term with weight zero is left out, so that it may be undefined (NaN).
        """
        if self.alpha == 0.0:
            return selective_risk
        if self.alpha == 1.0:
            return fpr
        return (1.0 - self.alpha) * selective_risk + self.alpha * fpr


@dataclass(frozen=True)
class GeneralisedProblem(Problem):
    """Minimise (1 - alpha) P(error and accepted | ID) + alpha FPR subject to TPR >= tpr_min.

    Parameters
    ----------
    alpha : float in [0, 1], default=0.5
        Relative cost of accepting an OOD input.
    tpr_min : float in (0, 1], default=0.95
        Required share of ID inputs to be accepted.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y.

    Notes
    -----
    The risk is not divided by TPR, so ``mu = alpha / (1 - alpha)`` does not depend on tpr_min: one ranking of the inputs
    serves the whole curve.

    Examples
    --------
    >>> GeneralisedProblem(alpha=0.2).mu
    0.25
    """

    alpha: float = 0.5
    tpr_min: float = 0.95
    loss: Any = "zero_one"

    @property
    def mu(self) -> float:
        """Slope alpha / (1 - alpha)."""
        return float("inf") if self.alpha == 1.0 else self.alpha / (1.0 - self.alpha)


@dataclass(frozen=True)
class CostProblem(Problem):
    """Minimise the expected cost of a decision, in units of the loss.

    Parameters
    ----------
    reject_id : float > 0
        Cost of rejecting an ID input.
    accept_ood : float
        Cost of accepting an OOD input; larger than reject_ood.
    reject_ood : float, default=0.0
        Cost of rejecting an OOD input.
    pi : float in (0, 1), default=None
        OOD prior of the traffic the rule is for; None takes the fitted estimate.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y.

    Notes
    -----
    Accepting costs r p_I (1 - pi) + accept_ood p_O pi at x, rejecting reject_id p_I (1 - pi) + reject_ood p_O pi. So
    ``mu = pi / (1 - pi) * (accept_ood - reject_ood)`` and ``lambda = reject_id``: nothing is calibrated. Without OOD inputs
    it is Chow's rule.

    Examples
    --------
    >>> CostProblem(reject_id=0.1, accept_ood=2.0, pi=0.2).mu(0.5)
    0.5
    """

    reject_id: float
    accept_ood: float
    reject_ood: float = 0.0
    pi: float | None = None
    loss: Any = "zero_one"

    def _ranges(self) -> dict[str, tuple[float, float, str]]:
        return {"accept_ood": (self.reject_ood, float("inf"), "left")}

    def mu(self, pi: float) -> float:
        """Slope for an OOD prior; the problem's own prior goes first.

        Parameters
        ----------
        pi : float
            Estimated OOD prior.

        Returns
        -------
        mu : float
        """
        pi = pi if self.pi is None else self.pi
        if pi == 1.0:  # no ID input at all: reject whatever has any likelihood ratio
            return float("inf")
        return pi / (1.0 - pi) * (self.accept_ood - self.reject_ood)


@dataclass(frozen=True)
class BoundedProblem(Problem):
    """Minimise the selective risk subject to TPR >= tpr_min and FPR <= fpr_max.

    Parameters
    ----------
    tpr_min : float in (0, 1], default=0.95
        Required share of ID inputs to be accepted.
    fpr_max : float in [0, 1], default=0.1
        Largest allowed share of OOD inputs accepted.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y.

    Notes
    -----
    At fixed TPR, FPR falls and R_S grows with the slope mu, so the smallest mu that meets the bound is optimal. It may not
    exist: then the smallest reachable FPR is named.

    Examples
    --------
    >>> BoundedProblem(tpr_min=0.9, fpr_max=0.05).fpr_limit(0.3)
    0.05
    """

    tpr_min: float = 0.95
    fpr_max: float = 0.1
    loss: Any = "zero_one"

    def fpr_limit(self, pi: float) -> float:
        """Largest allowed FPR, which does not depend on the OOD prior here.

        Parameters
        ----------
        pi : float
            Estimated OOD prior.

        Returns
        -------
        fpr_max : float
        """
        return self.fpr_max


@dataclass(frozen=True)
class PrecisionProblem(Problem):
    """Minimise the selective risk subject to TPR >= tpr_min and a share of ID among accepted inputs.

    Parameters
    ----------
    tpr_min : float in (0, 1], default=0.95
        Required share of ID inputs to be accepted (recall).
    precision_min : float in (0, 1], default=0.9
        Required share of ID inputs among the accepted ones.
    pi : float in (0, 1), default=None
        OOD prior of the traffic the rule is for; None takes the fitted estimate.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y.

    Notes
    -----
    At TPR = t precision is ``(1 - pi) t / ((1 - pi) t + pi FPR)``, so the bound is one on FPR:
    ``FPR <= t (1 - pi) (1 - precision_min) / (pi precision_min)``.

    Examples
    --------
    >>> round(PrecisionProblem(tpr_min=0.9, precision_min=0.9, pi=0.5).fpr_limit(0.1), 6)
    0.1
    """

    tpr_min: float = 0.95
    precision_min: float = 0.9
    pi: float | None = None
    loss: Any = "zero_one"

    def fpr_limit(self, pi: float) -> float:
        """Largest FPR at which precision is still met; the problem's own prior goes first.

        Parameters
        ----------
        pi : float
            Estimated OOD prior.

        Returns
        -------
        fpr_max : float
        """
        pi = pi if self.pi is None else self.pi
        if pi == 0.0:
            return 1.0
        kappa = self.precision_min
        return min(1.0, self.tpr_min * (1.0 - pi) * (1.0 - kappa) / (pi * kappa))


@dataclass(frozen=True)
class CoverageProblem(Problem):
    """Minimise (1 - alpha) P(error and accepted | ID) + alpha FPR subject to a share of rejected **traffic**.

    Parameters
    ----------
    alpha : float in [0, 1), default=0.5
        Relative cost of accepting an OOD input.
    reject_max : float in [0, 1), default=0.1
        Largest share of the traffic (ID and OOD together) that may be rejected.
    pi : float in (0, 1), default=None
        OOD prior of the traffic the rule is for; None takes the fitted estimate.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y.

    Notes
    -----
    With the multiplier nu >= 0 of the constraint, ``mu = (alpha - nu pi) / (1 - alpha)`` and
    ``lambda = nu (1 - pi) / (1 - alpha)``; nu is found so that the observed share of rejected traffic is reject_max. The
    formulation is that of [1]_ and needs the OOD prior, which `ScodProblem` does not.

    References
    ----------
    .. [1] H. Narasimhan, A. K. Menon, W. Jitkrittum, S. Kumar, "Plugin estimators for selective classification with
       out-of-distribution detection", ICLR 2024.

    Examples
    --------
    >>> CoverageProblem(alpha=0.5, reject_max=0.1, pi=0.25).line(nu=0.5, pi=0.9)
    (0.75, 0.75)
    """

    alpha: float = 0.5
    reject_max: float = 0.1
    pi: float | None = None
    loss: Any = "zero_one"

    def _ranges(self) -> dict[str, tuple[float, float, str]]:
        return {"alpha": (0.0, 1.0, "left")}

    def line(self, nu: float, pi: float) -> tuple[float, float]:
        """Slope and threshold for a multiplier; the problem's own prior goes first.

        Parameters
        ----------
        nu : float
            Multiplier of the constraint.
        pi : float
            Estimated OOD prior.

        Returns
        -------
        mu, threshold : float
        """
        pi = pi if self.pi is None else self.pi
        return (self.alpha - nu * pi) / (1.0 - self.alpha), nu * (1.0 - pi) / (1.0 - self.alpha)


class RankedProblem(Problem):
    """A problem that moves the threshold in the ranking of another one."""

    ranking: Problem

    def replace(self, **changes: Any) -> Any:
        """Return the problem with some parameters changed; asking for a TPR asks for the ranking's own problem again.

        Parameters
        ----------
        **changes : object
            New values by the name of the parameter.

        Returns
        -------
        problem : Problem
        """
        return self.ranking.replace(**changes) if "tpr_min" in changes else super().replace(**changes)

    @property
    def loss(self) -> Any:
        """Loss of the ranking."""
        return self.ranking.loss

    @property
    def alpha(self) -> float:
        """Relative cost of the ranking."""
        return self.ranking.alpha


@dataclass(frozen=True)
class Budget(RankedProblem):
    """Reject a given share of the traffic seen at fit, the inputs that another problem ranks last.

    Parameters
    ----------
    share : float in [0, 1)
        What can be reviewed, e.g. 0.02 for 200 of 10,000.
    ranking : Problem
        Its slope and its loss rank the inputs, and its own threshold is not used; ``ScodProblem()`` where it is not given.

    Examples
    --------
    >>> Budget(0.02, ScodProblem(alpha=0.2)).alpha
    0.2
    """

    share: float
    ranking: Problem = ScodProblem()


@dataclass(frozen=True)
class RiskBound(RankedProblem):
    """Accept as much as possible such that the selective risk is at most risk_max with probability 1 - delta.

    Parameters
    ----------
    risk_max : float > 0
        Largest allowed mean loss on accepted ID inputs.
    delta : float in (0, 1), default=0.05
        Error probability, over the draw of the calibration rows.
    method : str, default="fixed_sequence"
        See `poscod.selector.risk_controlled_threshold`.
    ranking : Problem
        Its slope and its loss rank the inputs, and its own threshold is not used; ``ScodProblem()`` where it is not given.

    Examples
    --------
    >>> RiskBound(0.01, ranking=ScodProblem(loss="absolute")).loss
    'absolute'
    """

    risk_max: float
    delta: float = 0.05
    method: str = "fixed_sequence"
    ranking: Problem = ScodProblem()


def _word(value: Any) -> str:
    """Say a parameter: a number, a name, or a matrix by its size."""
    if isinstance(value, tuple):
        return f"a {len(value)} x {len(value)} matrix"
    return value if isinstance(value, str) else f"{value:g}"


def _check_loss_matrix(loss: Any) -> Floats:
    """Refuse anything but a square, non-negative matrix that is zero exactly on the diagonal."""
    matrix = check_matrix(loss, "loss").astype(np.float64)
    if matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise InvalidInputError(f"loss must be a square matrix l[y, y'], got shape {matrix.shape}.")
    if (matrix < 0).any():
        raise InvalidInputError(f"loss must be non-negative, got {matrix.min():g}.")
    if ((matrix == 0) != np.eye(len(matrix), dtype=bool)).any():
        y, answer = (int(i) for i in np.argwhere((matrix == 0) != np.eye(len(matrix), dtype=bool))[0])
        raise InvalidInputError(
            f"loss must be zero exactly where y = y', got l[{y}, {answer}] = {matrix[y, answer]:g}: "
            "a right answer costs nothing and a wrong one costs something."
        )
    return matrix
