# SPDX-License-Identifier: BSD-3-Clause
"""What all displays share: how they are made, where they draw, in which colours, and how they become a table.

Convention: columns of a display are its fields, arrays of equal length; groups of rows are called "id", "ood" and "unlabeled", rules by
their key in `RULE_NAMES`. Colours are the same everywhere and can be told apart by the colour-blind; shape or line style repeats
what colour says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod.exceptions import InvalidInputError
from poscod.model import Sample, read_sample

if TYPE_CHECKING:
    from typing_extensions import Self

Column = NDArray[Any]

RULE_NAMES: dict[str, str] = {"poscod": "poscod", "risk": "r alone", "ratio": "g alone", "sirc": "SIRC(r, g)"}
"""What people call the rules that compete; the one mapping for pictures, reports and the shell."""


class Style(NamedTuple):
    """How a group or a rule looks: its label, its colour, and the marker of a group or the line of a rule."""

    label: str
    colour: str
    mark: str


GROUPS = {
    "id": Style("ID", "#0b6fb4", "o"),
    "ood": Style("OOD", "#c8511b", "^"),
    "unlabeled": Style("unlabeled", "#6b6b76", "s"),
}
_LINES = {"poscod": ("#1a1a1f", "-"), "risk": ("#0b6fb4", ":"), "ratio": ("#c8511b", "-."), "sirc": ("#7a4fa3", "--")}
RULE_STYLES = {name: Style(label, *_LINES[name]) for name, label in RULE_NAMES.items()}
REASON_COLOURS = {"ambiguous": "#0b6fb4", "unfamiliar": "#c8511b", "both": "#7a4fa3"}


@dataclass(eq=False, repr=False)
class Display(ABC):
    """A picture of some arrays: `plot` draws them, `frame` returns them.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Of the last `plot`.
    """

    title: ClassVar[str] = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(next(iter(self.columns().values()))):,} rows; draw it by plot(), read it by frame())"

    def __post_init__(self) -> None:
        arrays = {name: np.asarray(values) for name, values in self.columns().items()}
        sizes = {array.shape for array in arrays.values()}
        if len(sizes) != 1 or len(next(iter(sizes))) != 1:
            kind, listed = type(self).__name__, ", ".join(f"{key} {array.shape}" for key, array in arrays.items())
            raise InvalidInputError(f"The arrays of {kind} must be one-dimensional and equally long, got {listed}.")
        self.__dict__.update(arrays)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any,
        X_ood: Any = None,
        X_unlabeled: Any = None,
        *,
        level: float = 0.95,
        **options: Any,
    ) -> Self:
        """Measure a fitted model on fresh rows.

        Parameters
        ----------
        model : POSCOD
            Fitted.
        X : like the rows given to `POSCOD.fit`
            Fresh ID rows.
        y : array-like of shape (n,)
            Their labels.
        X_ood : like X, default=None
            Clean OOD rows.
        X_unlabeled : like X, default=None
            Fresh traffic.
        level : float in (0, 1), default=0.95
            Coverage of each interval.
        **options
            Of the display's ``from_sample``.

        Returns
        -------
        display : Display
        """
        return cls.from_sample(read_sample(model, X, y, X_ood, X_unlabeled, level=level), **options)

    @classmethod
    @abstractmethod
    def from_sample(cls, sample: Sample) -> Self:
        """Measure on rows that are decided already.

        Parameters
        ----------
        sample : Sample
            Fresh rows that a model has decided.

        Returns
        -------
        display : Display
        """

    @abstractmethod
    def _draw(self, ax: Any, **options: Any) -> None:
        """Draw the stored arrays on axes."""

    def columns(self) -> dict[str, Column]:
        """Return the stored arrays by name, of equal length.

        Returns
        -------
        columns : dict of str to ndarray
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def frame(self) -> Any:
        """Return the stored arrays as a table, one row per drawn value.

        Returns
        -------
        frame : pandas.DataFrame
        """
        pandas = require("pandas", extra="plot", feature=f"{type(self).__name__}.frame")
        return pandas.DataFrame(self.columns())

    def plot(self, ax: Any = None, **options: Any) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None draws on a new figure of pyplot, which `figure_` holds: a notebook shows it, and so does ``plt.show()``.
        **options
            What the display lets one choose, e.g. ``value`` of `RiskCurveDisplay`; others are properties of the axes, such as ``title``.

        Returns
        -------
        self : Display
        """
        if ax is None:
            pyplot = require("matplotlib.pyplot", extra="plot", feature=f"{type(self).__name__}.plot")
            ax = pyplot.subplots(figsize=(6.4, 4.4), layout="constrained")[1]
        self._draw(ax, **{"title": self.title, **options})
        ax.legend(fontsize="small", framealpha=0.9)
        self.ax_, self.figure_ = ax, ax.figure
        return self
