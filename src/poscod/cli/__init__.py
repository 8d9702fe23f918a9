# SPDX-License-Identifier: BSD-3-Clause
"""The shell: ``poscod COMMAND``, one small file per command.

Convention: a command is a module ``poscod.cli._NAME`` with ``add_arguments(parser)`` and ``run(args) -> None``; its help line
stands in `COMMANDS`. Exit codes: 0 done, 2 bad input (one sentence on standard error), 1 a fault of ours,
3 `poscod monitor --fail-on` found something, 130 interrupted.
"""

from poscod.cli._main import main

__all__ = ["main"]
