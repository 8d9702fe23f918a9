# SPDX-License-Identifier: BSD-3-Clause
"""A log in chunks for review: decisions on all of its rows come to this process, of what they hold only what is asked for.

Convention: the functions of `poscod.review` take a `DaskLog` where they take rows, and give the numbers that they give for the same rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import refusal
from poscod.activations import Activations
from poscod.backends.dask._chunks import Chunks
from poscod.backends.dask._decide import rows_for
from poscod.backends.dask._passes import Passes, Progress
from poscod.decision import Decisions, Scored
from poscod.model import POSCOD, Keys, Scorer, keys_of, take

Rows = NDArray[np.int64]


class DaskLog:
    """A log in chunks, which `poscod.review.queue`, `assess`, `strangers` and `stranger_groups` take in place of rows in memory.

    Parameters
    ----------
    X : dask DataFrame, dask Array of shape (n, d) or DaskActivations
        The log. Of a frame the columns that the model was fitted on are used.
    progress : callable, default=None
        Gets (what, done, total) of the running pass.

    Notes
    -----
    Label, r and log g of every row are brought to this process, and the decisions made of them: about 150 bytes per row at peak. They are kept for the
    next question about the same model.

    Examples
    --------
    >>> import dask.array as da
    >>> from poscod import POSCOD
    >>> from poscod.backends.dask import DaskLog
    >>> from poscod.review import queue
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    >>> X, y = world.sample_id(600, random_state=0)
    >>> log, _ = world.sample_mixture(500, pi=0.1, random_state=1)
    >>> model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=log)
    >>> chosen = queue(model, DaskLog(da.from_array(log, chunks=(200, 2))), 50)
    >>> chosen, bool((chosen.index == queue(model, log, 50).index).all())
    (Queue(50 of 500 inputs), True)
    """

    def __init__(self, X: Any, progress: Progress | None = None) -> None:
        self._X, self._passes = X, Passes(progress)
        self._last: tuple[POSCOD, ChunkLog] | None = None

    def seen_by(self, model: POSCOD) -> ChunkLog:
        """Return the log as a model sees it.

        Parameters
        ----------
        model : POSCOD
            Fitted, in memory or on Dask.

        Returns
        -------
        log : object
            What the functions of `poscod.review` read.
        """
        if self._last is None or self._last[0] is not model:
            self._last = model, ChunkLog(model, rows_for(model, self._X, "X", self._passes), self._passes)
        return self._last[1]


class ChunkLog:
    """Rows in chunks as a model sees them, with the methods of a log in memory."""

    def __init__(self, model: POSCOD, rows: Chunks, passes: Passes) -> None:
        self._rule, self._scorer, self._rows, self._passes = model.rule_, model.scorer_, rows, passes

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def decisions(self) -> Decisions:
        """What is decided on every row."""
        parts = self._rows.map(_scored, self._scorer, self._rule.problem.loss).parts
        return self._rule.decide(Scored.join(self._passes.collect(parts, "decisions")))

    def keys(self) -> Keys:
        """Return a number per row that depends on its content alone."""
        return np.concatenate(self._passes.collect(self._rows.map(_keys, self._scorer).parts, "row keys"))

    def view(self, rows: Rows | None = None) -> Activations:
        """Return what the ratio sees of some rows."""
        if rows is None:
            raise refusal(
                "X",
                "holds rows of the fit, for which a new ratio would have to be learned on all of its rows in memory: give a log that the model was not fitted on.",
            )
        order = np.argsort(rows, kind="stable")
        found = self._rows.pick(rows[order]).map(_view, self._scorer).bring(self._passes, "rows")
        back: Activations = take(found, np.argsort(order))
        return back

    def mapped(self, function: Callable[[Activations], NDArray[Any]], rows: Rows) -> NDArray[Any]:
        """Return what a function makes of views of some rows, one value or vector for each, where the rows are."""
        order = np.argsort(rows, kind="stable")
        parts = self._rows.pick(rows[order]).map(_mapped, self._scorer, function).parts
        found: NDArray[Any] = np.concatenate(self._passes.collect(parts, "rows"))[np.argsort(order)]
        return found


def _scored(rows: Any, scorer: Scorer, loss: Any) -> Scored:
    return scorer.scored(rows, loss)


def _keys(rows: Any, scorer: Scorer) -> Keys:
    return keys_of(scorer.prepared(rows))


def _view(rows: Any, scorer: Scorer) -> Activations:
    return scorer.view(rows)


def _mapped(rows: Any, scorer: Scorer, function: Callable[[Activations], NDArray[Any]]) -> NDArray[Any]:
    return function(scorer.view(rows))
