"""Costs change, the model does not: one fit, every price.

Digits 0-5 are known, the log holds all ten. One model is fitted; then alpha moves from "ignore strangers" to "only strangers count", at three
required shares of known digits. `at` re-uses the fitted risk and ratio, so that a rule for other costs takes milliseconds.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from _picture import BLUE, GREEN, RED, figure, folder_from_command_line, save
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poscod import POSCOD

ALPHAS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0)


def main(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    known, y_known, unknown = X[y <= 5], y[y <= 5], X[y > 5]
    traffic = np.vstack([known[500:700], unknown[:150]])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    start = time.perf_counter()
    # A small share trains the classifier, so that it makes mistakes worth rejecting.
    model = POSCOD(classifier, calibration=0.8, random_state=0).fit(known[:500], y_known[:500], X_unlabeled=traffic)
    fitted = time.perf_counter() - start

    start = time.perf_counter()
    rules = {t: [model.at(alpha=alpha, tpr_min=t) for alpha in ALPHAS] for t in (0.8, 0.9, 0.97)}
    changed = time.perf_counter() - start
    print(f"One fit took {fitted:.1f} s, {3 * len(ALPHAS)} rules from it {changed:.2f} s.")

    fig, axes = figure(columns=2, width=8.4)
    for (tpr_min, models), colour in zip(rules.items(), (BLUE, GREEN, RED), strict=True):
        results = [rule.evaluate(known[700:], y_known[700:], unknown[150:]) for rule in models]
        for ax, name in zip(axes, ("selective_risk", "fpr"), strict=True):
            ax.plot(
                ALPHAS,
                [getattr(r, name).estimate for r in results],
                "o-",
                color=colour,
                label=f"tpr_min = {tpr_min}",
                ms=4,
            )
        for alpha, r in list(zip(ALPHAS, results, strict=True))[::3]:
            print(
                f"tpr_min {tpr_min}, alpha {alpha:4}: known {r.tpr.estimate:4.0%}, unknown {r.fpr.estimate:4.0%}, wrong {r.selective_risk.estimate:5.1%}"
            )
    axes[0].set_ylabel("wrong among accepted known digits")
    axes[1].set_ylabel("unknown digits accepted")
    for ax in axes:
        ax.set_xlabel("alpha")
        ax.set_ylim(0)
    axes[1].legend(frameon=False)
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
