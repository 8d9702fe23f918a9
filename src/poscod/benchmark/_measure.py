# SPDX-License-Identifier: BSD-3-Clause
"""From a split to numbers: what one cell computes.

Convention: a value is asked for by a `Wanted` (strategy, setting, metric, alpha) and answered by a float, or by None where it is not
defined (a product needs non-negative scores). The first score of a pair is r = 1 - MSP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.benchmark._ratios import RATIOS
from poscod.benchmark._sources import DumpPool, Pool, Scores
from poscod.benchmark._spec import BenchmarkSpec
from poscod.benchmark._split import Split, mixture_sizes
from poscod.metrics import aurc, auroc, ausrt
from poscod.problem import ScodProblem
from poscod.strategies import plugin_curve, tuned_areas
from poscod.theory import GaussianWorld

# exp of more is no number; no threshold in use is near.
_LARGEST_LOG = 600.0
# Points of the quadrature that stands for a known world; its grid is finer than that in the plane.
_POINTS = 20_000


class Wanted(NamedTuple):
    """One value of a cell: "single" score, strategy for two scores (plugin or tuned) or "optimum"; aurc, auroc, ausrt or ood_prior."""

    strategy: str
    setting: str
    metric: str
    alpha: float | None


class Measured(NamedTuple):
    """Scores of the measured rows: alone, as the second of two (g where alone is log g), and the first, r = 1 - MSP; NaN where no share of OOD is estimated."""

    single: Scores
    second: Scores
    first: Scores
    loss: Floats
    ood_prior: float = float("nan")


def wanted_of(spec: BenchmarkSpec, kind: str, method: str) -> list[Wanted]:
    """Return all values that the cells of one method hold."""
    if kind == "optimum":
        return [Wanted("optimum", "", "ausrt", alpha) for alpha in spec.alphas]
    wanted = [Wanted("single", "", "aurc", None), Wanted("single", "", "auroc", None)]
    wanted += [Wanted("single", "", "ausrt", alpha) for alpha in spec.alphas]
    if kind == "ratio" and RATIOS[method].sees == "mixture":
        wanted.append(Wanted("single", "", "ood_prior", None))
    if (kind, method) != ("score", "msp"):
        for strategy in spec.strategies:
            settings = ("plugin", "tuned") if spec.tuned and strategy != "product" else ("plugin",)
            wanted += [Wanted(strategy, setting, "ausrt", alpha) for setting in settings for alpha in spec.alphas]
    return wanted


def score_rows(pool: Pool | DumpPool, split: Split, method: str) -> Measured:
    """Score the measured rows with a single score."""
    first = pool.scores("msp", split)
    score = first if method == "msp" else pool.scores(method, split)
    return Measured(score, score, first, pool.loss(split.id_test))


def ratio_rows(pool: Pool | DumpPool, split: Split, method: str, pi: float | None, n_mixture: int) -> Measured:
    """Fit a ratio and score the measured rows with it."""
    assert isinstance(pool, Pool)  # a specification of score files names no ratio
    first = pool.scores("msp", split)
    ratio, prior = RATIOS[method], float("nan")
    if ratio.build is None:
        assert pool.world is not None
        log_g = Scores(*(pool.world.log_ratio(rows.features) for rows in pool.scored(split)))
    else:
        if ratio.sees == "clean":
            # As many clean rows as a mixture with one half of them would hold.
            other = pool.ood_learning[split.ood_train[: n_mixture // 2]]
        else:
            assert pi is not None
            m, n = mixture_sizes(pi, n_mixture, len(split.id_mixture), len(split.ood_train))
            other = _joined(pool.id_learning[split.id_mixture[:m]], pool.ood_learning[split.ood_train[:n]])
        estimator = ratio.build().fit(pool.labeled(split), other)
        prior = float(estimator.ood_prior_)
        log_g = Scores(*map(estimator.log_ratio, pool.scored(split)))
    g = Scores(*(np.exp(np.clip(values, -_LARGEST_LOG, _LARGEST_LOG)) for values in log_g))
    return Measured(log_g, g, first, pool.loss(split.id_test), prior)


def values_of(measured: Measured, wanted: Iterable[Wanted], grid: str) -> dict[Wanted, float | None]:
    """Compute values; all costs of a tuned strategy share one sweep."""
    single, loss = measured.single, measured.loss
    first, second = measured.first, measured.second
    arrays = (first.id_, second.id_, loss, first.ood, second.ood)
    values: dict[Wanted, float | None] = {}
    sweeps: dict[str, list[Wanted]] = {}
    for item in wanted:
        if item.metric == "ood_prior":
            values[item] = measured.ood_prior
        elif item.metric == "aurc":
            values[item] = aurc(single.id_, loss, area="trapezoid")
        elif item.metric == "auroc":
            values[item] = auroc(single.id_, single.ood)
        elif item.strategy == "single":
            values[item] = ausrt(single.id_, loss, single.ood, alpha=_cost(item), envelope=False)
        elif item.strategy == "product" and min(second.id_.min(), second.ood.min()) < 0:
            values[item] = None
        elif item.setting == "tuned":
            sweeps.setdefault(item.strategy, []).append(item)
        else:
            values[item] = plugin_curve(item.strategy, *arrays, alpha=_cost(item), s2_reference=second.reference).area
    for strategy, items in sweeps.items():
        costs = [_cost(item) for item in items]
        areas = tuned_areas(strategy, *arrays, alphas=costs, grid=grid, s2_reference=second.reference)
        values.update(zip(items, areas.tolist(), strict=True))
    return {item: None if value is None else float(value) for item, value in values.items()}


def optimal_areas(world: GaussianWorld, wanted: Iterable[Wanted]) -> dict[Wanted, float | None]:
    """Return the area under the smallest SCOD risk that any rule reaches in a known world."""
    _, finite = world.discretise(size=_POINTS)
    targets = np.linspace(0.0, 1.0, 101)
    values: dict[Wanted, float | None] = {}
    for item in wanted:
        risk = np.array([0.0, *(finite.solve(ScodProblem(_cost(item), float(t))).risk for t in targets[1:])])
        values[item] = float(np.diff(targets) @ (risk[1:] + risk[:-1])) / 2.0
    return values


def _cost(item: Wanted) -> float:
    assert item.alpha is not None
    return item.alpha


def _joined(first: Activations, second: Activations) -> Activations:
    """Put the rows of two sets below each other, without labels."""

    def both(part: str) -> Floats | None:
        a, b = getattr(first, part), getattr(second, part)
        return None if a is None or b is None else np.concatenate([a, b])

    return Activations(both("features"), both("logits"), None, first.weight, first.bias)
