# SPDX-License-Identifier: BSD-3-Clause
"""What a rule did on some rows, counted class by class, and rates for any class mix.

Convention: counts of parts add up, so that rows in chunks are measured alike. A rate for a class mix is the mean of the rates of the classes with their shares
(post-stratification); its interval is the exact one of a share with as many rows as its variance stands for, which carries the error of the mix.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats
from poscod.metrics import Interval, binomial_interval, counted_loss_interval, loss_steps, share_interval
from poscod.mix import ClassMix

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Tally:
    """What a rule did on some rows.

    Parameters
    ----------
    counts : ndarray of shape (S, 2 + k), int
        For every class, or for all rows together: rows, accepted rows, and accepted rows with each value that the loss can have. Of weighted rows these are no whole
        numbers, and rates are those in a class mix.
    """

    counts: NDArray[Any]

    def __add__(self, other: Tally) -> Tally:
        """Return the counts of both parts together."""
        return Tally(self.counts + other.counts)

    @property
    def rows(self) -> int:
        """All rows."""
        return int(self.counts[:, 0].sum())

    @property
    def accepted(self) -> int:
        """Accepted rows."""
        return int(self.counts[:, 1].sum())

    @property
    def losses(self) -> NDArray[Any]:
        """Of the accepted rows, how many have each value of the loss."""
        return np.asarray(self.counts[:, 2:].sum(axis=0))

    def rate(self, level: float, mix: ClassMix | None = None) -> Interval:
        """Return the share of rows accepted with its interval: of the rows as they are, or in a class mix."""
        if mix is None:
            return binomial_interval(self.accepted, self.rows, level=level)
        share, rows = self.in_mix(mix)
        return share_interval(share, rows, level=level)

    def in_mix(self, mix: ClassMix | None) -> tuple[float, float]:
        """Return the share of rows accepted in a class mix, and how many rows its variance stands for."""
        if mix is None:
            return self.accepted / self.rows, float(self.rows)
        q, n, cov, unseen = self._strata(mix)
        rate = self.counts[:, 1] / n
        share = float(q @ rate)
        # A class of which all or none was accepted is not known exactly: it borrows one row from the others.
        smooth = (self.counts[:, 1] + share) / (n + 1.0)
        slope = np.where(q > 0.0, rate - share, 0.0)
        # Of classes without rows anything may be accepted.
        variance = float(q**2 / n @ (smooth * (1.0 - smooth))) + float(slope @ cov @ slope) + 0.25 * unseen**2
        return share, _rows(share, variance, 1.0 / float(q**2 @ (1.0 / n)))

    def mean_loss(self, level: float, loss_values: Floats, mix: ClassMix | None = None) -> Interval:
        """Return the mean loss of the accepted rows with its interval."""
        if mix is None:
            return counted_loss_interval(loss_values, self.losses, level=level, values=loss_values)
        steps = loss_steps(loss_values)
        if len(steps) == 1 or not self.counts[:, 1].any():
            return Interval(0.0 if len(steps) == 1 else float("nan"), 0.0, float(steps[-1]), level)
        each = 1.0 - (1.0 - level) / (len(steps) - 1)
        q, n, *_ = self._strata(mix)
        mass = q / n
        mean = float(mass @ (self.counts[:, 2:] @ loss_values)) / float(mass @ self.counts[:, 1])
        # E[loss] is the sum over steps of their width times P(loss >= step | accepted), as without a mix.
        low = high = 0.0
        for before, value in itertools.pairwise(steps.tolist()):
            low += (value - before) * self._part(loss_values >= value, mix, each).low
            high += (value - before) * self._part(loss_values > before, mix, each).high
        return Interval(mean, min(low, mean), max(high, mean), level)

    def _part(self, which: Mask, mix: ClassMix, level: float) -> Interval:
        """Return the share, in a class mix, of accepted rows whose loss is among some values."""
        q, n, cov, unseen = self._strata(mix)
        accepted, chosen = self.counts[:, 1] / n, self.counts[:, 2:][:, which].sum(axis=1) / n
        total = float(q @ accepted)
        share = float(q @ chosen) / total
        # Squares of accept * (1[chosen] - share), with one row like the others in every class.
        square = chosen * (1.0 - share) ** 2 + np.maximum(accepted - chosen, 0.0) * share**2
        square = (square * n + total * share * (1.0 - share)) / (n + 1.0)
        slope = np.where(q > 0.0, chosen - share * accepted, 0.0) / total
        variance = float(q**2 / n @ square) / total**2 + float(slope @ cov @ slope) + 0.25 * unseen**2
        most = total**2 / float(q**2 / n @ accepted)
        return share_interval(share, _rows(share, variance, most), level=level)

    def _strata(self, mix: ClassMix) -> _Strata:
        """Return the classes with their shares in a mix; the share of classes without rows goes to the others."""
        n = self.counts[:, 0].astype(np.float64)
        q = np.where(n > 0.0, mix.traffic, 0.0)
        there = float(q.sum())
        cov = np.zeros((len(q), len(q))) if mix.covariance is None else mix.covariance
        # Where no class of the mix has rows, all are alike, and nothing is known.
        q = q / there if there > 0.0 else np.full(len(q), 1.0 / len(q))
        return _Strata(q, np.maximum(n, 1.0), cov, max(0.0, 1.0 - there))


class _Strata(NamedTuple):
    """Classes in a mix: shares, rows, covariance of the shares, and the share of classes without rows."""

    share: Floats
    rows: Floats
    covariance: Floats
    unseen: float


def _rows(share: float, variance: float, most: float) -> float:
    """Return the number of rows with which a share has a variance; no more than there are, and at least one, since no share varies more."""
    most = max(most, 1.0)
    inside = min(max(share, 0.5 / most), 1.0 - 0.5 / most)
    return min(max(inside * (1.0 - inside) / max(variance, 1e-300), 1.0), most)


def tally(
    accept: Mask,
    loss: Floats | None = None,
    loss_values: Floats | None = None,
    codes: NDArray[np.integer] | None = None,
    n_classes: int = 1,
    weight: Floats | None = None,
) -> Tally:
    """Count what a rule did on some rows, class by class where their classes are given; weighted rows count as many as their weights are worth (Kish).

    Examples
    --------
    >>> tally(np.array([True, False, True]), np.array([0.0, 1.0, 1.0]), np.array([0.0, 1.0])).losses
    array([1, 1])
    """
    place = np.zeros(len(accept), dtype=np.int64) if codes is None else np.asarray(codes, dtype=np.int64)
    strata = 1 if codes is None else n_classes
    w = np.ones(len(accept), dtype=np.int64) if weight is None else weight * (weight.sum() / (weight @ weight))
    columns = [np.bincount(place, w, strata), np.bincount(place[accept], w[accept], strata)]
    if loss is not None and loss_values is not None:
        value = np.searchsorted(loss_values, loss[accept])
        flat = np.bincount(place[accept] * len(loss_values) + value, w[accept], strata * len(loss_values))
        columns += list(flat.reshape(strata, -1).T)
    return Tally(np.stack(columns, axis=1).astype(np.int64 if weight is None else np.float64))
