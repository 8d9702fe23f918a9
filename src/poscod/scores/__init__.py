# SPDX-License-Identifier: BSD-3-Clause
"""Single scores of the literature: one number per row from features, logits and the last layer.

Every score is an uncertainty: higher = reject sooner. ``SCORES[name](**parameters)`` builds one, ``fit(activations_id)``
learns from ID rows where the score needs that, and calling it on activations returns an array of shape (n,).
"""

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
from poscod.scores._msp import MSP, one_minus_msp
from poscod.scores._nnguide import NNGuide
from poscod.scores._norms import L1Norm, L2Norm
from poscod.scores._odin import ODIN
from poscod.scores._react import ReAct
from poscod.scores._relative_mahalanobis import RelativeMahalanobis
from poscod.scores._residual import Residual
from poscod.scores._scale import Scale
from poscod.scores._score import Score
from poscod.scores._scores import SCORES
from poscod.scores._she import SHE
from poscod.scores._vim import ViM

__all__ = [
    "DICE",
    "FDBD",
    "GEN",
    "KNN",
    "MLS",
    "MSP",
    "ODIN",
    "SCORES",
    "SHE",
    "AshB",
    "AshP",
    "AshS",
    "Doctor",
    "Energy",
    "Entropy",
    "GradNorm",
    "KLMatching",
    "L1Norm",
    "L2Norm",
    "Mahalanobis",
    "Margin",
    "NNGuide",
    "ReAct",
    "RelativeMahalanobis",
    "Residual",
    "Scale",
    "Score",
    "ViM",
    "one_minus_msp",
]
