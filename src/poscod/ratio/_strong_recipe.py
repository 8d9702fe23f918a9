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
from scipy.special import logsumexp

from poscod._validation import Floats
from poscod.exceptions import warn_caller
from poscod.ratio._crossfit import CrossFit, Table, cross_fit, recalibrate, start_from
from poscod.ratio._design import Design, Scaler, fit_scaler
from poscod.ratio._likelihood import Fit, fit_likelihood
from poscod.ratio._prior import PRIORS, Acceptance, acceptance, gate_p_value, rows_to_notice
from poscod.ratio._ratio import NoOODEvidenceWarning
from poscod.ratio._representation import Representation
from poscod.ratio._rows import Rows, content_folds, number_copies, row_hash

# Effect size of the ID-only start: a shift of 1.5 standard deviations of the consensus, AUROC .86 for a normal score.
TILT = 1.5
# Weights of candidates are exp(-TEMPER * excess loss): flatter than Bayes, because fold models are correlated.
TEMPER = 0.3
EVIDENCE_L2 = (1e-1, 1e-2, 1e-3, 1e-4)
FEATURE_L2 = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
# A path stops when its candidates can no longer get a weight above exp(-TEMPER * STOP).
STOP = 30.0
# Penalties of the evidence, best first, that get a path over the penalty of the features.
PATHS = 3
# Candidates are searched on no more rows per side, and numbers in the matrix, than these; prior and final fit use all.
SEARCH_ROWS = 20000
SEARCH_NUMBERS = 4_000_000
# With fewer distinct ID rows than this, and values that both sides have, copies are no accident of the data but its nature.
DISTINCT_SHARE, SHARED_SHARE = 0.5, 0.02
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


@dataclass(frozen=True)
class Start:
    """Where candidates grow from: the ID-only rule, or g = 1; ``u = tilt * consensus + constant``."""

    tilt: float
    constant: float


@dataclass(frozen=True)
class Blend:
    """A weighted mean of candidates, which is again linear: ``u = tilt * consensus + theta^T columns + intercept``."""

    tilt: float
    theta: Floats
    intercept: float
    u: Floats
    weights: dict[str, float]
    best: CrossFit
    best_start: Start


class _Sample:
    """Both sides with evidence, sorted by fold: the part that candidates are searched on, and the rest; weights sum to one together."""

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
        self.log_norm = float(logsumexp(TILT * self.consensus[0], b=weights[0] / weights[0].sum()))
        limit = max(1000, min(SEARCH_ROWS, SEARCH_NUMBERS // (2 * sides[0].features.shape[1])))
        self.rest = [np.sort(order[limit:]) for order in orders]
        self._set_table([order[:limit] for order in orders], n_folds)

    def _set_table(self, keep: list[NDArray[Any]], n_folds: int) -> None:
        """Make the table to search on and keep, for each of its rows, side, row number and consensus."""
        fold = np.concatenate([self.folds[i][keep[i]] for i in (0, 1)])
        order = np.argsort(fold, kind="stable")
        self.side = np.repeat([0, 1], [len(rows) for rows in keep])[order]
        self.row = np.concatenate(keep)[order]
        self.table_consensus = np.concatenate([self.consensus[i][keep[i]] for i in (0, 1)])[order]
        matrix = np.concatenate([self.columns(i, keep[i]) for i in (0, 1)])
        # A part stands for its side: pi_U stays what it is.
        weight = np.concatenate(
            [self.weights[i][keep[i]] * (self.weights[i].sum() / self.weights[i][keep[i]].sum()) for i in (0, 1)]
        )
        borders = np.searchsorted(fold[order], np.arange(n_folds + 1))
        self.table = Table(matrix[order], self.side == 1, weight[order], borders)

    def columns(self, side: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Return [consensus | evidence | features] of some training rows."""
        part = self.sides[side][rows]
        return _columns(part, self.evidence[side][rows], self.consensus[side][rows], self.scaler)

    def search(
        self, pi: float, evidence_l2: tuple[float, ...] = EVIDENCE_L2, feature_l2: tuple[float, ...] = FEATURE_L2
    ) -> Blend:
        """Fit candidates from the ID-only rule to features and evidence, and blend them by held-out likelihood."""
        table, n_evidence = self.table, len(self.representation.names)
        n, columns = table.matrix.shape
        null = table.log_odds_u + float(np.log(pi))
        starts = {True: Start(TILT, null - self.log_norm), False: Start(0.0, null)}
        offset = {key: start.tilt * self.table_consensus + start.constant for key, start in starts.items()}
        found: dict[str, tuple[Start, CrossFit]] = {}
        # One unit of prior standard deviation around the ID-only tilt, in units of the mean loss.
        tilt_l2 = np.array([1.0 / n])

        def add(name: str, informed: bool, l2: Floats, warm: CrossFit) -> CrossFit:
            fit = cross_fit(table, l2, pi, offset[informed], warm)
            found[name] = (starts[informed], fit)
            return fit

        def path(name: str, informed: bool, lead: Floats, warm: CrossFit) -> None:
            """Let the features in, from a strong penalty to a weak one, until held-out rows have had enough."""
            for l2 in feature_l2:
                before = warm.loss
                penalty = np.r_[lead, np.full(columns - 1 - n_evidence, l2)]
                warm = add(f"{name}features {l2:g}", informed, penalty, warm)
                if warm.loss > max(before, min(fit.loss for _, fit in found.values()) + STOP):
                    break

        warm = start_from(table, pi, offset[True], 0)
        found["id_only"] = (starts[True], warm)
        warm = add("consensus", True, tilt_l2, warm)
        scores: dict[float, CrossFit] = {}
        for l2 in evidence_l2:
            scores[l2] = warm = add(f"evidence {l2:g}", True, np.r_[tilt_l2, np.full(n_evidence, l2)], warm)
        # The best penalties of the evidence, each with a path over the penalty of the features.
        for l2 in sorted(scores, key=lambda key: scores[key].loss)[:PATHS]:
            path(f"evidence {l2:g}, ", True, scores[l2].l2, scores[l2])
        # And without any evidence, for data on which distance from ID rows says nothing.
        path("", False, np.zeros(0), start_from(table, pi, offset[False], 1 + n_evidence))
        return _blend(found, columns)

    def scores(self, blend: Blend | None) -> list[Floats]:
        """Return the out-of-sample score of every row of both sides; None scores by consensus."""
        scores = [np.array(values) for values in self.consensus]
        if blend is not None:
            for i in (0, 1):
                inside = self.side == i
                scores[i][self.row[inside]] = blend.u[inside]
                for start in range(0, len(self.rest[i]), BLOCK_ROWS):
                    rows = self.rest[i][start : start + BLOCK_ROWS]
                    block = self.columns(i, rows)
                    u = block @ blend.theta.astype(block.dtype)
                    scores[i][rows] = u + blend.tilt * self.consensus[i][rows] + blend.intercept
        return scores

    def acceptance(self, blend: Blend | None, kappa: float = 1.0) -> Acceptance:
        """Return T and A of the out-of-sample score over all rows."""
        score_id, score_u = self.scores(blend)
        return acceptance(kappa * score_id, kappa * score_u, *self.weights)

    def p_value(self, blend: Blend, seed: int) -> float:
        """Test pi = 0 with the consensus and with the fitted score."""
        # Copies of a row are one observation: counted apart they would make chance look like evidence.
        first = np.concatenate(self.first)
        unlabeled = np.repeat([False, True], [len(rows) for rows in self.sides])[first]
        both = [np.concatenate(values)[first] for values in (self.consensus, self.scores(blend))]
        folds, weights = np.concatenate(self.folds)[first], np.concatenate(self.weights)[first]
        return gate_p_value(both, unlabeled, folds, weights, seed=seed)

    def refit(self, blend: Blend, pi: float) -> Blend:
        """Fit the best candidate once more, alone, on all rows, block by block: so many rows need no averaging."""
        best, start = blend.best, blend.best_start
        if not len(best.l2):
            return blend
        last, dtype = best.first + len(best.l2), self.sides[0].features.dtype
        parts: list[tuple[NDArray[Any], ...]] = []
        for rows, consensus, evidence in zip(self.sides, self.consensus, self.evidence, strict=True):
            head = np.concatenate([consensus[:, None], evidence], axis=1, dtype=dtype)[:, best.first : last]
            parts.append((head, rows.features) if last > 1 + evidence.shape[1] else (head,))
        width = parts[0][0].shape[1]
        design = Design(parts, (Scaler(np.zeros(width), np.ones(width)), self.scaler)[: len(parts[0])])
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
    sides: tuple[Rows, Rows],
    weights: tuple[Floats, Floats],
    *,
    prior: str,
    pi: float | None,
    n_folds: int,
    gate_level: float | None,
    seed: int,
) -> StrongFit:
    """Fit the strong recipe."""
    sample = _Sample(sides, weights, n_folds, seed)
    table, representation, estimate = sample.table, sample.representation, PRIORS[prior]
    if pi is None:  # prior and ratio in turns: a short search for a score, the prior from it, then the full search
        first = float(np.clip(estimate(sample.acceptance(None)), 0.01, 0.9))
        short = sample.search(first, EVIDENCE_L2[1:3], FEATURE_L2[1::2])
        pi = float(np.clip(estimate(sample.acceptance(short)), 1e-3, 0.999))
    blend = sample.search(pi)
    p_value = 0.0
    if gate_level is not None:
        p_value = sample.p_value(blend, seed)
        if p_value > gate_level:
            _warn_closed(p_value, min(len(rows) for rows in sides))
            ratio = StrongRatio(representation, sample.scaler, TILT, np.zeros(table.matrix.shape[1]), -sample.log_norm)
            return StrongFit(ratio, 0.0, p_value, sample.acceptance(None), {"id_only": 1.0})
    kappa, shift = recalibrate(blend.u, table, pi)
    curve = sample.acceptance(blend, kappa)
    if any(len(rest) for rest in sample.rest):
        # With all rows the penalty no longer shrinks the scale: what was learned on part of them needs no stretching.
        blend, kappa, shift = sample.refit(blend, pi), 1.0, 0.0
    intercept = kappa * blend.intercept + shift - table.log_odds_u - float(np.log(pi))
    ratio = StrongRatio(representation, sample.scaler, kappa * blend.tilt, kappa * blend.theta, intercept)
    return StrongFit(ratio, pi, p_value, curve, blend.weights)


def _blend(found: dict[str, tuple[Start, CrossFit]], columns: int) -> Blend:
    """Average candidates with weights from their held-out loss; every family starts with the same weight."""
    loss = np.array([fit.loss for _, fit in found.values()])
    weight = np.exp(-TEMPER * (loss - loss.min()))
    # Columns used, and whether from the ID-only start: a long path must not win by its number of candidates.
    family = [(start.tilt > 0.0, len(fit.l2)) for start, fit in found.values()]
    weight /= np.array([family.count(member) for member in family])
    weight /= weight.sum()
    theta = np.zeros(columns)
    tilt, intercept = 0.0, 0.0
    u = np.zeros(len(next(iter(found.values()))[1].u))
    for share, (start, fit) in zip(weight.tolist(), found.values(), strict=True):
        mean = fit.theta
        theta[fit.first : fit.first + len(mean)] += share * mean
        tilt += share * start.tilt
        intercept += share * (fit.intercept + start.constant)
        u += share * fit.u
    best_start, best = list(found.values())[int(loss.argmin())]
    return Blend(tilt, theta, intercept, u, dict(zip(found, weight.tolist(), strict=True)), best, best_start)


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


def _warn_closed(p_value: float, rows: int) -> None:
    shares = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    # The first share that so many rows per side could show, and the last one that they could not.
    k = next((i for i, pi in enumerate(shares[1:-1], 1) if rows_to_notice(pi) <= rows), len(shares) - 1)
    warn_caller(
        NoOODEvidenceWarning(
            "{X_unlabeled} cannot be told from {X_id} (p = {p_value:.2f}), so log_ratio is the ID-only rule and {ood_prior_} is 0: {rows} rows "
            "per side show at best an OOD share of {share:g}; a share of {smaller:g} needs at least {needed} rows on both sides.",
            p_value=p_value,
            rows=rows,
            share=shares[k],
            smaller=shares[k - 1],
            needed=rows_to_notice(shares[k - 1]),
        )
    )
