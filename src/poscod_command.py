# SPDX-License-Identifier: BSD-3-Clause
"""What the shell starts as ``poscod``: the package is imported where an interruption can still be answered.

Convention: nothing is imported here but the standard library's smallest parts. The package takes a second to import, and whoever
presses Ctrl-C in that second gets a line and exit code 130, as at any other moment.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Import and run the command line."""
    try:
        from poscod.cli import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("poscod: error: interrupted; no unfinished file was left.\n")
        return 130
