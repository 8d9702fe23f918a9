"""A table, gradient boosting, and a kind of row nobody labeled.

178 Italian wines of three cultivars, 13 measurements each (embedded in scikit-learn). Each cultivar in turn is the stranger: the
classifier knows the other two, and the log of unlabeled wines holds all three. Boosted trees answer a stranger with full confidence;
the ratio learned from the log does not. Few labeled rows: five folds instead of a held-out share. The rows are split at random, and once chance gives the log another
class mix than the labeled rows: 70 % of its known wines are of cultivar 0, which is 43 % of the labeled ones. `fit` finds that and warns; the script prints it.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from _picture import BLUE, RED, figure, folder_from_command_line, save
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingClassifier

from poscod import POSCOD
from poscod.model import ClassMixWarning, InputsDriftedWarning

TPR_MIN = 0.9


def main(folder: Path) -> None:
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    rows = []
    for stranger in range(3):
        known, y_known, others = X[y != stranger], y[y != stranger], X[y == stranger]
        labeled, traffic_id, fresh = np.split(known, [len(known) - 60, len(known) - 30])
        y_labeled, y_log, y_fresh = np.split(y_known, [len(known) - 60, len(known) - 30])
        traffic = np.vstack([traffic_id, others[:20]])  # nobody says which wine is which
        model = POSCOD(GradientBoostingClassifier(random_state=0), tpr_min=TPR_MIN, calibration=5, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClassMixWarning)  # what they say is printed below
            warnings.simplefilter("ignore", InputsDriftedWarning)
            model.fit(labeled, y_labeled, X_unlabeled=traffic)
        ours = model.evaluate(fresh, y_fresh, others[20:])
        alone = model.at(alpha=0.0).evaluate(fresh, y_fresh, others[20:])
        rows.append((stranger, ours, alone, model.ood_prior_))
        print(
            f"cultivar {stranger} unknown: {len(labeled)} labeled wines, share of strangers in the log estimated at {model.ood_prior_:.0%} (really 40%)"
        )
        if (
            model.calibration_.drift is not None
        ):  # so few wines cannot tell a new cultivar from known ones that changed: somebody has to taste some
            print(f"  {model.calibration_.drift.sentence()}")
        if model.calibration_.mix.changed:
            first, own, found = model.classes_[0], model.class_prior_[0], model.traffic_class_prior_[0]
            print(
                f"  the log has another class mix: cultivar {first} is {own:.0%} of labeled wines, and estimated at {found:.0%} of known ones in the log "
                f"(really {np.mean(y_log == first):.0%})"
            )
        for name, result in {"confidence alone": alone, "poscod": ours}.items():
            print(
                f"  {name:<17} accepts {result.tpr.estimate:4.0%} of known and {result.fpr.estimate:4.0%} of unknown wines"
            )

    fig, ax = figure()
    for shift, name, colour, pick in ((-0.2, "confidence alone", RED, 2), (0.2, "poscod", BLUE, 1)):
        values = [row[pick].fpr for row in rows]
        gaps = [[v.estimate - v.low for v in values], [v.high - v.estimate for v in values]]
        ax.bar(np.arange(3) + shift, [v.estimate for v in values], 0.36, yerr=gaps, color=colour, label=name, capsize=3)
    ax.set_xticks(range(3), [f"cultivar {i} unknown" for i in range(3)])
    ax.set_ylabel("unknown wines accepted")
    ax.set_ylim(0, 1.05)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
