# SPDX-License-Identifier: BSD-3-Clause
"""What a person said of an input: a class, or OOD.

Convention: as numbers, a verdict is the position of its class among ``classes_``, `STRANGER` for an OOD input, and `NOT_REVIEWED` where nobody has said
anything yet (None, NaN or an empty text).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import listed, refusal

__all__ = ["OOD"]

STRANGER = -1
NOT_REVIEWED = -2


class _Verdict:
    """The verdict "OOD": one object, in arrays of numbers, texts and objects alike."""

    def __reduce__(self) -> str:
        return "OOD"  # copies of it, pickled ones too, are the object itself

    def __repr__(self) -> str:
        return "poscod.OOD"

    def __str__(self) -> str:
        return "ood"


OOD = _Verdict()
"""Verdict of a person that an input is OOD; in a table it is the word ``ood``."""


def verdict_codes(
    values: Any, classes: NDArray[Any], name: str, n: int, *, like: str = "the rows"
) -> NDArray[np.int64]:
    """Return verdicts as numbers.

    A class may be given as it is or as text, and OOD as `OOD` or, unless a class has that name, the word "ood" in any case.

    Examples
    --------
    >>> verdict_codes([3, OOD, None, "ood", "7"], np.array([3, 7]), "verdicts", 5).tolist()
    [0, -1, -2, -1, 1]
    """
    given = list(np.asarray(values, dtype=object).ravel()) if not isinstance(values, (list, tuple)) else list(values)
    if len(given) != n:
        raise refusal(
            name, "must have as many rows as {like} ({allowed}), got {got}.", like=like, allowed=n, got=len(given)
        )
    known: dict[Any, int] = {}
    for code, label in enumerate(classes.tolist()):
        known[label] = known[str(label)] = code
    known.setdefault("ood", STRANGER)
    out = np.empty(n, dtype=np.int64)
    for row, value in enumerate(given):
        found = _code(value, known)
        if found is None:
            raise refusal(
                name,
                "must hold a class ({allowed}), poscod.OOD (in a table: ood) or nothing, got {got!r} at row {row}.",
                allowed=listed([str(label) for label in classes.tolist()]),
                got=value,
                row=row,
            )
        out[row] = found
    return out


def _code(value: Any, known: dict[Any, int]) -> int | None:
    """Return the number of one verdict; None where it is none."""
    if value is OOD:
        return STRANGER
    if value is None or (isinstance(value, (float, np.floating)) and np.isnan(value)):
        return NOT_REVIEWED
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return NOT_REVIEWED
        return known.get("ood") if text.lower() == "ood" and text not in known else known.get(text)
    try:
        # Tables write whole numbers with gaps as 3.0.
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        return known.get(value, known.get(whole))
    except TypeError:  # not hashable
        return None
