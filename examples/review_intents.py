"""The loop on texts: questions that nobody trained for, in groups, and what a hundred verdicts change.

A part of CLINC150 (Larson et al., EMNLP 2019, CC BY 3.0; data/clinc) as sentence embeddings. Twenty intents are known. A log holds ten others, too, which nobody has named. The likely
strangers are put into groups; a person looks at a hundred questions that are chosen for the next fit, and says which are in scope. Here the true intent plays that part.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _clinc import questions
from _picture import BLUE, GREY, figure, folder_from_command_line, save
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from poscod import OOD, POSCOD
from poscod.review import queue, stranger_groups

LOOKS = 100


def most_frequent(names: np.ndarray) -> str:
    values, counts = np.unique(names, return_counts=True)
    return str(values[counts.argmax()])


def main(folder: Path) -> None:
    (labeled, y_labeled), (log, truth), (fresh, y_fresh), (others, y_others) = map(
        questions, ("labeled", "traffic", "test", "hidden")
    )
    log, truth = np.r_[log[truth != "oos"], others[:150]], np.r_[truth[truth != "oos"], y_others[:150]]
    strangers, known = others[150:], set(y_labeled)
    said = np.array([label if label in known else OOD for label in truth], dtype=object)

    new = POSCOD(LogisticRegression(C=30, max_iter=500), alpha=0.4, tpr_min=0.9, random_state=0)
    before = clone(new).fit(labeled, y_labeled, X_unlabeled=log)
    groups = stranger_groups(before, log)
    of = [most_frequent(truth[group.index]) for group in groups]
    print(
        f"{len(groups)} groups among the likely strangers of {len(log):,} questions; really {len(set(y_others))} intents"
    )
    for group, name in zip(groups, of, strict=True):
        print(f"  about {group.size.estimate:.0f} ({group.size.low:.0f} to {group.size.high:.0f}), most of them {name}")

    rows = queue(before, log, LOOKS, aim="refit").index
    after = clone(new).fit(labeled, y_labeled, X_unlabeled=log, X_reviewed=log[rows], y_reviewed=said[rows])
    print(f"{LOOKS} verdicts, {sum(value is OOD for value in said[rows])} of them out of scope")
    for words, model in (("before", before), ("after", after)):
        result = model.evaluate(fresh, y_fresh, strangers)
        print(
            f"{words:<6} share of strangers estimated at {model.ood_prior_:.1%} (really {150 / len(log):.1%}); answers {result.tpr.estimate:.0%} of questions in scope and "
            f"{result.fpr.estimate:.0%} of the others"
        )

    fig, ax = figure(height=3.6)
    for place, (group, name) in enumerate(zip(groups, of, strict=True)):
        ax.barh(place, group.size.estimate, color=BLUE, label="estimated, with 95 % interval" if not place else None)
        ax.plot([group.size.low, group.size.high], [place, place], color="black", lw=1)
        true = (truth == name).sum()
        ax.plot(true, place, "|", color=GREY, ms=16, mew=3, label="of that intent in the log" if not place else None)
    ax.set_yticks(range(len(of)), of)
    ax.invert_yaxis()
    ax.set_xlabel("questions in a group of strangers, named by what most of them are")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
