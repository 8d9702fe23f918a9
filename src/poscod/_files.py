# SPDX-License-Identifier: BSD-3-Clause
"""Writing a file so that a reader never sees half of it.

Convention: a draft beside the target is written, flushed to the disk and renamed over the target; whatever goes wrong before
that leaves the old file as it was and no draft behind. A symbolic link stays one: what it points to is replaced. A device or a pipe is
no file that could be replaced, and is refused.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from poscod.exceptions import InvalidInputError


def check_target(target: Path) -> int | None:
    """Refuse a target that is there and is no file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
        raise InvalidInputError(f"cannot write {target}: it is {kind}; give the name of a file.")
    return stat.S_IMODE(mode)


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a draft that replaces the target when the block ends without an error.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as file:
    ...         _ = file.write(b"whole")
    ...     Path(folder, "a.txt").read_text()
    'whole'
    """
    target = target.resolve()
    mode = check_target(target)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            draft.chmod(mode)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
