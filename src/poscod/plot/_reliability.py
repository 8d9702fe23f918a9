# SPDX-License-Identifier: BSD-3-Clause
"""Is r honest? Predicted risk against the loss that happened.

Convention: bins hold equal numbers of rows; everything is in units of the loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poscod._comparison import read_sample
from poscod.plot._display import GROUPS, Column, Display, equal_lengths
from poscod.risk import Reliability, reliability


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
    >>> ReliabilityDisplay.from_reliability(result).columns()["observed"]
    array([0. , 0.5])
    """

    def __init__(self, predicted: Any, observed: Any, low: Any, high: Any, n: Any) -> None:
        self._columns = equal_lengths(
            "ReliabilityDisplay", predicted=predicted, observed=observed, low=low, high=high, n=n
        )

    @classmethod
    def from_estimator(cls, model: Any, X: Any, y: Any, *, n_bins: int = 15, level: float = 0.95) -> ReliabilityDisplay:
        """Check r of a fitted model on fresh labelled rows.

        Parameters
        ----------
        model : POSCOD
        X, y : rows and labels
        n_bins : int, default=15
        level : float in (0, 1), default=0.95

        Returns
        -------
        display : ReliabilityDisplay
        """
        sample = read_sample(model, X, y, None, None)
        return cls.from_reliability(reliability(sample.known.risk, sample.loss, n_bins=n_bins, level=level))

    @classmethod
    def from_reliability(cls, result: Reliability) -> ReliabilityDisplay:
        """Show a result of `poscod.risk.reliability`.

        Parameters
        ----------
        result : Reliability

        Returns
        -------
        display : ReliabilityDisplay
        """
        return cls(result.predicted, result.observed, result.low, result.high, result.n)

    def columns(self) -> dict[str, Column]:
        """Return the bins.

        Returns
        -------
        columns : dict of str to ndarray
        """
        return dict(self._columns)

    def _draw(self, ax: Any, **options: Any) -> None:
        c = self._columns
        ends = np.abs(np.stack([c["observed"] - c["low"], c["high"] - c["observed"]]))
        top = float(max(c["predicted"].max(), np.where(np.isfinite(c["high"]), c["high"], c["observed"]).max()))
        ax.plot([0.0, top], [0.0, top], color="0.6", lw=1, label="honest: loss = r")
        ax.errorbar(
            c["predicted"],
            c["observed"],
            yerr=ends,
            fmt="o",
            ms=4,
            color=GROUPS["id"].colour,
            capsize=2,
            label="ID rows",
        )
        ax.set(xlabel="predicted risk r", ylabel="mean loss", **options)
        ax.legend(fontsize="small")
