"""Text intents, and questions nobody trained for.

CLINC-150: 150 intents of a voice assistant as sentence embeddings, and out-of-scope questions (read from ../shared/data/clinc150 where it is; the
script ends with a reason where it is not). The log is what a running assistant has: questions in scope and out of scope, unlabeled.
Labeled rows and log are drawn from one pool, because paraphrases of one sentence on both sides would look like OOD.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from _picture import figure, folder_from_command_line, save
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.plot import PlaneDisplay

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "clinc150"


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    file = np.load(DATA / f"{name}.npz")
    return file["features"].astype(np.float32), file["labels"]


def main(folder: Path) -> None:
    if not DATA.is_dir():
        sys.exit(f"needs CLINC-150 sentence embeddings in {DATA}, which are not here")
    pool, y_pool = (np.concatenate(parts) for parts in zip(rows("val"), rows("test"), strict=True))
    order = np.random.default_rng(0).permutation(len(pool))
    pool, y_pool = pool[order], y_pool[order]
    out_of_scope = np.random.default_rng(1).permutation(rows("oos_test")[0])
    labeled, y_labeled, in_log, fresh, y_fresh = (
        pool[:3500],
        y_pool[:3500],
        pool[3500:5500],
        pool[5500:],
        y_pool[5500:],
    )
    log, strangers = np.vstack([in_log, out_of_scope[:400]]), out_of_scope[400:]

    model = POSCOD(LogisticRegression(C=30, max_iter=500), alpha=0.3, tpr_min=0.9, random_state=0)
    model.fit(labeled, y_labeled, X_unlabeled=log)
    low, high = model.ratio_.ood_prior_interval(0.95)
    print(f"out of scope in the log: estimated {model.ood_prior_:.0%} ({low:.0%} to {high:.0%}), really 17%")
    for name, rule in {"confidence alone": model.at(alpha=0.0), "poscod": model}.items():
        r = rule.evaluate(fresh, y_fresh, strangers)
        print(
            f"{name:<17} answers {r.tpr.estimate:.0%} of questions in scope, {r.selective_risk.estimate:.1%} of them wrong; "
            f"answers {r.fpr.estimate:.0%} of those out of scope"
        )

    fig, ax = figure(width=8.0, height=4.2)
    PlaneDisplay.from_estimator(model, fresh, y_fresh, strangers, max_points=250).plot(ax=ax)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
