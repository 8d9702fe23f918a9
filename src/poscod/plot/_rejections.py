# SPDX-License-Identifier: BSD-3-Clause
"""Who is rejected, and why: counts by group, class and reason.

Convention: ID rows are counted by their true class; rows without a label by the classifier's answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poscod._validation import check_choice
from poscod.decision import REASONS
from poscod.labels import codes_of
from poscod.model import Sample
from poscod.plot._display import GROUPS, REASON_COLOURS, Column, Display


@dataclass(eq=False, repr=False)
class RejectionDisplay(Display):
    """Rows of each class by what happened to them.

    Parameters
    ----------
    group : array-like of shape (n,), str
        "id", "ood" or "unlabeled".
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
    >>> display = RejectionDisplay(["id"] * 2, ["cat"] * 2, ["accepted", "ambiguous"], [3, 1], [0.75, 0.25])
    >>> display.columns()["count"]
    array([3, 1])
    """

    title: ClassVar[str] = "Who is rejected, and why"
    group: Column
    name: Column
    reason: Column
    count: Column
    share: Column

    @classmethod
    def from_sample(cls, sample: Sample) -> RejectionDisplay:
        """Count rows that are decided already: ID rows by true class, others by the classifier's answer.

        Parameters
        ----------
        sample : Sample
            Fresh rows that a model has decided.

        Returns
        -------
        display : RejectionDisplay
        """
        classes, reasons = sample.calibration.classes, np.array(list(REASONS))
        parts = []
        for group, rows in sample.groups.items():
            codes = codes_of(classes, rows.label) if sample.codes is None or group != "id" else sample.codes
            table = np.zeros((len(classes), len(reasons)), dtype=np.int64)
            np.add.at(table, (codes, (rows.reason[:, None] == reasons).argmax(axis=1)), 1)
            with np.errstate(invalid="ignore"):
                share = table / table.sum(axis=1, keepdims=True)
            names = np.repeat(classes, len(reasons)), np.tile(reasons, len(classes))
            parts.append((np.full(table.size, group), *names, table.ravel(), share.ravel()))
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _draw(self, ax: Any, group: str = "id", **options: Any) -> None:
        check_choice(group, "group", GROUPS)
        mine = self.group == group
        names = list(dict.fromkeys(self.name[mine].tolist()))
        left = np.zeros(len(names))
        for reason, colour in REASON_COLOURS.items():
            width = np.nan_to_num(self.share[mine & (self.reason == reason)])
            ax.barh([str(name) for name in names], width, left=left, color=colour, label=reason)
            left += width
        ax.invert_yaxis()
        ax.set(xlabel="share of rows rejected", ylabel="class", **options)
