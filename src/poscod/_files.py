# SPDX-License-Identifier: BSD-3-Clause
"""Files that are whole: writing so that a reader never sees half of one, reading only what is one.

Convention: a draft beside the target is written, flushed to the disk and renamed over the target; whatever goes wrong before
that leaves the old file as it was and no draft behind. Where the system can, a draft has no name until it is complete: not even a
process that is killed leaves one. A symbolic link stays one: what it points to is replaced. A device or a pipe is
no file: it is neither replaced nor read, because it may never end. Archives are read only where they cannot grow.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from poscod.exceptions import InvalidInputError

_NAMELESS = getattr(os, "O_TMPFILE", 0)  # Linux
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody writes to would be waited for


def check_target(target: Path) -> int | None:
    """Refuse a target that is there and is no file."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise InvalidInputError(f"cannot write {target}: it is {_kind(mode)}; give the name of a file.")
    return stat.S_IMODE(mode)


def check_source(source: Path) -> None:
    """Refuse a source that is there and is no file."""
    open_source(source).close()


def open_source(source: Path) -> BinaryIO:
    """Open a file for reading; a folder, a device or a pipe is refused without waiting for it.

    Examples
    --------
    >>> open_source(Path(os.devnull))
    Traceback (most recent call last):
        ...
    poscod.exceptions.InvalidInputError: cannot read /dev/null: it is a device or pipe; give the name of a file.
    """
    mode = source.stat().st_mode
    if stat.S_ISREG(mode):
        file = open(source, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT))  # noqa: SIM115 (the caller closes it)
        # Asked again of what was opened: the name may stand for something else by now.
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            return file
        file.close()
    raise InvalidInputError(f"cannot read {source}: it is {_kind(mode)}; give the name of a file.")


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
        with _open_draft(draft) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not draft.exists():
                # A descriptor of a folder, which the absolute name makes unused, is what lets Python follow the link.
                os.link(f"/proc/self/fd/{file.fileno()}", draft, src_dir_fd=file.fileno(), follow_symlinks=True)
        if mode is not None:
            draft.chmod(mode)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def alone(target: Path) -> Iterator[None]:
    """Keep other processes that ask from using a file while the block runs; they are refused. Where the system has no such locks nothing is kept.

    Notes
    -----
    The lock is one of the system on an empty file in the folder for temporary files, and ends with the process, however that ends.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, alone(Path(folder, "state.json")):
    ...     os.listdir(folder)
    []
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    target = target.resolve()
    named = hashlib.sha256(str(target).encode(errors="surrogateescape")).hexdigest()[:24]
    beside = Path(tempfile.gettempdir(), f"poscod-{os.getuid()}-{named}.lock")
    while True:
        held = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it before may have removed it meanwhile: then the name stands for another file, or none.
            if beside.exists() and os.path.samestat(os.fstat(held), beside.stat()):
                break
        except BlockingIOError:
            os.close(held)
            raise InvalidInputError(
                f"{target} is in use by another process: wait until it ends, or give another name."
            ) from None
        os.close(held)
    try:
        yield
    finally:
        beside.unlink(missing_ok=True)
        os.close(held)


def growth(archive: zipfile.ZipFile, size: int) -> str:
    """Say why an archive may become larger than its file of `size` bytes when it is read; empty where it cannot."""
    packed = next((info.filename for info in archive.infolist() if info.compress_type != zipfile.ZIP_STORED), None)
    if packed is not None:
        return f"holds '{packed[:100]}' compressed"
    # Members may lie over each other.
    total = sum(info.file_size for info in archive.infolist())
    return f"declares {total} bytes of members in {size} bytes of file" if total > size else ""


def _open_draft(draft: Path) -> BinaryIO:
    """Open a nameless file in the folder of a draft, or, where the system has none, the draft itself."""
    if _NAMELESS and os.path.exists("/proc/self/fd"):
        with suppress(OSError):  # the reason, if it is not the system, comes again below with the draft's name
            return os.fdopen(os.open(draft.parent, _NAMELESS | os.O_RDWR, 0o666), "w+b")
    return draft.open("xb")


def _kind(mode: int) -> str:
    return "a folder" if stat.S_ISDIR(mode) else "a device or pipe"
