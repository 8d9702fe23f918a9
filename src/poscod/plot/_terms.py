# SPDX-License-Identifier: BSD-3-Clause
"""The two terms of the score: how r and log g are distributed in each group of rows, and whether r is honest.

Convention: a histogram is the share of a group's rows in each bin, so groups of different size can be compared; rows beyond the
outermost edges count in the outermost bins. Bins of predicted risk hold equal numbers of rows, in units of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poscod._validation import check_choice
from poscod.model import Sample
from poscod.plot._display import GROUPS, Column, Display
from poscod.plot._plane import plane_window
from poscod.risk import reliability

SCORES = {"risk": "conditional risk r", "log_ratio": "log g"}


@dataclass(eq=False, repr=False)
class ScoreDistributionDisplay(Display):
    """Histograms of r and log g by group.

    Parameters
    ----------
    score : array-like of shape (n,), str
        "risk" or "log_ratio" of each bin.
    group : array-like of shape (n,), str
        "id", "ood" or "unlabeled".
    left, right : array-like of shape (n,)
        Edges of each bin.
    share : array-like of shape (n,)
        Share of the group's rows in the bin; of ID rows in the class mix that rates are for.

    Examples
    --------
    >>> display = ScoreDistributionDisplay(["risk"] * 2, ["id"] * 2, [0.0, 0.5], [0.5, 1.0], [0.9, 0.1])
    >>> display.columns()["share"]
    array([0.9, 0.1])
    """

    title: ClassVar[str] = "How known and other rows differ"
    score: Column
    group: Column
    left: Column
    right: Column
    share: Column

    @classmethod
    def from_sample(cls, sample: Sample, *, n_bins: int = 30) -> ScoreDistributionDisplay:
        """Count rows in bins of equal width.

        Parameters
        ----------
        sample : Sample
            Fresh rows that a model has decided.
        n_bins : int, default=30
            Bins of each histogram.

        Returns
        -------
        display : ScoreDistributionDisplay
        """
        groups = sample.groups
        every = {key: np.concatenate([getattr(rows, key) for rows in groups.values()]) for key in SCORES}
        right, window = plane_window(every["risk"], every["log_ratio"])
        rows = []
        for score, ends in (("risk", (0.0, right)), ("log_ratio", window)):
            edges = np.linspace(*ends, n_bins + 1)
            for name, decisions in groups.items():
                inside = np.clip(getattr(decisions, score), *ends)
                weight = sample.weight_id if name == "id" else None  # their mean is one
                shares = np.histogram(inside, edges, weights=weight)[0] / max(len(decisions), 1)
                rows += [(score, name, *bin_) for bin_ in zip(edges[:-1], edges[1:], shares, strict=True)]
        return cls(*(np.array(column) for column in zip(*rows, strict=True)))

    def _draw(self, ax: Any, score: str = "log_ratio", **options: Any) -> None:
        label = check_choice(score, "score", SCORES)
        for name, style in GROUPS.items():
            mine = (self.score == score) & (self.group == name)
            if mine.any():
                edges = np.append(self.left[mine], self.right[mine][-1])
                ax.stairs(self.share[mine], edges, color=style.colour, label=style.label, fill=name == "id", alpha=0.75)
        ax.set(xlabel=label, ylabel="share of rows", **options)


@dataclass(eq=False, repr=False)
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

    title: ClassVar[str] = "Is the predicted risk honest?"
    predicted: Column
    observed: Column
    low: Column
    high: Column
    n: Column

    @classmethod
    def from_sample(cls, sample: Sample, *, n_bins: int = 15) -> ReliabilityDisplay:
        """Check r on the ID rows.

        Parameters
        ----------
        sample : Sample
            Fresh rows that a model has decided.
        n_bins : int, default=15
            Bins of predicted risk.

        Returns
        -------
        display : ReliabilityDisplay
        """
        weight = sample.weight_id
        result = reliability(sample.known.risk, sample.loss, sample_weight=weight, n_bins=n_bins, level=sample.level)
        return cls(result.predicted, result.observed, result.low, result.high, result.n)

    def _draw(self, ax: Any, **options: Any) -> None:
        ends = np.abs(np.stack([self.observed - self.low, self.high - self.observed]))
        top = float(max(self.predicted.max(), np.where(np.isfinite(self.high), self.high, self.observed).max()))
        ax.plot([0.0, top], [0.0, top], color="0.6", lw=1, label="honest: loss = r")
        look = {"fmt": "o", "ms": 4, "color": GROUPS["id"].colour, "capsize": 2, "label": "ID rows"}
        ax.errorbar(self.predicted, self.observed, yerr=ends, **look)
        ax.set(xlabel="predicted risk r", ylabel="mean loss", **options)
