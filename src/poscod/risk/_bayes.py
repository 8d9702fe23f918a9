# SPDX-License-Identifier: BSD-3-Clause
"""The plug-in Bayes classifier and its conditional risk r(x), for any loss.

Convention: posteriors have one row per input and one column per class; a loss matrix is ``l[y, y']``, row = truth,
column = answer; labels are class indices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from poscod._validation import Floats, check_labels, check_matrix, check_number
from poscod.exceptions import InvalidInputError
from poscod.problem import ScodProblem
from poscod.scores import one_minus_msp


class BayesDecision(NamedTuple):
    """The best answer and what it costs in expectation.

    Attributes
    ----------
    label : ndarray of shape (n,), int64
        Class index with the smallest expected loss; the lowest one at a tie.
    risk : ndarray of shape (n,)
        Conditional risk r of that answer.
    """

    label: NDArray[np.int64]
    risk: Floats


def bayes_decision(posterior: Any, loss: Any = "zero_one") -> BayesDecision:
    """Choose the answer with the smallest expected loss under the posterior.

    Parameters
    ----------
    posterior : array-like of shape (n, K)
        p(y | x); rows sum to one.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y.

    Returns
    -------
    decision : BayesDecision
        Named tuple (label, risk).

    Notes
    -----
    ``h(x) = argmin over y' of sum over y of p(y | x) l(y, y')`` and r(x) is that minimum. All expected losses are one
    matrix product. For 0/1 loss they are 1 - p, so h is the most probable class and r = 1 - max p.

    Examples
    --------
    >>> bayes_decision([[0.6, 0.4]]).label
    array([0])
    >>> bayes_decision([[0.6, 0.4]], loss=[[0, 1], [5, 0]])
    BayesDecision(label=array([1]), risk=array([0.6]))
    """
    posterior = check_posterior(posterior)
    matrix = _loss_matrix(loss, posterior.shape[1])
    if _is_zero_one(matrix):
        label = np.argmax(posterior, axis=1)
        return BayesDecision(label, _other_mass(posterior, label))
    expected = posterior @ matrix
    label = np.argmin(expected, axis=1)
    return BayesDecision(label, np.take_along_axis(expected, label[:, None], axis=1)[:, 0])


def bayes_decision_from_logits(logits: Any, loss: Any = "zero_one", *, temperature: float = 1.0) -> BayesDecision:
    """Choose the answer with the smallest expected loss under softmax(logits / temperature).

    Parameters
    ----------
    logits : array-like of shape (n, K)
        Logits of the classifier.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y.
    temperature : float > 0, default=1.0
        Divides the logits; see `TemperatureScaling`.

    Returns
    -------
    decision : BayesDecision
        Named tuple (label, risk).

    Notes
    -----
    For 0/1 loss r is summed over the other classes instead of computed as 1 - max p: confident inputs keep their order
    (1e-30 against 1e-20) where the difference from one would round both to zero.

    Examples
    --------
    >>> bayes_decision_from_logits([[100.0, 0.0], [50.0, 0.0]]).risk
    array([3.72007598e-44, 1.92874985e-22])
    """
    logits = check_matrix(logits, "logits").astype(np.float64)
    temperature = check_number(temperature, "temperature", 0.0, float("inf"), closed="neither")
    if _is_zero_one(_loss_matrix(loss, logits.shape[1])):
        return BayesDecision(np.argmax(logits, axis=1), one_minus_msp(logits / temperature))
    return bayes_decision(softmax(logits / temperature, axis=1), loss)


def expected_loss(posterior: Any, label: Any, loss: Any = "zero_one") -> Floats:
    """Compute the conditional risk of given answers.

    Parameters
    ----------
    posterior : array-like of shape (n, K)
        p(y | x); rows sum to one.
    label : array-like of shape (n,)
        Answers as class indices, from any classifier.
    loss : {"zero_one", "absolute"} or array-like of shape (K, K), default="zero_one"
        Loss ``l[y, y']`` of answering y' when the truth is y.

    Returns
    -------
    risk : ndarray of shape (n,)
        ``sum over y of p(y | x) l(y, label)``.

    Examples
    --------
    >>> expected_loss([[0.6, 0.4], [0.6, 0.4]], [0, 1], loss=[[0, 1], [5, 0]])
    array([2. , 0.6])
    """
    posterior = check_posterior(posterior)
    label = check_labels(label, "label", posterior.shape[1], n=len(posterior))
    matrix = _loss_matrix(loss, posterior.shape[1])
    if _is_zero_one(matrix):
        return _other_mass(posterior, label)
    return np.einsum("ik,ik->i", posterior, matrix.T[label])


def check_posterior(posterior: Any, *, tolerance: float = 1e-4) -> Floats:
    """Check class probabilities: non-negative rows that sum to one up to float32 rounding."""
    posterior = check_matrix(posterior, "posterior").astype(np.float64, copy=False)
    if posterior.shape[1] == 0:
        raise InvalidInputError("posterior must have one column per class, got none.")
    if len(posterior) == 0:
        return posterior
    if posterior.min() < 0:
        row = int(np.argmin(posterior.min(axis=1)))
        raise InvalidInputError(
            f"posterior must be non-negative, got {posterior[row].min():g} at row {row}: "
            "logits go to bayes_decision_from_logits."
        )
    total = posterior.sum(axis=1)
    worst = int(np.argmax(np.abs(total - 1.0)))
    if abs(total[worst] - 1.0) > tolerance:
        raise InvalidInputError(f"posterior rows must sum to one, got {total[worst]:g} at row {worst}.")
    return posterior / total[:, None]


def _loss_matrix(loss: Any, n_classes: int) -> Floats:
    return ScodProblem(loss=loss).loss_matrix(n_classes)


def _is_zero_one(matrix: Floats) -> bool:
    return bool(((matrix == 1.0) | np.eye(len(matrix), dtype=bool)).all())


def _other_mass(posterior: Floats, label: NDArray[np.int64]) -> Floats:
    """Sum the other classes' probabilities: no cancellation where the answer is almost certain."""
    rest = posterior.copy()
    np.put_along_axis(rest, label[:, None], 0.0, axis=1)
    return rest.sum(axis=1)
