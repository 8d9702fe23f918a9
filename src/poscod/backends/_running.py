# SPDX-License-Identifier: BSD-3-Clause
"""What running any network takes: rows in blocks, labels told from inputs, a progress bar, and the reason of a failure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from poscod._optional import require
from poscod._validation import check_count
from poscod.exceptions import InvalidInputError, MissingExtraError

LABELS = ("labels", "label")


class Blocks:
    """Consecutive blocks of n rows; every pass starts anew.

    Parameters
    ----------
    n : int
        Number of rows.
    size : int
        Rows of a block; the last may be shorter.
    read : callable
        From a slice to what the block is.
    """

    def __init__(self, n: int, size: int, read: Callable[[slice], Any]) -> None:
        self.n, self.size, self.read = n, check_count(size, "batch_size"), read

    def __len__(self) -> int:
        return -(-self.n // self.size)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self.n, self.size):
            yield self.read(slice(start, min(start + self.size, self.n)))


def as_batches(data: Any, batch_size: int, name: str, kinds: tuple[type, ...] = (np.ndarray,)) -> Iterable[Any]:
    """Return an array, or a pair (inputs, labels), in blocks, and batches as they are."""
    arrays = data if isinstance(data, tuple) and len(data) == 2 else (data,)
    if all(isinstance(array, kinds) for array in arrays):
        if len({len(array) for array in arrays}) > 1:
            raise InvalidInputError(
                f"{name} must pair as many labels as inputs, got {len(data[0])} and {len(data[1])}."
            )
        return Blocks(len(arrays[0]), batch_size, lambda rows: tuple(array[rows] for array in arrays))
    if not isinstance(data, Iterable):
        raise InvalidInputError(
            f"{name} must be an array, a pair of arrays (inputs, labels) or batches, got {type(data).__name__}."
        )
    return data


def split_labels(batch: Any, inputs: Iterable[str] = ()) -> tuple[Any, Any]:
    """Tell what a batch gives a network from its labels; `inputs` are names that are not labels, whatever they say."""
    if isinstance(batch, Mapping):
        names = set(LABELS) - set(inputs)
        labels = next((batch[key] for key in LABELS if key in names and batch.get(key) is not None), None)
        return {key: value for key, value in batch.items() if key not in names}, labels
    if isinstance(batch, (tuple, list)):
        return batch[0], batch[1] if len(batch) > 1 else None
    return batch, None


def watched(items: Iterable[Any], text: str, progress: bool | None, *, extra: str, unit: str = "batch") -> Any:
    """Return the items behind a progress bar, or as they are where nobody looks."""
    if not progress and not (progress is None and sys.stderr.isatty()):
        return items
    try:
        tqdm = require("tqdm", extra=extra, feature="A progress bar")
    except MissingExtraError:
        if progress:
            raise
        return items
    # Anything under two seconds needs no bar.
    return tqdm.tqdm(items, desc=text, delay=0.0 if progress else 2.0, unit=unit)


def reason(error: Exception) -> str:
    r"""Return the first line of an error without its full stop, or its kind where it says nothing.

    Examples
    --------
    >>> reason(ValueError("no such layer.\nStack: ...")), reason(KeyError())
    ('no such layer', 'KeyError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
