"""Each metric's CPU time as a ratio to one np.argsort of the pooled score, next to other libraries where installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks._timing import cpu_seconds, print_table
from poscod.metrics import METRICS, aurc, auroc, ausrt

SIZES = [(10_000, 10_000), (45_000, 49_000), (480_000, 520_000)]


def main(quick: bool = False) -> None:
    for m, n in SIZES[: 1 if quick else None]:
        rng = np.random.default_rng(0)
        score_id, score_ood = rng.normal(size=m), rng.normal(1.0, 1.0, n)
        loss = (rng.random(m) < 0.07).astype(float)
        pooled, is_ood = np.concatenate([score_id, score_ood]), np.repeat([0, 1], [m, n])
        arrays = {"score_id": score_id, "loss_id": loss, "score_ood": score_ood}
        baseline = lambda: np.argsort(pooled)  # noqa: B023, E731
        calls: dict[str, Callable[[], Any]] = {
            f"poscod.metrics.{name}": lambda metric=metric: metric.function(*(arrays[k] for k in metric.inputs))  # noqa: B023
            for name, metric in METRICS.items()
        }
        calls["poscod: auroc + aurc + ausrt, three calls (goal <= 3)"] = lambda: (
            auroc(score_id, score_ood),  # noqa: B023
            aurc(score_id, loss),  # noqa: B023
            ausrt(score_id, loss, score_ood),  # noqa: B023
        )
        calls["scikit-learn roc_auc_score"] = lambda: roc_auc_score(is_ood, pooled)  # noqa: B023
        calls.update(_others(pooled, is_ood, -score_id, loss))
        unit = cpu_seconds(baseline, repeat=9)
        rows = [[name, cpu_seconds(call) / unit] for name, call in calls.items()]
        title = f"{m + n:,} rows ({m:,} ID + {n:,} OOD); one np.argsort of the pooled score = {unit * 1e3:.2f} ms = 1"
        print_table(title, ["call", "x argsort"], rows)


def _others(
    pooled: np.ndarray, is_ood: np.ndarray, confidence_id: np.ndarray, loss: np.ndarray
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Other public implementations; what is not installed is named and left out."""
    try:
        import torch
        from pytorch_ood.utils import OODMetrics
    except ImportError as error:
        print(f"pytorch-ood left out: {error}")
    else:
        scores, labels = torch.tensor(pooled), torch.tensor(np.where(is_ood == 1, -1, 0))

        def ood_metrics() -> Any:
            metrics = OODMetrics()
            metrics.update(scores, labels)
            return metrics.compute()

        yield "pytorch-ood OODMetrics (AUROC, AUPR, FPR95)", ood_metrics
    try:
        import torch
        from torch_uncertainty.metrics import AURC
    except ImportError as error:
        print(f"torch-uncertainty left out: {error}")
    else:
        probabilities = torch.tensor(1 / (1 + np.exp(-confidence_id)))
        targets = torch.tensor(1 - loss).long()

        def torch_aurc() -> Any:
            metric = AURC()
            metric.update(probabilities, targets)
            return metric.compute()

        yield "torch-uncertainty AURC", torch_aurc


if __name__ == "__main__":
    main()
