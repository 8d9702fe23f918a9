# SPDX-License-Identifier: BSD-3-Clause
"""How the service speaks: numbers and labels as JSON, refusals as one sentence, events as one line of JSON on standard error.

Convention: JSON has no infinity, so an infinite number is written as the largest double with its sign: comparisons such as
``score <= threshold`` come out the same. NaN and None are null. What JSON has no type for is its text. Lines hold no payloads.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod import _json
from poscod._json import LARGEST

PROBLEM_TYPE = "application/problem+json"
NAMES = {"X": "the rows", "with_rule": "POSCOD.with_rule in Python"}
"""What the service calls the arguments of the library."""


def plain(value: Any) -> Any:
    """Return a value that JSON can hold; infinities become the largest double."""
    return _json.plain(value, infinity=LARGEST)


def lists(columns: Mapping[str, NDArray[Any]]) -> dict[str, list[Any]]:
    """Return columns of numbers and labels that JSON can hold, faster than `plain`."""
    finite = {name: np.clip(a, -LARGEST, LARGEST) if a.dtype.kind == "f" else a for name, a in columns.items()}
    return {name: plain(a) if a.dtype.kind == "O" else a.tolist() for name, a in finite.items()}


def dumps(value: Any) -> bytes:
    """Return the JSON text of a plain value."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass")


class Refusal(Exception):
    """A request that gets a status of 400 or more: a sentence, further headers, and the limit to count where one was exceeded."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None, *, limit: str | None = None
    ) -> None:
        self.sentence = " ".join(sentence.split())
        super().__init__(self.sentence)
        self.status, self.headers, self.limit = status, dict(headers or {}), limit

    def body(self, request_id: str) -> bytes:
        """Return the JSON of the refusal.

        Examples
        --------
        >>> Refusal(404, "Nothing is here.").body("a1")
        b'{"error": "Nothing is here.", "status": 404, "title": "Not Found", "request_id": "a1"}'
        """
        title = HTTPStatus(self.status).phrase
        document = {"error": self.sentence, "status": self.status, "title": title, "request_id": request_id}
        return json.dumps(document).encode()


def too_many(max_rows: int) -> Refusal:
    """Return the refusal of a batch beyond the limit."""
    return Refusal(413, f"A batch may have at most {max_rows} rows, got more: send several batches.", limit="rows")


def say(event: str, **fields: Any) -> None:
    """Write one line about an event."""
    now = time.time()
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"
    try:
        # One call per line: lines of several threads do not mix.
        sys.stderr.write(json.dumps({"time": stamp, "event": event, **fields}) + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # nobody reads; a service does not stop for that


def where(error: BaseException) -> str:
    """Name an unexpected error by its type and place; its text may hold what a caller has sent."""
    place = "".join(f" at {frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-1:])
    return f"{type(error).__name__}{place}"
