# SPDX-License-Identifier: BSD-3-Clause
"""The gamblers of each sequential finding: what they bet on, given a reference.

Convention: the false-alarm rate is shared equally by the alarms against the reference, those against the past together, the note on the class mix, and the estimate of pi_0, if there is one; half of each
finding's share is for the chance that the reference's samples deceive, half is what capital must reach. A payoff is named by the partition it is counted in. No
payoff has a positive mean in any class, so no class mix raises an alarm but the one that says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from poscod._validation import Floats
from poscod.monitor._bets import above, unexplained
from poscod.monitor._findings import AGAINST_REFERENCE
from poscod.monitor._reference import Reference
from poscod.monitor._share import direction

ABOUT = 0.01
"""What a class mix may take from a TPR that is promised on average only: "about 0.95" is not broken by 0.94."""


class Watch(NamedTuple):
    """What is bet on for one finding.

    Attributes
    ----------
    payoffs : dict of str to list of ndarray
        Payoffs by the counts they are applied to: a partition, "labeled" or "loss".
    alpha : float
        Capital of 1 / alpha is an alarm.
    """

    payoffs: dict[str, list[Floats]]
    alpha: float


def share_of_alarms(reference: Reference, false_alarm: float) -> float:
    """Return the probability of a false alarm that one finding has."""
    return false_alarm / (len(AGAINST_REFERENCE) + 2 + (reference.prior.low < reference.prior.high))


def watches(reference: Reference, ood_limit: float, false_alarm: float) -> dict[str, Watch]:
    """Return what is bet on for every alarm that compares windows with the reference."""
    share = share_of_alarms(reference, false_alarm)
    delta = alpha = share / 2.0
    # Only the lower end of pi_0 is used, by all: it may fail with the probability of one share.
    low = reference.prior_at(1.0 - 2.0 * share)
    reference = replace(reference, prior=low._replace(estimate=low.low))
    payoffs = {
        "PSC001": {"ratio": _above_limit(reference, ood_limit, delta)},
        "PSC002": {"ratio": _acceptance(reference, delta)},
        "PSC003": {name: _sets(reference, name, delta / 2.0) for name in ("score", "risk")},
        "PSC005": {"labeled": _tpr(reference, delta)},
        "PSC006": {"loss": _selective_risk(reference, delta)},
        "PSC012": {"label": _promise(reference, delta)},
    }
    return {code: Watch(payoffs[code], alpha) for code in AGAINST_REFERENCE}


def _above_limit(reference: Reference, limit: float, delta: float) -> list[Floats]:
    """Bet on more rejected than the limit explains, first if OOD inputs were any at all: true whatever they are."""
    laws = reference.laws("ratio")
    payoffs = [above(laws, laws.rejected, limit, delta / 3.0, known=False)]
    if laws.known:
        # At the lower end of pi_0 the limit is reached latest: that end data can certify.
        weights = direction(laws, reference.n_bins, limit)
        payoffs += [above(laws, f, limit, delta / 3.0, known=True) for f in (laws.rejected, weights)]
    return payoffs


def _acceptance(reference: Reference, delta: float) -> list[Floats]:
    """More accepted than ID alone; or another acceptance than the likelihood ratios of the inputs let expect."""
    laws = reference.laws("ratio")
    payoffs = [unexplained(laws, -laws.rejected, delta / 3.0)]
    if laws.known:
        # OOD inputs move both along one line; what is left of rejection is not theirs.
        weights = laws.neutral(direction(laws, reference.n_bins, laws.prior))
        scale = laws.ood_mean(weights)
        if scale > 0.0:
            rest = laws.rejected - laws.ood_mean(laws.control) / scale * weights
            payoffs += [unexplained(laws, sign * rest, delta / 3.0) for sign in (1.0, -1.0)]
    return payoffs


def _sets(reference: Reference, partition: str, delta: float) -> list[Floats]:
    """Bet on accepted rows up to each edge: more or fewer than the share rejected and the answers let expect."""
    laws = reference.laws(partition)
    bins = np.arange(len(laws.rejected)) // (laws.n_answers + 1)
    inside = bins[~laws.layout.rejected].max(initial=-1)
    sets = [(bins <= edge).astype(np.float64) for edge in range(inside)]
    share = delta / max(1, 2 * len(sets))
    return [unexplained(laws, sign * chosen, share) for chosen in sets for sign in (1.0, -1.0)]


def _promise(reference: Reference, delta: float) -> list[Floats]:
    """Answers of classes whose TPR is below the promise, more often than those of the others make up for."""
    promised = reference.tpr_promised
    if promised is None or reference.every_class:
        return []
    laws = reference.laws("label")
    if reference.rule["promise"]["confidence"] is None:
        promised -= ABOUT
    promised = min(promised, reference.tpr(1.0 - 2.0 * delta).low)
    payoff = unexplained(laws, np.zeros(len(laws.rejected)), delta, 1.0 - laws.rejected - promised)
    return [payoff] if payoff.max() > 0.0 else []


def _tpr(reference: Reference, delta: float) -> list[Floats]:
    """Labeled ID rows rejected, more than promised and more than calibration could have missed."""
    low = reference.tpr(1.0 - 2.0 * delta).low
    promised = low if reference.tpr_promised is None else min(reference.tpr_promised, low)
    return [np.array([-(1.0 - promised), promised, 0.0, 0.0])] if promised > 0.0 else []


def _selective_risk(reference: Reference, delta: float) -> list[Floats]:
    """Losses of accepted ID rows, larger on average than the upper bound that calibration gives."""
    limit, values = reference.selective_risk_bound(delta), np.unique(reference.loss_matrix)
    return [(values - limit) / limit] if 0.0 < limit < values.max() else []
