# SPDX-License-Identifier: BSD-3-Clause
"""Classifiers that know when not to answer.

The pipeline, in order: `problem` states what is asked (alpha, tpr_min, loss); `activations` holds what a trained
network gives us; `risk` estimates r(x), how wrong the classifier is here; `ratio` estimates g(x) = p_OOD(x) / p_ID(x);
`strategies` joins both to the rejection score s(x) = r(x) + beta g(x); `selector` chooses the threshold lambda; `model`
holds the object that wires them, `POSCOD`; `rule` and `decision` are what it decides by and what leaves it. `metrics` measures any score exactly; `theory` holds
the exact optimum on known distributions.
"""

from poscod.activations import Activations
from poscod.decision import Decisions
from poscod.model import POSCOD
from poscod.problem import ScodProblem
from poscod.verdict import OOD

__version__ = "0.2.0"

__all__ = ["OOD", "POSCOD", "Activations", "Decisions", "ScodProblem", "__version__"]
