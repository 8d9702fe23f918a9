"""How long the shell takes to start, and what a fit costs with the threads that libraries take by themselves.

CPU seconds of fresh processes, the least of some runs: start as a ratio to ``python -c "import numpy"``, a fit as a ratio to the same with one thread for
BLAS and OpenMP. On a machine with other work, threads that wait for each other burn CPU as well, so that the ratio shows them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

STARTS = {
    "import numpy": ["-c", "import numpy"],
    "poscod --help": ["-m", "poscod", "--help"],
    "poscod fit --help": ["-m", "poscod", "fit", "--help"],
    "from poscod import POSCOD": ["-c", "from poscod import POSCOD"],
}
FIT = """
import sys, warnings, numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from poscod import POSCOD
warnings.simplefilter("ignore")
X, y = load_digits(return_X_y=True)
known = np.random.default_rng(0).permutation(np.flatnonzero(y < 8))
n = int(sys.argv[2])
traffic = np.r_[known[n:], np.flatnonzero(y >= 8)]
classifier = {"logistic": None, "boosting": HistGradientBoostingClassifier(max_iter=20, random_state=0)}[sys.argv[1]]
POSCOD(classifier, random_state=0).fit(X[known[:n]], y[known[:n]], X_unlabeled=X[traffic]).decide(X)
"""
ONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def cpu_seconds(words: list[str], environment: dict[str, str]) -> float:
    """Return the CPU seconds of a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(quick: bool = False) -> None:
    runs = 2 if quick else 5
    bare = {name: value for name, value in os.environ.items() if name not in ONE}
    print("| start | CPU s | x import numpy |\n|---|---|---|")
    baseline = None
    for name, words in STARTS.items():
        least = min(cpu_seconds(words, bare) for _ in range(runs))
        baseline = baseline or least
        print(f"| `{name}` | {least:.2f} | {least / baseline:.1f} |", flush=True)
    print("| fit and decide | CPU s, one thread | CPU s, default threads | ratio |\n|---|---|---|---|")
    for classifier in ("logistic", "boosting"):
        pairs = [
            [cpu_seconds(["-c", FIT, classifier, "200" if quick else "700"], env) for env in ({**bare, **ONE}, bare)]
            for _ in range(1 if quick else 3)
        ]
        one, default = (min(seconds) for seconds in zip(*pairs, strict=True))
        print(f"| {classifier} | {one:.2f} | {default:.2f} | {default / one:.2f} |", flush=True)
