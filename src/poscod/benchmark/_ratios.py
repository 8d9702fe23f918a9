# SPDX-License-Identifier: BSD-3-Clause
"""The estimators of the likelihood ratio that a benchmark compares.

Convention: an entry says which rows the estimator sees: the unlabelled "mixture", the "clean" OOD rows (nobody has those in
practice), or the "world" itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from poscod.ratio import NNPU, WOODS, CorrectedSigmoid, StandardSigmoid

__all__ = ["RATIOS", "RatioMethod"]


class RatioMethod(NamedTuple):
    """One member of `RATIOS`.

    Attributes
    ----------
    title : str
        Name in tables.
    sees : str
        "mixture", "clean" or "world".
    build : callable
        Returns an unfitted estimator; None for the world.
    """

    title: str
    sees: str
    build: Callable[[], Any] | None


RATIOS: dict[str, RatioMethod] = {
    "corrected": RatioMethod("POSCOD", "mixture", CorrectedSigmoid),
    "paper": RatioMethod("POSCOD, paper's recipe", "mixture", lambda: CorrectedSigmoid("paper")),
    "standard": RatioMethod("standard sigmoid", "mixture", StandardSigmoid),
    "nnpu": RatioMethod("nnPU", "mixture", NNPU),
    "woods": RatioMethod("WOODS", "mixture", WOODS),
    "clean": RatioMethod("clean OOD, strong recipe", "clean", lambda: CorrectedSigmoid(ood_prior=1.0)),
    "clean_lr": RatioMethod("clean OOD, logistic regression", "clean", StandardSigmoid),
    "exact": RatioMethod("exact ratio", "world", None),
}
"""Estimators by name."""
