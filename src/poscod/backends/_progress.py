# SPDX-License-Identifier: BSD-3-Clause
"""A progress bar, where somebody looks at it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from poscod._optional import require
from poscod.exceptions import MissingExtraError


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
