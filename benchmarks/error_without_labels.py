"""Print how near the error that a monitor estimates without labels is to the one that labels show, with OOD inputs in the traffic.

A public network's activations (CIFAR-10, ResNet-56): 3,000 labeled rows and a log of 2,000 with 20 % OOD inputs of the same kind fit the rule; then windows of 1,000 rows that nothing has seen hold 0, 10
and 40 % of them. Run with ``python -m benchmarks.error_without_labels --data FOLDER``.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from poscod import POSCOD, Activations
from poscod.monitor import Monitor, Reference

SHARES = (0.0, 0.1, 0.4)


def joined(*parts: Activations) -> Activations:
    """Put rows of several sets below each other."""
    return Activations(np.concatenate([p.features for p in parts]), np.concatenate([p.logits for p in parts]))


def windows(known: Activations, ood: Activations, sample: str, seed: int, count: int) -> Any:
    """Yield share, windows of the monitor, and realised errors, of answers and of all rows."""
    rng = np.random.default_rng(seed)
    p, q = rng.permutation(len(known)), rng.permutation(len(ood))
    labeled = known[p[:3000]]
    log = joined(known[p[3000:4600]], ood[q[:400]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = POSCOD(random_state=seed).fit(labeled, labeled.labels, X_unlabeled=log)
        reference = Reference.from_model(model, ood=ood[q[400:800]] if sample == "400 OOD rows" else None)
    rest, beyond = p[4600:], q[800:]
    for share in SHARES:
        monitor, real, n_ood = Monitor(reference, window=1.0), [], int(1000 * share)
        for day in range(count):
            i, j = rng.choice(rest, 1000 - n_ood, replace=False), rng.choice(beyond, n_ood, replace=False)
            decisions = model.decide(joined(known[i], ood[j]))
            wrong = np.append(decisions.label[: len(i)] != known.labels[i], np.ones(n_ood, dtype=bool))
            real.append((wrong[decisions.accept].mean(), wrong.mean()))
            monitor.update(decisions, at=float(day))
        yield share, monitor.windows(), np.array(real)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds cifar10_resnet56")
    parser.add_argument("--ood", nargs="*", default=["svhn_test", "cifar100_test"], help="files of OOD inputs")
    parser.add_argument("--seeds", type=int, default=3, help="fits a line")
    parser.add_argument("--windows", type=int, default=10, help="windows a fit and share")
    args = parser.parse_args()
    folder = args.data / "cifar10_resnet56"
    known = Activations.load(folder / "cifar10_test.npz")
    print(
        "| OOD | what the monitor knows of it | share | error of answers: realised, estimated | largest mean miss of a fit | covered | error of all: realised, estimated | largest | covered |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in args.ood:
        with np.load(folder / f"{name}.npz") as file:  # its labels are of other classes
            ood = Activations(file["features"], file["logits"])
        for sample in ("the log of the fit", "400 OOD rows"):
            found: dict[float, list[Any]] = {}
            for seed in range(args.seeds):
                for share, seen, real in windows(known, ood, sample, seed, args.windows):
                    found.setdefault(share, []).append((seen, real))
            for share, runs in found.items():
                cells = []
                for place, key in enumerate(("error", "error_all")):
                    shares = [[getattr(window, key) for window in seen] for seen, _ in runs]
                    real = [values[:, place] for _, values in runs]
                    guess = [np.array([s.estimate for s in run]) for run in shares]
                    miss = max(abs(float((g - r).mean())) for g, r in zip(guess, real, strict=True))
                    held = np.mean(
                        [
                            s.low <= r <= s.high
                            for run, rs in zip(shares, real, strict=True)
                            for s, r in zip(run, rs, strict=True)
                        ]
                    )
                    cells.append(f"{np.mean(real):.3f}, {np.mean(guess):.3f} | {miss:.3f} | {held:.2f}")
                print(
                    f"| {name.removesuffix('_test')} | {sample} | {share:.0%} | " + " | ".join(cells) + " |", flush=True
                )


if __name__ == "__main__":
    main()
