# SPDX-License-Identifier: BSD-3-Clause
"""Threads of numpy, scipy and scikit-learn, limited for as long as small things are computed.

Convention: threads that share a small piece of work wait for each other longer than they compute, hundreds of times longer where the machine has
other work. Whoever works on so many numbers that threads pay gets all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

from threadpoolctl import ThreadpoolController

SERIAL_NUMBERS = {"blas": 2**24, "openmp": 2**20}
"""Up to so many numbers a library works with one thread."""


@cache
def _libraries(kind: Literal["blas", "openmp"]) -> list[Any]:
    """Look once which libraries have threads: each look takes milliseconds, and a service limits them hundreds of times a second."""
    return ThreadpoolController().select(user_api=kind).lib_controllers


@contextmanager
def one_thread(kind: Literal["blas", "openmp"]) -> Iterator[None]:
    """Let the libraries of a kind have one thread each inside ``with``.

    OpenMP keeps a number for each calling thread. That of BLAS is often one for the process: threadpoolctl lets the first thread that sets it rule, so
    that threads of ours that overlap do not leave it changed.
    """
    before = [library.get_num_threads() for library in _libraries(kind)]
    for library in _libraries(kind):
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, number in zip(_libraries(kind), before, strict=True):
            library.set_num_threads(number)


@contextmanager
def few_threads(numbers: int) -> Iterator[None]:
    """Let libraries work on so many numbers with one thread each, unless there are so many that threads pay."""
    if numbers > SERIAL_NUMBERS["blas"]:
        yield
        return
    with one_thread("blas"):
        if numbers > SERIAL_NUMBERS["openmp"]:
            yield
            return
        with one_thread("openmp"):
            yield
