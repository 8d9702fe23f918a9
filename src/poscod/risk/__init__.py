# SPDX-License-Identifier: BSD-3-Clause
"""How wrong is the classifier here? The Bayes answer, its conditional risk r(x), and whether r is calibrated."""

from poscod.risk._answers import LEAST_ROWS, OTHER, RIGHT, WRONG, AnswersWarning, GivenAnswers
from poscod.risk._bayes import bayes_decision, bayes_decision_from_logits, expected_loss
from poscod.risk._reliability import reliability
from poscod.risk._temperature import TemperatureScaling, TemperatureWarning

__all__ = [
    "GivenAnswers",
    "TemperatureScaling",
    "bayes_decision",
    "bayes_decision_from_logits",
    "expected_loss",
    "reliability",
]
