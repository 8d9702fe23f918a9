# SPDX-License-Identifier: BSD-3-Clause
"""``--engine dask``: the same commands on tables beyond one memory.

Convention: tables are Parquet files, folders of them or locations of any fsspec store; columns are chosen, and rows are read from a
chunk, by the same code as for other tables; the model file is the same. A table of decisions is a folder of Parquet files, one per chunk, in the order of the rows.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from poscod._optional import require
from poscod._validation import check_choice
from poscod.cli._arrow import sentences
from poscod.cli._columns import Block, Column, Table, arrow, arrow_kind
from poscod.cli._console import Console
from poscod.cli._fresh import read_fresh
from poscod.cli._inputs import measured, rows_of
from poscod.cli._rules import compare_rules
from poscod.cli._tables import FORMATS
from poscod.exceptions import InvalidInputError
from poscod.model import POSCOD, Schema

ENGINES: dict[str, str] = {"memory": "this process", "dask": "a Dask cluster"}
"""Where a command computes."""


def add_engine_options(parser: argparse.ArgumentParser, *, sample: bool = False) -> None:
    """Add ``--engine`` and what goes with it."""
    group = parser.add_argument_group("beyond one memory")
    group.add_argument(
        "--engine", default="memory", help="memory, or dask for Parquet files of any size (default: memory)"
    )
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="running Dask scheduler, e.g. tcp://10.0.0.5:8786 (default: a cluster of local processes)",
    )
    group.add_argument(
        "--workers", type=int, metavar="N", help="processes of a local cluster (default: all processors)"
    )
    if sample:
        group.add_argument(
            "--sample-rows",
            type=int,
            metavar="N",
            help="with dask, train what needs its rows in one memory (a classifier, --ratio strong) on so many rows drawn at random",
        )


def on_dask(args: argparse.Namespace) -> bool:
    """Tell whether a command runs on Dask, and refuse options that then mean nothing."""
    engine = check_choice(args.engine, "--engine", {name: name for name in ENGINES})
    if engine == "memory":
        given = [n for n in ("scheduler", "workers", "sample_rows") if getattr(args, n, None) is not None]
        if given:
            raise InvalidInputError(
                f"--{given[0].replace('_', '-')} belongs to --engine dask: add it, or leave both out."
            )
    if engine == "dask" and getattr(args, "output", None) == "-":
        raise InvalidInputError("--engine dask writes a folder of Parquet files: give its name instead of -.")
    return engine == "dask"


def open_cluster(args: argparse.Namespace, console: Console) -> Any:
    """Return the cluster that the options ask for; progress where the console shows any."""
    from poscod.backends.dask import Cluster

    return Cluster(address=args.scheduler, n_workers=args.workers, progress=console.live)


class FrameTable(Table):
    """Parquet files as a Dask frame, with the columns of a table.

    Parameters
    ----------
    path : str
        File, folder, glob or URL.
    cluster : Cluster
    """

    def __init__(self, path: str, cluster: Any) -> None:
        frames = require("dask.dataframe", extra="dask", feature="--engine dask")
        other = Path(path).suffix.lower()
        if other in FORMATS and other != ".parquet":
            raise InvalidInputError(
                f"--engine dask reads Parquet files and folders of them, got '{path}': write it as Parquet, or leave --engine out."
            )
        if "://" not in path and not Path(path).exists() and "*" not in path:
            raise InvalidInputError(f"{path} does not exist: --engine dask reads Parquet files and folders of them.")
        with sentences(Path(path), "Parquet"):
            self.frame = frames.read_parquet(path)
            known = _columns_of(path)
        dtypes = self.frame._meta.dtypes
        columns = [known.get(str(name), Column(str(name), _kind(dtype))) for name, dtype in dtypes.items()]
        super().__init__(Path(path), columns, None)
        self._source, self._cluster = path, cluster

    def read(self, columns: Iterable[str] | None = None) -> Block:
        """Bring some columns of all rows here, such as the labels."""
        names = self.need(self.columns if columns is None else columns)
        parts = self._cluster.collect(self.frame[names].to_delayed(), "columns")
        pandas = require("pandas", extra="dask", feature="--engine dask")
        return _block(pandas.concat(parts), names, str(self.path))

    def rows(self, schema: Schema) -> Any:
        """Return the input of a model in chunks: matrices, or `Activations` with an outside classifier."""
        from poscod.backends.dask._chunks import Chunks, counted

        schema.check(self.columns, self.path)
        dask = require("dask", extra="dask", feature="--engine dask")
        # Arrow columns: a list of each row would become an object. All at once: of another selection Dask may make other parts.
        frame = require("dask.dataframe", extra="dask", feature="--engine dask").read_parquet(
            self._source, columns=list(dict.fromkeys(schema.names)), dtype_backend="pyarrow"
        )
        every = tuple(frame.to_delayed())
        counts = counted(every, str(self.path), self._cluster)
        parts = [part for part, n in zip(every, counts, strict=True) if n]
        lengths = tuple(n for n in counts if n)
        if not parts:
            raise InvalidInputError(f"{self.path} has no rows: it needs at least one.")
        none = dask.delayed(_no_rows, pure=False)
        like = self._cluster.collect([none(parts[0], dask.delayed(schema, traverse=False), str(self.path))], "columns")[
            0
        ]
        shared = dask.delayed((measured(schema, like), str(self.path)), pure=False, traverse=False)
        read = dask.delayed(_read_part, pure=False)
        starts = np.cumsum([0, *lengths]).tolist()
        made = tuple(read(part, shared, start) for part, start in zip(parts, starts, strict=False))
        return Chunks(made, lengths, like)


def _columns_of(path: str) -> dict[str, Column]:
    """Return the columns as the files describe them: a frame does not tell lists from other objects."""
    store, target = require("fsspec.core", extra="dask", feature="--engine dask").url_to_fs(path)
    found = sorted(store.glob(target)) if "*" in target else target
    schema = arrow("pyarrow.dataset").dataset(found, filesystem=store, format="parquet").schema
    return {field.name: Column(field.name, *arrow_kind(field.type)) for field in schema}


def _kind(dtype: Any) -> str:
    """Return the kind of a column that is in no file, such as the name of a folder."""
    return {"f": "number", "i": "number", "u": "number", "b": "bool"}.get(str(getattr(dtype, "kind", "O")), "text")


def _block(frame: Any, names: Sequence[str], source: str, start: int = 0) -> Block:
    """Return columns of a pandas frame as a block of a table."""
    return Block(arrow().Table.from_pandas(frame[list(dict.fromkeys(names))], preserve_index=False), source, start)


def _no_rows(frame: Any, schema: Schema, source: str) -> Any:
    return rows_of(schema, _block(frame[:1], schema.names, source))[:0]


def _read_part(frame: Any, shared: tuple[Schema, str], start: int) -> Any:
    schema, source = shared
    return rows_of(schema, _block(frame, schema.names, source, start))


def fit_on_dask(
    args: argparse.Namespace, model: Any, schema: Schema, tables: tuple[FrameTable, FrameTable], y: Any, cluster: Any
) -> tuple[POSCOD, int]:
    """Fit a model on Dask tables; return it, with its columns, and the number of unlabeled rows."""
    from poscod.backends.dask import fit

    X = tables[0].rows(schema)
    schema = measured(schema, X.like)
    traffic = tables[1].rows(schema)
    fitted = fit(model, X, y, traffic, cluster=cluster, sample_rows=args.sample_rows)
    return fitted.with_schema(schema), len(traffic)


def predict_on_dask(
    model: POSCOD, table: FrameTable, schema: Schema, kept: list[str], args: argparse.Namespace, columns_of: Any
) -> Counter[str]:
    """Decide on the rows of a Dask table and write a folder of Parquet files."""
    from poscod.backends.dask._decide import decider, write_parquet

    dask = require("dask", extra="dask", feature="--engine dask")
    source = f"a chunk of {table.path}"
    shared = dask.delayed((decider(model), schema, kept, args.prefix, columns_of, source), pure=False, traverse=False)
    sample = table.frame._meta_nonempty[list(dict.fromkeys([*kept, *schema.names]))]
    lazy = table.frame[list(sample.columns)].map_partitions(
        _decide_part, shared, meta=sample[:0], enforce_metadata=False
    )
    return write_parquet(lazy, args.output, table._cluster, count=f"{args.prefix}reason")


def evaluate_on_dask(
    args: argparse.Namespace, model: POSCOD, cluster: Any
) -> tuple[POSCOD, Any, list[dict[str, Any]], Any]:
    """Measure a model and its competitors on Dask tables."""
    from poscod.backends.dask import _evaluate

    fresh = read_fresh(
        args, model, opener=lambda path: FrameTable(path, cluster), reader=lambda schema, table: table.rows(schema)
    )
    rows, y = fresh.rows, fresh.y
    sample = _evaluate.read_chunks(model, rows, y, cluster, pi=args.pi, level=args.level)
    rules = compare_rules(sample, measure=_evaluate.measure_rule)
    found = None
    if "unlabeled" in rows:
        found = _evaluate.check_ratio_chunks(model, rows["id"], y, rows["unlabeled"], cluster, level=args.level)
    return model, sample, rules, found


def _decide_part(frame: Any, shared: tuple[Any, ...]) -> Any:
    """Decide on one chunk; the order and the index of the rows stay."""
    model, schema, kept, prefix, columns_of, source = shared
    if not len(frame):
        return frame[kept].assign(**{f"{prefix}reason": ""})
    added = columns_of(model.decide(rows_of(schema, _block(frame, schema.names, source))), schema, model.reject_label)
    pandas = require("pandas", extra="dask", feature="--engine dask")
    named = {prefix + name: values for name, values in added.items()}
    return pandas.concat([frame[kept], pandas.DataFrame(named, index=frame.index)], axis=1)
