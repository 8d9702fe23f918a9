# SPDX-License-Identifier: BSD-3-Clause
"""Scores of the nearest ID rows, KNN and NNGuide, by blocked matrix products: memory stays at two tiles, whatever the sizes.

Convention: higher = reject sooner; the published confidences, minus the distance and the guided energy, are turned
around here. Products are taken in the dtype of the bank; what is returned is float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_count
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._moments import blocks, square_norms
from poscod.scores._score import Score
from poscod.scores._softmax import free_energy

QUERY_ROWS = 1024
BANK_ROWS = 8192
TINY = 1e-12


@dataclass(eq=False, repr=False, kw_only=True)
class _Neighbours(Score):
    """A score that keeps ID rows, all or a sample of them, and searches the k nearest."""

    k: int = 50
    bank_size: int | None = None
    random_state: Any = 0

    def _check_parameters(self) -> None:
        check_count(self.k, "k")
        if self.bank_size is not None:
            check_count(self.bank_size, "bank_size")

    def _fit(self, activations: Activations) -> None:
        n, kept = len(activations), activations
        if self.bank_size is not None and self.bank_size < n:
            rng = np.random.default_rng(self.random_state)
            kept = activations[np.sort(rng.choice(n, self.bank_size, replace=False))]
        self._check_enough(len(kept))
        self.bank_ = self._bank(kept)

    def _bank(self, kept: Activations) -> NDArray[Any]:
        """Return what is searched."""
        return unit_rows(kept.features)

    def _check_enough(self, rows: int) -> None:
        """Refuse more neighbours than the bank has rows."""
        if self.k > rows:
            raise InvalidInputError(f"k must be at most the number of rows in the bank ({rows}), got {self.k}.")

    def _queries(self, block: Activations) -> NDArray[Any]:
        """Return the rows to search with."""
        self._check_enough(len(self.bank_))  # k may have been changed since fit
        return unit_rows(block.features)


class KNN(_Neighbours):
    """Euclidean distance to the k-th nearest ID row, on features of norm one.

    Parameters
    ----------
    k : int, default=50
        Number of neighbours.
    bank_size : int, default=None
        ID rows kept, drawn without replacement; None keeps all.
    random_state : int, Generator or None, default=0
        Seed of the draw.

    Attributes
    ----------
    bank_ : ndarray of shape (m, d)
        Features of the kept ID rows, scaled to norm one, in the dtype they came in.

    Notes
    -----
    ``s(x) = |u(x) - u_(k)|`` with ``u = phi / |phi|`` the d features scaled to norm one and u_(k) the k-th nearest
    of the ID rows. Float32 features are compared in float32: a distance below about 1e-3 is then rounding.

    References
    ----------
    .. [1] Y. Sun, Y. Ming, X. Zhu, Y. Li, "Out-of-Distribution Detection with Deep Nearest Neighbors", ICML 2022.

    Examples
    --------
    >>> train = Activations(features=[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    >>> KNN(k=2).fit(train)(Activations(features=[[5.0, 0.0], [-1.0, 0.0]])).round(4)
    array([0., 2.])
    """

    name = "knn"
    needs = fit_needs = ("features",)

    def _score(self, block: Activations) -> Floats:
        square = near_square(self._queries(block), self.bank_, self.k, np.min)
        return np.asarray(np.sqrt(np.maximum(square, 0.0)))


@dataclass(eq=False, repr=False, kw_only=True)
class NNGuide(_Neighbours):
    """Nearest-neighbour guidance of the energy.

    Parameters
    ----------
    k : int, default=10
        Number of neighbours.
    bank_size : int, default=None
        ID rows kept, drawn without replacement; None keeps all (the authors keep 1 % of ImageNet).
    random_state : int, Generator or None, default=0
        Seed of the draw.

    Attributes
    ----------
    bank_ : ndarray of shape (m, d)
        Features of the kept ID rows, scaled to norm one and multiplied by their confidence E.

    Notes
    -----
    ``s(x) = -E(x) (1/k) sum_i E(x_i) u(x)^T u(x_i)``, with ``E = log sum_y exp(z_y)`` the negative energy of the K
    logits z, ``u = phi / |phi|`` the d features scaled to norm one, and the sum over the k ID rows x_i with the
    largest terms.

    References
    ----------
    .. [1] J. Park, Y. G. Jung, A. B. J. Teoh, "Nearest Neighbor Guidance for Out-of-Distribution Detection",
       ICCV 2023.

    Examples
    --------
    >>> train = Activations([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]])
    >>> NNGuide(k=1).fit(train)(Activations([[3.0, 0.0], [-1.0, -1.0]], [[3.0, 0.0], [1.0, 1.0]])).round(4)
    array([-6.4841,  2.5464])
    """

    name = "nnguide"
    needs = fit_needs = ("features", "logits")
    k: int = 10

    def _bank(self, kept: Activations) -> NDArray[Any]:
        bank = unit_rows(kept.features)
        for rows, logits in blocks(kept.logits):
            bank[rows] *= -free_energy(logits).astype(bank.dtype)[:, None]
        return bank

    def _score(self, block: Activations) -> Floats:
        penalty = np.zeros(len(self.bank_), self.bank_.dtype)
        guidance = largest_products(self._queries(block), self.bank_, self.k, penalty).mean(axis=1)
        return np.asarray(free_energy(block.logits) * guidance)


def unit_rows(features: NDArray[Any]) -> NDArray[Any]:
    """Return rows of Euclidean norm one in the dtype of the input; a row of zeros stays a row of zeros."""
    unit = np.array(features, order="C")
    for start in range(0, len(unit), QUERY_ROWS):
        block = unit[start : start + QUERY_ROWS]
        block /= np.maximum(np.sqrt(square_norms(block)), TINY).astype(unit.dtype)[:, None]
    return unit


def near_square(queries: NDArray[Any], bank: NDArray[Any], k: int, pool: Callable[..., Any]) -> Floats:
    """Return the squared distance to the k nearest rows of the bank: to the k-th with np.min, their mean with np.mean."""
    # |q - b|^2 / 2 = |q|^2 / 2 - (q b - |b|^2 / 2): the largest brackets belong to the nearest rows.
    half = 0.5 * np.einsum("md,md->m", bank, bank)
    return np.asarray(square_norms(queries) - 2.0 * pool(largest_products(queries, bank, k, half), axis=1))


def largest_products(queries: NDArray[Any], bank: NDArray[Any], k: int, penalty: NDArray[Any]) -> Floats:
    """Return the k largest values of q b - penalty_b over the bank, in no particular order."""
    out = np.empty((len(queries), k))
    for start in range(0, len(queries), QUERY_ROWS):
        rows = np.asarray(queries[start : start + QUERY_ROWS], dtype=bank.dtype)
        best = np.empty((len(rows), 0), dtype=bank.dtype)
        for left in range(0, len(bank), BANK_ROWS):
            tile = rows @ bank[left : left + BANK_ROWS].T
            tile -= penalty[left : left + BANK_ROWS]
            found = np.concatenate([best, tile], axis=1)
            best = np.partition(found, found.shape[1] - k, axis=1)[:, -k:] if found.shape[1] > k else found
        out[start : start + QUERY_ROWS] = best
    return out
