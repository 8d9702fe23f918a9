"""A progress bar over batches, where somebody looks at it.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from poscod._optional import require
from poscod.exceptions import MissingExtraError


def watched(batches: Iterable[Any], text: str, progress: bool | None, *, extra: str) -> Iterator[Any]:
    """Iterate over batches behind a progress bar.

    Parameters
    ----------
    batches : iterable
    text : str
        What is being done.
    progress : bool or None
        None shows a bar on a terminal only, and only where tqdm is installed.
    extra : str
        Extra of poscod that installs tqdm.

    Yields
    ------
    batch : object
    """
    bar = None
    if progress or (progress is None and sys.stderr.isatty()):
        try:
            tqdm = require("tqdm", extra=extra, feature="A progress bar")
        except MissingExtraError:
            if progress:
                raise
        else:
            total = len(batches) if isinstance(batches, Sized) else None
            # Anything under two seconds needs no bar.
            bar = tqdm.tqdm(desc=text, total=total, delay=0.0 if progress else 2.0, unit="batch")
    try:
        for batch in batches:
            yield batch
            if bar is not None:
                bar.update()
    finally:
        if bar is not None:
            bar.close()
