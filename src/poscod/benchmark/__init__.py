# SPDX-License-Identifier: BSD-3-Clause
"""The paper's experiments as data: specification -> independent cells -> long table -> tables.

`read_spec` reads what to run, `run` computes the missing cells, `read_results` returns the long table;
`table` and `compare` arrange it, `render` writes it. Rendering never recomputes.
"""

from poscod.benchmark._compare import compare
from poscod.benchmark._definitions import DEFINITIONS
from poscod.benchmark._render import FORMATS, render
from poscod.benchmark._results import read_results
from poscod.benchmark._run import BenchmarkError, run
from poscod.benchmark._spec import BenchmarkSpec, read_spec
from poscod.benchmark._tables import TABLES, table

__all__ = [
    "BenchmarkError",
    "BenchmarkSpec",
    "compare",
    "read_results",
    "read_spec",
    "render",
    "run",
    "table",
]
