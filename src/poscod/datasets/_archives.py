# SPDX-License-Identifier: BSD-3-Clause
"""Named arrays of a numpy archive, without pickles.

Convention: a missing name or an array of objects is refused with a sentence that names the file.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod.exceptions import InvalidInputError


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays of an npz file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in names if name not in archive]
            if missing:
                there = ", ".join(archive) or "none"
                raise InvalidInputError(f"{path} must hold the array '{missing[0]}', got {there}.")
            return [archive[name] for name in names]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} could not be read as plain arrays ({error}).") from None
