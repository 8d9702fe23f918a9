# SPDX-License-Identifier: BSD-3-Clause
"""The strong representation: standardised features plus ID-only evidence, every row scored by a bank without it.

Convention: evidence columns are standardised on ID rows and clipped at `CLIP` standard deviations; ``consensus`` is
one column with mean 0 and variance 1 on ID rows, the evidence two views agree on. Training rows of fold k (labeled and
unlabeled alike) are scored by the bank fitted on the ID rows of the other folds, new rows by the mean of all banks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.ratio._evidence import BANK_ROWS, MOMENT_ROWS, Bank, fit_bank, logit_evidence, norm_evidence
from poscod.ratio._rows import Rows

LOGIT_COLUMNS = ("energy", "max_logit", "log_one_minus_msp", "log_entropy", "margin")
NORM_COLUMNS = ("log_l1_norm", "log_l2_norm")
BANK_COLUMNS = ("knn", "mahalanobis", "residual", "mahalanobis_predicted", "mahalanobis_global")
# Two views that fail in different ways, what the head says and where the features lie, weigh the same in the
# consensus; within the second, the nearest neighbours count twice because they assume no shape.
HEAD_VIEW = {"energy": 1.0, "max_logit": 1.0, "log_one_minus_msp": 1.0}
PLACE_VIEW = {"knn": 2.0, "mahalanobis": 1.0, "residual": 1.0}

CLIP = 8.0
BLOCK = 32768


class Representation:
    """Evidence of rows from K banks of ID rows.

    Parameters
    ----------
    rows_id : Rows of m ID rows
    order : ndarray of shape (m,)
        Row indices in an order that carries no meaning (by content hash); banks keep the first rows of it.
    fold_id : ndarray of shape (m,)
        Fold of each ID row.
    n_folds : int
    weight_id : ndarray of shape (m,)
        Row weights.
    """

    def __init__(
        self, rows_id: Rows, order: NDArray[Any], fold_id: NDArray[Any], n_folds: int, weight_id: Floats
    ) -> None:
        self.n_folds = n_folds
        self.names = (*LOGIT_COLUMNS, *NORM_COLUMNS, *BANK_COLUMNS) if rows_id.network else BANK_COLUMNS[:3]
        keep = order[weight_id[order] > 0.0]
        self.banks: list[Bank] = []
        for k in range(n_folds):
            members = keep[fold_id[keep] != k][: max(BANK_ROWS, MOMENT_ROWS)]
            if not len(members):  # all rows are copies of one
                members = keep
            self.banks.append(fit_bank(rows_id[members]))
        raw = self._own_fold(rows_id, fold_id)
        weight = weight_id / weight_id.sum()
        self.mean: Floats = weight @ raw
        scale = np.sqrt(np.maximum(weight @ (raw - self.mean) ** 2, 0.0))
        self.scale: Floats = np.where(scale > 1e-9 * (1.0 + np.abs(self.mean)), scale, np.inf)
        standard = (raw - self.mean) / self.scale
        self.views: list[tuple[Floats, float, float]] = []
        for view in (HEAD_VIEW, PLACE_VIEW):
            blend = np.array([view.get(name, 0.0) for name in self.names])
            if blend.any():
                self.views.append((blend, *_moments(standard @ blend, weight)))
        self.centre, self.spread = _moments(self._views(standard), weight)

    def training(self, rows: Rows, fold: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return evidence and consensus of training rows, each by the bank of its fold."""
        return self._finish(self._own_fold(rows, fold))

    def new(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return evidence and consensus of new rows, averaged over the banks."""
        place = np.mean([bank.place(rows) for bank in self.banks], axis=0)
        return self._finish(self._with_logits(rows, place))

    def _own_fold(self, rows: Rows, fold: NDArray[Any]) -> Floats:
        out = np.empty((len(rows), len(self.names)))
        for start in range(0, len(rows), BLOCK):
            stop = min(start + BLOCK, len(rows))
            for k in np.unique(fold[start:stop]):
                index = start + np.flatnonzero(fold[start:stop] == k)
                part = rows[index]
                out[index] = self._with_logits(part, self.banks[k].place(part))
        return out

    def _with_logits(self, rows: Rows, place: Floats) -> Floats:
        if rows.logits is None:
            return place
        return np.concatenate([logit_evidence(rows.logits), norm_evidence(rows.features), place], axis=1)

    def _finish(self, raw: Floats) -> tuple[Floats, Floats]:
        standard = (raw - self.mean) / self.scale
        consensus = (self._views(standard) - self.centre) / self.spread
        return np.clip(standard, -CLIP, CLIP), np.clip(consensus, -2 * CLIP, 2 * CLIP)

    def _views(self, standard: Floats) -> Floats:
        total = np.zeros(len(standard))
        for blend, mean, scale in self.views:
            total += (standard @ blend - mean) / scale
        return total


def _moments(values: Floats, weight: Floats) -> tuple[float, float]:
    """Return weighted mean and standard deviation; a constant gets an infinite scale."""
    mean = float(weight @ values)
    scale = float(np.sqrt(float(weight @ (values - mean) ** 2)))
    return mean, scale if scale > 1e-9 else np.inf
