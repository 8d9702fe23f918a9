# SPDX-License-Identifier: BSD-3-Clause
"""Temperature scaling: one number that makes a network's softmax honest.

Convention: the temperature divides the logits; above 1 it makes them less confident. It changes r(x) but not which
class is most probable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from poscod._validation import Floats, check_labels, check_matrix, check_weight
from poscod.exceptions import InvalidInputError, PoscodWarning, warn_caller

_RANGE = (1e-3, 1e3)


class TemperatureWarning(PoscodWarning):
    """The rows do not determine a temperature."""


class TemperatureScaling(BaseEstimator):  # type: ignore[misc]
    """Calibrate softmax probabilities by dividing logits by a temperature.

    Attributes
    ----------
    temperature_ : float
        Maximum-likelihood temperature, within [0.001, 1000].
    n_features_in_ : int
        Number of classes K.

    Notes
    -----
    With the inverse temperature b the log-likelihood ``sum_i b z_i[y_i] - log sum_k exp(b z_i[k])`` is concave in b, so
    its maximum is the root of the monotone derivative ``sum_i z_i[y_i] - E_b[z_i]``, found by bisection-safe root
    finding. If no row is wrong the likelihood grows without end as T falls: the rows do not identify T, and it stays at one,
    with a `TemperatureWarning`; likewise at 1000 if the logits carry no information.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, "On Calibration of Modern Neural Networks", ICML 2017.

    Examples
    --------
    >>> logits = [[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]]
    >>> scaling = TemperatureScaling().fit(logits, [0, 0, 1, 1])
    >>> round(scaling.temperature_, 3)  # three of four right: the probability of the answer becomes 3/4
    3.641
    """

    def fit(self, logits: Any, y: Any, sample_weight: Any = None) -> TemperatureScaling:
        """Choose the temperature on held-out ID rows.

        Parameters
        ----------
        logits : array-like of shape (n, K)
            Logits of rows the classifier was **not** trained on.
        y : array-like of shape (n,)
            True class indices.
        sample_weight : array-like of shape (n,), default=None
            Sample weights.

        Returns
        -------
        self : TemperatureScaling
        """
        logits = check_matrix(logits, "logits").astype(np.float64)
        if len(logits) == 0:
            raise InvalidInputError("logits must hold at least one row to fit a temperature, got none.")
        y = check_labels(y, "y", logits.shape[1], n=len(logits))
        weight = check_weight(sample_weight, "sample_weight", len(logits))
        mass = float(len(logits)) if weight is None else float(weight.sum())
        centred = logits - logits.max(axis=1, keepdims=True)
        observed = np.take_along_axis(centred, y[:, None], axis=1)[:, 0]

        def slope(inverse: float) -> float:
            """Mean derivative of the log-likelihood at an inverse temperature."""
            excess = observed - np.einsum("ik,ik->i", softmax(inverse * centred, axis=1), centred)
            return float(np.sum(excess if weight is None else excess * weight)) / mass

        low, high = 1.0 / _RANGE[1], 1.0 / _RANGE[0]
        if slope(low) <= 0.0:
            self.temperature_ = _RANGE[1]
            told = "TemperatureScaling: the {rows} rows say that the logits carry no information; the temperature is set to {got:g}."
        elif slope(high) >= 0.0:
            self.temperature_ = 1.0
            told = "TemperatureScaling: the {rows} rows hold no error that could set the temperature; it stays at {got:g}: add rows."
        else:
            self.temperature_ = float(1.0 / brentq(slope, low, high, xtol=1e-12, rtol=1e-10))
            told = ""
        if told:
            warn_caller(TemperatureWarning(told, rows=len(y), got=self.temperature_))
        self.n_features_in_ = logits.shape[1]
        return self

    def predict_proba(self, logits: Any) -> Floats:
        """Return calibrated class probabilities.

        Parameters
        ----------
        logits : array-like of shape (n, K)
            Logits of the classifier.

        Returns
        -------
        posterior : ndarray of shape (n, K)
        """
        check_is_fitted(self, "temperature_")
        logits = check_matrix(logits, "logits", columns=self.n_features_in_).astype(np.float64)
        return np.asarray(softmax(logits / self.temperature_, axis=1))
