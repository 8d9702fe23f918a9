# SPDX-License-Identifier: BSD-3-Clause
"""The mapping of all scores: it feeds string options, tests and the table in the docs.

Convention: every score is an uncertainty, higher = reject sooner.
"""

from __future__ import annotations

from poscod.scores._ash import AshB, AshP, AshS
from poscod.scores._dice import DICE
from poscod.scores._doctor import Doctor
from poscod.scores._energy import Energy
from poscod.scores._entropy import Entropy
from poscod.scores._fdbd import FDBD
from poscod.scores._gen import GEN
from poscod.scores._gradnorm import GradNorm
from poscod.scores._kl_matching import KLMatching
from poscod.scores._knn import KNN
from poscod.scores._mahalanobis import Mahalanobis
from poscod.scores._margin import Margin
from poscod.scores._mls import MLS
from poscod.scores._msp import MSP
from poscod.scores._nnguide import NNGuide
from poscod.scores._norms import L1Norm, L2Norm
from poscod.scores._odin import ODIN
from poscod.scores._react import ReAct
from poscod.scores._relative_mahalanobis import RelativeMahalanobis
from poscod.scores._residual import Residual
from poscod.scores._scale import Scale
from poscod.scores._score import Score
from poscod.scores._she import SHE
from poscod.scores._vim import ViM

SCORES: dict[str, type[Score]] = {
    # The paper's.
    "msp": MSP,
    "mls": MLS,
    "ebo": Energy,
    "odin": ODIN,
    "gradnorm": GradNorm,
    "l1_norm": L1Norm,
    "react": ReAct,
    "ash_p": AshP,
    "ash_b": AshB,
    "ash_s": AshS,
    "residual": Residual,
    "vim": ViM,
    "knn": KNN,
    # After it.
    "mahalanobis": Mahalanobis,
    "relative_mahalanobis": RelativeMahalanobis,
    "kl_matching": KLMatching,
    "entropy": Entropy,
    "doctor": Doctor,
    "gen": GEN,
    "she": SHE,
    "nnguide": NNGuide,
    "scale": Scale,
    "fdbd": FDBD,
    "dice": DICE,
    "margin": Margin,
    "l2_norm": L2Norm,
}
