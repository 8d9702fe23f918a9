# SPDX-License-Identifier: BSD-3-Clause
"""Rows that are not independent of each other: groups that are given, and near-copies among the labeled rows that are found.

Convention: a group is a number per row, as copies share one. Rows of a group are never on two sides of a split, and where errors are counted they count as one.
Near-copies are labeled rows whose nearest labeled row is nearer than it is to the rows of the traffic: many rows on one side, hardly any on the other. That is a
statement about two samples and one set of rows to be near to, so it holds whatever the dimension, the tails and the ties; what is equal is no near-copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from poscod._threads import one_thread
from poscod._validation import Floats, refusal
from poscod.exceptions import PoscodWarning, warn_caller
from poscod.model._parts import Labeled
from poscod.model._plan import Indices, Keys
from poscod.model._range import measured, numeric_columns
from poscod.model._rows import take
from poscod.ratio import group_keys, mixed, row_hash

# Rows of either side that are looked at, and fewer of which say nothing.
LOOK, LEAST_LOOK = 200, 50
# Share of the labeled rows that have a near-copy, and how many times the share of the traffic that is as near to a labeled row it is: more than OOD rows, which
# are near to nothing, explain in traffic that has a tenth of ID rows, chance included.
LEAST_SHARE, TIMES = 0.2, 50.0
# Where there are near-copies, rows are linked as far as most of those that are so near are near-copies: a row too many in a group costs little, one too few is a leak.
LINK_TIMES, BEYOND = 10.0, 1.5
# Near-copies are nearer to each other than to the next row outside their group, on the median by this factor.
APART = 0.65
# A group of more rows than these, and than this share of the rows, is no set of copies but a dense place.
LARGEST, LARGEST_SHARE = 20, 0.05
# In fewer columns than these, rows are near to each other by chance.
LEAST_COLUMNS = 3
# Standard deviations beyond which a value is only far.
FARTHEST = 1e6
BLOCK = 1024


class NearCopiesWarning(PoscodWarning):
    """Labeled rows are near-copies of each other; they are taken for one observation each."""


def in_groups(
    engine: Any, rows: Labeled, marked: Indices, groups: tuple[Any, Any], n_unlabeled: int
) -> tuple[Labeled, Keys | None]:
    """Return labeled rows with their groups, given or found, and the groups of the traffic."""
    own = group_keys(groups[0], "groups", "X", len(engine))
    other = groups[1]
    if other is not None and (len(marked) or not n_unlabeled):
        raise refusal(
            "groups_unlabeled",
            "are the groups of the rows of {X_unlabeled}, which is not given: rows that {y} marks have theirs in {groups}.",
        )
    traffic = group_keys(other, "groups_unlabeled", "X_unlabeled", n_unlabeled)
    if own is None:
        found = None
        if engine.folds:
            with one_thread("blas"):  # products are small
                found = near_copies(take(engine.like, rows.at), engine.traffic, rows.codes)
        return rows if found is None else rows._replace(group=found), traffic
    if len(np.unique(own[rows.at])) < 2:
        raise refusal("groups", "must hold at least two groups of labeled rows, got one: it cannot be split.")
    return rows._replace(group=own[rows.at]), own[marked] if len(marked) else traffic


def near_copies(X: Any, traffic: Any, codes: NDArray[np.int64]) -> Keys | None:
    """Return groups of labeled rows that are near-copies of each other, and warn; None where there are none."""
    if traffic is None or hasattr(X, "tocsr"):
        return None
    columns = numeric_columns(X)
    sides = [measured(side, columns)[:1] for side in (X, traffic)]
    if not all(side and side[0].shape[1] for side in sides) or sides[0][0].shape[1] != sides[1][0].shape[1]:
        return None  # no numbers, or other columns, which others will say
    known, other = (np.asarray(side[0], dtype=np.float64) for side in sides)
    # Equal rows share a fold already, and of discrete rows most are equal: what counts is how near the next one is.
    keys = row_hash(known, 0)
    first = np.unique(keys, return_index=True)[1]
    some = np.sort(np.unique(row_hash(other, 0), return_index=True)[1])
    if min(len(first), len(some)) < LEAST_LOOK:
        return None
    there = np.isfinite(known)  # gaps say nothing, and what is infinite will be refused
    count = np.maximum(there.sum(axis=0), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.where(there, known, 0.0).sum(axis=0) / count
        scale = np.sqrt((np.where(there, known - mean, 0.0) ** 2).sum(axis=0) / count)
    scale = np.where(np.isfinite(scale) & (scale > 1e-12 * (1.0 + np.abs(mean))), scale, np.inf)
    if np.isfinite(scale).sum() < LEAST_COLUMNS:
        return None

    def standard(values: NDArray[Any]) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.clip(np.nan_to_num((values - mean) / scale), -FARTHEST, FARTHEST)

    bank = standard(known[first])  # in the order of the hashes, which carries no meaning
    look, other = np.arange(len(bank))[:LOOK], standard(other[some[:: -(-len(some) // (2 * LOOK))]])
    near, beyond = _nearest(bank[look], bank, look), _nearest(other, bank)
    order = np.sort(near)
    share = np.arange(1, len(order) + 1) / len(order)
    beside = np.searchsorted(np.sort(beyond), order, side="right") / len(beyond)
    fits = np.flatnonzero((share >= LEAST_SHARE) & (TIMES * beside <= share))
    if not len(fits):
        return None
    last = np.flatnonzero(LINK_TIMES * beside <= share)[-1]
    # Rows that were not looked at may be a little farther from their copies, as long as the traffic is not as near.
    limit = np.sort(beyond)[int(share[last] * len(beyond) / LINK_TIMES)]
    member = _linked(bank, codes[first], max(float(order[last]), min(BEYOND * float(order[last]), float(limit))))
    linked = look[member[look] >= 0]
    if len(linked) < LEAST_SHARE * len(look):
        return None
    outside = _nearest(bank[linked], bank, linked, member)
    if np.median(near[np.searchsorted(look, linked)] / np.maximum(outside, 1e-300)) > APART:
        return None
    place = np.searchsorted(keys[first], keys)
    group = np.where(member[place] >= 0, mixed(member[place].astype(np.uint64) + np.uint64(1)), keys)
    rows = member[place] >= 0
    warn_caller(
        NearCopiesWarning(
            "{rows} of {n} rows of {X} are near-copies of each other, in {found} groups: they stay together and count as one each; if they belong together by "
            "session, patient or original, pass {groups}.",
            rows=int(rows.sum()),
            n=len(rows),
            found=len(np.unique(group[rows])),
        )
    )
    return np.asarray(group, dtype=np.uint64)


def _nearest(rows: Floats, bank: Floats, own: Indices | None = None, member: NDArray[np.int64] | None = None) -> Floats:
    """Return the distance of rows to the nearest row of a bank, without the place that is their own, or without their group."""
    out = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        square = _squares(rows[part], bank)
        if own is not None:
            square[np.arange(len(square)), own[part]] = np.inf
            if member is not None:
                square[member[own[part]][:, None] == member] = np.inf
        out[part] = np.sqrt(np.maximum(square.min(axis=1), 0.0))
    return out


def _squares(rows: Floats, bank: Floats) -> Floats:
    """Return squared distances of rows to those of a bank, as one product: |x|^2 + |b|^2 - 2 x b."""
    length, far = (np.einsum("ij,ij->i", part, part)[:, None] for part in (rows, bank))
    left = np.concatenate([rows, length, np.ones_like(length)], axis=1)
    return np.asarray(left @ np.concatenate([-2.0 * bank, np.ones_like(far), far], axis=1).T)


def _linked(bank: Floats, codes: NDArray[np.int64], reach: float) -> NDArray[np.int64]:
    """Return the group of each row: rows of one class within reach are linked, and so are those they are linked to; -1 for rows without a group."""
    member, count = np.full(len(bank), -1, dtype=np.int64), 0
    for code in np.unique(codes):
        own = np.flatnonzero(codes == code)
        pairs = []
        for start in range(0, len(own), BLOCK):
            left, right = np.nonzero(_squares(bank[own[start : start + BLOCK]], bank[own]) <= reach**2)
            pairs.append(np.stack([left + start, right]))
        left, right = np.concatenate(pairs, axis=1)
        graph = sparse.coo_array((np.ones(len(left), dtype=bool), (left, right)), shape=(len(own), len(own)))
        _, label = connected_components(graph, directed=False)
        sizes = np.bincount(label)
        good = (sizes > 1) & ((sizes <= LARGEST) | (sizes <= LARGEST_SHARE * len(bank)))
        member[own] = np.where(good[label], label + count, -1)
        count += len(sizes)
    return member
