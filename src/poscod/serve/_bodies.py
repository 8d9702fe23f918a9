# SPDX-License-Identifier: BSD-3-Clause
"""Reading a request body within its limits, whatever the caller does."""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from poscod.serve._say import Refusal

# A refused caller may still be sending; so many bytes and seconds are thrown away, so that it can read why.
_LINGER_BYTES, _LINGER_SECONDS = 64 * 2**20, 2.0
_CLOSE = {"Connection": "close"}


async def read_body(headers: dict[bytes, bytes], receive: Receive, limit: int, seconds: float) -> bytes:
    """Return the body of a request."""
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Refusal(415, "Compressed bodies are not read: send the body without Content-Encoding.")
    too_large = Refusal(
        413, f"A body of this type may have at most {limit} bytes: send smaller batches.", _CLOSE, limit="body"
    )
    declared = headers.get(b"content-length", b"0")
    over = declared.isdigit() and int(declared[:20]) > limit
    if over and b"expect" in headers:  # nothing is sent before it is asked for
        raise too_large
    loop, task, late = asyncio.get_running_loop(), asyncio.current_task(), False
    assert task is not None

    def fire() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = loop.call_later(_LINGER_SECONDS if over else seconds, fire)
    body, more = bytearray(), True
    size = 0
    try:
        while more and size <= limit + _LINGER_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refusal(400, "The body ended before it was complete.")
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if size <= limit:
                body += message.get("body", b"")
            elif not over:
                over = True
                timer.cancel()
                timer = loop.call_later(_LINGER_SECONDS, fire)
    except asyncio.CancelledError:
        if not late:
            raise
        if hasattr(task, "uncancel"):  # Python 3.11
            task.uncancel()
        if not over:
            sentence = f"The body took longer than {seconds:g} seconds to arrive."
            raise Refusal(408, sentence, _CLOSE, limit="slow_body") from None
    finally:
        timer.cancel()
    if over:
        raise too_large
    return bytes(body)
