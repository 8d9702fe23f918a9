"""Time and memory of every score at 50k x 2048 rows against a bank of 100k x 2048, each in a process of its own.

CPU time is printed as a ratio to one product (n x d) @ (d x K) in the same process: the last layer on the same rows.
Extra memory is the peak resident size beyond that of the inputs; the goal is 2 GB.

Run: python -m benchmarks.scores_memory [--quick] [--scores knn,vim]

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

LIMIT_MB = 2048
FULL = {"rows": 50_000, "bank": 100_000, "features": 2048, "classes": 1000}
# One of each kind that costs memory or time: the others do less of the same.
HEAVY = ["gen", "react", "ash_s", "she", "vim", "relative_mahalanobis", "knn"]
QUICK = {"rows": 2_000, "bank": 4_000, "features": 256, "classes": 20}


def resident_mb(field: str) -> float:
    """Return VmRSS (now) or VmHWM (peak) of this process in MB; elsewhere than on Linux, the peak for both."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def forget_peak() -> None:
    """Start the peak anew, so that temporaries of making the inputs do not hide those of the score."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure(name: str, size: dict[str, int]) -> dict[str, float | str]:
    """Fit and call one score; the inputs exist before the clock and the memory mark."""
    import numpy as np

    from poscod import Activations
    from poscod.scores import SCORES

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((size["classes"], size["features"]), dtype=np.float32) / 10

    def draw(n: int) -> Activations:
        features = rng.standard_normal((n, size["features"]), dtype=np.float32)
        np.abs(features, out=features)
        logits = features @ weight.T
        labels = logits.argmax(axis=1)
        return Activations(features, logits, labels, weight)

    bank, test = draw(size["bank"]), draw(size["rows"])
    start = time.process_time()
    product = test.features @ weight.T
    baseline = time.process_time() - start
    del product
    forget_peak()
    before = resident_mb("VmRSS")
    score = SCORES[name]()
    start = time.process_time()
    if score.fit_needs:
        score.fit(bank)
    fitted = time.process_time()
    values = score(test)
    end = time.process_time()
    assert np.isfinite(values).all()
    return {
        "name": name,
        "fit": fitted - start,
        "call": end - fitted,
        "ratio": (end - start) / baseline,
        "extra": resident_mb("VmHWM") - before,
    }


def main(*, quick: bool = False, names: list[str] | None = None) -> None:
    from poscod.scores import SCORES

    size = QUICK if quick else FULL
    print(f"{size['rows']} rows, bank {size['bank']}, {size['features']} features, {size['classes']} classes, float32")
    print(f"{'score':22s} {'fit s':>8s} {'call s':>8s} {'x head':>8s} {'extra MB':>9s}")
    worst = 0.0
    for name in names or (SCORES if quick else HEAVY):
        command = [sys.executable, __file__, "--one", name, *(["--quick"] if quick else [])]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        row = json.loads(answer)
        worst = max(worst, row["extra"])
        print(f"{name:22s} {row['fit']:8.2f} {row['call']:8.2f} {row['ratio']:8.1f} {row['extra']:9.0f}", flush=True)
    print(f"largest extra memory {worst:.0f} MB, goal {LIMIT_MB} MB: {'ok' if worst <= LIMIT_MB else 'MISSED'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, all scores, under a minute")
    parser.add_argument(
        "--scores", default=None, help="names separated by commas; at full size the heavy ones by default"
    )
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, QUICK if options.quick else FULL)))
    else:
        main(quick=options.quick, names=options.scores.split(",") if options.scores else None)
