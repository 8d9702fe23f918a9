"""What few rows give: accuracy, AuSRT, TPR and FPR of the default POSCOD with 300, 1,000 and 3,000 labeled rows.

Run ``python -m benchmarks.small_data [--quick] [--label NAME] [--sets ...] [--n ...] [--seeds K]``. There are as many rows of traffic as labeled ones,
a tenth of them OOD; every seed draws labeled rows, traffic and fresh rows anew. Results are written to the cache as they finish. With another library
first on PYTHONPATH and another label, two libraries share a cache, and the last table sets them side by side, seed by seed.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from benchmarks._timing import print_table
from benchmarks.ratio_quality import DATA, add_labels, append, load, read_cache, timed, to_ratio
from poscod import POSCOD, Activations
from poscod.strategies import plugin_curve

PI, TPR_MIN, FRESH = 0.1, 0.95, 4000
KEY = ("label", "set", "n", "seed")
VALUES = ("labeled", "fresh", "accuracy", "ausrt", "tpr", "fpr", "pi_hat", "gate_open", "seconds")
# What is better for a pair of labels: the sign of a gain.
GAINS = {"accuracy": 1.0, "ausrt": -1.0}


class Source(NamedTuple):
    """ID rows with labels, OOD rows, and what classifies them."""

    rows: Any
    labels: Any
    ood: Any
    classifier: Any


def digits(data: Path, n: int) -> Source:
    """Return the digits 0 to 7, with 8 and 9 as OOD."""
    X, y = load_digits(return_X_y=True)
    return Source(X[y < 8], y[y < 8], X[y >= 8], logistic())


def clinc(data: Path, n: int) -> Source:
    """Return sentence embeddings of 30 intents (60 where 30 have not enough rows), with out-of-scope sentences as OOD."""
    X, y, ood = clinc_rows(data, 30 if n <= 1000 else 60)
    return Source(X, y, ood, logistic())


def clinc_rows(data: Path, intents: int) -> tuple[Any, Any, Any]:
    """Return all rows of a fixed choice of intents, and the out-of-scope rows."""
    X, y = read_clinc(data, "train", "val", "test")
    chosen = np.isin(y, np.random.default_rng(0).permutation(np.unique(y))[:intents])
    return X[chosen], y[chosen], read_clinc(data, "oos_train_plus", "oos_val", "oos_test")[0]


def read_clinc(data: Path, *names: str) -> tuple[Any, Any]:
    files = [np.load(data / "clinc150" / f"{name}.npz") for name in names]
    return np.concatenate([f["features"].astype(np.float32) for f in files]), np.concatenate(
        [f["labels"] for f in files]
    )


def cifar_table(data: Path, n: int) -> Source:
    """Return the features of a network as a table, with a classifier that POSCOD trains."""
    known, ood = load(data, "svhn_test")
    return Source(known.features, known.labels, ood.features, logistic())


def cifar_network(data: Path, n: int) -> Source:
    """Return the same network's activations: nothing trains the classifier."""
    known, ood = load(data, "cifar100_test")
    return Source(known, known.labels, ood, None)


def logistic() -> LogisticRegression:
    return LogisticRegression(C=10.0, max_iter=500)


# Choices of the library were made with the sets marked so.
SETS: dict[str, tuple[Callable[[Path, int], Source], str]] = {
    "digits": (digits, "development"),
    "clinc": (clinc, "report"),
    "cifar_table": (cifar_table, "development"),
    "cifar_network": (cifar_network, "report"),
}


def join(first: Any, second: Any) -> Any:
    """Put two kinds of rows in one traffic."""
    if not isinstance(first, Activations):
        return np.concatenate([first, second])
    return Activations(
        *(np.concatenate([getattr(x, part) for x in (first, second)]) for part in ("features", "logits"))
    )


def labeled_rows(source: Source, n: int) -> int:
    """Return n, or as many labeled rows as leave traffic and fresh rows."""
    rows = len(source.labels)
    return min(n, int((rows - max(300, rows // 5)) / (2.0 - PI)))


def measure(source: Source, n: int, seed: int) -> dict[str, Any]:
    """Fit once and judge on fresh rows."""
    rng = np.random.default_rng(seed)
    p, q = rng.permutation(len(source.labels)), rng.permutation(len(source.ood))
    m = labeled_rows(source, n)
    n_ood = min(round(PI * m), len(q) // 2)
    n_id = m - n_ood
    fresh, fresh_ood = p[m + n_id :][:FRESH], q[n_ood:][:FRESH]
    traffic = join(source.rows[p[m : m + n_id]], source.ood[q[:n_ood]])
    model, taken = timed(
        lambda: POSCOD(source.classifier, tpr_min=TPR_MIN, random_state=seed).fit(
            source.rows[p[:m]], source.labels[p[:m]], X_unlabeled=traffic
        )
    )
    known, ood = model.decide(source.rows[fresh]), model.decide(source.ood[fresh_ood])
    wrong = (known.label != source.labels[fresh]).astype(float)
    g_id, g_ood = to_ratio(known.log_ratio), to_ratio(ood.log_ratio)
    return {
        "labeled": m,
        "fresh": len(fresh),
        "accuracy": 100.0 * (1.0 - wrong.mean()),
        "ausrt": 100.0 * plugin_curve("linear", known.risk, g_id, wrong, ood.risk, g_ood, alpha=0.5).area,
        "tpr": float(known.accept.mean()),
        "fpr": float(ood.accept.mean()),
        "pi_hat": model.ood_prior_,
        "gate_open": int(model.ratio_.gate_open_),
        "seconds": taken,
    }


def show(rows: list[dict[str, str]]) -> None:
    """Print what each label reached, and two labels side by side."""
    groups: dict[tuple[str, int], dict[str, dict[int, dict[str, float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        value = {name: float(row[name]) for name in VALUES}
        groups[row["set"], int(row["n"])][row["label"]][int(row["seed"])] = value
    lines, pairs = [], []
    for (name, n), by in sorted(groups.items(), key=lambda item: (list(SETS).index(item[0][0]), item[0][1])):
        for label, seeds in by.items():
            v = {part: np.array([found[part] for found in seeds.values()]) for part in VALUES}
            spread = v["tpr"].std(ddof=1) if len(v["tpr"]) > 1 else float("nan")
            text = [
                f"{v['accuracy'].mean():.2f}",
                f"{v['ausrt'].mean():.2f}",
                f"{v['tpr'].mean():.3f}",
                f"{spread:.3f}",
            ]
            text += [f"{v['fpr'].mean():.3f}", f"{v['pi_hat'].mean():.3f}", f"{v['gate_open'].mean():.2f}"]
            lines.append(
                [
                    f"{name} ({SETS[name][1]})",
                    int(v["labeled"].mean()),
                    label,
                    len(seeds),
                    *text,
                    float(v["seconds"].mean()),
                ]
            )
        for first, second in itertools.combinations(by, 2):
            # "this" library is compared with the other one, whichever was measured before.
            old, new = (first, second) if first == "first" or second != "first" else (second, first)
            shared = sorted(by[old].keys() & by[new].keys())
            for part, sign in GAINS.items():
                gain = np.array([sign * (by[new][s][part] - by[old][s][part]) for s in shared])
                if len(gain) < 2:
                    continue
                error = gain.std(ddof=1) / len(gain) ** 0.5
                verdict = "tie" if abs(gain.mean()) <= 2.0 * error else "win" if gain.mean() > 0 else "LOSS"
                means = [f"{np.mean([by[who][s][part] for s in shared]):.2f}" for who in (old, new)]
                numbers = [*means, f"{gain.mean():+.2f} +- {error:.2f}"]
                pairs.append([f"{name} ({SETS[name][1]})", n, part, f"{old} -> {new}", len(gain), *numbers, verdict])
    header = [
        "set",
        "labeled",
        "library",
        "seeds",
        "accuracy %",
        "AuSRT %",
        "TPR mean",
        "TPR sd",
        "FPR",
        "pi_hat",
        "gate",
        "CPU s",
    ]
    print_table(
        f"Small data: pi = {PI}, tpr_min = {TPR_MIN}; sets used for choices are marked development", header, lines
    )
    if pairs:
        header = ["set", "n", "what", "libraries", "seeds", "before", "after", "gain", "verdict"]
        print_table(
            "Side by side, the same rows: gain and its standard error; a tie is within two of them", header, pairs
        )


def main(quick: bool | None = None) -> None:
    """Run the missing cells and print the tables; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="digits only, 300 rows, two seeds")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with cifar10_resnet56/ and clinc150/")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "poscod_small_data.csv")
    add_labels(parser)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--n", nargs="+", type=int, default=[300, 1000, 3000], help="labeled rows")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="stop after so many minutes; run again to continue"
    )
    options = parser.parse_args([] if quick is not None else None)
    if options.quick or quick:
        options.sets, options.n, options.seeds = ["digits"], [300], 2
    if not (options.data / "clinc150").is_dir() and options.sets != ["digits"]:
        print(f"Digits only: no data in {options.data}; pass --data DIR with cifar10_resnet56/ and clinc150/.")
        options.sets = [name for name in options.sets if name == "digits"]
    done = {tuple(row[part] for part in KEY) for row in read_cache(options.cache)}
    start = time.monotonic()
    chosen: dict[tuple[str, int], str] = {}  # the first n of so many rows stands for larger ones that a set has not
    for name, n in itertools.product(options.sets, sorted(options.n)):
        source = SETS[name][0](options.data, n)
        if chosen.setdefault((name, labeled_rows(source, n)), str(n)) != str(n):
            continue
        for seed in range(options.seeds):
            place = {"label": options.label, "set": name, "n": n, "seed": seed}
            if tuple(map(str, place.values())) in done or time.monotonic() - start > 60 * options.minutes:
                continue
            found = measure(source, n, seed)
            append(options.cache, (*KEY, *VALUES), [{**place, **found}])
            print(
                f"{options.label} {name} n={n} seed={seed}: AuSRT {found['ausrt']:.2f}, TPR {found['tpr']:.3f}",
                flush=True,
            )
    asked, labels = {(name, n) for (name, _), n in chosen.items()}, {options.label, *options.beside}
    rows = [row for row in read_cache(options.cache) if (row["set"], row["n"]) in asked and row["label"] in labels]
    show([row for row in rows if int(row["seed"]) < options.seeds])


if __name__ == "__main__":
    main()
