# SPDX-License-Identifier: BSD-3-Clause
"""Plain arrays and tables: npy files, members of npz archives and Parquet columns, never a pickle.

Convention: nothing is guessed; which column or file holds which part is said by the caller. What is missing or is not a plain array is
refused with a sentence that names the file.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError

Place = str | os.PathLike[str]


def read_activations(
    table: Place | None = None,
    *,
    features: Any = None,
    logits: Any = None,
    labels: Any = None,
    weight: Place | None = None,
    bias: Place | None = None,
) -> Activations:
    """Read activations from npy files, one per part, or from the columns of a Parquet file.

    Parameters
    ----------
    table : str or path-like, default=None
        Parquet file (extra ``files``); None where the parts are files of their own.
    features, logits : str, path-like or sequence of str, default=None
        The npy file that holds the part, mapped into memory; or, of `table`, one column of lists of equal length or several columns of numbers.
    labels : str or path-like, default=None
        The npy file, or the column of `table`, with true classes (-1 = OOD or unlabeled).
    weight, bias : str or path-like, default=None
        The npy files of the last layer.

    Returns
    -------
    activations : Activations
        The parts that were named.

    See Also
    --------
    poscod.Activations.load : Reads .npz and .safetensors files that hold the parts under their names.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(folder + "/y.npy", [1])
    ...     np.save(folder + "/z.npy", [[1.0, 2.0]])
    ...     read_activations(logits=folder + "/z.npy", labels=folder + "/y.npy")
    Activations(logits=(1, 2) float64, labels=(1,) int64)
    """
    parts = {"features": features, "logits": logits, "labels": labels}
    files = {"weight": weight, "bias": bias} | ({} if table is not None else parts)
    found = {} if table is None else _columns(Path(table), {name: part for name, part in parts.items() if part})
    found |= {name: _read_npy(Path(place)) for name, place in files.items() if place is not None}
    return Activations(**found)


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an npz file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive if name in names}
            there = ", ".join(archive) or "none"
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"{path} could not be read as plain arrays ({error}).") from None
    if missing := [name for name in names if name not in arrays]:
        raise InvalidInputError(f"{path} must hold the array '{missing[0]}', got {there}.")
    return [arrays[name] for name in names]


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError) as error:
        raise InvalidInputError(f"{path} could not be read as a plain array, a .npy file ({error}).") from None


def _columns(path: Path, parts: dict[str, Any]) -> dict[str, Any]:
    """Read a column of lists, or several columns of numbers, for every part; a gap is refused later, as the NaN it becomes."""
    pandas = require("pandas", extra="files", feature="Reading Parquet")
    named = [name for part in parts.values() for name in ([part] if isinstance(part, str) else part)]
    found = {}
    try:
        frame = pandas.read_parquet(path, columns=list(dict.fromkeys(named)))
        for name, part in parts.items():
            is_lists = isinstance(part, str) and name != "labels"
            found[name] = np.stack(frame[part]) if is_lists else frame[part].to_numpy()
    except (KeyError, TypeError, ValueError):
        raise InvalidInputError(
            f"{path} must have the columns {', '.join(named)}: one of lists of equal length, or several of numbers, for features and for logits."
        ) from None
    return found
