"""Costs as a loss matrix: a missed tumour is not a false alarm.

569 breast masses, benign or malignant, of which ten measurements are used (embedded in scikit-learn). Calling a malignant mass benign costs 1, 5 or
25 times as much as the other way round; part of the traffic comes from a microscope with a wrong scale (simulated: lengths twice too
long). The same fitted model answers at every price: what it says, what it leaves to a doctor, and why. Columns and scale
were chosen so that the effect shows; with all thirty columns it is small.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _picture import BLUE, GREEN, GREY, RED, figure, folder_from_command_line, save
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poscod import POSCOD
from poscod.problem import CostProblem

PRICES = (1, 5, 25)
MALIGNANT, BENIGN = 0, 1


def wrong_scale(rows: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Lengths twice too long, areas four times too large."""
    factor = np.where(np.char.find(names, "area") >= 0, 4.0, 1.0)
    factor = np.where((np.char.find(names, "radius") >= 0) | (np.char.find(names, "perimeter") >= 0), 2.0, factor)
    return rows * factor


def main(folder: Path) -> None:
    data = load_breast_cancer()
    names = data.feature_names.astype(str)[:10]  # means only: not enough to be sure of every mass
    order = np.random.default_rng(3).permutation(len(data.data))
    X, y = data.data[order][:, :10], data.target[order]
    labeled, y_labeled, fresh, y_fresh = X[:280], y[:280], X[400:], y[400:]
    traffic = np.vstack([X[280:370], wrong_scale(X[370:400], names)])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model = POSCOD(classifier, calibration=5, random_state=0).fit(labeled, y_labeled, X_unlabeled=traffic)
    print(f"Rows of the wrong scale in the log: estimated {model.ood_prior_:.0%}, really 25%.")

    odd = wrong_scale(fresh, names)
    shares, missed, passed = [], [], []
    for price in PRICES:
        # A second look costs a third of a false alarm, an answer to a row of the wrong scale three false alarms.
        costs = CostProblem(reject_id=0.33, accept_ood=3.0, loss=[[0, price], [1, 0]])
        rule = model.with_rule(costs)
        decisions = rule.decide(fresh)
        kept = decisions.accept
        shares.append([(kept & (decisions.label == label)).mean() for label in (BENIGN, MALIGNANT)] + [(~kept).mean()])
        missed.append(int((kept & (decisions.label == BENIGN) & (y_fresh == MALIGNANT)).sum()))
        passed.append(rule.decide(odd).accept.mean())
        print(
            f"a missed tumour costs {price:>2}: benign {shares[-1][0]:4.0%}, malignant {shares[-1][1]:4.0%}, to a doctor {shares[-1][2]:4.0%}; "
            f"{missed[-1]} of {(y_fresh == MALIGNANT).sum()} tumours missed; {passed[-1]:4.0%} of wrong-scale rows answered"
        )

    fig, ax = figure()
    bottom = np.zeros(len(PRICES))
    for name, colour, part in zip(
        ("answered: benign", "answered: malignant", "to a doctor"), (GREEN, BLUE, GREY), range(3), strict=True
    ):
        values = np.array([share[part] for share in shares])
        ax.bar(range(len(PRICES)), values, 0.55, bottom=bottom, color=colour, label=name)
        bottom += values
    for i, count in enumerate(missed):
        ax.text(i, 1.02, f"{count} tumours missed", ha="center", color=RED)
    ax.set_xticks(range(len(PRICES)), [f"missing one costs {price}" for price in PRICES])
    ax.set_ylim(0, 1.12)
    ax.set_ylabel("share of fresh masses")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
