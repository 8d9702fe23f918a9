# SPDX-License-Identifier: BSD-3-Clause
"""The long table of results: one row per value, with everything that is needed to know what it is.

Convention: rows are sorted by all their columns, so that the same values give the same file. Values are shares, never percent.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from poscod._files import replacing
from poscod._optional import require
from poscod.benchmark._cells import Cell, Stored
from poscod.benchmark._measure import wanted_of
from poscod.benchmark._spec import BenchmarkSpec
from poscod.exceptions import InvalidInputError, MissingExtraError

COLUMNS: dict[str, type] = {
    "benchmark": str,
    "id_set": str,
    "network": str,
    "ood_set": str,
    "group": str,
    "split": str,
    "fold": str,
    "seed": int,
    "pi": float,
    "alpha": float,
    "kind": str,
    "method": str,
    "scores": str,
    "strategy": str,
    "setting": str,
    "metric": str,
    "value": float,
    "n_id": int,
    "n_ood": int,
    "data_hash": str,
    "spec_hash": str,
    "versions": str,
}
"""Columns of the long table and their types; pi and alpha are empty where they do not apply."""

Row = dict[str, Any]


def rows_of(spec: BenchmarkSpec, cells: Sequence[tuple[Cell, str, Stored]]) -> list[Row]:
    """Turn stored cells into rows of the long table."""
    rows = []
    for cell, data_hash, stored in cells:
        for item in wanted_of(spec, cell.kind, cell.method):
            value = stored.values[item]
            if value is None:
                continue
            pair = item.strategy not in ("single", "optimum")
            rows.append(
                {
                    "benchmark": spec.name,
                    "id_set": spec.id_set,
                    "network": spec.network,
                    "ood_set": cell.ood_set,
                    "group": cell.group,
                    "split": _split_name(spec, cell),
                    "fold": cell.fold,
                    "seed": cell.seed,
                    "pi": cell.pi,
                    "alpha": item.alpha,
                    "kind": cell.kind,
                    "method": cell.method,
                    "scores": f"msp+{cell.method}" if pair else cell.method,
                    "strategy": item.strategy,
                    "setting": item.setting,
                    "metric": item.metric,
                    "value": value,
                    "n_id": stored.n_id,
                    "n_ood": stored.n_ood,
                    "data_hash": data_hash,
                    "spec_hash": spec.hash,
                    "versions": stored.versions,
                }
            )
    # An empty pi or alpha sorts before every number.
    return sorted(rows, key=lambda row: tuple((v is not None, v) if v is None else (True, v) for v in row.values()))


def _split_name(spec: BenchmarkSpec, cell: Cell) -> str:
    if spec.source == "dumps":
        return "all rows"
    if cell.kind == "optimum":
        return "exact"
    id_ = "dedicated" if spec.id_train else f"{spec.id_train_share:g} to learn from"
    ood = "dedicated" if cell.ood_set in spec.train else f"{spec.ood_train_share:g} to learn from"
    return f"ID {id_}, OOD {ood}"


def write_results(rows: Sequence[Row], out: Path) -> list[Path]:
    """Write results.csv and, where pyarrow is installed, results.parquet."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    paths = [out / "results.csv"]
    with replacing(paths[0]) as file:
        file.write(text.getvalue().encode())
    try:
        arrow = require("pyarrow", extra="bench", feature="Writing Parquet")
        parquet = require("pyarrow.parquet", extra="bench", feature="Writing Parquet")
    except MissingExtraError:
        return paths
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    columns = {name: arrow.array([row[name] for row in rows], type=types[kind]) for name, kind in COLUMNS.items()}
    paths.append(out / "results.parquet")
    with replacing(paths[1]) as file:
        parquet.write_table(arrow.table(columns), file, compression="zstd")
    return paths


def read_results(source: str | os.PathLike[str]) -> list[Row]:
    """Read a long table of results.

    Parameters
    ----------
    source : str or path-like
        Folder of a run, or its results.csv.

    Returns
    -------
    rows : list of dict
        One dict per value with the keys of the table; None where pi or alpha do not apply.
    """
    path = Path(source)
    if path.is_dir():
        path = path / "results.csv"
    if not path.is_file():
        raise InvalidInputError(f"{path} is not there: give the folder of a finished `poscod bench run`.")
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = set(COLUMNS) - set(reader.fieldnames or ())
        if missing:
            raise InvalidInputError(f"{path} must be a table of results, but has no column '{min(missing)}'.")
        return [_typed(row, path) for row in reader]


def _typed(row: Mapping[str, str], path: Path) -> Row:
    try:
        return {
            name: row[name] if kind is str else None if row[name] == "" else kind(row[name])
            for name, kind in COLUMNS.items()
        }
    except ValueError as error:
        raise InvalidInputError(f"{path} holds something that is no number ({error}).") from None
