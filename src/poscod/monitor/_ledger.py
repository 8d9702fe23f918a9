# SPDX-License-Identifier: BSD-3-Clause
"""Counts of decisions by window: whole numbers that can be added in any order.

Convention: a window is a row of counts for every name in `sizes`. Only the latest windows are kept; totals count everything, so
what is missing from the windows is known by difference. Adding ledgers is associative and commutative to the last bit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.decision import REASONS, Decisions
from poscod.exceptions import InvalidInputError
from poscod.monitor._partitions import (
    JOINT,
    Counts,
    count,
    label_codes,
    layouts,
    read_counts,
    read_sparse,
    sparse,
)
from poscod.monitor._reference import Reference

LABELED = ("accepted ID", "rejected ID", "accepted OOD", "rejected OOD")
"""Cells of labeled rows."""


class Ledger:
    """Counts by window, of which the latest `keep` are kept; a reference fixes the cells."""

    def __init__(self, reference: Reference, keep: int) -> None:
        self.reference, self.keep, self.cells = reference, keep, reference.cells
        self.loss_values: Floats = np.unique(reference.loss_matrix)
        self.sizes = {name: len(layout.answer) for name, layout in layouts(self.cells).items()}
        self.sizes |= {"reason": 4, "invalid": 1, "labeled": len(LABELED), "loss": len(self.loss_values)}
        self.windows: dict[int, dict[str, Counts]] = {}
        self.total = 0
        self.first: int | None = None

    def add(self, index: NDArray[np.int64], decisions: Decisions) -> None:
        """Count decisions."""
        threshold = self.cells.threshold
        valid = ~(np.isnan(decisions.score) | np.isnan(decisions.risk) | np.isnan(decisions.log_ratio))
        moved = valid & (decisions.accept != (decisions.score <= threshold))
        # A score that was written and read again may have moved across the threshold by a rounding.
        if (moved & ~np.isclose(decisions.score, threshold, rtol=1e-6, atol=0.0)).any():
            message = "{parameter} must be made at the reference's threshold ({allowed:g}), got others: make a reference of the model that decides."
            raise InvalidInputError(message, parameter="decisions", allowed=threshold)
        if moved.any():
            side = np.where(decisions.accept, threshold, np.nextafter(threshold, np.inf))
            decisions = replace(decisions, score=np.where(moved, side, decisions.score))
        for i in np.unique(index).tolist():
            here = index == i
            part = decisions[here & valid]
            counts = {**count(part, self.cells), "invalid": np.array([np.sum(here & ~valid)])}
            counts["reason"] = np.array([np.sum(part.reason == name) for name in REASONS])
            self._add(i, counts, int(here.sum()))

    def add_labels(self, index: NDArray[np.int64], decisions: Decisions, y: NDArray[Any]) -> None:
        """Count labeled decisions; a label that is not a class marks an OOD row."""
        truth, answer = label_codes(y, self.cells.classes), label_codes(decisions.label, self.cells.classes)
        known = truth < len(self.cells.classes)
        if (known & (answer == len(self.cells.classes))).any():
            message = "{parameter} must name classes of the reference where {y} does: they are another model's."
            raise InvalidInputError(message, parameter="decisions")
        cell = 2 * ~known + ~decisions.accept.astype(bool)
        for i in np.unique(index).tolist():
            here = index == i
            judged = here & known & decisions.accept
            losses = np.searchsorted(self.loss_values, self.reference.loss_matrix[truth[judged], answer[judged]])
            loss = np.bincount(losses, minlength=len(self.loss_values))
            self._add(i, {"labeled": np.bincount(cell[here], minlength=len(LABELED)), "loss": loss}, 0)

    def added(self, *others: Ledger) -> Ledger:
        """Return the sum of ledgers of one reference."""
        out = Ledger(self.reference, self.keep)
        for part in (self, *others):
            for i, counts in part.windows.items():
                out._add(i, counts, 0)
            out.total += part.total
            out.first = min((first for first in (out.first, part.first) if first is not None), default=None)
        return out

    def table(self, name: str) -> Counts:
        """Return one kind of counts of all windows, in the order of time."""
        rows = [self.windows[i][name] for i in self.order()]
        return np.array(rows, dtype=np.int64).reshape(len(rows), self.sizes[name])

    def order(self) -> list[int]:
        """Return the indices of the windows, in the order of time."""
        return sorted(self.windows)

    def dropped(self) -> int:
        """Return how many decisions are in windows that are no longer kept."""
        return self.total - int(self.table("label").sum()) - int(self.table("invalid").sum())

    def evicted(self) -> bool:
        """Return whether there were decisions or labels in windows before those that are kept."""
        return self.first is not None and self.first < min(self.windows, default=self.first)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON types."""
        windows = {
            str(i): {k: sparse(c) if k in JOINT else c.tolist() for k, c in sorted(self.windows[i].items())}
            for i in self.order()
        }
        return {"first": self.first, "total": self.total, "windows": windows}

    def read(self, data: dict[str, Any]) -> None:
        """Take over the counts of `to_dict`."""
        self.total, self.first = data["total"], data["first"]
        if type(self.total) is not int or not (self.first is None or type(self.first) is int):
            raise ValueError("total and first must be whole numbers")
        for i, window in data["windows"].items():
            self.windows[int(i)] = {
                name: read_sparse(window[name], (size,)) if name in JOINT else read_counts(window[name], size)
                for name, size in self.sizes.items()
            }

    def _add(self, index: int, counts: dict[str, Counts], rows: int) -> None:
        self.total += rows
        self.first = index if self.first is None else min(self.first, index)
        if index not in self.windows:
            if len(self.windows) >= self.keep and index < min(self.windows):
                return
            self.windows[index] = {name: np.zeros(size, dtype=np.int64) for name, size in self.sizes.items()}
            while len(self.windows) > self.keep:
                del self.windows[min(self.windows)]
        window = self.windows[index]
        for name, values in counts.items():
            window[name] = window[name] + values
