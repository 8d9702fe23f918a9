# SPDX-License-Identifier: BSD-3-Clause
"""The skeleton every score shares: checks, blocks of rows, float64 out.

Convention: a score is an uncertainty, higher = reject sooner. Published confidences are negated once, inside the class
of the score. A subclass declares its parameters as fields of a dataclass (which writes an ``__init__`` that
assigns them) and writes `_score` for one block of rows and, where it learns, `_fit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from poscod._validation import Floats, check_count
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError

if TYPE_CHECKING:
    from typing_extensions import Self

# Float64 copies of one block take about this much; a score holds a handful of them at a time.
BLOCK_BYTES = 32 * 2**20


class Score(BaseEstimator, ABC):  # type: ignore[misc]
    """A number per row that says how soon the row should be rejected.

    Attributes
    ----------
    name : str
        Key in `SCORES`.
    needs : tuple of str
        Parts of the activations that a call reads; the logits, unless a score says otherwise.
    fit_needs : tuple of str
        Parts of the ID activations that `fit` reads; empty where there is nothing to learn.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    fit_needs: ClassVar[tuple[str, ...]] = ()

    def fit(self, activations: Activations) -> Self:
        """Learn what the score needs from ID rows; nothing at all where `fit_needs` is empty.

        Parameters
        ----------
        activations : Activations of n rows
            In-distribution rows.

        Returns
        -------
        self : Score
        """
        self._check_parameters()
        if self.fit_needs:
            _check_activations(activations)
            for part in self.fit_needs:
                activations.need(part, caller=f"Fitting the score '{self.name}'")
            if len(activations) == 0:
                raise InvalidInputError(f"Fitting the score '{self.name}' needs at least one row, got none.")
            self._fit(activations)
            rows = {"features": activations.features, "logits": activations.logits}
            self.columns_ = {part: rows[part].shape[1] for part in rows if part in self.fit_needs}
        return self

    def __call__(self, activations: Activations, *, chunk_rows: int | None = None) -> Floats:
        """Return the uncertainty of every row.

        Parameters
        ----------
        activations : Activations of n rows
            With the parts named in `needs`.
        chunk_rows : int, default=None
            Rows per block; None chooses blocks of about 32 MB.

        Returns
        -------
        score : ndarray of shape (n,), float64
            Higher = reject sooner.
        """
        self._check_parameters()
        _check_activations(activations)
        if self.fit_needs and not hasattr(self, "columns_"):
            raise InvalidInputError(f"Score '{self.name}' is not fitted: call fit(activations_id) with ID rows first.")
        width = 0
        for part in self.needs:
            array = activations.need(part, caller=f"Score '{self.name}'")
            if part in ("features", "logits"):
                width += array.shape[1]
                expected = self.columns_.get(part, array.shape[1]) if self.fit_needs else array.shape[1]
                if array.shape[1] != expected:
                    raise InvalidInputError(
                        f"{part} must have {expected} columns, as many as at fit of the score '{self.name}', "
                        f"got {array.shape[1]}."
                    )
                if array.shape[1] == 0:
                    raise InvalidInputError(f"Score '{self.name}' needs {part} with at least one column, got none.")
        rows = max(64, BLOCK_BYTES // (8 * width)) if chunk_rows is None else check_count(chunk_rows, "chunk_rows")
        return np.concatenate([np.empty(0), *(self._score(block) for block in activations.chunks(rows))])

    def _check_parameters(self) -> None:
        """Check hyper-parameters; scores without any have nothing to check."""

    def _fit(self, activations: Activations) -> None:
        """Learn from ID rows; only scores that need it write this."""
        raise NotImplementedError

    @abstractmethod
    def _score(self, block: Activations) -> Floats:
        """Return the uncertainty of one block of rows."""


def _check_activations(activations: Any) -> None:
    if not isinstance(activations, Activations):
        raise InvalidInputError(
            f"activations must be an Activations object, got {type(activations).__name__}: "
            "wrap the arrays as Activations(features=..., logits=...)."
        )
