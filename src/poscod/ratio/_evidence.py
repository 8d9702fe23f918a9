# SPDX-License-Identifier: BSD-3-Clause
"""ID-only evidence: numbers that say how unlike ID data a row is, before any OOD row has been seen.

Convention: every column is an uncertainty (higher = less like ID) on a logarithmic or linear scale that keeps it
finite. A bank holds ID rows and must not contain the row it scores (a bank that has seen a row calls it familiar).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod import scores
from poscod._validation import Floats
from poscod.ratio._rows import Rows

NEIGHBOURS = 10
BANK_ROWS = 4000
MOMENT_ROWS = 20000
QUERY_ROWS = 4096
TINY = 1e-12


def logit_evidence(logits: NDArray[Any]) -> Floats:
    """Return energy, max logit, log(1 - MSP), log entropy and margin as uncertainties."""
    z = np.asarray(logits, dtype=np.float64)
    energy, best, others = scores.free_energy(z), z.max(axis=1), scores.without_top(z)
    if z.shape[1] > 1:
        rest, second = scores.log_sum_exp(others) + energy, others.max(axis=1)
    else:
        rest, second = np.zeros(len(z)), best
    log_entropy = np.log(np.maximum(scores.entropy_of(z + energy[:, None]), 1e-26))
    return np.stack([energy, -best, np.maximum(rest, -60.0), log_entropy, second - best], axis=1)


def norm_evidence(features: NDArray[Any]) -> Floats:
    """Return the logarithms of the L1 and L2 norm; their direction is left to the data."""
    norms = np.stack([scores.l1_norms(features), np.sqrt(scores.square_norms(features))], axis=1)
    return -np.log(np.maximum(norms, TINY))


@dataclass(frozen=True)
class Bank:
    """ID rows seen from three sides: neighbours, class means under one covariance, principal subspace."""

    neighbours: NDArray[Any]
    unit: bool
    centre: Floats
    scale: Floats
    means: Floats
    whitening: Floats
    whitening_global: Floats
    minor: Floats

    def place(self, rows: Rows) -> Floats:
        """Return the bank's columns for some rows, in blocks."""
        parts = [self._place(rows[start : start + QUERY_ROWS]) for start in range(0, len(rows), QUERY_ROWS)]
        return np.concatenate(parts) if parts else np.zeros((0, 5 if rows.network else 3))

    def _place(self, rows: Rows) -> Floats:
        x = (np.asarray(rows.features) - self.centre.astype(rows.features.dtype)) * self.scale.astype(
            rows.features.dtype
        )
        near = self._neighbour_distance(scores.unit_rows(rows.features) if self.unit else x)
        points = (x @ self.whitening.astype(x.dtype)).astype(np.float64)
        to_class = np.maximum(scores.squared_distances(points, self.means), TINY)
        residual = scores.square_norms(x @ self.minor.astype(x.dtype))
        columns = [near, np.log(to_class.min(axis=1)), 0.5 * np.log(np.maximum(residual, TINY))]
        if rows.logits is not None:
            predicted = np.asarray(rows.logits).argmax(axis=1)
            spread = scores.square_norms(x @ self.whitening_global.astype(x.dtype))
            columns += [np.log(to_class[np.arange(len(x)), predicted]), np.log(np.maximum(spread, TINY))]
        return np.stack(columns, axis=1)

    def _neighbour_distance(self, x: NDArray[Any]) -> Floats:
        """Return the log of the mean squared distance to the nearest rows of the bank."""
        square = scores.near_square(x, self.neighbours, min(NEIGHBOURS, len(self.neighbours)), np.mean)
        # Float32 products resolve squared distances down to about 1e-6 of the squared norm.
        return np.log(np.maximum(square, 1e-6 * scores.square_norms(x) + TINY))


def fit_bank(rows: Rows) -> Bank:
    """Fit a bank on ID rows."""
    features = np.asarray(rows.features[:MOMENT_ROWS], dtype=np.float64)
    centre = features.mean(axis=0)
    spread = features.std(axis=0)
    spread[spread <= 1e-6 * np.abs(centre) + TINY] = np.inf
    if rows.one_scale:
        known = spread[np.isfinite(spread)]
        scale = np.full_like(spread, 1.0 / np.sqrt(np.mean(known**2)) if len(known) else 1.0)
    else:
        scale = 1.0 / spread
    x = (features - centre) * scale
    if rows.logits is None:
        label, k = np.zeros(len(x), dtype=np.int64), 1
    else:
        label, k = np.asarray(rows.logits[:MOMENT_ROWS]).argmax(axis=1), rows.logits.shape[1]
    count = np.bincount(label, minlength=k)
    means = (label[None, :] == np.arange(k)[:, None]).astype(np.float64) @ x
    # One pseudo-row at the grand mean (zero here): a class without rows stays where all rows are.
    means /= (count + 1.0)[:, None]
    inside = x - means[label]
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    # The subspace that holds 90 % of the variance is "principal"; at least one direction stays outside it.
    share = np.cumsum(values) / max(float(values.sum()), TINY)
    minor = vectors[:, : max(1, int(np.searchsorted(share, 0.1)))]
    whitener = _whitening(inside)
    bank_features = np.asarray(rows.features[:BANK_ROWS])
    neighbours = scores.unit_rows(bank_features) if rows.one_scale else ((bank_features - centre) * scale)
    return Bank(
        np.asarray(neighbours, dtype=rows.features.dtype),
        rows.one_scale,
        centre,
        scale,
        means @ whitener,
        whitener,
        _whitening(x) if rows.network else whitener,
        minor,
    )


def _whitening(x: Floats) -> Floats:
    """Return V with V V^T the inverse of the covariance, shrunk towards a sphere by d / (n + d)."""
    n, d = x.shape
    covariance = x.T @ x / n
    shrink = d / (n + d)
    level = float(np.trace(covariance)) / d
    covariance *= 1.0 - shrink
    covariance[np.diag_indices(d)] += shrink * level + TINY
    return scores.whitening(covariance)
