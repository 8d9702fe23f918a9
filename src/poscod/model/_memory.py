# SPDX-License-Identifier: BSD-3-Clause
"""Rows in memory, as a fit by shares looks at them.

Convention: an engine looks at rows and decides nothing; positions count the rows of X.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from poscod.activations import Activations
from poscod.model._mix import Seen
from poscod.model._parts import (
    Compared,
    Kept,
    Labeled,
    Unlabeled,
    fit_classifier,
    given_classifier,
    ratio_groups,
    ratio_weights,
    temperature_of,
)
from poscod.model._plan import Indices, Keys
from poscod.model._range import Range, extents, measured, ranges_of
from poscod.model._rows import chunks, is_numeric, keys_of, n_rows, row_keys, take
from poscod.model._scorer import NetworkHead, Scorer, all_finite, needs_transform, unchecked, view

BLOCK_ROWS = 65536


class Memory:
    """Rows in memory: the engine whose attributes and methods any other one has, too.

    ``like`` are some rows of X, here all of them, for their kind and their columns; ``folds`` tells whether it can cross-fit, ``has_traffic`` whether
    traffic was given beside X, ``traffic`` is what there is. ``unseen`` are columns that say that a level of a category was never seen. Positions count the rows of X. `look` comes before `temperature`, `fit_ratio` and the scores.
    """

    folds = True

    def __init__(self, X: Any, traffic: Any, unseen: Sequence[int] = ()) -> None:
        self.like, self.unseen = X, unseen
        self.traffic = None if traffic is None or n_rows(traffic) == 0 else traffic
        self.has_traffic = traffic is not None

    def __len__(self) -> int:
        return n_rows(self.like)

    def some(self, at: Indices) -> Any:
        """Return some rows."""
        return take(self.like, at)

    def blocks(self, at: Indices) -> Iterator[Any]:
        """Iterate over rows in blocks, where that costs nothing."""
        for start in range(0, len(at), BLOCK_ROWS):
            yield take(self.like, at[start : start + BLOCK_ROWS])

    def split_off(self, marked: Indices) -> int:
        """Take the rows at these positions, if any, as the traffic."""
        if len(marked):
            self.traffic = take(self.like, marked)
        return 0 if self.traffic is None else n_rows(self.traffic)

    def keys(self, at: Indices | None, other: Any) -> tuple[Keys, Keys]:
        """Return a number by content of the rows at these positions, or of the traffic, and of other rows in memory."""
        return row_keys(self.traffic if at is None else take(self.like, at), other, 0)

    def train(self, template: Any, rows: Labeled, classes: NDArray[Any]) -> Any:
        """Fit a classifier; a frozen one is only checked."""
        if isinstance(template, (NetworkHead, FrozenEstimator)):
            return given_classifier(template, self.like, classes)
        return fit_classifier(template, take(self.like, rows.at), rows)

    def look(self, classifier: Any, at: Indices) -> bool:
        """View rows and traffic once."""
        self._at, transforms = at, needs_transform(classifier, self.like)
        self._known = view(classifier, take(self.like, at), transforms=transforms)
        self._seen = None if self.traffic is None else view(classifier, self.traffic, transforms=transforms)
        if isinstance(self.like, Activations):
            return True
        finite = all_finite([self._known, *([] if self._seen is None else [self._seen])])
        # Numbers of the training rows are read as they come: a gap among them may come again.
        if finite and is_numeric(self.like) and not hasattr(self.like, "tocsr"):
            finite = all(np.isfinite(np.asarray(block, dtype=np.float64)).all() for block in chunks(self.like))
        if not finite:
            self._known = unchecked(None, self._known.logits)
            self._seen = None if self._seen is None else unchecked(None, self._seen.logits)
        return finite

    def temperature(self, at: Indices, codes: NDArray[np.int64]) -> float:
        """Calibrate the logits."""
        return temperature_of(self._rows(at).logits, codes)

    def seen(self, rows: Labeled, unlabeled: Unlabeled, most: int) -> Seen:
        """Return what the classifier says of labeled rows and of the traffic: all of it here, or samples of no more than so many rows."""
        return Seen(self._rows(rows.at), rows, self._seen, unlabeled)

    def fit_ratio(self, ratio: Any, rows: Labeled, unlabeled: Unlabeled) -> Any:
        """Fit a ratio on rows with these weights."""
        how = {
            **ratio_weights(rows.weight, unlabeled.weight),
            **ratio_groups(ratio, rows.group, unlabeled.group),
        }
        return clone(ratio).fit(self._rows(rows.at), self._seen, **how)

    def ranges(self, at: Indices, columns: tuple[int, ...] | None, transforms: bool) -> tuple[Range, ...] | None:
        """Return what some rows and the traffic held, after what a pipeline makes of them; None where the ratio sees nothing of that."""
        sides: Any = take(self.like, at), self.traffic
        if transforms:
            assert self._seen is not None
            sides = self._rows(at).features, self._seen.features
        if sides[0] is None:
            return None
        known, traffic = (measured(rows, columns) for rows in sides)
        return ranges_of(extents(known, self.unseen), extents(traffic))

    def score(self, scorer: Scorer, at: Indices) -> Kept:
        """Score all of the rows."""
        return _kept(np.arange(len(at)), scorer, take(self.like, at), self._rows(at))

    def score_traffic(self, scorer: Scorer, rows: int) -> Kept:
        """Score every k-th row of the traffic."""
        assert self._seen is not None
        chosen = np.arange(0, len(self._seen), -(-len(self._seen) // rows))
        return _kept(chosen, scorer, take(self.traffic, chosen), self._seen[chosen])

    def compared(self, at: Indices, chosen: Indices, most: int | None = None) -> Compared:
        """Return what was seen of some rows and of some traffic: all of it here, or samples of no more than so many rows."""
        assert self._seen is not None
        return Compared((self._rows(at), self._seen[chosen]), (np.arange(len(at)), np.arange(len(chosen))))

    def _rows(self, at: Indices) -> Activations:
        return self._known if len(at) == len(self._at) else self._known[np.searchsorted(self._at, at)]


def _kept(chosen: Indices, scorer: Scorer, X: Any, seen: Activations) -> Kept:
    rows, log_ratio = scorer.seen(X, seen)
    return Kept(chosen, np.asarray(rows.logits, dtype=np.float64), log_ratio, keys_of(X))
