# SPDX-License-Identifier: BSD-3-Clause
"""Reads ratios of the first edition: ID rows as it kept them. Nothing here is fitted any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod import scores
from poscod._validation import Floats
from poscod.ratio._evidence import QUERY_ROWS, TINY
from poscod.ratio._rows import Rows

NEIGHBOURS = 10


@dataclass(frozen=True)
class FirstBank:
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
        """Return the columns of some rows, in blocks."""
        parts = [self._place(rows[start : start + QUERY_ROWS]) for start in range(0, len(rows), QUERY_ROWS)]
        return np.concatenate(parts) if parts else np.zeros((0, 5 if rows.network else 3))

    def _place(self, rows: Rows) -> Floats:
        features = np.asarray(rows.features)
        x = (features - self.centre.astype(features.dtype)) * self.scale.astype(features.dtype)
        queries = scores.unit_rows(features) if self.unit else x
        near = scores.near_square(queries, self.neighbours, min(NEIGHBOURS, len(self.neighbours)), np.mean)
        points = (x @ self.whitening.astype(x.dtype)).astype(np.float64)
        to_class = np.maximum(scores.squared_distances(points, self.means), TINY)
        residual = scores.square_norms(x @ self.minor.astype(x.dtype))
        columns = [
            np.log(np.maximum(near, 1e-6 * scores.square_norms(queries) + TINY)),
            np.log(to_class.min(axis=1)),
            0.5 * np.log(np.maximum(residual, TINY)),
        ]
        if rows.logits is not None:
            predicted = np.asarray(rows.logits).argmax(axis=1)
            spread = scores.square_norms(x @ self.whitening_global.astype(x.dtype))
            columns += [np.log(to_class[np.arange(len(x)), predicted]), np.log(np.maximum(spread, TINY))]
        return np.stack(columns, axis=1)
