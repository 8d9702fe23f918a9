"""Timing that survives a noisy machine: the best of several runs, and ratios within one run only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def cpu_seconds(function: Callable[[], Any], *, repeat: int = 5) -> float:
    """Return the smallest CPU time of several calls (all threads of this process together)."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def print_table(title: str, header: list[str], rows: list[list[Any]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    cells = [header, *[[f"{c:.2f}" if isinstance(c, float) else str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for i, row in enumerate(cells):
        print("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |")
        if i == 0:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")
