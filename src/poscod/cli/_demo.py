# SPDX-License-Identifier: BSD-3-Clause
"""See the method work on real data: a classifier that knows the digits 0 to 5 is sent all ten, and learns when not to answer.

Writes a report to open in a browser, the saved model, and the tables, to try the other commands on.

Convention: the data are embedded in scikit-learn; everything is measured on rows that nothing was fitted on.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from poscod import report
from poscod.cli._console import Console, add_output_options, percent, ranged
from poscod.cli._rules import compare_rules, rules_table
from poscod.cli._tables import TableWriter
from poscod.datasets import OpenDigits, load_open_digits
from poscod.exceptions import InvalidInputError
from poscod.model import POSCOD, Schema, read_sample, share_at_fit

EXAMPLES = ("poscod demo", "poscod demo -o somewhere && open somewhere/report.html")

ALPHA, TPR_MIN = 0.5, 0.9
COLUMNS = tuple(f"pixel_{i:02d}" for i in range(64))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("-o", "--output", default="demo-output", metavar="FOLDER", help="folder to write to")
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Fit, abstain, measure and tell."""
    console = Console.of(args)
    folder = Path(args.output)
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"cannot write to {folder}: it is a file; give the name of a folder.")
    digits = load_open_digits()
    with console.working("fitting"):
        model = fit_digits(digits)
    with console.working("measuring"):
        sample = read_sample(model, digits.test, digits.y_test, digits.ood, digits.log)
        rules = [row for row in compare_rules(sample) if row["rule"] != "ratio"]
    folder.mkdir(parents=True, exist_ok=True)
    with console.working("writing"):
        files = write_files(folder, model, digits)
    prior = share_at_fit(model, 0.9)
    truth = float(digits.traffic_is_ood.mean())
    own = rules[-1]
    accuracy = float(np.mean(model.predict_id(digits.test) == digits.y_test))
    console.answer(
        {
            "command": "demo",
            "accuracy": accuracy,
            "ood_prior": prior,
            "ood_prior_truth": truth,
            "rule": model.rule_.to_dict(),
            "rules": rules,
            "files": [str(file) for file in files],
        },
        f"A classifier knows the digits 0 to 5 (right on {percent(accuracy)} of fresh ones) and is sent all ten.",
        "It has never seen a 6, 7, 8 or 9, and answers them all the same, often with confidence.",
        f"What it has: {len(digits.labeled)} labeled digits, and a log of {len(digits.traffic)} inputs without labels.",
        f"Share of unknown digits that it estimates from the log: {ranged(prior, '90 % interval')}; the truth is {percent(truth)}.",
        f"Asked: accept {100 * TPR_MIN:g} % of known digits; unknown digits accepted and wrong answers weigh the same, as shares (alpha = "
        f"{ALPHA:g}).",
        f"{model.rule_}",
        "In this rule r is the risk of an error, g how much more likely an unknown digit is.",
        f"Fresh known digits accepted: {ranged(own['tpr'], '95 % interval')}.",
        f"Fresh unknown digits accepted: {percent(own['fpr'].estimate)}; estimated without a label of them: "
        f"{ranged(own['label_free']['fpr'], '95 % interval')}.",
        "MSP, the usual choice, rejects by r alone; SIRC joins r and g by a rule of thumb. All are asked for the same share:",
        "",
        *rules_table(rules, intervals=False),
        "",
        f"Open {files[0]}; then try: poscod predict {folder / 'model.poscod'} {folder / 'new.csv'} -o {folder / 'decisions.csv'}",
    )


def fit_digits(digits: OpenDigits) -> POSCOD:
    """Fit the model of the demo."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    model = POSCOD(classifier, alpha=ALPHA, tpr_min=TPR_MIN, random_state=0)
    model.fit(digits.labeled, digits.y_labeled, X_unlabeled=digits.traffic)
    return model.with_schema(Schema(COLUMNS, target="digit", n_features=len(COLUMNS)))


def write_files(folder: Path, model: POSCOD, digits: OpenDigits) -> list[Path]:
    """Write report, model and tables; the report comes first in the list."""
    summary = report.summarise(
        model,
        X=digits.test,
        y=digits.y_test,
        X_ood=digits.ood,
        X_unlabeled=digits.log,
        title="A digit classifier that knows when not to answer",
        names={"model": "model.poscod", "id": "test.csv", "ood": "ood.csv", "unlabeled": "log.csv"},
    )
    report.write(summary, folder / "report.html")
    model.save(folder / "model.poscod")
    new = np.concatenate([digits.test[:50], digits.ood[:50]])
    tables: dict[str, tuple[NDArray[Any], NDArray[Any] | None]] = {
        "labeled.csv": (digits.labeled, digits.y_labeled),
        "unlabeled.csv": (digits.traffic, None),
        "test.csv": (digits.test, digits.y_test),
        "ood.csv": (digits.ood, None),
        "log.csv": (digits.log, None),
        "new.csv": (new, None),
    }
    for name, (pixels, labels) in tables.items():
        with TableWriter(folder / name) as file:
            target = {} if labels is None else {"digit": labels}
            file.write({**target, **dict(zip(COLUMNS, pixels.T, strict=True))})
    return [folder / name for name in ("report.html", "model.poscod", *tables)]
