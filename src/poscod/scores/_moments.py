# SPDX-License-Identifier: BSD-3-Clause
"""Norms, distances, means and covariances of features, summed in float64.

Convention: covariances divide by the number of rows (maximum likelihood), as the published scores do. The scores and the
evidence of `poscod.ratio` are made of these functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._score import BLOCK_BYTES


def l1_norms(rows: NDArray[Any]) -> Floats:
    """Return the sum of absolute values of each row."""
    return np.asarray(np.abs(rows).sum(axis=1, dtype=np.float64))


def square_norms(rows: NDArray[Any]) -> Floats:
    """Return the squared Euclidean norm of each row."""
    return np.asarray(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))


def squared_distances(points: Floats, targets: Floats) -> Floats:
    """Return the squared Euclidean distance of each point to each target, up to rounding below 0."""
    return np.asarray(square_norms(points)[:, None] - 2.0 * points @ targets.T + square_norms(targets))


def blocks(features: NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """Iterate over float64 copies of consecutive rows."""
    size = max(64, BLOCK_BYTES // (8 * max(1, features.shape[1])))
    for start in range(0, len(features), size):
        rows = slice(start, min(start + size, len(features)))
        yield rows, np.asarray(features[rows], dtype=np.float64)


def mean(features: NDArray[Any]) -> Floats:
    """Return the mean of the rows."""
    total = np.zeros(features.shape[1])
    for _, block in blocks(features):
        total += block.sum(axis=0)
    return total / len(features)


def covariance(features: NDArray[Any], centre: Floats, of_row: NDArray[np.int64] | None = None) -> Floats:
    """Return the mean of (x - c)(x - c)^T."""
    total = np.zeros((features.shape[1], features.shape[1]))
    for rows, block in blocks(features):
        centred = block - (centre if of_row is None else centre[of_row[rows]])
        total += centred.T @ centred
    return total / len(features)


def whitening(matrix: Floats) -> Floats:
    """Return V with V V^T = the pseudo-inverse of a covariance."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > max(float(values[-1]), 0.0) * len(values) * np.finfo(np.float64).eps
    return np.ascontiguousarray(vectors[:, kept] / np.sqrt(values[kept]))


def classes_of(activations: Activations, caller: str) -> NDArray[np.int64]:
    """Return the class of each ID row: its label, or the predicted class where there are no labels."""
    if activations.labels is not None:
        labels: NDArray[np.int64] = activations.labels
        if len(labels) and labels.min() < 0:
            row = int(np.argmin(labels))
            raise InvalidInputError(
                f"{caller} needs ID rows with a class each, got label -1 at row {row}: drop OOD and unlabeled rows."
            )
        return labels
    if activations.logits is None:
        raise InvalidInputError(f"{caller} needs labels, or logits to predict them, got neither.")
    return np.asarray(activations.logits.argmax(axis=1), dtype=np.int64)


def class_means(
    features: NDArray[Any], classes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Return the mean features of every class that has rows."""
    present, counts = np.unique(classes[classes >= 0], return_counts=True)
    of_row = np.where(classes >= 0, np.searchsorted(present, classes), -1)
    totals = np.zeros((len(present), features.shape[1]))
    for rows, block in blocks(features):
        member = (of_row[rows] == np.arange(len(present))[:, None]).astype(np.float64)
        totals += member @ block
    return present, totals / counts[:, None], of_row
