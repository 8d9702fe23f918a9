# SPDX-License-Identifier: BSD-3-Clause
"""Exact order statistics of scores in chunks, by counting.

Convention: a float64 is read as a whole number that sorts like it (`keys_of`), so an interval of numbers can be halved exactly, whatever
the scores are. A pass counts how many keys fall into some intervals; counts of chunks add up, so no answer depends on the chunks.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_vector
from poscod.backends.dask._chunks import Chunks
from poscod.backends.dask._cluster import Cluster
from poscod.exceptions import InvalidInputError
from poscod.metrics._counts import required

Keys = NDArray[np.int64]
# Counters of one pass: 128 kB per chunk.
COUNTERS = 2**14
# Values that are brought here once they are so few.
FETCH = 200_000
_FLIP = np.int64(0x7FFFFFFFFFFFFFFF)


class Statistic(NamedTuple):
    """One order statistic and its neighbourhood.

    Attributes
    ----------
    value : float
    below, tied : int
        How many scores are smaller, and equal.
    """

    value: float
    below: int
    tied: int


@dataclass(frozen=True)
class _Interval:
    """Keys low, ..., high; ``below`` keys are smaller than low and ``inside`` lie in it."""

    low: int
    high: int
    below: int
    inside: int


def keys_of(score: Any, name: str = "score") -> Keys:
    """Return whole numbers that sort like the scores; equal scores, and both zeros, give equal numbers.

    Examples
    --------
    >>> bool(np.all(np.diff(keys_of([-np.inf, -2.0, -0.0, 1e-300, 3.0, np.inf])) > 0))
    True
    """
    bits = (check_vector(score, name) + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ _FLIP, bits)


def value_of(key: int) -> float:
    """Return the score of a key; the inverse of `keys_of`.

    Examples
    --------
    >>> [value_of(int(key)) for key in keys_of([-1.5, 0.0, np.inf])]
    [-1.5, 0.0, inf]
    """
    bits = np.array([key], dtype=np.int64)
    return float(np.where(bits < 0, bits ^ _FLIP, bits).view(np.float64)[0])


def order_statistics(scores: Chunks, ranks: Sequence[int], cluster: Cluster, name: str = "score") -> list[Statistic]:
    """Return the k-th smallest scores, exactly, for several k at once.

    Notes
    -----
    The first pass finds the ends. Each further one cuts the intervals that hold a wanted rank into up to `COUNTERS` pieces of equal
    width in keys and counts; as soon as the pieces hold no more than `FETCH` values together these are brought here and
    sorted. A piece of one key needs no more: all its values are equal. Four passes narrow 2**64 keys to one, so five passes
    are the most.
    """
    if not len(scores):
        raise InvalidInputError(f"{name} must hold at least one score, got none.")
    low, high = ends(scores, cluster, name)
    whole = _Interval(low, high, 0, len(scores))
    place = {int(rank): whole for rank in ranks}
    while True:
        open_ = sorted({p for p in place.values() if p.low < p.high}, key=lambda p: p.low)
        if sum(p.inside for p in open_) <= FETCH:
            break
        edges = [_edges(p, max(2, COUNTERS // len(open_) - 1)) for p in open_]
        counts = cluster.reduce(scores.map(_counts, np.concatenate(edges)), _total, "order statistics")
        place = {rank: _narrowed(p, rank, open_, edges, counts) for rank, p in place.items()}
    values = _fetched(scores, open_, cluster) if open_ else np.zeros(0, dtype=np.int64)
    return [_statistic(rank, place[int(rank)], values) for rank in ranks]


def weighted_statistic(pairs: Chunks, share: float, cluster: Cluster, name: str = "score") -> tuple[float, Floats]:
    """Return the smallest score up to which the weights sum to a share of their total.

    Notes
    -----
    As `order_statistics`, with sums of weights instead of counts, until one key is left. Sums of chunks are made in another order than in one
    memory, which the allowance of `poscod.metrics` for rounding covers.
    """
    low, high, total = cluster.reduce(pairs.map(_weighted_ends, name), _outer_total, "order statistics")
    if not total:
        raise InvalidInputError("weight must contain a positive number, got zeros only.")
    floor = required(total, share, max(1e-14, len(pairs) * float(np.finfo(np.float64).eps)))
    place = _Interval(high if share == 1.0 else low, high, 0, len(pairs))
    below = 0.0
    while place.low < place.high:
        edges = _edges(place, COUNTERS)
        inside = cluster.reduce(pairs.map(_weights, edges), _total, "order statistics")
        running = below + np.cumsum(inside)
        some = np.flatnonzero(inside)  # rounding must not lead to where no row is
        piece = int(np.clip(np.searchsorted(running, floor), some[0], some[-1]))
        below = float(running[piece - 1]) if piece else below
        place = _Interval(int(edges[piece]), int(edges[piece + 1]) - 1 if piece < len(inside) - 1 else place.high, 0, 0)
    return value_of(place.low), cluster.reduce(pairs.map(_weights_about, place.low), _total, "order statistics")


def ends(scores: Chunks, cluster: Cluster, name: str = "score") -> tuple[int, int]:
    """Return the keys of the smallest and of the largest score."""
    low, high = cluster.reduce(scores.map(_ends, name), _outer, "order statistics")
    return low, high


def count_at_most(scores: Chunks, cuts: Floats, cluster: Cluster) -> NDArray[np.int64]:
    """Return how many scores are at most each cut, in one pass."""
    parts = scores.map(_at_most, np.asarray(cuts, dtype=np.float64))
    return cluster.reduce(parts, _total, "counts") if parts else np.zeros(len(cuts), dtype=np.int64)


def _ends(score: Any, name: str) -> tuple[int, int]:
    keys = keys_of(score, name)
    return int(keys.min()), int(keys.max())


def _outer(ends: list[tuple[int, int]]) -> tuple[int, int]:
    return min(low for low, _ in ends), max(high for _, high in ends)


def _weighted_ends(pair: tuple[Any, Any], name: str) -> tuple[int, int, float]:
    keys, weight = _keyed(pair, name)
    some = keys[weight > 0]
    return (int(some.min()), int(some.max()), float(weight.sum())) if len(some) else (int(_FLIP), -int(_FLIP), 0.0)


def _outer_total(parts: list[tuple[int, int, float]]) -> tuple[int, int, float]:
    return (*_outer([part[:2] for part in parts]), sum(part[2] for part in parts))


def _weights(pair: tuple[Any, Any], edges: Keys) -> Floats:
    """Sum the weights of keys from each edge up to, but not including, the next one."""
    keys, weight = _keyed(pair)
    index = np.searchsorted(edges, keys, side="right")
    return np.asarray(np.bincount(index, weight, minlength=len(edges) + 1)[1:-1], dtype=np.float64)


def _weights_about(pair: tuple[Any, Any], key: int) -> Floats:
    keys, weight = _keyed(pair)
    return np.array([weight[keys < key].sum(), weight[keys == key].sum(), weight.sum()])


def _keyed(pair: tuple[Any, Any], name: str = "score") -> tuple[Keys, Floats]:
    keys = keys_of(pair[0], name)
    return keys, check_vector(pair[1], "weight", n=len(keys), like=name, allow_inf=False, minimum=0.0)


def _total(parts: list[Any]) -> Any:
    return functools.reduce(operator.add, parts)


def _edges(interval: _Interval, pieces: int) -> Keys:
    """Return the first key of each piece, and the key after the last (or the last where there is no larger number)."""
    width = interval.high - interval.low + 1
    pieces = min(pieces, width)
    inner = [interval.low + width * i // pieces for i in range(pieces)]
    return np.array([*inner, min(interval.high + 1, int(_FLIP))], dtype=np.int64)


def _counts(score: Any, edges: Keys) -> NDArray[np.int64]:
    """Count keys from each edge up to, but not including, the next one; edges of several intervals follow each other."""
    keys = keys_of(score)
    index = np.searchsorted(edges, keys, side="right")
    return np.bincount(index, minlength=len(edges) + 1)[1:].astype(np.int64)


def _narrowed(place: _Interval, rank: int, intervals: list[_Interval], edges: list[Keys], counts: Any) -> _Interval:
    if place not in intervals:
        return place
    index = intervals.index(place)
    first = sum(len(e) for e in edges[:index])
    inside = counts[first : first + len(edges[index]) - 1]
    running = place.below + np.cumsum(inside)
    piece = int(np.searchsorted(running, rank))
    high = int(edges[index][piece + 1]) - 1 if piece < len(inside) - 1 else place.high
    return _Interval(int(edges[index][piece]), high, int(running[piece] - inside[piece]), int(inside[piece]))


def _fetched(scores: Chunks, intervals: list[_Interval], cluster: Cluster) -> Keys:
    borders = np.array([(p.low, p.high) for p in intervals], dtype=np.int64)
    return np.sort(np.concatenate(cluster.collect(scores.map(_inside, borders), "order statistics")))


def _inside(score: Any, borders: NDArray[np.int64]) -> Keys:
    keys = keys_of(score)
    place = np.searchsorted(borders[:, 0], keys, side="right") - 1
    return keys[(place >= 0) & (keys <= borders[np.maximum(place, 0), 1])]


def _statistic(rank: int, place: _Interval, values: Keys) -> Statistic:
    if place.low == place.high:
        return Statistic(value_of(place.low), place.below, place.inside)
    first = int(np.searchsorted(values, place.low))
    key = int(values[first + rank - place.below - 1])
    left, right = (int(np.searchsorted(values, key, side=side)) for side in ("left", "right"))
    return Statistic(value_of(key), place.below + left - first, right - left)


def _at_most(score: Any, cuts: Floats) -> NDArray[np.int64]:
    index = np.searchsorted(cuts, check_vector(score, "score"), side="left")
    return np.cumsum(np.bincount(index, minlength=len(cuts) + 1)[: len(cuts)]).astype(np.int64)
