# SPDX-License-Identifier: BSD-3-Clause
"""Is r honest? Predicted risk against the loss that happened.

Convention: bins hold equal numbers of rows; everything is in units of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poscod.model import Sample
from poscod.plot._display import GROUPS, Column, Display
from poscod.risk import reliability


@dataclass(eq=False)
class ReliabilityDisplay(Display):
    """Mean loss against mean predicted risk, bin by bin.

    Parameters
    ----------
    predicted, observed : array-like of shape (b,)
        Mean r and mean loss of each bin.
    low, high : array-like of shape (b,)
        Interval of the mean loss.
    n : array-like of shape (b,), int
        Rows in each bin.

    Examples
    --------
    >>> from poscod.risk import reliability
    >>> result = reliability([0.1, 0.1, 0.5, 0.5], [0, 0, 1, 0], n_bins=2)
    >>> ReliabilityDisplay(result.predicted, result.observed, result.low, result.high, result.n).columns()["observed"]
    array([0. , 0.5])
    """

    predicted: Column
    observed: Column
    low: Column
    high: Column
    n: Column

    @classmethod
    def from_sample(cls, sample: Sample, *, n_bins: int = 15) -> ReliabilityDisplay:
        """Check r on the ID rows."""
        result = reliability(sample.known.risk, sample.loss, n_bins=n_bins, level=sample.level)
        return cls(result.predicted, result.observed, result.low, result.high, result.n)

    def _draw(self, ax: Any, **options: Any) -> None:
        ends = np.abs(np.stack([self.observed - self.low, self.high - self.observed]))
        top = float(max(self.predicted.max(), np.where(np.isfinite(self.high), self.high, self.observed).max()))
        ax.plot([0.0, top], [0.0, top], color="0.6", lw=1, label="honest: loss = r")
        look = {"fmt": "o", "ms": 4, "color": GROUPS["id"].colour, "capsize": 2, "label": "ID rows"}
        ax.errorbar(self.predicted, self.observed, yerr=ends, **look)
        ax.set(xlabel="predicted risk r", ylabel="mean loss", **options)
