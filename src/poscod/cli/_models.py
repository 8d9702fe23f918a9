# SPDX-License-Identifier: BSD-3-Clause
"""Model files for commands: reading them with the words of the command line.

Convention: a type that is not trusted by default is named with the option that trusts it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from poscod.cli._tables import FORMATS
from poscod.exceptions import InvalidInputError
from poscod.model import POSCOD, ModelFileError, UntrustedTypesError


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


def trust_options(types: Iterable[str]) -> str:
    """Return the options that trust these types."""
    return " ".join(f"--trust {name}" for name in types)


def load_model(args: argparse.Namespace) -> POSCOD:
    """Return the model that a command was given."""
    try:
        model = POSCOD.load(args.model, trusted=args.trust)
    except UntrustedTypesError as error:
        raise InvalidInputError(
            f"{args.model} holds types that are not trusted by default: if you trust where the file comes from, add "
            f"{trust_options(error.types)}"
        ) from None
    except ModelFileError:
        if Path(args.model).suffix.lower() in FORMATS:
            raise InvalidInputError(f"{args.model} is a table, not a model: the model file comes first.") from None
        raise
    if not hasattr(model, "rule_"):
        raise InvalidInputError(f"{args.model} holds a model that was never fitted: make one with `poscod fit`.")
    return model
