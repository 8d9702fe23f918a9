"""Each metric's CPU time as a ratio to one np.argsort of the pooled score, next to other libraries where installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks._timing import cpu_seconds, print_table
from poscod.metrics import METRICS, aurc, auroc, ausrt

SIZES = [(10_000, 10_000), (45_000, 49_000), (480_000, 520_000)]


def main(quick: bool = False) -> None:
    others = _others()
    for m, n in SIZES[: 1 if quick else None]:
        samples = [_draw(m, n, seed) for seed in range(15 if m + n < 200_000 else 4)]
        unit = cpu_seconds(lambda a, _, b, pooled: np.argsort(pooled), _with_pooled(samples))
        calls: dict[str, Callable[..., Any]] = {
            f"poscod.metrics.{name}": lambda *s, metric=metric: metric.function(
                *(dict(zip(("score_id", "loss_id", "score_ood"), s, strict=True))[key] for key in metric.inputs)
            )
            for name, metric in METRICS.items()
        }
        calls["poscod: auroc + aurc + ausrt, three calls (goal <= 3)"] = lambda a, loss, b: (
            auroc(a, b),
            aurc(a, loss),
            ausrt(a, loss, b),
        )
        calls.update(others)
        rows = [[name, cpu_seconds(call, samples) / unit] for name, call in calls.items()]
        labels = np.repeat([0, 1], [m, n])
        sklearn = cpu_seconds(lambda a, _, b, pooled: roc_auc_score(labels, pooled), _with_pooled(samples))  # noqa: B023
        rows.append(["scikit-learn roc_auc_score", sklearn / unit])
        title = f"{m + n:,} rows ({m:,} ID + {n:,} OOD); one np.argsort of the pooled score = {unit * 1e3:.2f} ms = 1"
        print_table(title, ["call", "x argsort"], rows)


def _draw(m: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=m), (rng.random(m) < 0.07).astype(float), rng.normal(1.0, 1.0, n)


def _with_pooled(samples: list[tuple[np.ndarray, ...]]) -> list[tuple[np.ndarray, ...]]:
    return [(*sample, np.concatenate([sample[0], sample[2]])) for sample in samples]


def _others() -> dict[str, Callable[..., Any]]:
    """Other public implementations; what is not installed is named and left out."""
    found: dict[str, Callable[..., Any]] = {}
    try:
        import torch
        from pytorch_ood.utils import OODMetrics
    except ImportError as error:
        print(f"pytorch-ood left out: {error}")
    else:

        def ood_metrics(score_id: np.ndarray, _: np.ndarray, score_ood: np.ndarray) -> Any:
            metrics = OODMetrics()
            labels = np.repeat([0, -1], [len(score_id), len(score_ood)])
            metrics.update(torch.tensor(np.concatenate([score_id, score_ood])), torch.tensor(labels))
            return metrics.compute()

        found["pytorch-ood OODMetrics (AUROC, AUPR, FPR95)"] = ood_metrics
    try:
        import torch
        from torch_uncertainty.metrics import AURC
    except ImportError as error:
        print(f"torch-uncertainty left out: {error}")
    else:

        def torch_aurc(score_id: np.ndarray, loss: np.ndarray, _: np.ndarray) -> Any:
            metric = AURC()
            metric.update(torch.tensor(1 / (1 + np.exp(score_id))), torch.tensor(1 - loss).long())
            return metric.compute()

        found["torch-uncertainty AURC"] = torch_aurc
    return found


if __name__ == "__main__":
    main()
