"""Verdicts: how wide the intervals of `assess` are beside those of plain random review, and how often each of them holds.

Run ``python -m benchmarks.review_width [--quick] [--simulations 1000] [--looks 100]``. One model is fitted per world; then queues are drawn of one log of 3,000 inputs, and everybody's
verdict is known. "right": the log is like the traffic of the fit. "wrong": its OOD inputs are of another kind, half of them among known ones. "drifted": known inputs have moved. "rare":
one input in a hundred is OOD. Plain random review is `assess` on a simple random sample: in it the interval of the OOD share is that of Clopper and Pearson.
How looks are shared out was chosen on worlds with two classes in three columns, not on these.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks._timing import print_table
from poscod import OOD, POSCOD
from poscod.review import Queue, assess, queue
from poscod.theory import GaussianWorld

CENTRES = [[0.0, 0.0, 0.0, 0.0, 0.0], [2.8, 0.0, 1.0, 0.0, 0.0], [0.0, 2.8, 0.0, 1.0, 0.0]]
MIX = [0.5, 0.3, 0.2]
WORLD = GaussianWorld(CENTRES, [[2.5, 2.5, 0.0, 0.0, 2.0]], weight_id=MIX)
OTHER = GaussianWorld(CENTRES, [[1.4, 0.2, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, -4.0, 0.0]], weight_id=MIX)
NAMES = np.array(["cat", "dog", "owl"])
# World, OOD share of the log, and by how much known inputs have moved in their last column.
WORLDS: dict[str, tuple[GaussianWorld, float, float]] = {
    "right": (WORLD, 0.1, 0.0),
    "wrong": (OTHER, 0.15, 0.0),
    "drifted": (WORLD, 0.1, 1.5),
    "rare": (WORLD, 0.01, 0.0),
}
QUANTITIES = ("ood_prior", "tpr", "fpr", "error", "selective_risk", "risk")
LOG, LEVEL = 3000, 0.9


class Remembering:
    """A model that decides on a log once."""

    def __init__(self, model: POSCOD, X: Any) -> None:
        self._decisions = model.decide(X)
        self.scorer_, self.rule_, self.calibration_ = model.scorer_, model.rule_, model.calibration_

    def decide(self, X: Any) -> Any:
        """Return the decisions on the log."""
        return self._decisions


def log_of(world: GaussianWorld, pi: float, shift: float, seed: int = 5) -> tuple[Any, Any]:
    """Return a log and what its inputs are."""
    n_ood = round(pi * LOG)
    X, y = world.sample_id(LOG - n_ood, random_state=seed)
    X[:, -1] += shift
    truth = np.concatenate([NAMES[y].astype(object), np.full(n_ood, OOD)])
    rows = np.concatenate([X, world.sample_ood(n_ood, random_state=seed + 1)])
    mixed = np.random.default_rng(seed).permutation(LOG)
    return rows[mixed], truth[mixed]


def plain_review(decisions: Any, n: int, seed: int) -> Queue:
    """Return a simple random sample as a queue."""
    index = np.random.default_rng(seed).choice(LOG, n, replace=False)
    words = np.full(n, "all inputs")
    seen = decisions[index]
    return Queue(index, words, np.full(n, n / LOG), words, seen.label, seen.accept, seen.reason)


def exact(decisions: Any, truth: Any, alpha: float) -> dict[str, float]:
    """Return all quantities with everybody's verdict."""
    ood = np.array([value is OOD for value in truth])
    wrong, accept = ~ood & (decisions.label != truth), decisions.accept
    fpr, selective = float(accept[ood].mean()), float(wrong[accept & ~ood].mean())
    shares = {"ood_prior": ood.mean(), "tpr": accept[~ood].mean(), "fpr": fpr, "error": (wrong | ood)[accept].mean()}
    return {**shares, "selective_risk": selective, "risk": (1.0 - alpha) * selective + alpha * fpr}


def measured(name: str, simulations: int, looks: int, audit: float | None) -> list[tuple[Any, ...]]:
    """Return truth, coverage and mean width of each quantity, for the queue and for plain review."""
    world, pi, shift = WORLDS[name]
    X, y = WORLD.sample_id(800, random_state=0)
    traffic, _ = WORLD.sample_mixture(800, pi=0.15, random_state=1)
    log, truth = log_of(world, pi, shift)
    model = Remembering(POSCOD(alpha=0.3, tpr_min=0.9, random_state=0).fit(X, NAMES[y], X_unlabeled=traffic), log)
    decisions = model.decide(log)
    values = exact(decisions, truth, model.rule_.problem.alpha)
    options = {} if audit is None else {"audit": audit}
    found: dict[str, Any] = {"plain": [], "queue": []}
    for seed in range(simulations):
        drawn = {
            "plain": plain_review(decisions, looks, seed),
            "queue": queue(model, log, looks, random_state=seed, **options),
        }
        for how, chosen in drawn.items():
            said = assess(model, log, chosen, truth[chosen.index], level=LEVEL)
            ends = np.array([(getattr(said, q).low, getattr(said, q).high) for q in QUANTITIES])
            found[how].append(ends)
    rows = []
    for i, quantity in enumerate(QUANTITIES):
        row: list[Any] = [name, quantity, values[quantity]]
        for ends in found.values():
            low, high = np.array(ends)[:, i].T
            row += [
                float((high - low).mean()),
                float(((low <= values[quantity] + 1e-12) & (values[quantity] - 1e-12 <= high)).mean()),
            ]
        rows.append((*row, row[5] / row[3]))
    return rows


def main(quick: bool = False, simulations: int = 1000, looks: int = 100, audit: float | None = None) -> None:
    """Print a row per world and quantity."""
    rows = [row for name in WORLDS for row in measured(name, 5 if quick else simulations, looks, audit)]
    head = ("world", "quantity", "truth", "plain width", "holds", "queue width", "holds", "queue / plain")
    print_table(f"{looks} verdicts of {LOG:,} inputs, level {LEVEL:g}", head, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--simulations", type=int, default=1000)
    parser.add_argument("--looks", type=int, default=100)
    parser.add_argument("--audit", type=float)
    given = parser.parse_args()
    main(given.quick, given.simulations, given.looks, given.audit)
