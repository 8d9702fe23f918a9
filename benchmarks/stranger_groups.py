"""Groups among strangers: adjusted Rand index, number of groups, and how often the interval of a size holds the truth.

Run ``python -m benchmarks.stranger_groups [--quick] [--data DIR] [--sets ...]``. The method (k-means by silhouette on ten components; HDBSCAN and Gaussian mixtures
were tried) was chosen on "digits" and "textures"; the other sets only report. The index compares groups with the hidden kinds on all likely strangers, where known
inputs are a kind of their own; in brackets on true strangers only.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score

from benchmarks._timing import print_table
from benchmarks.ratio_quality import DATA
from poscod import POSCOD, Activations
from poscod.review import stranger_groups


class Log(NamedTuple):
    """Labeled rows, a log, and the kind of each row of the log; -1 for known inputs."""

    X: Any
    y: Any
    log: Any
    kind: Any


def digits(seed: int, data: Path) -> Log:
    """Digits 0 to 5 are known; 250 rows of 6 to 9 are hidden in the log."""
    X, y = load_digits(return_X_y=True)
    mixed = np.random.default_rng(seed).permutation(len(X))
    X, y = X[mixed], y[mixed]
    known, hidden = np.flatnonzero(y < 6), np.flatnonzero(y > 5)[:250]
    half = len(known) // 2
    log = np.concatenate([known[half:], hidden])
    return Log(X[known[:half]], y[known[:half]], X[log], np.where(y[log] > 5, y[log], -1))


def _network(seed: int, data: Path, sources: tuple[str, ...]) -> Log:
    """CIFAR-10 is known; 150 rows of each source are hidden in a log of 2,200 others."""
    rng, folder = np.random.default_rng(seed), data / "cifar10_resnet56"
    file = np.load(folder / "cifar10_test.npz")
    mixed = rng.permutation(len(file["labels"]))
    parts = [_part(file, mixed[2500:4700])]
    for name in sources:
        other = np.load(folder / f"{name}.npz")
        parts.append(_part(other, rng.permutation(len(other["features"]))[:150]))
    features, logits = (np.concatenate(values) for values in zip(*parts, strict=True))
    labels = file["labels"][mixed[:2500]]
    kind = np.repeat(np.arange(-1, len(sources)), [2200, *[150] * len(sources)])
    return Log(Activations(*_part(file, mixed[:2500]), labels), labels, Activations(features, logits), kind)


def _part(file: Any, rows: Any) -> tuple[Any, Any]:
    return file["features"][rows].astype(np.float32), file["logits"][rows].astype(np.float32)


def textures(seed: int, data: Path) -> Log:
    """Textures and MNIST on CIFAR features."""
    return _network(seed, data, ("dtd10_textures", "mnist_test"))


def cifar(seed: int, data: Path) -> Log:
    """SVHN, Fashion-MNIST and CIFAR-100 on CIFAR features."""
    return _network(seed, data, ("svhn_test", "fashion_mnist_test", "cifar100_test"))


def clinc(seed: int, data: Path) -> Log:
    """140 intents are known; ten are hidden in the log, 50 sentences each."""
    rng, folder = np.random.default_rng(seed), data / "clinc150"
    hidden = rng.permutation(150)[:10]
    train, val, test = (np.load(folder / f"{name}.npz") for name in ("train", "val", "test"))
    code = np.full(150, -1)
    code[np.setdiff1d(np.arange(150), hidden)] = np.arange(140)
    head = Path(tempfile.gettempdir()) / f"poscod_clinc_140_{seed}.npz"
    if not head.exists():
        own = code[train["labels"]] >= 0
        X, y = train["features"][own].astype(np.float32), code[train["labels"][own]]
        model = LogisticRegression(C=30, max_iter=200).fit(X, y)
        np.savez(head, weight=model.coef_.astype(np.float32), bias=model.intercept_.astype(np.float32))
    layer = np.load(head)
    features = np.concatenate([file["features"].astype(np.float32) for file in (val, test)])
    labels = np.concatenate([val["labels"], test["labels"]])
    rows = Activations(features, features @ layer["weight"].T + layer["bias"])
    known = rng.permutation(np.flatnonzero(code[labels] >= 0))
    half = len(known) // 2
    first, log = known[:half], np.concatenate([known[half:], np.flatnonzero(code[labels] < 0)])
    kind = np.where(code[labels[log]] < 0, labels[log], -1)
    y = code[labels[first]]
    return Log(Activations(rows.features[first], rows.logits[first], y), y, rows[log], kind)


SETS: dict[str, Callable[[int, Path], Log]] = {
    "digits (6-9 hidden)": digits,
    "textures (and MNIST, CIFAR features)": textures,
    "CLINC150 (10 intents hidden)": clinc,
    "CIFAR features (SVHN, Fashion-MNIST, CIFAR-100)": cifar,
}


def measure(case: Log, seed: int) -> list[float]:
    """Return what groups of one log are worth."""
    model = POSCOD(random_state=seed).fit(case.X, case.y, X_unlabeled=case.log)
    groups = stranger_groups(model, case.log)
    if not groups:
        return [0.0, 0.0, 0.0, 0.0, 0.0, np.nan]
    rows = np.concatenate([group.index for group in groups])
    code = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    kind = case.kind[rows]
    real = kind >= 0
    holds = [group.size.low <= (case.kind[group.index] >= 0).sum() <= group.size.high for group in groups]
    index = adjusted_rand_score(kind, code), adjusted_rand_score(kind[real], code[real])
    return [float(len(groups)), float(len(rows)), float(real.sum()), *index, float(np.mean(holds))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one log of each set")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    table = []
    for name in args.sets:
        cases = [SETS[name](seed, args.data) for seed in range(1 if args.quick else 5)]
        kinds, hidden = len(np.unique(cases[0].kind)) - 1, int((cases[0].kind >= 0).sum())
        found = np.array([measure(case, seed) for seed, case in enumerate(cases)])
        groups = ", ".join(f"{value:.0f}" for value in found[:, 0])
        rows, real, index, inner, holds = np.nanmean(found[:, 1:], axis=0)
        row = [name, f"{kinds}", groups, f"{hidden}", f"{rows:.0f} ({real:.0f})", f"{index:.2f} ({inner:.2f})"]
        table.append([*row, f"{holds:.2f}"])
    header = ["log", "kinds", "groups found", "strangers", "likely (true)", "adjusted Rand index", "95 % sizes hold"]
    print_table("Groups among strangers", header, table)


if __name__ == "__main__":
    main()
