# SPDX-License-Identifier: BSD-3-Clause
"""Fit of the strong recipe: representation, gate, prior, search, recalibration, and what is kept of it.

Convention: a `StrongRatio` maps rows to log g, a `StrongFit` holds what a reader of the fit wants to know besides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.exceptions import warn_caller
from poscod.ratio._crossfit import Table
from poscod.ratio._design import Design, Scaler, fit_scaler
from poscod.ratio._likelihood import Fit, fit_likelihood
from poscod.ratio._prior import PRIORS, Acceptance, acceptance, gate_p_value, rows_to_notice
from poscod.ratio._representation import Representation
from poscod.ratio._rows import Rows, content_folds, number_copies, row_hash
from poscod.ratio._strong import TILT, Blend, estimate_and_search, log_mean_exp, recalibrate
from poscod.ratio._warnings import NoOODEvidenceWarning

# Candidates are searched on no more rows per side, and numbers in the matrix, than these; prior and final fit use all.
SEARCH_ROWS = 20000
# With fewer distinct ID rows than this, and values that both sides have, copies are no accident of the data but its nature.
DISTINCT_SHARE, SHARED_SHARE = 0.5, 0.02
SEARCH_NUMBERS = 4_000_000
BLOCK_ROWS = 16384


@dataclass(frozen=True)
class StrongRatio:
    """log g of the strong recipe: ``tilt * consensus + theta^T [consensus | evidence | features] + intercept``."""

    representation: Representation
    scaler: Scaler
    tilt: float
    theta: Floats
    intercept: float

    def __call__(self, rows: Rows) -> Floats:
        """Return log g of some rows."""
        evidence, consensus = self.representation.new(rows)
        out = self.tilt * consensus + self.intercept
        if self.theta.any():
            matrix = _columns(rows, evidence, consensus, self.scaler)
            out += matrix @ self.theta.astype(matrix.dtype)
        return np.asarray(out, dtype=np.float64)


@dataclass(frozen=True)
class StrongFit:
    """What the strong recipe learned."""

    ratio: StrongRatio
    pi: float
    p_value: float
    acceptance: Acceptance
    weights: dict[str, float]


class _Sample:
    """Both sides with evidence, sorted by fold: the part that candidates are searched on, and the rest.

    Parameters
    ----------
    sides : tuple of Rows
        ID and unlabelled rows.
    weights : tuple of ndarray
        Sum to one together.
    n_folds, seed : int
    """

    def __init__(self, sides: tuple[Rows, Rows], weights: tuple[Floats, Floats], n_folds: int, seed: int) -> None:
        self.sides, self.weights = sides, weights
        hashes = row_hash(sides[0].features, seed), row_hash(sides[1].features, seed)
        few = len(np.unique(hashes[0])) < DISTINCT_SHARE * len(hashes[0])
        if few and np.isin(hashes[1], hashes[0]).mean() > SHARED_SHARE:
            # Discrete rows: equal ones are separate observations, and how often they occur is what there is to learn.
            hashes = number_copies(hashes[0]), number_copies(hashes[1])
        self.first = [_first_of_copies(values) for values in hashes]
        self.folds = content_folds(hashes[0], hashes[1], n_folds)
        orders = [np.argsort(values, kind="stable") for values in hashes]
        self.representation = Representation(sides[0], orders[0], self.folds[0], n_folds, weights[0])
        self.scaler = fit_scaler([rows.features for rows in sides], list(weights))
        self.evidence, self.consensus = zip(
            *(self.representation.training(rows, fold) for rows, fold in zip(sides, self.folds, strict=True)),
            strict=True,
        )
        self.log_norm = log_mean_exp(TILT * self.consensus[0], weights[0])
        limit = max(1000, min(SEARCH_ROWS, SEARCH_NUMBERS // (2 * sides[0].features.shape[1])))
        self.rest = [np.sort(order[limit:]) for order in orders]
        self.table, self.place = self._table([order[:limit] for order in orders], n_folds)

    def _table(self, keep: list[NDArray[Any]], n_folds: int) -> tuple[Table, tuple[NDArray[Any], NDArray[Any]]]:
        """Return the table to search on and, for each of its rows, side and row number."""
        side = np.repeat([0, 1], [len(rows) for rows in keep])
        row = np.concatenate(keep)
        fold = np.concatenate([self.folds[i][keep[i]] for i in (0, 1)])
        matrix = np.concatenate([self.columns(i, keep[i]) for i in (0, 1)])
        # A part stands for its side: pi_U stays what it is.
        weight = np.concatenate(
            [self.weights[i][keep[i]] * (self.weights[i].sum() / self.weights[i][keep[i]].sum()) for i in (0, 1)]
        )
        order = np.argsort(fold, kind="stable")
        borders = np.searchsorted(fold[order], np.arange(n_folds + 1))
        return Table(matrix[order], side[order] == 1, weight[order], borders), (side[order], row[order])

    def columns(self, side: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Return [consensus | evidence | features] of some training rows."""
        part = self.sides[side][rows]
        return _columns(part, self.evidence[side][rows], self.consensus[side][rows], self.scaler)

    def all_rows(self, blend: Blend | None) -> tuple[list[Floats], list[Floats]]:
        """Return the out-of-sample score of every row, and its consensus, side by side; None scores by consensus."""
        scores = [np.array(values) for values in self.consensus]
        if blend is not None:
            for i in (0, 1):
                inside = self.place[0] == i
                scores[i][self.place[1][inside]] = blend.u[inside]
                for start in range(0, len(self.rest[i]), BLOCK_ROWS):
                    rows = self.rest[i][start : start + BLOCK_ROWS]
                    block = self.columns(i, rows)
                    u = block @ blend.theta.astype(block.dtype)
                    scores[i][rows] = u + blend.tilt * self.consensus[i][rows] + blend.intercept
        return scores, list(self.consensus)

    def acceptance(self, blend: Blend | None, kappa: float = 1.0) -> Acceptance:
        """Return T and A of the out-of-sample score over all rows."""
        scores, _ = self.all_rows(blend)
        return acceptance(kappa * scores[0], kappa * scores[1], *self.weights)

    def p_value(self, blend: Blend, seed: int) -> float:
        """Test pi = 0 with the consensus and with the fitted score."""
        scores, consensus = self.all_rows(blend)
        unlabeled = np.repeat([False, True], [len(values) for values in scores])
        # Copies of a row are one observation: counted apart they would make chance look like evidence.
        first = np.concatenate(self.first)
        both = [np.concatenate(consensus)[first], np.concatenate(scores)[first]]
        folds, weights = np.concatenate(self.folds)[first], np.concatenate(self.weights)[first]
        return gate_p_value(both, unlabeled[first], folds, weights, seed=seed)

    def refit(self, blend: Blend, pi: float) -> Blend:
        """Fit the best candidate once more, alone, on all rows, block by block: so many rows need no averaging."""
        best, start = blend.best, blend.best_start
        if not len(best.l2):
            return blend
        last, width = best.first + len(best.l2), 1 + len(self.representation.names)
        dtype = self.sides[0].features.dtype
        parts: list[tuple[NDArray[Any], ...]] = []
        for rows, consensus, evidence in zip(self.sides, self.consensus, self.evidence, strict=True):
            head = np.concatenate([consensus[:, None], evidence], axis=1, dtype=dtype)[:, best.first : last]
            groups = (head, rows.features) if last > width else (head,)
            parts.append(groups[1:] if best.first >= width else groups)
        plain = Scaler(np.zeros(width), np.ones(width))
        scalers = (Scaler(plain.mean[best.first : last], plain.scale[best.first : last]), self.scaler)
        design = Design(parts, scalers[1:] if best.first >= width else scalers[: len(parts[0])])
        fit = fit_likelihood(
            design,
            np.repeat([False, True], [len(rows) for rows in self.sides]),
            np.concatenate(self.weights),
            # A penalty of the mean loss stands for 1 / n of prior knowledge: more rows, less penalty.
            best.l2 * (len(self.table.weight) / design.n_rows),
            pi=pi,
            warm=Fit(best.theta, best.intercept, pi, np.inf),
            offset=start.tilt * np.concatenate(self.consensus) + start.constant,
            max_iter=60,
        )
        theta = np.zeros(len(blend.theta))
        theta[best.first : last] = fit.theta
        return replace(blend, tilt=start.tilt, theta=theta, intercept=fit.intercept + start.constant)


def fit_strong(
    rows_id: Rows,
    rows_u: Rows,
    weight_id: Floats,
    weight_u: Floats,
    *,
    prior: str,
    pi: float | None,
    n_folds: int,
    gate_level: float | None,
    seed: int,
) -> StrongFit:
    """Fit the strong recipe."""
    sample = _Sample((rows_id, rows_u), (weight_id, weight_u), n_folds, seed)
    table, representation = sample.table, sample.representation
    consensus = np.empty(len(table.weight))
    for i in (0, 1):
        inside = sample.place[0] == i
        consensus[inside] = sample.consensus[i][sample.place[1][inside]]
    share, blend = estimate_and_search(
        table,
        len(representation.names),
        consensus,
        sample.log_norm,
        lambda found: PRIORS[prior](sample.acceptance(found)),
        pi=pi,
    )
    p_value = 0.0
    if gate_level is not None:
        p_value = sample.p_value(blend, seed)
        if p_value > gate_level:
            _warn_closed(p_value, len(rows_id), len(rows_u))
            ratio = StrongRatio(representation, sample.scaler, TILT, np.zeros(table.matrix.shape[1]), -sample.log_norm)
            return StrongFit(ratio, 0.0, p_value, sample.acceptance(None), {"id_only": 1.0})
    kappa, shift = recalibrate(blend.u, table, share)
    curve = sample.acceptance(blend, kappa)
    if any(len(rest) for rest in sample.rest):
        # With all rows the penalty no longer shrinks the scale: what was learned on part of them needs no stretching.
        blend, kappa, shift = sample.refit(blend, share), 1.0, 0.0
    intercept = kappa * blend.intercept + shift - table.log_odds_u - float(np.log(share))
    ratio = StrongRatio(representation, sample.scaler, kappa * blend.tilt, kappa * blend.theta, intercept)
    return StrongFit(ratio, share, p_value, curve, blend.weights)


def _first_of_copies(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark one row of each set of equal rows."""
    mask = np.zeros(len(values), dtype=bool)
    mask[np.unique(values, return_index=True)[1]] = True
    return mask


def _columns(rows: Rows, evidence: Floats, consensus: Floats, scaler: Scaler) -> NDArray[Any]:
    """Return [consensus | evidence | features] in the dtype of the features."""
    features = np.asarray(rows.features)
    parts = [consensus[:, None], evidence, scaler.transform(features)]
    return np.concatenate(parts, axis=1, dtype=features.dtype)


def _warn_closed(p_value: float, n_id: int, n_u: int) -> None:
    shares = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    # The first share that these rows could show, and the last one that they could not.
    k = next((i for i, pi in enumerate(shares[1:-1], 1) if rows_to_notice(pi) <= min(n_id, n_u)), len(shares) - 1)
    warn_caller(
        NoOODEvidenceWarning(
            "{X_unlabeled} cannot be told from {X_id} (p = {p_value:.2f}), so log_ratio is the ID-only rule and {ood_prior_} is 0: {rows} rows "
            "per side show at best an OOD share of {share:g}; a share of {smaller:g} needs at least {needed} rows on both sides.",
            p_value=p_value,
            rows=min(n_id, n_u),
            share=shares[k],
            smaller=shares[k - 1],
            needed=rows_to_notice(shares[k - 1]),
        )
    )
