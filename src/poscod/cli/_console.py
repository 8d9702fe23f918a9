# SPDX-License-Identifier: BSD-3-Clause
"""What a command says: words or one JSON document on standard output, progress on standard error.

Convention: with ``--json`` standard output holds exactly one JSON document (NaN and infinities are null); with ``--quiet``
nothing but errors is said, the JSON document excepted. Progress appears after two seconds, on a terminal only.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from poscod._json import plain
from poscod._optional import require
from poscod.exceptions import PoscodError

if TYPE_CHECKING:
    from poscod.metrics import Interval

# Control characters but for tab and new line, and those that turn the direction of a text.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_PATIENCE = 2.0
"""Seconds before progress is shown."""


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--quiet`` to a command.

    Examples
    --------
    >>> parser = argparse.ArgumentParser()
    >>> add_output_options(parser)
    >>> parser.parse_args(["--json"])
    Namespace(json=True, quiet=False)
    """
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print one JSON document instead of words")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")


def add_alias(group: Any, old: str, dest: str) -> None:
    """Let an option be given under an old name, which no help mentions."""
    group.add_argument(old, dest=dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS)


class Console:
    """Standard output and standard error of one command.

    Parameters
    ----------
    json : bool, default=False
        Whether the answer is one JSON document.
    quiet : bool, default=False
        Whether to say nothing.
    taken : bool, default=False
        Whether standard output belongs to a table: words go to standard error then.

    Examples
    --------
    >>> import numpy as np
    >>> Console().answer({"n": np.int64(3)}, "three rows")
    three rows
    >>> Console(json=True).answer({"n": np.int64(3), "pi": float("nan")}, "three rows")
    {"n": 3, "pi": null}
    """

    def __init__(self, *, json: bool = False, quiet: bool = False, taken: bool = False) -> None:
        self.json, self.quiet, self.taken = json, quiet, taken

    @classmethod
    def of(cls, args: argparse.Namespace) -> Console:
        """Return the console that the options of a command ask for; ``-o -`` gives standard output to the table."""
        return cls(json=args.json, quiet=args.quiet, taken=getattr(args, "output", None) == "-")

    def answer(self, document: Mapping[str, Any], *lines: str) -> None:
        """Give the answer of a command, once: the document with ``--json``, otherwise the lines, unless ``--quiet`` is given."""
        stream = sys.stderr if self.taken else sys.stdout
        if self.json:
            stream.write(json_text(document))
        elif not self.quiet:
            stream.write("".join(f"{visible(line)}\n" for line in lines))
        stream.flush()

    @property
    def live(self) -> bool:
        """Whether progress is shown at all."""
        return not self.quiet and sys.stderr.isatty()

    @contextmanager
    def progress(self, label: str, total: int | None = None, unit: str = "rows") -> Iterator[Callable[[int], Any]]:
        """Show a bar while the block runs; call what it yields with the number of units done."""
        bar: Any = nullcontext()
        if self.live:
            with suppress(PoscodError):  # no bar is no reason not to work
                tqdm = require("tqdm", extra="cli", feature="Showing progress").tqdm
                shown = {"unit": f" {unit}", "unit_scale": True, "delay": _PATIENCE, "leave": False}
                bar = tqdm(desc=label, total=total, file=sys.stderr, **shown)
        with bar:
            yield getattr(bar, "update", lambda n: None)

    @contextmanager
    def working(self, label: str) -> Iterator[None]:
        """Show the seconds that a block without countable steps takes."""
        if not self.live:
            yield
            return
        done, start = threading.Event(), time.monotonic()

        def beat() -> None:
            shown = False
            while not done.wait(_PATIENCE if not shown else 1.0):
                sys.stderr.write(f"\r{label}: {time.monotonic() - start:.0f} s")
                sys.stderr.flush()
                shown = True
            if shown:
                sys.stderr.write("\r" + " " * (len(label) + 12) + "\r")
                sys.stderr.flush()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def json_text(document: Mapping[str, Any], indent: int | None = None) -> str:
    """Return a document as JSON, in a line of its own."""
    text = json.dumps(plain(document), ensure_ascii=False, allow_nan=False, indent=indent)
    return re.sub(_UNSEEN, lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def visible(text: str) -> str:
    r"""Return a text that a terminal only shows: what would move its cursor, colour it or turn its direction is written out.

    Examples
    --------
    >>> print(visible("class " + chr(27) + "[31mred"))
    class \x1b[31mred
    """
    return re.sub(_UNSEEN, lambda found: ascii(found[0])[1:-1], text)


def percent(share: float) -> str:
    """Return a share as a text with one decimal.

    Examples
    --------
    >>> percent(0.0312), percent(float("nan"))
    ('3.1 %', 'not known')
    """
    return "not known" if math.isnan(share) else f"{100.0 * share:.1f} %"


def ranged(share: Interval, what: str = "interval") -> str:
    """Return a share with its interval as a text.

    Examples
    --------
    >>> from poscod.metrics import Interval
    >>> ranged(Interval(0.25, 0.2, 0.35, 0.9), "90 % interval")
    '25.0 % (90 % interval 20.0 % to 35.0 %)'
    """
    return f"{percent(share.estimate)} ({what} {percent(share.low)} to {percent(share.high)})"
