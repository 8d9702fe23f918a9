"""How good is the ratio learned from a mixture? Real networks, real OOD sets, rare and frequent OOD.

Run ``python benchmarks/ratio_quality.py [--quick] [--data DIR] [--cache FILE]``. Cells are written to the cache as they finish,
so that a second run only fills what is missing. AuSRT in percent at alpha = 0.5, lower is better; r = 1 - MSP. "best single"
is chosen on the test rows (hindsight), "clean oracle" sees the OOD labels of the mixture.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import csv
import itertools
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from poscod import Activations
from poscod.metrics import auroc, ausrt
from poscod.ratio import NNPU, WOODS, CorrectedSigmoid, StandardSigmoid
from poscod.scores import SCORES
from poscod.strategies import plugin_curve, tuned_curve

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
IMAGES = ("cifar100_test", "svhn_test", "mnist_test", "fashion_mnist_test", "dtd10_textures")
FIELDS = ("set", "n", "pi", "seed", "method", "plugin", "tuned", "calibrated", "auroc", "pi_true", "pi_hat", "seconds")
SINGLE = {"ebo": {}, "mls": {}, "entropy": {}, "knn": {"k": 20}, "mahalanobis": {}, "gen": {}}
METHODS = ("MSP", "best single", "SIRC", "paper", "standard", "nnPU", "WOODS", "ours", "clean oracle")
TEST_ROWS = 4000


class Cell(NamedTuple):
    """ID rows, mixture and its hidden OOD flags, test rows."""

    id: Activations
    mixture: Activations
    is_ood: Any
    test: Activations
    ood: Activations


def load(data: Path, name: str) -> tuple[Activations, Activations]:
    """Return ID rows the classifier has not seen and OOD rows."""
    if name == "clinc150":
        return _clinc(data / "clinc150")
    folder = data / "cifar10_resnet56"
    return _network(np.load(folder / "cifar10_test.npz")), _network(np.load(folder / f"{name}.npz"), labeled=False)


def _network(file: Any, labeled: bool = True) -> Activations:
    labels = file["labels"] if labeled else None
    return Activations(file["features"].astype(np.float32), file["logits"].astype(np.float32), labels)


def _clinc(folder: Path) -> tuple[Activations, Activations]:
    """Sentence embeddings with the logits of a logistic regression fitted on the train part (cached)."""
    head = Path(tempfile.gettempdir()) / "poscod_clinc_head.npz"
    if not head.exists():
        train = np.load(folder / "train.npz")
        model = LogisticRegression(C=30, max_iter=200).fit(train["features"].astype(np.float32), train["labels"])
        np.savez(head, weight=model.coef_.astype(np.float32), bias=model.intercept_.astype(np.float32))
    layer = np.load(head)
    parts = []
    for names in (("val", "test"), ("oos_train_plus", "oos_val", "oos_test")):
        files = [np.load(folder / f"{name}.npz") for name in names]
        features = np.concatenate([file["features"].astype(np.float32) for file in files])
        labels = np.concatenate([file["labels"] for file in files])
        parts.append(Activations(features, features @ layer["weight"].T + layer["bias"], labels))
    return parts[0], parts[1]


def split(rows_id: Activations, rows_ood: Activations, n: int, pi: float, seed: int) -> Cell:
    """Draw n ID rows, a mixture of n rows with a share pi of OOD (less where rows run out), and test rows."""
    rng = np.random.default_rng(seed)
    p, q = rng.permutation(len(rows_id)), rng.permutation(len(rows_ood))
    free = len(p) - max(1000, len(p) // 5)
    m = min(n, free // 2)
    n_id = min(round((1.0 - pi) * n), free - m)
    n_ood = min(round(pi / (1.0 - pi) * n_id), 2 * len(q) // 3)
    first, mixed = rows_id[p[:m]], rows_id[p[m : m + n_id]]
    hidden = rows_ood[q[:n_ood]]
    mixture = Activations(
        np.concatenate([mixed.features, hidden.features]), np.concatenate([mixed.logits, hidden.logits])
    )
    return Cell(
        first,
        mixture,
        np.repeat([False, True], [n_id, n_ood]),
        rows_id[p[m + n_id :][:TEST_ROWS]],
        rows_ood[q[n_ood:][:TEST_ROWS]],
    )


def risk(logits: Any, temperature: float = 1.0) -> Any:
    """Return 1 - MSP of tempered logits."""
    z = np.asarray(logits, dtype=np.float64) / temperature
    return -np.expm1(z.max(axis=1) - logsumexp(z, axis=1))


def temperature(rows: Activations) -> float:
    """Return the temperature with the best likelihood of the labels."""

    def loss(log_t: float) -> float:
        z = np.asarray(rows.logits, dtype=np.float64) / np.exp(log_t)
        return float(np.mean(logsumexp(z, axis=1) - z[np.arange(len(z)), rows.labels]))

    return float(np.exp(minimize_scalar(loss, bounds=(-2.0, 2.0), method="bounded").x))


def run(cell: Cell) -> Iterator[dict[str, Any]]:
    """Yield one result per method."""
    wrong = (cell.test.logits.argmax(axis=1) != cell.test.labels).astype(float)
    r_id, r_ood = risk(cell.test.logits), risk(cell.ood.logits)
    t = temperature(cell.id)
    soft_id, soft_ood = risk(cell.test.logits, t), risk(cell.ood.logits, t)
    yield {"method": "MSP", "plugin": 100 * ausrt(r_id, wrong, r_ood, envelope=False), "auroc": auroc(r_id, r_ood)}
    scores = {}
    for name, options in SINGLE.items():
        score = SCORES[name](**options).fit(cell.id)
        scores[name] = score(cell.test), score(cell.ood)
    best = min(scores, key=lambda name: ausrt(scores[name][0], wrong, scores[name][1], envelope=False))
    s_id, s_ood = scores[best]
    yield {
        "method": "best single",
        "plugin": 100 * ausrt(s_id, wrong, s_ood, envelope=False),
        "auroc": auroc(s_id, s_ood),
    }
    k_id, k_ood = scores["knn"]
    yield {"method": "SIRC", "plugin": 100 * plugin_curve("sirc", r_id, k_id, wrong, r_ood, k_ood, alpha=0.5).area}
    clean = cell.mixture[cell.is_ood]
    for name, estimator, other in (
        ("paper", CorrectedSigmoid("paper"), cell.mixture),
        ("standard", StandardSigmoid(l2=1e-3), cell.mixture),
        ("nnPU", NNPU(), cell.mixture),
        ("WOODS", WOODS(), cell.mixture),
        ("ours", CorrectedSigmoid(), cell.mixture),
        ("clean oracle", CorrectedSigmoid(ood_prior=1.0), clean),
    ):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(cell.id, other)
        seconds = time.perf_counter() - start
        g_id, g_ood = (np.exp(np.clip(estimator.log_ratio(x), -600, 600)) for x in (cell.test, cell.ood))
        yield {
            "method": name,
            "plugin": 100 * plugin_curve("linear", r_id, g_id, wrong, r_ood, g_ood, alpha=0.5).area,
            "tuned": 100 * tuned_curve("linear", r_id, g_id, wrong, r_ood, g_ood, alpha=0.5).area,
            "calibrated": 100 * plugin_curve("linear", soft_id, g_id, wrong, soft_ood, g_ood, alpha=0.5).area,
            "auroc": auroc(g_id, g_ood),
            "pi_hat": estimator.ood_prior_,
            "seconds": seconds,
        }


def cells(quick: bool) -> Iterator[tuple[str, int, float, int]]:
    """Yield (set, n, pi, seed), the size of the issue's goals first; n = 0 is all rows."""
    if quick:
        yield from itertools.product(("cifar100_test", "clinc150"), (1000,), (0.1, 0.5), range(1))
        return
    for n in (3000, 1000, 0):
        for seed, pi, name in itertools.product(range(5), (0.5, 0.1, 0.05, 0.02, 0.2), (*IMAGES, "clinc150")):
            yield name, n, pi, seed


def read_cache(path: Path) -> list[dict[str, str]]:
    """Return the finished rows."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table(rows: list[dict[str, str]]) -> str:
    """Return the tables: mean and standard deviation over seeds."""
    groups: dict[tuple[str, int, float], dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["set"], int(row["n"]), float(row["pi"])][row["method"]].append(row)
    lines = []
    for (name, n, pi), methods in sorted(groups.items(), key=lambda item: (item[0][0], -item[0][1], -item[0][2])):
        lines += ["", f"{name}, n = {n or 'all'}, pi = {pi:g}  ({len(methods['MSP'])} seeds)"]
        lines.append(
            f"{'':13s} {'plug-in':>13s} {'tuned':>6s} {'cal. r':>6s} {'AUROC':>6s} {'pi_hat':>13s} {'sec':>5s} {'/oracle':>8s}"
        )
        oracle = np.mean([float(row["plugin"]) for row in methods.get("clean oracle", [])] or [np.nan])
        for method in METHODS:
            if method not in methods:
                continue
            value = {f: np.array([float(row[f] or "nan") for row in methods[method]]) for f in FIELDS[5:]}
            text = [f"{method:13s} {value['plugin'].mean():6.2f} +-{value['plugin'].std():5.2f}"]
            for field, form in (("tuned", "6.2f"), ("calibrated", "6.2f"), ("auroc", "6.3f")):
                mean = value[field].mean()
                text.append(f"{mean:{form}}" if np.isfinite(mean) else " " * 6)
            known = np.isfinite(value["pi_hat"]).all()
            text.append(f"{value['pi_hat'].mean():6.3f} +-{value['pi_hat'].std():.3f}" if known else " " * 14)
            seconds = value["seconds"].mean()
            text.append(f"{seconds:5.1f}" if np.isfinite(seconds) else " " * 5)
            text.append(f"{value['plugin'].mean() / oracle:8.2f}")
            lines.append(" ".join(text))
    return "\n".join(lines)


def main(quick: bool | None = None) -> None:
    """Run the missing cells and print the tables; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, two sets, two shares")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with cifar10_resnet56/ and clinc150/")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "poscod_ratio_quality.csv")
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="stop after so many minutes; run again to continue"
    )
    options = parser.parse_args([] if quick is not None else None)
    options.quick = options.quick or bool(quick)
    if not (options.data / "cifar10_resnet56").is_dir():
        print(f"Skipped: no data in {options.data}; pass --data DIR with cifar10_resnet56/ and clinc150/.")
        return
    rows = read_cache(options.cache)
    done = {(row["set"], int(row["n"]), float(row["pi"]), int(row["seed"])) for row in rows}
    wanted = list(cells(options.quick))
    loaded: dict[str, tuple[Activations, Activations]] = {}
    start = time.monotonic()
    for key in wanted:
        if key in done or time.monotonic() - start > 60 * options.minutes:
            continue
        name, n, pi, seed = key
        if name not in loaded:
            loaded[name] = load(options.data, name)
        cell = split(*loaded[name], n or 10**9, pi, seed)
        new = [
            {"set": name, "n": n, "pi": pi, "seed": seed, "pi_true": float(cell.is_ood.mean()), **result}
            for result in run(cell)
        ]
        fresh = not options.cache.exists()
        with options.cache.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            if fresh:
                writer.writeheader()
            writer.writerows(new)
        ours = next(row for row in new if row["method"] == "ours")
        print(f"{name} n={n} pi={pi} seed={seed}: ours {ours['plugin']:.2f} in {ours['seconds']:.1f} s", flush=True)
    chosen = set(wanted)
    print(
        table(
            [r for r in read_cache(options.cache) if (r["set"], int(r["n"]), float(r["pi"]), int(r["seed"])) in chosen]
        )
    )


if __name__ == "__main__":
    main()
