# SPDX-License-Identifier: BSD-3-Clause
"""Structured log lines: one JSON object per line on standard error, without payloads."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def say(event: str, **fields: Any) -> None:
    """Write one line."""
    stamp = time.time()
    day = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(stamp))
    line = json.dumps({"time": f"{day}.{int(stamp % 1 * 1000):03d}Z", "event": event, **fields})
    try:
        sys.stderr.write(line + "\n")  # one call per line: lines of several threads do not mix
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # nobody reads; a service does not stop for that


def where(error: BaseException) -> str:
    """Name an unexpected error by its type and place; its text may hold what a caller has sent."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__}{place}"
