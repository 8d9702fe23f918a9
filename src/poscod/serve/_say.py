# SPDX-License-Identifier: BSD-3-Clause
"""How the service speaks: numbers and labels as JSON, refusals as one sentence, events as one line of JSON on standard error.

Convention: JSON has no infinity, so an infinite number is written as the largest double with its sign: comparisons such as
``score <= threshold`` come out the same. NaN and None are null. What JSON has no type for is its text. Lines hold no payloads.
"""

from __future__ import annotations

import json
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod import _json
from poscod._json import LARGEST
from poscod._optional import require

PROBLEM_TYPE = "application/problem+json"
NAMES = {"X": "the rows", "with_rule": "POSCOD.with_rule in Python"}
"""What the service calls the arguments of the library."""
# From so many numbers on, Arrow writes them faster than Python does.
_MANY = 32
_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False)
_LINES = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=("\n", ": "))


def plain(value: Any) -> Any:
    """Return a value that JSON can hold; infinities become the largest double."""
    return _json.plain(value, infinity=LARGEST)


def dumps(value: Any) -> bytes:
    """Return the JSON text of a plain value."""
    return _encode(_ENCODER.encode(value))


def cells(columns: Mapping[str, NDArray[Any]]) -> dict[str, list[str]]:
    """Return the JSON text of every cell of columns of numbers and labels.

    Examples
    --------
    >>> cells({"label": np.array(["a, b", "c"]), "score": np.array([0.25, np.inf])})
    {'label': ['"a, b"', '"c"'], 'score': ['0.25', '1.7976931348623157e+308']}
    """
    numbers = {
        name: np.clip(a.astype(np.float64), -LARGEST, LARGEST) for name, a in columns.items() if a.dtype.kind == "f"
    }
    out = {name: [] if name in numbers else _texts(a) for name, a in columns.items()}
    if numbers:
        joint, start = _numbers(np.concatenate(list(numbers.values()))), 0
        for name, a in numbers.items():
            out[name] = joint[start : (start := start + len(a))]
    return out


def dumps_with(document: Mapping[str, Any], name: str, columns: Mapping[str, list[str]], rows: slice) -> bytes:
    """Return the JSON text of an object with one more entry: some rows of columns that `cells` has written.

    Examples
    --------
    >>> dumps_with({"n": 1}, "columns", {"label": ['"a"', '"b"'], "score": ["0.25", "1.5"]}, slice(1, 2))
    b'{"n": 1, "columns": {"label": ["b"], "score": [1.5]}}'
    """
    lists = ", ".join([f'"{key}": [{", ".join(texts[rows])}]' for key, texts in columns.items()])
    return _encode(f'{_ENCODER.encode(document)[:-1]}, "{name}": {{{lists}}}}}')


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _texts(column: NDArray[Any]) -> list[str]:
    """Return the JSON text of every cell of one column."""
    values = plain(column) if column.dtype.kind == "O" else column.tolist()
    texts = _LINES.encode(values)[1:-1].split("\n")  # JSON has no line breaks of its own: texts hold them escaped
    return texts if len(texts) == len(values) else [_ENCODER.encode(value) for value in values]  # labels that are lists


def _numbers(column: NDArray[np.float64]) -> list[str]:
    """Return the JSON texts of numbers; Arrow finds the shortest digits of many in less than half of Python's time."""
    if len(column) < _MANY:
        return _texts(column)
    pa = require("pyarrow", extra="serve", feature="poscod serve")
    texts: list[str] = pa.array(column).cast(pa.string()).to_pylist()
    # Whole numbers would lose their point, and with it their type at many a reader; NaN is refused as ever.
    whole = np.flatnonzero(~(np.abs(np.modf(column)[0]) > 0.0))
    for i, text in zip(whole.tolist(), _texts(column[whole]), strict=True):
        texts[i] = text
    return texts


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


class Seldom:
    """Says events that an attacker can cause at will: each at most once in so many seconds, with the number of those left out."""

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._said: dict[str, float] = {}
        self._unsaid: Counter[str] = Counter()

    def say(self, event: str, **fields: Any) -> None:
        """Write one line about an event, unless it was said a moment ago."""
        now = time.monotonic()
        if now - self._said.get(event, -math.inf) < self._seconds:
            self._unsaid[event] += 1
            return
        self._said[event] = now
        say(event, **fields, unsaid=self._unsaid.pop(event, 0))


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
