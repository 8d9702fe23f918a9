# SPDX-License-Identifier: BSD-3-Clause
"""Move a model to other costs: another threshold for the same r and g, in a moment, without the data.

--alpha, --tpr-min and --loss change what is asked; what is left out stays. --budget or --max-error then choose the threshold for
something else than a share of ID inputs: how much of the traffic may be rejected, or how often an answer may be wrong.

Convention: nothing is fitted again; the rows are those that `poscod fit` kept in the model file.
"""

from __future__ import annotations

import argparse
from typing import Any

from poscod._validation import check_number
from poscod.cli._choices import loss_of
from poscod.cli._console import Console, add_output_options, percent
from poscod.cli._models import add_model_options, load_model, promise, rule_words
from poscod.cli._tables import check_output
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError

EXAMPLES = (
    "poscod at model.poscod --alpha 0.2 -o lenient.poscod",
    "poscod at model.poscod --budget 0.02 -o two_percent.poscod",
    "poscod at model.poscod --max-error 0.01 --delta 0.1 -o careful.poscod",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_options(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="model file to write, e.g. other.poscod")
    what = parser.add_argument_group("what is asked")
    what.add_argument("--alpha", type=float, help="relative cost of accepting an OOD input, 0 to 1 (default: as it is)")
    what.add_argument("--tpr-min", type=float, help="share of ID inputs that must be accepted (default: as it is)")
    what.add_argument("--loss", metavar="LOSS", help="as in `poscod fit` (default: as it is)")
    other = what.add_mutually_exclusive_group()
    other.add_argument("--budget", type=float, metavar="SHARE", help="share of the traffic to reject, e.g. 0.02")
    other.add_argument(
        "--max-error", type=float, metavar="E", help="largest error (mean loss) of accepted ID inputs, e.g. 0.01"
    )
    what.add_argument("--delta", type=float, help="with --max-error: probability that it is exceeded (default: 0.05)")
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
    old = load_model(args)
    if "loss" in costs:
        record: Any = getattr(old, "columns_", None) or {}
        costs["loss"] = loss_of(args.loss, record.get("classes") or old.classes_.tolist())
    new, said = _moved(old.at(**costs) if costs else old, args)
    new.save(args.output)
    console.answer(
        {
            "command": "at",
            "model": str(args.model),
            "output": str(args.output),
            "old": _rule(old, []),
            "new": _rule(new, said),
        },
        f"Old rule: {rule_words(old)}",
        promise(old),
        f"New rule: {rule_words(new)}",
        *said,
        promise(new),
        f"Saved: {args.output}",
    )


def _moved(model: POSCOD, args: argparse.Namespace) -> tuple[POSCOD, list[str]]:
    """Return the model with the threshold asked for, and what that threshold does."""
    if args.budget is not None:
        share = check_number(args.budget, "--budget", 0.0, 1.0, closed="left")
        return model.budget(share), [f"Budget: {percent(share)} of the traffic seen at fit is rejected."]
    if args.max_error is None:
        return model, []
    delta = check_number(0.05 if args.delta is None else args.delta, "--delta", 0.0, 1.0, closed="neither")
    if isinstance(model.calibration, int):
        raise InvalidInputError(
            f"--max-error needs rows that nothing was fitted on, and {args.model} was fitted with folds: fit with a share, e.g. "
            "--calibration 0.5."
        )
    errors = set(model._loss_values()) <= {0.0, 1.0}
    bound = f"at most {percent(args.max_error)} of" if errors else f"a mean loss of at most {args.max_error:g} on"
    said = f"Promise: {bound} accepted ID inputs{' are answered wrongly' * errors}, with probability {percent(1.0 - delta)}."
    return model.control_risk(args.max_error, delta=delta), [said]


def _rule(model: POSCOD, said: list[str]) -> dict[str, Any]:
    return {
        "alpha": model._alpha(),
        "tpr_min": model.tpr_min,
        "beta": model.beta_,
        "threshold": model.threshold_,
        "promise": " ".join([*said, promise(model)]),
    }
