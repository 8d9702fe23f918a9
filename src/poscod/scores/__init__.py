# SPDX-License-Identifier: BSD-3-Clause
"""Single scores of the literature: one number per row from features, logits and the last layer.

Every score is an uncertainty: higher = reject sooner. ``SCORES[name](**parameters)`` builds one, ``fit(activations_id)``
learns from ID rows where the score needs that, and calling it on activations returns an array of shape (n,). Files are
families: `_logits`, `_features`, `_nearest` and `_shaping`; `_softmax` and `_moments` hold the formulas they share with
the evidence of `poscod.ratio`.
"""

from poscod.scores._logits import one_minus_msp
from poscod.scores._moments import l1_norms as l1_norms
from poscod.scores._moments import square_norms, squared_distances, whitening
from poscod.scores._nearest import near_square, unit_rows
from poscod.scores._score import Score
from poscod.scores._scores import SCORES

__all__ = ["SCORES", "Score", "one_minus_msp"]
