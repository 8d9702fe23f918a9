# SPDX-License-Identifier: BSD-3-Clause
"""Rows in blocks, for networks that run batch by batch without a loader of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from poscod._validation import check_count


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
