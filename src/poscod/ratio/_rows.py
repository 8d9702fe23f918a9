# SPDX-License-Identifier: BSD-3-Clause
"""Inputs of a ratio: arrays or `Activations` become rows with features and, where known, logits.

Convention: ID rows are rows the classifier was not trained on. Folds depend on the content of a row, never on its
place: equal rows share a fold (a row is never scored by a bank that holds its copy) and shuffling the input changes
nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_matrix, check_weight
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError

HASH_NUMBERS = 2**17  # a block that stays in the cache
# With fewer distinct rows than this, on both sides, and most ID rows among the traffic, copies are no accident of the data but its nature.
DISTINCT_SHARE, SHARED_SHARE = 0.5, 0.5
# A row is stuck, not repeated, if it makes up this share of the traffic, so many rows, so many times the copies that other rows have, and hardly any ID row.
# Copies of both sides that are dealt out as pairs would leave the same surplus in every fold, and chance would look like something that other folds confirm.
MISSING = ("None", "nan", "NaT", "<NA>")
"""How missing groups look as texts."""
OTHER_SIDE = np.uint64(0x5851F42D4C957F2D)
STUCK_SHARE, STUCK_ROWS, STUCK_TIMES = 0.01, 20, 10


@dataclass(frozen=True)
class Rows:
    """Features of n rows and, from a network, their logits and labels; rows with the same number in ``group`` are not independent of each other.

    ``said`` is what people said of them: 1 OOD, -1 known, 0 nothing; None where nobody has looked.
    """

    features: NDArray[Any]
    logits: NDArray[Any] | None = None
    labels: NDArray[np.int64] | None = None
    table: bool = False
    group: NDArray[np.uint64] | None = None
    said: NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: Any) -> Rows:
        return Rows(
            self.features[index],
            None if self.logits is None else self.logits[index],
            None if self.labels is None else self.labels[index],
            self.table,
            None if self.group is None else self.group[index],
            None if self.said is None else self.said[index],
        )

    def keys(self, seed: int) -> NDArray[np.uint64]:
        """Return a number per row by which it is dealt out: that of its group, or one that depends on its values only."""
        return row_hash(self.features, seed) if self.group is None else self.group

    @property
    def network(self) -> bool:
        """Whether a classifier's logits are known."""
        return self.logits is not None

    @property
    def one_scale(self) -> bool:
        """Whether the columns share a scale that means something, as those of a network's layer do."""
        return self.logits is not None and not self.table


def as_rows(values: Any, name: str, *, like: dict[str, int] | None = None, minimum: int = 1) -> Rows:
    """Check an input and return its rows."""
    if isinstance(values, Activations):
        features = values.logits if values.features is None else values.features
        rows = Rows(features, values.logits, values.labels, values.table)
    else:
        if hasattr(values, "tocsr"):
            raise InvalidInputError(
                "{parameter} must be a dense array or Activations, got a sparse matrix: pass {parameter}.toarray() or reduce it "
                "first, e.g. with TruncatedSVD.",
                parameter=name,
            )
        rows = Rows(check_matrix(values, name))
    if len(rows) < minimum:
        few = "{parameter} must have at least {needed} " + ("rows" if minimum > 1 else "row") + ", got {got}."
        raise InvalidInputError(few, parameter=name, needed=minimum, got=len(rows))
    if rows.features.shape[1] == 0:
        raise InvalidInputError("{parameter} must have at least one column, got none.", parameter=name)
    if like is not None:
        check_like(rows, name, like)
    return rows


def said_of(rows_id: Rows, rows_u: Rows) -> NDArray[np.int8] | None:
    """Return what people said of the rows of both sides; None where they said nothing."""
    return None if rows_u.said is None else np.concatenate([np.zeros(len(rows_id), dtype=np.int8), rows_u.said])


def columns_of(rows: Rows) -> dict[str, int]:
    """Return the number of columns of features and, with a network, of logits."""
    columns = {"features": int(rows.features.shape[1])}
    if rows.logits is not None:
        columns["logits"] = int(rows.logits.shape[1])
    return columns


def check_like(rows: Rows, name: str, like: dict[str, int]) -> None:
    """Refuse rows of another kind or width."""
    mine = columns_of(rows)
    if mine.keys() != like.keys():
        raise InvalidInputError(
            "{parameter} must be of the same kind as {X_id}: both with logits (Activations) or both without.",
            parameter=name,
        )
    for part, count in like.items():
        if mine[part] != count:
            raise InvalidInputError(
                "{parameter} must have {needed} columns of {part} like {X_id}, got {got}.",
                parameter=name,
                needed=count,
                part=part,
                got=mine[part],
            )


def check_foldable(rows_id: Rows, rows_u: Rows, n_folds: int, hint: str) -> None:
    """Refuse fewer than four rows per fold on either side."""
    if min(len(rows_id), len(rows_u)) < 4 * n_folds:
        raise InvalidInputError(
            "{X_id} and {X_unlabeled} must have at least {needed} rows each to be cross-fitted in {folds} folds, got {n_id} and "
            "{n_unlabeled}: " + hint,
            needed=4 * n_folds,
            folds=n_folds,
            n_id=len(rows_id),
            n_unlabeled=len(rows_u),
        )


def pair_weights(weight_id: Any, weight_unlabeled: Any, n_id: int, n_unlabeled: int) -> tuple[Floats, Floats]:
    """Return row weights of both sides that sum to one in total."""
    first = check_weight(weight_id, "sample_weight_id", n_id)
    second = check_weight(weight_unlabeled, "sample_weight_unlabeled", n_unlabeled)
    first = np.ones(n_id) if first is None else first
    second = np.ones(n_unlabeled) if second is None else second
    total = first.sum() + second.sum()
    return first / total, second / total


def group_keys(groups: Any, name: str, like: str, n: int) -> NDArray[np.uint64] | None:
    """Return a number per row that is that of its group wherever it stands; a row whose group is missing (None or NaN) has one of its own."""
    if groups is None:
        return None
    values = np.asarray(groups)
    if values.shape != (n,):
        raise InvalidInputError(
            "{parameter} must hold one group for each of the {allowed} rows of {" + like + "}, got shape {got}.",
            parameter=name,
            allowed=n,
            got=values.shape,
        )
    # Groups are told apart as texts: whole numbers read from a file may come as 7 or as 7.0.
    keys = mixed(np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    known: dict[str, int] = {}
    for row, cell in enumerate(values.tolist()):
        text = str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell)
        if text in MISSING:
            continue
        if text not in known:
            known[text] = int.from_bytes(
                hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
            )
        keys[row] = known[text]
    return keys


def independent_rows(weight: Floats, group: NDArray[np.uint64] | None) -> float:
    """Return the number of equal, independent rows that say as much as rows with these weights at least: those of a group as one."""
    total = weight if group is None else np.bincount(np.unique(group, return_inverse=True)[1], weight)
    return float(total.sum() ** 2 / np.sum(total**2))


def one_of_each(keys: NDArray[np.uint64], order: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the place of one row for each different key: that with the smallest number in `order`."""
    places = np.lexsort((order, keys))
    return np.sort(places[np.append(True, keys[places][1:] != keys[places][:-1])])


def row_hash(features: NDArray[Any], seed: int, dtype: Any = None) -> NDArray[np.uint64]:
    """Return a number per row that depends on its values only: equal rows of one dtype, equal numbers; all gaps (NaN) are one value."""
    rng = np.random.default_rng(seed)
    out = np.empty(len(features), dtype=np.uint64)
    factors: NDArray[np.uint64] | None = None
    step = max(16, HASH_NUMBERS // max(1, features.shape[1]))
    for start in range(0, len(features), step):
        block = np.ascontiguousarray(features[start : start + step], dtype=dtype) + 0  # -0.0 and 0.0 are one value
        gaps = block != block
        if gaps.any():
            block[gaps] = np.nan
        words = block.view(np.uint32).reshape(len(block), -1).astype(np.uint64)
        if factors is None:
            factors = odd_factors(rng, words.shape[1])
        # Integer arithmetic wraps around and is exact: no rounding that depends on the place of a row.
        out[start : start + step] = mixed((words * factors).sum(axis=1, dtype=np.uint64))
    return out


def odd_factors(rng: np.random.Generator, n: int) -> NDArray[np.uint64]:
    """Return random odd numbers, one for each word of a row."""
    return rng.integers(1, 2**63, size=n, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers whose order says nothing of where they come from."""
    values = values ^ (values >> np.uint64(29))
    return np.asarray(values * np.uint64(0xBF58476D1CE4E5B9))


def number_copies(values: NDArray[np.uint64], codes: NDArray[Any] | None = None) -> NDArray[np.uint64]:
    """Give copies of a row different numbers, the k-th copy the same one wherever it stands; copies are counted class by class."""
    order = np.argsort(values, kind="stable") if codes is None else np.lexsort((codes, values))
    ordered = values[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    copy = np.empty(len(values), dtype=np.uint64)
    copy[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    numbered = values + copy * np.uint64(0x9E3779B97F4A7C15)
    numbered ^= numbered >> np.uint64(31)
    return numbered * np.uint64(0x94D049BB133111EB)


def observations(
    hash_id: NDArray[np.uint64], hash_u: NDArray[np.uint64], codes: NDArray[Any] | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the numbers of rows by which they are dealt out: copies share one, unless rows are discrete or stuck.

    Of discrete rows, few are distinct on either side and most ID rows occur in the traffic: equal rows are separate observations there, and how often they occur is
    what there is to learn. So it is with a row that a large share of the traffic equals, where copies are rare and no ID row does: a sensor that is stuck.
    """
    if not len(hash_u) or not len(hash_id):
        return hash_id, hash_u
    few = all(len(np.unique(own)) < DISTINCT_SHARE * len(own) for own in (hash_id, hash_u))
    if few and np.isin(hash_id, hash_u).mean() > SHARED_SHARE:
        return number_copies(hash_id, codes), number_copies(hash_u ^ OTHER_SIDE)
    values, counts = np.unique(hash_u, return_counts=True)
    usual = max(np.median(counts), np.median(np.unique(hash_id, return_counts=True)[1]))
    often = counts >= max(STUCK_ROWS, STUCK_SHARE * len(hash_u), STUCK_TIMES * usual)
    share_id = np.array([np.mean(hash_id == value) for value in values[often]])
    stuck = values[often][STUCK_TIMES * share_id * len(hash_u) < counts[often]]
    if not len(stuck):
        return hash_id, hash_u
    numbered = number_copies(hash_id, codes), number_copies(hash_u ^ OTHER_SIDE)
    first, second = (
        np.where(np.isin(own, stuck), new, own) for own, new in zip((hash_id, hash_u), numbered, strict=True)
    )
    return first, second


def content_folds(
    hash_id: NDArray[Any], hash_u: NDArray[Any], k: int, codes: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign rows of both sides to k folds of nearly equal size, equal rows to the same fold.

    A hash may stand for more than a row: rows that belong together (copies, a patient, a clip) stay together when they share it. Classes are not spread evenly: rows of a fold
    would have the class mix of the others, which unlabeled rows have not, and would be found more often where others are. Only a class that would lie in one fold, so
    that without it nothing is known of the class, has a row moved to the next.
    """
    unique_id, inverse_id = np.unique(hash_id, return_inverse=True)
    fold_of_id = np.arange(len(unique_id)) % k
    if codes is not None:
        for code in np.unique(codes):
            own = np.unique(inverse_id[codes == code])
            if len(own) > 1 and len(np.unique(fold_of_id[own])) == 1:
                fold_of_id[own[-1]] = (fold_of_id[own[-1]] + 1) % k
    # Unlabeled rows equal to an ID row follow it; the others are dealt out by their own rank.
    unique_u, inverse_u = np.unique(hash_u, return_inverse=True)
    place = np.searchsorted(unique_id, unique_u)
    known = (place < len(unique_id)) & (unique_id[np.minimum(place, len(unique_id) - 1)] == unique_u)
    fold_of_u = np.cumsum(~known) % k
    fold_of_u[known] = fold_of_id[place[known]]
    return fold_of_id[inverse_id], fold_of_u[inverse_u]
