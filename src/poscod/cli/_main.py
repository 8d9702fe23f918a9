"""From the words on the command line to a command, and from an error to one sentence.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from poscod.exceptions import PoscodError

COMMANDS: dict[str, str] = {}
"""Name of each command and what it does; the one list that help, completion, tests and docs read."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line.

    Returns
    -------
    parser : argparse.ArgumentParser
    """
    parser = argparse.ArgumentParser(
        prog="poscod", description="Classifiers that know when not to answer.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"poscod {sys.modules['poscod'].__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        module = importlib.import_module(f"poscod.cli._{name}")
        command = commands.add_parser(name, help=text, description=module.__doc__, allow_abbrev=False)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default=None
        The words after ``poscod``; None means those of the process.

    Returns
    -------
    code : int
        0 done, 2 bad input, 1 a fault of ours, 130 interrupted.
    """
    args = build_parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            args.run(args)
        except BrokenPipeError:  # the reader of our output, such as `head`, has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (PoscodError, OSError) as error:
            return _fail(args, str(error), 2)
        except KeyboardInterrupt:
            return _fail(args, "interrupted; nothing was written.", 130)
        except Exception as error:
            return _fail(args, f"{type(error).__name__}: {error} (a fault of poscod; --debug shows where)", 1)
    return 0


def _fail(args: argparse.Namespace, sentence: str, code: int) -> int:
    if args.debug:
        traceback.print_exc()
    sys.stderr.write(f"poscod: error: {' '.join(sentence.split())}\n")
    return code


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"poscod: warning: {' '.join(str(message).split())}\n")
