# SPDX-License-Identifier: BSD-3-Clause
"""Print a script that completes commands, options and file names in your shell.

Convention: the script is made by shtab from the parser itself, so that it knows every command there is.
"""

from __future__ import annotations

import argparse
import sys

from poscod._optional import require

SHELLS = ("bash", "zsh", "tcsh")
EXAMPLES = (
    "poscod completion bash > ~/.local/share/bash-completion/completions/poscod",
    "poscod completion zsh > ~/.zfunc/_poscod",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


def run(args: argparse.Namespace) -> None:
    """Print the completion script."""
    from poscod.cli._main import build_parser

    shtab = require("shtab", extra="cli", feature="Shell completion")
    sys.stdout.write(shtab.complete(build_parser(), shell=args.shell) + "\n")
