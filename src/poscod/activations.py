"""What a trained network gives us for a set of inputs: features, logits and, where known, its last layer.

Convention: arrays are kept as they come (float32, float64 or a memory map) and are never changed; every
row-wise array has the same number of rows. ``logits = features @ weight.T + bias`` where the last layer is given.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from poscod._validation import as_array, check_count, check_matrix, check_vector
from poscod.exceptions import InvalidInputError

__all__ = ["Activations"]


@dataclass(frozen=True, eq=False, repr=False)
class Activations:
    """Features and logits of a classifier on n inputs.

    Parameters
    ----------
    features : array-like of shape (n, d) or None
        Input of the last layer (penultimate features).
    logits : array-like of shape (n, K) or None
        Output of the last layer, before softmax.
    labels : array-like of shape (n,), default=None
        True class indices; -1 marks an OOD or unlabelled row.
    weight : array-like of shape (K, d), default=None
        Weight of the last layer.
    bias : array-like of shape (K,), default=None
        Bias of the last layer; zeros when a weight is given without one.

    Notes
    -----
    Rows given as ID anywhere in the library must be rows the classifier was **not** trained on: a network
    is far more confident on its own training rows, and every threshold, calibration or ratio fitted there
    breaks its promise on fresh data.

    Examples
    --------
    >>> a = Activations(features=[[1.0, 0.0], [0.0, 2.0]], logits=[[3.0, 1.0], [0.0, 4.0]], labels=[0, 1])
    >>> len(a), a.n_classes, a.n_features
    (2, 2, 2)
    >>> a[:1].labels
    array([0])
    """

    features: Any = None
    logits: Any = None
    labels: Any = None
    weight: Any = None
    bias: Any = None

    def __post_init__(self) -> None:
        if self.features is None and self.logits is None:
            raise InvalidInputError("Activations needs features, logits or both, got neither.")
        features = None if self.features is None else check_matrix(self.features, "features")
        rows = None if features is None else len(features)
        logits = None if self.logits is None else check_matrix(self.logits, "logits", rows=rows)
        n = len(features) if features is not None else len(logits)  # type: ignore[arg-type]
        labels = None if self.labels is None else _check_label_column(self.labels, n, logits)
        weight, bias = _check_head(self.weight, self.bias, features, logits)
        for name, value in (
            ("features", features),
            ("logits", logits),
            ("labels", labels),
            ("weight", weight),
            ("bias", bias),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.features if self.features is not None else self.logits)

    def __repr__(self) -> str:
        parts = [
            f"{name}={value.shape} {value.dtype}"
            for name in ("features", "logits", "labels", "weight", "bias")
            if (value := getattr(self, name)) is not None
        ]
        return f"Activations({', '.join(parts)})"

    def __getitem__(self, rows: slice | NDArray[Any] | list[int]) -> Activations:
        """Return the activations of some rows (slice, indices or a boolean mask); the last layer is kept."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            if rows.ndim != 1:
                raise InvalidInputError("rows must be a slice, a list of indices or a boolean mask.")
        part = object.__new__(Activations)  # rows of checked arrays need no second check
        for name in ("features", "logits", "labels"):
            value = getattr(self, name)
            object.__setattr__(part, name, None if value is None else value[rows])
        object.__setattr__(part, "weight", self.weight)
        object.__setattr__(part, "bias", self.bias)
        return part

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return int(self.need("logits").shape[1])

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.need("features").shape[1])

    def need(self, name: str, *, caller: str = "This operation") -> NDArray[Any]:
        """Return a part, or say which part is missing.

        Parameters
        ----------
        name : {"features", "logits", "labels", "weight", "bias"}
        caller : str
            What needs it, as the subject of the error sentence.

        Returns
        -------
        array : ndarray
        """
        value = getattr(self, name)
        if value is None:
            raise InvalidInputError(f"{caller} needs {name}, which these activations do not have.")
        return value

    def chunks(self, rows: int = 65536) -> Iterator[Activations]:
        """Iterate over consecutive blocks of rows, so that memory stays bounded.

        Parameters
        ----------
        rows : int, default=65536
            Rows per block.

        Yields
        ------
        block : Activations
        """
        rows = check_count(rows, "rows")
        for start in range(0, len(self), rows):
            yield self[start : start + rows]


def _check_label_column(labels: Any, n: int, logits: NDArray[Any] | None) -> NDArray[np.int64]:
    """Whole numbers from -1 (not ID, or unknown) up to the last class."""
    column = check_vector(labels, "labels", n=n, like="features and logits", allow_inf=False, minimum=-1)
    if (column != np.floor(column)).any():
        raise InvalidInputError("labels must be whole class indices (-1 = OOD or unlabelled).")
    if logits is not None and n and column.max() >= logits.shape[1]:
        raise InvalidInputError(f"labels must be below the number of logits ({logits.shape[1]}), got {column.max():g}.")
    return column.astype(np.int64)


def _check_head(
    weight: Any, bias: Any, features: NDArray[Any] | None, logits: NDArray[Any] | None
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Check the last layer against features and logits."""
    if weight is None:
        if bias is not None:
            raise InvalidInputError("bias was given without weight: pass both parts of the last layer.")
        return None, None
    weight = check_matrix(
        weight,
        "weight",
        columns=None if features is None else features.shape[1],
        rows=None if logits is None else logits.shape[1],
    )
    bias = np.zeros(len(weight), weight.dtype) if bias is None else as_array(bias, "bias")
    check_vector(bias, "bias", n=len(weight), like="weight", allow_inf=False)
    return weight, bias
