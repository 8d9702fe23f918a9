"""A deep network's features: CIFAR-10 meets CIFAR-100.

A public ResNet-56 (93.4 % on CIFAR-10), its 64 features and 10 logits on test images of CIFAR-10 and of CIFAR-100 (read from
../shared/data/cifar10_resnet56 where it is; the script ends with a reason where it is not). The network is the classifier: it comes in as
`Activations`, with rows it was **not** trained on. Compared at every required share of known images: its confidence, the best
known single score, and the rule learned from an unlabeled log with 20 % strangers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from _picture import BLUE, GREY, RED, figure, folder_from_command_line, save

from poscod import POSCOD, Activations
from poscod.metrics import scod_curve
from poscod.scores import SCORES

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "cifar10_resnet56"


def rows(name: str, labeled: bool = True) -> Activations:
    file = np.load(DATA / f"{name}.npz")
    return Activations(file["features"], file["logits"], file["labels"] if labeled else None)


def main(folder: Path) -> None:
    if not DATA.is_dir():
        sys.exit(f"needs activations of a CIFAR-10 network in {DATA}, which are not here")
    known, strangers = rows("cifar10_test"), rows("cifar100_test", labeled=False)
    known = known[np.random.default_rng(0).permutation(len(known))]
    strangers = strangers[np.random.default_rng(1).permutation(len(strangers))]
    labeled, fresh, others = known[:3000], known[5400:], strangers[600:5000]
    log = Activations(
        np.concatenate([known.features[3000:5400], strangers.features[:600]]),
        np.concatenate([known.logits[3000:5400], strangers.logits[:600]]),
    )
    model = POSCOD(alpha=0.5, tpr_min=0.9, random_state=0).fit(labeled, X_unlabeled=log)
    print(f"CIFAR-100 in the log: estimated {model.ood_prior_:.0%}, really 20%")
    inside, outside = model.decide(fresh), model.decide(others)
    knn = SCORES["knn"](k=50).fit(labeled)
    scores = {
        "confidence (1 - MSP)": (SCORES["msp"]()(fresh), SCORES["msp"]()(others), RED),
        "nearest neighbours": (knn(fresh), knn(others), GREY),
        "poscod": (inside.score, outside.score, BLUE),
    }
    wrong = (inside.label != fresh.labels).astype(float)
    fig, axes = figure(columns=2, width=8.4)
    for name, (score_id, score_ood, colour) in scores.items():
        curve = scod_curve(score_id, wrong, score_ood)
        keep = np.flatnonzero(curve.tpr >= 0.5)[:: max(1, len(curve.tpr) // 250)]
        axes[0].plot(curve.tpr[keep], curve.fpr[keep], color=colour, label=name)
        axes[1].plot(curve.tpr[keep], curve.selective_risk[keep], color=colour, label=name)
        at = np.searchsorted(curve.tpr, 0.9)
        print(f"{name:<21} at TPR 0.9: FPR {curve.fpr[at]:.0%}, wrong among accepted {curve.selective_risk[at]:.1%}")
    axes[0].set_ylabel("CIFAR-100 images accepted")
    axes[1].set_ylabel("wrong among accepted")
    for ax in axes:
        ax.set_xlabel("CIFAR-10 images accepted (TPR)")
        ax.set_ylim(0)
    axes[0].legend(frameon=False)
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
