# SPDX-License-Identifier: BSD-3-Clause
"""From rows to what a rule decides on: the classifier's answer, its conditional risk r and the log-ratio log g.

Convention: a *view* of rows is an `Activations` with the classifier's logits and, where they are numbers, its features. Every arrow is
crossed once: a row is transformed once, however many parts look at it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from poscod._threads import few_threads
from poscod._validation import Floats
from poscod.activations import PARTS, Activations
from poscod.decision import Scored
from poscod.model._familiar import Familiar
from poscod.model._prepare import Preparation, by_name
from poscod.model._range import Guard, beyond
from poscod.model._rows import LEAST_PROBABILITY, chunks, is_numeric, n_numbers
from poscod.ratio import Ratio
from poscod.risk import bayes_decision_from_logits

# Sparse features are made dense for the ratio up to this width; wider ones speak through the logits alone.
_WIDEST_DENSE = 4096


class NetworkHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The classifier of a network whose logits are given: nothing is trained."""

    def fit(self, X: Activations, y: Any = None) -> NetworkHead:
        """Note the number of classes."""
        self.classes_ = np.arange(X.n_classes) if X.classes is None else X.classes
        return self


@dataclass(frozen=True, eq=False)
class Scorer:
    """The fitted parts that look at rows, in the order in which they look.

    Parameters
    ----------
    classifier : estimator
        The fitted classifier.
    ratio : estimator or None
        The fitted ratio; None without unlabeled rows at fit, where log g is -inf everywhere.
    temperature : float
        Divides the logits, so that their softmax is calibrated.
    classes : ndarray of shape (K,)
        Labels in the order of the logits.
    uses_features : bool, default=True
        Whether the ratio sees features beside the logits (it does not where they are not finite numbers).
    transforms : bool or None, default=None
        Whether features are what the classifier's pipeline makes of a row instead of the row's own numbers; decided once, at fit. None, in models
        of the first edition, decides by the type of the rows.
    bias : ndarray of shape (K,) or None, default=None
        Added to the scaled logits: log w of each class where the traffic has another class mix than the labeled rows.
    guard : Guard or None, default=None
        What labeled rows held, after what a pipeline makes of them: outside of it nothing that was learned is read, and log g rises with the distance. None
        without a ratio, where the ratio sees no features of texts, and in models of the first edition.
    preparation : Preparation or None, default=None
        How rows of a data frame become numbers; arrays are such numbers already. None where rows are taken as they are.
    columns : tuple of str, default=()
        Columns of a data frame, in the order in which they are read.
    familiar : Familiar or None, default=None
        Labeled rows by which it is said why a row is unfamiliar; None without a ratio, and in models of earlier versions.
    """

    classifier: Any
    ratio: Any
    temperature: float
    classes: NDArray[Any]
    uses_features: bool = True
    transforms: bool | None = None
    bias: Floats | None = None
    guard: Guard | None = None
    preparation: Preparation | None = None
    columns: tuple[str, ...] = ()
    familiar: Familiar | None = None

    def prepared(self, X: Any) -> Any:
        """Return rows as the classifier reads them: columns of a data frame by name, and as numbers where they are prepared; others are so already."""
        if not hasattr(X, "columns") or not self.columns:
            return X
        X = by_name(X, self.columns)
        return X if self.preparation is None else self.preparation.rows(X)

    def calibrated(self, logits: NDArray[Any]) -> Floats:
        """Return logits whose softmax is the posterior for the class mix that is served."""
        scaled = np.asarray(logits, dtype=np.float64) / self.temperature
        return scaled if self.bias is None else scaled + self.bias

    @property
    def network(self) -> bool:
        """Whether rows are `Activations` of a network."""
        return isinstance(self.classifier, NetworkHead)

    def view(self, X: Any) -> Activations:
        """Return what is known of some rows.

        Parameters
        ----------
        X : rows like those given to fit
            Inputs, of the kind given to fit.

        Returns
        -------
        rows : Activations
            The classifier's logits and, where the ratio uses them, features.
        """
        return view(self.classifier, self.prepared(X), with_features=self.uses_features, transforms=self.transforms)

    def posterior(self, X: Any) -> Floats:
        """Return the calibrated posterior p(y | x) under ID.

        Parameters
        ----------
        X : rows like those given to fit
            Inputs, of the kind given to fit.

        Returns
        -------
        posterior : ndarray of shape (n, K)
        """
        X = self.prepared(X)
        if self.guard is None:
            rows = view(self.classifier, X, with_features=False, transforms=self.transforms)
        else:
            X, last = _transformed(self.classifier, X, self.transforms)
            rows = view(last, self.guard.readable(X, self.guard.far(X)), with_features=False, transforms=False)
        return np.asarray(softmax(self.calibrated(rows.logits), axis=1))

    def scored(self, X: Any, loss: Any) -> Scored:
        """Score rows, in blocks, so that memory stays bounded.

        Parameters
        ----------
        X : rows like those given to fit
            Inputs, of the kind given to fit.
        loss : str or array-like of shape (K, K)
            Loss that the answers minimise.

        Returns
        -------
        scored : Scored
            Inputs after scoring.
        """
        with few_threads(n_numbers(X)):
            return Scored.join([self._block(block, loss) for block in chunks(X)] or [self._block(X, loss)])

    def _block(self, X: Any, loss: Any) -> Scored:
        rows, log_ratio = self.seen(X)
        code, risk = bayes_decision_from_logits(self.calibrated(rows.logits), loss)
        return Scored(self.classes[code], risk, log_ratio)

    def seen(self, X: Any, rows: Activations | None = None) -> tuple[Activations, Floats]:
        """Return what the classifier says of some rows, and their log g: of rows outside of what was seen by their nearest values and their distance.

        Parameters
        ----------
        X : rows like those given to fit
            Inputs, of the kind given to fit.
        rows : Activations, default=None
            What the classifier says of them, where it has been asked already.

        Returns
        -------
        rows : Activations
        log_ratio : ndarray of shape (n,)
            -inf everywhere where no ratio was learned.
        """
        X = self.prepared(X)
        if self.guard is None:
            rows = self.view(X) if rows is None else rows
            return rows, np.full(len(rows), -np.inf) if self.ratio is None else log_ratio_of(self.ratio, rows)
        if rows is not None and self.transforms:
            X, last = rows.features, _inner(self.classifier)[-1]
        else:
            X, last = _transformed(self.classifier, X, self.transforms)
        far = self.guard.far(X)
        if rows is None:
            rows = view(last, self.guard.readable(X, far), with_features=self.uses_features, transforms=False)
        if not len(far.at):
            return rows, log_ratio_of(self.ratio, rows)
        near = view(last, self.guard.nearest(X, far.at), with_features=self.uses_features, transforms=False)
        out, inside = np.empty(len(rows)), np.delete(np.arange(len(rows)), far.at)
        out[inside] = log_ratio_of(self.ratio, rows[inside])
        out[far.at] = beyond(log_ratio_of(self.ratio, near), far.distance, self.guard.scale)
        return rows, out


def log_ratio_of(ratio: Any, rows: Activations) -> Floats:
    """Return log g as it decides; anything with `log_ratio` is a ratio."""
    return np.asarray(ratio.log_ratio(rows, deciding=True) if isinstance(ratio, Ratio) else ratio.log_ratio(rows))


def view(classifier: Any, X: Any, *, with_features: bool = True, transforms: bool | None = None) -> Activations:
    """Return logits and features of some rows; rows of a table are not checked again, because the classifier has read them.

    Features are what the classifier's last step sees of texts and categories. Numbers are taken as they come, before any step that has
    seen labels of the rows it is applied to.
    """
    if isinstance(X, Activations):
        X.need("logits", caller="POSCOD on Activations")
        return X
    X, classifier = _transformed(classifier, X, transforms)
    probability = np.asarray(classifier.predict_proba(X), dtype=np.float64)
    return unchecked(_numbers(X) if with_features else None, np.log(np.maximum(probability, LEAST_PROBABILITY)))


def features_of(classifier: Any, X: Any, transforms: bool | None = None) -> NDArray[Any] | None:
    """Return the features of a view without asking the classifier for probabilities; None where there are none."""
    return X.features if isinstance(X, Activations) else _numbers(_transformed(classifier, X, transforms)[0])


def needs_transform(classifier: Any, X: Any) -> bool:
    """Tell whether features are what a pipeline makes of rows: texts and categories are not numbers yet."""
    inner = _inner(classifier)
    return isinstance(inner, Pipeline) and len(inner) > 1 and not is_numeric(X)


def _transformed(classifier: Any, X: Any, transforms: bool | None) -> tuple[Any, Any]:
    """Return rows as the last step of a classifier sees them, and that step; numbers stay as they are."""
    if needs_transform(classifier, X) if transforms is None else transforms:
        return transformer_of(classifier).transform(X), _inner(classifier)[-1]
    return X, classifier


def transformer_of(classifier: Any) -> Any:
    """Return the steps of a pipeline before its classifier."""
    return _inner(classifier)[:-1]


def names_of(classifier: Any) -> list[str] | None:
    """Return the names of what a pipeline makes; None where its steps do not tell."""
    try:
        return [str(name) for name in transformer_of(classifier).get_feature_names_out()]
    except (AttributeError, ValueError):
        return None


def _inner(classifier: Any) -> Any:
    return classifier.estimator if isinstance(classifier, FrozenEstimator) else classifier


def all_finite(views: Iterable[Activations]) -> bool:
    """Tell whether all features are there and finite numbers."""
    return all(rows.features is not None and bool(np.isfinite(rows.features).all()) for rows in views)


def unchecked(features: NDArray[Any] | None, logits: Floats, labels: NDArray[np.int64] | None = None) -> Activations:
    """Return a view of table rows without checking it: a NaN that a classifier lets pass ends in a NaN score, which is refused."""
    rows = object.__new__(Activations)
    parts = {**dict.fromkeys(PARTS), "features": features, "logits": logits, "labels": labels, "table": True}
    for name, value in parts.items():
        object.__setattr__(rows, name, value)
    return rows


def _numbers(X: Any) -> NDArray[Any] | None:
    """Return rows as a matrix of numbers, or None where they are not one."""
    if hasattr(X, "toarray"):
        if X.shape[1] > _WIDEST_DENSE:
            return None
        X = X.toarray()
    try:
        array = np.asarray(X)
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 2 and array.shape[1] else None
