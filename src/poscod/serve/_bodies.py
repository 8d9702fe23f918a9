# SPDX-License-Identifier: BSD-3-Clause
"""Reading a request body within its limits, whatever the caller does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any

from poscod.serve._refusal import Refusal

__all__ = ["Deadline", "media_type", "read_body"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
# A refused caller may still be sending; so many bytes and seconds are thrown away, so that it can read why.
_LINGER_BYTES, _LINGER_SECONDS = 64 * 2**20, 2.0


class Deadline:
    """Cancels what is awaited in its block after some seconds and raises TimeoutError there.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._late = seconds, False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._fire)

    def _fire(self) -> None:
        self._late = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._late and kind is asyncio.CancelledError:
            if hasattr(self._task, "uncancel"):  # Python 3.11
                self._task.uncancel()
            raise TimeoutError from None


async def read_body(
    headers: dict[bytes, bytes], receive: Receive, limit: int, seconds: float, notes: dict[str, Any]
) -> bytes:
    """Return the body of a request."""
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal(415, "Compressed bodies are not read: send the body without Content-Encoding.")
    too_large = Refusal(
        413, f"A body may have at most {limit} bytes, got more: send smaller batches.", {"Connection": "close"}
    )
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared[:20]) > limit:
        notes["limit"] = "body"
        if b"expect" not in headers:
            await _linger(receive)
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        with Deadline(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "The body ended before it was complete.")
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    break
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks) if len(chunks) > 1 else bytes(chunk)
    except TimeoutError:
        notes["limit"] = "slow_body"
        raise Refusal(
            408, f"The body took longer than {seconds:g} seconds to arrive.", {"Connection": "close"}
        ) from None
    notes["limit"] = "body"
    await _linger(receive)
    raise too_large


async def _linger(receive: Receive) -> None:
    size = 0
    try:
        with Deadline(_LINGER_SECONDS):
            while size < _LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def media_type(headers: dict[bytes, bytes], name: bytes) -> str:
    """Return a media type without its parameters, in lower case.

    Examples
    --------
    >>> media_type({b"content-type": b"Application/JSON; charset=utf-8"}, b"content-type")
    'application/json'
    """
    return headers.get(name, b"").decode("latin-1").partition(";")[0].strip().lower()
