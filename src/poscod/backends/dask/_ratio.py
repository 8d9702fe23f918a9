# SPDX-License-Identifier: BSD-3-Clause
"""The paper's corrected sigmoid on rows in chunks: every chunk gives sums, one L-BFGS runs here.

Convention: the kernels are those of `poscod.ratio`, called once per chunk; the result is a plain `CorrectedSigmoid`. One pass over the
rows is one evaluation of likelihood and gradient and moves d + 3 numbers per chunk.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.base import clone

from poscod._validation import Floats, check_count, check_weight
from poscod.backends.dask._chunks import Chunks, as_chunks, as_vector, draw
from poscod.backends.dask._passes import Passes, Progress
from poscod.exceptions import InvalidInputError
from poscod.ratio import (
    CorrectedSigmoid,
    Design,
    Fit,
    Joint,
    Moments,
    Scaler,
    as_rows,
    check_like,
    columns_of,
    information,
    loss_sums,
    moments,
    row_hash,
    scaler_of,
)

Weights = tuple[Floats | None, Floats | None]


def fit_ratio(
    ratio: Any,
    X_id: Any,
    X_unlabeled: Any,
    *,
    sample_weight_id: Any = None,
    sample_weight_unlabeled: Any = None,
    sample_rows: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Fit a likelihood ratio on rows in chunks.

    Parameters
    ----------
    ratio : estimator of poscod.ratio
        ``CorrectedSigmoid(recipe="paper")`` is fitted on all rows, with the numbers that it has in memory. Others (neighbours, folds
        by content) cannot be split into sums over rows: they need `sample_rows`.
    X_id, X_unlabeled : dask Array of shape (n, d), dask DataFrame or DaskActivations
        ID rows the classifier was **not** trained on, and the mixture.
    sample_weight_id, sample_weight_unlabeled : dask Array of shape (n,), dask Series or array-like, default=None
        Non-negative row weights, in the order of the rows. They are brought to this process, 8 bytes per row.
    sample_rows : int, default=None
        Fit on so many rows of each side, drawn at random and brought to this process; all where there are no more. None fits
        on all rows where they are, or refuses.
    progress : callable, default=None
        Gets (what, done, total) of the running pass.

    Returns
    -------
    ratio : estimator
        A fitted clone, to be used and saved without Dask.

    Notes
    -----
    The objective is the weighted mean negative log-likelihood of `CorrectedSigmoid`, summed per chunk in float64 and then over
    chunks in a fixed order, so that the result depends on the chunks in the last bits only and on the number of workers not
    at all. ``l2="cv"`` is chosen, here as in memory, on 20,000 rows of each side, drawn by their content (all where there are no more), and
    that penalty is then fitted on all rows. To draw them, 8 bytes per row are brought to this process.
    """
    passes = Passes(progress)
    check_sampled(ratio, sample_rows)
    sides = [as_chunks(X, name, passes) for X, name in ((X_id, "X_id"), (X_unlabeled, "X_unlabeled"))]
    weights = (
        _weight(sample_weight_id, "sample_weight_id", sides[0]),
        _weight(sample_weight_unlabeled, "sample_weight_unlabeled", sides[1]),
    )
    if sample_rows is not None:
        parts, drawn = sampled(sides, sample_rows, np.random.default_rng(0), passes, weights)
        return clone(ratio).fit(*parts, sample_weight_id=drawn[0], sample_weight_unlabeled=drawn[1])
    columns = columns_of(as_rows(sides[0].like, "X_id", minimum=0))
    check_like(as_rows(sides[1].like, "X_unlabeled", minimum=0), "X_unlabeled", columns)
    known, mixture = sides[0].map(_features, "X_id"), sides[1].map(_features, "X_unlabeled")
    return fit_linear(ratio, known, mixture, passes, weights, n_logits=columns.get("logits", 0))


def is_linear(ratio: Any) -> bool:
    """Tell whether a ratio is a sum over rows and can be fitted where they are."""
    return isinstance(ratio, CorrectedSigmoid) and ratio.recipe == "paper"


def check_sampled(ratio: Any, sample_rows: int | None) -> None:
    """Refuse a ratio that needs its rows in memory, unless a sample was asked for."""
    if sample_rows is not None:
        check_count(sample_rows, "sample_rows")
    elif not is_linear(ratio):
        raise InvalidInputError(
            "{got} needs its rows in memory, and only CorrectedSigmoid(recipe='paper') is a sum over rows: use that, or pass "
            "{sample_rows} to fit this one on a random sample.",
            parameter="ratio",
            got=repr(ratio),
        )


def sampled(
    sides: Sequence[Chunks], rows: int, rng: np.random.Generator, passes: Passes, weights: Weights
) -> tuple[list[Any], Weights]:
    """Bring a random sample of each side, and its weights, to this process."""
    drawn = [draw(len(side), rows, rng) for side in sides]
    parts = [side.pick(chosen).bring(passes, "sample") for side, chosen in zip(sides, drawn, strict=True)]
    return parts, _at(weights, drawn)


def fit_linear(
    ratio: CorrectedSigmoid,
    known: Chunks,
    mixture: Chunks,
    passes: Passes,
    weights: Weights,
    *,
    n_logits: int,
) -> CorrectedSigmoid:
    """Fit the joint likelihood of `CorrectedSigmoid` on chunks of features, beside which there are so many logits."""
    for side, name in ((known, "X_id"), (mixture, "X_unlabeled")):
        if len(side) < ratio.min_rows:
            raise InvalidInputError(
                "{parameter} must have at least {allowed} rows, got {got}.",
                parameter=name,
                allowed=ratio.min_rows,
                got=len(side),
            )
    sides = (known, mixture)

    def hashes(side: int) -> NDArray[np.uint64]:
        return np.concatenate(passes.collect(sides[side].map(row_hash, ratio.random_state).parts, "row hashes"))

    def bring(places: list[NDArray[np.intp]]) -> Any:
        first, second = (side.pick(at).bring(passes, "sample") for side, at in zip(sides, places, strict=True))
        return (as_rows(first, "X_id"), as_rows(second, "X_unlabeled")), _at(weights, places)

    chosen = ratio.penalty((len(known), len(mixture)), hashes, bring)
    sums_of = [
        (float(len(side)), float(len(side))) if w is None else (float(w.sum()), float(w @ w))
        for w, side in zip(weights, sides, strict=True)
    ]
    total, squares = (a + b for a, b in zip(*sums_of, strict=True))
    odds = float(logit(sums_of[1][0] / total))
    own = [[None] * len(side.parts) if w is None else side.spread(w) for side, w in zip(sides, weights, strict=True)]

    def sums(function: Any, merge: Any, label: str, *arguments: Any) -> Any:
        parts = [
            *known.map(function, False, *arguments, each=(own[0],)).parts,
            *mixture.map(function, True, *arguments, each=(own[1],)).parts,
        ]
        return passes.reduce(parts, merge, label)

    first = passes.collect(known.map(_first_row).parts[:1], "first row")[0]
    shift = np.asarray(first, dtype=np.float64)
    scaler = scaler_of(sums(_part_moments, _sum, "moments", shift), shift, first.dtype)
    data = Joint(
        scaler,
        odds,
        total**2 / squares,
        lambda params, pi: sums(_part_loss, _sum_pairs, "likelihood", scaler, 1.0 / total, params, odds, pi),
        lambda fit: sums(_part_information, _sum, "information", scaler, 1.0 / total, fit, odds),
    )
    columns = {"features": len(first), **({"logits": n_logits} if n_logits else {})}
    return clone(ratio).fit_joint(data, chosen, columns)


def _weight(values: Any, name: str, side: Chunks) -> Floats | None:
    return None if values is None else check_weight(as_vector(values), name, len(side))


def _at(weights: Weights, places: Sequence[NDArray[np.intp]]) -> Weights:
    first, second = (None if w is None else w[at] for w, at in zip(weights, places, strict=True))
    return first, second


def _features(rows: Any, name: str) -> NDArray[Any]:
    return as_rows(rows, name).features


def _first_row(matrix: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(matrix[0])


def _part_moments(matrix: NDArray[Any], own: Floats | None, unlabeled: bool, shift: Floats) -> Moments:
    return moments(matrix, shift, own)


def _part_loss(
    matrix: NDArray[Any],
    own: Floats | None,
    unlabeled: bool,
    scaler: Scaler,
    weight: float,
    params: Floats,
    odds: float,
    pi: float | None,
) -> tuple[float, Floats]:
    design, weights = _design(matrix, own, scaler, weight)
    return loss_sums(params, design, np.full(len(weights), unlabeled), weights, odds, pi)


def _part_information(
    matrix: NDArray[Any], own: Floats | None, unlabeled: bool, scaler: Scaler, weight: float, fit: Fit, odds: float
) -> Floats:
    return information(fit, *_design(matrix, own, scaler, weight), odds)


def _design(matrix: NDArray[Any], own: Floats | None, scaler: Scaler, weight: float) -> tuple[Design, Floats]:
    """Return standardised rows of one chunk, and their weights."""
    weights = np.full(len(matrix), weight) if own is None else weight * own
    return Design([(matrix,)], (scaler,), resident=0, dtype=np.float64), weights


def _sum(parts: list[Any]) -> Any:
    return functools.reduce(operator.add, parts)


def _sum_pairs(parts: list[tuple[float, Floats]]) -> tuple[float, Floats]:
    return functools.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), parts)
