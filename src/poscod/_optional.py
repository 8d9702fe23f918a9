# SPDX-License-Identifier: BSD-3-Clause
"""Optional packages are imported at the moment of use, through this one function."""

from __future__ import annotations

import importlib
from types import ModuleType

from poscod.exceptions import MissingExtraError


def require(package: str, *, extra: str, feature: str) -> ModuleType:
    """Import an optional package or say how to install it.

    Examples
    --------
    >>> require("no_such_package", extra="files", feature="Reading Parquet")
    Traceback (most recent call last):
        ...
    poscod.exceptions.MissingExtraError: Reading Parquet needs the package 'no_such_package', which is not installed: install poscod with its extra 'files' (in a clone of the project: `pip install '.[files]'`).
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        # A package that is there but broken must show its own error, not ours.
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise
        raise MissingExtraError(package.split(".")[0], extra, feature) from error
