"""Labeled rows that the classifier was trained on: how often fit says so, and how often it says so of held-out rows.

Run ``python -m benchmarks.trained_on [--quick] [--sets ...] [--kinds ...] [--fits K]``. For every fit a classifier is trained on 500 rows and given frozen, or through its outputs
(`Activations`), once with these rows and once with 500 held-out ones, beside 500 rows of traffic: without OOD, or with 10 or 30 % of near OOD (classes left out) or far OOD
(noise of twice the spread), in the class mix of the labeled rows or in another one. "Missed" are fits on the classifier's own rows whose TPR on fresh rows is more than 0.05 below 0.95.
Kinds "of many" are trained on six times as many rows and given 500 of them. Sets named "easy" have (nearly) no errors on held-out rows. "May be" is the answer where it cannot be told.
The network of CIFAR-10 (resnet56) comes with its own training rows. Results are written to the cache as they finish.

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
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_blobs, make_classification, make_gaussian_quantiles
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._timing import print_table
from benchmarks.null_gate import table_rows
from benchmarks.ratio_quality import DATA, add_labels, append, read_cache
from benchmarks.small_data import clinc_rows
from poscod import POSCOD, Activations
from poscod.ratio import CorrectedSigmoid, SeenByClassifierWarning

TPR_MIN, MISS, ROWS, TRAFFIC = 0.95, 0.05, 500, 500
KEY = ("label", "set", "kind", "fit", "rows")
VALUES = ("traffic", "warned", "trace", "tpr")
TRAFFICS = [(0.0, "near", False), (0.3, "near", False), (0.1, "far", True), (0.3, "far", False), (0.1, "near", True)]
# Limits were chosen on the first group. Of the second, one fit of clinc was looked at before three limits were set, and resnet's training rows before those of "may be"; the others only report.
DEVELOPMENT = (
    "digits",
    "clouds",
    "wide",
    "table",
    "noisy",
    "rings",
    "easy clouds",
    "easy wide",
    "easy digits",
    "easy clinc",
)
REPORT = ("clinc", "cifar", "resnet", "easy cifar", "easy blobs")
Rows = tuple[Any, Any]


def scaled(last: Any) -> Any:
    """Return a classifier of scaled columns."""
    return make_pipeline(StandardScaler(), last)


CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "forest": lambda s: RandomForestClassifier(100, random_state=s),
    "pruned forest": lambda s: RandomForestClassifier(50, min_samples_leaf=5, random_state=s),
    "extra trees": lambda s: ExtraTreesClassifier(100, random_state=s),
    "boosting": lambda s: HistGradientBoostingClassifier(early_stopping=False, random_state=s),
    "weak boosting": lambda s: HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=8, early_stopping=False),
    "network": lambda s: scaled(MLPClassifier((100,), max_iter=200, random_state=s)),
    "logistic": lambda s: scaled(LogisticRegression(max_iter=3000)),
    "logistic, C = 100": lambda s: scaled(LogisticRegression(C=100.0, max_iter=3000)),
    "logistic, C = 0.01": lambda s: scaled(LogisticRegression(C=0.01, max_iter=3000)),
    "naive Bayes": lambda s: GaussianNB(),
}
# How the rows are given: to a frozen classifier, as its outputs beside the columns, or its outputs alone. A network's features are its last layer.
KINDS = [
    *CLASSIFIERS,
    "forest, outputs",
    "boosting, outputs",
    "forest, probabilities",
    "network, outputs",
    "logistic, outputs",
    "network of many, outputs",
    "boosting of many, outputs",
    "network of many",
]
OF_MANY, MANY = " of many", 6
MAY_BE = "without_error"
HELD_OUT = {"held out": "warnings on held-out rows", "held out, may be": '"may be" among these'}


def clouds(seed: int, n: int, d: int = 10, k: int = 7, spread: float = 1.2) -> Rows:
    """Return Gaussian classes."""
    rng, world = np.random.default_rng(seed), np.random.default_rng(5)
    y = rng.integers(0, k, n)
    return world.normal(0.0, spread, (k, d))[y] + rng.normal(size=(n, d)), y


def fixed(X: Any, y: Any) -> Callable[[int, int], Rows]:
    """Return draws from the rows of a set."""

    def draw(seed: int, n: int) -> Rows:
        order = np.random.default_rng(seed).permutation(len(y))[:n]
        return X[order], y[order]

    return draw


def noisy() -> Rows:
    """Return classes of two clusters each in 30 columns, with 3 % wrong labels."""
    how: dict[str, Any] = {"n_informative": 12, "n_classes": 6, "n_clusters_per_class": 2, "flip_y": 0.03}
    made: Rows = make_classification(12000, 30, class_sep=1.2, random_state=3, **how)
    return made


def clinc(data: Path) -> Rows:
    X, y, _ = clinc_rows(data, 25)
    return X, np.unique(y, return_inverse=True)[1]


def cifar(data: Path) -> Rows:
    file = np.load(data / "cifar10_resnet56" / "cifar10_test.npz")
    return file["features"].astype(np.float64), file["labels"]


# How rows are drawn, and how many of the classes are known; the others are near OOD.
SETS: dict[str, Callable[[Path], tuple[Callable[[int, int], Rows], int]]] = {
    "digits": lambda data: (fixed(*load_digits(return_X_y=True)), 8),
    "clouds": lambda data: (clouds, 5),
    "wide": lambda data: (lambda seed, n: clouds(seed, n, 100, 4, 0.25), 3),
    "table": lambda data: (lambda seed, n: table_rows(seed, n), 2),
    "noisy": lambda data: (fixed(*noisy()), 5),
    "rings": lambda data: (
        fixed(*make_gaussian_quantiles(n_samples=12000, n_features=6, n_classes=4, random_state=0)),
        3,
    ),
    "clinc": lambda data: (fixed(*clinc(data)), 20),
    "cifar": lambda data: (fixed(*cifar(data)), 8),
    "easy clouds": lambda data: (lambda seed, n: clouds(seed, n, 10, 7, 3.0), 5),
    "easy wide": lambda data: (lambda seed, n: clouds(seed, n, 100, 4, 0.5), 3),
    "easy digits": lambda data: (fixed(*first(*load_digits(return_X_y=True), (0, 6, 4, 2))), 4),
    "easy clinc": lambda data: (fixed(*clinc(data)), 5),
    "easy cifar": lambda data: (fixed(*first(*cifar(data), (8, 7, 6))), 3),
    "easy blobs": lambda data: (fixed(*make_blobs(12000, 20, centers=6, cluster_std=2.5, random_state=2)[:2]), 4),
}


def first(X: Any, y: Any, classes: tuple[int, ...]) -> Rows:
    """Return rows with classes numbered anew, some of them first."""
    order = [*classes, *(k for k in range(int(y.max()) + 1) if k not in classes)]
    return X, np.argsort(order)[y]


FOLDERS = {name: folder for word, folder in (("clinc", "clinc150"), ("cifar", "cifar10_resnet56")) for name in (word, f"easy {word}")}  # fmt: skip
FOLDERS["resnet"] = FOLDERS["cifar"]


def split(draw: Callable[[int, int], Rows], known: int, seed: int, many: int = 1) -> dict[str, Any]:
    """Return rows to train on, those of them that are given, held-out rows, traffic and fresh rows."""
    pi, kind, other_mix = TRAFFICS[seed % len(TRAFFICS)]
    X, y = draw(seed, 8000)
    rng = np.random.default_rng([seed, 1])
    own, strange = np.flatnonzero(y < known), np.flatnonzero(y >= known)
    n = min(ROWS, len(own) // (3 + many))
    train, held, rest = own[: many * n], own[many * n : (many + 1) * n], own[(many + 1) * n :]
    size = min(round((1.0 - pi) * TRAFFIC), len(rest) // 2)
    p = rng.dirichlet(np.ones(known))[y[rest]] if other_mix else np.ones(len(rest))
    inside = rng.choice(rest, size, replace=False, p=p / p.sum())
    n_ood = round(size * pi / (1.0 - pi))
    ood = X[strange[:n_ood]]
    if kind == "far":
        ood = X[own].mean(axis=0) + 2.0 * X[own].std(axis=0) * rng.normal(size=(n_ood, X.shape[1]))
    fresh = np.setdiff1d(rest, inside)
    at = {"train": train, "trained on": train[:n], "held out": held, "fresh": fresh}
    found = {name: (X[rows], y[rows]) for name, rows in at.items()}
    return {**found, "traffic": np.concatenate([X[inside], ood]), "words": f"{pi:g} {kind}{' mix' * other_mix}"}


def given(kind: str, classifier: Any) -> Callable[..., Any]:
    """Return how rows are given to POSCOD."""
    how = kind.partition(", ")[2]
    if how not in ("outputs", "probabilities"):
        return lambda X, y=None: X

    def outputs(X: Any, y: Any = None) -> Activations:
        features = None if how == "probabilities" else X
        if kind.startswith("network"):
            first = classifier[-1]
            features = np.maximum(classifier[0].transform(X) @ first.coefs_[0] + first.intercepts_[0], 0.0)
        return Activations(features, np.log(np.maximum(classifier.predict_proba(X), 1e-12)), y)

    return outputs


def look(template: Any, rows: Any, y: Any, traffic: Any, fresh: Any, quick: bool) -> dict[str, Any]:
    """Fit once, note whether training was noticed, and measure TPR on fresh rows; the quick ratio where only the warning counts."""
    more: dict[str, Any] = {"ratio": CorrectedSigmoid("paper"), "class_mix": "labeled"} if quick else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = POSCOD(template, tpr_min=TPR_MIN, random_state=0, **more).fit(rows, y, X_unlabeled=traffic)
    found = [w.message for w in caught if isinstance(w.message, SeenByClassifierWarning)]
    assert bool(found) == (model.rule_.promise is None)
    trace = found[0].facts["trace"] if found else ""
    tpr = "" if quick else float(model.decide(fresh).accept.mean())
    return {"warned": int(bool(found)), "trace": trace, "tpr": tpr}


def measure(draw: Any, known: int, kind: str, seed: int) -> list[dict[str, Any]]:
    """Train one classifier and give it both kinds of rows."""
    parts = split(draw, known, seed, MANY if OF_MANY in kind else 1)
    name = kind.replace(OF_MANY, "").removesuffix(", outputs").removesuffix(", probabilities")
    classifier = CLASSIFIERS[name](seed).fit(*parts["train"])
    rows = given(kind, classifier)
    template = FrozenEstimator(classifier) if ", " not in kind or kind in CLASSIFIERS else None
    both, ends = [], (rows(parts["traffic"]), rows(parts["fresh"][0]))
    for which in ("trained on", "held out"):
        X, y = parts[which]
        both.append(
            {"rows": which, "traffic": parts["words"], **look(template, rows(X), y, *ends, which == "held out")}
        )
    return both


def network(data: Path, seed: int) -> list[dict[str, Any]]:
    """Give a real network its own training rows, or test rows."""
    folder, rng = data / "cifar10_resnet56", np.random.default_rng(seed)
    files = {
        name: np.load(folder / f"{name}.npz")
        for name in ("cifar10_train_20k", "cifar10_test", "cifar100_test", "svhn_test")
    }
    pi, kind, _ = TRAFFICS[seed % len(TRAFFICS)]

    def some(name: str, at: Any, labels: bool = False) -> Activations:
        part = files[name]
        return Activations(
            part["features"][at].astype(np.float64),
            part["logits"][at].astype(np.float64),
            part["labels"][at] if labels else None,
        )

    order, n = rng.permutation(10000), 2 * TRAFFIC
    ood = some("cifar100_test" if kind == "near" else "svhn_test", rng.permutation(5000)[: round(n * pi / (1.0 - pi))])
    inside = some("cifar10_test", order[:n])
    traffic = Activations(np.concatenate([inside.features, ood.features]), np.concatenate([inside.logits, ood.logits]))
    both = []
    for which, name, at in (
        ("trained on", "cifar10_train_20k", rng.permutation(20000)[:n]),
        ("held out", "cifar10_test", order[n : 2 * n]),
    ):
        labeled = some(name, at, labels=True)
        found = look(None, labeled, None, traffic, some("cifar10_test", order[2 * n : 6000]), which == "held out")
        both.append({"rows": which, "traffic": f"{pi:g} {kind}", **found})
    return both


def show(rows: list[dict[str, str]]) -> None:
    """Print one line per set and kind, and what has to be said of the groups of sets."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[row["set"], row["kind"]].append(row)
    lines = []
    total: dict[tuple[str, str], list[int]] = defaultdict(list)
    order = [*DEVELOPMENT, *REPORT]
    for name, kind in sorted(groups, key=lambda g: (order.index(g[0]), KINDS.index(g[1]) if g[1] in KINDS else 99)):
        own, held = (
            [row for row in groups[name, kind] if row["rows"] == which] for which in ("trained on", "held out")
        )
        missed = [int(row["warned"]) for row in own if float(row["tpr"]) < TPR_MIN - MISS]
        false = [int(row["warned"]) for row in held]
        open_ = [int(row["trace"] == MAY_BE) for row in held]
        traces = ", ".join(sorted({row["trace"] for row in own} - {""}))
        tpr = float(np.mean([float(row["tpr"]) for row in own]))
        lines.append(
            [name, kind, f"{tpr:.3f}", f"{sum(missed)} of {len(missed)}", f"{sum(false)} of {len(false)}", traces]
        )
        group = "development" if name in DEVELOPMENT else "report"
        total[group, "network, outputs" if kind == "network, outputs" else "others"] += missed
        total[group, "held out"] += false
        total[group, "held out, may be"] += open_
    print_table(
        "Rows the classifier was trained on",
        ["set", "kind", "TPR trained on", "missed: warned", "held out: warned", "traces"],
        lines,
    )
    print()
    for (group, what), found in sorted(total.items()):
        share = float(np.mean(found)) if found else float("nan")
        words = HELD_OUT.get(what, f"warned where TPR is missed ({what})")
        print(f"{group}: {words}: {sum(found)} of {len(found)} ({100 * share:.1f} %)")


def main(quick: bool | None = None) -> None:
    """Run the missing fits and print the table; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one fit of three kinds on one set")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with clinc150/ and cifar10_resnet56/")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "poscod_trained_on.csv")
    add_labels(parser)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "resnet"], default=[*SETS, "resnet"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--fits", type=int, default=10)
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="stop after so many minutes; run again to continue"
    )
    options = parser.parse_args([] if quick is not None else None)
    if options.quick or quick:
        options.sets, options.kinds, options.fits = ["clouds"], ["forest", "logistic", "forest, outputs"], 1
    for name, folder in FOLDERS.items():
        if name in options.sets and not (options.data / folder).is_dir():
            print(f"Without {name}: no data in {options.data}; pass --data DIR with {folder}/.")
            options.sets.remove(name)
    done = {tuple(row[part] for part in KEY[:4]) for row in read_cache(options.cache)}
    made = {name: SETS[name](options.data) for name in options.sets if name in SETS}
    start = time.monotonic()
    wanted = list(itertools.product(range(options.fits), made, options.kinds))
    if "resnet" in options.sets:
        wanted += [(seed, "resnet", "network, outputs") for seed in range(options.fits)]
    for seed, name, kind in sorted(wanted, key=lambda cell: cell[0]):
        place = {"label": options.label, "set": name, "kind": kind, "fit": seed}
        if tuple(map(str, place.values())) in done or time.monotonic() - start > 60 * options.minutes:
            continue
        cells = network(options.data, seed) if name == "resnet" else measure(*made[name], kind, seed)
        append(options.cache, (*KEY, *VALUES), [{**place, **cell} for cell in cells])
    asked = {"set": options.sets, "kind": [*options.kinds, "network, outputs"], "label": [options.label]}
    rows = [row for row in read_cache(options.cache) if all(row[part] in among for part, among in asked.items())]
    show([row for row in rows if int(row["fit"]) < options.fits])


if __name__ == "__main__":
    main()
