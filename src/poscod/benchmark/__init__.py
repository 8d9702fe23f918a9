# SPDX-License-Identifier: BSD-3-Clause
"""The paper's experiments as data: specification -> independent cells -> long table -> tables.

`read_spec` reads what to run, `run` computes the missing cells, `read_results` returns the long table;
`table`, `ablation` and `compare` arrange it, `render` writes it. Rendering never recomputes.
"""

from poscod.benchmark._compare import compare, paper_numbers
from poscod.benchmark._definitions import DEFINITIONS, Definition, OodSet
from poscod.benchmark._ratios import RATIOS, RatioMethod
from poscod.benchmark._render import FORMATS, render
from poscod.benchmark._results import COLUMNS, read_results
from poscod.benchmark._run import BenchmarkError, Finished, run
from poscod.benchmark._spec import EMBEDDED, BenchmarkSpec, read_spec
from poscod.benchmark._tables import ABLATIONS, TABLES, Table, TableCell, ablation, table

__all__ = [
    "ABLATIONS",
    "COLUMNS",
    "DEFINITIONS",
    "EMBEDDED",
    "FORMATS",
    "RATIOS",
    "TABLES",
    "BenchmarkError",
    "BenchmarkSpec",
    "Definition",
    "Finished",
    "OodSet",
    "RatioMethod",
    "Table",
    "TableCell",
    "ablation",
    "compare",
    "paper_numbers",
    "read_results",
    "read_spec",
    "render",
    "run",
    "table",
]
