# SPDX-License-Identifier: BSD-3-Clause
"""A progress bar over batches, where somebody looks at it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

from poscod._optional import require
from poscod.exceptions import MissingExtraError


def watched(batches: Iterable[Any], text: str, progress: bool | None, *, extra: str) -> Iterator[Any]:
    """Iterate over batches behind a progress bar."""
    bar = _bar(text, len(batches) if isinstance(batches, Sized) else None, "batch", progress, extra)
    try:
        for batch in batches:
            yield batch
            if bar is not None:
                bar.update()
    finally:
        if bar is not None:
            bar.close()


@contextmanager
def epochs_shown(epochs: int, progress: bool | None) -> Iterator[Callable[[dict[str, float]], None]]:
    """Show epochs as they end, with their losses."""
    bar = _bar("fit_ratio", epochs, "epoch", progress, "torch")

    def show(row: dict[str, float]) -> None:
        if bar is not None:
            bar.update(row["epoch"] - bar.n)  # a run that is continued starts where it was
            bar.set_postfix(validation=f"{row['validation_loss']:.4f}", prior=f"{row['ood_prior']:.3f}")

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


def _bar(text: str, total: int | None, unit: str, progress: bool | None, extra: str) -> Any:
    """Return a bar, or None where nobody looks."""
    if not progress and not (progress is None and sys.stderr.isatty()):
        return None
    try:
        tqdm = require("tqdm", extra=extra, feature="A progress bar")
    except MissingExtraError:
        if progress:
            raise
        return None
    # Anything under two seconds needs no bar.
    return tqdm.tqdm(desc=text, total=total, delay=0.0 if progress else 2.0, unit=unit)
