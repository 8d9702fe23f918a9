# SPDX-License-Identifier: BSD-3-Clause
"""What is known of some inputs after scoring, the rejection score, and what leaves the library: one row per input.

Convention: ``label`` is the classifier's answer also where it is rejected; ``accept`` says whether to use it. Columns are
arrays of equal length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod import _show
from poscod._optional import require
from poscod._validation import Floats, check_number, check_vector
from poscod.labels import is_text, reject_label_for

__all__ = ["Decisions", "Scored"]

REASONS: dict[str, str] = {
    "accepted": "the score is at most the threshold",
    "ambiguous": "at least two thirds of the score is the conditional risk r: the classifier is likely wrong here",
    "unfamiliar": "at least two thirds of the score is beta g: the input is unlike the training data",
    "both": "each term makes more than a third of the score",
}
MAIN_SHARE = 2.0 / 3.0
# exp(x) is continued by its tangent above this point: finite and strictly increasing up to log-ratios of 10,000.
TANGENT_AT = 690.0


class Scored(NamedTuple):
    """What a rule decides on: n inputs after scoring, whoever scored them.

    Attributes
    ----------
    label : ndarray of shape (n,)
        The classifier's answer.
    risk : ndarray of shape (n,)
        Conditional risk r of the answer.
    log_ratio : ndarray of shape (n,)
        log g, g = p_O / p_I; -inf everywhere where no ratio was learned.
    """

    label: NDArray[Any]
    risk: Floats
    log_ratio: Floats

    def take(self, rows: slice | NDArray[Any]) -> Scored:
        """Return some of the inputs.

        Parameters
        ----------
        rows : slice or ndarray
            Indices or a boolean mask.

        Returns
        -------
        scored : Scored
            Inputs after scoring.
        """
        return Scored(*(column[rows] for column in self))

    @classmethod
    def join(cls, parts: Sequence[Scored]) -> Scored:
        """Return the inputs of several parts, one after the other.

        Parameters
        ----------
        parts : sequence of Scored
            At least one.

        Returns
        -------
        scored : Scored
            Inputs after scoring.
        """
        return parts[0] if len(parts) == 1 else cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False, repr=False)
class Decisions:
    """Decisions on n inputs, column by column.

    Parameters
    ----------
    label : ndarray of shape (n,)
        The classifier's answer, also where it is rejected.
    accept : ndarray of shape (n,), bool
        Whether the answer stands.
    reason : ndarray of shape (n,), str
        "accepted", "ambiguous", "unfamiliar" or "both"; see `rejection_reason`.
    risk : ndarray of shape (n,)
        Conditional risk r of the answer.
    log_ratio : ndarray of shape (n,)
        log g, g = p_O / p_I.
    score : ndarray of shape (n,)
        Rejection score s; accepted iff s <= threshold.

    Examples
    --------
    >>> decisions = Decisions(np.array(["a", "b"]), np.array([True, False]), np.array(["accepted", "ambiguous"]),
    ...                       np.array([0.1, 0.9]), np.array([-2.0, -1.0]), np.array([0.2, 1.3]))
    >>> len(decisions), decisions[1:].to_dict()["reason"]
    (2, ['ambiguous'])
    """

    label: NDArray[Any]
    accept: NDArray[np.bool_]
    reason: NDArray[np.str_]
    risk: Floats
    log_ratio: Floats
    score: Floats

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._counts()})"

    def _repr_html_(self) -> str:
        return _show.first_rows({field.name: getattr(self, field.name) for field in fields(self)}, self._counts())

    def _counts(self) -> str:
        counts = {reason: int((self.reason == reason).sum()) for reason in REASONS}
        return f"{len(self):,} inputs: " + ", ".join(f"{n:,} {reason}" for reason, n in counts.items() if n)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Decisions:
        """Return the decisions on some rows (slice, indices or a boolean mask)."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    def predictions(self, reject_label: Any = -1) -> NDArray[Any]:
        """Return the label of each input, or the reject label.

        Parameters
        ----------
        reject_label : object, default=-1
            What stands where an answer was rejected; among texts -1 is the word "rejected".

        Returns
        -------
        label : ndarray of shape (n,)
            An array of objects where labels and reject label are not both numbers or both texts.
        """
        reject_label = reject_label_for(reject_label, self.label)
        mark = np.asarray(reject_label)
        # Numbers among texts, and texts among numbers, must stay what they are.
        mixed = is_text(self.label) != is_text(mark) or mark.dtype.kind == "O"
        label = self.label.astype(object if mixed else np.result_type(self.label, mark))
        label[~self.accept] = reject_label
        return label

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as plain lists, ready for JSON.

        Returns
        -------
        columns : dict of str to list
        """
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}

    def to_pandas(self) -> Any:
        """Return the columns as a pandas DataFrame.

        Returns
        -------
        frame : pandas.DataFrame
        """
        pandas = require("pandas", extra="files", feature="Decisions.to_pandas")
        return pandas.DataFrame({field.name: getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True, eq=False, repr=False)
class Explained(Decisions):
    """Decisions with what makes inputs unfamiliar.

    Parameters
    ----------
    detail : ndarray of shape (n,), str
        The columns that make an input unfamiliar, each with its value and what similar labeled rows hold, or the nearest labeled row; empty for accepted and for ambiguous ones.
    """

    detail: NDArray[Any]


def rejection_score(risk: Any, log_ratio: Any, beta: float) -> Floats:
    """Compute the optimal score s = r + beta * g from the logarithm of g.

    Parameters
    ----------
    risk : array-like of shape (n,)
        Conditional risk r.
    log_ratio : array-like of shape (n,)
        log g; may be infinite.
    beta : float in (-inf, inf]
        Slope of the optimal line; infinite (alpha = 1) means s = g. Negative slopes occur in problems about coverage only.

    Returns
    -------
    s : ndarray of shape (n,)
        Finite for every finite log g up to 10,000, and increasing in log g, strictly wherever floating point can show
        it (g below 5e-324 is zero).

    Notes
    -----
    beta * g is ``exp(log g + log beta)``. Above an exponent of 690 the exponential is continued by its tangent, so that
    inputs far from the training data keep their order instead of all becoming infinite. Such values are beyond any
    threshold in use.

    Examples
    --------
    >>> s = rejection_score([0.1, 0.1, 0.1], [-1000.0, 0.0, 1000.0], beta=0.5)
    >>> s[:2], bool(np.isfinite(s[2]))
    (array([0.1, 0.6]), True)
    """
    risk = check_vector(risk, "risk")
    log_ratio = check_vector(log_ratio, "log_ratio", n=len(risk), like="risk")
    beta = check_number(beta, "beta", -float("inf"), float("inf"), closed="right")
    if beta == 0.0:
        return risk.copy()
    alone = beta == float("inf")
    exponent = log_ratio if alone else log_ratio + np.log(abs(beta))
    term = np.exp(np.minimum(exponent, TANGENT_AT)) * (1.0 + np.maximum(exponent - TANGENT_AT, 0.0))
    return term if alone else risk + np.copysign(1.0, beta) * term


def rejection_reason(risk: Floats, score: Floats, accept: NDArray[np.bool_]) -> NDArray[np.str_]:
    """Say which of the two terms of the score rejected an input; risk is the part of the score that is conditional risk.

    Examples
    --------
    >>> rejection_reason(np.array([0.1, 0.9, 0.1, 0.5]), np.array([0.2, 1.0, 5.0, 1.0]), np.array([True, False, False, False]))
    array(['accepted', 'ambiguous', 'unfamiliar', 'both'], dtype='<U10')
    """
    ambiguous = risk >= MAIN_SHARE * score
    unfamiliar = risk <= (1.0 - MAIN_SHARE) * score
    return np.select([accept, ambiguous, unfamiliar], ["accepted", "ambiguous", "unfamiliar"], default="both")
