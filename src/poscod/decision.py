# SPDX-License-Identifier: BSD-3-Clause
"""What leaves the library: one row per input with the answer, whether it stands, and why not.

Convention: ``label`` is the classifier's answer also where it is rejected; ``accept`` says whether to use it. Columns are
arrays of equal length; nothing is computed here but the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod._validation import Floats

__all__ = ["REASONS", "Decisions", "rejection_reason"]

REASONS: dict[str, str] = {
    "accepted": "the score is at most the threshold",
    "ambiguous": "at least two thirds of the score is the conditional risk r: the classifier is likely wrong here",
    "unfamiliar": "at least two thirds of the score is beta g: the input is unlike the training data",
    "both": "each term makes more than a third of the score",
}
_MAIN_SHARE = 2.0 / 3.0


@dataclass(frozen=True, eq=False)
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

    def __getitem__(self, rows: slice | NDArray[Any]) -> Decisions:
        """Return the decisions on some rows (slice, indices or a boolean mask)."""
        return Decisions(*(getattr(self, field.name)[rows] for field in fields(self)))

    def predictions(self, reject_label: Any = -1) -> NDArray[Any]:
        """Return the label of each input, or the reject label.

        Parameters
        ----------
        reject_label : object, default=-1

        Returns
        -------
        label : ndarray of shape (n,)
            An array of objects where labels and reject label are not both numbers or both texts.
        """
        mark = np.asarray(reject_label)
        # Numbers among texts, and texts among numbers, must stay what they are.
        mixed = (self.label.dtype.kind in "US") != (mark.dtype.kind in "US")
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


def rejection_reason(risk: Floats, score: Floats, accept: NDArray[np.bool_]) -> NDArray[np.str_]:
    """Say which of the two terms of the score rejected an input.

    Parameters
    ----------
    risk : ndarray of shape (n,)
        The part of the score that is conditional risk (zero where the rule ignores r).
    score : ndarray of shape (n,)
        Rejection score s = risk + mu g.
    accept : ndarray of shape (n,), bool

    Returns
    -------
    reason : ndarray of shape (n,), str
        A key of `REASONS` each.

    Examples
    --------
    >>> rejection_reason(np.array([0.1, 0.9, 0.1, 0.5]), np.array([0.2, 1.0, 5.0, 1.0]), np.array([True, False, False, False]))
    array(['accepted', 'ambiguous', 'unfamiliar', 'both'], dtype='<U10')
    """
    ambiguous = risk >= _MAIN_SHARE * score
    unfamiliar = risk <= (1.0 - _MAIN_SHARE) * score
    return np.select([accept, ambiguous, unfamiliar], ["accepted", "ambiguous", "unfamiliar"], default="both")
