# SPDX-License-Identifier: BSD-3-Clause
"""The OOD share and the class mix of windows, from their counts and a reference.

Convention: both are unknown at once, and neither is allowed to pass for the other: shares come from functions that do not see the class mix, mixes from accepted answers
less those that the share implies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from poscod.monitor._mix import Mixes, class_mixes, rough_mixes
from poscod.monitor._partitions import Counts
from poscod.monitor._reference import Reference
from poscod.monitor._share import Shares, direction, ood_share


class Estimates(NamedTuple):
    """What several windows hold.

    Attributes
    ----------
    pi, pi_count : Shares
        OOD shares: the best ones, and those from acceptance alone.
    mix : Mixes
        Class mixes.
    """

    pi: Shares
    pi_count: Shares
    mix: Mixes


def estimate(reference: Reference, ratio: Counts, label: Counts, level: float) -> Estimates:
    """Return what windows hold, from their counts in two partitions."""
    laws, answers, prior = reference.laws("ratio"), reference.laws("label"), reference.prior_at(level)
    mixes = rough_mixes(label, answers)
    by_count = ood_share(ratio, laws, laws.rejected, mixes, prior, level)
    best = by_count
    if reference.n_mixed and prior.estimate > 0.0:
        best = ood_share(ratio, laws, direction(laws, reference.n_bins, 0.0), mixes, prior, level)
    if reference.source == "fit":
        # Cells that the ratio has seen look more OOD than fresh ones do, and at pi = 0 the likelihood believes them: the interval of
        # the counts, whose one cut moves less, is joined to it.
        best = best._replace(low=np.fmin(best.low, by_count.low), high=np.fmax(best.high, by_count.high))
    return Estimates(best, by_count, class_mixes(label, answers, best, level))
