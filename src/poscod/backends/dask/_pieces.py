# SPDX-License-Identifier: BSD-3-Clause
"""Metrics of scores in chunks, exactly and at any size: piece by piece of the range of scores.

Convention: borders are order statistics of all scores, so that at most `PIECE_ROWS` rows lie between two of them. The rows of one piece
are brought here and counted by `poscod.metrics`; what lies below it is known from one counting pass. An area is a sum over
neighbouring thresholds, so that of a piece is its area from the origin less that of its first point.
"""

from __future__ import annotations

import functools
import inspect
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, check_choice, check_vector
from poscod.backends.dask._chunks import Chunks, as_vector
from poscod.backends.dask._cluster import Cluster
from poscod.backends.dask._order import keys_of, order_statistics
from poscod.exceptions import InvalidInputError
from poscod.metrics import METRICS
from poscod.metrics._counts import Counts, rank, required
from poscod.metrics._curves import scod_risk_of_counts
from poscod.metrics._intervals import Metric

# Rows of both samples that are brought here at once: 8 bytes each, and 8 more for the loss of an ID row.
PIECE_ROWS = 10_000_000
_EVERY = np.iinfo(np.int64)

Params = dict[str, Any]


class _Piece(NamedTuple):
    """Counts at the thresholds of a piece, the first of which belongs to the piece before where there is one."""

    counts: Counts
    led: bool


def metric(name: str, *arrays: Any, cluster: Cluster | None = None, **params: Any) -> float:
    """Compute a metric of `poscod.metrics` from scores in chunks, exactly.

    Parameters
    ----------
    name : str
        "auroc", "aurc", "augrc", "ausrt", "oscr", "fpr_at_tpr", "fpr_at_tpr_ood_positive" or "scod_risk".
    *arrays : dask Array of shape (n,) or dask Series
        The metric's own arrays, e.g. score_id, loss_id, score_ood for "ausrt"; score_id and loss_id in the same chunks.
    cluster : Cluster, default=None
        An open one; None opens one for this call.
    **params
        Parameters of the metric, e.g. alpha.

    Returns
    -------
    value : float
        The number of one memory: equal up to ten million scores together, to rounding above that.

    Notes
    -----
    N scores take N / 10^7 passes, each of which brings up to 10^7 scores (and the losses of ID rows) to this process, after a few that
    find the borders and one that counts what lies below them. Keep the scores in the memory of the workers (``persist``), or every
    pass computes them again.
    """
    member, asked = _asked(name, params)
    if len(arrays) != len(member.inputs):
        raise InvalidInputError(f"{name} takes the arrays {', '.join(member.inputs)}, got {len(arrays)}.")
    with Cluster() if cluster is None else nullcontext(cluster) as running:
        found = {key: as_vector(array, key, running) for key, array in zip(member.inputs, arrays, strict=True)}
        known, loss = found["score_id"], found.get("loss_id")
        if loss is not None and loss.lengths != known.lengths:
            raise InvalidInputError(
                f"score_id and loss_id must have the same chunks of rows, got {known.lengths} and {loss.lengths}: rechunk one of them."
            )
        parts = known.map(_scored) if loss is None else known.paired(loss).map(_with_loss)
        pairs = Chunks(tuple(parts), tuple(n for n in known.lengths if n), None)
        other = found.get("score_ood")
        return measure(pairs, None if other is None else _vectors(other), {name: asked}, running)[name]


def measure(known: Chunks, other: Chunks | None, wanted: Mapping[str, Params], cluster: Cluster) -> dict[str, float]:
    """Compute several metrics of one score."""
    asked = {name: _asked(name, params) for name, params in wanted.items()}
    if not len(known) or (other is not None and not len(other)):
        raise InvalidInputError(
            f"score_id and score_ood must have at least one row, got {len(known)} and {0 if other is None else len(other)}."
        )
    losses = list(dict.fromkeys(member.prepare_loss for member, _ in asked.values()))
    folds = {name: _FOLDS[name](member.of_counts, params) for name, (member, params) in asked.items()}
    for pieces in _pieces(known, other, losses, cluster):
        for name, (member, _) in asked.items():
            folds[name].take(pieces[losses.index(member.prepare_loss)])
    return {name: fold.value for name, fold in folds.items()}


def _asked(name: str, params: Mapping[str, Any]) -> tuple[Metric, Params]:
    """Return a metric with all its parameters."""
    member: Metric = METRICS[check_choice(name, "metric", {key: key for key in _FOLDS})]
    signature = inspect.signature(member.function).parameters
    known = {key: p.default for key, p in signature.items() if key not in (*member.inputs, "weight_id", "weight_ood")}
    if unknown := sorted(set(params) - set(known)):
        raise InvalidInputError(f"{unknown[0]} is no parameter of {name}: use {', '.join(known) or 'none'}.")
    return member, {**known, **params}


def _pieces(known: Chunks, other: Chunks | None, losses: list[Any], cluster: Cluster) -> Iterator[list[_Piece]]:
    """Yield the pieces from the loosest thresholds down, once for every way to count the loss."""
    ood = Chunks((), (), None) if other is None else other
    total, borders = len(known) + len(ood), np.zeros(0)
    if total > PIECE_ROWS:
        scores = Chunks((*known.map(_score), *ood.map(np.asarray)), (*known.lengths, *ood.lengths), None)
        found = order_statistics(scores, list(range(PIECE_ROWS, total, PIECE_ROWS)), cluster)
        borders = np.unique([statistic.value for statistic in found])
    keys = keys_of(borders)
    below = np.zeros((0, 2 + len(losses)))
    if len(borders):
        parts = [*known.map(_known_at, keys, losses), *ood.map(_ood_at, keys, len(losses))]
        below = cluster.reduce(parts, _sum, "counts")
    zero = np.zeros(2 + len(losses))
    for index in range(len(borders), -1, -1):
        led, closed = index > 0, index < len(borders)
        low = int(keys[index - 1]) if led else _EVERY.min
        high = int(keys[index]) if closed else _EVERY.max
        rows = cluster.collect([*known.map(_known_between, low, high), *ood.map(_ood_between, low, high)], "scores")
        split = sum(1 for n in known.lengths if n)
        ids, oods = rows[:split], rows[split:]
        score = np.concatenate([part[0] for part in ids])
        lost = None if any(part[1] is None for part in ids) else np.concatenate([part[1] for part in ids])
        ranking = rank(score, np.concatenate(oods) if oods else None)
        start = below[index - 1] if led else zero
        yield [
            _Piece(
                _joined(
                    ranking.counts(None if lost is None else lost if prepare is None else prepare(lost)),
                    (borders[index - 1 : index], start),
                    (borders[index : index + 1], below[index : index + 1]),
                    column,
                    (len(known), len(ood)),
                ),
                led,
            )
            for column, prepare in enumerate(losses, start=2)
        ]


def _joined(
    inner: Counts, lead: tuple[Floats, Floats], end: tuple[Floats, Floats], column: int, totals: tuple[int, int]
) -> Counts:
    """Put the counts of a piece on top of what lies below it, between the points at its borders."""
    threshold = np.concatenate([lead[0], inner.threshold, end[0]])

    def running(values: NDArray[Any], place: int) -> NDArray[Any]:
        start = lead[1][place]
        return np.concatenate([np.full(len(lead[0]), start), values + start, end[1][:, place]])

    return Counts(
        threshold,
        running(inner.n_id, 0),
        running(inner.n_ood, 1),
        running(inner.loss, column),
        float(totals[0]),
        float(totals[1]),
        inner.rounding,
    )


class _Fold(ABC):
    """A metric that takes pieces from the loosest thresholds down."""

    def __init__(self, of_counts: Callable[..., float], params: Params) -> None:
        self.of_counts, self.params = of_counts, params
        self.value = self.start()

    def start(self) -> float:
        """Return the value before the first piece."""
        return np.inf

    @abstractmethod
    def take(self, piece: _Piece) -> None:
        """Bring the next piece into the value."""


class _Area(_Fold):
    """What each piece adds to an area: its area from the origin less that of its first point."""

    def start(self) -> float:
        return 0.0

    def take(self, piece: _Piece) -> None:
        counts = piece.counts
        if counts.n_id[-1] > 0:  # before the first ID row there is no area
            self.value += self.of_counts(counts, **self.params)
            if piece.led and counts.n_id[0] > 0:
                self.value -= self.of_counts(_first_of(counts), **self.params)


class _RiskArea(_Fold):
    """The same for the SCOD risk, whose envelope is the least risk from a threshold on, through all pieces before."""

    def start(self) -> float:
        self.beyond = np.inf
        return 0.0

    def take(self, piece: _Piece) -> None:
        counts = piece.counts
        some = counts.n_id > 0
        if some.any():
            risk = scod_risk_of_counts(counts, self.params["alpha"])[some]
            least = min(self.beyond, float(risk.min()))
            self.value += self.of_counts(counts, **self.params, beyond=self.beyond)
            if piece.led and some[0]:
                self.value -= self.of_counts(_first_of(counts), **self.params, beyond=least)
            self.beyond = least


class _Point(_Fold):
    """The value at the smallest threshold that reaches a TPR, or, of an envelope, the least from there on."""

    def take(self, piece: _Piece) -> None:
        counts = piece.counts
        if counts.n_id[-1] >= required(counts.total_id, self.params["tpr_min"], counts.rounding):
            value = self.of_counts(counts, **self.params)
            self.value = min(self.value, value) if self.params.get("envelope") else value


class _Least(_Fold):
    """The least value of any piece."""

    def take(self, piece: _Piece) -> None:
        self.value = min(self.value, self.of_counts(piece.counts, **self.params))


_FOLDS: dict[str, type[_Fold]] = {
    "augrc": _Area,
    "aurc": _Area,
    "auroc": _Area,
    "ausrt": _RiskArea,
    "fpr_at_tpr": _Point,
    "fpr_at_tpr_ood_positive": _Least,
    "oscr": _Area,
    "scod_risk": _Point,
}
"""How the pieces of each metric are put together."""


def _first_of(counts: Counts) -> Counts:
    return counts._replace(
        threshold=counts.threshold[:1], n_id=counts.n_id[:1], n_ood=counts.n_ood[:1], loss=counts.loss[:1]
    )


def _vectors(scores: Chunks) -> Chunks:
    return Chunks(tuple(scores.map(_checked)), tuple(n for n in scores.lengths if n), None)


def _checked(score: Any) -> Floats:
    return check_vector(score, "score_ood")


def _scored(score: Any) -> tuple[Floats, None]:
    return check_vector(score, "score_id"), None


def _with_loss(pair: tuple[Any, Any]) -> tuple[Floats, Floats]:
    score = check_vector(pair[0], "score_id")
    return score, check_vector(pair[1], "loss_id", n=len(score), like="score_id", allow_inf=False, minimum=0.0)


def _score(pair: tuple[Floats, Any]) -> Floats:
    return pair[0]


def _sum(parts: list[Floats]) -> Floats:
    return functools.reduce(operator.add, parts)


def _known_at(pair: tuple[Floats, Floats | None], keys: NDArray[np.int64], losses: list[Any]) -> Floats:
    """Count ID rows at or below each border, and their losses."""
    score, loss = pair
    place = np.searchsorted(keys, keys_of(score), side="left")
    table = np.zeros((len(keys), 2 + len(losses)))
    table[:, 0] = _at_most(place, None, len(keys))
    if loss is not None:
        for column, prepare in enumerate(losses, start=2):
            table[:, column] = _at_most(place, loss if prepare is None else prepare(loss), len(keys))
    return table


def _ood_at(score: Floats, keys: NDArray[np.int64], n_losses: int) -> Floats:
    """Count OOD rows at or below each border."""
    table = np.zeros((len(keys), 2 + n_losses))
    place = np.searchsorted(keys, keys_of(score), side="left")
    table[:, 1] = _at_most(place, None, len(keys))
    return table


def _at_most(place: NDArray[np.intp], weight: Floats | None, n_borders: int) -> NDArray[Any]:
    return np.cumsum(np.bincount(place, weight, minlength=n_borders + 1)[:n_borders])


def _known_between(pair: tuple[Floats, Floats | None], low: int, high: int) -> tuple[Floats, Floats | None]:
    score, loss = pair
    inside = _between(score, low, high)
    return score[inside], None if loss is None else loss[inside]


def _ood_between(score: Floats, low: int, high: int) -> Floats:
    return score[_between(score, low, high)]


def _between(score: Floats, low: int, high: int) -> NDArray[np.bool_]:
    keys = keys_of(score)
    return np.asarray((keys > low) & (keys < high))
