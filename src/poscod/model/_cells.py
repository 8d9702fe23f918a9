# SPDX-License-Identifier: BSD-3-Clause
"""What the cells of a column of a data frame are: numbers, levels of a category, lists, dates, or names.

Convention: cells are read in one way, wherever they come from: as numbers, where gaps are NaN, or as texts, where a gap is the empty one and numbers are alike however
they are written.
"""

from __future__ import annotations

import datetime
import math
import numbers
import re
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, listed

MOST_LEVELS = 50
"""Levels of a category with a column of their own."""
FEWEST_ROWS = 2, 10
"""Rows that a level needs for a column of its own: a hundredth of the labeled rows, within these bounds."""
COVERED = 0.5
"""Share of rows that the frequent levels of a category hold at least; texts with less are names, or free."""
NUMBERS = 0.9
"""Share of numbers among texts from which on the others are mistakes, and not levels."""
FEW_NUMBERS = 10
"""So many different numbers among texts are codes of levels."""
GAP_MARKS = frozenset({"", "?", "-", "--", ".", "na", "n/a", "#n/a", "nan", "none", "null", "missing", "unknown"})
"""Texts that mean a gap in a column of numbers, in lower case."""
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
)
_CODE = re.compile(r"[-+]?0\d+")
_DATES = "(dates: make numbers of what matters, such as an age or an hour)"
# So many values are shown in a sentence.
_SHOWN = 3


class Found(NamedTuple):
    """What a column of labeled rows holds: a kind, its levels as texts or its numbers, and a reason to leave it out or a problem."""

    kind: str
    values: Any = None
    left_out: str = ""
    problem: str = ""


class UnreadableError(ValueError):
    """What is wrong with a column."""


def is_plain(column: Any) -> bool:
    """Tell whether a column holds numbers without gaps."""
    if str(column.dtype) in ("category", "Categorical"):
        return False
    values = np.asarray(column[:0])
    if values.dtype.kind not in "fiub":
        return False
    values = np.asarray(column)
    return values.dtype.kind in "iub" or (values.dtype.kind == "f" and not np.isnan(values).any())


def look(column: Any) -> Found:
    """Tell what a column of labeled rows holds."""
    kind = str(getattr(column, "dtype", ""))
    if kind.lower().startswith(("datetime", "date", "time", "duration", "period")):
        return Found("date", left_out=_DATES)
    if kind.lower().startswith(("category", "categorical", "enum")):
        levels = levels_of(column)
        return _category_or_names(levels, Counter(level for level in levels if level))
    values = np.asarray(column)
    if values.dtype.kind in "fiub":
        return _measured(values.astype(np.float64))
    if values.dtype.kind in "mM":
        return Found("date", left_out=_DATES)
    cells = [cell for cell in values.tolist() if not _is_gap(cell)]
    if not cells:
        return Found("empty", left_out="(nothing but gaps)")
    if all(isinstance(cell, numbers.Real) for cell in cells):
        return _measured(numbers_of(column))
    if all(isinstance(cell, (list, tuple, np.ndarray)) for cell in cells):
        try:
            return Found("list", lists_of(column))
        except UnreadableError as error:
            return Found("list", problem=str(error))
    if all(isinstance(cell, (datetime.date, datetime.time, np.datetime64)) for cell in cells):
        return Found("date", left_out=_DATES)
    if all(isinstance(cell, (str, numbers.Real)) for cell in cells):
        return _texts(levels_of(column))
    return Found("other", left_out=f"(holds {type(cells[0]).__name__}, neither numbers nor texts)")


def _measured(values: Floats) -> Found:
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        return Found("number", problem=f"must hold finite numbers, got {values[row]} at row {row + 1}")
    if np.isnan(values).all():
        return Found("empty", left_out="(nothing but gaps)")
    return Found("number", values)


def _texts(levels: list[str]) -> Found:
    """Tell what texts are: numbers, dates, levels of a category, or names."""
    count = Counter(level for level in levels if level)
    real = {level for level in count if _number(level) is not None and not _CODE.fullmatch(level)}
    n, n_real = count.total(), sum(count[level] for level in real)
    others = [level for level in count if level not in real]
    words = [level for level in others if level.lower() not in GAP_MARKS]
    if real and not words:
        return _measured(np.array([_number(level) if level in real else np.nan for level in levels], dtype=np.float64))
    if n_real >= NUMBERS * n and len(real) > FEW_NUMBERS:
        row = levels.index(words[0]) + 1
        return Found(
            "number",
            problem=f"holds numbers, and then {words[0][:40]!r} at row {row}{_also(words)}: correct the file, or leave the column out",
        )
    if count and all(_DATE.fullmatch(level) for level in count):
        return Found("category", levels, left_out=_DATES)
    return _category_or_names(levels, count)


def _category_or_names(levels: list[str], count: Counter[str]) -> Found:
    n = count.total()
    covered = sum(rows for _, rows in frequent(count, len(levels)))
    if covered < COVERED * len(levels) and len(count) > 1:
        every = "a name for each row" if len(count) > 0.95 * n else f"{len(count):,} different texts in {n:,} rows"
        return Found("category", levels, left_out=f"({every}: names say nothing, and of free texts an embedding does)")
    return Found("category", levels)


def _also(words: list[str]) -> str:
    return f" (also {listed(words[1 : _SHOWN + 1])})" if len(words) > 1 else ""


def frequent(count: Counter[str], n: int) -> list[tuple[str, int]]:
    """Return the levels with a column of their own and their rows."""
    least = min(max(-(-n // 100), FEWEST_ROWS[0]), FEWEST_ROWS[1])
    return [(level, rows) for level, rows in count.most_common(MOST_LEVELS) if rows >= least]


def has_gaps(column: Any) -> bool:
    try:
        return bool(np.isnan(numbers_of(column)).any())
    except UnreadableError:  # said where rows are read
        return False


def _is_gap(cell: Any) -> bool:
    """Tell whether a cell holds nothing: None, NaN, and pandas' NA and NaT, which differ from themselves or are neither true nor false."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return True
    if isinstance(cell, numbers.Real):
        return math.isnan(cell)
    return type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, np.datetime64) and bool(np.isnat(cell)))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in text else None


def numbers_of(column: Any) -> Floats:
    """Return a column of numbers with NaN for gaps."""
    values = np.asarray(column)
    if values.dtype.kind in "fiub":
        found = values.astype(np.float64)
    else:
        known: dict[Any, float] = {}
        found = np.empty(len(values))
        for i, cell in enumerate(values.tolist()):
            if isinstance(cell, str):
                if cell not in known:
                    known[cell] = _read(cell, i)
                found[i] = known[cell]
            elif _is_gap(cell):
                found[i] = np.nan
            elif isinstance(cell, numbers.Real):
                found[i] = float(cell)
            else:
                raise UnreadableError(f"must hold numbers, got {str(cell)[:40]!r} at row {i + 1}")
    if np.isinf(found).any():
        row = int(np.flatnonzero(np.isinf(found))[0])
        raise UnreadableError(f"must hold finite numbers, got {found[row]} at row {row + 1}")
    return found


def _read(text: str, row: int) -> float:
    value = _number(text)
    if value is None and text.strip().lower() not in GAP_MARKS:
        raise UnreadableError(f"must hold numbers, got {text[:40]!r} at row {row + 1}")
    return np.nan if value is None else value


def levels_of(column: Any) -> list[str]:
    """Return the cells of a column as texts, the empty one for gaps; numbers are alike however they are written."""
    known: dict[Any, str] = {}
    found = []
    for cell in np.asarray(column).tolist():
        if isinstance(cell, str):
            found.append(cell.strip())
            continue
        if isinstance(cell, (list, np.ndarray)):
            raise UnreadableError("must hold texts, got a list")
        key = (type(cell), cell)
        if key not in known:
            known[key] = _level(cell)
        found.append(known[key])
    return found


def _level(cell: Any) -> str:
    if _is_gap(cell):
        return ""
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if isinstance(cell, numbers.Real):
        return str(int(float(cell))) if float(cell).is_integer() else repr(float(cell))
    return str(cell).strip()


def lists_of(column: Any) -> NDArray[Any]:
    """Return lists of numbers as a matrix."""
    try:
        values = np.stack([np.asarray(cell, dtype=np.float64) for cell in np.asarray(column).tolist()])
    except (TypeError, ValueError):
        raise UnreadableError("must hold a list of numbers of one length in every row") from None
    if values.ndim != 2 or not np.isfinite(values).all():
        raise UnreadableError("must hold a list of finite numbers in every row")
    return values
