# SPDX-License-Identifier: BSD-3-Clause
"""The strong representation: standardised features plus ID-only evidence, every row compared with landmarks without it.

Convention: evidence columns are standardised on ID rows and clipped at `CLIP` standard deviations; ``consensus`` is
one column with mean 0 and variance 1 on ID rows, the evidence two views agree on. Training rows of fold k (labeled and
unlabeled alike) are compared with landmarks of the ID rows of the other folds, new rows with those of all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.ratio._evidence import MOMENT_ROWS, LandmarkFactory, logit_evidence, norm_evidence
from poscod.ratio._rows import Rows

LOGIT_COLUMNS = ("energy", "max_logit", "log_one_minus_msp", "log_entropy", "margin")
NORM_COLUMNS = ("log_l1_norm", "log_l2_norm")
BANK_COLUMNS = ("knn", "mahalanobis", "residual", "mahalanobis_predicted", "mahalanobis_global")
# Two views that fail in different ways, what the head says and where the features lie, weigh the same in the
# consensus; within the second, the nearest neighbours count twice because they assume no shape.
HEAD_VIEW = {"energy": 1.0, "max_logit": 1.0, "log_one_minus_msp": 1.0}
PLACE_VIEW = {"knn": 2.0, "mahalanobis": 1.0, "residual": 1.0}

CLIP = 8.0
# What moves between training rows and new ones is measured on about so many unlabeled rows, among them by those whose consensus, in standard deviations
# of ID rows, is between these, if they are not too few to say anything.
MOVE_ROWS, EDGE, LEAST_ROWS = 4000, (1.0, 3.0), 10
BLOCK = 32768


class Representation:
    """Evidence of new rows, and how it is standardised.

    Parameters
    ----------
    names : tuple of str
        Columns of evidence.
    banks : list of Landmarks
        What new rows are compared with; the mean counts where there are several, as in models of the first edition.
    raw : ndarray of shape (m, e)
        Evidence of the ID rows, each by landmarks without it.
    weight : ndarray of shape (m,)
        Weights of the ID rows, which sum to one.
    """

    def __init__(self, names: tuple[str, ...], banks: list[Any], raw: Floats, weight: Floats) -> None:
        self.names, self.banks = names, banks
        self.mean: Floats = weight @ raw
        scale = np.sqrt(np.maximum(weight @ (raw - self.mean) ** 2, 0.0))
        # Log-probabilities have no energy but the rounding of a float32 sum: less than this is no number.
        self.scale: Floats = np.where(scale > 1e-5 * (1.0 + np.abs(self.mean)), scale, np.inf)
        standard = (raw - self.mean) / self.scale
        self.views: list[tuple[Floats, float, float]] = []
        for view in (HEAD_VIEW, PLACE_VIEW):
            blend = np.array([view.get(name, 0.0) for name in self.names])
            if blend.any():
                self.views.append((blend, *_moments(standard @ blend, weight)))
        self.centre, self.spread = _moments(self._views(standard), weight)

    def new(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return evidence and consensus of new rows."""
        places = [bank.place(rows) for bank in self.banks]
        return self.finish(_raw(rows, places[0] if len(places) == 1 else np.mean(places, axis=0)))

    def finish(self, raw: Floats) -> tuple[Floats, Floats]:
        """Return evidence, standardised and clipped, and the consensus."""
        standard = (raw - self.mean) / self.scale
        consensus = (self._views(standard) - self.centre) / self.spread
        return np.clip(standard, -CLIP, CLIP), np.clip(consensus, -2 * CLIP, 2 * CLIP)

    def realign(self, before: Rows, after: Rows) -> None:
        """Let evidence of new rows be what it was of training rows, where a classifier says something else of new rows: before and after are the same rows."""
        some = _some(len(before))
        self.move(*(_raw(rows, self.banks[0].place(rows)) for rows in (before[some], after[some])))

    def move(self, training: Floats, new: Floats) -> None:
        """Take the mean difference of some rows, seen as training rows and as new rows, out of new ones.

        All landmarks are nearer than those without a fold, and a classifier of all rows is surer than one of a part: new rows would look more like ID
        than the rows that set thresholds. Unlabeled rows have trained neither. Those at the edge of ID rows count, where thresholds lie: surer rows
        move more, strangers less. Both views have the same say in which rows these are; one alone would choose those that it puts too far out.
        """
        consensus = 0.5 * (self.finish(training)[1] + self.finish(new)[1])
        edge = (consensus > EDGE[0]) & (consensus < EDGE[1])
        if edge.sum() >= LEAST_ROWS:
            self.mean = self.mean - np.mean(training[edge] - new[edge], axis=0)

    def _views(self, standard: Floats) -> Floats:
        total = np.zeros(len(standard))
        for blend, mean, scale in self.views:
            total += (standard @ blend - mean) / scale
        return total


def represent(
    sides: tuple[Rows, Rows],
    order: NDArray[Any],
    folds: tuple[NDArray[Any], NDArray[Any]],
    n_folds: int,
    weight_id: Floats,
) -> tuple[Representation, list[Floats], list[Floats]]:
    """Return the representation, and evidence and consensus of both sides, each row by landmarks without its fold.

    Parameters
    ----------
    sides : tuple of Rows
        ID rows and unlabeled rows.
    order : ndarray of shape (m,)
        Indices of ID rows in an order that carries no meaning; landmarks keep the first rows of it.
    folds : tuple of ndarray
        Fold of each row of both sides.
    n_folds : int
    weight_id : ndarray of shape (m,)
        Weights of the ID rows.
    """
    rows_id = sides[0]
    names = (*LOGIT_COLUMNS, *NORM_COLUMNS, *BANK_COLUMNS) if rows_id.network else BANK_COLUMNS[:3]
    keep = order[weight_id[order] > 0.0][:MOMENT_ROWS]  # enough for means and axes
    factory = LandmarkFactory(rows_id[keep], folds[0][keep])
    raw = [np.empty((len(rows), len(names))) for rows in sides]
    for k in range(n_folds):
        landmarks = factory.without(k)
        for rows, fold, out in zip(sides, folds, raw, strict=True):
            inside = np.flatnonzero(fold == k)
            for start in range(0, len(inside), BLOCK):
                index = inside[start : start + BLOCK]
                part = rows[index]
                out[index] = _raw(part, landmarks.place(part))
    found = Representation(names, [factory.of_all()], raw[0], weight_id / weight_id.sum())
    evidence, consensus = map(list, zip(*map(found.finish, raw), strict=True))
    some = _some(len(sides[1]))
    part = sides[1][some]
    found.move(raw[1][some], _raw(part, found.banks[0].place(part)))
    return found, evidence, consensus


def _raw(rows: Rows, place: Floats) -> Floats:
    if rows.logits is None:
        return place
    return np.concatenate([logit_evidence(rows.logits), norm_evidence(rows.features), place], axis=1)


def _some(n: int) -> NDArray[Any]:
    return np.arange(0, n, max(1, n // MOVE_ROWS))


def _moments(values: Floats, weight: Floats) -> tuple[float, float]:
    """Return weighted mean and standard deviation; a constant gets an infinite scale."""
    mean = float(weight @ values)
    scale = float(np.sqrt(float(weight @ (values - mean) ** 2)))
    return mean, scale if scale > 1e-9 else np.inf
