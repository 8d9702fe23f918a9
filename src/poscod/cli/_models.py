"""Model files for commands: reading them with the words of the command line, and what they promise in sentences.

Convention: a type that is not trusted by default is named with the option that trusts it.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
from typing import Any

from poscod.cli._console import percent
from poscod.estimator import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.persist import UntrustedTypesError
from poscod.problem import ScodProblem


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the model file and ``--trust``.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    """
    parser.add_argument("model", help="model file written by `poscod fit`")
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="TYPE",
        help="type of another library to accept in the model file (forests and the like need it); may be repeated",
    )


def load_model(args: argparse.Namespace) -> POSCOD:
    """Return the model that a command was given.

    Parameters
    ----------
    args : argparse.Namespace
        With ``model`` and ``trust``.

    Returns
    -------
    model : POSCOD
    """
    try:
        return POSCOD.load(args.model, trusted=args.trust)
    except UntrustedTypesError as error:
        options = " ".join(f"--trust {name}" for name in error.types)
        raise InvalidInputError(
            f"{args.model} holds types that are not trusted by default: if you trust where the file comes from, add {options}"
        ) from None


def promise(model: Any) -> str:
    """Say in a sentence what the threshold of a model promises.

    Parameters
    ----------
    model : POSCOD

    Returns
    -------
    sentence : str
    """
    problem = model.problem_
    if not isinstance(problem, ScodProblem):
        return f"Threshold chosen for {type(problem).__name__}."
    if model.threshold == "guaranteed":
        return (
            f"Promise: at least {percent(problem.tpr_min)} of ID inputs are accepted, with probability {percent(1 - model.delta)} over the "
            "draw of the labelled rows."
        )
    n = len(model.calibration_.codes)
    return (
        f"Promise: about {percent(problem.tpr_min)} of ID inputs are accepted (threshold set on {n:,} held-out rows; --threshold "
        "guaranteed makes it a guarantee)."
    )
