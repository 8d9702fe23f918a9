# SPDX-License-Identifier: BSD-3-Clause
"""Learn when not to answer, from labelled rows and from unlabelled traffic, and save the model.

LABELLED holds rows of the known classes with a column that names the class. UNLABELLED holds inputs as they arrive in use:
nobody needs to say which of them are unknown. Tables are CSV, Parquet, Arrow, NPY or NPZ files.

Convention: columns are chosen by `poscod.cli._inputs`; everything else is an argument of `poscod.POSCOD`.
"""

from __future__ import annotations

import argparse
import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import check_choice
from poscod.cli._choices import CLASSIFIERS, RATIOS, loss_of, reject_label_of
from poscod.cli._columns import Block, Table, listed
from poscod.cli._console import Console, add_output_options, percent
from poscod.cli._engine import FrameTable, add_engine_options, fit_on_dask, on_dask, open_cluster
from poscod.cli._inputs import Inputs, add_input_options
from poscod.cli._models import promise, rule_words
from poscod.cli._notes import Sampled, column_notes, list_notes, sample_columns, share_notes, trust_notes
from poscod.cli._tables import check_output, open_table
from poscod.cli._words import in_shell_words
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError, PoscodWarning

EXAMPLES = (
    "poscod fit labelled.parquet unlabelled.parquet --target label -o model.poscod",
    "poscod fit known.csv log.csv --target class --features 'f_*' --alpha 0.3 --tpr-min 0.9 -o model.poscod",
    "poscod fit held_out.npz log.npz --target label --logits logits --embedding features -o model.poscod",
    "poscod fit labelled/ traffic/ --target label --logits logits --embedding features --ratio linear --engine dask -o model.poscod",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("labelled", help="table of labelled rows")
    parser.add_argument("unlabelled", help="table of unlabelled traffic")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="model file to write, e.g. model.poscod")
    add_input_options(parser)
    what = parser.add_argument_group("what is asked")
    what.add_argument(
        "--alpha", type=float, default=0.5, help="relative cost of accepting an OOD input, 0 to 1 (default: 0.5)"
    )
    what.add_argument(
        "--tpr-min", type=float, default=0.95, help="share of ID inputs that must be accepted (default: 0.95)"
    )
    what.add_argument(
        "--loss",
        default="zero_one",
        metavar="LOSS",
        help="zero_one, absolute (ordered classes), or a CSV file with one named column and one row per class: row = truth, "
        "column = answer (default: zero_one)",
    )
    what.add_argument(
        "--threshold",
        default="empirical",
        help="empirical: tpr-min on average; guaranteed: at least tpr-min with probability 1 - delta (default: empirical)",
    )
    what.add_argument("--delta", type=float, default=0.05, help="error probability of a guarantee (default: 0.05)")
    what.add_argument(
        "--reject-label",
        metavar="LABEL",
        help="prediction of a rejected row (default: -1, or 'rejected' where classes are texts)",
    )
    how = parser.add_argument_group("how it is learned")
    how.add_argument(
        "--classifier",
        default="logistic",
        help=f"one of {', '.join(CLASSIFIERS)} (default: logistic, on scaled columns)",
    )
    how.add_argument(
        "--ratio",
        default="strong",
        help="strong: best; linear: the paper's log-linear ratio, which decides many times faster (default: strong)",
    )
    how.add_argument(
        "--calibration",
        type=_number,
        default=0.5,
        metavar="SHARE",
        help="share of labelled rows kept from the classifier, or a number of folds (default: 0.5)",
    )
    how.add_argument("--seed", type=_seed, default=0, help="seed of the random splits (default: 0)")
    add_engine_options(parser, sample=True)
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Fit and save a model."""
    console = Console.of(args)
    check_output(args.output, [args.labelled, args.unlabelled])
    if (
        Path(args.labelled).exists()
        and Path(args.unlabelled).exists()
        and Path(args.labelled).samefile(args.unlabelled)
    ):
        raise InvalidInputError(
            f"{args.unlabelled} is given as labelled and as unlabelled: the unlabelled rows must be traffic of their own."
        )
    classifier = check_choice(args.classifier, "--classifier", CLASSIFIERS)()
    ratio = check_choice(args.ratio, "--ratio", RATIOS)()
    if on_dask(args):
        with open_cluster(args, console) as cluster:
            return _run_dask(args, console, classifier, ratio, cluster)
    labelled, unlabelled = open_table(args.labelled), open_table(args.unlabelled)
    _refuse_swapped(args, labelled, unlabelled)
    inputs = Inputs.choose(args, labelled)
    X, known = _read(labelled, inputs)
    inputs = inputs.measured(X)
    traffic, seen = _read(unlabelled, inputs)
    y = inputs.labels(labelled)
    model = _model(args, classifier, ratio, y, inputs)
    with console.working("fitting"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PoscodWarning)
        model.fit(X, y, X_unlabeled=traffic)
    notes = column_notes(known, seen)
    return _finish(args, console, model, inputs, (labelled, unlabelled), (len(y), len(traffic)), caught, notes)


def _read(table: Table, inputs: Inputs) -> tuple[Any, dict[str, Sampled]]:
    """Return the input of a model for all rows of a table, and some values of its columns."""
    inputs.check(table)
    block = table.read(inputs.names)
    _refuse_gaps(block, inputs)
    return inputs.rows(block), sample_columns(block, inputs.features)


def _refuse_gaps(block: Block, inputs: Inputs) -> None:
    """Refuse features with gaps, counting them and naming the option that leaves them out."""
    for name in inputs.features:
        values = block[name]
        if values.ndim == 1 and values.dtype.kind == "f" and (gaps := np.flatnonzero(np.isnan(values))).size:
            what = f"{gaps.size:,} gaps (first" if gaps.size > 1 else "one gap (it is"
            raise InvalidInputError(
                f"column '{name}' of {block.source} has {what} at row {gaps[0] + 1}): fill {'them' if gaps.size > 1 else 'it'} in all "
                f"tables, or leave the column out with --exclude {shlex.quote(name)}."
            )


def _run_dask(args: argparse.Namespace, console: Console, classifier: Any, ratio: Any, cluster: Any) -> None:
    """Fit and save a model on a cluster."""
    labelled, unlabelled = FrameTable(args.labelled, cluster), FrameTable(args.unlabelled, cluster)
    _refuse_swapped(args, labelled, unlabelled)
    inputs = Inputs.choose(args, labelled)
    y = inputs.labels(labelled)
    model = _model(args, classifier, ratio, y, inputs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PoscodWarning)
        model, inputs, n_traffic = fit_on_dask(args, model, inputs, (labelled, unlabelled), y, cluster)
    _finish(args, console, model, inputs, (labelled, unlabelled), (len(y), n_traffic), caught)


def _model(args: argparse.Namespace, classifier: Any, ratio: Any, y: NDArray[Any], inputs: Inputs) -> POSCOD:
    """Return the model that the options ask for."""
    classes = _classes(y, inputs)
    if inputs.logits and args.classifier != "logistic":
        raise InvalidInputError(
            "--classifier trains a classifier, and --logits or --probabilities bring one: choose one."
        )
    return POSCOD(
        classifier,
        ratio,
        alpha=args.alpha,
        tpr_min=args.tpr_min,
        loss=loss_of(args.loss, classes),
        threshold=args.threshold,
        delta=args.delta,
        calibration=args.calibration,
        reject_label=reject_label_of(args.reject_label, classes),
        random_state=args.seed,
    )


def _finish(
    args: argparse.Namespace,
    console: Console,
    model: POSCOD,
    inputs: Inputs,
    tables: tuple[Table, Table],
    n: tuple[int, int],
    caught: Any,
    notes: Sequence[str] = (),
) -> None:
    """Save the model and tell what was learned."""
    model.columns_ = inputs.record()
    warned = [in_shell_words(str(w.message)) for w in caught if issubclass(w.category, PoscodWarning)]
    found = [*list_notes(inputs, *tables), *notes, *warned, *share_notes(model, _classes(model.classes_, inputs), n[0])]
    labelled, unlabelled = tables
    document = _document(model, inputs, n, args) | {
        "ignored": inputs.ignored(labelled),
        "ignored_unlabelled": [name for name in inputs.ignored(unlabelled) if name not in labelled.columns],
    }
    model.save(args.output)
    if args.classifier != "logistic":  # the default is trusted wherever it is read
        found += trust_notes(args.output)
    console.answer({**document, "warnings": found}, *_story(model, inputs, document, found))


def _seed(text: str) -> int:
    if not text.isdigit() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {2**32 - 1}, got {text!r}")
    return int(text)


def _number(text: str) -> float | int:
    return int(text) if text.isdigit() else float(text)


def _refuse_swapped(args: argparse.Namespace, labelled: Table, unlabelled: Table) -> None:
    """Refuse tables in the wrong order."""
    if args.target not in labelled.columns and args.target in unlabelled.columns:
        raise InvalidInputError(
            f"{args.labelled} has no column '{args.target}', and {args.unlabelled} has it: the labelled table comes first."
        )


def _classes(y: NDArray[Any], inputs: Inputs) -> list[Any]:
    """Return the classes as people know them, in the model's order."""
    if inputs.classes:
        return list(inputs.classes)
    return np.unique(y).tolist()


def _document(model: POSCOD, inputs: Inputs, n: tuple[int, int], args: argparse.Namespace) -> dict[str, Any]:
    low, high = (0.0, 1.0) if model.ratio_ is None else model.ratio_.ood_prior_interval(0.95)
    return {
        "command": "fit",
        "model": str(args.output),
        "labelled": {"file": str(args.labelled), "rows": n[0]},
        "unlabelled": {"file": str(args.unlabelled), "rows": n[1]},
        "features": list(inputs.features),
        "logits": list(inputs.logits),
        "classes": _classes(model.classes_, inputs),
        "ood_share": {"estimate": model.ood_prior_, "low": low, "high": high, "level": 0.95},
        "alpha": model.alpha,
        "tpr_min": model.tpr_min,
        "beta": model.beta_,
        "threshold": model.threshold_,
        "calibration_rows": len(model.calibration_.codes),
        "promise": promise(model),
        "reject_label": model.reject_label,
    }


def _share_words(model: POSCOD, share: dict[str, Any]) -> str:
    """Say the estimated share, or that none was shown."""
    if not getattr(model.ratio_, "gate_open_", True):
        return f"not shown ({percent(share['estimate'])})"
    return f"{percent(share['estimate'])} (95 % interval {percent(share['low'])} to {percent(share['high'])})"


def _story(model: POSCOD, inputs: Inputs, document: dict[str, Any], found: list[str]) -> list[str]:
    ignored = f" Not used: {listed(document['ignored'])}." if document["ignored"] else ""
    if document["ignored_unlabelled"]:
        ignored += f" Only in {document['unlabelled']['file']}, not used: {listed(document['ignored_unlabelled'])}."
    return [
        f"Read {document['labelled']['rows']:,} labelled rows of {len(document['classes'])} classes and "
        f"{document['unlabelled']['rows']:,} unlabelled rows; {inputs.words}.{ignored}",
        f"Estimated share of OOD inputs among the unlabelled rows: {_share_words(model, document['ood_share'])}.",
        f"Rule: {rule_words(model)}",
        document["promise"],
        *(f"Note: {text}" for text in found),
        f"Saved: {document['model']}",
    ]
