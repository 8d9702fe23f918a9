# SPDX-License-Identifier: BSD-3-Clause
"""Estimators of other libraries in model files, through skops.

Convention: skops decides which types are trusted; here is checked, before skops looks at a file, that it cannot grow: nothing is
compressed, no array claims more than it has, no node stands for more nodes than were written, and no member is read again and again.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from typing import Any

from poscod._files import growth
from poscod._optional import require
from poscod.exceptions import InvalidInputError
from poscod.model._codec import read_npy
from poscod.model._errors import ModelFileError
from poscod.model._kept import class_name

# Sparse matrices inside skops files are compressed; honest ones shrink by less than this.
_SPARSE_RATIO = 200
# How many times more nodes, or bytes, than are written an honest file may ask for, and how many it may have in any case.
_REPEATED, _FREE_NODES, _FREE_BYTES = 4, 1000, 1 << 20
_SCHEMA = "schema.json"
# When skops is imported, it walks through all packages of scikit-learn. These three import torch and Dask where they are installed: seconds for nothing.
_NOT_WALKED = [f"sklearn.externals.array_api_compat.{name}" for name in ("cupy", "dask", "torch")]


def skops(verb: str) -> Any:
    """Return skops, or say how to install it."""
    hidden = [] if "skops.io" in sys.modules else [name for name in _NOT_WALKED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: an import of it fails, which the walk passes over
    try:
        return require("skops.io", extra="persist", feature=f"{verb} a model with estimators of other libraries")
    finally:
        for name in hidden:
            del sys.modules[name]


def dump(value: Any, where: str, strange: set[str]) -> bytes:
    """Write an object of another library with skops, and note the types that skops does not trust."""
    library = skops("Saving")
    try:
        data: bytes = library.dumps(value)
        types = library.get_untrusted_types(data=data)
    except Exception as error:
        raise InvalidInputError(f"{where} is a {class_name(type(value))}, which skops cannot save ({error}).") from None
    if lost := [name for name in types if "<" in name]:
        raise InvalidInputError(
            f"{where} uses {', '.join(lost)}, which cannot be found by its name: define it at the top of a module."
        )
    strange.update(types)
    return data


def types_of(data: bytes) -> list[str]:
    """Return the types in a skops file that skops does not trust, after checking that the file cannot grow."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if complaint := growth(archive, len(data)):
            raise ModelFileError(f"{complaint}: it is not read.")
        for info in archive.infolist():
            if info.filename.endswith(".npy"):
                read_npy(archive.read(info))
            elif info.filename.endswith(".npz"):
                _check_sparse(archive.read(info), info)
        _Walk({info.filename: info.file_size for info in archive.infolist()}).check(
            json.loads(archive.read(_SCHEMA)), len(data)
        )
    return list(skops("Loading").get_untrusted_types(data=data))


def _check_sparse(data: bytes, info: zipfile.ZipInfo) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as sparse:
        if sum(part.file_size for part in sparse.infolist()) > _SPARSE_RATIO * info.file_size:
            raise ModelFileError(f"holds a sparse matrix '{info.filename}' that grows too much: it is not read.")
        for part in sparse.infolist():
            read_npy(sparse.read(part))


class _Walk:
    """Counts what skops would visit: a node whose id it has met stands for all that was below it then, whatever is written in its place."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self._met: dict[Any, int] = {}
        self.written = self.read = 0

    def check(self, schema: Any, size: int) -> None:
        """Refuse a schema that asks for much more than it has."""
        if self.visited(schema) > _REPEATED * self.written + _FREE_NODES:
            raise ModelFileError("holds an estimator that names the same parts again and again: it is not read.")
        if self.read > _REPEATED * size + _FREE_BYTES:
            raise ModelFileError("holds an estimator that reads the same arrays again and again: it is not read.")

    def visited(self, state: Any) -> int:
        """Return how many nodes are visited for a part of the schema."""
        if isinstance(state, list):
            return sum(map(self.visited, state))
        if not isinstance(state, dict):
            return 0
        key, node = state.get("__id__"), "__class__" in state
        if node and isinstance(key, (int, str)) and key in self._met:
            self.written += _nodes(state)
            return self._met[key]
        self.written += node
        if node and isinstance(key, (int, str)):
            self._met[key] = 1  # while it is being looked at: skops knows circles, too
        self.read += self._sizes.get(state["file"], 0) if isinstance(state.get("file"), str) else 0
        count = node + sum(map(self.visited, state.values()))
        if node and isinstance(key, (int, str)):
            self._met[key] = count
        return count


def _nodes(state: Any) -> int:
    """Return how many nodes are written in a part of the schema."""
    if isinstance(state, list):
        return sum(map(_nodes, state))
    return ("__class__" in state) + sum(map(_nodes, state.values())) if isinstance(state, dict) else 0
