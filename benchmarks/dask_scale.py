"""What a pass over rows on disk costs on a local cluster of two processes: time as a ratio to reading the same files, and memory.

Run ``python -m benchmarks.dask_scale [--quick] [--rows N] [--folder DIR]``. Rows x 64 float32 columns are written as Parquet files of 250,000 rows
(a fifth ID rows, the rest traffic), the ratio is fitted on a sixteenth, a quarter and all of them, and the files are deleted.
"""

from __future__ import annotations

import argparse
import logging
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._timing import print_table
from poscod.backends.dask import fit_ratio
from poscod.ratio import CorrectedSigmoid

COLUMNS, FILE_ROWS = 64, 250_000


def write(folder: Path, files: int, rows: int) -> None:
    """Write files of rows; every fifth holds ID rows only, the others one OOD row in five."""
    import pyarrow as pa
    from pyarrow import parquet

    names = [f"f{i}" for i in range(COLUMNS)]
    for index in range(files):
        rng = np.random.default_rng(index)
        X = rng.standard_normal((COLUMNS, rows), dtype=np.float32)
        kind = "id" if index % 5 == 0 else "u"
        if kind == "u":
            X[:, : rows // 5] += np.float32(0.4)
        (folder / kind).mkdir(exist_ok=True)
        target = folder / kind / f"part-{index:05d}.parquet"
        parquet.write_table(pa.table(dict(zip(names, X, strict=True))), target, compression=None, use_dictionary=False)


def read_bytes(path: str) -> int:
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(2**22)
        total = 0
        while n := file.readinto(buffer):
            total += n
    return total


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(files: dict[str, list[str]], memory: str, evaluations: int) -> dict[str, float]:
    """Return seconds of each kind of pass, and the largest memory of a worker in MB."""
    import dask.dataframe as dd
    from dask import compute, delayed
    from distributed import Client, LocalCluster

    def timed(function: Callable[[], Any]) -> tuple[float, Any]:
        start = time.monotonic()
        answer = function()
        return time.monotonic() - start, answer

    def total(parts: list[Any]) -> int:
        return int(sum(compute(*parts)))

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=memory,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        every = [file for side in files.values() for file in side]
        at_rest = max(client.run(peak).values())
        reading, n_bytes = timed(lambda: total([delayed(read_bytes)(file) for file in every]))
        frames = {side: dd.read_parquet(names) for side, names in files.items()}
        parts = [part for frame in frames.values() for part in frame.to_delayed()]
        to_frames, rows = timed(lambda: total([delayed(len)(part) for part in parts]))
        seen: list[str] = []
        fitting, _ = timed(
            lambda: fit_ratio(
                CorrectedSigmoid("paper", ood_prior=0.2, max_iter=evaluations),
                frames["id"],
                frames["u"],
                progress=lambda what, done, n: seen.append(what) if done == n else None,
            )
        )
        passes = len([what for what in seen if what in ("moments", "likelihood")])
        largest = max(client.run(peak).values())
        return {
            "rows": rows,
            "GB": n_bytes / 1e9,
            "bytes": reading,
            "frames": to_frames,
            # Rows are counted first, which reads everything once.
            "pass": (fitting - to_frames) / passes,
            "MB at rest": at_rest,
            "MB at peak": largest,
        }


def main(quick: bool = False, rows: int = 20_000_000, folder: str | None = None) -> None:
    logging.getLogger("distributed").setLevel(logging.ERROR)
    per_file = 2_000 if quick else FILE_ROWS
    total = 80 if quick else max(80, rows // FILE_ROWS // 80 * 80)
    table = []
    with tempfile.TemporaryDirectory(dir=folder) as place:
        write(Path(place), total, per_file)
        for share in (16, 4, 1):
            files = {
                side: [str(f) for f in sorted(Path(place, side).iterdir())][
                    : total // 5 * (1 if side == "id" else 4) // share
                ]
                for side in ("id", "u")
            }
            found = measure(files, "2GiB", 2)
            table.append(
                [
                    f"{found['rows']:,}",
                    found["GB"],
                    found["bytes"],
                    found["frames"],
                    found["pass"],
                    found["pass"] / found["frames"],
                    found["pass"] / found["rows"] * 1e6,
                    found["MB at rest"],
                    found["MB at peak"],
                ]
            )
            print(" | ".join(str(cell) for cell in table[-1]), flush=True)
    print_table(
        f"{COLUMNS} float32 columns in Parquet, two worker processes; seconds of wall time",
        [
            "rows",
            "GB",
            "read bytes, s",
            "Parquet to frames, s",
            "likelihood pass, s",
            "x Parquet to frames",
            "s per 10^6 rows",
            "MB per worker at rest",
            "at peak",
        ],
        table,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files, to see that everything runs")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", help="where the files are written for the time of the run")
    options = parser.parse_args()
    main(options.quick, options.rows, options.folder)
