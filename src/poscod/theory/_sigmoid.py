# SPDX-License-Identifier: BSD-3-Clause
"""Theorem 4: for Gaussians with one covariance the corrected sigmoid is the exact posterior of the source.

Convention: z = I marks a row of the ID sample and z = U a row of the unlabeled mixture, whose OOD share is pi;
pi_u = P(z = U). Signs follow errata 1: theta points from ID to OOD, so that theta^T [x; 1] grows with log g.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve

from poscod._validation import Floats, check_matrix, check_number, check_vector
from poscod.exceptions import InvalidInputError
from poscod.theory._gaussian import Mixture


class SigmoidParameters(NamedTuple):
    """Parameters of the corrected sigmoid.

    Attributes
    ----------
    theta : ndarray of shape (d + 1,)
        Coefficients, the intercept last.
    a : float
        Additive term, pi_u (1 - pi) / (1 - pi_u).
    """

    theta: Floats
    a: float


def corrected_sigmoid_parameters(
    mean_id: ArrayLike, mean_ood: ArrayLike, covariance: Any, pi: float, pi_u: float
) -> SigmoidParameters:
    """Return the parameters for which the corrected sigmoid is exact.

    Parameters
    ----------
    mean_id, mean_ood : array-like of shape (d,)
        Means of ID and OOD.
    covariance : float or array-like of shape (d, d)
        Covariance of both.
    pi : float in (0, 1]
        OOD prior of the unlabeled mixture.
    pi_u : float in (0, 1)
        Share of unlabeled rows among all rows.

    Returns
    -------
    parameters : SigmoidParameters

    Notes
    -----
    With C the covariance and m_I, m_O the means::

        theta = [C^-1 (m_O - m_I);  log(pi_u pi / (1 - pi_u)) + (m_I^T C^-1 m_I - m_O^T C^-1 m_O) / 2]
        a     = pi_u (1 - pi) / (1 - pi_u)

    The printed theorem has the signs of both Gaussian terms reversed (docs/theory.md, errata).

    Examples
    --------
    >>> theta, a = corrected_sigmoid_parameters([0.0], [2.0], 1.0, pi=0.25, pi_u=0.8)
    >>> theta, round(a, 6)
    (array([ 2., -2.]), 3.0)
    """
    pi = check_number(pi, "pi", 0.0, 1.0, closed="right")
    pi_u = check_number(pi_u, "pi_u", 0.0, 1.0, closed="neither")
    m_id = check_vector(mean_id, "mean_id", allow_inf=False)
    m_ood = check_vector(mean_ood, "mean_ood", n=len(m_id), like="mean_id", allow_inf=False)
    factor = Mixture.build(m_id[None, :], covariance, None, "id").cholesky[0]
    direction = np.asarray(cho_solve((factor, True), m_ood - m_id), dtype=np.float64)
    # m_I^T C^-1 m_I - m_O^T C^-1 m_O as one product: no difference of two large squares.
    constant = -0.5 * float(direction @ (m_ood + m_id))
    intercept = float(np.log(pi) + np.log(pi_u) - np.log1p(-pi_u)) + constant
    return SigmoidParameters(np.append(direction, intercept), pi_u * (1.0 - pi) / (1.0 - pi_u))


def corrected_sigmoid(X: ArrayLike, theta: ArrayLike, a: float) -> Floats:
    """Return the corrected sigmoid p(z = I | x; theta, a).

    Parameters
    ----------
    X : array-like of shape (n, d)
        Inputs.
    theta : array-like of shape (d + 1,)
        Coefficients, the intercept last.
    a : float >= 0
        Additive term.

    Returns
    -------
    posterior : ndarray of shape (n,)

    Notes
    -----
    ``1 / (1 + a + exp(u))`` with ``u = theta^T [x; 1]``, through logarithms so that a large u does not overflow.

    Examples
    --------
    >>> corrected_sigmoid([[0.0], [1000.0]], theta=[1.0, 0.0], a=2.0)
    array([0.25, 0.  ])
    """
    coefficients = check_vector(theta, "theta", allow_inf=False)
    inputs = check_matrix(X, "X", columns=len(coefficients) - 1)
    a = check_number(a, "a", 0.0, float("inf"), closed="left")
    u = inputs @ coefficients[:-1] + coefficients[-1]
    return np.asarray(np.exp(-np.logaddexp(np.log1p(a), u)), dtype=np.float64)


def source_posterior(log_density_id: ArrayLike, log_density_ood: ArrayLike, pi: float, pi_u: float) -> Floats:
    """Return p(z = I | x), the probability that a row came from the ID sample, from the two densities.

    Parameters
    ----------
    log_density_id, log_density_ood : array-like of shape (n,)
        log p_I and log p_O of each row.
    pi : float in [0, 1]
        OOD prior of the unlabeled mixture.
    pi_u : float in (0, 1)
        Share of unlabeled rows among all rows.

    Returns
    -------
    posterior : ndarray of shape (n,)

    Notes
    -----
    ``(1 - pi_u) p_I / ((1 - pi_u) p_I + pi_u (pi p_O + (1 - pi) p_I))`` for any two densities.

    Examples
    --------
    >>> source_posterior([0.0], [0.0], pi=0.3, pi_u=0.75)
    array([0.25])
    """
    pi = check_number(pi, "pi", 0.0, 1.0)
    pi_u = check_number(pi_u, "pi_u", 0.0, 1.0, closed="neither")
    log_id = check_vector(log_density_id, "log_density_id")
    log_ood = check_vector(log_density_ood, "log_density_ood", n=len(log_id), like="log_density_id")
    with np.errstate(divide="ignore"):
        log_u = np.logaddexp(np.log(pi) + log_ood, np.log1p(-pi) + log_id) + np.log(pi_u)
    log_i = np.log1p(-pi_u) + log_id
    return np.asarray(np.exp(log_i - np.logaddexp(log_i, log_u)), dtype=np.float64)


def prior_from_a(a: float, pi_u: float) -> float:
    """Return the OOD prior pi that belongs to the additive term of a corrected sigmoid.

    Parameters
    ----------
    a : float
        Additive term, at least 0 and below pi_u / (1 - pi_u).
    pi_u : float in (0, 1)
        Share of unlabeled rows among all rows.

    Returns
    -------
    pi : float

    Notes
    -----
    ``pi = 1 + a - a / pi_u = 1 - a (1 - pi_u) / pi_u``. Outside the range of a, pi would not be a positive
    share and the ratio computed with it would change its sign (errata 3), so this is refused.

    Examples
    --------
    >>> round(prior_from_a(3.0, pi_u=0.8), 12)
    0.25
    """
    pi_u = check_number(pi_u, "pi_u", 0.0, 1.0, closed="neither")
    a = check_number(a, "a", 0.0, float("inf"), closed="left")
    pi = 1.0 - a * (1.0 - pi_u) / pi_u
    if pi <= 0.0:
        raise InvalidInputError(
            f"a must be below pi_u / (1 - pi_u) = {pi_u / (1.0 - pi_u):g}, got {a:g}: no OOD prior in (0, 1] gives it."
        )
    return pi
