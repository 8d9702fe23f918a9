# SPDX-License-Identifier: BSD-3-Clause
"""The strong recipe: prior apart, rich representation, candidates weighed by held-out likelihood, and a gate.

Convention: ``log g = kappa * u + shift - log(pi_U / (1 - pi_U)) - log pi`` with u linear in ``[consensus | evidence |
features]`` around an ID-only start; when the mixture shows no OOD rows, ``log g`` is the ID-only rule
``tilt * consensus - log E_ID exp(tilt * consensus)``, which needs no mixture and has E_ID[g] = 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.exceptions import warn_caller
from poscod.ratio._broad import broad_share, with_broad
from poscod.ratio._crossfit import recalibrate
from poscod.ratio._design import Scaler
from poscod.ratio._prior import CERTIFIED, PRIORS, Acceptance, rows_to_notice, scott
from poscod.ratio._ratio import NoOODEvidenceWarning
from poscod.ratio._representation import Representation
from poscod.ratio._rows import Rows, said_of
from poscod.ratio._search import TILT, TREES, Sample, design_columns
from poscod.ratio._trees import Trees


@dataclass(frozen=True)
class StrongRatio:
    """log g of the strong recipe: ``tilt * consensus + theta^T [consensus | evidence | features] + intercept``, and trees on these columns if they count.

    What decides has a broad part beside it, the ID-only rule: ``(1 - broad) g + broad exp(TILT * consensus - log_norm)``.
    """

    representation: Representation
    scaler: Scaler
    tilt: float
    theta: Floats
    intercept: float
    trees: Trees | None = None
    broad: float = 0.0
    log_norm: float = 0.0

    def __call__(self, rows: Rows, *, deciding: bool = False) -> Floats:
        """Return log g of some rows, as it was learned or as it decides."""
        evidence, consensus = self.representation.new(rows)
        out = self.tilt * consensus + self.intercept
        if self.theta.any() or self.trees is not None:
            matrix = design_columns(rows, evidence, consensus, self.scaler)
            out += matrix @ self.theta.astype(matrix.dtype)
            if self.trees is not None:
                out += self.trees(matrix)
        share = self.broad if deciding else 0.0
        return with_broad(np.asarray(out, dtype=np.float64), TILT * consensus - self.log_norm, share)


@dataclass(frozen=True)
class StrongFit:
    """What the strong recipe learned, and log g of the rows it learned from, each by parts that have not seen it: as learned, and as it decides."""

    ratio: StrongRatio
    pi: float
    p_value: float
    acceptance: Acceptance
    weights: dict[str, float]
    own: tuple[Floats, Floats]
    deciding: tuple[Floats, Floats]
    estimated: float


def fit_strong(
    sides: tuple[Rows, Rows],
    weights: tuple[Floats, Floats],
    *,
    prior: str,
    pi: float | None,
    n_folds: int,
    gate_level: float | None,
    seed: int,
    folds: tuple[NDArray[Any], NDArray[Any]] | None = None,
    broad: float | None = None,
) -> StrongFit:
    """Fit the strong recipe; without folds they are dealt out by content, and without a share of the broad part it is chosen."""
    sample = Sample(sides, weights, folds, n_folds, seed)
    table, representation, estimate = sample.table, sample.representation, PRIORS[prior]
    # Prior and ratio in turns: a search for a score, the prior from it, then what counts once more.
    first = sample.first_prior(estimate) if pi is None else pi
    blend = sample.search(first)
    p_value = 0.0 if gate_level is None else sample.p_value(blend, seed)
    if gate_level is not None and p_value > gate_level:
        _warn_closed(p_value, min(len(rows) for rows in sides), sample.look is not None)
        width = 1 + len(representation.names) + sides[0].features.shape[1]
        ratio = StrongRatio(representation, sample.scaler, TILT, np.zeros(width), -sample.log_norm)
        own = sample.id_only
        return StrongFit(ratio, 0.0, p_value, sample.curve(sample.consensus), {"id_only": 1.0}, own, own, 0.0)
    known = pi is not None
    if pi is None:
        found = sample.prior(estimate, sample.scores(blend), trees=blend.trees is not None)
        pi = float(np.clip(found, 1e-3, 0.999))
        blend = sample.again(blend, pi)
    scores, estimated = sample.scores(blend), pi
    kappa, shift = recalibrate(blend.u, table, pi)
    curve, trees = sample.curve([kappa * values for values in scores]), blend.trees is not None
    if any(len(rest) for rest in sample.rest) and blend.best is not blend.found.get(TREES):
        # With all rows the penalty no longer shrinks the scale: what was learned on part of them needs no stretching.
        (blend, scores), kappa, shift = sample.refit(blend, pi), 1.0, 0.0
    if not known:
        # What was learned is pi g, whatever pi is. With trees the bound is a part of the estimate.
        pi = max(pi, scott(curve, delta=CERTIFIED))
        estimated = pi if trees else estimated
    constant = shift - table.log_odds_u - float(np.log(pi))
    learned = kappa * scores[0] + constant, kappa * scores[1] + constant
    broad = broad_share(learned, sample.id_only, weights, pi, said_of(*sides)) if broad is None else broad
    linear = kappa * blend.tilt, kappa * sample.theta(blend), kappa * blend.intercept + constant
    grown = None if blend.trees is None else replace(blend.trees, weight=kappa * blend.trees.weight)
    ratio = StrongRatio(representation, sample.scaler, *linear, grown, broad, sample.log_norm)
    deciding = (with_broad(one, other, broad) for one, other in zip(learned, sample.id_only, strict=True))
    return StrongFit(ratio, pi, p_value, curve, blend.weights, learned, (next(deciding), next(deciding)), estimated)


def _warn_closed(p_value: float, rows: int, trees: bool) -> None:
    shares = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    # The first share that so many rows per side could show, and the last one that they could not.
    k = next((i for i, pi in enumerate(shares[1:-1], 1) if rows_to_notice(pi) <= rows), len(shares) - 1)
    warn_caller(
        NoOODEvidenceWarning(
            "{X_unlabeled} cannot be told from {X_id} by {tested} (p = {p_value:.2f}), so log_ratio is the ID-only rule and {ood_prior_} is 0: {rows} rows "
            "per side show at best an OOD share of {share:g}; a share of {smaller:g} needs at least {needed} rows on both sides.",
            tested="distance from ID rows, a linear score or boosted trees"
            if trees
            else "distance from ID rows or a linear score",
            p_value=p_value,
            rows=rows,
            share=shares[k],
            smaller=shares[k - 1],
            needed=rows_to_notice(shares[k - 1]),
        )
    )
