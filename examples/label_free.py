"""How good is it? An answer without a single label of a stranger.

A world of Gaussians, where the true share of accepted strangers is known to the script and not to the method. The label-free estimate and its
95 % interval, from 2,000 fresh labeled rows and a log of growing length with 20 % strangers; the bound that holds whatever their share
is needs no estimate of it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _picture import BLUE, GREY, RED, figure, folder_from_command_line, save
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.theory import GaussianWorld

SIZES = (300, 1000, 3000, 10_000, 30_000)


def main(folder: Path) -> None:
    world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 3.2]])
    X, y = world.sample_id(2000, random_state=0)
    traffic, _ = world.sample_mixture(2000, pi=0.2, random_state=1)
    model = POSCOD(LogisticRegression(), tpr_min=0.95, random_state=0).fit(X, y, X_unlabeled=traffic)
    truth = model.decide(world.sample_ood(50_000, random_state=2)).accept.mean()
    fresh, y_fresh = world.sample_id(2000, random_state=3)
    results = []
    for size in SIZES:
        log, _ = world.sample_mixture(size, pi=0.2, random_state=size)
        found = model.evaluate_unlabeled(fresh, y_fresh, log)
        results.append(found.fpr)
        print(
            f"log of {size:>6}: strangers accepted {found.fpr.estimate:5.1%}, between {found.fpr.low:5.1%} and {found.fpr.high:5.1%}, "
            f"at most {found.fpr.upper_any_prior:.0%} whatever their share; share estimated {found.ood_prior.estimate:.0%}"
        )
    print(f"The truth, which nobody told: {truth:.1%}.")

    fig, ax = figure()
    middle = np.array([r.estimate for r in results])
    gaps = [middle - [r.low for r in results], [r.high for r in results] - middle]
    ax.errorbar(SIZES, middle, yerr=gaps, fmt="o", color=BLUE, capsize=4, label="label-free, 95 % interval")
    ax.plot(SIZES, [r.upper_any_prior for r in results], "v", color=GREY, label="bound for any share of strangers")
    ax.axhline(truth, color=RED, ls="--", label="truth")
    ax.set_xscale("log")
    ax.set_xlabel("unlabeled rows")
    ax.set_ylabel("strangers accepted (FPR)")
    ax.set_ylim(-0.02, 1)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
