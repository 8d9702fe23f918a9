"""Fill docs/results.md and docs/results/*.csv from a finished run.

``python -m benchmarks.results_page OUT`` renders every table that the page names between ``<!-- table NAME -->`` and ``<!-- end -->``
and writes all tables as CSV beside it. The words of the page are written by hand: read them again when numbers change.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from poscod.benchmark import TABLES, compare, read_results, render, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "results.md"
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", help="folder of a run")
    rows = read_results(parser.parse_args().out)
    tables = {name: table(name, rows) for name in TABLES}
    for name, made in {**tables, "compare": compare(rows)}.items():
        (PAGE.parent / "results" / f"{name}.csv").write_text(render(made, "csv"))
    text = BLOCK.sub(lambda match: f"{match[1]}{render(tables[match[2]])}{match[3]}", PAGE.read_text())
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
