# SPDX-License-Identifier: BSD-3-Clause
"""The mapping of all scores: it feeds string options, tests and the table in the docs.

Convention: every score is an uncertainty, higher = reject sooner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poscod.activations import Activations
from poscod.scores._features import FDBD, SHE, GradNorm, L1Norm, L2Norm, Mahalanobis, RelativeMahalanobis, Residual, ViM
from poscod.scores._logits import GEN, MLS, MSP, ODIN, Doctor, Energy, Entropy, KLMatching, Margin
from poscod.scores._nearest import KNN, NNGuide
from poscod.scores._score import Score
from poscod.scores._shaping import DICE, AshB, AshP, AshS, ReAct, Scale

PAPER = (MSP, MLS, Energy, ODIN, GradNorm, L1Norm, ReAct, AshP, AshB, AshS, Residual, ViM, KNN)
OTHERS = (Mahalanobis, RelativeMahalanobis, KLMatching, Entropy, Doctor, GEN, SHE, NNGuide, Scale, FDBD, DICE, Margin)


@dataclass(frozen=True)
class Entry:
    """A score by its name: called with parameters it builds one; fitted or called on rows it is the published one."""

    kind: type[Score]

    def __call__(self, *rows: Activations, **parameters: Any) -> Any:
        return self.kind()(*rows, **parameters) if rows else self.kind(**parameters)

    def fit(self, activations: Activations) -> Score:
        """Fit a new score with its published parameters."""
        return self.kind().fit(activations)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kind, name)


SCORES: dict[str, Entry] = {score.name: Entry(score) for score in (*PAPER, *OTHERS, L2Norm)}
