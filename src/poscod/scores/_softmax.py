# SPDX-License-Identifier: BSD-3-Clause
"""What logits say, as functions of one block: energy, entropy, and a softmax split so that nothing cancels.

Convention: logits are a block (n, K) of finite numbers; everything returned is float64. These are the only formulas of
their kind: the scores and the evidence of `poscod.ratio` are made of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

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
    shifted, top = _shifted(logits)
    log_rest = _log_rest(shifted)
    return SplitSoftmax(top, shifted - np.log1p(np.exp(log_rest))[:, None], log_rest)


def one_minus_top(logits: NDArray[Any], temperature: float = 1.0) -> Floats:
    """Return 1 - max softmax(logits / temperature)."""
    shifted, _ = _shifted(logits)
    return np.asarray(expit(_log_rest(shifted / temperature)))


def log_sum_exp(values: Floats) -> Floats:
    """Return log sum exp of each row."""
    return np.asarray(logsumexp(values, axis=1))


def free_energy(logits: NDArray[Any], temperature: float = 1.0) -> Floats:
    """Return -T log sum exp(logits / T)."""
    return -temperature * log_sum_exp(np.asarray(logits, dtype=np.float64) / temperature)


def entropy_of(log_p: Floats) -> Floats:
    """Return the entropy of probabilities given by their logarithms."""
    return np.asarray(-np.einsum("nk,nk->n", np.exp(log_p), log_p))


def without_top(values: NDArray[Any]) -> Floats:
    """Return a copy whose largest entry of each row (the first one at a tie) is -inf."""
    others = np.array(values, dtype=np.float64)
    others[np.arange(len(others)), others.argmax(axis=1)] = -np.inf
    return others


def _shifted(logits: NDArray[Any]) -> tuple[Floats, NDArray[np.int64]]:
    """Return logits minus the largest of their row, and where that is."""
    shifted = np.array(logits, dtype=np.float64)
    top = shifted.argmax(axis=1)
    shifted -= shifted[np.arange(len(shifted)), top][:, None]
    return shifted, top


def _log_rest(shifted: Floats) -> Floats:
    """Return the logarithm of the sum of exp(shifted) over all columns but the largest."""
    if shifted.shape[1] == 1:
        return np.full(len(shifted), -np.inf)
    rest = without_top(shifted)
    second = rest.max(axis=1)
    rest -= second[:, None]
    np.exp(rest, out=rest)
    return np.asarray(second + np.log(rest.sum(axis=1)))
