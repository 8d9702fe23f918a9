# SPDX-License-Identifier: BSD-3-Clause
"""The only place that checks lengths, NaN, ranges and names.

Convention: a check returns the value in its canonical form (float64, contiguous, one type) or raises
`InvalidInputError` with one sentence. Checks never copy an array that is already canonical and never
change their argument.
"""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from poscod.exceptions import InvalidInputError

T = TypeVar("T")
Floats = NDArray[np.float64]


def refusal(parameter: str, sentence: str, **facts: Any) -> InvalidInputError:
    """Return the error about an argument; the sentence is what follows its name."""
    return InvalidInputError("{parameter} " + sentence, parameter=parameter, **facts)


def listed(names: Iterable[Any], most: int = 8) -> str:
    """Return names in quotes, and how many more there are."""
    names = [str(name) for name in names]
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Convert to an array of real numbers, keeping float32 and float64 as they are."""
    try:
        array = np.asarray(values)
        if array.dtype not in (np.float32, np.float64):
            # Objects may hold plain numbers; text, dates and None do not pass as such.
            if array.dtype.kind not in "fiubO" or (array.dtype.kind == "O" and not _all_numbers(array)):
                raise TypeError(f"dtype {array.dtype}")
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise refusal(
            name, "must be an array of real numbers, got {got} ({reason}).", got=_describe(values), reason=error
        ) from None
    return array


def check_vector(
    values: Any,
    name: str,
    *,
    n: int | None = None,
    like: str = "the other arrays",
    allow_inf: bool = True,
    minimum: float | None = None,
) -> Floats:
    """Check a one-dimensional array of numbers without NaN."""
    vector = as_array(values, name).astype(np.float64, copy=False)
    if vector.ndim != 1:
        raise refusal(
            name,
            "must be one-dimensional, got shape {got}: pass one number per row, e.g. {parameter}.ravel().",
            got=vector.shape,
        )
    if n is not None and len(vector) != n:
        raise refusal(
            name, "must have as many rows as {like} ({allowed}), got {got}.", like=like, allowed=n, got=len(vector)
        )
    if len(vector):
        # One pass finds NaN and infinities alike: the sum of finite numbers may overflow, NaN cannot hide.
        low, high = float(vector.min()), float(vector.max())
        if np.isnan(low):
            bad = np.flatnonzero(np.isnan(vector))
            raise refusal(
                name,
                "must not contain NaN, got {got} (first at row {row}): drop or impute those rows.",
                got=len(bad),
                row=int(bad[0]),
            )
        if not allow_inf and (np.isinf(low) or np.isinf(high)):
            row = int(np.flatnonzero(np.isinf(vector))[0])
            raise refusal(name, "must be finite, got {got} at row {row}.", got=vector[row], row=row)
        if minimum is not None and low < minimum:
            row = int(np.argmin(vector))
            raise refusal(
                name, "must be at least {allowed:g}, got {got:g} at row {row}.", allowed=minimum, got=low, row=row
            )
    return vector


def check_matrix(
    values: Any, name: str, *, columns: int | None = None, rows: int | None = None, allow_inf: bool = False
) -> NDArray[Any]:
    """Check a two-dimensional array of finite numbers; float32 stays float32."""
    matrix = as_array(values, name)
    if matrix.ndim != 2:
        raise refusal(name, "must be two-dimensional (rows, columns), got shape {got}.", got=matrix.shape)
    if columns is not None and matrix.shape[1] != columns:
        raise refusal(name, "must have {allowed} columns, got {got}.", allowed=columns, got=matrix.shape[1])
    if rows is not None and matrix.shape[0] != rows:
        raise refusal(name, "must have {allowed} rows, got {got}.", allowed=rows, got=matrix.shape[0])
    for start in range(0, len(matrix), 65536):
        block = matrix[start : start + 65536]
        ok = ~np.isnan(block) if allow_inf else np.isfinite(block)
        if not ok.all():
            row, column = (int(i) for i in np.argwhere(~ok)[0])
            raise refusal(
                name,
                "must be {allowed}, got {got} at row {row}, column {column}: drop or impute such rows.",
                allowed="free of NaN" if allow_inf else "finite",
                got=block[row, column],
                row=start + row,
                column=column,
            )
    return matrix


def check_weight(values: Any, name: str, n: int, *, like: str = "the rows they weigh") -> Floats | None:
    """Check sample weights: None, or finite non-negative numbers that are not all zero."""
    if values is None:
        return None
    weight = check_vector(values, name, n=n, like=like, allow_inf=False, minimum=0.0)
    if n and not weight.any():
        raise refusal(name, "must contain a positive number, got zeros only.")
    return weight if n == 0 or 1e-100 < weight.max() < 1e100 else weight / weight.max()


def check_number(value: Any, name: str, low: float, high: float, *, closed: str = "both", hint: str = "") -> float:
    """Check a real number in an interval.

    Examples
    --------
    >>> check_number(1.5, "alpha", 0, 1)
    Traceback (most recent call last):
        ...
    poscod.exceptions.InvalidInputError: alpha must be a number in [0, 1], got 1.5.
    """
    left, right = closed in ("both", "left"), closed in ("both", "right")
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if is_number:
        number = float(value)
        if (low <= number if left else low < number) and (number <= high if right else number < high):
            return number
    interval = f"{'[' if left else '('}{low:g}, {high:g}{']' if right else ')'}"
    raise refusal(
        name, "must be a number in {allowed}, got {got!r}." + (" " + hint if hint else ""), allowed=interval, got=value
    )


def check_count(value: Any, name: str, minimum: int = 1) -> int:
    """Check a whole number with a lower end."""
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if is_whole and value >= minimum:
        return int(value)
    raise refusal(name, "must be a whole number >= {allowed}, got {got!r}.", allowed=minimum, got=value)


def check_choice(value: Any, name: str, choices: Mapping[str, T]) -> T:
    """Look a name up in a family's mapping; an unknown name lists the valid ones.

    Examples
    --------
    >>> check_choice("zero_on", "loss", {"zero_one": 1, "absolute": 2})
    Traceback (most recent call last):
        ...
    poscod.exceptions.InvalidInputError: loss must be one of 'absolute', 'zero_one', got 'zero_on': did you mean 'zero_one'?
    """
    if isinstance(value, str) and value in choices:
        return choices[value]
    listed = ", ".join(repr(key) for key in sorted(choices))
    near = nearest(value, choices) if isinstance(value, str) else None
    raise refusal(
        name,
        "must be one of {allowed}, got {got!r}" + (": did you mean {meant!r}?" if near else "."),
        allowed=listed,
        got=value,
        meant=near,
    )


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the name that was probably meant, whatever its case.

    Examples
    --------
    >>> nearest("WIDHT", ["height", "width"]), nearest("colour", ["height", "width"])
    ('width', None)
    """
    lower = {other.lower(): other for other in names}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=cutoff)
    return lower[near[0]] if near else None


def check_labels(values: ArrayLike, name: str, n_classes: int, *, n: int | None = None) -> NDArray[np.int64]:
    """Check class indices 0, ..., n_classes - 1."""
    labels = check_vector(values, name, n=n, allow_inf=False)
    if len(labels) and (labels.min() < 0 or labels.max() >= n_classes or (labels != np.floor(labels)).any()):
        bad = labels[(labels < 0) | (labels >= n_classes) | (labels != np.floor(labels))][0]
        raise refusal(name, "must hold class indices 0, ..., {allowed}, got {got:g}.", allowed=n_classes - 1, got=bad)
    return labels.astype(np.int64)


def _all_numbers(array: NDArray[Any]) -> bool:
    return all(isinstance(value, (numbers.Real, np.bool_)) for value in array.ravel().tolist())


def _describe(values: Any) -> str:
    """Name a value by its type and, for arrays, its dtype: enough to find the mistake, never the data itself."""
    dtype = getattr(values, "dtype", None)
    return type(values).__name__ + (f" of dtype {dtype}" if dtype is not None else "")
