# SPDX-License-Identifier: BSD-3-Clause
"""Who learns and who is measured: no row does both.

Convention: a split is made of row numbers. A dedicated training file gives all its rows to learning and leaves all evaluation rows to
measuring; without one, the rows are cut at random. Rows are compared by content, too: a training row that equals a measured row,
ID or OOD, is left out.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import check_number
from poscod.benchmark._spec import BenchmarkSpec

Hashes = NDArray[np.uint64]
Indices = NDArray[np.intp]
# ID and OOD rows to evaluate, then dedicated training rows of both where there are such.
PoolHashes = tuple[Hashes, Hashes, Hashes | None, Hashes | None]


class Split(NamedTuple):
    """Row numbers of one random split."""

    # ID rows to learn from: labeled ones, and those that stand in the mixture. Of the dedicated file where there is one, else of
    # the evaluation file.
    id_labeled: Indices
    id_mixture: Indices
    # OOD rows to learn from, hidden in the mixture or clean.
    ood_train: Indices
    # Measured rows of the evaluation files.
    id_test: Indices
    ood_test: Indices
    # ID rows of the evaluation file that are neither learned from nor measured.
    id_spare: Indices


def split_rows(spec: BenchmarkSpec, hashes: PoolHashes, name: str, seed: int) -> Split:
    """Split the rows of one pool, given the digest of every row of its four parts."""
    hash_id, hash_ood, hash_id_train, hash_ood_train = hashes
    # Score files have nothing to learn from, so all their rows are measured.
    share_id, share_ood = (0.0, 0.0) if spec.source == "dumps" else (spec.id_train_share, spec.ood_train_share)
    train_id, test_id = _cut(hash_id, hash_id_train, share_id, np.random.default_rng([seed, 0]))
    rng = np.random.default_rng([seed, 1, zlib.crc32(name.encode())])
    train_ood, test_ood = _cut(hash_ood, hash_ood_train, share_ood, rng)
    # Everything set aside is unseen, whether or not it is among the rows measured: sizes do not change who may learn.
    unseen = np.concatenate([hash_id[test_id], hash_ood[test_ood]])
    train_id = train_id[~np.isin((hash_id if hash_id_train is None else hash_id_train)[train_id], unseen)]
    train_ood = train_ood[~np.isin((hash_ood if hash_ood_train is None else hash_ood_train)[train_ood], unseen)]
    n_id, n_test = min(spec.n_id, len(train_id) // 2), spec.n_test
    return Split(train_id[:n_id], train_id[n_id:], train_ood, test_id[:n_test], test_ood[:n_test], test_id[n_test:])


def mixture_sizes(pi: float, n_mixture: int, most_id: int, most_ood: int) -> tuple[int, int]:
    """Return how many ID and OOD rows make a mixture with a share pi of OOD rows.

    Examples
    --------
    >>> mixture_sizes(0.1, 3000, 3000, 5000), mixture_sizes(0.5, 3000, 3000, 600)
    ((2700, 300), (600, 600))
    """
    check_number(pi, "pi", 0.0, 1.0, closed="right")
    total = min(float(n_mixture), most_ood / pi, most_id / (1.0 - pi) if pi < 1.0 else np.inf)
    n_ood = min(round(pi * total), most_ood)
    return min(round(total) - n_ood, most_id), n_ood


def _cut(
    hashes: Hashes, hashes_train: Hashes | None, share: float, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return rows to learn from and rows to measure on, in random order."""
    order = rng.permutation(len(hashes))
    if hashes_train is not None:
        return rng.permutation(len(hashes_train)), order
    n = round(share * len(hashes))
    return order[:n], order[n:]
