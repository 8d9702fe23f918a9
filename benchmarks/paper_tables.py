"""The paper's tables on real CIFAR-10 features: single scores, and plug-in and tuned double scores, for every OOD set.

``python -m benchmarks paper_tables`` reads ../shared/data/cifar10_resnet56 (or the folder in POSCOD_DATA). The network and
the OOD sets are not the paper's, so the numbers are not comparable with its tables; the shapes and the definitions are.

Rows: single scores are fitted on the network's own training images (a bank, as published). The likelihood ratio "LR clean"
is a logistic regression on features against clean OOD rows, the paper's best case; it learns from one half of the ID test rows
and of the OOD set, and **all** numbers are measured on the other halves. AuSRT of single scores is the raw curve
(``envelope=False``), as in the paper; "tuned" rows choose on the measured rows: a bound, not a result.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks._timing import print_table
from poscod import Activations
from poscod.metrics import aurc, auroc, ausrt
from poscod.ratio import StandardSigmoid
from poscod.scores import SCORES
from poscod.strategies import plugin_curve, tuned_curve

DATA = Path(os.environ.get("POSCOD_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "cifar10_resnet56"
OOD = ["cifar100_test", "svhn_test", "mnist_test", "fashion_mnist_test", "dtd10_textures"]
# Second scores of the paper's double-score tables.
SECOND = ["ash_s", "ebo", "gradnorm", "knn", "l1_norm", "mls", "odin", "react", "residual", "vim"]


def main(quick: bool = False) -> None:
    if not DATA.is_dir():
        print(f"\npaper_tables left out: no data in {DATA}; set POSCOD_DATA to a folder with cifar10_resnet56/.")
        return
    bank, test = _load("cifar10_train_20k"), _load("cifar10_test")
    fit_id, test_id = _halves(test, seed=0)
    loss = (test_id.logits.argmax(axis=1) != test_id.labels).astype(float)
    sets = OOD[:1] if quick else OOD
    fit_ood, test_ood = zip(*(_halves(_load(name), seed=1) for name in sets), strict=True)
    names = sorted(SCORES) if not quick else ["knn", "msp"]
    fitted = {name: SCORES[name]().fit(bank) for name in names}
    scores = {name: (score(test_id), [score(ood) for ood in test_ood]) for name, score in fitted.items()}
    short = [name.removesuffix("_test") for name in sets]

    rows = []
    for name, (s_id, per_set) in scores.items():
        cells = [(100 * auroc(s_id, s), 100 * ausrt(s_id, loss, s, envelope=False)) for s in per_set]
        rows.append([name, 100 * aurc(s_id, loss, area="trapezoid"), *(f"{a:.2f} / {b:.2f}" for a, b in cells)])
    rows.sort(key=lambda row: np.mean([float(cell.split("/")[1]) for cell in row[2:]]))
    header = ["score", "AuRC", *(f"{name} AuROC / AuSRT" for name in short)]
    print_table("Single scores, %, sorted by mean AuSRT", header, rows)

    risk_id, risk_ood = scores["msp"]
    seconds = {name: scores[name] for name in SECOND if name in scores}
    seconds["LR clean"] = _clean_ratio(fit_id, fit_ood, test_id, test_ood)
    for title, curve in (
        ("Plug-in double scores", lambda *arrays, strategy: plugin_curve(strategy, *arrays)),
        (
            "Tuned double scores (in-sample bound)",
            lambda *arrays, strategy: tuned_curve(strategy, *arrays, n_jobs=-1),
        ),
    ):
        rows = []
        for strategy in ("linear", "sirc"):
            for name, (s_id, per_set) in seconds.items():
                # A ratio fitted against one OOD set differs from set to set; a single score does not.
                per_id = s_id if isinstance(s_id, list) else [s_id] * len(sets)
                areas = [
                    100 * curve(risk_id, a, loss, r, b, strategy=strategy).area
                    for a, r, b in zip(per_id, risk_ood, per_set, strict=True)
                ]
                rows.append([f"{strategy}(1 - MSP, {name})", *areas])
        print_table(f"{title}, AuSRT in %, alpha = 0.5", ["strategy", *short], rows)


def _load(name: str) -> Activations:
    with np.load(DATA / f"{name}.npz") as file, np.load(DATA / "final_layer.npz") as head:
        labels = file["labels"] if "labels" in file.files and file["labels"].max() < len(head["W"]) else None
        return Activations(file["features"], file["logits"], labels, head["W"], head["b"])


def _halves(rows: Activations, seed: int) -> tuple[Activations, Activations]:
    order = np.random.default_rng(seed).permutation(len(rows))
    return rows[order[: len(rows) // 2]], rows[order[len(rows) // 2 :]]


def _clean_ratio(fit_id, fit_ood, test_id, test_ood):  # type: ignore[no-untyped-def]
    """Ratio learned from clean OOD features, one model per OOD set."""
    per_id, per_ood = [], []
    for known, unseen in zip(fit_ood, test_ood, strict=True):
        model = StandardSigmoid().fit(fit_id.features, known.features)
        per_id.append(np.exp(np.minimum(model.log_ratio(test_id.features), 700)))
        per_ood.append(np.exp(np.minimum(model.log_ratio(unseen.features), 700)))
    return per_id, per_ood


if __name__ == "__main__":
    main()
