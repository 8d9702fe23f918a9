# SPDX-License-Identifier: BSD-3-Clause
"""The mapping of all scores: it feeds string options, tests and the table in the docs.

Convention: every score is an uncertainty, higher = reject sooner.
"""

from __future__ import annotations

from poscod.scores._features import FDBD, SHE, GradNorm, L1Norm, L2Norm, Mahalanobis, RelativeMahalanobis, Residual, ViM
from poscod.scores._logits import GEN, MLS, MSP, ODIN, Doctor, Energy, Entropy, KLMatching, Margin
from poscod.scores._nearest import KNN, NNGuide
from poscod.scores._score import Score
from poscod.scores._shaping import DICE, AshB, AshP, AshS, ReAct, Scale

PAPER = (MSP, MLS, Energy, ODIN, GradNorm, L1Norm, ReAct, AshP, AshB, AshS, Residual, ViM, KNN)
OTHERS = (Mahalanobis, RelativeMahalanobis, KLMatching, Entropy, Doctor, GEN, SHE, NNGuide, Scale, FDBD, DICE, Margin)
SCORES: dict[str, type[Score]] = {score.name: score for score in (*PAPER, *OTHERS, L2Norm)}
