# SPDX-License-Identifier: BSD-3-Clause
"""POSCOD on rows in chunks: the fit of `poscod.model`, with an engine that looks at rows where they are.

Convention: labels come to this process, where the rows are split as in memory; rows do so as uniform samples of stated size. The rows that
set the threshold are one such sample, which the model keeps: whatever is promised, it is promised from these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.backends.dask._chunks import Chunks, DaskActivations, Indices, as_chunks, as_vector, draw, is_frame
from poscod.backends.dask._passes import Passes, Progress, dask
from poscod.backends.dask._ratio import check_sampled, fit_linear, is_linear, sampled
from poscod.exceptions import InvalidInputError
from poscod.model import (
    POSCOD,
    Compared,
    Extent,
    Kept,
    Keys,
    Labeled,
    NetworkHead,
    Range,
    Schema,
    Scorer,
    Seen,
    Unlabeled,
    check_traffic,
    extents,
    features_of,
    fit_classifier,
    fit_on,
    given_classifier,
    join,
    keys_of,
    measured,
    ranges_of,
    ratio_weights,
    row_keys,
    temperature_of,
    view,
)
from poscod.ratio import CorrectedSigmoid

SAMPLE_ROWS, SAMPLE_NUMBERS = 1_000_000, 20_000_000
"""Largest sample that sets a temperature or a threshold: rows, and rows times classes."""

MOVED_ROWS = 4000
"""Rows of each side that are brought to look for drift: more are not looked at in memory either."""


def fit(
    model: POSCOD,
    X: Any,
    y: Any,
    X_unlabeled: Any = None,
    sample_weight: Any = None,
    *,
    X_reviewed: Any = None,
    y_reviewed: Any = None,
    sample_rows: int | None = None,
    progress: Progress | None = None,
) -> POSCOD:
    """Fit `POSCOD` on rows in chunks.

    Parameters
    ----------
    model : POSCOD
        What to fit. Its classifier is `FrozenEstimator` of a fitted one (None with DaskActivations), and its ratio
        ``CorrectedSigmoid(recipe="paper")``, unless `sample_rows` is given. ``calibration="auto"`` is the share 0.5 here.
    X : dask Array of shape (n, d), dask DataFrame or DaskActivations
        Labeled rows; rows whose label is -1 are the unlabeled traffic.
    y : dask Array of shape (n,), dask Series or array-like
        Labels, in the order of the rows. They are brought to this process.
    X_unlabeled : like X, default=None
        The traffic, where it is not marked in y.
    sample_weight : dask Array of shape (n,), dask Series or array-like, default=None
        Weights of the rows of X, in their order. They are brought to this process.
    X_reviewed : rows in memory, default=None
        Rows of the traffic that people have looked at, as `POSCOD.fit` takes them on one machine: an array, a pandas frame with the columns of X, or `poscod.Activations`.
    y_reviewed : array-like of shape (k,), default=None
        Their verdicts: a class, `poscod.OOD`, or None.
    sample_rows : int, default=None
        Classifiers and ratios that need their rows in memory are fitted on so many rows of each kind, drawn at random; all where
        there are no more. None refuses such parts.
    progress : callable, default=None
        Gets (what, done, total) of the running pass.

    Returns
    -------
    model : POSCOD
        A fitted clone, to be used and saved without Dask.

    Notes
    -----
    With the same random_state the rows are split as by `POSCOD.fit` on the same rows in the same order. The temperature, and the
    threshold with all that is promised of it, come from a uniform sample of the rows that are held out for them: at most 10^6 rows, and
    at most 2 * 10^7 numbers (rows times classes). Where the sample holds all of them, theta, pi, temperature and threshold agree with
    `POSCOD.fit` to rounding. What verdicts say is learned beside 20,000 rows of each side.
    """
    engine = ChunkEngine(model, X, X_unlabeled, sample_rows, Passes(progress))
    weight = None if sample_weight is None else as_vector(sample_weight)
    if dask().is_dask_collection(X_reviewed) or isinstance(X_reviewed, DaskActivations):
        raise InvalidInputError(
            "{parameter} must be rows in memory, got {got}: reviewed rows are few, bring them with compute().",
            parameter="X_reviewed",
            got=type(X_reviewed).__name__,
        )
    X_reviewed = check_traffic(engine.like, X_reviewed, "X_reviewed")
    fitted: POSCOD = fit_on(clone(model), engine, as_vector(y), weight, reviewed=(X_reviewed, y_reviewed))
    return fitted


class ChunkEngine:
    """Looks at rows in chunks for `poscod.model.fit_on`."""

    folds = False

    def __init__(self, model: POSCOD, X: Any, traffic: Any, sample_rows: int | None, passes: Passes) -> None:
        self._rows = as_chunks(X, "X", passes)
        self.like = self._rows.like
        self.has_traffic = traffic is not None
        self._traffic = None if traffic is None else _like(self.like, traffic, passes)
        self._sample_rows, self._passes = sample_rows, passes
        self._ratio = CorrectedSigmoid() if model.ratio is None else model.ratio
        seed = model.random_state if isinstance(model.random_state, (int, np.integer)) else None
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._rows)

    def some(self, at: Indices) -> Any:
        """Bring some rows."""
        return self._rows.pick(at).bring(self._passes, "rows for explanations")

    def blocks(self, at: Indices) -> Iterator[Any]:
        """Iterate over rows where that costs nothing: not here."""
        return iter(())

    def split_off(self, marked: Indices) -> int:
        """Take the rows at these positions, if any, as the traffic."""
        if len(marked):
            self._traffic = self._rows.pick(marked)
        if self._traffic is None:
            return 0
        check_sampled(self._ratio, self._sample_rows)
        return len(self._traffic)

    def keys(self, at: Indices | None, other: Any) -> tuple[Keys, Keys]:
        """Return a number by content of the rows at these positions, or of the traffic, and of other rows in memory."""
        rows = self._traffic if at is None else self._rows.pick(at)
        assert rows is not None
        found = self._passes.collect(rows.map(_keys, other).parts, "row keys")
        return np.concatenate(found), row_keys(self.like, other, 0)[1]

    def train(self, template: Any, rows: Labeled, classes: NDArray[Any]) -> Any:
        """Fit a classifier on a sample; a frozen one is only checked."""
        self._n_classes = len(classes)
        if isinstance(template, (NetworkHead, FrozenEstimator)):
            return given_classifier(template, self.like, classes)
        if self._sample_rows is None:
            raise InvalidInputError(
                "{classifier} must be fitted already, as FrozenEstimator(fitted) or as logits in DaskActivations: pass one, or "
                "{sample_rows} to train it on a random sample.",
                parameter="classifier",
            )
        some = rows.take(draw(len(rows.at), self._sample_rows, self._rng))
        if len(np.unique(some.codes)) < len(classes):
            raise InvalidInputError(
                "{sample_rows} = {got} training rows hold only some of the classes: draw more, or train the classifier elsewhere.",
                parameter="sample_rows",
                got=self._sample_rows,
            )
        return fit_classifier(template, self._rows.pick(some.at).bring(self._passes, "training rows"), some)

    def look(self, classifier: Any, at: Indices) -> bool:
        """Tell whether all features are finite numbers; nothing is kept."""
        self._classifier, self._features = classifier, True
        if not isinstance(self.like, Activations):
            tables = [self._rows, *([] if self._traffic is None else [self._traffic])]
            parts = [part for table in tables for part in table.map(_finite, classifier).parts]
            self._features = bool(self._passes.reduce(parts, all, "features"))
        return self._features

    def temperature(self, at: Indices, codes: NDArray[np.int64]) -> float:
        """Calibrate the logits of a sample."""
        chosen = self._sample(at)
        rows = self._rows.pick(at[chosen]).map(_logits, self._classifier)
        logits = np.concatenate(self._passes.collect(rows.parts, "temperature"))
        return temperature_of(logits, codes[chosen])

    def seen(self, rows: Labeled, unlabeled: Unlabeled, most: int) -> Seen:
        """Bring what the classifier says of samples of both sides."""
        first = draw(len(rows.at), most, self._rng)
        known = self._views(self._rows.pick(rows.at[first]))
        if self._traffic is None:
            return Seen(known, rows.take(first), None, Unlabeled())
        second = draw(len(self._traffic), most, self._rng)
        return Seen(known, rows.take(first), self._views(self._traffic.pick(second)), unlabeled.take(second))

    def _views(self, rows: Chunks) -> Activations:
        return view(self._classifier, rows.bring(self._passes, "class mix"), with_features=self._features)

    def fit_ratio(self, ratio: Any, rows: Labeled, unlabeled: Unlabeled) -> Any:
        """Fit a ratio on all rows where they are, or on a sample here."""
        assert self._traffic is not None
        sides, weights = (self._rows.pick(rows.at), self._traffic), (rows.weight, unlabeled.weight)
        if not is_linear(ratio):
            assert self._sample_rows is not None
            parts, weights = sampled(sides, self._sample_rows, self._rng, self._passes, weights)
            views = (view(self._classifier, part, with_features=self._features) for part in parts)
            return clone(ratio).fit(*views, **ratio_weights(*weights))
        known, mixture = (side.map(_matrix, self._classifier, self._features) for side in sides)
        scaled = ratio_weights(*weights)
        weights = scaled.get("sample_weight_id"), scaled.get("sample_weight_unlabeled")
        return fit_linear(ratio, known, mixture, self._passes, weights, n_logits=self._n_classes)

    def ranges(self, at: Indices, columns: tuple[int, ...] | None, transforms: bool) -> tuple[Range, ...] | None:
        """Return what some rows and the traffic held, after what a pipeline makes of them; None where the ratio sees nothing of that."""
        assert self._traffic is not None
        if transforms and not self._features:
            return None
        sides = self._rows.pick(at), self._traffic
        if transforms:
            sides = sides[0].map(_transformed, self._classifier), sides[1].map(_transformed, self._classifier)
        return ranges_of(*(self._passes.reduce(side.map(_extents, columns).parts, join, "ranges") for side in sides))

    def score(self, scorer: Scorer, at: Indices) -> Kept:
        """Score a uniform sample of the rows."""
        chosen = self._sample(at)
        return self._kept(chosen, scorer, self._rows.pick(at[chosen]))

    def score_traffic(self, scorer: Scorer, rows: int) -> Kept:
        """Score every k-th row of the traffic."""
        assert self._traffic is not None
        chosen = np.arange(0, len(self._traffic), -(-len(self._traffic) // rows))
        return self._kept(chosen, scorer, self._traffic.pick(chosen))

    def compared(self, at: Indices, chosen: Indices, most: int = MOVED_ROWS) -> Compared:
        """Bring what is seen of samples of these rows and of this traffic, no more than so many of each."""
        assert self._traffic is not None
        some = [draw(len(places), most, self._rng) for places in (at, chosen)]
        tables = self._rows.pick(at[some[0]]), self._traffic.pick(chosen[some[1]])
        first, second = (view(self._classifier, rows.bring(self._passes, "drift"), with_features=self._features) for rows in tables)  # fmt: skip
        return Compared((first, second), (some[0], some[1]))

    def _sample(self, at: Indices) -> Indices:
        return draw(len(at), min(SAMPLE_ROWS, SAMPLE_NUMBERS // self._n_classes), self._rng)

    def _kept(self, chosen: Indices, scorer: Scorer, rows: Chunks) -> Kept:
        parts = self._passes.collect(rows.map(_scores, scorer).parts, "kept rows")
        return Kept(chosen, *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _like(like: Any, traffic: Any, passes: Passes) -> Chunks:
    """Return the chunks of the traffic, with the columns of the labeled rows."""
    mine, columns = Schema.of(like), None
    if is_frame(traffic) and mine.frame:
        mine.check([str(name) for name in traffic.columns], "X_unlabeled")
        columns = list(like.columns)
    found = as_chunks(traffic, "X_unlabeled", passes, columns=columns)
    if Schema.of(found.like) != mine:
        raise InvalidInputError(
            "{X_unlabeled} must have rows like those of {X}, with {allowed}, got {got}.",
            allowed=mine.words,
            got=Schema.of(found.like).words,
        )
    return found


def _finite(rows: Any, classifier: Any) -> bool:
    features = features_of(classifier, rows)
    return features is not None and bool(np.isfinite(features).all())


def _matrix(rows: Any, classifier: Any, features: bool) -> NDArray[Any]:
    """Return what the ratio sees as features, without asking the classifier where it need not be."""
    found = features_of(classifier, rows) if features else None
    return np.asarray(view(classifier, rows, with_features=False).logits if found is None else found)


def _scores(rows: Any, scorer: Scorer) -> tuple[Floats, Floats, Keys]:
    seen, log_ratio = scorer.seen(rows)
    return np.asarray(seen.logits, dtype=np.float64), log_ratio, keys_of(rows)


def _keys(rows: Any, other: Any) -> Keys:
    return row_keys(rows, other, 0)[0]


def _logits(rows: Any, classifier: Any) -> Floats:
    return np.asarray(view(classifier, rows, with_features=False).logits, dtype=np.float64)


def _transformed(rows: Any, classifier: Any) -> NDArray[Any] | None:
    return features_of(classifier, rows, transforms=True)


def _extents(rows: Any, columns: tuple[int, ...] | None) -> list[Extent]:
    return extents(measured(rows, columns))
