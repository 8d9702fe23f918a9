"""What the ratio costs: one fit and the whole default beside scikit-learn's logistic regression, small tables, many columns, memory.

Run ``python benchmarks/ratio_speed.py [--quick] [--parts ...]``. Times are CPU seconds on the same float32 rows; memory is what the process
needs beyond its size before the fit, in a process of its own, with the matrix in a memory map.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.sparse import random as random_sparse
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.ratio import CorrectedSigmoid, StandardSigmoid

# The whole default on 20,000 x 512, in units of one logistic regression on the same rows.
GOALS = {"noise": 40, "network": 10}
PARTS = ("speed", "tables", "wide", "memory")
# Rows a side of a table of 20 columns, and the CPU seconds that its default may take.
TABLES = {1000: 0.2, 5000: 0.53, 20000: 2.2}


def noise(n: int, d: int, pi: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Return n/2 ID rows and n/2 unlabeled rows of spherical Gaussians: four iterations settle a logistic regression."""
    rng = np.random.default_rng(0)
    half = n // 2
    rows = rng.standard_normal((n, d), dtype=np.float32)
    rows[n - int(pi * half) :] += np.float32(3.0 / np.sqrt(d))
    return rows[:half], rows[half:]


def network(n: int, d: int, pi: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Return the same for correlated, rectified columns, as a network's last layer has them."""
    rng = np.random.default_rng(0)
    half = n // 2
    latent = rng.standard_normal((n, 64), dtype=np.float32)
    latent[n - int(pi * half) :] += np.float32(0.4)
    mixing = rng.standard_normal((64, d), dtype=np.float32) / np.float32(8.0)
    rows = np.maximum(latent @ mixing + np.float32(0.3) * rng.standard_normal((n, d), dtype=np.float32), 0.0)
    return rows[:half], rows[half:]


def seconds(function, repeats: int = 1) -> float:  # type: ignore[no-untyped-def]
    """Return the smallest CPU time of some calls, in which nothing is worth a warning."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function()
        taken.append(time.process_time() - start)
    return min(taken)


def speed(kind: str, n: int, d: int) -> None:
    x_id, x_u = {"noise": noise, "network": network}[kind](n, d)
    x, y = np.concatenate([x_id, x_u]), np.repeat([0, 1], [len(x_id), len(x_u)])
    l2 = 1.0 / n  # scikit-learn: C = 1
    logistic = seconds(lambda: LogisticRegression(max_iter=1000).fit(x, y))
    print(f"\n{kind}: {n} x {d} float32, CPU seconds and ratio to LogisticRegression (lbfgs)\n")
    for name, estimator, goal in (
        ("StandardSigmoid, fixed l2", StandardSigmoid(l2=l2), 3),
        ("CorrectedSigmoid paper, fixed l2 and prior", CorrectedSigmoid("paper", l2=l2, ood_prior=0.2), 3),
        ("CorrectedSigmoid paper, fixed l2, joint prior", CorrectedSigmoid("paper", l2=l2), 3),
        ("CorrectedSigmoid, whole default", CorrectedSigmoid(), GOALS[kind]),
    ):
        taken = seconds(lambda estimator=estimator: estimator.fit(x_id, x_u))
        print(f"{name:48s} {taken:8.2f} s {taken / logistic:7.1f} x  (goal <= {goal})", flush=True)
    print(f"{'LogisticRegression':48s} {logistic:8.2f} s     1.0 x")


def tables(sizes: list[int], columns: int = 20) -> None:
    print(
        f"\ntables of {columns} columns, rows a side: CPU seconds of the whole default and ratio to LogisticRegression\n"
    )
    for rows in sizes:
        rng = np.random.default_rng(0)
        mixing = np.eye(columns) + rng.normal(0.0, 0.3, (columns, columns))
        x = rng.normal(size=(2 * rows, columns)) @ mixing
        x[2 * rows - rows // 10 :] += rng.normal(0.0, 1.0, columns)
        x[:, ::4] = np.exp(x[:, ::4])  # columns have units and tails of their own
        y = np.repeat([0, 1], rows)
        standard = (x - x.mean(axis=0)) / x.std(axis=0)
        logistic = seconds(lambda standard=standard, y=y: LogisticRegression(max_iter=1000).fit(standard, y), 3)
        taken = seconds(lambda x=x, rows=rows: CorrectedSigmoid().fit(x[:rows], x[rows:]), 3)
        print(f"{rows:8d} {taken:8.2f} s {taken / logistic:7.1f} x  (goal <= {TABLES.get(rows, 0.2)} s)", flush=True)


def wide(n: int, d: int, sparse_rows: int, sparse_columns: int) -> None:
    print(
        "\nmany columns, POSCOD.fit with a logistic regression: CPU seconds, and ratio to that regression on the labeled rows\n"
    )
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((2 * n, d), dtype=np.float32)
    sparse = random_sparse(2 * sparse_rows, sparse_columns, 0.01, "csr", dtype=np.float32, random_state=0)
    for name, x, rows in (("dense", dense, n), ("sparse, 1 % filled", sparse, sparse_rows)):
        x_id, y = x[:rows], (rng.random(rows) < 0.5).astype(int)
        logistic = seconds(lambda x_id=x_id, y=y: LogisticRegression(max_iter=1000).fit(x_id, y))
        model = POSCOD(LogisticRegression(max_iter=1000), random_state=0)
        taken = seconds(lambda model=model, x=x, y=y, rows=rows: model.fit(x[:rows], y, X_unlabeled=x[rows:]))
        label = f"{name}: {rows} labeled, {rows} of traffic, {x.shape[1]} columns"
        print(f"{label:64s} {taken:8.2f} s {taken / logistic:7.1f} x  (goal: seconds)", flush=True)


def memory(n: int, d: int) -> None:
    print(f"\n{n} x {d} float32 from a memory map: extra memory and wall seconds\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, d))
        rng = np.random.default_rng(0)
        for start in range(0, n, 50000):
            rows[start : start + 50000] = rng.standard_normal((min(50000, n - start), d), dtype=np.float32)
        rows[n - n // 10 :] += np.float32(3.0 / np.sqrt(d))
        rows.flush()
        del rows
        for name in ("paper", "paper_cv", "strong"):
            command = [sys.executable, __file__, "--child", str(path), name]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip(), flush=True)


def child(path: str, recipe: str) -> None:
    """Fit on the two halves of a memory map and print the growth of the resident set that is not the map itself."""
    rows = np.load(path, mmap_mode="r")
    half = len(rows) // 2
    estimator = {
        "paper": CorrectedSigmoid("paper", l2=1e-4),
        "paper_cv": CorrectedSigmoid("paper", l2="cv"),  # what `poscod fit --ratio paper` fits
        "strong": CorrectedSigmoid(),
    }[recipe]
    before = _anonymous()
    start = time.monotonic()
    peak = _Peak()
    estimator.fit(rows[:half], rows[half:])
    extra = peak.stop() - before
    print(
        f"{recipe:8s} extra {extra:6.0f} MB  (goal <= 1000)  {time.monotonic() - start:6.1f} s  ood_prior_ {estimator.ood_prior_:.3f}"
    )


def _anonymous() -> float:
    """Return megabytes of memory that belong to the process and not to a file, as the kernel counts them."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("RssAnon"):
                return float(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class _Peak:
    """Sample the memory of the process while it works."""

    def __init__(self) -> None:
        import threading

        self._done = threading.Event()
        self._peak = _anonymous()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self._peak = max(self._peak, _anonymous())

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        return self._peak


def main(quick: bool | None = None) -> None:
    """Print both tables; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args([] if quick is not None else None)
    if options.child:
        child(*options.child)
        return
    small = options.quick or bool(quick)
    if "speed" in options.parts:
        for kind in ("network", "noise"):
            speed(kind, *((4000, 64) if small else (20000, 512)))
    if "tables" in options.parts:
        tables([1000] if small else list(TABLES))
    if "wide" in options.parts:
        wide(*((150, 300, 300, 500) if small else (150, 3500, 3000, 5000)))
    if "memory" in options.parts:
        memory(*((50000, 32) if small else (1000000, 256)))


if __name__ == "__main__":
    main()
