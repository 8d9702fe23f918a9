"""More rows than fit in memory: the same numbers on Dask, whatever the chunks.

Labeled rows and a log in files, here 16,000 + 8,000 rows of 8 columns on a local cluster of two processes; on a larger one only the
cluster changes. The classifier was fitted elsewhere (frozen), the ratio is the paper's linear one. Compared with the fit of the same rows in
memory: the parameters agree to rounding. The picture: the share of each chunk of new traffic that is rejected, and why.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _picture import BLUE, GREY, RED, figure, folder_from_command_line, save
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

ROWS, CHUNK, COLUMNS = 16_000, 4_000, 8


def main(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's own start-up warns about its settings
        import dask
        import dask.array as da
        from distributed import Client, LocalCluster

        from poscod.backends.dask import decide, fit

    store = Path(tempfile.mkdtemp())

    def in_chunks(name: str, rows: np.ndarray) -> Any:
        """Write rows as one file per chunk and return them as a Dask array that reads the files when it must."""
        parts = []
        for i, start in enumerate(range(0, len(rows), CHUNK)):
            np.save(store / f"{name}_{i}.npy", rows[start : start + CHUNK])
            read = dask.delayed(np.load)(store / f"{name}_{i}.npy")
            parts.append(da.from_delayed(read, rows[start : start + CHUNK].shape, rows.dtype))
        return da.concatenate(parts)

    rng = np.random.default_rng(0)
    means = rng.normal(scale=1.2, size=(3, COLUMNS))
    world = GaussianWorld(means, means.mean(axis=0, keepdims=True) + 1.3)
    X, y = world.sample_id(ROWS, random_state=0)
    traffic, _ = world.sample_mixture(ROWS // 2, pi=0.15, random_state=1)
    classifier = FrozenEstimator(LogisticRegression().fit(*world.sample_id(5000, random_state=3)))
    ratio = CorrectedSigmoid("paper", l2=1e-6)
    # The same rows set the threshold in both; in memory the default would be folds, which Dask has not.
    model = POSCOD(classifier, ratio, alpha=0.3, tpr_min=0.95, calibration=0.5, random_state=0)

    later = np.linspace(0.05, 0.6, 8)  # shares of strangers in eight chunks of new traffic
    new = np.vstack([world.sample_mixture(CHUNK, pi, random_state=10 + i)[0] for i, pi in enumerate(later)])
    # From here on Dask computes on these two processes; without a cluster it would on threads of this one.
    local = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR")
    with local, Client(local):
        large = fit(model, in_chunks("labeled", X), y, in_chunks("log", traffic))
        table = decide(large, in_chunks("new", new)).compute()
    small = model.fit(X, y, X_unlabeled=traffic)
    print(f"threshold on Dask {large.threshold_:.9f}, in memory {small.threshold_:.9f}")
    print(f"share of strangers on Dask {large.ood_prior_:.9f}, in memory {small.ood_prior_:.9f}; the truth is 0.15")
    reasons = table["reason"].to_numpy().astype(str).reshape(8, CHUNK)
    parts = {name: (reasons == name).mean(axis=1) for name in ("ambiguous", "both", "unfamiliar")}
    print(f"rejected in the first and in the last chunk: {(reasons != 'accepted').mean(axis=1)[[0, -1]].round(3)}")

    fig, ax = figure()
    bottom = np.zeros(8)
    for (name, share), colour in zip(parts.items(), (BLUE, GREY, RED), strict=True):
        ax.bar(range(8), share, 0.7, bottom=bottom, color=colour, label=name)
        bottom += share
    ax.plot(range(8), later, "k_", ms=18, label="strangers, really")
    ax.set_xticks(range(8), [f"chunk {i}" for i in range(8)], fontsize=8)
    ax.set_ylabel("share of the chunk rejected")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
