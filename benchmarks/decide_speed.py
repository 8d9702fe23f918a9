"""POSCOD.decide on new rows: CPU time as a ratio to the two matrix products it contains, microseconds a row, and memory.

Run ``python -m benchmarks decide_speed``. One thread, float32 rows, ten classes, models fitted on 4,000 labeled rows and 4,000 rows of traffic. One product is the
classifier's logits, the other one a linear ratio. Beside it stand the kNN and Mahalanobis detectors of pytorch-ood on the same rows and the same
4,000 labeled ones, where that package is installed: they only score, and answer neither a class nor a threshold.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benchmarks._timing import cpu_seconds, print_table
from poscod import POSCOD, Activations
from poscod.ratio import CorrectedSigmoid

CLASSES, LABELED = 10, 4000
# (columns, new rows, at most, goal) of the default, in units of two products.
SIZES = ((64, 200_000, 80, 40), (512, 50_000, 40, 15))


class World(NamedTuple):
    """A classifier, labeled rows, traffic with OOD rows, and new rows."""

    classifier: LogisticRegression
    labeled: tuple[Any, Any]
    traffic: Any
    rows: Any


def table(d: int, n: int) -> World:
    """Return columns of Gaussian classes."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 1.6 / np.sqrt(d) + 0.13, (CLASSES, d)).astype(np.float32)

    def draw(rows: int, ood: float = 0.0) -> tuple[Any, Any]:
        y = rng.integers(0, CLASSES, rows)
        X = rng.standard_normal((rows, d), dtype=np.float32)
        X += np.where((rng.random(rows) < ood)[:, None], np.float32(3.4 / np.sqrt(d)), centres[y])
        return X, y

    return _world(draw, n)


def network(d: int, n: int) -> World:
    """Return correlated, rectified columns, as a network's last layer has them."""
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((32, d), dtype=np.float32) / np.float32(np.sqrt(32))
    centres = rng.normal(0, 0.8, (CLASSES, 32)).astype(np.float32)
    moved = rng.normal(0, 1.0, 32).astype(np.float32)

    def draw(rows: int, ood: float = 0.0) -> tuple[Any, Any]:
        y = rng.integers(0, CLASSES, rows)
        latent = rng.standard_normal((rows, 32), dtype=np.float32)
        latent += np.where((rng.random(rows) < ood)[:, None], moved, centres[y])
        return np.maximum(latent @ mixing + np.float32(0.2) * rng.standard_normal((rows, d), dtype=np.float32), 0.0), y

    return _world(draw, n)


def _world(draw: Callable[..., tuple[Any, Any]], n: int) -> World:
    return World(LogisticRegression(max_iter=200).fit(*draw(LABELED)), draw(LABELED), draw(LABELED, 0.3)[0], draw(n)[0])


def fitted(model: POSCOD, X: Any, y: Any, traffic: Any) -> POSCOD:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, X_unlabeled=traffic)


def calls(world: World) -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """Yield what is timed: a name, a function of rows, and rows."""
    for name, ratio in (("paper's ratio", CorrectedSigmoid("paper", l2=1e-3)), ("default", None)):
        model = POSCOD(FrozenEstimator(world.classifier), ratio, random_state=0)
        yield f"table, {name}", fitted(model, *world.labeled, world.traffic).decide, world.rows


def network_calls(world: World) -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """Yield the same for a frozen network's features and logits."""

    def activations(X: Any) -> Activations:
        return Activations(X, world.classifier.decision_function(X).astype(np.float32))

    X, y = world.labeled
    model = fitted(POSCOD(random_state=0), activations(X), y, activations(world.traffic))
    yield "network, default", model.decide, activations(world.rows)


def detectors(world: World) -> Iterator[tuple[str, Callable[[Any], Any], Any]]:
    """Yield detectors of pytorch-ood, fitted on the labeled rows."""
    try:
        import torch
        from pytorch_ood.detector import KNN, Mahalanobis
    except (ImportError, RuntimeError) as error:  # RuntimeError: its torchvision is built for another torch
        print(f"Without pytorch-ood: {error}. pip install pytorch-ood adds its rows.")
        return
    torch.set_num_threads(1)
    X, y = (torch.from_numpy(np.asarray(part)) for part in world.labeled)
    for name, detector in (("kNN", KNN(None)), ("Mahalanobis", Mahalanobis(None))):
        detector.fit_features(X, y)

        def score(rows: Any, detector: Any = detector) -> None:
            for start in range(0, len(rows), 4096):  # as a loader gives them
                detector.predict_features(rows[start : start + 4096])

        yield f"pytorch-ood {name}", score, torch.from_numpy(world.rows)


def peak_megabytes(function: Callable[[Any], Any], rows: Any) -> float:
    """Return what arrays of a call take at its peak, rows and model apart."""
    tracemalloc.start()
    function(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def main(quick: bool = False) -> None:
    lines = []
    with threadpool_limits(1):
        for d, n, most, goal in SIZES:
            n = n // 20 if quick else n
            world, own = table(d, n), network(d, n)
            weights = world.classifier.coef_.T.astype(np.float32)
            theta = np.ones((d, 1), dtype=np.float32)
            unit = cpu_seconds(lambda r=world.rows, w=weights, t=theta: (r @ w, r @ t), [()] * 7)
            lines.append([d, n, "two products", 1.0, "", unit / n * 1e6, ""])
            for name, function, rows in (*calls(world), *network_calls(own), *detectors(world)):
                seconds = cpu_seconds(function, [(rows,)] * (1 if quick else 3))
                limit = f"{most} (goal {goal})" if "default" in name else ""
                # Torch does not say what it allocates.
                extra = "" if "pytorch" in name else f"{peak_megabytes(function, rows):.0f}"
                lines.append([d, n, name, seconds / unit, limit, seconds / n * 1e6, extra])
    header = ["columns", "rows", "call", "x products", "at most", "us a row", "MB at peak"]
    print_table(f"decide: float32, {CLASSES} classes, one thread, CPU time", header, lines)


if __name__ == "__main__":
    main()
