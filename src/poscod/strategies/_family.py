# SPDX-License-Identifier: BSD-3-Clause
"""Two scores become one: the strategies as pure functions, and as data that curves are tuned and measured with.

Convention: both scores are uncertainties (higher = reject sooner) and so is the result. In the optimal rule s1 is the
conditional risk r and s2 the likelihood ratio g. A setting is a dict of keyword arguments of the strategy's ``combine``; one
mapping, `STRATEGIES`, feeds the string options, the tests and the docs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from poscod._validation import Floats, check_number, check_vector
from poscod.exceptions import InvalidInputError
from poscod.problem import ScodProblem

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
        grids=dict.fromkeys(("paper", "reference"), lambda _: [{}]),
    ),
    "sirc": Strategy(
        prepare=lambda pair: Pair(log_of_first(pair.s1), pair.s2),
        combine=lambda pair, a, b: sirc_of(pair.s1, pair.s2, a, b),
        plugin=_sirc_heuristic,
        grids={"paper": lambda s2: _sirc_grid(s2, True), "reference": lambda s2: _sirc_grid(s2, False)},
        needs_reference=True,
    ),
}


def linear(s1: Any, s2: Any, beta: float) -> Floats:
    """Combine two scores linearly, s1 + beta * s2.

    Parameters
    ----------
    s1, s2 : array-like of shape (n,)
        Uncertainties; in the optimal rule the conditional risk r and the likelihood ratio g.
    beta : float in [0, inf]
        Weight of s2; infinite means s2 alone.

    Returns
    -------
    s : ndarray of shape (n,)

    See Also
    --------
    rejection_score : The same with the ratio in log space, which is how the library carries it.

    Examples
    --------
    >>> linear([0.1, 0.2], [1.0, 0.0], beta=0.5)
    array([0.6, 0.2])
    """
    s1, s2 = _check_pair(s1, s2)
    beta = check_number(beta, "beta", 0.0, float("inf"))
    if beta == float("inf"):
        return s2.copy()
    if beta > 0.0 and np.any(np.isinf(s1) & np.isinf(s2) & (s1 != s2)):
        raise InvalidInputError(
            "s1 and s2 must not be infinite with opposite signs in one row: their sum is not a number."
        )
    return _weighted_sum(Pair(s1, s2), 1.0, beta)


def product(s1: Any, s2: Any) -> Floats:
    """Combine two non-negative scores by their product.

    Parameters
    ----------
    s1, s2 : array-like of shape (n,)
        Uncertainties, non-negative and finite.

    Returns
    -------
    s : ndarray of shape (n,)

    Examples
    --------
    >>> product([0.1, 0.2], [2.0, 0.0])
    array([0.2, 0. ])
    """
    s1, s2 = _check_pair(s1, s2)
    for name, score in (("s1", s1), ("s2", s2)):
        if len(score) and not (score.min() >= 0 and score.max() < np.inf):
            raise InvalidInputError(
                f"{name} must be non-negative and finite for the product strategy: negative factors turn the order around."
            )
    return s1 * s2


def sirc(s1: Any, s2: Any, a: float, b: float) -> Floats:
    """Combine two scores by softmax information retaining combination, in log space.

    Parameters
    ----------
    s1 : array-like of shape (n,)
        Non-negative uncertainty with lower bound 0, e.g. 1 - MSP (``S1max - s1`` of [1]_).
    s2 : array-like of shape (n,)
        Uncertainty of the OOD detector. The published s2 is a confidence, which is ``-s2`` here.
    a : float
        Location on the scale of the published confidence ``-s2``; the heuristic is mean - 3 sd on ID data.
    b : float
        Steepness; the heuristic is 1 / sd on ID data.

    Returns
    -------
    s : ndarray of shape (n,)
        ``log(s1) + log(1 + exp(-b (-s2 - a)))``; -inf where s1 = 0. The logarithm does not change the order.

    References
    ----------
    .. [1] G. Xia, C.-S. Bouganis, "Augmenting Softmax Information for Selective Classification with
       Out-of-Distribution Data", ACCV 2022.

    Examples
    --------
    >>> sirc([0.5, 0.5], [0.0, 3.0], a=-1.0, b=2.0).round(3)
    array([-0.566,  3.325])
    """
    s1, s2 = _check_pair(s1, s2)
    a = check_number(a, "a", -float("inf"), float("inf"), closed="neither")
    b = check_number(b, "b", 0.0, float("inf"), closed="left")
    return sirc_of(log_of_first(s1), s2, a, b)


def log_of_first(s1: Floats) -> Floats:
    """Logarithm of SIRC's first score; -inf where it is zero: a risk of zero is accepted first, whatever s2 says."""
    if len(s1) and s1.min() < 0:
        raise InvalidInputError(f"s1 must be non-negative for SIRC (an uncertainty such as 1 - MSP), got {s1.min():g}.")
    with np.errstate(divide="ignore"):
        return np.log(s1)


def sirc_of(log_s1: Floats, s2: Floats, a: float, b: float) -> Floats:
    """Compute `sirc` from log(s1), without checks: tuning takes the logarithm once for all settings.

    ``log(1 + exp(z))`` is written as ``max(z, 0) + log1p(exp(-|z|))``, which neither overflows nor loses digits.
    """
    z = b * (s2 + a) if b > 0.0 else np.zeros(len(s2))
    odds = np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))
    if len(odds) and odds.max() == np.inf and log_s1.min() == -np.inf:
        odds[log_s1 == -np.inf] = 0.0  # a risk of zero is accepted first, also where s2 is infinite
    return log_s1 + odds


def sirc_parameters(s2_id: Any) -> tuple[float, float]:
    """Return the heuristic a = mean - 3 sd and b = 1 / sd of SIRC from an ID sample.

    Parameters
    ----------
    s2_id : array-like of shape (m,)
        Second score (an uncertainty) of ID rows, not of the rows being evaluated.

    Returns
    -------
    a, b : float
        On the scale of the published confidence ``-s2``; sd divides by m.

    Examples
    --------
    >>> sirc_parameters([0.0, 2.0])
    (-4.0, 1.0)
    """
    s2 = check_vector(s2_id, "s2_id", allow_inf=False)
    with np.errstate(over="ignore"):
        sd = float(s2.std()) if len(s2) else 0.0
    if sd == float("inf"):  # squares overflow before the values do, as ratios of rows far from all others
        largest = float(np.abs(s2).max())
        sd = float((s2 / largest).std()) * largest
    if sd == 0.0:
        raise InvalidInputError(
            "s2_id must contain at least two different finite values: SIRC divides by their spread."
        )
    return float(-s2.mean() - 3.0 * sd), 1.0 / sd


def _check_pair(s1: Any, s2: Any) -> tuple[Floats, Floats]:
    s1 = check_vector(s1, "s1")
    return s1, check_vector(s2, "s2", n=len(s1), like="s1")
