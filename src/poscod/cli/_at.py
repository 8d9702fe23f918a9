# SPDX-License-Identifier: BSD-3-Clause
"""Move a model to other costs: another threshold for the same r and g, in a moment, without the data.

--alpha, --tpr-min and --loss change what is asked; what is left out stays. --budget or --max-error then choose the threshold for
something else than a share of ID inputs: how much of the traffic may be rejected, or how often an answer may be wrong.

Convention: nothing is fitted again; the rows are those that `poscod fit` kept in the model file.
"""

from __future__ import annotations

import argparse

from poscod.cli._choices import add_bound_options, bounded, loss_of
from poscod.cli._console import Console, add_output_options
from poscod.cli._inputs import naming_classes
from poscod.cli._models import add_model_options, load_model
from poscod.cli._rules import estimates_story
from poscod.cli._tables import check_output
from poscod.exceptions import InvalidInputError
from poscod.model import choices_document, drift_document, mix_document

EXAMPLES = (
    "poscod at model.poscod --alpha 0.2 -o lenient.poscod",
    "poscod at model.poscod --budget 0.02 -o two_percent.poscod",
    "poscod at model.poscod --max-error 0.01 --delta 0.1 -o careful.poscod",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="model file to write, e.g. other.poscod")
    what = parser.add_argument_group("what is asked (default: as it is)")
    what.add_argument("--alpha", type=float, help="relative cost of accepting an OOD input, 0 to 1")
    what.add_argument("--tpr-min", type=float, help="share of ID inputs that must be accepted")
    what.add_argument("--loss", help="as in `poscod fit`")
    add_bound_options(what)
    what.add_argument("--delta", type=float, help="with --max-error: probability that it is exceeded (default: 0.05)")
    what.add_argument(
        "--rules",
        type=int,
        metavar="K",
        help="rules that you compare on the traffic before you take one: a guarantee then holds for all of them (default: as before)",
    )
    add_output_options(parser)


def run(args: argparse.Namespace) -> None:
    """Move a model."""
    console = Console.of(args)
    check_output(args.output, [args.model])
    costs = {name: getattr(args, name) for name in ("alpha", "tpr_min", "loss") if getattr(args, name) is not None}
    if not costs and args.budget is None and args.max_error is None:
        raise InvalidInputError(
            "nothing is asked for: give --alpha, --tpr-min, --loss, --budget or --max-error, e.g. --alpha 0.2."
        )
    if args.delta is not None and args.max_error is None:
        raise InvalidInputError("--delta belongs to --max-error: give both, or neither.")
    old = new = load_model(args)
    if "loss" in costs:
        costs["loss"] = loss_of(args.loss, old.schema_.classes or old.scorer_.classes.tolist())
    if costs:
        with naming_classes(old.schema_):
            new = new.at(**costs, rules=args.rules)
    if args.budget is not None or args.max_error is not None:
        problem = new.rule_.problem
        new = new.with_rule(bounded(args, getattr(problem, "ranking", problem)), rules=args.rules)
    expected = choices_document(new)
    new.save(args.output)
    console.answer(
        {
            "command": "at",
            "model": str(args.model),
            "output": str(args.output),
            "old_rule": old.rule_.to_dict(),
            "rule": new.rule_.to_dict(),
            "class_mix": mix_document(new),
            "drift": drift_document(new),
            "estimates": expected,
        },
        f"Old rule: {old.rule_}",
        f"New rule: {new.rule_}",
        "",
        *estimates_story(expected),
        "",
        *(f"Note: {text}" for text in expected["doubts"]),
        f"Saved: {args.output}",
    )
