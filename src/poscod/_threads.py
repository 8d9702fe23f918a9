# SPDX-License-Identifier: BSD-3-Clause
"""Threads of numpy, scipy and scikit-learn, limited for as long as small things are computed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Literal

from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    """Look once which libraries have threads: each look takes milliseconds, and a fit limits them twenty times."""
    return ThreadpoolController()


def threads(limit: int | None, library: Literal["blas", "openmp"]) -> AbstractContextManager[Any]:
    """Let a library have so many threads inside ``with``; None changes nothing."""
    return _libraries().limit(limits=limit, user_api=library)
