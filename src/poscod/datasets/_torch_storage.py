# SPDX-License-Identifier: BSD-3-Clause
"""Torch tensors as numpy arrays: a flat storage and views of it, with every index checked.

Convention: storages are little-endian; what a tensor claims about its storage is checked before a view is made.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from poscod.exceptions import InvalidInputError

STORAGE_DTYPES: dict[str, str] = {
    "BoolStorage": "|b1",
    "ByteStorage": "|u1",
    "CharStorage": "|i1",
    "ShortStorage": "<i2",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}


class Storage:
    """The flat data that one or more tensors share, zeros until it is filled."""

    def __init__(self, dtype: str, size: int) -> None:
        self.array: NDArray[Any] = np.zeros(size, dtype)

    def __setstate__(self, state: Any) -> None:
        # A pickle that could swap the array would make views of memory that is not its own.
        raise InvalidInputError("the pickle must not change the data of a tensor, but it tries to.")

    def fill(self, stream: io.BytesIO) -> None:
        """Read the data in the old form of torch.save: the number of items, then the items."""
        if int.from_bytes(stream.read(8), "little") != len(self.array):
            raise InvalidInputError("the file holds a tensor of another size than announced.")
        raw = stream.read(self.array.nbytes)
        if len(raw) != self.array.nbytes:
            raise InvalidInputError(f"the file holds {len(raw)} bytes for a tensor of {self.array.nbytes}.")
        self.array[:] = np.frombuffer(raw, self.array.dtype)


def rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> NDArray[Any]:
    """Return a tensor as an array."""
    tuples = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides)
    whole = tuples and all(type(n) is int and n >= 0 for n in (offset, *shape, *strides))
    if not isinstance(storage, Storage) or not whole:
        raise InvalidInputError("the pickle holds a damaged tensor.")
    flat, count = storage.array, math.prod(shape)
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if count else 0
    if count > len(flat) or (count and last >= len(flat)):
        raise InvalidInputError(
            f"the pickle holds a tensor of shape {shape} over {len(flat)} items: expanded tensors are not read."
        )
    if count == 0:
        return np.zeros(shape, flat.dtype)
    view: NDArray[Any] = as_strided(flat[offset:], shape, tuple(flat.itemsize * step for step in strides))
    return view
