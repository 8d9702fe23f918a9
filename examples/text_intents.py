"""Text intents, and questions nobody trained for.

A part of CLINC150 (Larson et al., EMNLP 2019, CC BY 3.0; data/clinc): 20 intents of an assistant as sentence embeddings. The log is what a running assistant has: questions in
scope and out of scope, unlabeled. Labeled rows and log are drawn from one pool, because paraphrases of one sentence on both sides would look like OOD.
"""

from __future__ import annotations

from pathlib import Path

from _clinc import questions
from _picture import figure, folder_from_command_line, save
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.plot import PlaneDisplay


def main(folder: Path) -> None:
    (labeled, y_labeled), (log, truth), (fresh, y_fresh), (strangers, _) = map(
        questions, ("labeled", "traffic", "test", "oos")
    )

    model = POSCOD(LogisticRegression(C=30, max_iter=500), alpha=0.3, tpr_min=0.95, random_state=0)
    model.fit(labeled, y_labeled, X_unlabeled=log)
    low, high = model.ratio_.ood_prior_interval(0.95)
    print(
        f"out of scope in the log: estimated {model.ood_prior_:.0%} ({low:.0%} to {high:.0%}), really {(truth == 'oos').mean():.0%}"
    )
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
