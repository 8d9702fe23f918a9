# SPDX-License-Identifier: BSD-3-Clause
"""Run what is missing, in parallel, and put the long table together.

Convention: cells are pure and independent; each writes its own file, so that a run that is killed loses only what it was computing. One
process per core, one BLAS thread each. The table depends on the specification and the data alone: not on the order of work,
the number of processes or interruptions.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from poscod._validation import check_count
from poscod.benchmark._cells import (
    Cell,
    Stored,
    compute_cell,
    key_of,
    list_cells,
    missing_of,
    path_of,
    read_cell,
)
from poscod.benchmark._results import rows_of, write_results
from poscod.benchmark._sources import Source, open_source
from poscod.benchmark._spec import BenchmarkSpec
from poscod.exceptions import PoscodError

__all__ = ["BenchmarkError", "Finished", "run"]

Progress = Callable[[int, int, str], None]
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class BenchmarkError(PoscodError, RuntimeError):
    """Some cells could not be computed; the others are kept."""


class Finished(NamedTuple):
    """What a run did.

    Attributes
    ----------
    paths : list of Path
        The long table.
    computed, reused : int
        Cells computed now, and cells that were there.
    rows : int
        Rows of the table.
    cpu_seconds : float
        CPU time of all cells of the table, whenever they were computed.
    """

    paths: list[Path]
    computed: int
    reused: int
    rows: int
    cpu_seconds: float


def run(
    spec: BenchmarkSpec, out: str | os.PathLike[str], *, n_jobs: int = 1, progress: Progress | None = None
) -> Finished:
    """Compute the missing cells of a benchmark and write its long table.

    Parameters
    ----------
    spec : BenchmarkSpec
    out : str or path-like
        Folder; cells of earlier runs in it are used again where they are the same.
    n_jobs : int, default=1
        Processes. More than one need the usual ``if __name__ == "__main__"`` in a script.
    progress : callable, default=None
        Called as ``progress(done, total, what)`` after every cell.

    Returns
    -------
    finished : Finished

    Examples
    --------
    >>> import dataclasses, tempfile
    >>> from poscod.benchmark import read_results, read_spec
    >>> spec = dataclasses.replace(read_spec("digits"), scores=("msp",), ratios=("paper",), pis=(0.3,), seeds=(0,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run(spec, folder).computed, run(spec, folder).reused
    (4, 4)
    """
    n_jobs = check_count(n_jobs, "n_jobs")
    folder = Path(out)
    source = open_source(spec)
    cells = list_cells(spec, source.sets())
    hashes = {pair: source.data_hash(*pair) for pair in dict.fromkeys((cell.fold, cell.ood_set) for cell in cells)}
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    todo = [cell for cell in cells if missing_of(spec, cell, _stored(spec, cell, folder, hashes))]
    failures: list[str] = []
    for done, (cell, error) in enumerate(_computed(spec, source, todo, folder, hashes, n_jobs), 1):
        if error:
            failures.append(f"{_words(cell)}: {error}")
        if progress is not None:
            progress(done, len(todo), _words(cell))
    if failures:
        raise BenchmarkError(
            f"{len(failures)} of {len(cells)} cells could not be computed; the first is {failures[0]}. The others are kept: "
            "run again when the cause is gone."
        )
    stored = []
    for cell in cells:
        content = _stored(spec, cell, folder, hashes)
        assert content is not None
        stored.append((cell, hashes[cell.fold, cell.ood_set], content))
    rows = rows_of(spec, stored)
    seconds = sum(content.cpu_seconds for _, _, content in stored)
    return Finished(write_results(rows, folder), len(todo), len(cells) - len(todo), len(rows), seconds)


def _stored(spec: BenchmarkSpec, cell: Cell, folder: Path, hashes: dict[tuple[str, str], str]) -> Stored | None:
    return read_cell(path_of(folder, key_of(spec, cell, hashes[cell.fold, cell.ood_set])))


def _words(cell: Cell) -> str:
    where = [cell.fold, cell.ood_set, f"seed {cell.seed}", "" if cell.pi is None else f"pi {cell.pi:g}", cell.method]
    return ", ".join(part for part in where if part)


def _computed(
    spec: BenchmarkSpec,
    source: Source,
    todo: list[Cell],
    folder: Path,
    hashes: dict[tuple[str, str], str],
    n_jobs: int,
) -> Iterator[tuple[Cell, str]]:
    """Compute cells, yield each with its error or "" as it ends."""
    if n_jobs == 1 or len(todo) <= 1:
        with threadpool_limits(1):
            for cell in todo:
                yield cell, _attempt(spec, source, cell, folder, hashes[cell.fold, cell.ood_set])
        return
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))  # read when a new process loads its BLAS
    try:
        # Fresh processes: a fork of a process with BLAS threads may hang.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(n_jobs, context, initializer=_open, initargs=(spec, folder)) as executor:
            futures = {executor.submit(_work, cell, hashes[cell.fold, cell.ood_set]): cell for cell in todo}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BrokenProcessPool:
                raise BenchmarkError(
                    "A process of the run ended abruptly (killed, or out of memory: try fewer --jobs). Finished cells are kept: run again."
                ) from None
            finally:
                executor.shutdown(wait=False, cancel_futures=True)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_worker: dict[str, Any] = {}


def _open(spec: BenchmarkSpec, folder: Path) -> None:
    """Open the source once per process, and end with the process that started us, however it ends."""
    threading.Thread(target=_follow, daemon=True).start()
    _worker.update(spec=spec, folder=folder, source=open_source(spec))


def _follow() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nothing to save: files appear whole or not at all


def _work(cell: Cell, data_hash: str) -> str:
    return _attempt(_worker["spec"], _worker["source"], cell, _worker["folder"], data_hash)


def _attempt(spec: BenchmarkSpec, source: Source, cell: Cell, folder: Path, data_hash: str) -> str:
    try:
        compute_cell(spec, source, cell, folder, data_hash)
    except Exception as error:  # one bad cell must not take the others with it
        return f"{type(error).__name__}: {error}"
    return ""
