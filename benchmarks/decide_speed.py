"""POSCOD.decide on a million rows of 512 float32 features: CPU time as a ratio to the two matrix products it contains."""

from __future__ import annotations

import resource

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from benchmarks._timing import cpu_seconds, print_table
from poscod import POSCOD
from poscod.ratio import CorrectedSigmoid


def main(quick: bool = False) -> None:
    n, d, k = (50_000 if quick else 1_000_000), 512, 10
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 0.2, (k, d)).astype(np.float32)

    def draw(rows: int, ood: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(0, k, rows)
        X = rng.standard_normal((rows, d), dtype=np.float32)
        X += np.where((rng.random(rows) < ood)[:, None], np.float32(0.15), centres[y])
        return X, y

    X, y = draw(4000)
    classifier = LogisticRegression(max_iter=200).fit(X, y)
    labeled, traffic = draw(4000), draw(4000, ood=0.3)[0]
    rows = draw(n)[0]
    weights, theta = classifier.coef_.T.astype(np.float32), rng.standard_normal((d, 1), dtype=np.float32)
    unit = cpu_seconds(lambda: (rows @ weights, rows @ theta), [()] * 3)
    table = []
    for name, ratio in (
        ("recipe='paper'", CorrectedSigmoid("paper", l2=1e-3)),
        ("default ratio", CorrectedSigmoid()),
    ):
        model = POSCOD(FrozenEstimator(classifier), ratio, random_state=0).fit(*labeled, X_unlabeled=traffic)
        part = rows if name != "default ratio" else rows[: n // 20]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds = cpu_seconds(lambda m=model, p=part: m.decide(p))
        extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        table.append([f"decide, {name}", len(part), seconds / unit * n / len(part), "1.5", extra])
    title = f"{n:,} x {d} float32, {k} classes; two matrix products = {unit * 1e3:.0f} ms = 1"
    print_table(title, ["call", "rows", "x products", "goal", "extra MB at peak"], table)


if __name__ == "__main__":
    main()
