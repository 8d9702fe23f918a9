# SPDX-License-Identifier: BSD-3-Clause
"""A thread that works off what requests leave behind, without ever making a request wait.

Convention: what is put waits in a bounded queue; what finds no room is dropped and counted. ``waiting`` counts rows until `handle` has
returned, so that nothing is out of sight while it is worked on.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Worker(Generic[Item]):
    """A bounded queue and the thread behind it, which takes up to `batch_rows` at a time, or what is there after `seconds`.

    The thread begins in `__init__`: a subclass calls it last.
    """

    def __init__(self, name: str, *, max_rows: int, batch_rows: int, seconds: float) -> None:
        self._max_rows, self._batch_rows, self._seconds = max_rows, min(batch_rows, max_rows), seconds
        self._items: deque[tuple[int, Item]] = deque()
        self._wake = threading.Condition()
        self._deadline: float | None = None
        self.waiting = self.dropped = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def handle(self, items: list[Item]) -> bool:
        """Work off some items; called by the thread, also without any, after every pause. False: there is no time left."""
        raise NotImplementedError

    @property
    def closing(self) -> bool:
        """Whether the end has begun."""
        return self._deadline is not None

    @property
    def late(self) -> bool:
        """Whether the time for the end is over."""
        return self._deadline is not None and time.monotonic() > self._deadline

    def put(self, rows: int, item: Item) -> bool:
        """Append an item of so many rows, or drop and count it."""
        with self._wake:
            if self.closing or self.waiting + rows > self._max_rows:
                self.dropped += rows
                return False
            self.waiting += rows
            self._items.append((rows, item))
            if self.waiting >= self._batch_rows:  # fewer rows wait for company: a batch costs the same
                self._wake.notify()
            return True

    def close(self, seconds: float) -> None:
        """Work off what waits, for at most so many seconds; what is left then is counted as dropped."""
        with self._wake:
            self._deadline = time.monotonic() + seconds
            self._wake.notify()
        self._thread.join(seconds + 1.0)
        with self._wake:
            self.dropped += self.waiting
            self.waiting = 0

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self.closing or self.waiting >= self._batch_rows, self._seconds)
                last, rows, items = self.closing, 0, []
                while self._items and rows < self._batch_rows:
                    n, item = self._items.popleft()
                    rows += n
                    items.append(item)
            if not self.handle(items):
                return
            with self._wake:
                self.waiting -= rows
                if last and not self._items:
                    return
