"""The loop on texts: questions that nobody trained for, in groups, and what a hundred verdicts change.

CLINC-150 (Larson et al., EMNLP 2019, CC BY 3.0) as sentence embeddings, read from ../shared/data/clinc150 where it is; the script ends with a reason where it is not. Forty intents are
known. A log holds ten others, too, which nobody has named. The likely strangers are put into groups; a person looks at a hundred questions that are chosen for
the next fit, and says which are in scope. Here the true intent plays that part.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from _picture import BLUE, GREY, figure, folder_from_command_line, save
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from poscod import OOD, POSCOD
from poscod.review import queue, stranger_groups

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "clinc150"
KNOWN, HIDDEN, LOOKS = 40, 10, 100


def pool() -> tuple[np.ndarray, np.ndarray]:
    files = [np.load(DATA / f"{name}.npz") for name in ("val", "test")]
    features, labels = (np.concatenate([file[part] for file in files]) for part in ("features", "labels"))
    some = np.random.default_rng(0).permutation(np.flatnonzero(labels < KNOWN + HIDDEN))
    return features[some].astype(np.float32), labels[some]


def main(folder: Path) -> None:
    if not DATA.is_dir():
        sys.exit(f"needs CLINC-150 sentence embeddings in {DATA}, which are not here")
    names = np.load(DATA / "class_names.npz")["class_names"]
    X, y = pool()
    known, hidden = np.flatnonzero(y < KNOWN), np.flatnonzero(y >= KNOWN)
    labeled, in_log, fresh = np.split(known, [1000, 1600])
    log, strangers = np.r_[in_log, hidden[:200]], hidden[200:]
    said = np.array([OOD if label >= KNOWN else label for label in y[log]], dtype=object)

    new = POSCOD(LogisticRegression(C=30, max_iter=500), alpha=0.4, tpr_min=0.9, random_state=0)
    before = clone(new).fit(X[labeled], y[labeled], X_unlabeled=X[log])
    groups = stranger_groups(before, X[log])
    of = [names[np.bincount(y[log][group.index]).argmax()] for group in groups]
    print(f"{len(groups)} groups among the likely strangers of {len(log):,} questions; really {HIDDEN} intents")
    for group, name in zip(groups, of, strict=True):
        print(f"  about {group.size.estimate:.0f} ({group.size.low:.0f} to {group.size.high:.0f}), most of them {name}")

    rows = queue(before, X[log], LOOKS, aim="refit").index
    after = clone(new).fit(X[labeled], y[labeled], X_unlabeled=X[log], X_reviewed=X[log[rows]], y_reviewed=said[rows])
    print(f"{LOOKS} verdicts, {sum(value is OOD for value in said[rows])} of them out of scope")
    for words, model in (("before", before), ("after", after)):
        result = model.evaluate(X[fresh], y[fresh], X[strangers])
        print(
            f"{words:<6} share of strangers estimated at {model.ood_prior_:.1%} (really 25.0%); answers {result.tpr.estimate:.0%} of questions in scope and "
            f"{result.fpr.estimate:.0%} of the others"
        )

    fig, ax = figure(height=3.6)
    for place, (group, name) in enumerate(zip(groups, of, strict=True)):
        ax.barh(place, group.size.estimate, color=BLUE, label="estimated, with 95 % interval" if not place else None)
        ax.plot([group.size.low, group.size.high], [place, place], color="black", lw=1)
        true = (y[log] == np.flatnonzero(names == name)[0]).sum()
        ax.plot(true, place, "|", color=GREY, ms=16, mew=3, label="of that intent in the log" if not place else None)
    ax.set_yticks(range(len(of)), of)
    ax.invert_yaxis()
    ax.set_xlabel("questions in a group of strangers, named by what most of them are")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
