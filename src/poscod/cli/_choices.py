# SPDX-License-Identifier: BSD-3-Clause
"""What ``poscod fit`` offers by name: classifiers, ratios, losses and class mixes from files, reject labels; and what thresholds can be chosen for.

Convention: one mapping per family; a name that is not in it is refused with the names that are.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from poscod._validation import check_choice, listed
from poscod.cli._tables import open_table
from poscod.exceptions import InvalidInputError
from poscod.labels import REJECTED, UNLABELED
from poscod.problem import LOSSES, Budget, Problem, RiskBound
from poscod.ratio import CorrectedSigmoid

CLASSIFIERS: dict[str, Any] = {
    "logistic": None,  # the estimator's own default: scaled columns, then logistic regression
    "boosting": HistGradientBoostingClassifier(random_state=0),
    "forest": RandomForestClassifier(n_estimators=200, min_samples_leaf=2, random_state=0),
    "lda": LinearDiscriminantAnalysis(),
    "naive_bayes": GaussianNB(),
}
"""Name of a classifier to what is fitted."""

RATIOS: dict[str, Any] = {"strong": CorrectedSigmoid(), "paper": CorrectedSigmoid("paper", l2="cv")}
"""Name of a ratio to what is fitted: the best default, and the fast one."""


def add_bound_options(group: Any) -> None:
    """Declare what a threshold can be chosen for instead of a share of ID inputs."""
    other = group.add_mutually_exclusive_group()
    other.add_argument(
        "--budget", type=float, metavar="SHARE", help="instead of --tpr-min: share of the traffic to reject, e.g. 0.02"
    )
    other.add_argument(
        "--max-error",
        type=float,
        metavar="E",
        help="instead of --tpr-min: largest error (mean loss) of accepted ID inputs, e.g. 0.01, with probability 1 - delta",
    )


def bounded(args: argparse.Namespace, ranking: Problem) -> Problem:
    """Return the problem that these options ask for, with the order of inputs of another one; that one where they ask for nothing."""
    if args.budget is not None:
        return Budget(args.budget, ranking)
    if args.max_error is not None:
        return RiskBound(args.max_error, 0.05 if args.delta is None else args.delta, ranking=ranking)
    return ranking


def ratio_name(text: str) -> str:
    """Return the name of a ratio; "linear" is an old one of "paper"."""
    return "paper" if text == "linear" else text


def reject_label_of(text: str | None, classes: list[Any]) -> Any:
    """Return a reject label of the type of the classes that is none of them."""
    texts = isinstance(classes[0], str)
    label: Any = text or (REJECTED if texts else UNLABELED)
    if not texts:
        try:
            label = int(label)
        except ValueError:
            raise InvalidInputError(
                f"--reject-label must be a whole number, as the classes are, got {text!r}."
            ) from None
    if label in classes:
        raise InvalidInputError(f"--reject-label must be none of the classes, got {label!r}: choose another one.")
    return label


def loss_of(path: str, classes: Sequence[Any]) -> str | NDArray[Any]:
    """Return the name of a loss, or read it from a table: named columns are answers, rows are truths in the same order or under their names."""
    if not Path(path).suffix:
        return check_choice(path, "--loss", {name: name for name in LOSSES})
    table = open_table(path, whole=True)
    rows = table.read()
    answers = [name for name, column in table.columns.items() if column.kind == "number"]
    names = [str(label) for label in classes]
    if sorted(answers) != sorted(names):
        raise InvalidInputError(
            f"{path} must have one column of numbers per class ({listed(names)}), got {listed(answers) or 'none'}."
        )
    texts = [name for name, column in table.columns.items() if column.kind == "text"]
    truths = [str(value) for value in rows[texts[0]].tolist()] if texts else answers
    if sorted(truths) != sorted(names) or rows.n_rows != len(names):
        raise InvalidInputError(
            f"{path} must have one row per class ({len(names)}), in the order of its columns or named in a column of texts, got "
            f"{rows.n_rows} rows."
        )
    matrix = np.column_stack(list(rows.finite(names).values()))
    return matrix[[truths.index(name) for name in names]]


def mix_of(text: str, classes: Sequence[Any]) -> str | NDArray[Any]:
    """Return how the class mix is found by its name, or known shares: ``cat=0.3,dog=0.7``, or a table with a column of classes and one of shares.

    Examples
    --------
    >>> mix_of("auto", ["cat", "dog"]), mix_of("dog=0.7,cat=0.3", ["cat", "dog"])
    ('auto', array([0.3, 0.7]))
    """
    if text in ("auto", "labeled"):
        return text
    names = [str(label) for label in classes]
    pairs = _pairs(text) if "=" in text else _mix_table(text)
    given = [name for name, _ in pairs]
    if sorted(given) != sorted(names):
        wrong = [name for name in given if name not in names or given.count(name) > 1]
        missing = [name for name in names if name not in given]
        found = f"no share of {listed(missing)}" if missing else listed(wrong)
        raise InvalidInputError(
            f"--class-mix must give each class ({listed(names)}) one share, got {found}: a class that is gone has the share 0."
        )
    shares = dict(pairs)
    found_shares = np.array([shares[name] for name in names])
    if not (found_shares >= 0.0).all() or abs(found_shares.sum() - 1.0) > 1e-6:
        raise InvalidInputError(f"--class-mix must give shares that sum to 1, got {found_shares.sum():.6g} in all.")
    return found_shares


def _pairs(text: str) -> list[tuple[str, float]]:
    """Read ``cat=0.3,dog=0.7``."""
    pairs = []
    for part in text.split(","):
        name, _, share = part.rpartition("=")
        try:
            pairs.append((name.strip(), float(share)))
        except ValueError:
            raise InvalidInputError(
                f"--class-mix must be auto, labeled, a table, or shares such as cat=0.3,dog=0.7, got {part!r}."
            ) from None
    return pairs


def _mix_table(path: str) -> list[tuple[str, float]]:
    """Read a table with the columns ``class`` and ``share``."""
    if not Path(path).suffix:
        raise InvalidInputError(
            f"--class-mix must be auto, labeled, a table, or shares such as cat=0.3,dog=0.7, got {path!r}."
        )
    table = open_table(path, whole=True)
    block = table.read(table.need(["class", "share"]))
    shares = block.finite(["share"])["share"].tolist()
    return list(zip(map(str, block["class"].tolist()), shares, strict=True))
