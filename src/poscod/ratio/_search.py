# SPDX-License-Identifier: BSD-3-Clause
"""The search of the strong recipe: candidates for log g on both sides of a fit, weighed by held-out likelihood.

Convention: candidates grow from an ID-only start along ``[consensus | evidence | features]``, every row is scored by the fit without its fold, and their weighted mean is
again linear. The one candidate that is not, trees, is looked at first and grown where that promises something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from poscod._validation import Floats
from poscod.ratio._crossfit import (
    CrossFit,
    InMemory,
    Table,
    cross_fit,
    held_out_losses,
    recalibrate,
    start_from,
)
from poscod.ratio._design import Design, Scaler, fit_scaler
from poscod.ratio._evidence import FARTHEST, axes_of_rows
from poscod.ratio._gate import gate_p_value
from poscod.ratio._likelihood import log_a
from poscod.ratio._prior import CERTIFIED, Acceptance, acceptance, scott
from poscod.ratio._representation import represent
from poscod.ratio._rows import Rows, content_folds, independent_rows, observations, one_of_each, row_hash, said_of
from poscod.ratio._trees import FULL, LEAST, LOOK, LOOK_ROWS, NEAREST_ROW, SEEN, WIDEST, Grower, Grown, Trees, excess

# Effect size of the ID-only start: a shift of 1.5 standard deviations of the consensus, AUROC .86 for a normal score.
TILT = 1.5
# Weights of candidates are exp(-TEMPER * excess loss): flatter than Bayes, because fold models are correlated.
TEMPER = 0.3
EVIDENCE_L2 = (1e-1, 1e-2, 1e-3, 1e-4)
FEATURE_L2 = (1.0, 0.1, 0.01, 0.001, 0.0001)
# Penalties of a quick search.
QUICK_EVIDENCE, QUICK_FEATURES = (1e-2,), (0.1, 0.01, 0.001)
# A path stops where held-out rows are that much worse off than by the best candidate: from there on it follows noise.
STOP = 8.0
# Penalties of the evidence, best first, that are tried together with features.
PATHS = 3
# Candidates below this weight are left out when the prior is known better.
COUNTS = 0.01
# Candidates are searched on no more rows per side, and numbers in the matrix, than these; prior and final fit use all.
SEARCH_ROWS = 20000
SEARCH_NUMBERS = 3_000_000
BLOCK_ROWS = 16384
# Name of the candidate that is not linear, and what a first look at it must win in held-out likelihood: more than chance, and nearly what linear candidates do. A look
# learns from half of the rows at most, so that trees of all folds win more.
TREES, LEAST_GAIN, NEARLY = "trees", 4.0, 0.7
# Every decision pays for trees: below this weight they are left out.
WORTH = 0.2
# Share of ID rows among whom trees find no order but that of chance, which would show OOD rows where there are none.
ORDINARY = 0.9


@dataclass(frozen=True)
class Start:
    """Where candidates grow from: the ID-only rule, or g = 1; ``u = tilt * consensus + constant``."""

    tilt: float
    constant: float


@dataclass(frozen=True)
class Blend:
    """A weighted mean of candidates, which is again linear: ``u = tilt * consensus + theta^T columns + intercept``, and trees if they count."""

    tilt: float
    theta: Floats
    intercept: float
    u: Floats
    found: dict[str, tuple[Start, CrossFit]]
    weights: dict[str, float]
    trees: Trees | None = None

    @property
    def best(self) -> tuple[Start, CrossFit]:
        """The candidate with the smallest held-out loss."""
        return min(self.found.values(), key=lambda item: item[1].loss)


class Sample:
    """Both sides with evidence: the part that candidates are searched on, and the rest; weights sum to one together."""

    def __init__(
        self, sides: tuple[Rows, Rows], weights: tuple[Floats, Floats], folds: Any, n_folds: int, seed: int
    ) -> None:
        self.sides, self.weights, self.n_folds = sides, weights, n_folds
        content = observations(*(row_hash(rows.features, seed) for rows in sides))
        hashes = [own if rows.group is None else rows.group for rows, own in zip(sides, content, strict=True)]
        self.stand = [_stand_ins(*of) for of in zip(sides, content, weights, strict=True)]
        self.n = [independent_rows(weight, rows.group) for rows, weight in zip(sides, weights, strict=True)]
        self.folds = content_folds(hashes[0], hashes[1], n_folds) if folds is None else folds
        orders = [np.argsort(values, kind="stable") for values in hashes]
        self.representation, self.evidence, self.consensus = represent(
            sides, orders[0], self.folds, n_folds, weights[0]
        )
        self.scaler = fit_scaler([rows.features for rows in sides], list(weights))
        self.log_norm = float(logsumexp(TILT * self.consensus[0], b=weights[0] / weights[0].sum()))
        self.id_only = TILT * self.consensus[0] - self.log_norm, TILT * self.consensus[1] - self.log_norm
        limit = max(500, min(SEARCH_ROWS, SEARCH_NUMBERS // (2 * sides[0].features.shape[1])))
        self.keep = [order[:limit] for order in orders]
        self.rest = [np.sort(order[limit:]) for order in orders]
        matrix = np.concatenate([self.columns(i, self.keep[i]) for i in (0, 1)])
        self.turn: NDArray[Any] | None = None
        lead = 1 + len(self.representation.names)
        if len(matrix) < matrix.shape[1] - lead:
            # More columns than rows: a penalised fit stays in the span of the rows, so turn to it.
            _, axes = axes_of_rows(np.asarray(matrix[:, lead:], dtype=np.float64), len(matrix))
            self.turn = axes
            matrix = np.concatenate([matrix[:, :lead], matrix[:, lead:] @ axes.astype(matrix.dtype)], axis=1)
        # A part stands for its side: pi_U stays what it is.
        weight = [w[rows] * (w.sum() / w[rows].sum()) for w, rows in zip(weights, self.keep, strict=True)]
        fold = np.concatenate([self.folds[i][self.keep[i]] for i in (0, 1)])
        said = said_of(sides[0][self.keep[0]], sides[1][self.keep[1]])
        self.table = Table(InMemory(matrix), len(self.keep[0]), np.concatenate(weight), fold, n_folds, said)
        self.table_consensus = np.concatenate([self.consensus[i][self.keep[i]] for i in (0, 1)])
        self.look: Grown | None = None
        self.grown: Grown | None = None
        # Logits of a fold's classifier have seen the other folds; where there is nothing but them, trees see nothing.
        if sides[0].one_scale or sides[0].features is not sides[0].logits:
            known = [name for name in self.representation.names if name != NEAREST_ROW] if sides[0].one_scale else SEEN
            evidence = [1 + i for i, name in enumerate(self.representation.names) if name in known]
            # Columns of a network's layer are many, and made for linear evidence.
            wide = sides[0].one_scale or self.turn is not None or matrix.shape[1] > WIDEST
            seen = np.array([*evidence, *range(lead, lead if wide else matrix.shape[1])])
            self.grower = Grower(matrix, seen, self.table.n_id, self.table.weight)
            self.look = self.grower.grow(fold % 2, 2, LOOK, LOOK_ROWS)

    def columns(self, side: int, rows: NDArray[Any]) -> NDArray[Any]:
        """Return [consensus | evidence | features] of some training rows."""
        part = self.sides[side][rows]
        return design_columns(part, self.evidence[side][rows], self.consensus[side][rows], self.scaler)

    def _tree_fit(self, grown: Grown, pi: float) -> CrossFit:
        """Return the candidate that trees are with a prior."""
        u = excess(grown.own, log_a(pi, self.table.log_odds_u), LEAST * pi)
        kappa, shift = recalibrate(u, self.table, pi)
        own, raw = kappa * u + shift, float(held_out_losses(u, self.table, pi).sum())
        nothing = np.zeros((1, self.n_folds + 1))
        return CrossFit(nothing, own, held_out_losses(own, self.table, pi), np.zeros(0), 0, raw, kappa, shift)

    def search(self, pi: float, *, quick: bool = False) -> Blend:
        """Fit candidates from the ID-only rule to features and evidence, and blend them by held-out likelihood; few of them if quick."""
        table, n_evidence = self.table, len(self.representation.names)
        columns = table.design.n_columns
        starts, offset = self._starts(pi)
        found: dict[str, tuple[Start, CrossFit]] = {}
        # One unit of prior standard deviation around the ID-only tilt, in units of the mean loss.
        tilt_l2 = np.array([1.0 / len(table)])

        def add(name: str, informed: bool, l2: Floats, warm: CrossFit) -> CrossFit:
            fit = cross_fit(table, l2, pi, offset[informed], warm)
            found[name] = (starts[informed], fit)
            return fit

        def path(name: str, informed: bool, lead: Floats, warm: CrossFit) -> None:
            """Let the features in, from a strong penalty to a weak one, until held-out rows have had enough."""
            for l2 in QUICK_FEATURES if quick else FEATURE_L2:
                before = warm
                penalty = np.r_[lead, np.full(columns - 1 - n_evidence, l2)]
                warm = add(f"{name}features {l2:g}", informed, penalty, warm)
                tried = [fit for _, fit in found.values()]
                # With its own scale or with the best one: where a penalty helps neither, the next one helps less.
                if warm.loss > max(before.loss, min(fit.loss for fit in tried) + STOP):
                    break
                if warm.raw_loss > max(before.raw_loss, min(fit.raw_loss for fit in tried) + STOP):
                    break

        warm = start_from(table, pi, offset[True], 0)
        found["id_only"] = (starts[True], warm)
        warm = add("consensus", True, tilt_l2, warm)
        scores: dict[float, CrossFit] = {}
        for l2 in QUICK_EVIDENCE if quick else EVIDENCE_L2:
            scores[l2] = warm = add(f"evidence {l2:g}", True, np.r_[tilt_l2, np.full(n_evidence, l2)], warm)
        # The best penalty of the evidence gets a path over the penalty of the features; the next best ones are tried where it did well.
        best, *others = sorted(scores, key=lambda key: scores[key].loss)[:PATHS]
        path(f"evidence {best:g}, ", True, scores[best].l2, scores[best])
        ahead = min(fit.loss for _, fit in found.values()) + STOP
        for l2 in () if quick else FEATURE_L2:
            tried = found.get(f"evidence {best:g}, features {l2:g}")
            if tried is None or tried[1].loss > ahead:
                continue
            for other in others:
                penalty = np.r_[scores[other].l2, np.full(columns - 1 - n_evidence, l2)]
                add(f"evidence {other:g}, features {l2:g}", True, penalty, tried[1])
        # And without any evidence, for data on which distance from ID rows says nothing.
        path("", False, np.zeros(0), start_from(table, pi, offset[False], 1 + n_evidence))
        if self.look is not None:
            null = start_from(table, pi, offset[False], 0).loss
            gains = [null - fit.loss for fit in (self._tree_fit(self.look, pi), *(fit for _, fit in found.values()))]
            if gains[0] > max(LEAST_GAIN, NEARLY * max(gains)):
                self.grown = self.grower.grow(table.fold, self.n_folds + 1, FULL)
        return self._with_trees(found, pi)

    def _with_trees(self, found: dict[str, tuple[Start, CrossFit]], pi: float) -> Blend:
        """Blend candidates, and trees where they were grown; trees that hardly count are left out."""
        columns = self.table.design.n_columns
        if self.grown is None:
            return _blend(found, columns)
        fit = self._tree_fit(self.grown, pi)
        blend = _blend({**found, TREES: (Start(0.0, 0.0), fit)}, columns)
        share = blend.weights[TREES]
        if share < WORTH:
            self.grown = None
            return _blend(found, columns)
        la, weight = float(log_a(pi, self.table.log_odds_u)), share * fit.kappa
        return replace(blend, trees=replace(self.grown.whole(), weight=weight, log_a=la, least=LEAST * pi))

    def again(self, blend: Blend, pi: float) -> Blend:
        """Fit the candidates that count once more, with another prior."""
        starts, offset = self._starts(pi)
        found = {}
        for name, (start, fit) in blend.found.items():
            if blend.weights[name] >= COUNTS and name != TREES:
                informed = start.tilt > 0.0
                if len(fit.l2):
                    # The fit's own u with the constant of the new prior is where it begins.
                    moved = replace(fit, u=fit.u + (starts[informed].constant - start.constant))
                    found[name] = (starts[informed], cross_fit(self.table, fit.l2, pi, offset[informed], moved))
                else:
                    found[name] = (starts[informed], start_from(self.table, pi, offset[informed], fit.first))
        return self._with_trees(found, pi)

    def _starts(self, pi: float) -> tuple[dict[bool, Start], dict[bool, Floats]]:
        null = self.table.log_odds_u + float(np.log(pi))
        starts = {True: Start(TILT, null - self.log_norm), False: Start(0.0, null)}
        return starts, {key: start.tilt * self.table_consensus + start.constant for key, start in starts.items()}

    def scores(self, blend: Blend) -> list[Floats]:
        """Return the out-of-sample score of every row of both sides."""
        theta = self.theta(blend)

        def rest(i: int, rows: NDArray[Any], block: NDArray[Any]) -> Floats:
            u = block @ theta.astype(block.dtype) + blend.tilt * self.consensus[i][rows] + blend.intercept
            return u if blend.trees is None else u + blend.trees(block)

        return self._every(blend.u, rest)

    def _every(self, table_u: Floats, rest: Callable[[int, NDArray[Any], NDArray[Any]], Floats]) -> list[Floats]:
        """Return a score of every row of both sides: known for those of the table, computed for the rest, block by block."""
        scores = [np.empty(len(rows)) for rows in self.sides]
        for i, known in enumerate(np.split(table_u, [self.table.n_id])):
            scores[i][self.keep[i]] = known
            for start in range(0, len(self.rest[i]), BLOCK_ROWS):
                rows = self.rest[i][start : start + BLOCK_ROWS]
                scores[i][rows] = rest(i, rows, self.columns(i, rows))
        return scores

    @cached_property
    def seen(self) -> list[Floats] | None:
        """Return the out-of-sample score of every row by the first look of trees, if there was one."""
        if (look := self.look) is None:
            return None

        def rest(i: int, rows: NDArray[Any], block: NDArray[Any]) -> Floats:
            return np.where(self.folds[i][rows] % 2 == 0, look.logit(0, block), look.logit(1, block))

        return self._every(look.own, rest)

    def first_prior(self, estimate: Callable[[Acceptance], float]) -> float:
        """Return a first guess of the prior: what ID-only evidence shows, or a first look of trees where that shows more."""
        first = self.prior(estimate, self.consensus, trees=False)
        if self.seen is not None:
            first = max(first, self.prior(estimate, self.seen, trees=True))
        return float(np.clip(first, 0.01, 0.9))

    def curve(self, scores: list[Floats]) -> Acceptance:
        """Return T and A of scores of both sides."""
        return acceptance(scores[0], scores[1], *self.weights)._replace(n_id=self.n[0], n_unlabeled=self.n[1])

    def prior(self, estimate: Callable[[Acceptance], float], scores: list[Floats], *, trees: bool) -> float:
        """Estimate the prior from scores; those of trees count beyond most ID rows, whose order is chance, or by what the whole curve makes certain."""
        curve = self.curve(scores)
        if not trees:
            return estimate(curve)
        high = curve.tpr >= ORDINARY
        beyond = curve._replace(tpr=curve.tpr[high], accepted=curve.accepted[high], cut=curve.cut[high])
        return max(estimate(beyond), scott(curve, delta=CERTIFIED))

    def theta(self, blend: Blend) -> Floats:
        """Return the coefficients of the columns as they come."""
        if self.turn is None:
            return blend.theta
        lead = 1 + len(self.representation.names)
        return np.r_[blend.theta[:lead], self.turn @ blend.theta[lead:]]

    def p_value(self, blend: Blend, seed: int, permutations: int = 399) -> float:
        """Test pi = 0 with the consensus, with the fitted score and with a first look of trees."""
        # Copies of a row, and rows of a group, are one observation: counted apart they would make chance look like evidence.
        first = np.concatenate([mask for mask, _ in self.stand])
        unlabeled = np.repeat([False, True], [len(rows) for rows in self.sides])[first]
        blind = replace(blend, u=_blind(blend, self.table.fold))
        known = [values for values in (self.consensus, self.scores(blind), self.seen) if values is not None]
        scores, learned = [np.concatenate(values)[first] for values in known], [False, True, True][: len(known)]
        few = [False, False, True][: len(known)]
        folds, weights = np.concatenate(self.folds)[first], np.concatenate([weight for _, weight in self.stand])[first]
        return gate_p_value(
            scores, unlabeled, folds, weights, learned=learned, few=few, permutations=permutations, seed=seed
        )

    def refit(self, blend: Blend, pi: float) -> tuple[Blend, list[Floats]]:
        """Fit the best candidate once more, alone, on all rows, block by block: so many rows need no averaging."""
        start, best = blend.best
        consensus = np.concatenate(self.consensus)
        offset = start.tilt * consensus + start.constant
        weight, fold, said = np.concatenate(self.weights), np.concatenate(self.folds), said_of(*self.sides)
        if not len(best.l2):
            every = Table(InMemory(consensus[:, None]), len(self.sides[0]), weight, fold, self.n_folds, said)
            fit = start_from(every, pi, offset, best.first)
        else:
            last, dtype = best.first + len(best.l2), self.sides[0].features.dtype
            parts: list[tuple[NDArray[Any], ...]] = []
            for rows, own, evidence in zip(self.sides, self.consensus, self.evidence, strict=True):
                head = np.concatenate([own[:, None], evidence], axis=1, dtype=dtype)[:, best.first : last]
                parts.append((head, rows.features) if last > 1 + evidence.shape[1] else (head,))
            width = parts[0][0].shape[1]
            design = Design(parts, (Scaler(np.zeros(width), np.ones(width)), self.scaler)[: len(parts[0])])
            table = Table(design, len(self.sides[0]), weight, fold, self.n_folds, said)
            warm = replace(best, u=np.concatenate(self.scores(blend)))
            l2 = best.l2
            if self.turn is not None and len(parts[0]) > 1:
                params = [best.params[:width], self.turn @ best.params[width:-1], best.params[-1:]]
                warm, l2 = (
                    replace(warm, params=np.concatenate(params)),
                    np.r_[l2[:width], np.full(len(self.turn), l2[-1])],
                )
            # A penalty of the mean loss stands for 1 / n of prior knowledge: more rows, less penalty.
            fit = cross_fit(table, l2 * (len(self.table) / len(table)), pi, offset, warm)
        self.turn = None  # columns as they come, from here on
        alone = _blend({"refitted": (start, fit)}, 1 + len(self.representation.names) + self.sides[0].features.shape[1])
        return replace(alone, found=blend.found, weights=blend.weights), np.split(alone.u, [len(self.sides[0])])


def _shares(found: dict[str, tuple[Start, CrossFit]], loss: Floats) -> Floats:
    """Return weights of candidates from their held-out loss; every family starts with the same weight."""
    weight = np.exp(-TEMPER * (loss - loss.min()))
    # Columns used, and whether from the ID-only start: a long path must not win by its number of candidates.
    family = [(start.tilt > 0.0, len(fit.l2)) for start, fit in found.values()]
    weight /= np.array([family.count(member) for member in family])
    return np.asarray(weight / weight.sum())


def _blend(found: dict[str, tuple[Start, CrossFit]], columns: int) -> Blend:
    """Average candidates with weights from their held-out loss."""
    weight = _shares(found, np.array([fit.loss for _, fit in found.values()]))
    theta = np.zeros(columns)
    tilt, intercept = 0.0, 0.0
    u = np.zeros(len(next(iter(found.values()))[1].u))
    for share, (start, fit) in zip(weight.tolist(), found.values(), strict=True):
        mean = fit.theta
        theta[fit.first : fit.first + len(mean)] += share * fit.kappa * mean
        tilt += share * fit.kappa * start.tilt
        intercept += share * (fit.kappa * (fit.intercept + start.constant) + fit.shift)
        u += share * fit.u
    return Blend(tilt, theta, intercept, u, found, dict(zip(found, weight.tolist(), strict=True)))


def _blind(blend: Blend, fold: NDArray[np.int64]) -> Floats:
    """Return the blend's u with weights, for the rows of a fold, from the held-out loss in the other folds: no row has a say in its own score."""
    candidates = [fit for _, fit in blend.found.values()]
    u = np.zeros(len(fold))
    for k in range(len(candidates[0].losses)):
        inside = fold == k
        share = _shares(blend.found, np.array([fit.loss - fit.losses[k] for fit in candidates]))
        u[inside] = sum(weight * fit.u[inside] for weight, fit in zip(share, candidates, strict=True))
    return u


def _stand_ins(rows: Rows, content: NDArray[np.uint64], weight: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Mark one row of each set of equal rows, or of each group, with the weight of all of it."""
    mask, keys = np.zeros(len(rows), dtype=bool), content if rows.group is None else rows.group
    mask[one_of_each(keys, content)] = True
    if rows.group is None:
        return mask, weight
    place = np.unique(rows.group, return_inverse=True)[1]
    return mask, np.asarray(np.bincount(place, weight)[place], dtype=np.float64)


def design_columns(rows: Rows, evidence: Floats, consensus: Floats, scaler: Scaler) -> NDArray[Any]:
    """Return [consensus | evidence | features] in the dtype of the features."""
    features = np.asarray(rows.features)
    scaled = scaler.transform(features)
    np.clip(scaled, -FARTHEST, FARTHEST, out=scaled)
    parts = [consensus[:, None], evidence, scaled]
    return np.concatenate(parts, axis=1, dtype=features.dtype)
