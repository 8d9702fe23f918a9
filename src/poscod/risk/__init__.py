# SPDX-License-Identifier: BSD-3-Clause
"""How wrong is the classifier here? The Bayes answer, its conditional risk r(x), and whether r is calibrated."""

from poscod.risk._bayes import BayesDecision, bayes_decision, bayes_decision_from_logits, expected_loss
from poscod.risk._reliability import Reliability, reliability
from poscod.risk._temperature import TemperatureScaling, TemperatureWarning
from poscod.risk._temperature import centre as centre
from poscod.risk._temperature import slope_sum as slope_sum
from poscod.risk._temperature import temperature_of as temperature_of

__all__ = [
    "BayesDecision",
    "Reliability",
    "TemperatureScaling",
    "TemperatureWarning",
    "bayes_decision",
    "bayes_decision_from_logits",
    "expected_loss",
    "reliability",
]
