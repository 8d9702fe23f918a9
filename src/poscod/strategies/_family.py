# SPDX-License-Identifier: BSD-3-Clause
"""The strategies as data: how each combines two scores, what its theory prescribes, and the grids it is tuned on.

Convention: a setting is a dict of keyword arguments of the strategy's ``combine``. One mapping, `STRATEGIES`, feeds the
string options, the tests and the docs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from poscod._validation import Floats
from poscod.problem import ScodProblem
from poscod.strategies._scores import log_of_first, product, sirc_of, sirc_parameters

Setting = dict[str, float]


class Pair(NamedTuple):
    """Two scores of the same rows."""

    s1: Floats
    s2: Floats


class Strategy(NamedTuple):
    """One member of `STRATEGIES`.

    Attributes
    ----------
    prepare : callable
        Pair -> Pair; what is computed once for all settings.
    combine : callable
        (prepared pair, **setting) -> combined score.
    plugin : callable
        (s2 of an ID sample, alpha, required TPR) -> setting.
    grids : dict of callable
        Name of the grid -> (s2 of an ID sample -> list of settings).
    needs_reference : bool
        Whether the plug-in setting is estimated from an ID sample.
    """

    prepare: Callable[[Pair], Pair]
    combine: Callable[..., Floats]
    plugin: Callable[[Floats, float, float], Setting]
    grids: dict[str, Callable[[Floats], list[Setting]]]
    needs_reference: bool = False


def _weighted_sum(pair: Pair, weight_1: float, weight_2: float) -> Floats:
    """Add the scores; a score of weight zero is left out even where it is infinite."""
    if weight_1 == 0.0:
        return weight_2 * pair.s2
    return weight_1 * pair.s1 if weight_2 == 0.0 else weight_1 * pair.s1 + weight_2 * pair.s2


def _optimal_line(_: Floats, alpha: float, tpr: float) -> Setting:
    """Theorem 2: s = r + beta g with beta = alpha t / (1 - alpha), and s = g at alpha = 1."""
    if alpha == 1.0:
        return {"weight_1": 0.0, "weight_2": 1.0}
    # Nothing is accepted at t = 0; any slope serves there.
    return {"weight_1": 1.0, "weight_2": ScodProblem(alpha, tpr).beta if tpr > 0 else 0.0}


def _angles(values: Floats) -> list[Setting]:
    return [{"weight_1": float(np.cos(v)), "weight_2": float(np.sin(v))} for v in values]


def _paper_angles(_: Floats) -> list[Setting]:
    half = np.pi / 2
    return _angles(np.append(np.linspace(0.0, 4 * half, 1600), [half, 2 * half, 3 * half]))


def _reference_angles(_: Floats) -> list[Setting]:
    return _angles(np.append(np.linspace(0.0, np.pi / 2, 1600), np.pi / 2))


def _log_first(pair: Pair) -> Pair:
    return Pair(log_of_first(pair.s1), pair.s2)


def _sirc(pair: Pair, a: float, b: float) -> Floats:
    return sirc_of(pair.s1, pair.s2, a, b)


def _sirc_heuristic(s2_id: Floats, _alpha: float, _tpr: float) -> Setting:
    a, b = sirc_parameters(s2_id)
    return {"a": a, "b": b}


def _sirc_grid(s2_id: Floats, with_heuristic: bool) -> list[Setting]:
    """40 values of each parameter around the heuristic ones: a within 3 sd, b within a factor of 10."""
    a, b = sirc_parameters(s2_id)
    locations, slopes = np.linspace(a - 3 / b, a + 3 / b, 40), np.linspace(b / 10, b * 10, 40)
    if with_heuristic:
        locations, slopes = np.append(locations, a), np.append(slopes, b)
    return [{"a": float(x), "b": float(y)} for x in locations for y in slopes]


def _no_parameters(*_: Any) -> list[Setting]:
    return [{}]


STRATEGIES: dict[str, Strategy] = {
    "linear": Strategy(
        prepare=lambda pair: pair,
        combine=_weighted_sum,
        plugin=_optimal_line,
        grids={"paper": _paper_angles, "reference": _reference_angles},
    ),
    "product": Strategy(
        prepare=lambda pair: Pair(product(*pair), pair.s2),
        combine=lambda pair: pair.s1,
        plugin=lambda *_: {},
        grids={"paper": _no_parameters, "reference": _no_parameters},
    ),
    "sirc": Strategy(
        prepare=_log_first,
        combine=_sirc,
        plugin=_sirc_heuristic,
        grids={"paper": lambda s2: _sirc_grid(s2, True), "reference": lambda s2: _sirc_grid(s2, False)},
        needs_reference=True,
    ),
}
