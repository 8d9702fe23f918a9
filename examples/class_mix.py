"""The log has another class mix than the labeled rows.

Real digits (embedded in scikit-learn): 0 to 5 are known, with 70 labeled rows each. In the log one known digit is half of the known rows, and one row in ten is an
unknown digit, 6 to 9. Each known digit in turn is the frequent one. Whoever takes the labeled mix for that of the log calls the frequent digit unknown and rejects it;
the default estimates the mix and serves it, which is better on average and not in each of the six logs of 133 rows. Shares of known digits are measured on rows of neither sample, weighted to the mix of the log.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from _picture import BLUE, GREY, RED, figure, folder_from_command_line, save
from sklearn.datasets import load_digits

from poscod import POSCOD
from poscod.exceptions import PoscodWarning

KNOWN, LABELED, OFTEN, SELDOM, UNKNOWN = 6, 70, 60, 12, 13
TPR_MIN = 0.95


def main(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    found: dict[str, list[tuple[float, ...]]] = {"labeled": [], "auto": []}
    for often in range(KNOWN):
        rng = np.random.default_rng(often)
        counts = np.where(np.arange(KNOWN) == often, OFTEN, SELDOM)
        mix = counts / counts.sum()
        rows = [rng.permutation(np.flatnonzero(y == digit)) for digit in range(KNOWN)]
        parts = [np.split(own, [LABELED, LABELED + n]) for own, n in zip(rows, counts, strict=True)]
        labeled, log, fresh = (np.concatenate(part) for part in zip(*parts, strict=True))
        unknown = rng.permutation(np.flatnonzero(y >= KNOWN))
        traffic = np.concatenate([log, unknown[:UNKNOWN]])  # nobody says which row is which
        weight = (mix / np.bincount(y[fresh]))[y[fresh]]
        for how, results in found.items():
            with warnings.catch_warnings():
                # fit warns that the mix differs, and with so few unknown rows sometimes that it sees none: the script prints both as numbers.
                warnings.simplefilter("ignore", PoscodWarning)
                model = POSCOD(tpr_min=TPR_MIN, class_mix=how, random_state=0)
                model.fit(X[labeled], y[labeled], X_unlabeled=X[traffic])
            accepted = model.decide(X[fresh]).accept
            tpr, own = np.average(accepted, weights=weight), accepted[y[fresh] == often].mean()
            fpr = model.decide(X[unknown[UNKNOWN:]]).accept.mean()
            results.append((tpr, fpr, own, model.ood_prior_))
        print(
            f"digit {often}: {1 / KNOWN:.0%} of the labeled rows, {mix[often]:.0%} of the known rows in the log, estimated {model.traffic_class_prior_[often]:.0%}"
        )

    for how, results in found.items():
        tpr, fpr, own, prior = np.mean(results, axis=0)
        print(
            f"class_mix={how!r:<9} accepts {tpr:.1%} of known digits ({TPR_MIN:.0%} asked), {own:.1%} of the frequent one, {fpr:.0%} of unknown ones; "
            f"calls {prior:.0%} of the log unknown (really {UNKNOWN / len(traffic):.0%})"
        )

    fig, axes = figure(2, width=8.4)
    for shift, (how, results) in zip((-0.2, 0.2), found.items(), strict=True):
        colour = RED if how == "labeled" else BLUE
        for ax, column in zip(axes, (0, 1), strict=True):
            values = [row[column] for row in results]
            ax.bar(np.arange(KNOWN) + shift, values, 0.36, color=colour, label=f'class_mix="{how}"')
    axes[0].axhline(TPR_MIN, color=GREY, ls="--")
    axes[0].set_ylim(0.7, 1.0)
    axes[0].set_ylabel("known digits accepted")
    axes[1].set_ylim(0, 1.0)
    axes[1].set_ylabel("unknown digits accepted")
    for ax in axes:
        ax.set_xlabel("the digit that is half of the log")
    axes[1].legend(frameon=False, loc="upper right")
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
