# SPDX-License-Identifier: BSD-3-Clause
"""``--engine dask``: the same commands on tables that do not fit in memory.

Convention: tables are Parquet files, folders of them or locations of any fsspec store; columns are chosen, and rows are read from a
chunk, by the same code as for other tables; the model file is the same. A table of decisions is a folder of Parquet files, one per chunk,
in the order of the rows.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._optional import require
from poscod._validation import check_choice, check_count
from poscod.backends.dask import Chunks, DaskLog, Passes, counted, fit, read_chunks, write_parquet
from poscod.cli._arrow import open_parquet, sentences
from poscod.cli._columns import Block, Column, Table, arrow, arrow_kind
from poscod.cli._console import Console
from poscod.cli._fresh import Judged, read_fresh, reused_rows
from poscod.cli._inputs import measured, read_rows, rows_of
from poscod.cli._rules import compare_rules
from poscod.cli._tables import FORMATS, open_table
from poscod.exceptions import InvalidInputError
from poscod.model import POSCOD, Schema, explained

ENGINES: dict[str, str] = {"memory": "this process", "dask": "a Dask cluster"}
"""Where a command computes."""


def add_engine_options(parser: argparse.ArgumentParser, *, sample: bool = False) -> None:
    """Add ``--engine`` and what goes with it."""
    group = parser.add_argument_group("tables that do not fit in memory")
    group.add_argument(
        "--engine", default="memory", help="memory, or dask for Parquet files of any size (default: memory)"
    )
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="running Dask scheduler, e.g. tcp://10.0.0.5:8786 (default: a cluster of local processes)",
    )
    group.add_argument("--jobs", type=int, metavar="N", help="processes of a local cluster (default: all processors)")
    group.add_argument("--workers", dest="jobs", type=int, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    if sample:
        group.add_argument(
            "--sample-rows",
            type=int,
            metavar="N",
            help="with dask, train what needs its rows in memory (a classifier, --ratio strong) on so many rows drawn at random",
        )


def on_dask(args: argparse.Namespace) -> bool:
    """Tell whether a command runs on Dask, and refuse options that then mean nothing."""
    engine = check_choice(args.engine, "--engine", {name: name for name in ENGINES})
    if engine == "memory":
        given = [n for n in ("scheduler", "jobs", "sample_rows") if getattr(args, n, None) is not None]
        if given:
            raise InvalidInputError(
                f"--{given[0].replace('_', '-')} belongs to --engine dask: add it, or leave both out."
            )
        return False
    if args.jobs is not None:
        check_count(args.jobs, "--jobs")
        if args.scheduler is not None:
            raise InvalidInputError(
                "--jobs sizes a local cluster and --scheduler names a running one: give one of the two."
            )
    return True


@contextmanager
def open_cluster(args: argparse.Namespace, console: Console) -> Iterator[Passes]:
    """Connect to the cluster that the options ask for; a local one is started, and closed with the block."""
    distributed = require("distributed", extra="dask", feature="--engine dask")
    with ExitStack() as stack:
        where = args.scheduler
        if where is None:
            local = distributed.LocalCluster(
                n_workers=args.jobs,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                # Without an address Dask would offer its pages on port 8787 and on every network card.
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.ERROR,
            )
            where = stack.enter_context(local)
        try:
            client = distributed.Client(where, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"No Dask scheduler answers at {where} ({type(error).__name__}): start one with `dask scheduler`, or leave --scheduler "
                "out for a local cluster."
            ) from error
        stack.enter_context(client)
        stack.enter_context(client.as_current())
        yield Passes(stack.enter_context(_shown()) if console.live else None)


@contextmanager
def _shown() -> Iterator[Callable[[str, int, int], Any]]:
    """Show the running pass on standard error."""
    tqdm = require("tqdm", extra="dask", feature="Showing progress").tqdm
    with tqdm(unit=" chunks", leave=False) as bar:

        def show(what: str, done: int, total: int) -> None:
            bar.total, bar.n = total, done
            bar.set_description(what)

        yield show


class FrameTable(Table):
    """Parquet files as a Dask frame, with the columns of a table; `path` is a file, folder, glob or URL."""

    def __init__(self, path: str, passes: Passes) -> None:
        frames = require("dask.dataframe", extra="dask", feature="--engine dask")
        other = Path(path).suffix.lower()
        if other in FORMATS and other != ".parquet":
            raise InvalidInputError(
                f"--engine dask reads Parquet files and folders of them, got '{path}': write it as Parquet, or leave --engine out."
            )
        if "://" not in path and not Path(path).exists() and "*" not in path:
            raise InvalidInputError(f"{path} does not exist: --engine dask reads Parquet files and folders of them.")
        if Path(path).is_file():  # Dask's own words for two columns of one name say nothing
            open_parquet(Path(path), [Path(path)], whole=False)
        with sentences(Path(path), "Parquet"):
            # Arrow columns: a list of each row would become an object otherwise.
            self.frame = frames.read_parquet(path, dtype_backend="pyarrow")
        columns = [_column(str(name), dtype) for name, dtype in self.frame._meta.dtypes.items()]
        super().__init__(Path(path), columns, None)
        self.passes = passes

    def read(self, columns: Iterable[str] | None = None) -> Block:
        """Bring some columns of all rows here, such as the labels."""
        names = self.need(self.columns if columns is None else columns)
        parts = self.passes.collect(self.frame[names].to_delayed(), "columns")
        pandas = require("pandas", extra="dask", feature="--engine dask")
        return _block(pandas.concat(parts), names, str(self.path))

    def take(self, columns: Iterable[str], rows: NDArray[np.int64]) -> Block:
        """Bring some rows here."""
        names = list(dict.fromkeys(self.need(columns)))
        order = np.argsort(rows, kind="stable")
        found = counted(self.frame[names].to_delayed(), None, str(self.path), self.passes).pick(rows[order])
        frame = found.bring(self.passes, "rows").iloc[np.argsort(order)] if len(rows) else self.frame[names]._meta
        return _block(frame, names, str(self.path))

    def rows(self, schema: Schema) -> Chunks:
        """Return the input of a model in chunks: matrices, or `Activations` with an outside classifier."""
        schema.check(self.columns, self.path)
        parts = self.frame[list(dict.fromkeys(schema.names))].to_delayed()
        found = counted(parts, None, str(self.path), self.passes)
        first = found.map(_no_rows, schema, str(self.path)).parts[:1]
        like = self.passes.collect(first, "columns")[0]
        starts = found.starts.tolist()
        return found.map(_read_part, measured(schema, like), str(self.path), each=(starts,), like=like)


class Logs(NamedTuple):
    """How logs are opened, and how their rows are read for `poscod.review`."""

    open: Callable[[str], Table]
    read: Callable[[Schema, Any], Any]


@contextmanager
def logs_for(args: argparse.Namespace, console: Console) -> Iterator[Logs]:
    """Say how a command reads logs: into memory, or in chunks on the cluster that its options ask for."""
    if not on_dask(args):
        yield Logs(partial(open_table, whole=True), read_rows)
        return
    with open_cluster(args, console) as passes:
        yield Logs(
            lambda path: FrameTable(path, passes),
            lambda schema, table: DaskLog(table.rows(schema), passes.progress),
        )


def _column(name: str, dtype: Any) -> Column:
    """Return a column as Arrow describes it; texts and the names of folders have a type of pandas."""
    found = getattr(dtype, "pyarrow_dtype", None)
    return Column(name, "text") if found is None else Column(name, *arrow_kind(found))


def _block(frame: Any, names: Sequence[str], source: str, start: int = 0) -> Block:
    """Return columns of a pandas frame as a block of a table."""
    return Block(arrow().Table.from_pandas(frame[list(dict.fromkeys(names))], preserve_index=False), source, start)


def _no_rows(frame: Any, schema: Schema, source: str) -> Any:
    return rows_of(schema, _block(frame[:1], schema.names, source))[:0]


def _read_part(frame: Any, start: int, schema: Schema, source: str) -> Any:
    return rows_of(schema, _block(frame, schema.names, source, start))


def fit_on_dask(
    args: argparse.Namespace,
    model: Any,
    schema: Schema,
    tables: tuple[FrameTable, FrameTable],
    y: Any,
    passes: Passes,
    reader: Callable[[Schema], dict[str, Any]],
) -> tuple[POSCOD, int]:
    """Fit a model on Dask tables, and on reviewed rows that a reader brings; return it, with its columns, and the number of unlabeled rows."""
    X = tables[0].rows(schema)
    schema = measured(schema, X.like)
    traffic = tables[1].rows(schema)
    fitted = fit(model, X, y, traffic, **reader(schema), sample_rows=args.sample_rows, progress=passes.progress)
    return fitted.with_schema(schema), len(traffic)


def predict_on_dask(
    model: POSCOD, table: FrameTable, schema: Schema, kept: list[str], args: argparse.Namespace, columns_of: Any
) -> Counter[str]:
    """Decide on the rows of a Dask table and write a folder of Parquet files."""
    dask = require("dask", extra="dask", feature="--engine dask")
    parts = (model.scorer_, model.rule_, model.reject_label, args.explain)
    shared = dask.delayed((*parts, schema, kept, args.prefix, columns_of, str(table.path)), traverse=False)
    frame = table.frame[list(dict.fromkeys([*kept, *schema.names]))]
    lazy = frame.map_partitions(_decide_part, shared, meta=frame._meta, enforce_metadata=False)
    return write_parquet(lazy, args.output, table.passes, count=f"{args.prefix}reason", index=False)


def _decide_part(frame: Any, shared: tuple[Any, ...]) -> Any:
    """Decide on one chunk; the order and the index of the rows stay."""
    scorer, rule, reject_label, explain, schema, kept, prefix, columns_of, path = shared
    if not len(frame):
        return frame[kept].assign(**{f"{prefix}reason": ""})
    rows = rows_of(schema, _block(frame, schema.names, f"a chunk of {path}"))
    decisions = rule.decide(scorer.scored(rows, rule.problem.loss))
    added = columns_of(explained(scorer, schema, rows, decisions) if explain else decisions, schema, reject_label)
    pandas = require("pandas", extra="dask", feature="--engine dask")
    named = pandas.DataFrame({prefix + name: values for name, values in added.items()}, index=frame.index)
    return pandas.concat([frame[kept], named], axis=1)


def evaluate_on_dask(args: argparse.Namespace, model: POSCOD, passes: Passes) -> Judged:
    """Measure a model and its rivals on Dask tables: rates from counts of all rows, areas from a uniform sample of them."""
    fresh = read_fresh(
        args, model, opener=lambda path: FrameTable(path, passes), reader=lambda schema, table: table.rows(schema)
    )
    rows, y = fresh.rows, fresh.y
    sample = read_chunks(model, rows, y, passes, pi=args.pi, level=args.level, class_mix=args.class_mix)
    rules = compare_rules(sample, measure=lambda rule, _: sample.measured[rule.name])
    logs = {name: DaskLog(chunks, passes.progress).seen_by(model) for name, chunks in rows.items() if name != "ood"}
    return Judged(model, sample, rules, reused_rows(model, {name: log.keys() for name, log in logs.items()}))
