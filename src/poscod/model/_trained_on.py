# SPDX-License-Identifier: BSD-3-Clause
"""Rows that a given classifier was trained on, or may have been: found at fit, said in a warning, and nothing is promised from them.

Convention: only a classifier that comes from outside (frozen, or a network's logits) is suspected; one that is trained here is cross-fitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.frozen import FrozenEstimator

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.exceptions import warn_caller
from poscod.model._scorer import NetworkHead, needs_transform
from poscod.ratio import Ask, Ratio, training_trace
from poscod.selector import MAY_BE


def trained_on(
    template: Any, classifier: Any, like: Any, known: Activations, codes: NDArray[np.int64], traffic: Activations | None
) -> bool | str:
    """Tell whether labeled rows look like rows that a given classifier was trained on, or "may be" such, and warn of it; `like` are rows as it takes them."""
    if not isinstance(template, (FrozenEstimator, NetworkHead)):
        return False
    trace = training_trace(known, codes, traffic, _asking(classifier, like, known))
    if trace is None:
        return False
    warn_caller(trace.warning("X", " and nothing is promised"))
    return trace.told or MAY_BE


def withdraw(ratio: Any, suspect: bool | str) -> None:
    """Let a ratio certify nothing, where the rows that it was learned from are not like fresh ones, or may not be."""
    if suspect and isinstance(ratio, Ratio):
        ratio.moved_ = True


def _asking(classifier: Any, like: Any, known: Activations) -> Ask | None:
    """Return how to ask a classifier at any features; None where there are only logits, or where features are not all that it looks at."""
    if not isinstance(classifier, FrozenEstimator) or known.features is None or not len(known):
        return None
    transforms = needs_transform(classifier, like)
    last = classifier.estimator[-1] if transforms else classifier

    def ask(points: Floats) -> NDArray[Any]:
        rows: Any = points
        if not transforms and hasattr(like, "columns"):
            rows = type(like)(points, columns=list(like.columns))
        elif hasattr(like, "tocsr"):
            rows = sparse.csr_matrix(points)
        return np.asarray(last.predict_proba(rows))

    some = slice(0, 5)
    try:
        again = ask(np.asarray(known.features[some], dtype=np.float64))
    except (TypeError, ValueError):  # other frames, texts and categories: what it answers between rows cannot be asked
        return None
    return ask if np.allclose(again, softmax(np.asarray(known.logits)[some], axis=1), atol=1e-4) else None
