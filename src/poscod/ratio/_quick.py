# SPDX-License-Identifier: BSD-3-Clause
"""A quick ratio, for those who need one to go on from: the strong recipe with few candidates.

Convention: log g is out of sample on both sides. Where nothing shows that there are OOD rows, pi is 0 and log g is -inf.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._threads import one_thread
from poscod._validation import Floats
from poscod.ratio._crossfit import recalibrate
from poscod.ratio._prior import mean_prior
from poscod.ratio._rows import as_rows, pair_weights
from poscod.ratio._search import Sample

FOLDS, PERMUTATIONS = 5, 99


class Quick(NamedTuple):
    """A first answer.

    Attributes
    ----------
    pi : float
        The OOD prior.
    known, traffic : ndarray
        log g of the ID rows and of the unlabeled ones.
    """

    pi: float
    known: Floats
    traffic: Floats


def quick_ratio(
    X_id: Any,
    X_unlabeled: Any,
    weight_id: Floats | None,
    weight_u: Floats | None,
    folds: tuple[NDArray[Any], NDArray[Any]] | None = None,
    *,
    level: float = 0.05,
    seed: int = 0,
) -> Quick | None:
    """Fit few candidates behind the gate; None where rows are too few."""
    sides = as_rows(X_id, "X_id"), as_rows(X_unlabeled, "X_unlabeled")
    n_folds = FOLDS if folds is None else int(folds[0].max()) + 1
    if min(map(len, sides)) < 4 * n_folds:
        return None
    weights = pair_weights(weight_id, weight_u, len(sides[0]), len(sides[1]))
    with one_thread("blas"):
        sample = Sample(sides, weights, folds, n_folds, seed)
        blend = sample.search(sample.first_prior(mean_prior), quick=True)
        if sample.p_value(blend, seed, PERMUTATIONS) > level:
            return Quick(0.0, *(np.full(len(rows), -np.inf) for rows in sides))
        scores = sample.scores(blend)
        pi = float(np.clip(sample.prior(mean_prior, scores, trees=blend.trees is not None), 1e-3, 0.999))
        kappa, shift = recalibrate(blend.u, sample.table, pi)
        constant = shift - sample.table.log_odds_u - float(np.log(pi))
        return Quick(pi, *(kappa * side + constant for side in scores))
