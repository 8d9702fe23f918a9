"""OOD rows inside the ID data: rows stuck at a class mean, imputed columns, one constant row, rows shrunken towards the mean.

Run ``python -m benchmarks.inlying [--quick] [--label NAME] [--sets ...] [--classifiers ...] [--kinds ...] [--shares ...] [--fits K]``. Labeled rows and traffic
(600 each), fresh ID and fresh OOD rows are drawn anew for every fit of the default model; the sets "resnet56" and "clinc" are activations of a network (features, and
what its last layer makes of them), 1,500 of each, where their data are there. A share of 0 counts how often the gate opens at its level of 0.05. "Trees" is
what 5-fold boosted trees on the raw columns reach as a classifier of traffic against labeled rows: the AUROC of true OOD against ID rows, which no fit is told.
Results are written to the cache as they finish; with another library first on PYTHONPATH and another label two libraries share a cache and the table.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_predict

from benchmarks._timing import print_table
from benchmarks.null_gate import CLASSIFIERS, LEVEL, ROWS, TPR_MIN, table_rows
from benchmarks.ratio_quality import DATA, add_labels, append, clinc_head, load, read_cache, timed
from poscod import POSCOD, Activations
from poscod.metrics import auroc

FRESH, NETWORK_ROWS = 1000, 1500
SHARES = (0.0, 0.1, 0.3, 0.5)
KEY = ("label", "set", "classifier", "kind", "share", "fit")
VALUES = ("gate_open", "fpr", "tpr", "pi_hat", "trees", "seconds")


def digits_rows(seed: int) -> tuple[Any, Any]:
    """Return the 8 x 8 digits in a random order."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order].astype(np.float64), y[order]


class Set(NamedTuple):
    """Rows to draw: a seed -> features and labels; rows of a side; and what a model is given of features."""

    draw: Callable[[int], tuple[Any, Any]]
    rows: int = ROWS
    given: Callable[[Any], Any] = np.asarray


def activations(name: str) -> Set:
    """Return a network's features, and its last layer."""
    folder = DATA / ("clinc150" if name == "clinc" else "cifar10_resnet56")
    rows = load(DATA, "clinc150" if name == "clinc" else "svhn_test")[0]
    layer = np.load(clinc_head(folder) if name == "clinc" else folder / "final_layer.npz")
    weight, bias = (layer[key].astype(np.float32) for key in (("weight", "bias") if name == "clinc" else ("W", "b")))

    def draw(seed: int) -> tuple[Any, Any]:
        order = np.random.default_rng(seed).permutation(len(rows))
        return rows.features[order], rows.labels[order]

    def given(features: Any) -> Activations:
        narrow = np.asarray(features, dtype=np.float32)
        return Activations(narrow, narrow @ weight.T + bias)

    return Set(draw, NETWORK_ROWS, given)


SETS: dict[str, Callable[[], Set]] = {
    "table": lambda: Set(lambda seed: table_rows(seed, 2 * ROWS + 2 * FRESH)),
    "digits": lambda: Set(digits_rows),
    "resnet56": lambda: activations("resnet56"),
    "clinc": lambda: activations("clinc"),
}
NETWORKS, NETWORK = ("resnet56", "clinc"), "its own"


def stuck(X: Any, y: Any, rows: Any, codes: Any, rng: Any) -> Any:
    """Return rows at the mean of a class, up to a hundredth of a standard deviation."""
    means = class_means(X, y, codes)
    return means + 0.01 * X.std(axis=0) * rng.normal(size=means.shape)


def class_means(X: Any, y: Any, codes: Any) -> Any:
    """Return the mean of the class of each row; that of all rows for classes without any."""
    return np.stack([X[y == code].mean(axis=0) if (y == code).any() else X.mean(axis=0) for code in codes])


def closer(X: Any, y: Any, rows: Any, codes: Any, rng: Any) -> Any:
    """Return rows half-way to the mean of their class."""
    return 0.5 * (rows + class_means(X, y, codes))


def dimmed(X: Any, y: Any, rows: Any, codes: Any, rng: Any) -> Any:
    """Return rows at eight tenths of their length."""
    return 0.8 * rows


def imputed(X: Any, y: Any, rows: Any, codes: Any, rng: Any) -> Any:
    """Return rows with the mean in the first half of the columns."""
    half = X.shape[1] // 2
    return np.concatenate([np.repeat(X[:, :half].mean(axis=0)[None], len(rows), axis=0), rows[:, half:]], axis=1)


def constant(X: Any, y: Any, rows: Any, codes: Any, rng: Any) -> Any:
    """Return one row again and again: the mean of all."""
    return np.repeat(X.mean(axis=0)[None], len(rows), axis=0)


def shrunken(X: Any, y: Any, rows: Any, codes: Any, rng: Any) -> Any:
    """Return rows at three tenths of their distance from the mean."""
    return X.mean(axis=0) + 0.3 * (rows - X.mean(axis=0))


KINDS: dict[str, Callable[..., Any]] = {
    "stuck": stuck,
    "imputed": imputed,
    "constant": constant,
    "shrunken": shrunken,
    "closer": closer,
    "dimmed": dimmed,
}


def measure(rows: Set, name: str, kind: str, share: float, seed: int) -> dict[str, Any]:
    """Fit the default model once, and measure it on fresh rows."""
    X, y = rows.draw(seed)
    rng, n, many = np.random.default_rng(seed), rows.rows, round(share * rows.rows)
    labeled, codes = X[:n], y[:n]
    # Rows that others are made of come after those of the traffic's ID part; the fresh ones are the last half of what there is.
    first, last = slice(2 * n - many, 2 * n), slice(n + len(X) // 2, None)
    ood = KINDS[kind](labeled, codes, X[first], y[first], rng) if many else X[:0]
    fresh_ood = KINDS[kind](labeled, codes, X[last], y[last], rng)
    traffic = np.concatenate([X[n : 2 * n - many], ood])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, taken = timed(
            lambda: POSCOD(
                None if name == NETWORK else CLASSIFIERS[name](seed), tpr_min=TPR_MIN, random_state=seed
            ).fit(rows.given(labeled), codes, X_unlabeled=rows.given(traffic))
        )
    trees = float("nan")
    if share > 0.0:
        boosted = HistGradientBoostingClassifier(max_iter=30, early_stopping=False, random_state=0)
        sides = np.repeat([0, 1], [n, n])
        both = np.concatenate([labeled, traffic])
        order, found = rng.permutation(2 * n), np.empty(2 * n)
        found[order] = cross_val_predict(boosted, both[order], sides[order], method="decision_function")
        trees = float(auroc(found[: 2 * n - many], found[2 * n - many :]))
    return {
        "gate_open": int(model.ratio_.gate_open_),
        "fpr": float(model.decide(rows.given(fresh_ood)).accept.mean()) if share > 0.0 else float("nan"),
        "tpr": float(model.decide(rows.given(X[2 * n :][:FRESH])).accept.mean()),
        "pi_hat": model.ood_prior_,
        "trees": trees,
        "seconds": taken,
    }


def show(rows: list[dict[str, str]]) -> None:
    """Print one line per set, classifier, kind, share and label."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[row["set"], row["classifier"], row["kind"], row["share"], row["label"]].append(row)
    lines = []
    for key in sorted(groups, key=lambda k: (list(SETS).index(k[0]), *k[1:])):
        value = {part: np.array([float(row[part]) for row in groups[key]]) for part in VALUES}
        fits, share = len(value["fpr"]), float(key[3])
        opened, verdict = int(value["gate_open"].sum()), ""
        if share == 0.0:
            verdict = "above" if opened > binom.ppf(0.975, fits, LEVEL) else "within"
        elif value["trees"].min() > 0.99:
            near = np.abs(value["pi_hat"] - share).max() <= 0.05
            verdict = "yes" if value["fpr"].max() <= 0.15 and near else "no"
        gate = f"{opened} of {fits}"
        rates = [f"{value[part].mean():.3f} (max {value[part].max():.3f})" for part in ("fpr", "pi_hat")]
        lines.append([*key, f"{value['trees'].mean():.3f}", gate, *rates, float(value["tpr"].mean()), verdict])
    header = ["set", "classifier", "kind", "share", "library", "trees", "gate open", "FPR", "pi_hat", "TPR", "goal"]
    print_table(
        f"OOD rows inside the ID data: {ROWS} labeled and {ROWS} of traffic ({NETWORK_ROWS} of networks), tpr_min = {TPR_MIN}",
        header,
        lines,
    )
    print(
        "\nGoal, where trees reach an AUROC above 0.99: every fit has FPR <= 0.15 and pi_hat within 0.05. Share 0: the gate is at its level."
    )


def main(quick: bool | None = None) -> None:
    """Run the missing fits and print the table; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one fit of one classifier on one set")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "poscod_inlying.csv")
    add_labels(parser)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument(
        "--classifiers", nargs="+", choices=CLASSIFIERS, default=[name for name in CLASSIFIERS if name != "naive_bayes"]
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--fits", type=int, default=3)
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="stop after so many minutes; run again to continue"
    )
    options = parser.parse_args([] if quick is not None else None)
    if options.quick or quick:
        options.sets, options.classifiers, options.shares, options.fits = ["table"], ["logistic"], [0.0, 0.3], 1
    done = {tuple(row[part] for part in KEY) for row in read_cache(options.cache)}
    start, made = (
        time.monotonic(),
        {name: SETS[name]() for name in options.sets if name not in NETWORKS or DATA.is_dir()},
    )
    cells = itertools.product(
        range(options.fits), made, [*options.classifiers, NETWORK], options.kinds, map(float, options.shares)
    )
    for seed, name, classifier, kind, share in cells:
        if (classifier == NETWORK) != (name in NETWORKS):
            continue
        if share == 0.0 and kind != options.kinds[0]:  # there is nothing to be of a kind
            continue
        place = {
            "label": options.label,
            "set": name,
            "classifier": classifier,
            "kind": kind if share else "-",
            "share": share,
            "fit": seed,
        }
        if tuple(map(str, place.values())) in done or time.monotonic() - start > 60 * options.minutes:
            continue
        append(options.cache, (*KEY, *VALUES), [{**place, **measure(made[name], classifier, kind, share, seed)}])
    asked = {
        "set": options.sets,
        "classifier": [*options.classifiers, NETWORK],
        "label": [options.label, *options.beside],
    }
    asked |= {"kind": [*options.kinds, "-"], "share": [str(float(share)) for share in options.shares]}
    rows = [row for row in read_cache(options.cache) if all(row[part] in among for part, among in asked.items())]
    show([row for row in rows if int(row["fit"]) < options.fits])


if __name__ == "__main__":
    main()
