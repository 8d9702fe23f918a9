# SPDX-License-Identifier: BSD-3-Clause
"""The plane in which every rule is a curve: conditional risk against log-ratio, as in Figure 2 of the paper.

Convention: x is r, y is log g; a rule accepts what lies left of and below its boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from poscod._validation import Floats
from poscod.model import Competitor, Sample, rules_of
from poscod.plot._display import GROUPS, RULE_STYLES, Column, Display


@dataclass(eq=False, repr=False)
class PlaneDisplay(Display):
    """Rows as points (r, log g), accepted or not, with the boundaries of several rules.

    Parameters
    ----------
    risk, log_ratio : array-like of shape (n,)
        Coordinates of the rows.
    group : array-like of shape (n,), str
        "id", "ood" or "unlabeled".
    accept : array-like of shape (n,), bool
        Whether the model's own rule accepts the row.
    boundaries : mapping of str to pair of array-like
        Name of a rule -> (risk, log_ratio) along its boundary.

    Examples
    --------
    >>> display = PlaneDisplay([0.1, 0.4], [-2.0, 1.0], ["id", "ood"], [True, False], {"risk": ([0.3, 0.3], [-2.0, 1.0])})
    >>> display.columns()["accept"]
    array([ True, False])
    """

    title: ClassVar[str] = "Where rows lie, and what each rule accepts"
    risk: Column
    log_ratio: Column
    group: Column
    accept: Column
    boundaries: Mapping[str, tuple[Column, Column]]

    def columns(self) -> dict[str, Column]:
        """Return the points: risk, log_ratio, group, accept.

        Returns
        -------
        columns : dict of str to ndarray
        """
        return {name: values for name, values in super().columns().items() if name != "boundaries"}

    @classmethod
    def from_sample(cls, sample: Sample, *, max_points: int | None = 4000) -> PlaneDisplay:
        """Place rows in the plane.

        Parameters
        ----------
        sample : Sample
            Fresh rows that a model has decided.
        max_points : int or None, default=4000
            Largest number of points of a group: evenly spaced rows; None keeps all.

        Returns
        -------
        display : PlaneDisplay
        """
        thinned = {name: rows[thin(len(rows), max_points)] for name, rows in sample.groups.items()}
        risk, log_ratio, accept = (
            np.concatenate([getattr(rows, key) for rows in thinned.values()]) for key in ("risk", "log_ratio", "accept")
        )
        group = np.repeat(list(thinned), [len(rows) for rows in thinned.values()])
        window = plane_window(risk, log_ratio)
        boundaries = {rule.name: boundary(rule, *window) for rule in rules_of(sample)}
        return cls(risk, log_ratio, group, accept, boundaries)

    def _draw(self, ax: Any, **options: Any) -> None:
        right, (low, high) = plane_window(self.risk, self.log_ratio)
        for name, style in GROUPS.items():
            for state, fill in (("accepted", style.colour), ("rejected", "none")):
                mine = (self.group == name) & (self.accept == (state == "accepted"))
                if mine.any():
                    look = {"s": 14, "marker": style.mark, "linewidths": 0.7, "alpha": 0.6, "facecolors": fill}
                    at = self.risk[mine], np.clip(self.log_ratio[mine], low, high)
                    ax.scatter(*at, edgecolors=style.colour, label=f"{style.label}, {state}", **look)
        for name, line in self.boundaries.items():
            style, wide = RULE_STYLES[name], 2.0 if name == "poscod" else 1.4
            ax.plot(*line, style.mark, color=style.colour, label=style.label, lw=wide)
        ax.set(xlabel="conditional risk r", ylabel="log g", xlim=(0.0, right), ylim=(low, high), **options)


def plane_window(risk: Floats, log_ratio: Floats) -> tuple[float, tuple[float, float]]:
    """Return the largest r and the range of log g to show; the outermost half percent of log g, and what is far from most of it, is left to the edges."""
    finite = log_ratio[np.isfinite(log_ratio)]
    low, first, third, high = np.quantile(finite, [0.005, 0.25, 0.75, 0.995]) if len(finite) else (-1.0, -1.0, 1.0, 1.0)
    reach = 3.0 * (third - first)  # rows far outside of what was seen have a log g of hundreds
    if reach > 0.0:
        low, high = max(low, first - reach), min(high, third + reach)
    pad = max(0.05 * (high - low), 0.5)
    right = float(risk.max()) if len(risk) and risk.max() > 0.0 else 1.0
    return 1.03 * right, (float(low - pad), float(high + pad))


def boundary(rule: Competitor, right: float, window: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return points along the boundary of a rule inside a window, from low to high log g."""
    grid = np.linspace(*window, 241)
    risk = rule.edge(grid)
    if np.isnan(risk).all():  # g alone: a line of constant g
        level = float(np.log(rule.threshold)) if rule.threshold > 0.0 else -np.inf
        crosses = window[0] <= level <= window[1]
        return (np.array([0.0, right]), np.array([level, level])) if crosses else (np.zeros(0), np.zeros(0))
    if risk.max() < 0.0 or risk.min() > right:
        return np.zeros(0), np.zeros(0)
    # r falls along the grid; the points where it enters and leaves the window are added.
    ends = np.interp([-right, 0.0], -np.minimum.accumulate(risk), grid)
    inside = (risk > 0.0) & (risk < right)
    return np.r_[min(right, risk[0]), risk[inside], max(0.0, risk[-1])], np.r_[ends[0], grid[inside], ends[1]]


def thin(n: int, limit: int | None) -> slice:
    """Return evenly spaced rows, at most `limit` of n."""
    return slice(None) if limit is None or n <= limit else slice(0, None, -(-n // limit))
