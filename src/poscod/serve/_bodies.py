# SPDX-License-Identifier: BSD-3-Clause
"""Reading a request body within its limits, whatever the caller does."""

from __future__ import annotations

from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request

from poscod.serve._refusal import Refusal

__all__ = ["media_type", "read_body"]

# A refused caller may still be sending; so many bytes and seconds are thrown away, so that it can read why.
_LINGER_BYTES, _LINGER_SECONDS = 64 * 2**20, 2.0


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """Return the body of a request."""
    headers = request.headers
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "Compressed bodies are not read: send the body without Content-Encoding.")
    too_large = Refusal(
        413, f"A body may have at most {limit} bytes: send smaller batches.", {"Connection": "close"}, limit="body"
    )
    declared = headers.get("content-length", "0")
    over = declared.isdigit() and int(declared[:20]) > limit
    if over and "expect" in headers:  # nothing is sent before we ask for it
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(_LINGER_SECONDS if over else seconds) as scope:
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit and not over:
                    over, scope.deadline = True, anyio.current_time() + _LINGER_SECONDS
                    chunks.clear()
                if size > limit + _LINGER_BYTES:
                    break
                if not over:
                    chunks.append(chunk)
    except ClientDisconnect:
        raise Refusal(400, "The body ended before it was complete.") from None
    except TimeoutError:
        if not over:
            raise Refusal(
                408,
                f"The body took longer than {seconds:g} seconds to arrive.",
                {"Connection": "close"},
                limit="slow_body",
            ) from None
    if over:
        raise too_large
    return b"".join(chunks)


def media_type(value: Any) -> str:
    """Return a media type without its parameters, in lower case.

    Examples
    --------
    >>> media_type("Application/JSON; charset=utf-8")
    'application/json'
    """
    return str(value).partition(";")[0].strip().lower()
