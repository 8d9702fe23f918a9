# SPDX-License-Identifier: BSD-3-Clause
"""Labels: numbers, texts or booleans; what marks a row as unlabeled, and what stands where a rule abstains.

Convention: labels are an array of one type. A code is the position of a label among the classes, which stand in the order of the logits and need not be sorted.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import refusal

UNLABELED = -1
"""Label of a row that has none; among texts it is the text "-1", as numpy writes it when it joins both."""
REJECTED = "rejected"
"""What stands among texts where -1 stands among numbers."""


def is_text(labels: NDArray[Any]) -> bool:
    """Tell whether labels are texts."""
    return labels.dtype.kind in "UST" or (labels.dtype.kind == "O" and any(isinstance(x, str) for x in labels.tolist()))


def as_labels(values: Any, name: str = "y") -> NDArray[Any]:
    """Return labels of any container as an array of one type; a -1 among texts becomes the text.

    Examples
    --------
    >>> as_labels(np.array(["cat", -1, "dog"], dtype=object))
    array(['cat', '-1', 'dog'], dtype='<U3')
    >>> as_labels([True, False])
    array([ True, False])
    """
    array = np.asarray(values)
    if array.dtype.kind == "T":
        return np.array(array.tolist(), dtype=str)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise _gap(name, np.isnan(array))
    if array.dtype.kind != "O":
        return array
    cells = array.ravel().tolist()
    gaps = np.array([_is_gap(cell) for cell in cells], dtype=bool)
    if gaps.any():
        raise _gap(name, gaps)
    marks = [not isinstance(cell, str) and _is_mark(cell) for cell in cells]
    kept = [cell for cell, mark in zip(cells, marks, strict=True) if not mark]
    texts = [isinstance(cell, str) for cell in kept]
    if kept and all(texts):
        made = np.array([str(UNLABELED) if mark else cell for cell, mark in zip(cells, marks, strict=True)], dtype=str)
        return made.reshape(array.shape)
    if any(texts):
        other = next(cell for cell, text in zip(kept, texts, strict=True) if not text)
        raise refusal(
            name,
            "must hold labels of one kind, texts or numbers, got {got!r} and {other!r}: make them texts, e.g. by {parameter}.astype(str).",
            got=next(cell for cell, text in zip(kept, texts, strict=True) if text),
            other=other,
        )
    if all(isinstance(cell, (numbers.Real, np.bool_)) for cell in cells):
        return np.array(cells).reshape(array.shape)
    return array


def marked_rows(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which rows labels mark as unlabeled: -1, or "-1" among texts."""
    if y.dtype.kind == "U":
        return np.asarray(y == str(UNLABELED))
    return np.array([_is_mark(value) for value in y.tolist()], dtype=bool)


def codes_of(classes: NDArray[Any], labels: Any) -> NDArray[np.intp]:
    """Return the position of each label among the classes; -1 where it is none of them.

    Examples
    --------
    >>> codes_of(np.array(["dog", "cat"]), np.array(["cat", "cow", "dog"])).tolist()
    [1, -1, 0]
    """
    labels = np.asarray(labels)
    if (classes.dtype.kind in "US") != (labels.dtype.kind in "US"):
        place = {label: code for code, label in enumerate(classes.tolist())}
        return np.array([place.get(label, -1) for label in labels.tolist()], dtype=np.intp)
    order = np.argsort(classes, kind="stable")
    at = order[np.minimum(np.searchsorted(classes[order], labels), len(classes) - 1)]
    return np.asarray(np.where(classes[at] == labels, at, -1))


def reject_label_for(label: Any, labels: NDArray[Any]) -> Any:
    """Return what stands beside these labels where an answer is rejected: -1 is the word "rejected" among texts.

    Examples
    --------
    >>> reject_label_for(-1, np.array(["cat", "dog"])), reject_label_for(-1, np.array([0, 1])), reject_label_for("?", np.array(["cat"]))
    ('rejected', -1, '?')
    """
    return REJECTED if _is_mark(label) and is_text(labels) else label


def check_reject_label(label: Any, classes: NDArray[Any]) -> None:
    """Refuse a reject label that is a class: nobody could tell an answer from none."""
    shown = reject_label_for(label, classes)
    if any(type(shown) is type(name) and shown == name for name in classes.tolist()):
        raise refusal("reject_label", "must be none of the classes, got {got!r}: choose another one.", got=shown)


def _is_mark(value: Any) -> bool:
    return isinstance(value, numbers.Real) and float(value) == UNLABELED


def _is_gap(value: Any) -> bool:
    """Tell None, NaN and pandas' NA, which is equal to nothing and says neither yes nor no."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _gap(name: str, gaps: NDArray[np.bool_]) -> Exception:
    return refusal(
        name,
        "must hold a label in every row, got none in {got} (first at row {row}): leave those rows out, or mark unlabeled rows with -1.",
        got=int(gaps.sum()),
        row=int(np.flatnonzero(gaps.ravel())[0]),
    )
