# SPDX-License-Identifier: BSD-3-Clause
"""Model files for commands: reading them with the words of the command line, and what they promise in sentences.

Convention: a type that is not trusted by default is named with the option that trusts it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from poscod._comparison import own_rule, promised_on, promised_tpr
from poscod.cli._console import percent
from poscod.cli._tables import FORMATS
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.persist import ModelFileError, UntrustedTypesError


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the model file and ``--trust``."""
    parser.add_argument("model", help="model file written by `poscod fit`")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="TYPE",
        help="type of another library to accept in the model file (forests and the like need it); may be repeated",
    )


def load_model(args: argparse.Namespace) -> POSCOD:
    """Return the model that a command was given."""
    try:
        return POSCOD.load(args.model, trusted=args.trust)
    except UntrustedTypesError as error:
        options = " ".join(f"--trust {name}" for name in error.types)
        raise InvalidInputError(
            f"{args.model} holds types that are not trusted by default: if you trust where the file comes from, add {options}"
        ) from None
    except ModelFileError:
        if Path(args.model).suffix.lower() in FORMATS:
            raise InvalidInputError(f"{args.model} is a table, not a model: the model file comes first.") from None
        raise


def rule_words(model: Any) -> str:
    """Say in a sentence where a model accepts."""
    asked = "" if promised_tpr(model, model._arrays(model.problem_)) is None else f", tpr_min = {model.tpr_min:g}"
    return f"accept where r + {model.beta_:.4g} g <= {model.threshold_:.4g} (alpha = {model._alpha():g}{asked})."


def promise(model: Any) -> str:
    """Say in a sentence what the threshold of a model promises."""
    arrays = model._arrays(model.problem_)
    n, tpr_min = len(arrays.risk), promised_tpr(model, arrays)
    if tpr_min is None:
        accepted = float(np.average(own_rule(model).score(arrays) <= model.threshold_, weights=arrays.weight))
        return (
            f"No share of ID inputs is promised: the threshold was chosen for something else. It accepts {percent(accepted)} of the "
            f"{n:,} held-out rows."
        )
    if model.threshold == "guaranteed":
        return (
            f"Promise: at least {percent(tpr_min)} of ID inputs are accepted, with probability {percent(1 - model.delta)} over the "
            "draw of the labelled rows."
        )
    return (
        f"Promise: about {percent(tpr_min)} of ID inputs are accepted (threshold set on {promised_on(model) or n:,} held-out rows; --threshold "
        "guaranteed makes it a guarantee)."
    )
