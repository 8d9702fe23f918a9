# SPDX-License-Identifier: BSD-3-Clause
"""Learn when not to answer, from labeled rows and from unlabeled traffic, and save the model.

LABELED holds rows of the known classes with a column that names the class. UNLABELED holds inputs as they arrive in use:
nobody needs to say which of them are unknown. Tables are CSV, Parquet, Arrow, NPY or NPZ files, or folders of the first three.

Convention: columns are chosen by `poscod.cli._inputs`; everything else is an argument of `poscod.POSCOD`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from poscod._validation import check_choice, listed
from poscod.cli._choices import (
    CLASSIFIERS,
    RATIOS,
    add_bound_options,
    bounded,
    loss_of,
    mix_of,
    ratio_name,
    reject_label_of,
)
from poscod.cli._columns import Table
from poscod.cli._console import Console, add_output_options
from poscod.cli._dask import FrameTable, add_engine_options, fit_on_dask, on_dask, open_cluster
from poscod.cli._fitted import Fitted, finish
from poscod.cli._inputs import (
    add_input_options,
    as_they_are,
    choose_schema,
    groups_of,
    labels_of,
    learn_answers,
    measured,
    named_by,
    naming_classes,
    rows_of,
)
from poscod.cli._names import NAMES
from poscod.cli._notes import column_notes
from poscod.cli._reviewed import reviewed_rows
from poscod.cli._tables import check_output, open_table, same_file
from poscod.exceptions import InvalidInputError, PoscodWarning
from poscod.model import (
    ON_DRIFT,
    POSCOD,
    ClassMixWarning,
    InputsDriftedError,
    InputsDriftedWarning,
    Schema,
    named,
)
from poscod.problem import ScodProblem

EXAMPLES = (
    "poscod fit labeled.parquet unlabeled.parquet --target label -o model.poscod",
    "poscod fit known.csv log.csv --target class --features 'f_*' --alpha 0.3 --tpr-min 0.9 -o model.poscod",
    "poscod fit held_out.npz log.npz --target label --logits logits --embedding features -o model.poscod",
    "poscod fit judged.parquet log.parquet --target label --answer llm_label --confidence-column logprob --embedding embedding -o model.poscod",
    "poscod fit labeled.csv log.csv --target class --group session -o model.poscod",
    "poscod fit labeled.csv log.csv --target class --budget 0.05 -o model.poscod",
    "poscod fit labeled.csv log.csv --target class --reviewed queue.csv -o model.poscod",
    "poscod fit labeled.csv log.csv --target class --class-mix cat=0.3,dog=0.7 -o model.poscod",
    "poscod fit labeled/ traffic/ --target label --logits logits --embedding features --ratio paper --engine dask -o model.poscod",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("labeled", help="table of labeled rows")
    parser.add_argument("unlabeled", help="table of unlabeled traffic")
    parser.add_argument(
        "--reviewed",
        metavar="FILE",
        help="table of rows of the traffic that people have looked at, with their verdicts: a class, ood, or nothing; or Label Studio's export of a queue (.json)",
    )
    parser.add_argument("--verdict", default="verdict", metavar="COLUMN", help="column of --reviewed with the verdicts")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="model file to write, e.g. model.poscod")
    add_input_options(parser)
    what = parser.add_argument_group("what is asked")
    what.add_argument("--alpha", type=float, default=0.5, help="relative cost of accepting an OOD input, 0 to 1")
    what.add_argument("--tpr-min", type=float, default=0.95, help="share of ID inputs that must be accepted")
    add_bound_options(what)
    what.add_argument(
        "--loss",
        default="zero_one",
        help="zero_one, absolute (ordered classes), or a CSV file with one named column and one row per class: row = truth, "
        "column = answer",
    )
    what.add_argument(
        "--threshold",
        default="empirical",
        help="empirical: tpr-min on average; guaranteed: at least tpr-min with probability 1 - delta",
    )
    what.add_argument(
        "--tpr-over",
        default="all",
        help="all: tpr-min of all ID inputs together; classes: of those of every class, so that no class mix accepts less",
    )
    what.add_argument("--delta", type=float, default=0.05, help="error probability of a guarantee")
    what.add_argument(
        "--reject-label",
        metavar="LABEL",
        help="prediction of a rejected row (default: -1, or 'rejected' where classes are texts)",
    )
    how = parser.add_argument_group("how it is learned")
    how.add_argument(
        "--classifier", default="logistic", help=f"one of {', '.join(CLASSIFIERS)}; logistic scales columns"
    )
    how.add_argument(
        "--ratio",
        type=ratio_name,
        default="strong",
        help="strong: best; paper: the paper's log-linear ratio, which decides many times faster",
    )
    how.add_argument(
        "--unseen-share",
        type=float,
        metavar="SHARE",
        help="share of OOD inputs taken to be of kinds that the log does not hold (default: chosen, 0.02 to 0.2); 0.5 guards against new kinds most",
    )
    how.add_argument(
        "--calibration",
        type=_calibration,
        default="auto",
        metavar="HOW",
        help="auto: every labeled row trains, fits g and sets the threshold, in five folds (with --threshold guaranteed a part only sets the threshold; "
        "on dask the share 0.5); a share such as 0.5 is kept from the classifier; a number is one of folds",
    )
    how.add_argument(
        "--class-mix",
        default="auto",
        metavar="MIX",
        help="class mix of the known inputs in the traffic. auto: estimated, and served where a test says that it is not that of the labeled rows; "
        "labeled: that of the labeled rows; or known shares, such as cat=0.3,dog=0.7 or a table with the columns class and share",
    )
    how.add_argument(
        "--on-drift",
        choices=list(ON_DRIFT),
        default="warn",
        help="what is done where known inputs of the traffic seem to have moved, or cannot be told from OOD inputs. warn: say so; id_only: learn nothing from this traffic; raise: refuse it",
    )
    how.add_argument("--seed", type=_seed, default=0, help="seed of the random splits")
    add_engine_options(parser, sample=True)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Fit and save a model."""
    console = Console.of(args)
    check_output(args.output, [args.labeled, args.unlabeled, *([args.reviewed] if args.reviewed else [])])
    if same_file(args.labeled, args.unlabeled):
        raise InvalidInputError(
            f"{args.unlabeled} is given as labeled and as unlabeled: the unlabeled rows must be traffic of their own."
        )
    classifier = check_choice(args.classifier, "--classifier", CLASSIFIERS)
    ratio = clone(check_choice(args.ratio, "--ratio", RATIOS)).set_params(unseen_share=args.unseen_share)
    if on_dask(args):
        with open_cluster(args, console) as cluster:
            fitted = _fit_dask(args, classifier, ratio, cluster)
    else:
        fitted = _fit_memory(args, console, classifier, ratio)
    finish(args, console, fitted)


def _fit_memory(args: argparse.Namespace, console: Console, classifier: Any, ratio: Any) -> Fitted:
    """Fit a model on rows in memory."""
    labeled, unlabeled = (open_table(path, whole=True) for path in (args.labeled, args.unlabeled))
    _refuse_swapped(args, labeled, unlabeled)
    groups = groups_of(args.group, labeled, unlabeled)
    schema, own = choose_schema(args, labeled), None
    found: list[str] = []
    if schema.answer or schema.score:
        with _as_notes(found):
            schema, own, told = learn_answers(schema, labeled, groups[0], np.random.default_rng(args.seed))
        found.append(told)
    elif not schema.logits:
        schema, found = as_they_are(args, schema, labeled, unlabeled)
    known = labeled.read(schema.names)
    X = rows_of(schema, known)
    schema = measured(schema, X)
    schema.check(unlabeled.columns, unlabeled.path)
    seen = unlabeled.read(schema.names)
    traffic, y = rows_of(schema, seen), labels_of(schema, labeled, schema.target)
    if own is not None:  # the others have said how often answers are wrong
        X, y, groups[0] = X[own], y[own], None if groups[0] is None else groups[0][own]
    reviewed = _reviewed(args, schema, y)
    found += column_notes(known, seen, schema.features)
    columns = (labeled.columns, unlabeled.columns)
    del labeled, unlabeled, known, seen  # what is not an input need not lie in memory during the fit
    model = _model(args, classifier, ratio, y, schema)
    with console.working("fitting"), naming_classes(schema), _as_notes(found) as notes:
        try:
            model.fit(X, y, X_unlabeled=traffic, groups=groups[0], groups_unlabeled=groups[1], **reviewed)
        except InputsDriftedError as error:
            names = named_by(schema, model.schema_).numbers
            raise InvalidInputError(named(error.facts["drift"], names).sentence()) from error
    return Fitted(model.with_schema(named_by(schema, model.schema_)), columns, (len(y), len(traffic)), notes)


def _reviewed(args: argparse.Namespace, schema: Schema, y: NDArray[Any]) -> dict[str, Any]:
    """Return rows that people have looked at, and what they said."""
    if args.reviewed is None:
        return {}
    rows, verdicts = reviewed_rows(args.reviewed, args.verdict, schema, y)
    return {"X_reviewed": rows, "y_reviewed": verdicts}


def _fit_dask(args: argparse.Namespace, classifier: Any, ratio: Any, cluster: Any) -> Fitted:
    """Fit a model on a cluster."""
    if args.group:
        raise InvalidInputError("--group needs rows in memory: leave it out, or leave out --engine dask.")
    if args.answer or args.risk_column or args.confidence_column:
        raise InvalidInputError(
            "--answer and scores of answers need rows in memory: leave out --engine dask, or give --probabilities."
        )
    tables = FrameTable(args.labeled, cluster), FrameTable(args.unlabeled, cluster)
    _refuse_swapped(args, *tables)
    schema = choose_schema(args, tables[0], numbers=True)
    y = labels_of(schema, tables[0], schema.target)
    model = _model(args, classifier, ratio, y, schema)
    texts = [
        name
        for name, column in tables[0].columns.items()
        if column.kind == "text" and name not in (args.target, args.row_id)
    ]
    about = (
        [f"columns of texts ({listed(texts)}) are used by fits in memory alone: leave out --engine dask."]
        if texts
        else []
    )
    with naming_classes(schema), _as_notes(about) as notes:
        model, n_traffic = fit_on_dask(args, model, schema, tables, y, cluster, lambda known: _reviewed(args, known, y))
    return Fitted(model, (tables[0].columns, tables[1].columns), (len(y), n_traffic), notes)


@contextmanager
def _as_notes(notes: list[str]) -> Iterator[list[str]]:
    """Collect what the library warns of, in the words of the shell, after these notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PoscodWarning)
        yield notes
    told = [warned.message for warned in caught if isinstance(warned.message, PoscodWarning)]
    # That the model is adapted is no note, nor is drift: the story says it, with the documents of class mix and drift.
    said = [
        isinstance(text, InputsDriftedWarning) or (isinstance(text, ClassMixWarning) and "moved" in text.facts)
        for text in told
    ]
    notes += [text.told(NAMES) for text, known in zip(told, said, strict=True) if not known]


def _model(args: argparse.Namespace, classifier: Any, ratio: Any, y: NDArray[Any], schema: Schema) -> POSCOD:
    """Return the model that the options ask for."""
    classes = list(schema.classes) or np.unique(y).tolist()
    columns = list(schema.classes) or list(range(schema.n_logits)) or classes
    if schema.elsewhere and args.classifier != "logistic":
        raise InvalidInputError(
            "--classifier trains a classifier, and --logits, --probabilities, --answer or a score of answers bring one: choose one."
        )
    asked = ScodProblem(args.alpha, args.tpr_min, loss_of(args.loss, classes))
    problem = bounded(args, asked)
    costs = {name: getattr(asked, name) for name in ("alpha", "tpr_min", "loss")} if problem is asked else {}
    return POSCOD(
        classifier,
        ratio,
        **costs,
        problem=None if problem is asked else problem,
        threshold=args.threshold,
        tpr_over=args.tpr_over,
        delta=args.delta,
        calibration=args.calibration,
        class_mix=mix_of(args.class_mix, columns),
        on_drift=args.on_drift,
        reject_label=reject_label_of(args.reject_label, classes),
        random_state=args.seed,
    )


def _seed(text: str) -> int:
    if not text.isdigit() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {2**32 - 1}, got {text!r}")
    return int(text)


def _calibration(text: str) -> float | int | str:
    try:
        return text if text == "auto" else int(text) if text.isdigit() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be auto, a share or a number of folds, got {text!r}") from None


def _refuse_swapped(args: argparse.Namespace, labeled: Table, unlabeled: Table) -> None:
    """Refuse tables in the wrong order."""
    if args.target not in labeled.columns and args.target in unlabeled.columns:
        raise InvalidInputError(
            f"{args.labeled} has no column '{args.target}', and {args.unlabeled} has it: the labeled table comes first."
        )
