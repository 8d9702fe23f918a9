"""The loop: reject, review, and know how good the rule is.

Handwritten digits: zero to six are known, and a log holds sevens, eights and nines, too. A hundred of its images go to a person, who says which digit each one is, or that it is
none of the known ones; here the true label plays that part. What follows for the whole log is shown beside a plain random review of the same size and the truth.
Verdicts of the queue say more of the strangers in the log and of the known images answered; of rare things, such as strangers that were answered, a hundred verdicts say little either way.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _picture import BLUE, GREY, RED, figure, folder_from_command_line, save
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poscod import OOD, POSCOD
from poscod.review import Queue, assess, queue

KNOWN, LOOKS = 7, 100
SHOWN = {
    "ood_prior": "strangers in the log",
    "tpr": "known answered (TPR)",
    "fpr": "strangers answered (FPR)",
    "error": "wrong answers",
}


def main(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    known = np.flatnonzero(y < KNOWN)
    labeled = known[:500]
    # The log: all other known images, and strangers as a seventh of it.
    rest = known[500:]
    strangers = np.flatnonzero(y >= KNOWN)[: len(rest) // 6]
    log = np.random.default_rng(1).permutation(np.r_[rest, strangers])
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    model = POSCOD(classifier, tpr_min=0.9, alpha=0.3, random_state=0).fit(X[labeled], y[labeled], X_unlabeled=X[log])

    said = np.array([OOD if digit >= KNOWN else digit for digit in y[log]], dtype=object)
    chosen = queue(model, X[log], LOOKS)
    for stratum, count in zip(*np.unique(chosen.stratum.astype(str), return_counts=True), strict=True):
        print(f"{count:>3} images: {stratum}")
    found = assess(model, X[log], chosen, said[chosen.index])

    decisions = model.decide(X[log])
    index = np.random.default_rng(2).choice(len(log), LOOKS, replace=False)
    one, some = np.full(LOOKS, "all"), decisions[index]
    sample = Queue(index, one, np.full(LOOKS, LOOKS / len(log)), one, some.label, some.accept, some.reason)
    plain = assess(model, X[log], sample, said[index])

    ood, accept = y[log] >= KNOWN, decisions.accept
    wrong = decisions.label != y[log]
    truth = {
        "ood_prior": ood.mean(),
        "tpr": accept[~ood].mean(),
        "fpr": accept[ood].mean(),
        "error": wrong[accept].mean(),
    }
    fig, ax = figure(height=3.0)
    for place, (name, words) in enumerate(SHOWN.items()):
        for how, colour, shift, label in ((found, BLUE, 0.15, "queue"), (plain, GREY, -0.15, "plain random review")):
            value = getattr(how, name)
            ax.plot(
                [value.low, value.high], [place + shift] * 2, color=colour, lw=4, label=label if not place else None
            )
            ax.plot(value.estimate, place + shift, "o", color=colour)
        ax.plot(truth[name], place, "|", color=RED, ms=28, label="truth" if not place else None)
        value = getattr(found, name)
        print(f"{words}: {value.estimate:.1%} ({value.low:.1%} to {value.high:.1%}), truth {truth[name]:.1%}")
    ax.set_yticks(range(len(SHOWN)), list(SHOWN.values()))
    ax.invert_yaxis()
    ax.set_xlim(0.0, 1.0)
    ax.set_xlabel(f"share, with 95 % intervals from {LOOKS} verdicts on {len(log):,} images")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
