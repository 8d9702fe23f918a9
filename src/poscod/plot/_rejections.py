# SPDX-License-Identifier: BSD-3-Clause
"""Who is rejected, and why: counts by class and reason.

Convention: ID rows are counted by their true class; rows without a label by the classifier's answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poscod._comparison import read_sample
from poscod.decision import REASONS, Decisions
from poscod.exceptions import InvalidInputError
from poscod.plot._display import REASON_COLOURS, Column, Display, equal_lengths


class RejectionDisplay(Display):
    """Rows of each class by what happened to them.

    Parameters
    ----------
    name : array-like of shape (n,)
        Class of each count.
    reason : array-like of shape (n,), str
        A key of `poscod.decision.REASONS`.
    count : array-like of shape (n,), int
        Rows of the class with that outcome.
    share : array-like of shape (n,)
        The same as a share of the rows of the class; NaN for a class without rows.

    Examples
    --------
    >>> display = RejectionDisplay(["cat", "cat"], ["accepted", "ambiguous"], [3, 1], [0.75, 0.25])
    >>> display.columns()["count"]
    array([3, 1])
    """

    def __init__(self, name: Any, reason: Any, count: Any, share: Any) -> None:
        self._columns = equal_lengths("RejectionDisplay", name=name, reason=reason, count=count, share=share)

    @classmethod
    def from_estimator(cls, model: Any, X: Any, y: Any) -> RejectionDisplay:
        """Count fresh labelled rows by true class.

        Parameters
        ----------
        model : POSCOD
        X, y : rows and labels

        Returns
        -------
        display : RejectionDisplay
        """
        sample = read_sample(model, X, y, None, None)
        return cls.from_decisions(sample.known, y, model.classes_)

    @classmethod
    def from_decisions(cls, decisions: Decisions, label: Any, classes: Any) -> RejectionDisplay:
        """Count decisions.

        Parameters
        ----------
        decisions : Decisions
        label : array-like of shape (n,)
            Class of each row: the truth where it is known, otherwise ``decisions.label``.
        classes : array-like of shape (K,)
            All classes, in increasing order.

        Returns
        -------
        display : RejectionDisplay
        """
        classes, label = np.asarray(classes), np.asarray(label)
        if len(label) != len(decisions):
            raise InvalidInputError(f"label must have one entry per decision ({len(decisions)}), got {len(label)}.")
        reasons = list(REASONS)
        code = np.searchsorted(classes, label) * len(reasons)
        for i, reason in enumerate(reasons):
            code[decisions.reason == reason] += i
        count = np.bincount(code, minlength=len(classes) * len(reasons)).reshape(len(classes), len(reasons))
        with np.errstate(invalid="ignore"):
            share = count / count.sum(axis=1, keepdims=True)
        return cls(np.repeat(classes, len(reasons)), np.tile(reasons, len(classes)), count.ravel(), share.ravel())

    def columns(self) -> dict[str, Column]:
        """Return the counts in long form.

        Returns
        -------
        columns : dict of str to ndarray
        """
        return dict(self._columns)

    def _draw(self, ax: Any, **options: Any) -> None:
        c = self._columns
        names = list(dict.fromkeys(c["name"].tolist()))
        left = np.zeros(len(names))
        for reason, colour in REASON_COLOURS.items():
            width = np.nan_to_num(c["share"][c["reason"] == reason])
            ax.barh([str(name) for name in names], width, left=left, color=colour, label=reason)
            left += width
        ax.invert_yaxis()
        ax.set(xlabel="share of rows rejected", ylabel="class", **options)
        ax.legend(fontsize="small")
