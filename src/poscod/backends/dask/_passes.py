# SPDX-License-Identifier: BSD-3-Clause
"""Passes over rows in chunks, on whatever Dask computes with now: the current client, or threads of this process.

Convention: a pass is one graph of small results, merged on the workers in a fixed order; what comes back to this process is one
number, one vector or some rows. A worker that dies loses nothing but time: its tasks run again elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from poscod._optional import require
from poscod.exceptions import PoscodError

EXTRA, FEATURE = "dask", "poscod.backends.dask"
# How often a task that raised an error (a store that did not answer) is tried again.
RETRIES = 3
# Results that are merged in one task. The order of merging depends on the chunks alone, never on who was first.
_FAN_IN = 16

Progress = Callable[[str, int, int], Any]


def dask() -> Any:
    """Return the package dask, or say how to install it."""
    return require("dask", extra=EXTRA, feature=FEATURE)


@dataclass(frozen=True)
class Passes:
    """Runs passes; `progress` gets (what, done, total) as they go on, on a cluster after every part."""

    progress: Progress | None = None

    def reduce(self, parts: Sequence[Any], merge: Callable[[list[Any]], Any], what: str) -> Any:
        """Compute every part, merge neighbours, and bring the last one here."""
        join = dask().delayed(merge, pure=False)
        watched = level = list(parts)
        while level is watched or len(level) > 1:
            level = [join(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return self._run(level, watched, what)[0]

    def collect(self, parts: Sequence[Any], what: str) -> list[Any]:
        """Compute every part and bring all of them here, in order."""
        return self._run(list(parts), list(parts), what)

    def _run(self, wanted: list[Any], watched: list[Any], what: str) -> list[Any]:
        self._tell(what, 0, len(watched))
        client = getattr(dask().base.get_scheduler(), "__self__", None)
        if client is None:
            found = list(dask().compute(*wanted))
            self._tell(what, len(watched), len(watched))
            return found
        distributed = require("distributed", extra=EXTRA, feature=FEATURE)
        futures = client.compute([*wanted, *watched], retries=RETRIES)
        try:
            seen = distributed.as_completed(futures[len(wanted) :])
            for done, future in enumerate(seen, start=1):
                if future.status != "finished":
                    break
                self._tell(what, done, len(watched))
            return list(client.gather(futures[: len(wanted)]))
        except BaseException as error:
            # An interrupt or an error ends the pass everywhere, not only here.
            client.cancel(futures, force=True)
            if isinstance(error, distributed.scheduler.KilledWorker):
                raise PoscodError(
                    f"A task of the pass '{what}' was lost with several workers in a row ({error.last_worker}): make the chunks "
                    "smaller or give the workers more memory."
                ) from error
            raise

    def _tell(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)
