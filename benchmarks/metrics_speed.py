"""Each metric's CPU time as a ratio to one np.argsort of the pooled score, next to other libraries where installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks._timing import cpu_seconds, print_table
from poscod.metrics import METRICS, aurc, auroc, ausrt, summary

SIZES = [(10_000, 10_000), (45_000, 49_000), (480_000, 520_000)]


def main(quick: bool = False) -> None:
    calls: dict[str, Callable[..., Any]] = {
        f"poscod.metrics.{name}": lambda *s, metric=metric: metric.function(
            *(dict(zip(("score_id", "loss_id", "score_ood", "pooled"), s, strict=True))[key] for key in metric.inputs)
        )
        for name, metric in METRICS.items()
    }
    calls["poscod: auroc + aurc + ausrt, three calls (goal <= 2.5)"] = lambda a, loss, b, _: (
        auroc(a, b),
        aurc(a, loss),
        ausrt(a, loss, b),
    )
    calls["poscod.metrics.summary, all of the above in one call (goal <= 1.8)"] = lambda a, loss, b, _: summary(
        a, loss, b
    )
    calls |= _others()
    calls["scikit-learn roc_auc_score"] = lambda a, _, b, pooled: roc_auc_score(
        np.repeat([0, 1], [len(a), len(b)]), pooled
    )
    for m, n in SIZES[: 1 if quick else None]:
        samples = [_draw(m, n, seed) for seed in range(40 if m + n < 200_000 else 8)]
        # Each sample is timed by all in turn, so that a busy minute is everyone's.
        times = [[cpu_seconds(call, [sample]) for call in (_touch, _one_sort, *calls.values())] for sample in samples]
        _, unit, *best = np.min(times, axis=0)
        title = f"{m + n:,} rows ({m:,} ID + {n:,} OOD); one np.argsort of the pooled score = {unit * 1e3:.2f} ms = 1"
        print_table(
            title, ["call", "x argsort"], [[name, float(t / unit)] for name, t in zip(calls, best, strict=True)]
        )


def _one_sort(_: Any, __: Any, ___: Any, pooled: np.ndarray) -> Any:
    return np.argsort(pooled)


def _touch(*sample: np.ndarray) -> None:
    """Read a sample into the cache: who is timed first shall not pay for those who follow."""
    for array in sample:
        array.sum()


def _draw(m: int, n: int, seed: int) -> tuple[np.ndarray, ...]:
    """Scores and 0/1 losses of ID rows, scores of OOD rows, all scores."""
    rng = np.random.default_rng(seed)
    score_id, loss, score_ood = rng.normal(size=m), (rng.random(m) < 0.07).astype(float), rng.normal(1.0, 1.0, n)
    return score_id, loss, score_ood, np.concatenate([score_id, score_ood])


def _others() -> dict[str, Callable[..., Any]]:
    """Other public implementations; what is not installed is named and left out."""
    found: dict[str, Callable[..., Any]] = {}
    try:
        import torch
        from pytorch_ood.utils import OODMetrics
    except ImportError as error:
        print(f"pytorch-ood left out: {error}")
    else:

        def ood_metrics(score_id: np.ndarray, _: Any, score_ood: np.ndarray, __: Any) -> Any:
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

        def torch_aurc(score_id: np.ndarray, loss: np.ndarray, _: Any, __: Any) -> Any:
            metric = AURC()
            metric.update(torch.tensor(1 / (1 + np.exp(score_id))), torch.tensor(1 - loss).long())
            return metric.compute()

        found["torch-uncertainty AURC"] = torch_aurc
    return found


if __name__ == "__main__":
    main()
