"""How good is the ratio learned from a mixture, and the whole POSCOD? Real networks, real OOD sets, rare and frequent OOD.

Run ``python benchmarks/ratio_quality.py [--quick] [--data DIR] [--cache FILE] [--label NAME] [--methods ...] [--n ...] [--pi ...] [--seeds K]``.
Results are written to the cache as they finish, so that a second run only fills what is missing. With another library first on PYTHONPATH and
another label, two libraries share a cache and the last table. AuSRT in percent at alpha = 0.5, lower is better; r = 1 - MSP. "best single" is
chosen on the test rows (hindsight), "clean oracle" sees the OOD labels of the mixture. "POSCOD" is the default fitted end to end on the same rows,
with its own r; "POSCOD oracle" has the same r and the g of the clean oracle.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import csv
import functools
import hashlib
import itertools
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

import poscod
from poscod import POSCOD, Activations
from poscod.metrics import auroc, ausrt
from poscod.ratio import NNPU, WOODS, CorrectedSigmoid, StandardSigmoid
from poscod.scores import SCORES
from poscod.strategies import plugin_curve, tuned_curve

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
# Choices of the library were made on the first group and on synthetic worlds; the second group only reports.
DEVELOPMENT = ("svhn_test", "mnist_test")
REPORT = ("cifar100_test", "fashion_mnist_test", "dtd10_textures", "clinc150")
SETS = (*REPORT, *DEVELOPMENT)
KEY = ("label", "set", "n", "pi", "seed", "method")
VALUES = ("plugin", "tuned", "calibrated", "auroc", "pi_true", "pi_hat", "seconds")
SINGLE: dict[str, dict[str, Any]] = {
    "ebo": {},
    "mls": {},
    "entropy": {},
    "knn": {"k": 20},
    "mahalanobis": {},
    "gen": {},
}
# POSCOD end to end at n = 3,000: largest geometric mean of the ratio to the oracle, by pi, and the largest of any cell.
GOALS = {0.5: 1.03, 0.1: 1.12, 0.05: 1.20}
WORST = 1.35
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


def clinc_head(folder: Path) -> Path:
    """Return the file of a logistic regression fitted on the train part, made where it is not there."""
    head = Path(tempfile.gettempdir()) / "poscod_clinc_head.npz"
    if not head.exists():
        train = np.load(folder / "train.npz")
        model = LogisticRegression(C=30, max_iter=200).fit(train["features"].astype(np.float32), train["labels"])
        np.savez(head, weight=model.coef_.astype(np.float32), bias=model.intercept_.astype(np.float32))
    return head


def _clinc(folder: Path) -> tuple[Activations, Activations]:
    """Sentence embeddings with the logits of a logistic regression fitted on the train part."""
    layer = np.load(clinc_head(folder))
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


class Work:
    """Everything that methods compute on one cell, each part once and only where asked for."""

    def __init__(self, cell: Cell, seed: int) -> None:
        self.cell, self.seed = cell, seed
        self.wrong = (cell.test.logits.argmax(axis=1) != cell.test.labels).astype(float)
        self.risk = risk(cell.test.logits), risk(cell.ood.logits)

    @functools.cached_property
    def scores(self) -> dict[str, tuple[Any, Any]]:
        """Single scores of both kinds of test rows."""
        fitted = {name: SCORES[name](**options).fit(self.cell.id) for name, options in SINGLE.items()}
        return {name: (score(self.cell.test), score(self.cell.ood)) for name, score in fitted.items()}

    @functools.cached_property
    def soft(self) -> tuple[Any, Any]:
        """The r of tempered logits."""
        t = temperature(self.cell.id)
        return risk(self.cell.test.logits, t), risk(self.cell.ood.logits, t)

    @functools.cached_property
    def oracle(self) -> tuple[Any, Any, dict[str, Any]]:
        """The g of a ratio that was shown the OOD rows of the mixture."""
        return self.fitted(CorrectedSigmoid(ood_prior=1.0), self.cell.mixture[self.cell.is_ood])

    @functools.cached_property
    def poscod(self) -> tuple[Any, Any, dict[str, Any]]:
        """Return the default's decisions on both kinds of test rows."""
        model, taken = timed(lambda: POSCOD(random_state=self.seed).fit(self.cell.id, X_unlabeled=self.cell.mixture))
        return model.decide(self.cell.test), model.decide(self.cell.ood), {"pi_hat": model.ood_prior_, "seconds": taken}

    def fitted(self, estimator: Any, other: Activations) -> tuple[Any, Any, dict[str, Any]]:
        """Return g of both kinds of test rows."""
        _, taken = timed(lambda: estimator.fit(self.cell.id, other))
        g_id, g_ood = (to_ratio(estimator.log_ratio(x)) for x in (self.cell.test, self.cell.ood))
        return g_id, g_ood, {"pi_hat": estimator.ood_prior_, "seconds": taken}

    def alone(self, score_id: Any, score_ood: Any) -> dict[str, Any]:
        """Judge one score."""
        area = ausrt(score_id, self.wrong, score_ood, envelope=False)
        return {"plugin": 100 * area, "auroc": auroc(score_id, score_ood)}

    def single(self) -> dict[str, Any]:
        """Judge the best single score, in hindsight."""
        return min((self.alone(*pair) for pair in self.scores.values()), key=lambda found: found["plugin"])

    def sirc(self) -> dict[str, Any]:
        """Judge r with a neighbour score by SIRC."""
        (r_id, r_ood), (k_id, k_ood) = self.risk, self.scores["knn"]
        return {"plugin": 100 * plugin_curve("sirc", r_id, k_id, self.wrong, r_ood, k_ood, alpha=0.5).area}

    def ratio(self, g_id: Any, g_ood: Any, known: dict[str, Any]) -> dict[str, Any]:
        """Judge a ratio beside r = 1 - MSP."""
        rows = [(plugin_curve, self.risk), (tuned_curve, self.risk), (plugin_curve, self.soft)]
        areas = [100 * curve("linear", a, g_id, self.wrong, b, g_ood, alpha=0.5).area for curve, (a, b) in rows]
        named = dict(zip(("plugin", "tuned", "calibrated"), areas, strict=True))
        return {**named, "auroc": auroc(g_id, g_ood), **known}

    def end_to_end(self, g_id: Any, g_ood: Any, known: dict[str, Any]) -> dict[str, Any]:
        """Judge a ratio beside the r of the default POSCOD."""
        a, b, _ = self.poscod
        wrong = (a.label != self.cell.test.labels).astype(float)
        area = plugin_curve("linear", a.risk, g_id, wrong, b.risk, g_ood, alpha=0.5).area
        return {"plugin": 100 * area, "auroc": auroc(g_id, g_ood), **known}

    def whole(self) -> dict[str, Any]:
        """Judge the default POSCOD."""
        a, b, known = self.poscod
        return self.end_to_end(to_ratio(a.log_ratio), to_ratio(b.log_ratio), known)


def to_ratio(log_ratio: Any) -> Any:
    """Return g, finite for every log g."""
    return np.exp(np.clip(log_ratio, -600, 600))


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a quiet call gives, and its CPU seconds."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = fit()
    return made, time.process_time() - start


METHODS: dict[str, Callable[[Work], dict[str, Any]]] = {
    "MSP": lambda work: work.alone(*work.risk),
    "best single": Work.single,
    "SIRC": Work.sirc,
    "paper": lambda work: work.ratio(*work.fitted(CorrectedSigmoid("paper"), work.cell.mixture)),
    "standard": lambda work: work.ratio(*work.fitted(StandardSigmoid(l2=1e-3), work.cell.mixture)),
    "nnPU": lambda work: work.ratio(*work.fitted(NNPU(), work.cell.mixture)),
    "WOODS": lambda work: work.ratio(*work.fitted(WOODS(), work.cell.mixture)),
    "ours": lambda work: work.ratio(*work.fitted(CorrectedSigmoid(), work.cell.mixture)),
    "clean oracle": lambda work: work.ratio(*work.oracle),
    "POSCOD": Work.whole,
    "POSCOD oracle": lambda work: work.end_to_end(*work.oracle),
}
ORACLE = {"POSCOD": "POSCOD oracle", "POSCOD oracle": "POSCOD oracle"}


def cells(quick: bool, sizes: Sequence[int], shares: Sequence[float], seeds: int) -> list[tuple[str, int, float, int]]:
    """Return (set, n, pi, seed), the first size first; n = 0 is all rows."""
    if quick:
        return list(itertools.product(("svhn_test", "clinc150"), (1000,), (0.1, 0.5), range(1)))
    return [(name, n, pi, seed) for n in sizes for seed, pi, name in itertools.product(range(seeds), shares, SETS)]


def read_cache(path: Path) -> list[dict[str, str]]:
    """Return the finished rows."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, fields: Sequence[str], rows: list[dict[str, Any]]) -> None:
    """Add finished rows, and the header to a new file."""
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


def own_label() -> str:
    """Return a name of the library's present source, so that a cache never answers for another one."""
    digest = hashlib.sha256()
    for path in sorted(Path(poscod.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"this-{digest.hexdigest()[:6]}"


def add_labels(parser: argparse.ArgumentParser) -> None:
    """Add the options that name libraries."""
    parser.add_argument(
        "--label", default=own_label(), help="name of the library that is measured; default: by its source"
    )
    parser.add_argument("--beside", nargs="*", default=["first"], metavar="LABEL", help="others to show where cached")


def table(rows: list[dict[str, str]]) -> str:
    """Return the tables: mean and standard deviation over seeds; a method ends in the label where there are several."""
    groups: dict[tuple[str, int, float], dict[tuple[str, str], list[dict[str, str]]]]
    groups = defaultdict(lambda: defaultdict(list))
    labels = list(dict.fromkeys(row["label"] for row in rows))
    for row in rows:
        groups[row["set"], int(row["n"]), float(row["pi"])][row["method"], row["label"]].append(row)
    lines = []
    for (name, n, pi), methods in sorted(groups.items(), key=lambda item: (item[0][0], -item[0][1], -item[0][2])):
        lines += ["", f"{name}, n = {n or 'all'}, pi = {pi:g}  ({max(map(len, methods.values()))} seeds)"]
        lines.append(
            f"{'':22s} {'plug-in':>13s} {'tuned':>6s} {'cal. r':>6s} {'AUROC':>6s} {'pi_hat':>13s} {'CPU s':>6s} {'/oracle':>8s}"
        )
        for method, label in itertools.product(METHODS, labels):
            if (method, label) not in methods:
                continue
            value = {f: np.array([float(row[f] or "nan") for row in methods[method, label]]) for f in VALUES}
            shown = method if len(labels) == 1 else f"{method} ({label})"
            text = [f"{shown:22s} {value['plugin'].mean():6.2f} +-{value['plugin'].std():5.2f}"]
            for field, form in (("tuned", "6.2f"), ("calibrated", "6.2f"), ("auroc", "6.3f")):
                mean = value[field].mean()
                text.append(f"{mean:{form}}" if np.isfinite(mean) else " " * 6)
            known = np.isfinite(value["pi_hat"]).all()
            text.append(f"{value['pi_hat'].mean():6.3f} +-{value['pi_hat'].std():.3f}" if known else " " * 14)
            seconds = value["seconds"].mean()
            text.append(f"{seconds:6.1f}" if np.isfinite(seconds) else " " * 6)
            oracle = methods.get((ORACLE.get(method, "clean oracle"), label), [])
            if oracle:
                text.append(f"{value['plugin'].mean() / np.mean([float(row['plugin']) for row in oracle]):8.2f}")
            lines.append(" ".join(text))
    return "\n".join(lines)


def summary(rows: list[dict[str, str]]) -> str:
    """Return POSCOD end to end beside its oracle and MSP at each size: every cell, and geometric means by group of sets."""
    area: dict[tuple[str, int, float, str, str], list[float]] = defaultdict(list)
    for row in rows:
        key = (row["label"], int(row["n"]), float(row["pi"]), row["set"], row["method"])
        area[key].append(float(row["plugin"]))
    mean = {key: float(np.mean(values)) for key, values in area.items()}
    labels = list(dict.fromkeys(row["label"] for row in rows))
    shares = sorted({float(row["pi"]) for row in rows}, reverse=True)
    lines = []
    for n in sorted({int(row["n"]) for row in rows}, reverse=True):
        ratios: dict[tuple[str, float], dict[str, float]] = defaultdict(dict)
        worse = []
        block = [
            f"{'set':20s} {'pi':>5s}" + "".join(f" | {label:>12s}: POSCOD oracle ratio    MSP" for label in labels)
        ]
        for name, pi in itertools.product((*DEVELOPMENT, *REPORT), shares):
            text = f"{name:20s} {pi:5g}"
            for label in labels:
                ours, oracle, msp = (mean.get((label, n, pi, name, m)) for m in ("POSCOD", "POSCOD oracle", "MSP"))
                if ours is None or oracle is None or msp is None:
                    text += " | " + " " * 40
                    continue
                ratios[label, pi][name] = ours / oracle
                if ours > msp:
                    worse.append(f"{label}: {name} at pi = {pi:g}, {ours:.2f} against {msp:.2f}")
                text += f" | {'':13s} {ours:6.2f} {oracle:6.2f} {ours / oracle:5.3f} {msp:6.2f}"
            if any(name in ratios[label, pi] for label in labels):
                block.append(text)
        if not any(ratios.values()):
            continue
        lines += [
            "",
            f"POSCOD end to end, n = {n or 'all'}: AuSRT in percent, its oracle with the same r, and MSP",
            *block,
            "",
        ]
        for label in labels:
            for pi in (share for share in shares if ratios[label, share]):
                found = ratios[label, pi]
                texts = []
                for group, names in (("development", DEVELOPMENT), ("report", REPORT), ("all", SETS)):
                    logs = [np.log(found[name]) for name in names if name in found]
                    texts.append(f"{group} {np.exp(np.mean(logs)):.3f} ({len(logs)} sets)" if logs else f"{group} -")
                goal = f"; goal {GOALS[pi]:.2f}" if n == 3000 and pi in GOALS else ""
                lines.append(f"{label}, pi = {pi:g}, geometric mean of POSCOD / oracle: {', '.join(texts)}{goal}")
            cells_of = {(name, pi): r for (who, pi), by in ratios.items() if who == label for name, r in by.items()}
            if cells_of:
                name, pi = max(cells_of, key=lambda cell: cells_of[cell])
                lines.append(f"{label}, worst cell: {name} at pi = {pi:g}, {cells_of[name, pi]:.3f}; goal {WORST:.2f}")
        lines.append(f"Cells worse than MSP: {'; '.join(worse) or 'none'}")
    used = f"Sets used for choices: {', '.join(DEVELOPMENT)} and synthetic worlds; the others only report."
    return "\n".join([*lines, used])


def main(quick: bool | None = None) -> None:
    """Run the missing cells and print the tables; `quick` comes from ``python -m benchmarks``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, two sets, two shares, few methods")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with cifar10_resnet56/ and clinc150/")
    parser.add_argument("--cache", type=Path, default=None, help="default: a file in the temporary folder")
    add_labels(parser)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=None, metavar="METHOD", help="default: all")
    parser.add_argument("--n", nargs="+", type=int, default=[3000, 1000, 0], help="rows a side; 0 is all")
    parser.add_argument("--pi", nargs="+", type=float, default=[0.5, 0.1, 0.05, 0.02, 0.2], help="shares of OOD rows")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="stop after so many minutes; run again to continue"
    )
    options = parser.parse_args([] if quick is not None else None)
    options.quick = options.quick or bool(quick)
    if not (options.data / "cifar10_resnet56").is_dir():
        print(f"Skipped: no data in {options.data}; pass --data DIR with cifar10_resnet56/ and clinc150/.")
        return
    small = ("MSP", "POSCOD", "POSCOD oracle")
    methods = options.methods or (small if options.quick else tuple(METHODS))
    cache = options.cache or Path(tempfile.gettempdir()) / "poscod_quality_by_label.csv"
    done = {tuple(row[part] for part in KEY) for row in read_cache(cache)}
    wanted = cells(options.quick, options.n, options.pi, options.seeds)
    loaded: dict[str, tuple[Activations, Activations]] = {}
    start = time.monotonic()
    for name, n, pi, seed in wanted:
        place = {"label": options.label, "set": name, "n": n, "pi": pi, "seed": seed}
        missing = [m for m in methods if tuple(str(v) for v in {**place, "method": m}.values()) not in done]
        if not missing or time.monotonic() - start > 60 * options.minutes:
            continue
        if name not in loaded:
            loaded[name] = load(options.data, name)
        work = Work(split(*loaded[name], n or 10**9, pi, seed), seed)
        place["pi_true"] = float(work.cell.is_ood.mean())
        new = [{**place, "method": method, **METHODS[method](work)} for method in missing]
        append(cache, (*KEY, *VALUES), new)
        told = ", ".join(f"{row['method']} {row['plugin']:.2f}" for row in new)
        print(f"{options.label} {name} n={n} pi={pi} seed={seed}: {told}", flush=True)
    chosen = {(name, str(n), str(pi), str(seed)) for name, n, pi, seed in wanted}
    labels = {options.label, *options.beside}
    rows = [row for row in read_cache(cache) if row["label"] in labels and row["method"] in methods]
    rows = [row for row in rows if tuple(row[part] for part in KEY[1:5]) in chosen]
    print(table(rows))
    print(summary(rows))


if __name__ == "__main__":
    main()
