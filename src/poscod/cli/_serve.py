# SPDX-License-Identifier: BSD-3-Clause
"""Serve a model over HTTP: decisions, metrics, a dashboard.

One process answers on one port until SIGTERM. It listens on this machine only, unless --host says otherwise. Bearer tokens
come from --token-file or from the environment variable POSCOD_TOKEN, never from the command line. POSCOD_LOG says the same as --log without showing a
password; --log without a value is --log sqlite:///decisions.db.

Convention: the options are the fields of `poscod.serve.Settings`: name, type and default are the field's, the help is what the docstring
of the class says about it.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from poscod.cli._models import add_model_options, trust_options
from poscod.exceptions import InvalidInputError, PoscodError
from poscod.model import UntrustedTypesError
from poscod.serve import DEFAULT_LOG, Settings, read_tokens
from poscod.serve import run as serve

LOG_VARIABLE = "POSCOD_LOG"
_ELSEWHERE = (
    "trusted",
    "tokens",
)  # --trust is an option of many commands; tokens on a command line would be seen by everybody
_NAMES = {"open_metrics": "--protect-metrics", "state_file": "--state"}
_OPTIONS = {
    item.name: _NAMES.get(item.name, f"--{item.name.replace('_', '-')}")
    for item in fields(Settings)
    if item.name not in _ELSEWHERE
}
# Options that are more than a value of their type.
_MORE: dict[str, dict[str, Any]] = {
    "open_metrics": {"action": "store_false", "help": "ask for the token at /metrics, too"},
    "state_file": {"type": Path, "metavar": "FILE"},
    "log": {"nargs": "?", "const": DEFAULT_LOG, "metavar": "WHERE"},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``poscod serve``."""
    add_model_options(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one (default: 8000)")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with one bearer token per line")
    parser.add_argument("--quiet", action="store_true", help="no line per request on standard error")
    texts, kinds = _texts(), get_type_hints(Settings)
    for name, option in _OPTIONS.items():
        kind, text, default = kinds[name], texts.get(name, ""), getattr(Settings, name)
        words: dict[str, Any] = {"dest": name, "default": default, "help": text, **_MORE.get(name, {})}
        if kind in (int, float, str):
            metavar = {int: "N", float: "X", str: "TEXT"}[kind]
            words |= {"type": kind, "metavar": metavar, "help": f"{text} (default: %(default)s)"}
        parser.add_argument(option, **words)


def _texts() -> dict[str, str]:
    """Return what the docstring of `Settings` says about each field, as help is written."""
    entries = re.findall(r"^(\w+) : .*\n((?: {4}.*\n)+)", inspect.getdoc(Settings) or "", re.M)
    lines = {name: " ".join(text.split()).rstrip(".").replace("%", "%%") for name, text in entries}
    return {name: line[0].lower() + line[1:] for name, line in lines.items()}


def run(args: argparse.Namespace) -> None:
    """Serve until a signal comes."""
    if not 0 <= args.port <= 65535:
        raise InvalidInputError(f"--port must be a whole number from 0 to 65535, got {args.port}.")
    values = {name: getattr(args, name) for name in _OPTIONS}
    values["log"] = args.log or os.environ.get(LOG_VARIABLE) or None

    def ready(address: str) -> None:
        sys.stdout.write(f"serving {args.model} on {address}\n")
        sys.stdout.flush()

    try:
        settings = Settings(**values, trusted=tuple(args.trust), tokens=read_tokens(args.token_file))
        serve(args.model, settings, host=args.host, port=args.port, access_log=not args.quiet, ready=ready)
    except UntrustedTypesError as error:
        raise InvalidInputError(
            f"{args.model} holds types that are not trusted by default: if you trust where the file comes from, add "
            f"{trust_options(error.types)}"
        ) from None
    except PoscodError as error:
        raise InvalidInputError(error.told(_OPTIONS)) from error
