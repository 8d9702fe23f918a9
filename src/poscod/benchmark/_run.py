# SPDX-License-Identifier: BSD-3-Clause
"""Run what is missing, in parallel, and put the long table together.

Convention: cells are pure and independent; each writes its own file, so that a run that is killed loses only what it was computing. One
process per core, one BLAS thread each. The table depends on the specification and the data alone: not on the order of work,
the number of processes or interruptions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from joblib import Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from poscod._validation import check_count
from poscod.benchmark._cells import Cell, Stored, cells_of, compute_cell, key_of, missing_of, path_of, read_cell
from poscod.benchmark._results import rows_of, write_results
from poscod.benchmark._sources import open_source
from poscod.benchmark._spec import BenchmarkSpec
from poscod.exceptions import PoscodError

Progress = Callable[[int, int, str], None]


class BenchmarkError(PoscodError, RuntimeError):
    """Some cells could not be computed; the others are kept."""


class Finished(NamedTuple):
    """What a run did.

    Attributes
    ----------
    path : Path
        The long table.
    computed, reused : int
        Cells computed now, and cells that were there.
    rows : int
        Rows of the table.
    cpu_seconds : float
        CPU time of all cells of the table, whenever they were computed.
    """

    path: Path
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
        What to run.
    out : str or path-like
        Folder; cells of earlier runs in it are used again where they are the same.
    n_jobs : int, default=1
        Processes.
    progress : callable, default=None
        Called as ``progress(done, total, what)`` after every cell.

    Returns
    -------
    finished : Finished
        ``path`` of the long table, how many cells were ``computed`` and ``reused``, its ``rows``, and ``cpu_seconds``.

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
    cells = list(cells_of(spec, source.sets()))
    hashes = {pair: source.data_hash(*pair) for pair in dict.fromkeys((cell.fold, cell.ood_set) for cell in cells)}
    places = {cell: path_of(folder, key_of(spec, cell, hashes[cell.fold, cell.ood_set])) for cell in cells}
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    todo = [cell for cell in cells if missing_of(spec, cell, read_cell(places[cell]))]
    failures: list[str] = []
    for done, (cell, error) in enumerate(_computed(spec, todo, folder, hashes, n_jobs), 1):
        if error:
            failures.append(f"{_words(cell)}: {error}")
        if progress is not None:
            progress(done, len(todo), _words(cell))
    if failures:
        raise BenchmarkError(
            f"{len(failures)} of {len(cells)} cells could not be computed; the first is {failures[0]}. The others are kept: "
            "run again when the cause is gone."
        )
    stored = [(cell, hashes[cell.fold, cell.ood_set], _whole(place)) for cell, place in places.items()]
    rows = rows_of(spec, stored)
    seconds = sum(content.cpu_seconds for _, _, content in stored)
    return Finished(write_results(rows, folder), len(todo), len(cells) - len(todo), len(rows), seconds)


def _whole(place: Path) -> Stored:
    content = read_cell(place)
    if content is None:
        raise BenchmarkError(f"{place} was computed and is gone: run again.")
    return content


def _words(cell: Cell) -> str:
    where = [cell.fold, cell.ood_set, f"seed {cell.seed}", "" if cell.pi is None else f"pi {cell.pi:g}", cell.method]
    return ", ".join(part for part in where if part)


def _computed(
    spec: BenchmarkSpec, todo: list[Cell], folder: Path, hashes: dict[tuple[str, str], str], n_jobs: int
) -> Iterator[tuple[Cell, str]]:
    """Compute cells, yield each with its error or "" as it ends."""
    jobs = (delayed(_attempt)(spec, cell, folder, hashes[cell.fold, cell.ood_set]) for cell in todo)
    # Workers whose run was killed end within a minute of their last cell, not after five.
    with threadpool_limits(1), parallel_config("loky", inner_max_num_threads=1, idle_worker_timeout=10):
        try:
            yield from Parallel(min(n_jobs, len(todo) or 1), return_as="generator_unordered", batch_size=1)(jobs)
        except BrokenProcessPool:
            raise BenchmarkError(
                "A process of the run ended abruptly (killed, or out of memory: try fewer --jobs). Finished cells are kept: run again."
            ) from None


def _attempt(spec: BenchmarkSpec, cell: Cell, folder: Path, data_hash: str) -> tuple[Cell, str]:
    try:
        compute_cell(spec, cell, folder, data_hash)
    except Exception as error:  # one bad cell must not take the others with it
        return cell, f"{type(error).__name__}: {error}"
    return cell, ""
