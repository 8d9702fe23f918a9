# SPDX-License-Identifier: BSD-3-Clause
"""Softmax split into its largest entry and the rest, so that nothing cancels for confident rows.

Convention: logits are a block (n, K) of finite numbers; everything returned is float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats


class SplitSoftmax(NamedTuple):
    """A softmax p of n rows and K classes, kept in logarithms.

    Attributes
    ----------
    top : ndarray of shape (n,), int64
        Class with the largest probability (the first one at a tie).
    log_p : ndarray of shape (n, K)
        Logarithm of every probability.
    log_rest : ndarray of shape (n,)
        log S, with S the sum of exp(z_j - z_top) over the classes other than the top one; -inf when K = 1.
    """

    top: NDArray[np.int64]
    log_p: Floats
    log_rest: Floats

    @property
    def log_one_minus_top(self) -> Floats:
        """log(1 - p_top) = log S - log(1 + S), without subtracting nearly equal numbers."""
        return self.log_rest - np.log1p(np.exp(self.log_rest))


def split_softmax(logits: NDArray[Any]) -> SplitSoftmax:
    """Return the softmax of a block of logits, split at its largest entry.

    Examples
    --------
    >>> split = split_softmax(np.array([[100.0, 0.0]]))
    >>> float(split.log_one_minus_top[0])
    -100.0
    """
    shifted = np.array(logits, dtype=np.float64)
    top = shifted.argmax(axis=1)
    rows = np.arange(len(shifted))
    shifted -= shifted[rows, top][:, None]
    log_rest = log_rest_of(shifted, top)
    return SplitSoftmax(top, shifted - np.log1p(np.exp(log_rest))[:, None], log_rest)


def log_rest_of(shifted: Floats, top: NDArray[np.int64]) -> Floats:
    """Return the logarithm of the sum of exp(shifted) over all columns but `top`."""
    if shifted.shape[1] == 1:
        return np.full(len(shifted), -np.inf)
    rows = np.arange(len(shifted))
    rest = shifted.copy()
    rest[rows, top] = -np.inf
    second = rest.max(axis=1)
    rest -= second[:, None]
    np.exp(rest, out=rest)
    return np.asarray(second + np.log(rest.sum(axis=1)))


def log_sum_exp(values: Floats) -> Floats:
    """Return log sum exp of each row."""
    largest = values.max(axis=1)
    return np.asarray(largest + np.log(np.exp(values - largest[:, None]).sum(axis=1)))
