# SPDX-License-Identifier: BSD-3-Clause
"""Where the work runs: an existing Dask cluster, or a local one that is started and closed here.

Convention: a pass is one graph of small results, reduced on the workers in a fixed order; what comes back to this process is one
number, one vector or some rows. A worker that dies loses nothing but time: its tasks run again elsewhere.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, final

from poscod._optional import require
from poscod._validation import check_count
from poscod.exceptions import InvalidInputError, PoscodError

EXTRA = "dask"
_POLL = 0.2
# Results that are merged in one task. The order of merging depends on the chunks alone, never on who was first.
_FAN_IN = 16

Progress = Callable[[str, int, int], Any]


class ClusterError(PoscodError):
    """The cluster could not finish a pass."""


def dask() -> Any:
    """Return the package dask, or say how to install it."""
    return require("dask", extra=EXTRA, feature="poscod.backends.dask")


def distributed() -> Any:
    """Return the package distributed, or say how to install it."""
    return require("distributed", extra=EXTRA, feature="poscod.backends.dask")


@final
class Cluster:
    """A Dask cluster to run passes on, as a context.

    Parameters
    ----------
    client : distributed.Client, default=None
        A connected client, which is left open. None takes the client that is current in this process, where there is one and no
        address is given.
    address : str, default=None
        Address of a running scheduler, e.g. "tcp://10.0.0.5:8786".
    n_workers : int, default=None
        Processes of a local cluster, which is started where neither client nor address is there, on 127.0.0.1 and without a
        dashboard, and closed with the block; None is one per processor.
    memory_limit : str or int, default="auto"
        Memory of each local worker; above it the worker is restarted and its tasks run again.
    retries : int, default=3
        How often a task that raised an error (a store that did not answer) is tried again. A worker that died is no error:
        the scheduler moves its tasks.
    progress : bool or callable, default=False
        True shows a bar on standard error; a callable gets (what, done, total) several times a second.

    Examples
    --------
    >>> Cluster(address="tcp://127.0.0.1:8786", n_workers=2)
    Traceback (most recent call last):
        ...
    poscod.exceptions.InvalidInputError: n_workers sizes a local cluster and address names a running one: give one of the two.
    """

    def __init__(
        self,
        client: Any = None,
        *,
        address: str | None = None,
        n_workers: int | None = None,
        memory_limit: str | int = "auto",
        retries: int = 3,
        progress: bool | Progress = False,
    ) -> None:
        if n_workers is not None and (client is not None or address is not None):
            other = "client" if client is not None else "address"
            raise InvalidInputError(
                f"n_workers sizes a local cluster and {other} names a running one: give one of the two."
            )
        if n_workers is not None:
            check_count(n_workers, "n_workers")
        self.retries = check_count(retries, "retries", 0)
        self.passes = 0
        self._given, self._address, self._n_workers, self._memory_limit = client, address, n_workers, memory_limit
        self._progress = progress
        self._local: Any = None
        self._bar: Any = None
        self.client: Any = None

    def __enter__(self) -> Cluster:
        package = distributed()
        client = self._given
        if client is None and self._address is None and self._n_workers is None:
            try:
                client = package.Client.current()
            except ValueError:
                client = None
        self._own = client is None
        if client is None and self._address is not None:
            try:
                client = package.Client(self._address, timeout="10s", set_as_default=False)
            except (OSError, ValueError) as error:
                raise ClusterError(
                    f"No Dask scheduler answers at {self._address} ({type(error).__name__}): start one with `dask scheduler`, "
                    "or leave the address out for a local cluster."
                ) from error
        elif client is None:
            self._local = package.LocalCluster(
                n_workers=self._n_workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                # Without an address Dask would offer its pages on port 8787 and on every network card.
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                memory_limit=self._memory_limit,
                silence_logs=logging.ERROR,
            )
            client = package.Client(self._local, set_as_default=False)
        self.client = client
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self._own:
            self.client.close()
            if self._local is not None:
                self._local.close()
        self.client = self._local = None

    def reduce(self, parts: Sequence[Any], merge: Callable[[list[Any]], Any], what: str) -> Any:
        """Run one pass: compute every part, merge neighbours in a fixed order, bring the last one here.

        Parameters
        ----------
        parts : sequence of dask Delayed
            One small result each.
        merge : callable
            List of results, in the order of the parts, to one result of the same kind.
        what : str
            What the pass is for, for the progress bar.

        Returns
        -------
        result : object
        """
        join = dask().delayed(merge, pure=False)
        level = [join(list(parts[i : i + _FAN_IN])) for i in range(0, len(parts), _FAN_IN)]
        watched = level
        while len(level) > 1:
            level = [join(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)]
        return self._run(level, watched, len(parts), what)[0]

    def collect(self, parts: Sequence[Any], what: str) -> list[Any]:
        """Run one pass and bring every part here, in order.

        Parameters
        ----------
        parts : sequence of dask Delayed
        what : str

        Returns
        -------
        results : list
        """
        return self._run(list(parts), list(parts), len(parts), what)

    def keep(self, parts: Sequence[Any]) -> list[Any]:
        """Start computing parts that stay in the memory of the workers until nothing refers to them.

        Parameters
        ----------
        parts : sequence of dask Delayed

        Returns
        -------
        parts : list of dask Delayed
            A part that is lost with its worker is computed again.
        """
        return list(self.client.persist(list(parts), retries=self.retries)) if parts else []

    def _run(self, wanted: list[Any], watched: list[Any], units: int, what: str) -> list[Any]:
        self.passes += 1
        futures = self.client.compute([*wanted, *watched], retries=self.retries)
        ends, seen = futures[: len(wanted)], futures[len(wanted) :]
        done = threading.Event()
        waiting = set(range(len(ends)))

        def finished(index: int) -> None:
            waiting.discard(index)
            if not waiting or ends[index].status != "finished":
                done.set()

        try:
            for index, future in enumerate(ends):
                future.add_done_callback(lambda _, index=index: finished(index))
            while ends and not done.wait(_POLL):
                self._report(what, sum(future.status == "finished" for future in seen), len(seen), units)
            self._report(what, len(seen), len(seen), units)
            return list(self.client.gather(ends))
        except BaseException as error:
            # An interrupt or an error ends the pass everywhere, not only here.
            self.client.cancel(futures, force=True)
            if isinstance(error, distributed().scheduler.KilledWorker):
                raise ClusterError(
                    f"A task of the pass '{what}' was lost with several workers in a row ({error.last_worker}): make the chunks "
                    "smaller or give the workers more memory."
                ) from error
            if "Cancelled" in type(error).__name__:
                raise ClusterError(f"The cluster dropped the pass '{what}': is the scheduler still running?") from error
            raise

    def _report(self, what: str, done: int, total: int, units: int) -> None:
        if not self._progress:
            return
        count = units if done == total else done * units // max(1, total)
        if callable(self._progress):
            self._progress(what, count, units)
            return
        if self._bar is None:
            self._bar = require("tqdm", extra=EXTRA, feature="A progress bar").tqdm(unit=" chunks", leave=False)
        self._bar.total = units
        self._bar.n = count
        self._bar.set_description(f"pass {self.passes}, {what}")
