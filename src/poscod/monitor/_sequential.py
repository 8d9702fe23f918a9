# SPDX-License-Identifier: BSD-3-Clause
"""The gamblers of each sequential finding: what they bet on, given a reference.

Convention: the false-alarm rate is shared equally by the sequential findings and the estimate of pi_0, if there is one; half of each
finding's share is for the chance that the reference's samples deceive, half is what capital must reach. A payoff is named by the partition it is counted in.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from poscod._validation import Floats
from poscod.monitor._bets import Laws, above, unexplained
from poscod.monitor._findings import SEQUENTIAL
from poscod.monitor._reference import Reference
from poscod.monitor._share import ood_shares, smooth
from poscod.selector import selective_risk_bound

# TPR and FPR must differ by this many standard errors for the second sample to be of use.
_DISTINCT = 4.0


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


def watches(reference: Reference, ood_limit: float, false_alarm: float) -> dict[str, Watch]:
    """Return what is bet on for every sequential finding."""
    share = false_alarm / (len(SEQUENTIAL) + (reference.prior.low < reference.prior.high))
    delta = alpha = share / 2.0
    # Only the lower end of pi_0 is used, by all: it may fail with the probability of one share.
    reference = replace(reference, prior=reference.prior_at(1.0 - 2.0 * share))
    payoffs = {
        "PSC001": {"ratio": _above_limit(reference, ood_limit, delta)},
        "PSC002": {"ratio": _acceptance(reference, delta)},
        "PSC003": {name: _sets(reference, name, delta / 2.0) for name in ("score", "risk")},
        "PSC004": {"label": _sets(reference, "label", delta)},
        "PSC005": {"labeled": _tpr(reference, delta)},
        "PSC006": {"loss": _selective_risk(reference, delta)},
    }
    return {code: Watch(payoffs[code], alpha) for code in SEQUENTIAL}


def laws_of(reference: Reference, partition: str) -> tuple[Laws, bool]:
    """Return what windows look like while nothing is wrong, and whether OOD inputs are known."""
    laws, low, rejected = _all_rejected(reference, partition), reference.prior.low, reference.rejected(partition)
    if reference.n_mixed and low > 0.0:
        u = reference.mixed_counts[partition] / reference.n_mixed
        r_p, r_u = (float(shares[rejected].sum()) for shares in (laws.p, u))
        error = math.sqrt(max(r_p * (1.0 - r_p), 0.5 / reference.n_id) / reference.n_id + 0.25 / reference.n_mixed)
        if r_u - r_p > _DISTINCT * error:
            return laws._replace(u=u, n_u=reference.n_mixed, eta_max=1.0 / low), True
    return laws, False


def _all_rejected(reference: Reference, partition: str) -> Laws:
    rejected = reference.rejected(partition)
    p = reference.id_counts[partition] / reference.n_id
    return Laws(p, rejected / max(1, rejected.sum()), reference.n_id, math.inf, 1.0)


def _above_limit(reference: Reference, limit: float, delta: float) -> list[Floats]:
    """Bet on more rejected than the limit explains, first if OOD inputs were all rejected: true whatever they are."""
    rejected = reference.rejected("ratio").astype(np.float64)
    payoffs = [above(_all_rejected(reference, "ratio"), rejected, limit, delta / 3.0)]
    laws, known = laws_of(reference, "ratio")
    if known:
        # At the lower end of pi_0 the limit is reached latest: that end data can certify.
        eta = limit * laws.eta_max
        payoffs += [above(laws, f, eta, delta / 3.0) for f in (rejected, _direction(reference, limit))]
    return payoffs


def _direction(reference: Reference, pi: float) -> Floats:
    """Return the weights of cells that tell pi from a little more pi best; bounded."""
    # Accepted and rejected rows of a bin count alike.
    sides = reference.id_counts["ratio"], reference.mixed_counts["ratio"]
    known, mixed = (counts.reshape(2, -1).sum(axis=0) for counts in sides)
    p, q = smooth(known), ood_shares(known, mixed, reference.prior.estimate)
    pi = min(max(pi, 0.05), 0.5)
    return np.tile((q - p) / ((1.0 - pi) * p + pi * q), 2)


def _acceptance(reference: Reference, delta: float) -> list[Floats]:
    """More accepted than ID alone; or another acceptance than the likelihood ratios of the inputs let expect."""
    laws, known = laws_of(reference, "ratio")
    rejected = reference.rejected("ratio").astype(np.float64)
    payoffs = [above(laws, -rejected, 0.0, delta / 3.0)]
    if known:
        direction = _direction(reference, reference.prior.estimate)
        error = math.sqrt(laws.p @ direction**2 / laws.n_p + laws.u @ direction**2 / laws.n_u)
        if (laws.u - laws.p) @ direction > _DISTINCT * error:
            payoffs += [unexplained(laws, sign * rejected, direction, delta / 3.0) for sign in (1.0, -1.0)]
    return payoffs


def _sets(reference: Reference, partition: str, delta: float) -> list[Floats]:
    """Bet on accepted rows of each class, or up to each edge: more or fewer than the share accepted lets expect."""
    laws, _ = laws_of(reference, partition)
    rejected = reference.rejected(partition)
    single = np.eye(len(rejected))[~rejected][:-1]
    sets = single if partition == "label" else np.cumsum(single, axis=0)
    share = delta / max(1, 2 * len(sets))
    control = rejected.astype(np.float64)
    return [unexplained(laws, sign * chosen, control, share) for chosen in sets for sign in (1.0, -1.0)]


def _tpr(reference: Reference, delta: float) -> list[Floats]:
    """Labeled ID rows rejected, more than promised and more than calibration could have missed."""
    low = reference.tpr(1.0 - 2.0 * delta).low
    promised = low if reference.tpr_promised is None else min(reference.tpr_promised, low)
    return [np.array([-(1.0 - promised), promised, 0.0, 0.0])] if promised > 0.0 else []


def _selective_risk(reference: Reference, delta: float) -> list[Floats]:
    """Losses of accepted ID rows, larger on average than the upper bound that calibration gives."""
    losses = np.repeat(list(reference.loss_counts), list(reference.loss_counts.values()))
    top, values = float(reference.loss_matrix.max()), np.unique(reference.loss_matrix)
    limit = float(selective_risk_bound(losses, delta=delta, loss_max=None if reference.loss == "zero_one" else top))
    return [(values - limit) / limit] if 0.0 < limit < top else []
