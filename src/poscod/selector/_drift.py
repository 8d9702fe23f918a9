# SPDX-License-Identifier: BSD-3-Clause
"""What is known of inputs that have moved, or may have: a value that a calibration carries, so that everybody says the same of it.

Convention: columns in order of how far they moved; shifts in standard deviations of the labeled rows, spreads as a factor of theirs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from scipy.stats import binom

from poscod import _show
from poscod.ratio import moved_words

# Share of strangers among rejected rows up to which it is drift, and chance of being wrong about it, either way.
DRIFTED, WRONG = 0.1, 0.05

BESIDE = {
    True: ", and there are strangers beside them",
    False: "",
    None: "; whether there are strangers beside them cannot be told",
}
"""What is said of strangers beside drift."""


def are_strangers(found: int, rows: int, expected: float) -> bool:
    """Tell whether so many OOD inputs among rows that are likely OOD settle that these are no drift: too many for drift, and no fewer than expected.

    Examples
    --------
    >>> are_strangers(30, 40, 0.8), are_strangers(2, 40, 0.8), are_strangers(15, 40, 0.8)
    (True, False, False)
    """
    enough = rows > 0 and found > int(binom.ppf(1.0 - WRONG, rows, DRIFTED))
    return bool(enough and binom.cdf(found, rows, expected) > WRONG)


@dataclass(frozen=True, repr=False)
class Drift:
    """Known inputs of the traffic differ from the labeled rows, or may do, as far as unlabeled rows can tell.

    Parameters
    ----------
    said : {"drift", "undecided"}
        Whether they seem to have moved, or cannot be told from strangers.
    columns : tuple of str
        Columns or directions that differ most, first the one that differs most of all.
    shift : tuple of float
        How far the middle of each moved.
    spread : tuple of float
        By which factor each spreads wider.
    rejections : float
        Share of the rejected traffic that the risk alone would accept: rejections that rest on the ratio.
    strange : float
        Share of OOD inputs among the rejected traffic, if what moved were strangers.
    whole : bool
        Whether most of the traffic is not like the labeled rows.
    strangers : bool or None
        Whether strangers are there, too: rows that stand out after what moved is taken out. None where that cannot be told.
    verdicts : int, default=0
        Number of verdicts of people that have settled it: g rests on them then.
    """

    said: str
    columns: tuple[str, ...]
    shift: tuple[float, ...]
    spread: tuple[float, ...]
    rejections: float
    strange: float
    whole: bool
    strangers: bool | None
    verdicts: int = 0

    def __repr__(self) -> str:
        return f"Drift({self.sentence()})"

    def _repr_html_(self) -> str:
        return _show.paragraph(self.sentence(), "Drift.")

    @property
    def look(self) -> tuple[int, int]:
        """How many rejected rows a person has to look at to settle it, and how many strangers among them say that it is no drift.

        Drift means at most one stranger in ten rejected rows. So many rows are enough to be wrong once in twenty times either way.
        """
        strange = max(self.strange, 0.3)
        for n in range(5, 500):
            most = int(binom.ppf(1.0 - WRONG, n, DRIFTED))
            if binom.cdf(most, n, strange) <= WRONG:
                return n, most + 1
        return 500, 60

    @property
    def moved(self) -> str:
        """The columns that moved most, in words."""
        return ", ".join(
            f"{name} ({part})"
            for name, part in zip(self.columns, map(moved_words, self.shift, self.spread), strict=True)
        )

    def sentence(self) -> str:
        """Return what everybody says of it.

        Returns
        -------
        text : str
        """
        n, least = self.look
        where = f" (most of all {self.moved})" if self.columns else ""
        rest = (
            f"{100 * self.rejections:.0f} % of the rejections rest on taking what differs for OOD; the OOD share is not certified. "
            f"Look at {n} rejected rows to settle it: {least} or more strangers among them mean strangers, fewer mean drift, and labeled rows of today are needed."
        )
        if self.verdicts:
            return (
                f"Known inputs of the traffic have moved{where}: {self.verdicts} verdicts say which inputs are OOD, and what unlabeled rows say of them does not count. "
                "The OOD share is not certified."
            )
        if self.said == "undecided":
            return f"The traffic differs in a way that unlabeled rows cannot tell: known inputs may have moved, or it holds OOD inputs near them{where}. {rest}"
        what = (
            "Most of the traffic is not like the labeled rows: its known inputs have moved, or it comes from elsewhere"
            if self.whole
            else "Known inputs of the traffic seem to have moved, as drift does"
        )
        beside = BESIDE[self.strangers]
        return f"{what}{beside}{where}. {rest}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values.

        Returns
        -------
        document : dict
            The parameters, rows to look at, and the sentence; ready for JSON.
        """
        n, least = self.look
        return {**asdict(self), "look": n, "strangers_of_them": least, "sentence": self.sentence()}
