# SPDX-License-Identifier: BSD-3-Clause
"""How r and log g are distributed in each group of rows.

Convention: a histogram is the share of a group's rows in each bin, so groups of different size can be compared; rows beyond the
outermost edges count in the outermost bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from poscod._validation import Floats, check_choice
from poscod.model import Sample
from poscod.plot._display import GROUPS, Column, Display
from poscod.plot._plane import plane_window

SCORES = {"risk": "conditional risk r", "log_ratio": "log g"}


@dataclass(eq=False)
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
        Share of the group's rows in the bin.

    Examples
    --------
    >>> display = ScoreDistributionDisplay(["risk"] * 2, ["id"] * 2, [0.0, 0.5], [0.5, 1.0], [0.9, 0.1])
    >>> display.columns()["share"]
    array([0.9, 0.1])
    """

    score: Column
    group: Column
    left: Column
    right: Column
    share: Column

    @classmethod
    def from_sample(cls, sample: Sample, *, n_bins: int = 30) -> ScoreDistributionDisplay:
        """Count rows in bins of equal width."""
        groups = sample.groups
        every = {key: np.concatenate([getattr(rows, key) for rows in groups.values()]) for key in SCORES}
        right, window = plane_window(every["risk"], every["log_ratio"])
        rows = []
        for score, ends in (("risk", (0.0, right)), ("log_ratio", window)):
            edges = np.linspace(*ends, n_bins + 1)
            for name, decisions in groups.items():
                shares = _shares(getattr(decisions, score), edges)
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


def _shares(values: Floats, edges: Floats) -> Floats:
    """Return the share of values in each bin, the outermost bins open to the outside."""
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(place, minlength=len(edges) - 1) / max(len(values), 1)
