# SPDX-License-Identifier: BSD-3-Clause
"""The paper's corrected sigmoid on rows in chunks: every chunk gives sums, one L-BFGS runs here.

Convention: the kernels are those of `poscod.ratio`, called once per chunk; the result is a plain `CorrectedSigmoid`. One pass over the
rows is one evaluation of likelihood and gradient and moves d + 3 numbers per chunk.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.base import clone

from poscod._validation import Floats, check_weight
from poscod.backends.dask._chunks import Chunks, as_chunks, as_labels, bring, draw
from poscod.backends.dask._cluster import Cluster
from poscod.exceptions import InvalidInputError
from poscod.ratio import CorrectedSigmoid
from poscod.ratio._design import Design, Moments, Scaler, moments, scaler_of
from poscod.ratio._likelihood import Fit, loss_sums, maximise, penalised
from poscod.ratio._linear import information, prior_standard_error, to_ratio
from poscod.ratio._rows import as_rows, check_like, columns_of


def fit_ratio(
    ratio: Any,
    X_id: Any,
    X_unlabeled: Any,
    *,
    sample_weight_id: Any = None,
    sample_weight_unlabeled: Any = None,
    cluster: Cluster | None = None,
    sample_rows: int | None = None,
    persist: bool = False,
) -> Any:
    """Fit a likelihood ratio on rows in chunks.

    Parameters
    ----------
    ratio : estimator of poscod.ratio
        ``CorrectedSigmoid(recipe="paper")`` with a fixed l2 is fitted on all rows, with the numbers of one memory. Others (neighbours,
        banks, folds by content) cannot be split into sums over rows: they need `sample_rows`.
    X_id, X_unlabeled : dask Array of shape (n, d), dask DataFrame or DaskActivations
        ID rows the classifier was **not** trained on, and the mixture.
    sample_weight_id, sample_weight_unlabeled : dask Array of shape (n,), dask Series or array-like, default=None
        Non-negative row weights, in the order of the rows. They are brought to this process, 8 bytes per row.
    cluster : Cluster, default=None
        An open one; None opens one for this call.
    sample_rows : int, default=None
        Fit on so many rows of each side, drawn at random and brought to this process; all where there are no more. None fits
        on all rows where they are, or refuses.
    persist : bool, default=False
        Read the rows once and hold them in the memory of the workers, instead of reading them in every pass.

    Returns
    -------
    ratio : estimator
        A fitted clone, to be used and saved without a cluster.

    Notes
    -----
    The objective is the weighted mean negative log-likelihood of `CorrectedSigmoid`, summed per chunk in float64 and then over
    chunks in a fixed order, so that the result depends on the chunks in the last bits only and on the number of workers not
    at all.
    """
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        sides = [as_chunks(X, name, running) for X, name in ((X_id, "X_id"), (X_unlabeled, "X_unlabeled"))]
        if persist:
            sides = [side.kept(running) for side in sides]
        if not is_linear(ratio):
            check_sampled(ratio, sample_rows)
        weights = [
            None if weight is None else check_weight(as_labels(weight, running), name, len(side))
            for weight, name, side in zip(
                (sample_weight_id, sample_weight_unlabeled),
                ("sample_weight_id", "sample_weight_unlabeled"),
                sides,
                strict=True,
            )
        ]
        if sample_rows is not None:
            parts, drawn = sampled(sides, sample_rows, 0, running, weights)
            return clone(ratio).fit(*parts, sample_weight_id=drawn[0], sample_weight_unlabeled=drawn[1])
        like = as_rows(sides[0].like, "X_id", minimum=0)
        columns = columns_of(like)
        check_like(as_rows(sides[1].like, "X_unlabeled", minimum=0), "X_unlabeled", columns)
        matrices = [
            Chunks(tuple(side.map(_features, name)), tuple(n for n in side.lengths if n), None)
            for side, name in zip(sides, ("X_id", "X_unlabeled"), strict=True)
        ]
        return fit_linear(ratio, matrices[0], matrices[1], columns, like.features.dtype, running, weights)


def is_linear(ratio: Any) -> bool:
    """Tell whether a ratio is a sum over rows and can be fitted where they are."""
    return isinstance(ratio, CorrectedSigmoid) and ratio.recipe == "paper" and ratio.l2 != "cv"


def check_sampled(ratio: Any, sample_rows: int | None) -> None:
    """Refuse a ratio that needs its rows in one memory, unless a sample was asked for."""
    if sample_rows is None:
        raise InvalidInputError(
            f"{ratio!r} needs its rows in one memory, and only CorrectedSigmoid(recipe='paper') with a fixed l2 is a sum over rows: "
            "use that, or pass sample_rows to fit this one on a random sample."
        )


def sampled(
    sides: list[Chunks], rows: int, seed: int, cluster: Cluster, weights: Sequence[Floats | None] = (None, None)
) -> tuple[list[Any], list[Floats | None]]:
    """Bring a random sample of each side, and its weights, to this process."""
    drawn = [draw(len(side), rows, seed + i) for i, side in enumerate(sides)]
    picked = [side.pick(chosen, cluster) for side, chosen in zip(sides, drawn, strict=True)]
    each = [None if weight is None else weight[chosen] for weight, chosen in zip(weights, drawn, strict=True)]
    return [bring(side, cluster, "sample") for side in picked], each


def fit_linear(
    ratio: CorrectedSigmoid,
    known: Chunks,
    mixture: Chunks,
    columns: dict[str, int],
    dtype: Any,
    cluster: Cluster,
    weights: Sequence[Floats | None] = (None, None),
) -> CorrectedSigmoid:
    """Fit the joint likelihood of `CorrectedSigmoid` on chunks of features."""
    fitted: CorrectedSigmoid = clone(ratio)
    fitted._check_parameters()
    m, n = len(known), len(mixture)
    for count, name in ((m, "X_id"), (n, "X_unlabeled")):
        if count < fitted.min_rows:
            raise InvalidInputError(f"{name} must have at least {fitted.min_rows} rows, got {count}.")
    sums_of = [
        (float(size), float(size)) if w is None else (float(w.sum()), float(w @ w))
        for w, size in zip(weights, (m, n), strict=True)
    ]
    total, squares = (a + b for a, b in zip(*sums_of, strict=True))
    d, odds, weight = columns["features"], float(logit(sums_of[1][0] / total)), 1.0 / total
    shift = np.asarray(cluster.collect(known.map(_first_row)[:1], "first row")[0], dtype=np.float64)
    known, mixture = (
        side if w is None else side.zipped(w, cluster) for side, w in zip((known, mixture), weights, strict=True)
    )
    both = [*known.map(part_moments, shift), *mixture.map(part_moments, shift)]
    scaler = scaler_of(cluster.reduce(both, _sum_moments, "moments"), shift, dtype)
    l2 = np.full(d, 0.0 if fitted.l2 is None else float(fitted.l2))

    def sums(function: Any, label: str, *arguments: Any) -> Any:
        parts = [
            *known.map(function, scaler.mean, scaler.scale, False, weight, *arguments),
            *mixture.map(function, scaler.mean, scaler.scale, True, weight, *arguments),
        ]
        return cluster.reduce(parts, _sum_pairs if function is part_loss else _sum_arrays, label)

    def evaluate(params: Floats) -> tuple[float, Floats]:
        return penalised(sums(part_loss, "likelihood", params, odds, fitted.ood_prior), params, l2)

    fit = maximise(evaluate, d, odds, pi=fitted.ood_prior, max_iter=fitted.max_iter)
    error = float("inf")
    if fitted.ood_prior is None:
        error = prior_standard_error(sums(part_information, "information", fit, odds), total**2 / squares)
    fitted._keep_paper(fit, to_ratio(fit, scaler, odds), float(l2[0]), error)
    fitted.a_ = float(sums_of[1][0] / sums_of[0][0] * (1.0 - fitted.ood_prior_))
    fitted.columns_, fitted.n_features_in_ = columns, d
    return fitted


def part_moments(part: Any, shift: Floats) -> Moments:
    """Return the moments of one chunk, by the kernel of `poscod.ratio`."""
    return moments(part[0], shift, part[1]) if isinstance(part, tuple) else moments(part, shift)


def part_loss(
    part: Any,
    mean: Floats,
    scale: Floats,
    unlabeled: bool,
    weight: float,
    params: Floats,
    odds: float,
    pi: float | None,
) -> tuple[float, Floats]:
    """Return likelihood and gradient of one chunk, by the kernel of `poscod.ratio`."""
    design, weights = _design(part, mean, scale, weight)
    return loss_sums(params, design, np.full(len(weights), unlabeled), weights, odds, pi)


def part_information(
    part: Any, mean: Floats, scale: Floats, unlabeled: bool, weight: float, fit: Fit, odds: float
) -> Floats:
    """Return the information of one chunk, by the kernel of `poscod.ratio`."""
    design, weights = _design(part, mean, scale, weight)
    return information(fit, design, weights, odds)


def _design(part: Any, mean: Floats, scale: Floats, weight: float) -> tuple[Design, Floats]:
    """Return standardised rows and their weights; a chunk is a matrix, or a matrix with weights."""
    matrix, own = part if isinstance(part, tuple) else (part, None)
    weights = np.full(len(matrix), weight) if own is None else weight * own
    return Design([(matrix,)], (Scaler(mean, scale),), resident=0, dtype=np.float64), weights


def _features(rows: Any, name: str) -> NDArray[Any]:
    return as_rows(rows, name).features


def _first_row(matrix: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(matrix[0])


def _sum_moments(parts: list[Moments]) -> Moments:
    return functools.reduce(operator.add, parts)


def _sum_pairs(parts: list[tuple[float, Floats]]) -> tuple[float, Floats]:
    return functools.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), parts)


def _sum_arrays(parts: list[Floats]) -> Floats:
    return functools.reduce(operator.add, parts)
