# SPDX-License-Identifier: BSD-3-Clause
"""What people say of inputs: which of them to look at, and what their verdicts say of the rule.

Convention: a verdict is a class or `poscod.OOD`. Which inputs are looked at depends on the inputs and on chance, never on what they are, and the chance of
every one is known: so numbers hold whether or not the model is right.
"""

from poscod.review._assess import QUANTITIES, Assessment, assess
from poscod.review._queue import Queue, queue
from poscod.review._stranger_groups import StrangerGroup, rate_words, stranger_groups
from poscod.review._strangers import Strangers, discoveries, envelope, strangers, thinned

__all__ = [
    "Assessment",
    "Queue",
    "StrangerGroup",
    "Strangers",
    "assess",
    "queue",
    "stranger_groups",
    "strangers",
]
