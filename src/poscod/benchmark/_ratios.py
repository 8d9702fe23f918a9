# SPDX-License-Identifier: BSD-3-Clause
"""The estimators of the likelihood ratio that a benchmark compares.

Convention: an entry says which rows the estimator sees: the unlabeled "mixture", the "clean" OOD rows (nobody has those in
practice), or the "world" itself. Its name is the one that specifications, results and tables use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from poscod.ratio import NNPU, WOODS, CorrectedSigmoid, StandardSigmoid


class RatioMethod(NamedTuple):
    """Which rows an estimator sees, and what returns an unfitted one (None: the world knows the ratio)."""

    sees: str
    build: Callable[[], Any] | None


RATIOS: dict[str, RatioMethod] = {
    "strong": RatioMethod("mixture", CorrectedSigmoid),
    "paper": RatioMethod("mixture", lambda: CorrectedSigmoid("paper")),
    "standard": RatioMethod("mixture", StandardSigmoid),
    "nnpu": RatioMethod("mixture", NNPU),
    "woods": RatioMethod("mixture", WOODS),
    "clean": RatioMethod("clean", lambda: CorrectedSigmoid(ood_prior=1.0)),
    "clean_lr": RatioMethod("clean", StandardSigmoid),
    "exact": RatioMethod("world", None),
}
"""Estimators by name."""

RENAMED: dict[str, str] = {"corrected": "strong"}
"""Names in older specifications and results."""
