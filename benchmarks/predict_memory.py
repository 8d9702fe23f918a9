"""Memory and time of `poscod predict` on 1,000,000 x 64 rows of Parquet in one row group, in a process of its own.

CPU time is printed as a ratio to copying the same table block by block without deciding. The goal is a peak of 1 GB.

Run: python -m benchmarks predict_memory [--quick]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks._timing import print_table

COLUMNS = 64
LIMIT_MB = 1000
# What a process says of itself at its end. The system's own count for a child starts at the size of its parent.
MEASURED = """
import json, resource, sys, time
from benchmarks.scores_memory import resident_mb
{work}
print(json.dumps([resident_mb("VmHWM"), time.process_time()]))
"""
COPY = """
from poscod.cli._tables import TableWriter, open_table
with TableWriter(sys.argv[2]) as file:
    for block in open_table(sys.argv[1]).chunks(16384):
        file.write(block)
"""
PREDICT = """
from poscod.cli import main
assert main(["predict", *sys.argv[1:], "--quiet"]) == 0
"""


def draw(rng: np.random.Generator, n: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Four classes, each along an axis of its own; OOD rows are moved along another."""
    y = rng.integers(0, 4, n)
    X = rng.normal(size=(n, COLUMNS))
    X[np.arange(n), y] += 3.0
    X[:, 10] += shift
    return X, y


def columns_of(X: np.ndarray) -> dict[str, np.ndarray]:
    return {f"f{j:02d}": X[:, j] for j in range(X.shape[1])}


def write_table(path: Path, rows: int, seed: int = 0) -> None:
    """Write ID rows with names, in one row group: the hardest case for a reader that wants little memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, _ = draw(np.random.default_rng(seed), rows)
    names = pa.array([f"row-{i}" for i in range(rows)])
    pq.write_table(pa.table({"id": names, **columns_of(X)}), path, row_group_size=rows)


def fit_model(folder: Path, ratio: str, rows: int = 4000) -> Path:
    """Fit with the command itself."""
    from poscod.cli import main as shell
    from poscod.cli._tables import TableWriter

    rng = np.random.default_rng(1)
    X, y = draw(rng, rows)
    traffic = np.concatenate([draw(rng, 3 * rows // 4)[0], draw(rng, rows // 4, 4.0)[0]])
    for name, columns in (("known", {**columns_of(X), "label": y}), ("log", columns_of(traffic))):
        with TableWriter(folder / f"{name}.parquet") as file:
            file.write(columns)
    words = [
        "fit",
        f"{folder}/known.parquet",
        f"{folder}/log.parquet",
        "--target",
        "label",
        "--ratio",
        ratio,
        "--quiet",
    ]
    path = folder / f"{ratio}.poscod"
    if shell([*words, "-o", str(path)]):
        raise RuntimeError("the model could not be fitted")
    return path


def peak_of(work: str, words: list[str]) -> tuple[float, float]:
    """Run some work in a process of its own; return its peak resident size in MB and its CPU seconds."""
    command = [sys.executable, "-c", MEASURED.format(work=work), *words]
    run = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True)
    peak, cpu = json.loads(run.stdout.splitlines()[-1])
    return peak, cpu


def main(*, quick: bool = False) -> None:
    rows = 20_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {ratio: fit_model(folder, ratio) for ratio in ("paper", "strong")}
        write_table(folder / "new.parquet", rows)
        new, out = str(folder / "new.parquet"), str(folder / "out.parquet")
        base = peak_of(COPY, [new, out])
        table = [["copy without deciding", base[0], 1.0, 1e6 * base[1] / rows]]
        for ratio, model in models.items():
            start = time.monotonic()
            peak, cpu = peak_of(PREDICT, [str(model), new, "-o", out])
            print(f"{ratio}: {time.monotonic() - start:.0f} s", file=sys.stderr)
            table.append([f"predict, {ratio} ratio", peak, cpu / base[1], 1e6 * cpu / rows])
    header = ["", "peak MB", "CPU / copy", "microseconds per row"]
    print_table(f"poscod predict on {rows:,} x {COLUMNS} rows of Parquet (goal: {LIMIT_MB} MB)", header, table)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
