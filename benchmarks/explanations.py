# SPDX-License-Identifier: BSD-3-Clause
"""Is the strange column named first? Rows of known classes with one strange column each, in made and in real tables.

    python -m benchmarks.explanations [--draws 2]

Each draw fits a model on labeled rows and a log in which 20 % of the rows have one strange column (a random one), and asks why fresh rows of that kind are unfamiliar. Counted are
rows that are rejected as unfamiliar. "shift": the value lies 4 standard deviations beyond the mean. "jump": it is the value of a row of the tail on the other side (inside the range).
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.ensemble import RandomForestClassifier

from poscod import POSCOD


def gaussian(rng, n):
    """Three classes, eight correlated columns."""
    root = np.random.default_rng(5).normal(size=(8, 8))
    centre = np.random.default_rng(6).normal(scale=2.0, size=(3, 8))
    y = rng.integers(3, size=n)
    return centre[y] + rng.normal(size=(n, 8)) @ (0.4 * root + np.eye(8)), y


def skewed(rng, n):
    """Two classes, twelve skewed columns, some of them counts."""
    y = rng.integers(2, size=n)
    X = np.exp(rng.normal(size=(n, 12)) * 0.8 + y[:, None] * np.r_[np.ones(4), np.zeros(8)])
    X[:, 8:] = rng.poisson(np.minimum(X[:, 8:] * 3, 50))
    return X, y


def real(load):
    """Rows of a table of scikit-learn, drawn again with a little noise where it is small."""

    def draw(rng, n):
        X, y = load(return_X_y=True)
        rows = rng.permutation(len(X))[: min(n, len(X))]
        more = rng.integers(len(X), size=n - len(rows))
        X = np.vstack([X[rows], X[more] + 0.2 * X.std(axis=0) * rng.normal(size=(len(more), X.shape[1]))])
        return X, np.r_[y[rows], y[more]]

    return draw


WORLDS = {
    "gaussian": gaussian,
    "skewed": skewed,
    "wine": real(load_wine),
    "breast cancer": real(load_breast_cancer),
}


def strange(X, rng, kind):
    """Return rows with one strange column, and which one."""
    X, column = X.copy(), rng.integers(X.shape[1], size=len(X))
    rows, side = np.arange(len(X)), rng.choice([-1.0, 1.0], size=len(X))
    if kind == "shift":
        X[rows, column] = (X.mean(axis=0) + 4.0 * side[:, None] * X.std(axis=0))[rows, column]
    else:
        low, high = np.quantile(X, [0.02, 0.98], axis=0)
        middle = np.median(X, axis=0)
        X[rows, column] = np.where(X[rows, column] > middle[column], low[column], high[column])
    return X, column


def count(world, kind, seed, classifier=None):
    """Return how many rows are explained, and in how many the strange column comes first and among the first three."""
    rng = np.random.default_rng(seed)
    X, y = WORLDS[world](rng, 600)
    log, _ = WORLDS[world](rng, 500)
    log[:100] = strange(log[:100], rng, kind)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = POSCOD(classifier, random_state=0).fit(X, y, X_unlabeled=log)
    fresh, column = strange(WORLDS[world](rng, 300)[0], rng, kind)
    found = model.decide(fresh, explain=True)
    rows = np.flatnonzero(np.isin(found.reason, ["unfamiliar", "both"]))
    said = [[part.split(" = ")[0] for part in found.detail[i].split("; ")] for i in rows]
    first = sum(words[0] == f"column {column[i]}" for i, words in zip(rows, said, strict=True))
    three = sum(f"column {column[i]}" in words for i, words in zip(rows, said, strict=True))
    return len(rows), first, three


def main() -> None:
    """Print a line for each world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    args = parser.parse_args()
    print(f"{'world':15s} {'kind':6s} {'classifier':10s} rows  first  among three")
    for world in WORLDS:
        for kind in ("shift", "jump"):
            for name, classifier in (("logistic", None), ("forest", RandomForestClassifier(50, random_state=0))):
                counts = [count(world, kind, seed, classifier) for seed in range(args.first, args.first + args.draws)]
                n, first, three = np.sum(counts, axis=0)
                shares = [f"{100 * part / max(n, 1):5.1f} %" for part in (first, three)]
                print(f"{world:15s} {kind:6s} {name:10s} {n:4d}  {shares[0]}  {shares[1]}", flush=True)


if __name__ == "__main__":
    main()
