"""Copies and groups: OOD that is not there, guarantees with several rows per user, the monitor with sessions, and false finds.

Run ``python -m benchmarks.copies [--quick] [--parts copies ood guarantee monitor false clinc]``. "copies": originals and jittered copies of them are labeled, the traffic
holds no OOD row; "ood": it holds some. "guarantee": 2,000 fits with user effects, how often the TPR of a random row of a fresh user is below what was guaranteed. "monitor":
how often the interval of a window holds its OOD share. "false": how often near-copies are found in rows that have none. "clinc": validation rows of CLINC-150 against its
test rows, where the writers are the groups.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from benchmarks._timing import print_table
from benchmarks.null_gate import table_rows
from benchmarks.ratio_quality import DATA
from benchmarks.small_data import clinc_rows, read_clinc
from poscod import POSCOD
from poscod.model import NearCopiesWarning
from poscod.monitor import Monitor, Reference

COLUMNS, CLASSES, LOG, FRESH = 10, 3, 2400, 4000
CENTRES = np.random.default_rng(0).normal(0.0, 1.0, (CLASSES, COLUMNS))


def draw(n: int, rng: Any) -> tuple[Any, Any]:
    """Return ID rows."""
    y = rng.integers(0, CLASSES, n)
    return CENTRES[y] + rng.normal(size=(n, COLUMNS)), y


def jittered(n: int, times: int, jitter: float, rng: Any) -> tuple[Any, Any, Any]:
    """Return so many near-copies of each of n originals, and which original they are of."""
    X, y = draw(n, rng)
    X = np.repeat(X, times, axis=0)
    return X + jitter * rng.normal(size=X.shape), np.repeat(y, times), np.repeat(np.arange(n), times)


def fitted(X: Any, y: Any, U: Any, seed: int, **how: Any) -> tuple[Any, str]:
    """Return a fitted model, and how many rows were found to be near-copies, in how many groups."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = POSCOD(random_state=seed).fit(X, y, U, **how)
    found = [w.message.facts for w in caught if isinstance(w.message, NearCopiesWarning)]
    return model, f"{found[0]['rows']} in {found[0]['found']}" if found else "-"


def copies(quick: bool, pi: float = 0.0) -> None:
    """Print OOD share, certified bound and TPR with near-copies among the labeled rows."""
    rows = []
    for n, times in ((240, 10), (1200, 2), (2400, 1)):
        for jitter in (0.02, 0.1, 0.2) if times > 1 else (0.0,):
            for given in (True, False):
                found = []
                for seed in range(2 if quick else 10):
                    rng = np.random.default_rng(seed)
                    X, y, group = jittered(n, times, jitter, rng)
                    U = draw(LOG, rng)[0]
                    U[: int(pi * LOG)] = rng.normal(size=(int(pi * LOG), COLUMNS)) * 0.7 + 2.0
                    model, named = fitted(X, y, U, seed, **({"groups": group} if given else {}))
                    prior = model.ood_prior_, model.ratio_.ood_prior_lower_bound()
                    found.append((*prior, model.decide(draw(FRESH, rng)[0]).accept.mean()))
                mean, worst = np.mean(found, axis=0), np.max(found, axis=0)
                rows.append(
                    (f"{n} x {times}", jitter, "yes" if given else "no", mean[0], worst[0], worst[1], mean[2], named)
                )
    head = ("originals", "jitter", "groups", "pi_hat", "largest", "certified", "TPR", "found (last)")
    print_table(f"labeled near-copies, traffic with pi = {pi:g}, tpr_min = 0.95", head, rows)


def user_rows(n: int, rng: Any) -> tuple[Any, Any, Any]:
    """Return rows of n users, who differ from each other more than their rows do; those far out have fewer rows."""
    y = rng.integers(0, 2, n)
    centre = np.stack([2.5 * y, np.zeros(n)], axis=1) + rng.normal(size=(n, 2))
    size = 1 + rng.poisson(1.0 + 5.0 * (np.abs(centre[:, 1]) < 1.0))
    group = np.repeat(np.arange(n), size)
    return centre[group] + 0.3 * rng.normal(size=(len(group), 2)), y[group], group


def misses(draws: int, given: bool, *, users: int = 300, tpr_min: float = 0.9, delta: float = 0.1) -> float:
    """Return how often a guaranteed TPR is missed for a random row of a fresh user."""
    rng = np.random.default_rng(12345)
    X, _, group = user_rows(60_000, rng)
    order = rng.permutation(len(group))
    fresh = X[order[np.unique(group[order], return_index=True)[1]]]
    missed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(draws):
            X, y, group = user_rows(users, np.random.default_rng(seed))
            model = POSCOD(GaussianNB(), tpr_min=tpr_min, threshold="guaranteed", delta=delta, random_state=seed)
            model.fit(X, y, groups=group if given else None)
            missed += model.decide(fresh).accept.mean() < tpr_min
    return missed / draws


def guarantee(quick: bool) -> None:
    """Print how often guarantees are missed."""
    draws = 100 if quick else 2000
    rows = [("yes" if given else "no", draws, misses(draws, given)) for given in (True, False)]
    print_table("threshold='guaranteed', delta = 0.1, 300 users", ("groups", "draws", "missed"), rows)


def coverage(size: int, given: bool, models: int, windows: int, pi: float = 0.1) -> float:
    """Return how often the interval of a window holds its OOD share, with sessions of near-copies."""
    held = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(models):
            rng = np.random.default_rng(seed)
            X, y = draw(1500, rng)
            strange = 0.7 * rng.normal(size=(2000, COLUMNS)) + 1.5
            U = np.concatenate([draw(900, rng)[0], strange[:100]])
            model = POSCOD(random_state=seed).fit(X, y, U)
            monitor = Monitor(Reference.from_model(model, ood=strange[100:600], created="2026-01-01"), window=1.0)
            for window in range(windows):
                sessions = 1200 // size
                rows = draw(sessions, rng)[0]
                ood = rng.random(sessions) < pi
                rows[ood] = strange[600 + rng.integers(0, 1400, int(ood.sum()))]
                rows = np.repeat(rows, size, axis=0) + 0.02 * rng.normal(size=(sessions * size, COLUMNS))
                group = np.repeat(np.arange(sessions), size) if given else None
                monitor.update(model.decide(rows), at=np.full(len(rows), window + 0.5), groups=group)
            held += sum(window.pi.low <= pi <= window.pi.high for window in monitor.windows())
    return held / (models * windows)


def monitored(quick: bool) -> None:
    """Print coverage of the intervals of windows."""
    models = 2 if quick else 20
    rows = [
        (size, "yes" if given else "no", coverage(size, given, models, 20))
        for size in (1, 3, 10)
        for given in (True, False)
    ]
    print_table("coverage of the 95 % interval of a window's OOD share", ("rows a session", "groups", "held"), rows)


def false_finds(quick: bool) -> None:
    """Print how often near-copies are found where there are none."""

    def shuffled(X: Any, y: Any) -> Callable[[Any], Any]:
        def of(rng: Any) -> Any:
            order = rng.permutation(len(y))[:1600]
            return X[order], y[order]

        return of

    def discrete(rng: Any) -> Any:
        return rng.integers(0, 5, (1600, 6)).astype(float), rng.integers(0, 2, 1600)

    def heavy(rng: Any) -> Any:
        X = rng.standard_cauchy((1600, 5))
        return X, (X[:, 0] > 0).astype(int)

    sets: dict[str, Callable[[Any], Any]] = {
        "digits": shuffled(*load_digits(return_X_y=True)),
        "table": lambda rng: table_rows(int(rng.integers(10**9)), 1600),
        "discrete": discrete,
        "cauchy": heavy,
    }
    if (DATA / "clinc150").exists():
        sets["clinc"] = shuffled(*clinc_rows(DATA, 30)[:2])
    from poscod.model._groups import near_copies

    rows = []
    for name, of in sets.items():
        for ood in (0.0, 0.9):
            count, fits = 0, 20 if quick else 200
            for seed in range(fits):
                rng = np.random.default_rng(seed)
                X, y = of(rng)
                U = np.array(X[800:], dtype=np.float64)
                U[: int(ood * len(U))] += 10.0 * np.std(X, axis=0)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    count += near_copies(X[:800], U, np.asarray(y[:800], dtype=np.int64)) is not None
            rows.append((name, ood, f"{count} of {fits}"))
    print_table("near-copies found where there are none", ("set", "pi", "found"), rows)


def clinc(quick: bool) -> None:
    """Print what CLINC's validation rows show against its test rows: none of them is OOD, and consecutive rows have one writer."""
    (X, y), (U, _) = read_clinc(DATA, "val"), read_clinc(DATA, "test")
    rows = []
    for size in (1, 5, 10):
        how = {"groups": np.arange(len(y)) // size, "groups_unlabeled": 10**6 + np.arange(len(U)) // size}
        model, named = fitted(X, y, U, 0, **(how if size > 1 else {}))
        ratio = model.ratio_
        rows.append(
            (
                size,
                model.ood_prior_,
                ratio.ood_prior_lower_bound(),
                ratio.gate_p_value_,
                model.decide(U).accept.mean(),
                named,
            )
        )
    head = ("rows a group", "pi_hat", "certified", "p of the gate", "test rows accepted", "found")
    print_table("CLINC-150: val labeled, test as traffic, pi = 0", head, rows)


PARTS: dict[str, Callable[[bool], None]] = {
    "copies": copies,
    "ood": lambda quick: copies(quick, 0.3),
    "guarantee": guarantee,
    "monitor": monitored,
    "false": false_finds,
    "clinc": clinc,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    args = parser.parse_args()
    for name in args.parts:
        if name == "clinc" and not Path(DATA / "clinc150").exists():
            print("clinc: no data")
            continue
        PARTS[name](args.quick)


if __name__ == "__main__":
    main()
