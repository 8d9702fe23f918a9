# SPDX-License-Identifier: BSD-3-Clause
"""Shaping of features before the last layer, and the energy that follows: shared by ASH, SCALE, ReAct and DICE.

Convention: features are a float64 block (n, d) that is never changed; energies are uncertainties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_number
from poscod.scores._energy import free_energy


def check_percentile(percentile: Any) -> None:
    """Check a percentile below 100: at 100 nothing would be left."""
    check_number(percentile, "percentile", 0.0, 100.0, closed="left")


def head_energy(features: Floats, weight: NDArray[Any], bias: NDArray[Any]) -> Floats:
    """Return the free energy of the logits W phi + b."""
    return free_energy(features @ np.asarray(weight, dtype=np.float64).T + np.asarray(bias, dtype=np.float64))


def kept_count(n_features: int, percentile: float) -> int:
    """Return how many features survive pruning."""
    return max(1, n_features - round(n_features * percentile / 100.0))


def largest_mask(features: Floats, kept: int) -> NDArray[np.bool_]:
    """Mark the largest features of each row; among equal ones the first columns win."""
    n_features = features.shape[1]
    if kept >= n_features:
        return np.ones(features.shape, dtype=bool)
    limit = np.partition(features, n_features - kept, axis=1)[:, n_features - kept, None]
    mask = features > limit
    tied = features == limit
    room = kept - mask.sum(axis=1, keepdims=True)
    mask |= tied & (np.cumsum(tied, axis=1, dtype=np.int32) <= room)
    return mask


def sum_ratio(features: Floats, mask: NDArray[np.bool_], kept: int) -> Floats:
    """Return the sum of all features over the sum of the kept ones."""
    everything = features.sum(axis=1)
    largest = np.where(mask, features, 0.0).sum(axis=1)
    bound = features.shape[1] / kept
    # largest = 0 means that all features are zero (ratio irrelevant) or that some are negative (clipped anyway).
    safe = np.where(largest > 0, largest, 1.0)
    limited = np.clip(everything, 0.0, bound * safe)
    return np.asarray(limited / safe)
