# SPDX-License-Identifier: BSD-3-Clause
"""Rows in blocks, for networks that run batch by batch without a loader of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from poscod._validation import check_count
from poscod.exceptions import InvalidInputError


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
