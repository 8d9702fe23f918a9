# SPDX-License-Identifier: BSD-3-Clause
"""Serve a model over HTTP: decisions, metrics, a dashboard.

One process answers on one port until SIGTERM. It listens on this machine only, unless --host says otherwise. Bearer tokens
come from --token-file or from the environment variable POSCOD_TOKEN, never from the command line.

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

from poscod.exceptions import InvalidInputError
from poscod.model import UntrustedTypesError
from poscod.serve import DEFAULT_LOG, Settings, read_tokens
from poscod.serve import run as serve

LOG_VARIABLE = "POSCOD_LOG"
# Where an option is not called as its field, or is more than a value of its type.
_NAMES = {"trusted": "--trust", "open_metrics": "--protect-metrics", "state_file": "--state"}
_MORE: dict[str, dict[str, Any]] = {
    "trusted": {"action": "append", "default": [], "metavar": "TYPE"},
    "open_metrics": {"action": "store_false", "help": "ask for the token at /metrics, too"},
    "log": {
        "nargs": "?",
        "const": DEFAULT_LOG,
        "metavar": "WHERE",
        "help": f"folder for Parquet files, or a database URL; without a value {DEFAULT_LOG}; the environment variable "
        f"{LOG_VARIABLE} says the same without showing a password (default: no log)",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``poscod serve``."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="file written by `poscod fit` or POSCOD.save")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one (default: 8000)")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with one bearer token per line")
    parser.add_argument("--quiet", action="store_true", help="no line per request on standard error")
    texts, kinds = _texts(), get_type_hints(Settings)
    for item in fields(Settings):
        if item.name == "tokens":  # on a command line everybody on the machine would see them
            continue
        text = texts.get(item.name, "")
        words: dict[str, Any] = {"dest": item.name, "default": item.default, "help": text, **_MORE.get(item.name, {})}
        if kinds[item.name] in (int, float, str):
            words |= {"type": kinds[item.name], "help": f"{text} (default: %(default)s)"}
            words["metavar"] = {int: "N", float: "X", str: "TEXT"}[kinds[item.name]]
        elif kinds[item.name] == Path | None:
            words |= {"type": Path, "metavar": "FILE"}
        parser.add_argument(_NAMES.get(item.name, "--" + item.name.replace("_", "-")), **words)


def _texts() -> dict[str, str]:
    """Return what the docstring of `Settings` says about each field, as help is written."""
    entries = re.findall(r"^(\w+) : .*\n((?: {4}.*\n)+)", inspect.getdoc(Settings) or "", re.M)
    lines = {name: " ".join(text.split()).rstrip(".").replace("%", "%%") for name, text in entries}
    return {name: line[0].lower() + line[1:] for name, line in lines.items()}


def run(args: argparse.Namespace) -> None:
    """Serve until a signal comes."""
    if not 0 <= args.port <= 65535:
        raise InvalidInputError(f"--port must be a whole number from 0 to 65535, got {args.port}.")
    values = {item.name: getattr(args, item.name) for item in fields(Settings) if item.name != "tokens"}
    values |= {"trusted": tuple(args.trusted), "log": args.log or os.environ.get(LOG_VARIABLE) or None}
    settings = Settings(**values, tokens=read_tokens(args.token_file))

    def ready(address: str) -> None:
        sys.stdout.write(f"serving {args.model} on {address}\n")
        sys.stdout.flush()

    try:
        serve(args.model, settings, host=args.host, port=args.port, access_log=not args.quiet, ready=ready)
    except UntrustedTypesError as error:
        options = " ".join(f"--trust {name}" for name in error.types)
        raise InvalidInputError(
            f"{args.model} holds types that are not trusted by default: if you trust where the file comes from, add {options}"
        ) from None
