"""Traffic without OOD rows: how often the gate opens, and what becomes of the TPR, whatever the classifier.

Run ``python -m benchmarks.null_gate [--quick] [--label NAME] [--sets ...] [--classifiers ...] [--fits K]``. Labeled rows and traffic (600 each) and fresh rows are
drawn anew for every fit, all from one distribution; the gate's level is 0.05. Draws from a real set share its rows, so that fits on it are not quite independent.
Results are written to the cache as they finish; with another library first on PYTHONPATH and another label two libraries share a cache and the table.

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
from typing import Any

import numpy as np
from scipy.stats import binom
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from benchmarks._timing import print_table
from benchmarks.ratio_quality import DATA, add_labels, append, read_cache, timed
from benchmarks.small_data import clinc_rows
from poscod import POSCOD

LEVEL, TPR_MIN, ROWS, FRESH = 0.05, 0.95, 600, 3000
KEY = ("label", "set", "classifier", "fit")
VALUES = ("gate_open", "tpr", "pi_hat", "fresh", "seconds")
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "logistic": lambda seed: LogisticRegression(max_iter=500),
    "forest": lambda seed: RandomForestClassifier(100, random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(
        max_iter=30, max_leaf_nodes=8, early_stopping=False, random_state=seed
    ),
    "naive_bayes": lambda seed: GaussianNB(),
}
Draw = Callable[[int], tuple[Any, Any]]


def table_rows(seed: int, rows: int = 2 * ROWS + FRESH, columns: int = 20) -> tuple[Any, Any]:
    """Return rows of three classes in skewed and heavy-tailed columns of different units."""
    rng = np.random.default_rng(seed)
    world = np.random.default_rng(0)  # the same for all fits
    centres, mixing = world.normal(0.0, 0.7, (3, columns)), world.normal(0.0, 0.4, (columns, columns))
    unit = 10.0 ** world.uniform(-2.0, 3.0, columns)
    y = rng.integers(0, 3, rows)
    X = centres[y] + rng.normal(size=(rows, columns)) @ (np.eye(columns) + mixing)
    X[:, ::3] = np.exp(X[:, ::3])
    X[:, 1::3] += rng.standard_t(2.5, (rows, len(X[0, 1::3])))
    return X * unit, y


def shuffled(X: Any, y: Any) -> Draw:
    """Return draws from the rows of a real set."""

    def draw(seed: int) -> tuple[Any, Any]:
        order = np.random.default_rng(seed).permutation(len(y))[: 2 * ROWS + FRESH]
        return X[order], y[order]

    return draw


SETS: dict[str, Callable[[Path], Draw]] = {
    "clinc": lambda data: shuffled(*clinc_rows(data, 30)[:2]),
    "table": lambda data: table_rows,
    "digits": lambda data: shuffled(*load_digits(return_X_y=True)),
}


def measure(draw: Draw, classifier: Callable[[int], Any], seed: int) -> dict[str, Any]:
    """Fit once without any OOD row."""
    X, y = draw(seed)
    n = ROWS
    model, taken = timed(
        lambda: POSCOD(classifier(seed), tpr_min=TPR_MIN, random_state=seed).fit(X[:n], y[:n], X_unlabeled=X[n : 2 * n])
    )
    fresh = model.decide(X[2 * n :])
    return {
        "gate_open": int(model.ratio_.gate_open_),
        "tpr": float(fresh.accept.mean()),
        "pi_hat": model.ood_prior_,
        "fresh": len(fresh),
        "seconds": taken,
    }


def show(rows: list[dict[str, str]]) -> None:
    """Print one line per set, classifier and label."""
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[row["set"], row["classifier"], row["label"]].append(row)
    lines = []
    for key in sorted(groups, key=lambda k: (list(SETS).index(k[0]), list(CLASSIFIERS).index(k[1]), k[2])):
        value = {part: np.array([float(row[part]) for row in groups[key]]) for part in VALUES}
        fits = len(value["tpr"])
        low, high = binom.ppf([0.025, 0.975], fits, LEVEL).astype(int)
        opened = int(value["gate_open"].sum())
        verdict = "above" if opened > high else "within" if opened >= low else "below"
        spread = value["tpr"].std(ddof=1) if fits > 1 else float("nan")
        ideal = (TPR_MIN * (1.0 - TPR_MIN) * (1.0 / ROWS + 1.0 / value["fresh"].mean())) ** 0.5
        tpr = [f"{value['tpr'].mean():.4f} +- {spread / fits**0.5:.4f}", f"{spread:.4f}", f"{ideal:.4f}"]
        gate = [f"{opened} of {fits}", f"{low}-{high}", verdict]
        prior = [f"{value['pi_hat'].mean():.4f}", f"{value['pi_hat'].max():.3f}"]
        lines.append([*key, *gate, *tpr, *prior, float(value["seconds"].mean())])
    header = [
        "set",
        "classifier",
        "library",
        "gate open",
        "95 % limits",
        "level",
        "TPR mean +- se",
        "TPR sd",
        "ideal sd",
    ]
    title = f"No OOD rows: {ROWS} labeled and {ROWS} of traffic, level {LEVEL}, tpr_min = {TPR_MIN}"
    print_table(title, [*header, "pi_hat mean", "pi_hat max", "CPU s"], lines)
    print("\nIdeal sd: what an order statistic of all labeled rows alone would have on so many fresh rows.")


def main(quick: bool | None = None) -> None:
    """Run the missing fits and print the table; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two fits of two classifiers on two sets")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with clinc150/")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "poscod_null_gate.csv")
    add_labels(parser)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--classifiers", nargs="+", choices=CLASSIFIERS, default=list(CLASSIFIERS))
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="stop after so many minutes; run again to continue"
    )
    options = parser.parse_args([] if quick is not None else None)
    if options.quick or quick:
        options.sets, options.classifiers, options.fits = ["table", "digits"], ["logistic", "naive_bayes"], 2
    if "clinc" in options.sets and not (options.data / "clinc150").is_dir():
        print(f"Without clinc: no data in {options.data}; pass --data DIR with clinc150/.")
        options.sets.remove("clinc")
    done = {tuple(row[part] for part in KEY) for row in read_cache(options.cache)}
    draws = {name: SETS[name](options.data) for name in options.sets}
    start = time.monotonic()
    # Fit by fit, so that a run that is stopped early has the same number of fits everywhere.
    for seed, name, kind in itertools.product(range(options.fits), options.sets, options.classifiers):
        place = {"label": options.label, "set": name, "classifier": kind, "fit": seed}
        if tuple(map(str, place.values())) in done or time.monotonic() - start > 60 * options.minutes:
            continue
        append(options.cache, (*KEY, *VALUES), [{**place, **measure(draws[name], CLASSIFIERS[kind], seed)}])
    asked = {"set": options.sets, "classifier": options.classifiers, "label": [options.label, *options.beside]}
    rows = [row for row in read_cache(options.cache) if all(row[part] in among for part, among in asked.items())]
    show([row for row in rows if int(row["fit"]) < options.fits])


if __name__ == "__main__":
    main()
