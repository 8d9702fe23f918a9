# SPDX-License-Identifier: BSD-3-Clause
"""The decision log: what was decided, written by a thread of its own.

Convention: a request only appends to the queue of a `Worker`. The writer retries with growing pauses while its sink fails, for as
long as the service lives. ``written + dropped + waiting`` is what was decided; written is what the sink has stored.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass
from datetime import datetime, timezone

from poscod.decision import Decisions
from poscod.serve._say import say
from poscod.serve._sinks import Rows, Sink
from poscod.serve._worker import Worker

# Pauses of the writer after a failure, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE, _LAST_PAUSE = 0.25, 15.0, 0.1


@dataclass(frozen=True, eq=False)
class Entry:
    """Decisions of one request: when, its name, the caller's names of the rows, what was decided, hash of the model file."""

    time: float
    request_id: str
    ids: list[str] | None
    decisions: Decisions
    model: str


class DecisionLog(Worker[Entry]):
    """Writes entries to a sink; at most `max_rows` rows wait."""

    def __init__(self, sink: Sink, max_rows: int) -> None:
        self._sink = sink
        self._run, self._number = secrets.token_hex(6), 0
        self.written = self.failures = 0
        self.error: str | None = None
        # While a full batch is written, at least as many rows find room.
        batch = max(1, min(sink.batch_rows, max_rows // 2))
        super().__init__("poscod-log", max_rows=max_rows, batch_rows=batch, seconds=sink.seconds)

    def add(self, entry: Entry) -> None:
        """Append an entry, or drop and count it."""
        first = self.dropped == 0
        if not self.put(len(entry.decisions), entry) and first:
            say("log-full", sentence="The decision log is full: rows are dropped from now on and counted.")

    def close(self, seconds: float) -> None:
        """Write what waits, for at most so many seconds."""
        super().close(seconds)
        with contextlib.suppress(Exception):  # a database may raise anything
            self._sink.close()
        say("log-closed", written=self.written, dropped=self.dropped)

    def handle(self, items: list[Entry]) -> bool:
        """Write a batch, however long it takes; False where time is up."""
        rows, pause = self._rows(items), _FIRST_PAUSE
        while rows:
            try:
                self._sink.write(rows)
                break
            except Exception as error:  # a database may raise anything
                self.failures += 1
                if self.error is None:
                    say("log-failing", error=type(error).__name__, waiting=self.waiting)
                self.error = type(error).__name__
            if self.late:
                return False
            with self._wake:
                # New entries wake nobody here: only the end of the service cuts a pause short.
                self._wake.wait_for(lambda: self.closing, pause)
            if self.closing:
                time.sleep(_LAST_PAUSE)
            pause = min(2.0 * pause, _LONGEST_PAUSE)
        if rows and self.error is not None:
            say("log-resumed", waiting=self.waiting, dropped=self.dropped)
            self.error = None
        self.written += len(rows)
        return True

    def _rows(self, entries: list[Entry]) -> Rows:
        rows: Rows = []
        for entry in entries:
            moment = datetime.fromtimestamp(entry.time, timezone.utc)
            columns = entry.decisions.to_dict()
            for row, values in enumerate(zip(*columns.values(), strict=True)):
                key = {
                    "run": self._run,
                    "number": self._number,
                    "time": moment,
                    "request_id": entry.request_id,
                    "row": row,
                }
                decision = dict(zip(columns, values, strict=True))
                decision["label"] = str(decision["label"])
                rows.append({**key, "id": entry.ids and entry.ids[row], **decision, "model": entry.model})
                self._number += 1
        return rows
