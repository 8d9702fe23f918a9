"""Review on a log in chunks: CPU seconds and peak memory of the calling process by the number of rows.

Run ``python -m benchmarks.dask_review ROWS``, a multiple of 250,000. Rows of eight columns are made chunk by chunk in this process, so that nothing but the work of a review lies in memory.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import numpy as np

from poscod import POSCOD
from poscod.backends.dask import DaskLog
from poscod.ratio import CorrectedSigmoid
from poscod.review import queue, stranger_groups, strangers
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0] * 8, [3.0] + [0.0] * 7], [[1.5, 5.0] + [0.0] * 6])
PART = 250_000


def rows_of(seed: int) -> Any:
    """Return one chunk."""
    return WORLD.sample_mixture(PART, pi=0.1, random_state=seed)[0].astype(np.float32)


def main() -> None:
    """Print a line for each step."""
    import dask
    import dask.array as da

    X, y = WORLD.sample_id(4000, random_state=0)
    traffic, _ = WORLD.sample_mixture(4000, pi=0.1, random_state=1)
    how: dict[str, Any] = {"calibration": 0.5, "random_state": 0}
    model = POSCOD(ratio=CorrectedSigmoid("paper", l2=1e-3), **how).fit(X, y, X_unlabeled=traffic)
    parts = [dask.delayed(rows_of)(seed + 10) for seed in range(int(sys.argv[1]) // PART)]
    log = DaskLog(da.concatenate([da.from_delayed(part, (PART, 8), np.float32) for part in parts]))
    steps = {
        "queue": lambda: queue(model, log, 200),
        "strangers": lambda: strangers(model, log, 0.1),
        "stranger_groups": lambda: stranger_groups(model, log),
    }
    with dask.config.set(scheduler="sync"):
        for name, step in {"start": lambda: None, **steps}.items():
            start = time.process_time()
            step()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"{name:16} {time.process_time() - start:6.1f} CPU s {peak:6.0f} MB at peak")


if __name__ == "__main__":
    main()
