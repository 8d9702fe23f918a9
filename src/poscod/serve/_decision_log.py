# SPDX-License-Identifier: BSD-3-Clause
"""The decision log: a bounded queue and one writer thread.

Convention: a request only ever appends to the queue; if there is no room, its rows are dropped and counted. The writer retries with
growing pauses while its sink fails, for as long as the service lives. ``written + dropped + waiting`` is what was decided;
written is what the sink has stored, not what it holds.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np

from poscod.decision import Decisions
from poscod.serve._lines import say
from poscod.serve._sinks import Columns, Sink, text_labels

__all__ = ["DecisionLog", "Entry"]

# Rows per transaction; how long the writer waits for more; its pauses after a failure.
_BATCH_ROWS, _PATIENCE, _FIRST_PAUSE, _LONGEST_PAUSE = 5_000, 0.5, 0.25, 15.0


@dataclass(frozen=True, eq=False)
class Entry:
    """Decisions of one request.

    Parameters
    ----------
    time : float
        Seconds since 1970.
    request_id : str
    ids : list of str or None
    decisions : Decisions
    model : str
        Hash of the model file.
    """

    time: float
    request_id: str
    ids: list[str] | None
    decisions: Decisions
    model: str


class DecisionLog:
    """Writes entries to a sink without ever making a request wait.

    Parameters
    ----------
    sink : Sink
    max_rows : int
        Rows that may wait.
    """

    def __init__(self, sink: Sink, max_rows: int) -> None:
        self._sink, self._max_rows = sink, max_rows
        self._entries: deque[Entry] = deque()
        self._wake = threading.Condition()
        self._run, self._number = secrets.token_hex(6), 0
        self._deadline: float | None = None
        self._queued = self._held = self.written = self.dropped = self.failures = 0
        self.error: str | None = None
        self._thread = threading.Thread(target=self._work, name="poscod-log", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows that are not stored yet: in the queue, or held by the sink."""
        return self._queued + self._held

    def put(self, entries: Sequence[Entry]) -> None:
        """Append entries, or drop and count them; never waits for the sink."""
        with self._wake:
            for entry in entries:
                rows = len(entry.decisions)
                if self._queued + rows > self._max_rows or self._deadline is not None:
                    if self.dropped == 0:
                        say("log-full", sentence="The decision log is full: rows are dropped from now on and counted.")
                    self.dropped += rows
                    continue
                self._queued += rows
                self._entries.append(entry)
            if self._queued >= _BATCH_ROWS:  # fewer rows wait for company: a transaction costs the same
                self._wake.notify()

    def close(self, seconds: float) -> None:
        """Write what waits, for at most so many seconds; what is left then is counted as dropped."""
        with self._wake:
            self._deadline = time.monotonic() + seconds
            self._wake.notify()
        self._thread.join(seconds + 1.0)
        with self._wake:
            self.dropped += self.waiting
            self._queued = self._held = 0
        say("log-closed", written=self.written, dropped=self.dropped)

    def _closing(self) -> bool:
        return self._deadline is not None

    def _late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _work(self) -> None:
        while True:
            taken = self._take()
            if taken and not self._persist(self._columns(taken)):
                return
            if not taken and self._closing():
                break
            self._attempt(self._sink.tick)
            self._settle()
        while not self._attempt(self._sink.close) and not self._late():
            time.sleep(_FIRST_PAUSE)
        self._settle()

    def _take(self) -> list[Entry]:
        """Wait a little for entries and return a batch of them."""
        with self._wake:
            if self._queued < _BATCH_ROWS and not self._closing():
                self._wake.wait(_PATIENCE)
            taken: list[Entry] = []
            rows = 0
            while self._entries and rows < _BATCH_ROWS:
                taken.append(self._entries.popleft())
                rows += len(taken[-1].decisions)
            return taken

    def _columns(self, entries: list[Entry]) -> Columns:
        columns: dict[str, list[Any]] = {
            name: [] for name in ("run", "number", "time", "request_id", "row", "id", "label")
        }
        for entry in entries:
            n = len(entry.decisions)
            moment = datetime.fromtimestamp(entry.time, timezone.utc)
            for name, values in (
                ("run", [self._run] * n),
                ("number", range(self._number, self._number + n)),
                ("time", [moment] * n),
                ("request_id", [entry.request_id] * n),
                ("row", range(n)),
                ("id", [None] * n if entry.ids is None else entry.ids),
                ("label", text_labels(entry.decisions.label)),
            ):
                columns[name].extend(values)
            self._number += n
        for name in ("accept", "reason", "risk", "log_ratio", "score"):
            columns[name] = np.concatenate([getattr(entry.decisions, name) for entry in entries]).tolist()
        columns["model"] = [entry.model for entry in entries for _ in range(len(entry.decisions))]
        return columns

    def _persist(self, columns: Columns) -> bool:
        """Write a batch, however long it takes; False where time is up."""
        n, pause = len(columns["run"]), _FIRST_PAUSE
        while not self._attempt(lambda: self._sink.write(columns)):
            if self._late():
                return False
            with self._wake:
                # New entries wake nobody here: only the end of the service cuts a pause short.
                self._wake.wait_for(self._closing, 0.1 if self._closing() else pause)
            if self._closing():
                time.sleep(0.1)
            pause = min(2.0 * pause, _LONGEST_PAUSE)
        self._settle(n)
        return True

    def _settle(self, taken: int = 0) -> None:
        """Count what the sink has stored, after it took so many rows from the queue."""
        with self._wake:
            held = self._sink.held
            self.written += self._held + taken - held
            self._queued -= taken
            self._held = held

    def _attempt(self, action: Any) -> bool:
        try:
            action()
        except Exception as error:  # a database may raise anything
            self.failures += 1
            if self.error is None:
                say("log-failing", error=type(error).__name__, waiting=self.waiting)
            self.error = type(error).__name__
            return False
        if self.error is not None and self._sink.held == 0:  # to take rows is not to store them
            say("log-resumed", waiting=self.waiting, dropped=self.dropped)
            self.error = None
        return True
