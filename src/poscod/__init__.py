# SPDX-License-Identifier: BSD-3-Clause
"""Classifiers that know when not to answer.

The pipeline, in order: `problem` states what is asked (alpha, tpr_min, loss); `activations` holds what a trained
network gives us; `risk` estimates r(x), how wrong the classifier is here; `ratio` estimates g(x) = p_OOD(x) / p_ID(x);
`strategies` joins both to the rejection score s(x) = r(x) + beta g(x); `selector` chooses the threshold lambda; `model`
holds the object that wires them, `POSCOD`; `rule` and `decision` are what it decides by and what leaves it. `metrics` measures any score exactly; `theory` holds
the exact optimum on known distributions.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poscod.activations import Activations
    from poscod.decision import Decisions
    from poscod.model import POSCOD
    from poscod.problem import ScodProblem
    from poscod.verdict import OOD

__version__ = "0.2.0"

__all__ = ["OOD", "POSCOD", "Activations", "Decisions", "ScodProblem", "__version__"]

# Where each name lives. It is imported when it is asked for: scikit-learn takes most of a second, and `poscod --help` needs none of it.
_HOMES = {
    "Activations": "activations",
    "Decisions": "decision",
    "POSCOD": "model",
    "ScodProblem": "problem",
    "OOD": "verdict",
}
_FOLDERS = [
    "activations",
    "decision",
    "exceptions",
    "metrics",
    "mix",
    "model",
    "problem",
    "ratio",
    "risk",
    "rule",
    "scores",
    "selector",
    "strategies",
    "verdict",
]


def __getattr__(name: str) -> Any:
    """Import a public name, or one of the modules that make up a model, when it is first asked for."""
    if name in _HOMES:
        value = getattr(importlib.import_module(f"poscod.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name in _FOLDERS:
        return importlib.import_module(f"poscod.{name}")
    raise AttributeError(f"module 'poscod' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_FOLDERS})
