"""Writing a file so that a reader never sees half of it.

Convention: a draft beside the target is written, flushed to the disk and renamed over the target; whatever goes wrong before
that leaves the old file as it was and no draft behind.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a draft that replaces the target when the block ends without an error.

    Parameters
    ----------
    target : Path
        File that appears, or is replaced, as a whole.

    Yields
    ------
    file : binary file
        The draft, open for writing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as file:
    ...         _ = file.write(b"whole")
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
