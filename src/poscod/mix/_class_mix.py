# SPDX-License-Identifier: BSD-3-Clause
"""The class mix as a value: shares of the classes among labeled rows and among the ID part of the traffic.

Convention: p are the shares of the labeled rows, q those of the traffic's ID part, ``w = q / p`` weighs a labeled row by its class: a mean over labeled
rows with these weights is a mean over the ID part of the traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod import _show
from poscod._json import plain
from poscod._validation import Floats


@dataclass(frozen=True, eq=False, repr=False)
class ClassMix:
    """Class mix of the labeled rows and of the traffic's ID part.

    Parameters
    ----------
    labeled : ndarray of shape (K,)
        Shares p of the classes among labeled rows.
    traffic : ndarray of shape (K,)
        Shares q that the rule serves: those estimated from the traffic, or p where nothing shows that they differ.
    low, high : ndarray of shape (K,)
        Interval of each share of the traffic, whether or not the mix was found to differ.
    level : float
        Coverage of each interval.
    p_value : float
        Of the test of "the traffic's mix is that of the labeled rows"; 1 where it was not tested.
    changed : bool
        Whether that was rejected, so that `traffic` differs from `labeled`.
    covariance : ndarray of shape (K, K) or None, default=None
        Of the shares of the traffic; None where they were not estimated.

    Examples
    --------
    >>> p, q = np.array([0.5, 0.5]), np.array([0.8, 0.2])
    >>> mix = ClassMix(p, q, q - 0.05, q + 0.05, 0.95, 1e-6, True)
    >>> mix.weight.tolist(), mix.moved.tolist()
    ([1.6, 0.4], [0, 1])
    """

    labeled: Floats
    traffic: Floats
    low: Floats
    high: Floats
    level: float = 0.95
    p_value: float = 1.0
    changed: bool = False
    covariance: Floats | None = None

    def __repr__(self) -> str:
        shares = ", ".join(map(_show.words, self.traffic))
        return f"ClassMix({'changed' if self.changed else 'not found to differ'}, p = {self.p_value:.2g}; traffic {shares})"

    def _repr_html_(self) -> str:
        found = "differs from" if self.changed else "is not found to differ from"
        ends = [f"{_show.words(low)} to {_show.words(high)}" for low, high in zip(self.low, self.high, strict=True)]
        rows = zip(range(len(ends)), self.labeled, self.traffic, ends, strict=True)
        return _show.paragraph(
            f"The class mix of the traffic {found} that of the labeled rows (p = {self.p_value:.2g})."
        ) + _show.table(["class", "labeled", "served", f"{100 * self.level:g} % interval"], rows)

    @classmethod
    def unchanged(cls, labeled: Any) -> ClassMix:
        """Return the mix of labeled rows where nothing is known of the traffic, or nothing else is to be served.

        Parameters
        ----------
        labeled : array-like of shape (K,)
            Shares p, or any numbers proportional to them.

        Returns
        -------
        mix : ClassMix
        """
        p = np.asarray(labeled, dtype=np.float64)
        p = p / p.sum()
        return cls(p, p, np.zeros_like(p), np.ones_like(p))

    @property
    def weight(self) -> Floats:
        """The weight w = q / p of each class; 1 for classes without labeled rows."""
        known = self.labeled > 0.0
        return np.where(known, self.traffic / np.where(known, self.labeled, 1.0), 1.0)

    @property
    def moved(self) -> NDArray[np.intp]:
        """Classes whose share certainly differs, the largest difference first; none where the mix was not found to differ."""
        if not self.changed:
            return np.zeros(0, dtype=np.intp)
        gap = np.abs(self.traffic - self.labeled)
        apart = (self.labeled < self.low) | (self.labeled > self.high)
        order = np.argsort(-gap, kind="stable")
        return order[apart[order]]

    @property
    def distance(self) -> float:
        """Total variation of the two mixes."""
        return 0.5 * float(np.abs(self.traffic - self.labeled).sum())

    def to_dict(self, classes: Any) -> dict[str, Any]:
        """Return the mix as plain values.

        Parameters
        ----------
        classes : sequence of K labels

        Returns
        -------
        document : dict
            changed, p_value, level, and one entry a class with its shares and interval; ready for JSON.
        """
        columns = zip(np.asarray(classes).tolist(), self.labeled, self.traffic, self.low, self.high, strict=True)
        rows = [dict(zip(("class", "labeled", "traffic", "low", "high"), row, strict=True)) for row in columns]
        return plain({"changed": self.changed, "p_value": self.p_value, "level": self.level, "classes": rows})
