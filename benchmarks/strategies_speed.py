"""Exhaustive tuning at 94,000 rows: CPU time per setting as a ratio to one np.argsort of the pooled score."""

from __future__ import annotations

import numpy as np

from benchmarks._timing import cpu_seconds, print_table
from poscod.strategies import STRATEGIES, plugin_curve, tuned_curve

GOALS = {"linear": 2.0, "sirc": 3.0}


def main(quick: bool = False) -> None:
    m, n = (4_500, 4_900) if quick else (45_000, 49_000)
    rng = np.random.default_rng(0)
    s1_id, s1_ood = rng.beta(0.5, 4.0, m), rng.beta(1.0, 2.0, n)
    s2_id, s2_ood = np.exp(rng.normal(-1.0, 1.0, m)), np.exp(rng.normal(1.0, 1.5, n))
    loss = (rng.random(m) < s1_id).astype(float)
    unit = cpu_seconds(np.argsort, [(rng.permutation(np.concatenate([s1_id, s1_ood])),) for _ in range(9)])
    arrays = (s1_id, s2_id, loss, s1_ood, s2_ood)
    rows = []
    for strategy, goal in GOALS.items():
        settings = len(STRATEGIES[strategy].grids["reference"](s2_id))
        one = cpu_seconds(lambda s=strategy: tuned_curve(s, *arrays, grid="reference", n_jobs=1))
        rows.append([f"tuned {strategy}", settings, one / settings / unit, goal, one])
        two = cpu_seconds(lambda s=strategy: tuned_curve(s, *arrays, grid="reference", n_jobs=2))
        rows.append([f"tuned {strategy}, 2 threads", settings, two / settings / unit, goal, two])
        plugin = cpu_seconds(lambda s=strategy: plugin_curve(s, *arrays))
        sorts = 101 if strategy == "linear" else 1
        rows.append([f"plug-in {strategy}", sorts, plugin / sorts / unit, "-", plugin])
    title = f"{m + n:,} rows, 101 TPR targets; one np.argsort = {unit * 1e3:.2f} ms = 1"
    print_table(title, ["curve", "settings", "x argsort per setting", "goal", "CPU s"], rows)


if __name__ == "__main__":
    main()
