# SPDX-License-Identifier: BSD-3-Clause
"""The long table of results: one row per value, with everything that is needed to know what it is.

Convention: rows are sorted by all their columns, so that the same values give the same file. Values are shares, never percent.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from poscod._files import replacing
from poscod.benchmark._cells import Cell, Stored
from poscod.benchmark._measure import Wanted, wanted_of
from poscod.benchmark._ratios import RENAMED
from poscod.benchmark._spec import BenchmarkSpec
from poscod.exceptions import InvalidInputError

_NUMBERS: dict[str, type] = {"seed": int, "pi": float, "alpha": float, "value": float, "n_id": int, "n_ood": int}
_FACTS = ("n_id", "n_ood", "data_hash", "spec_hash", "versions")
COLUMNS = ("benchmark", "id_set", "network", *Cell._fields, "split", *Wanted._fields, "value", *_FACTS)
"""Columns of the long table; pi and alpha are empty where they do not apply."""

Row = dict[str, Any]


def rows_of(spec: BenchmarkSpec, cells: Iterable[tuple[Cell, str, Stored]]) -> list[Row]:
    """Turn stored cells into rows of the long table."""
    run = {"benchmark": spec.name, "id_set": spec.id_set, "network": spec.network, "spec_hash": spec.hash}
    rows = []
    for cell, data_hash, stored in cells:
        unit = run | cell._asdict() | stored._asdict() | {"split": _split_name(spec, cell), "data_hash": data_hash}
        for item in wanted_of(spec, cell.kind, cell.method):
            if stored.values[item] is not None:
                row = unit | item._asdict() | {"value": stored.values[item]}
                rows.append({name: row[name] for name in COLUMNS})
    # An empty pi or alpha sorts before every number.
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row.values()])


def _split_name(spec: BenchmarkSpec, cell: Cell) -> str:
    if spec.source == "dumps" or cell.kind == "optimum":
        return "nothing to learn from"
    id_ = "dedicated" if spec.id_train else f"{spec.id_train_share:g} to learn from"
    ood = "dedicated" if cell.ood_set in spec.train else f"{spec.ood_train_share:g} to learn from"
    return f"ID {id_}, OOD {ood}"


def write_results(rows: Sequence[Row], out: Path) -> Path:
    """Write results.csv."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path = out / "results.csv"
    with replacing(path) as file:
        file.write(text.getvalue().encode())
    return path


def read_results(source: str | os.PathLike[str]) -> list[Row]:
    """Read a long table of results.

    Parameters
    ----------
    source : str or path-like
        Folder of a run, or its results.csv.

    Returns
    -------
    rows : list of dict
        One dict per value with the columns of the table as keys; None where pi or alpha do not apply.
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
        try:
            return [_typed(row) for row in reader]
        except ValueError as error:
            raise InvalidInputError(f"{path} holds something that is not a number ({error}).") from None


def _typed(row: Row) -> Row:
    """Turn texts into numbers, and older names into today's."""
    numbers = {name: kind(row[name]) if row[name] else None for name, kind in _NUMBERS.items()}
    return {name: row[name] for name in COLUMNS} | numbers | {"method": RENAMED.get(row["method"], row["method"])}
