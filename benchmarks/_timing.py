"""Timing that survives a noisy machine: CPU time, several runs, and ratios within one run only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any


def cpu_seconds(function: Callable[..., Any], samples: Sequence[tuple[Any, ...]] = ((),)) -> float:
    """Return the smallest CPU time of one call per sample (all threads of this process together).

    Give different data to repeated calls: a processor learns the branches of a sort of 20,000 rows by heart.
    """
    best = float("inf")
    for sample in samples:
        start = time.process_time()
        function(*sample)
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
