# SPDX-License-Identifier: BSD-3-Clause
"""From the words on the command line to a command, and from an error to one sentence.

Convention: whatever goes wrong with the input ends in one line on standard error, ``poscod: error: ...``, and exit code 2.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import textwrap
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from poscod._validation import nearest
from poscod.cli._console import visible
from poscod.cli._names import NAMES
from poscod.exceptions import InfeasibleProblemError, PoscodError, PoscodWarning

COMMANDS: dict[str, str] = {
    "demo": "see the method work on real digits, in under a minute",
    "fit": "learn when not to answer, from labeled rows and unlabeled traffic",
    "predict": "answer or abstain on new rows",
    "at": "move a model to other costs, a budget or a bound of the error, without the data",
    "evaluate": "measure a model on fresh rows, beside MSP (r alone) and SIRC",
    "review": "choose rows of a log for people to look at",
    "strangers": "list the OOD inputs of a log with a promise, and say what they are",
    "report": "write a page for people: what is rejected, why, and what other costs would mean",
    "extract": "run a network and keep its features and logits",
    "export": "write a model as an ONNX graph that any runtime can serve",
    "serve": "answer over HTTP, with metrics, a decision log and a dashboard",
    "monitor": "watch the OOD share of a log over time, and whether the rule still does what it did",
    "bench": "the paper's experiments: run, tables, ablations, comparison",
}
"""Name of each command and what it does; the one list that help, tests and docs read."""

_DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{12}\.tmp")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        """Write one line and leave with exit code 2."""
        sys.stderr.write(f"poscod: error: {visible(' '.join(message.split()))}; see `{self.prog} --help`.\n")
        sys.exit(2)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help that says the default of every option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        none = isinstance(action.default, bool) or action.default in (None, "", [], argparse.SUPPRESS)
        return text if none or "default: " in text else f"{text} (default: %(default)s)"


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; of other commands than the one named only their names are known, which spares their imports."""
    parser = Parser(
        prog="poscod",
        description="Classifiers that know when not to answer.",
        epilog="Start with `poscod demo`, then `poscod fit --help`.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"poscod {sys.modules['poscod'].__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        if only not in (None, name):
            commands.add_parser(name, help=text)
            continue
        module = importlib.import_module(f"poscod.cli._{name}")
        command = commands.add_parser(
            name,
            help=text,
            description=_description(module),
            epilog=_examples(module),
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        # After the command, too: that is where people put it. SUPPRESS keeps what was said before the command.
        command.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )
        command.set_defaults(run=module.run, parser=command)
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
        0 done, 2 bad input, 1 a fault of ours, 3 the monitor found something, 130 interrupted.
    """
    words = sys.argv[1:] if argv is None else argv
    # No option before the command has a value, so the first other word is the command.
    parser = build_parser(next((word for word in words if not word.startswith("-")), ""))
    args, unknown = parser.parse_known_args(words)
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}{_hint(args.parser, unknown)}")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        if getattr(args, "quiet", False):
            warnings.simplefilter("ignore", PoscodWarning)
        try:
            args.run(args)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of our output, such as `head`, has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except PoscodError as error:
            # Too few rows were held out for a promise, whoever counted them.
            short = isinstance(error, InfeasibleProblemError) and "needed" in error.facts
            more = " More are held out by `poscod fit --calibration 0.8`." if short else ""
            return _fail(args, error.told(NAMES) + more, 2)
        except OSError as error:
            return _fail(args, os_sentence(error), 2)
        except MemoryError:
            return _fail(args, "there is not enough memory for this input: use fewer rows or columns.", 2)
        except KeyboardInterrupt:
            return _fail(args, "interrupted; no unfinished file was left.", 130)
        except Exception as error:
            if isinstance(error, ValueError) and _passed("sklearn", error):  # its estimators judge the user's rows
                reason = str(error).strip().partition("\n")[0].rstrip(".:")
                return _fail(args, f"the classifier of the model refuses these rows: {reason}.", 2)
            return _fail(args, f"{type(error).__name__}: {error} (a fault of poscod; --debug shows where)", 1)
    return 0


def _hint(command: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Say what was probably meant: an option of another name, of another command, or an option given once for each value."""
    name = unknown[0].partition("=")[0]
    if not name.startswith("-"):
        several = [o for a in command._actions if isinstance(a, argparse._AppendAction) for o in a.option_strings]
        first = next((option for option in several if option in ("--features", "--trust")), None)
        return f" (repeat an option for several values: {first} A {first} B)" if first else ""
    if near := nearest(name, command._option_string_actions, cutoff=0.8):
        return f" (did you mean {near}?)"
    commands = next(a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    if name in commands["at"]._option_string_actions:
        return f" ({name} is part of the model: `poscod at` changes it)"
    owners = [f"`{other.prog}`" for other in commands.values() if name in other._option_string_actions]
    return f" ({name} is an option of {', '.join(owners)})" if owners else ""


def _passed(package: str, error: Exception) -> bool:
    """Tell whether an error has passed through a package on its way here."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__", "")).partition(".")[0] == package for frame in frames)


def os_sentence(error: OSError) -> str:
    """Say in a sentence what the system refused.

    Examples
    --------
    >>> os_sentence(FileNotFoundError(2, "No such file or directory", "a.csv"))
    'cannot use a.csv: no such file or directory.'
    """
    if error.strerror is None:
        return str(error) or type(error).__name__
    reason = error.strerror[:1].lower() + error.strerror[1:]
    if error.filename is None:
        return f"the output could not be written: {reason}."
    path = Path(os.fsdecode(error.filename))
    if draft := _DRAFT.fullmatch(path.name):  # people know the file by its own name, not by that of its draft
        path = path.with_name(draft[1])
    return f"cannot use {path}: {reason}."


def _description(module: ModuleType) -> str:
    """Return what a command's docstring says to its users: everything before the convention."""
    text = (module.__doc__ or "").partition("\nConvention:")[0]
    return "\n\n".join(textwrap.fill(" ".join(part.split()), 80) for part in text.strip().split("\n\n"))


def _examples(module: ModuleType) -> str | None:
    lines = getattr(module, "EXAMPLES", ())
    return "examples:\n" + "\n".join(f"  {line}" for line in lines) if lines else None


def _fail(args: argparse.Namespace, sentence: str, code: int) -> int:
    if args.debug:
        traceback.print_exc()
    sys.stderr.write(f"poscod: error: {visible(' '.join(sentence.split()))}\n")
    return code


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    sentence = message.told(NAMES) if isinstance(message, PoscodWarning) else str(message)
    sys.stderr.write(f"poscod: warning: {visible(' '.join(sentence.split()))}\n")
