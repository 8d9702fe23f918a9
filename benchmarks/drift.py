"""Drift, strangers, or neither can be told: what `fit` says of traffic whose known inputs have moved, and of traffic that stood still.

Run ``python -m benchmarks.drift [--quick] [--worlds ...] [--rows ...] [--draws K] [--first K] [--data FOLDER]``. Cells are a world, a number of rows of either side, a share of strangers and
what moved. A cell is harmed where TPR on fresh known inputs of the traffic is more than .03 below tpr_min. Limits of the test were chosen on draw 50 of the three worlds, on worlds of two to six
normal columns, and on CIFAR-10 features (CIFAR-100, SVHN, MNIST, textures; classes of digits held out; class mixes); draws from 70 on, Fashion-MNIST, CLINC150 and car_loan were not.
With a folder of real data (``cifar10_resnet56``, ``clinc150``, ``drift``) these are run, too.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks._timing import print_table
from poscod import POSCOD

TPR_MIN, HARM = 0.95, 0.03
MOVES = (("mean", 0.1), ("mean", 0.2), ("mean", 0.5), ("scale", 0.1), ("scale", 0.2), ("batch", 0.1), ("batch", 0.2), ("time", 0.2), ("half", 0.5))  # fmt: skip
STRANGERS, SHARES = ("far", "near", "stuck", "imputed", "noise"), (0.05, 0.1, 0.3, 0.5)
Rows = tuple[Any, Any]


def normal(rng: np.random.Generator, n: int) -> Rows:
    """Return three normal classes in ten columns."""
    centres, y = np.random.default_rng(1).normal(0.0, 1.2, (3, 10)), rng.integers(0, 3, n)
    return centres[y] + rng.normal(size=(n, 10)), y


def skewed(rng: np.random.Generator, n: int) -> Rows:
    """Return four unequal classes in twelve mixed columns, some of them log-normal, some heavy-tailed."""
    world = np.random.default_rng(2)
    centres, mixing = world.normal(0.0, 0.9, (4, 12)), world.normal(0.0, 0.3, (12, 12))
    y = rng.choice(4, n, p=[0.5, 0.25, 0.15, 0.1])
    X = centres[y] + rng.normal(size=(n, 12)) @ (np.eye(12) + mixing)
    X[:, ::3] = np.exp(0.6 * X[:, ::3])
    X[:, 1::3] += rng.standard_t(3, (n, 4))
    return X, y


def digits(rng: np.random.Generator, n: int) -> Rows:
    """Return images of digits, whose pixels are whole numbers, with a little noise on top."""
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))[:n]
    return X[order] + rng.normal(0.0, 0.5, (len(order), 64)), y[order]


WORLDS: dict[str, tuple[Callable[..., Rows], tuple[int, ...]]] = {
    "normal": (normal, (1000, 4000)),
    "skewed": (skewed, (1000, 4000)),
    "digits": (digits, (550,)),
}


def moved(kind: str, amount: float, X: Any, like: Any, rng: np.random.Generator) -> Any:
    """Return known inputs after drift, in standard deviations of labeled rows."""
    X, d = X.copy(), X.shape[1]
    sd, some = like.std(axis=0), np.random.default_rng(5).permutation(d)[: max(3, d // 10)]
    if kind == "mean":
        X[:, some] += amount * sd[some]
    elif kind == "scale":
        X = like.mean(axis=0) + (X - like.mean(axis=0)) * (1.0 + amount)
    elif kind == "batch":
        X += amount * sd * np.random.default_rng(6).choice([-1, 1], d)
    elif kind == "time":
        X[:, some] += amount * sd[some] * (2.0 * rng.random(len(X)))[:, None]
    elif kind == "half":
        X[np.ix_(rng.random(len(X)) < 0.5, some)] += amount * sd[some]
    return X


def strangers(kind: str, n: int, known: Any, like: Any, rng: np.random.Generator) -> Any:
    """Return OOD rows: far away, a class that nobody labeled, stuck at one row, with half of the columns imputed, or noise that is too wide."""
    mean, sd, d = like.mean(axis=0), like.std(axis=0), like.shape[1]
    if kind == "far":
        return mean + 0.7 * rng.normal(size=(n, d)) * sd + 3.0 * sd * np.random.default_rng(7).choice([-1, 1], d)
    if kind == "near":
        return mean + np.random.default_rng(8).normal(size=d) * sd + 0.8 * rng.normal(size=(n, d)) * sd
    if kind == "stuck":
        return np.repeat(known[:1], n, axis=0)
    if kind == "imputed":
        X, half = known[:n].copy(), np.random.default_rng(9).permutation(d)[: d // 2]
        X[:, half] = mean[half]
        return X
    return mean + 1.6 * rng.normal(size=(n, d)) * sd


def measure(world: str, n: int, pi: float, move: tuple[str, float], kind: str, seed: int) -> dict[str, Any]:
    """Fit once, and say what was said."""
    rng, k = np.random.default_rng(seed), round(n * pi)
    X, y = WORLDS[world][0](rng, 3 * n)
    like, traffic, fresh = X[:n], X[n : 2 * n - k], X[2 * n :]
    traffic, later = (moved(*move, part, like, rng) for part in (traffic, fresh))
    if k:
        traffic = np.vstack([traffic, strangers(kind, k, fresh, like, rng)])
    model = fit_table(like, y[:n], traffic[rng.permutation(len(traffic))])
    return {"tpr": model.decide(later).accept.mean(), "pi_hat": model.ood_prior_, "said": said_of(model)}


def said_of(model: POSCOD) -> str:
    """Return what fit said in a word or three."""
    drift = model.calibration_.drift
    if drift is None or drift.said == "undecided":
        return "-" if drift is None else "undecided"
    return {True: "drift and strangers", False: "drift", None: "drift, strangers?"}[drift.strangers]


def fit_table(X: Any, y: Any, traffic: Any, classifier: Any = None) -> POSCOD:
    """Fit quietly."""
    model = POSCOD(classifier or make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)), tpr_min=TPR_MIN, random_state=0)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, X_unlabeled=traffic)


def held_out_classes(name: str, X: Any, y: Any, n: int, held: int, seed: int) -> list[list[Any]]:
    """Return rows of a table: classes that nobody labeled are the strangers, at three shares, and nothing moved."""
    rng, rows = np.random.default_rng(seed), []
    for pi in (0.1, 0.3, 0.5):
        strange = rng.permutation(np.unique(y))[:held]
        order = rng.permutation(len(y))
        known, other = order[~np.isin(y[order], strange)], order[np.isin(y[order], strange)]
        k = min(round(n * pi), len(other))
        traffic = np.concatenate([known[n : 2 * n - k], other[:k]])
        model = fit_table(X[known[:n]], y[known[:n]], X[rng.permutation(traffic)])
        fresh = known[2 * n - k : 3 * n]
        rows.append([name, n, k / n, f"{held} classes", float(model.decide(X[fresh]).accept.mean()), model.ood_prior_, said_of(model)])  # fmt: skip
    return rows


def car_loan(folder: Path, n: int, seed: int) -> list[list[Any]]:
    """Return rows of a table: a public monitoring data set, labeled rows of its reference period against thirds of the later one."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    before, after = (pd.read_parquet(folder / f"car_loan_{part}.parquet") for part in ("reference", "analysis"))
    columns = [c for c in before.columns if c not in ("timestamp", "y_pred_proba", "y_pred", "repaid", "id")]
    words = [c for c in columns if not pd.api.types.is_numeric_dtype(before[c]) or before[c].dtype == bool]
    encode = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
        (StandardScaler(), [c for c in columns if c not in words]),
        verbose_feature_names_out=False,
    )
    known, rows = before.iloc[rng.permutation(len(before))[: 2 * n]], []
    for third, part in enumerate(np.array_split(np.arange(len(after)), 3), start=1):
        traffic = after.iloc[rng.permutation(part)[:n]]
        model = fit_table(known[columns][:n], known["repaid"][:n], traffic[columns], make_pipeline(encode, LogisticRegression(max_iter=300)))  # fmt: skip
        drift = model.calibration_.drift
        most = "-" if drift is None else ", ".join(drift.columns)
        certified = 0.0 if model.ratio_ is None else model.ratio_.ood_prior_lower_bound()
        rows.append(["car_loan", n, f"third {third}", most, float(model.decide(traffic[columns]).accept.mean()), f"{model.ood_prior_:.3f}, certified {certified:.3f}", said_of(model)])  # fmt: skip
    return rows


def real_data(folder: Path, seed: int) -> None:
    """Run classes that are held out, and car_loan."""
    X, y = load_digits(return_X_y=True)
    rows = held_out_classes("digits", X, y, 500, 2, seed)
    fashion = np.load(folder / "cifar10_resnet56" / "fashion_mnist_test.npz")
    rows += held_out_classes("Fashion-MNIST features", fashion["features"].astype(float), fashion["labels"], 1500, 2, seed)  # fmt: skip
    clinc = np.load(folder / "clinc150" / "train.npz")
    few = np.isin(clinc["labels"], np.arange(40))
    rows += held_out_classes("CLINC150, 40 intents", clinc["features"][few].astype(float), clinc["labels"][few], 1000, 10, seed)  # fmt: skip
    print_table("Classes held out as strangers", ["set", "rows", "pi", "strangers", "TPR of known inputs", "pi_hat", "said"], rows)  # fmt: skip
    print_table("car_loan", ["set", "rows", "traffic", "columns named", "accepted", "pi_hat", "said"], car_loan(folder / "drift", 3000, seed))  # fmt: skip


def main(quick: bool | None = None) -> None:
    """Run all cells and print both tables; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one world, few cells")
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--rows", type=int, help="only this number of rows of either side")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--first", type=int, default=70, help="number of the first draw")
    parser.add_argument("--data", type=Path, help="folder of real data")
    options = parser.parse_args([] if quick is not None else None)
    quick = bool(options.quick or quick)
    still = [("still", 0.0, pi, kind) for kind, pi in itertools.product(STRANGERS, SHARES)] + [("still", 0.0, 0.0, "")]
    drifted = [(*move, pi, "far") for move, pi in itertools.product(MOVES, (0.0, 0.1))]
    if quick:
        options.worlds, still, drifted = ["normal"], still[::7], drifted[2:4]
    cells, counts = [], defaultdict(Counter)
    for world in options.worlds:
        for n in WORLDS[world][1][: 1 if quick else None]:
            if options.rows not in (None, n):
                continue
            for kind, amount, pi, stranger in [*drifted, *still]:
                for draw in range(options.first, options.first + options.draws):
                    found = measure(world, n, pi, (kind, amount), stranger, draw)
                    harmed = found["tpr"] < TPR_MIN - HARM
                    what = "still" if kind == "still" else "moved, harmed" if harmed else "moved, unharmed"
                    both = " and strangers" * (kind != "still" and pi > 0.0)
                    counts[world, n, what + both][found["said"]] += 1
                    move = "-" if kind == "still" else f"{kind} {amount:g}"
                    cells.append([world, n, pi, move, stranger if pi else "-", float(found["tpr"]), found["pi_hat"], found["said"]])  # fmt: skip
                    print(*cells[-1], file=sys.stderr, flush=True)
    if cells:
        print_table(f"What fit said (tpr_min = {TPR_MIN})", ["world", "rows", "pi", "moved", "strangers", "TPR of known inputs", "pi_hat", "said"], cells)  # fmt: skip
        words = ("drift", "drift and strangers", "drift, strangers?", "undecided", "-")
        print_table("Cells by what fit said", ["world", "rows", "cells", *words], [[*key, *(said[word] for word in words)] for key, said in sorted(counts.items())])  # fmt: skip
    if options.data is not None:
        real_data(options.data, options.first)


if __name__ == "__main__":
    main()
