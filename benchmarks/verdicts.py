"""Worth of verdicts: how much better a refit is that knows what people said of some rows of the log.

Run ``python -m benchmarks.verdicts [--quick] [--data DIR] [--cache FILE] [--sets ...] [--pi ...] [--verdicts ...] [--choose ...] [--seeds K] [--drift K]``. First table: 3,000 labeled rows and a log of 3,000 rows, a
share pi of them OOD; rows are chosen by `poscod.review.queue` of the model without verdicts, or four fifths of them are those that
it rejects first and the rest random ones; the truth is the verdict, and `POSCOD.fit` is called again with them. AuSRT in percent at
alpha = 0.5 by the plug-in line on fresh rows, lower is better; the clean oracle has the same r and a g that saw the OOD labels of the whole log. "closed" is the share of the gap to it. Second
table: the log of `benchmarks.drift`, known inputs moved, with 120 verdicts. Choices were made on textures, MNIST, Fashion-MNIST and CIFAR-10 with two classes hidden, and on draws 0 ("normal") and 2 ("skewed") of the second table. Draws 0 to 2 of CIFAR-100,
SVHN and CLINC150 were looked at before the last choice; draws from 11 on, and from 5 on of the second table, report.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from benchmarks import drift
from benchmarks._timing import print_table
from benchmarks.ratio_quality import DATA, append, load, read_cache, split, timed, to_ratio
from poscod import OOD, POSCOD
from poscod.ratio import CorrectedSigmoid
from poscod.review import queue
from poscod.strategies import plugin_curve

KEY = ("set", "choose", "pi", "seed", "verdicts")
VALUES = ("ausrt", "oracle", "pi_true", "pi_hat", "found")
DEVELOPMENT, REPORT = ("dtd10_textures", "mnist_test"), ("cifar100_test", "svhn_test", "clinc150")
SHARES, VERDICTS, DRIFT_VERDICTS = (0.02, 0.05, 0.1), (0, 50, 100, 200, 400), 120


def choose(model: POSCOD, log: Any, n: int, seed: int, how: str) -> Any:
    """Return rows of a log to look at: those of the queue for either aim, or four fifths of them the ones rejected first, and the rest at random."""
    if how != "rejected":
        aim = {"aim": "refit", "audit": 0.2} if how == "refit" else {}
        return queue(model, log, n, random_state=seed, **aim).index
    order, top = np.argsort(-model.rejection_score(log), kind="stable"), n * 4 // 5
    return np.r_[order[:top], np.random.default_rng(seed).permutation(order[top:])[: n - top]]


def measure(name: str, pi: float, seed: int, verdicts: tuple[int, ...], how: str, data: Path) -> list[dict[str, Any]]:
    """Fit without verdicts, and again with each number of them."""
    rows_id, rows_ood = load(data, name)
    cell = split(rows_id, rows_ood, 3000, pi, seed)
    order, n_known = np.random.default_rng(seed).permutation(len(rows_id)), int((~cell.is_ood).sum())
    label = rows_id.labels[order[len(cell.id) :][:n_known]]  # of the known rows of the log, which come first
    first, _ = timed(lambda: POSCOD(random_state=seed).fit(cell.id, X_unlabeled=cell.mixture))
    clean, _ = timed(lambda: CorrectedSigmoid(ood_prior=1.0).fit(cell.id, cell.mixture[cell.is_ood]))

    def area(model: POSCOD, ratio: Any = None) -> float:
        a, b = model.decide(cell.test), model.decide(cell.ood)
        logs = [a.log_ratio, b.log_ratio] if ratio is None else [ratio.log_ratio(x) for x in (cell.test, cell.ood)]
        wrong, g = (a.label != cell.test.labels).astype(float), [to_ratio(values) for values in logs]
        return 100 * plugin_curve("linear", a.risk, g[0], wrong, b.risk, g[1], alpha=0.5).area

    oracle = area(first, clean)
    out = []
    for n in verdicts:
        model, found = first, 0
        if n:
            rows = choose(first, cell.mixture, n, seed, how)
            said = [OOD if cell.is_ood[i] else int(label[i]) for i in rows]
            again = {"X_unlabeled": cell.mixture, "X_reviewed": cell.mixture[rows], "y_reviewed": said}
            model, _ = timed(lambda again=again: POSCOD(random_state=seed).fit(cell.id, **again))
            found = int(cell.is_ood[rows].sum())
        known = {"oracle": oracle, "pi_true": float(cell.is_ood.mean()), "pi_hat": model.ood_prior_, "found": found}
        out.append({"verdicts": n, "ausrt": area(model), **known})
    return out


def show(rows: list[dict[str, str]]) -> None:
    """Print one line per set, share and number of verdicts."""
    cells: dict[tuple[str, str, float, int], list[dict[str, float]]] = defaultdict(list)
    for row in rows:
        cells[row["set"], row["choose"], float(row["pi"]), int(row["verdicts"])].append(
            {key: float(row[key]) for key in VALUES}
        )
    lines = []
    for (name, how, pi, n), found in sorted(cells.items()):
        mean = {key: float(np.mean([cell[key] for cell in found])) for key in VALUES}
        before = float(np.mean([cell["ausrt"] for cell in cells[name, how, pi, 0]]))
        error = float(np.mean([abs(cell["pi_hat"] - cell["pi_true"]) for cell in found]))
        closed = (before - mean["ausrt"]) / (before - mean["oracle"])
        lines.append([name, how, pi, n, f"{mean['ausrt']:.2f}", f"{mean['oracle']:.2f}", f"{closed:.2f}" if n else "", f"{error:.4f}", f"{mean['found']:.0f}", len(found)])  # fmt: skip
    print_table("AuSRT %", ["set", "chosen by", "pi", "verdicts", "AuSRT", "oracle", "closed", "error of pi", "OOD found", "seeds"], lines)  # fmt: skip


def moved(world: str, n: int, pi: float, move: tuple[str, float], seed: int) -> list[Any]:
    """Fit on a log whose known inputs have moved, without and with verdicts; return TPR of fresh known inputs and FPR, of both."""
    rng, k = np.random.default_rng(seed), round(n * pi)
    X, y = drift.WORLDS[world][0](rng, 3 * n)
    like, known, fresh = X[:n], X[n : 2 * n - k], X[2 * n :]
    log, later = (drift.moved(*move, part, like, rng) for part in (known, fresh))
    label, strange = y[n : 2 * n - k], drift.strangers("far", 2 * k, fresh, like, rng)
    log, is_ood = np.vstack([log, strange[:k]]), np.repeat([False, True], [len(log), k])
    order = rng.permutation(len(log))
    log, is_ood, label = log[order], is_ood[order], np.r_[label, np.zeros(k, dtype=int)][order]
    template = POSCOD(drift.make_pipeline(drift.StandardScaler(), drift.LogisticRegression(max_iter=300)), tpr_min=drift.TPR_MIN, random_state=0)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = clone(template).fit(like, y[:n], X_unlabeled=log)
        rows = queue(first, log, DRIFT_VERDICTS, random_state=seed).index
        said = [OOD if is_ood[i] else int(label[i]) for i in rows]
        again = clone(template).fit(like, y[:n], X_unlabeled=log, X_reviewed=log[rows], y_reviewed=said)
    out: list[Any] = []
    for model in (first, again):
        out += [float(model.decide(later).accept.mean()), float(model.decide(strange[k:]).accept.mean()) if k else "-", model.ood_prior_]  # fmt: skip
    return [*out, "yes" if first.calibration_.drift is not None else "-", "yes" if again.calibration_.settled else "-"]


def main(quick: bool | None = None) -> None:
    """Run the missing cells and print both tables; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed of one set, one drift")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with cifar10_resnet56/ and clinc150/")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "poscod_verdicts.csv")
    parser.add_argument("--sets", nargs="*", choices=(*DEVELOPMENT, *REPORT), default=list(REPORT))
    parser.add_argument("--pi", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--verdicts", nargs="+", type=int, default=list(VERDICTS))
    parser.add_argument(
        "--choose", nargs="+", choices=("queue", "refit", "rejected"), default=["queue", "refit", "rejected"]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--drift", type=int, default=1, help="draws of the second table")
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--worlds", nargs="+", choices=drift.WORLDS, default=["normal", "skewed"])
    options = parser.parse_args([] if quick is not None else None)
    quick = bool(options.quick or quick)
    moves: Any = drift.MOVES
    if quick:
        options.sets, options.pi, options.seeds, options.verdicts, moves = ["svhn_test"], [0.05], 1, [0, 50], moves[1:2]
    if (options.data / "cifar10_resnet56").is_dir() and options.sets:
        done = {tuple(row[key] for key in KEY[:-1]) for row in read_cache(options.cache)}
        cells = itertools.product(
            range(options.first, options.first + options.seeds), options.choose, options.pi, options.sets
        )
        for seed, how, pi, name in cells:
            if (name, how, str(pi), str(seed)) not in done:
                found = measure(name, pi, seed, tuple(options.verdicts), how, options.data)
                place = {"set": name, "choose": how, "pi": pi, "seed": seed}
                append(options.cache, (*KEY, *VALUES), [{**place, **row} for row in found])
        show([row for row in read_cache(options.cache) if row["set"] in options.sets])
    elif options.sets:
        print(f"First table skipped: no data in {options.data}; pass --data DIR with cifar10_resnet56/.")
    lines = []
    for world in options.worlds:
        for move in moves:
            for pi in (0.0, 0.1):
                for draw in range(options.first, options.first + options.drift):
                    lines.append([world, f"{move[0]} {move[1]:g}", pi, draw, *moved(world, 2400, pi, move, draw)])
    if lines:
        names = ["world", "moved", "pi", "draw", "TPR before", "FPR", "pi_hat", f"TPR, {DRIFT_VERDICTS} verdicts", "FPR", "pi_hat", "drift named", "moved by verdicts"]  # fmt: skip
        print_table(f"Known inputs that moved (tpr_min = {drift.TPR_MIN})", names, lines)
        after = [line[7] for line in lines]
        print(
            f"TPR with verdicts: smallest {min(after):.3f}, below .93 in {sum(t < 0.93 for t in after)} of {len(after)} cells."
        )


if __name__ == "__main__":
    main()
