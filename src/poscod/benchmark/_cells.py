# SPDX-License-Identifier: BSD-3-Clause
"""The unit of work: one method on one split of one OOD set, computed once and kept in one file.

Convention: a cell's file is named by the digest of everything its values depend on: the content of the data, the split, the method, the
version of the library. Values are added to it, never changed; a file appears whole or not at all.
"""

from __future__ import annotations

import itertools
import json
import platform
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from poscod._files import replacing
from poscod.benchmark._measure import Wanted, optimal_areas, ratio_rows, score_rows, values_of, wanted_of
from poscod.benchmark._ratios import RATIOS
from poscod.benchmark._sources import Pool, open_source
from poscod.benchmark._spec import BenchmarkSpec, digest
from poscod.benchmark._split import split_rows

PROTOCOL = 2
"""Number of the way values are computed; a change makes old files of cells strangers."""


class Cell(NamedTuple):
    """One unit of work; the seed is -1 where nothing is drawn, pi is None where no mixture is seen, kind is "score", "ratio" or "optimum"."""

    fold: str
    ood_set: str
    group: str
    seed: int
    kind: str
    method: str
    pi: float | None


class Stored(NamedTuple):
    """Content of a cell's file: values, measured rows, versions of what computed it."""

    values: dict[Wanted, float | None]
    n_id: int
    n_ood: int
    versions: str
    cpu_seconds: float


def cells_of(spec: BenchmarkSpec, sets: Mapping[str, str]) -> Iterator[Cell]:
    """Iterate over all cells of a specification, in a fixed order."""
    # Seed by seed: a run that is stopped leaves whole seeds. Long cells first within a seed, so that no core waits for one of them.
    for fold, seed in itertools.product(spec.folds, spec.seeds):
        for ratio in spec.ratios:
            pis = spec.pis if RATIOS[ratio].sees == "mixture" else (None,)
            for (name, group), pi in itertools.product(sets.items(), pis):
                yield Cell(fold, name, group, seed, "ratio", ratio, pi)
        for (name, group), score in itertools.product(sets.items(), spec.score_names):
            yield Cell(fold, name, group, seed, "score", score, None)
    if spec.source == "gaussian":
        for name, group in sets.items():
            yield Cell(spec.folds[0], name, group, -1, "optimum", "optimum", None)


def key_of(spec: BenchmarkSpec, cell: Cell, data_hash: str) -> dict[str, Any]:
    """Return everything the values of a cell depend on."""
    key: dict[str, Any] = {"protocol": PROTOCOL, "poscod": _version("poscod"), "data": data_hash}
    key |= {"kind": cell.kind, "method": cell.method}
    if cell.kind != "optimum":
        key |= {"set": cell.ood_set, "seed": cell.seed}
        key |= {name: getattr(spec, name) for name in ("grid", "n_id", "n_test", "id_train_share", "ood_train_share")}
    if cell.kind == "ratio":
        key |= {"pi": cell.pi, "n_mixture": spec.n_mixture}
    return key


def path_of(out: Path, key: Mapping[str, Any]) -> Path:
    """Return the file of a cell."""
    return out / "cells" / f"{digest(key)}.json"


def read_cell(path: Path) -> Stored | None:
    """Read a cell's file; None where it is missing or is not ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        values = {Wanted(*row[:4]): row[4] for row in content["values"]}
        return Stored(**{name: content[name] for name in Stored._fields} | {"values": values})
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def missing_of(spec: BenchmarkSpec, cell: Cell, stored: Stored | None) -> list[Wanted]:
    """Return the values that a cell's file does not hold yet."""
    wanted = wanted_of(spec, cell.kind, cell.method)
    return wanted if stored is None else [item for item in wanted if item not in stored.values]


def compute_cell(spec: BenchmarkSpec, cell: Cell, out: Path, data_hash: str) -> None:
    """Compute what a cell's file lacks and write the file anew."""
    key = key_of(spec, cell, data_hash)
    path = path_of(out, key)
    stored = read_cell(path)
    missing = missing_of(spec, cell, stored)
    if not missing:
        return
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice of estimators: the table holds what came of it
        values, n_id, n_ood = _compute(spec, cell, missing)
    seconds = time.process_time() - start
    if stored is not None:
        values, seconds = {**stored.values, **values}, seconds + stored.cpu_seconds
    rows = sorted(([*item, value] for item, value in values.items()), key=lambda row: json.dumps(row[:4]))
    content = {"key": key, **Stored(values, n_id, n_ood, versions(), seconds)._asdict(), "values": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(json.dumps(content, sort_keys=True).encode())


def _compute(spec: BenchmarkSpec, cell: Cell, missing: list[Wanted]) -> tuple[dict[Wanted, float | None], int, int]:
    pool = open_source(spec).pool(cell.fold, cell.ood_set, max(cell.seed, 0))
    if cell.kind == "optimum":
        assert isinstance(pool, Pool)
        assert pool.world is not None
        return optimal_areas(pool.world, missing), 0, 0
    split = split_rows(spec, pool.hashes(), cell.ood_set, cell.seed)
    if cell.kind == "score":
        measured = score_rows(pool, split, cell.method)
    else:
        measured = ratio_rows(pool, split, cell.method, cell.pi, spec.n_mixture)
    return values_of(measured, missing, spec.grid), len(split.id_test), len(split.ood_test)


def versions() -> str:
    """Return the versions of everything that a value may depend on."""
    names = ("poscod", "numpy", "scipy", "scikit-learn")
    return f"python {platform.python_version()}; " + "; ".join(f"{name} {_version(name)}" for name in names)


def _version(name: str) -> str:
    return str(sys.modules["poscod"].__version__) if name == "poscod" else metadata.version(name)
