# SPDX-License-Identifier: BSD-3-Clause
"""How r and log g are distributed in each group of rows.

Convention: a histogram is the share of a group's rows in each bin, so groups of different size can be compared; rows beyond the
outermost edges count in the outermost bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from poscod._comparison import Sample, read_sample
from poscod._validation import Floats, check_choice
from poscod.plot._display import GROUPS, Column, Display, equal_lengths
from poscod.plot._plane import plane_window

SCORES = {"risk": "conditional risk r", "log_ratio": "log g"}


class ScoreDistributionDisplay(Display):
    """Histograms of r and log g by group.

    Parameters
    ----------
    score : array-like of shape (n,), str
        "risk" or "log_ratio" of each bin.
    group : array-like of shape (n,), str
        "id", "ood" or "unlabelled".
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

    def __init__(self, score: Any, group: Any, left: Any, right: Any, share: Any) -> None:
        self._columns = equal_lengths(
            "ScoreDistributionDisplay", score=score, group=group, left=left, right=right, share=share
        )

    @classmethod
    def from_estimator(
        cls, model: Any, X: Any, y: Any, X_ood: Any = None, X_unlabeled: Any = None, *, n_bins: int = 30
    ) -> ScoreDistributionDisplay:
        """Count fresh rows of a fitted model.

        Parameters
        ----------
        model : POSCOD
        X, y : rows and labels
        X_ood, X_unlabeled : rows, default=None
        n_bins : int, default=30

        Returns
        -------
        display : ScoreDistributionDisplay
        """
        return cls.from_sample(read_sample(model, X, y, X_ood, X_unlabeled), n_bins=n_bins)

    @classmethod
    def from_sample(cls, sample: Sample, *, n_bins: int = 30) -> ScoreDistributionDisplay:
        """Count rows that are decided already.

        Parameters
        ----------
        sample : Sample
        n_bins : int, default=30

        Returns
        -------
        display : ScoreDistributionDisplay
        """
        groups = sample.groups
        every = {key: np.concatenate([getattr(rows, key) for rows in groups.values()]) for key in SCORES}
        right, window = plane_window(every["risk"], every["log_ratio"])
        edges = {"risk": np.linspace(0.0, right, n_bins + 1), "log_ratio": np.linspace(*window, n_bins + 1)}
        parts = [
            (score, name, edges[score], _shares(getattr(rows, score), edges[score]))
            for score in SCORES
            for name, rows in groups.items()
        ]
        return cls(
            np.repeat([part[0] for part in parts], n_bins),
            np.repeat([part[1] for part in parts], n_bins),
            np.concatenate([part[2][:-1] for part in parts]),
            np.concatenate([part[2][1:] for part in parts]),
            np.concatenate([part[3] for part in parts]),
        )

    def columns(self) -> dict[str, Column]:
        """Return the bins in long form.

        Returns
        -------
        columns : dict of str to ndarray
        """
        return dict(self._columns)

    def _draw(self, ax: Any, score: str = "log_ratio", **options: Any) -> None:
        label = check_choice(score, "score", SCORES)
        c = self._columns
        for name, style in GROUPS.items():
            mine = (c["score"] == score) & (c["group"] == name)
            if mine.any():
                edges = np.append(c["left"][mine], c["right"][mine][-1])
                ax.stairs(c["share"][mine], edges, color=style.colour, label=style.label, fill=name == "id", alpha=0.75)
        ax.set(xlabel=label, ylabel="share of rows", **options)
        ax.legend(fontsize="small")


def _shares(values: Floats, edges: Floats) -> Floats:
    """Return the share of values in each bin, the outermost bins open to the outside."""
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(place, minlength=len(edges) - 1) / max(len(values), 1)
