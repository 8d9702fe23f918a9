"""The decision: lambda and tau, the threshold of a rejection score and the acceptance probability at a tie.

SPDX-License-Identifier: BSD-3-Clause
"""

from poscod.selector._threshold import Threshold, accept, accept_probability, tpr_threshold

__all__ = ["Threshold", "accept", "accept_probability", "tpr_threshold"]
