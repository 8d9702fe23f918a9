# SPDX-License-Identifier: BSD-3-Clause
"""What all displays share: where they draw, in which colours, and how they become a table.

Convention: columns of a display are arrays of equal length; groups of rows are called "id", "ood" and "unlabelled", rules by
their key in `poscod._comparison.RULES`. Colours are the same everywhere and can be told apart by the colour-blind; shape or
line style repeats what colour says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod.exceptions import InvalidInputError

Column = NDArray[Any]


class Style(NamedTuple):
    """How a group or a rule looks.

    Attributes
    ----------
    label : str
    colour : str
    mark : str
        Marker of a group, line style of a rule.
    """

    label: str
    colour: str
    mark: str


GROUPS = {
    "id": Style("ID", "#0b6fb4", "o"),
    "ood": Style("OOD", "#c8511b", "^"),
    "unlabelled": Style("unlabelled", "#6b6b76", "s"),
}
RULE_STYLES = {
    "poscod": Style("poscod: r + beta g", "#1a1a1f", "-"),
    "risk": Style("r alone (MSP)", "#0b6fb4", ":"),
    "ratio": Style("g alone", "#c8511b", "-."),
    "sirc": Style("SIRC(r, g)", "#7a4fa3", "--"),
}
REASON_COLOURS = {"ambiguous": "#0b6fb4", "unfamiliar": "#c8511b", "both": "#7a4fa3"}


class Display(ABC):
    """A picture of some arrays: `plot` draws them, `frame` returns them.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Of the last `plot`.
    """

    ax_: Any
    figure_: Any

    @abstractmethod
    def columns(self) -> dict[str, Column]:
        """Return the stored arrays by name, of equal length.

        Returns
        -------
        columns : dict of str to ndarray
        """

    @abstractmethod
    def _draw(self, ax: Any, **options: Any) -> None:
        """Draw the stored arrays on axes."""

    def frame(self) -> Any:
        """Return the stored arrays as a table, one row per drawn value.

        Returns
        -------
        frame : pandas.DataFrame
        """
        pandas = require("pandas", extra="plot", feature=f"{type(self).__name__}.frame")
        return pandas.DataFrame(self.columns())

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None draws on a new figure, which `figure_` holds; it is shown by the notebook or by ``figure_.savefig``.
        **options
            What the display lets one choose, e.g. ``value`` of `RiskCurveDisplay`.

        Returns
        -------
        self : Display
        """
        if ax is None:
            # A figure of its own, unknown to pyplot: nothing piles up in long sessions and no window system is asked for.
            figure = require("matplotlib.figure", extra="plot", feature=f"{type(self).__name__}.plot")
            ax = figure.Figure(figsize=(6.4, 4.4), layout="constrained").subplots()
        self._draw(ax, **options)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def equal_lengths(display: str, **columns: Any) -> dict[str, Column]:
    """Check that arrays are one-dimensional and equally long."""
    arrays = {key: np.asarray(values) for key, values in columns.items()}
    sizes = {array.shape for array in arrays.values()}
    if len(sizes) != 1 or len(next(iter(sizes))) != 1:
        listed = ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
        raise InvalidInputError(f"The arrays of {display} must be one-dimensional and equally long, got {listed}.")
    return arrays
