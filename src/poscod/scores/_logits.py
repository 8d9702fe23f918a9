# SPDX-License-Identifier: BSD-3-Clause
"""Scores of the logits alone: MSP, MLS, energy, ODIN, entropy, DOCTOR, GEN, KL matching, margin.

Convention: higher = reject sooner. MSP, MLS, GEN and the margin are published as confidences and turned around here;
ODIN is its temperature part, because the perturbation of the input needs the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from poscod._validation import Floats, check_count, check_number
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores._moments import blocks
from poscod.scores._score import Score
from poscod.scores._softmax import entropy_of, free_energy, one_minus_top, split_softmax, without_top


class MSP(Score):
    """Maximum softmax probability, as an uncertainty.

    Notes
    -----
    ``s(x) = 1 - max_y p(y | x)`` with ``p = softmax(z)`` and z the K logits. Computed as S / (1 + S), where S is
    the sum of exp(z_j - z_max) over the classes j other than the predicted one, so that confident rows keep their
    order instead of all becoming 0.

    References
    ----------
    .. [1] D. Hendrycks, K. Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in
       Neural Networks", ICLR 2017.

    Examples
    --------
    >>> MSP()(Activations(logits=[[0.0, 0.0], [50.0, 0.0]]))
    array([5.00000000e-01, 1.92874985e-22])
    """

    name = "msp"

    def _score(self, block: Activations) -> Floats:
        return one_minus_top(block.logits)


def one_minus_msp(logits: ArrayLike) -> Floats:
    """Return one minus the largest softmax probability of each row, without cancellation.

    Parameters
    ----------
    logits : array-like of shape (n, K)
        Finite logits, K >= 1.

    Returns
    -------
    uncertainty : ndarray of shape (n,), float64
        Between 0 and 1 - 1/K; it reaches 0 only where the number itself is below the smallest float64.

    Notes
    -----
    With z_max the largest logit and S the sum of exp(z_j - z_max) over the other classes, the result is
    S / (1 + S). Subtracting the probability from 1 would give 0 as soon as S is below 1e-16.

    Examples
    --------
    >>> one_minus_msp([[100.0, 0.0], [1.0, 1.0]])
    array([3.72007598e-44, 5.00000000e-01])
    """
    return MSP()(Activations(logits=logits))


class MLS(Score):
    """Maximum logit score, negated.

    Notes
    -----
    ``s(x) = -max_y z_y`` with z the K logits.

    References
    ----------
    .. [1] D. Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", ICML 2022.

    Examples
    --------
    >>> MLS()(Activations(logits=[[0.0, 3.0], [5.0, 0.0]]))
    array([-3., -5.])
    """

    name = "mls"

    def _score(self, block: Activations) -> Floats:
        return np.asarray(-block.logits.max(axis=1), dtype=np.float64)


@dataclass(eq=False, repr=False, kw_only=True)
class Energy(Score):
    """Free energy of the logits.

    Parameters
    ----------
    temperature : float > 0, default=1.0
        Temperature T.

    Notes
    -----
    ``s(x) = -T log sum_y exp(z_y / T)`` with z the K logits and T the temperature.

    References
    ----------
    .. [1] W. Liu, X. Wang, J. Owens, Y. Li, "Energy-based Out-of-distribution Detection", NeurIPS 2020.

    Examples
    --------
    >>> Energy()(Activations(logits=[[0.0, 0.0], [5.0, 0.0]])).round(4)
    array([-0.6931, -5.0067])
    """

    name = "ebo"
    temperature: float = 1.0

    def _check_parameters(self) -> None:
        check_number(self.temperature, "temperature", 0.0, np.inf, closed="neither")

    def _score(self, block: Activations) -> Floats:
        return free_energy(block.logits, self.temperature)


@dataclass(eq=False, repr=False, kw_only=True)
class ODIN(Score):
    """Temperature-scaled softmax, without the input perturbation.

    Parameters
    ----------
    temperature : float > 0, default=1000.0
        Temperature T.

    Notes
    -----
    ``s(x) = 1 - max_y softmax(z / T)_y`` with z the K logits. At T = 1000 every row lies close to 1 - 1/K; the
    order stays exact because logits are shifted by their largest before they are divided, in float64.

    References
    ----------
    .. [1] S. Liang, Y. Li, R. Srikant, "Enhancing the Reliability of Out-of-distribution Image Detection in
       Neural Networks", ICLR 2018.

    Examples
    --------
    >>> ODIN()(Activations(logits=[[0.0, 0.0], [5.0, 0.0]])).round(5)
    array([0.5    , 0.49875])
    """

    name = "odin"
    temperature: float = 1000.0

    def _check_parameters(self) -> None:
        check_number(self.temperature, "temperature", 0.0, np.inf, closed="neither")

    def _score(self, block: Activations) -> Floats:
        return one_minus_top(block.logits, self.temperature)


class Entropy(Score):
    """Shannon entropy of the softmax, in nats.

    Notes
    -----
    ``s(x) = -sum_y p_y log p_y`` with ``p = softmax(z)`` and z the K logits. No term is negative, so that
    confident rows keep their order.

    References
    ----------
    .. [1] C. E. Shannon, "A Mathematical Theory of Communication", 1948; as a rejection score e.g. in
       B. Lakshminarayanan, A. Pritzel, C. Blundell, "Simple and Scalable Predictive Uncertainty Estimation using
       Deep Ensembles", NeurIPS 2017.

    Examples
    --------
    >>> Entropy()(Activations(logits=[[0.0, 0.0], [5.0, 0.0]])).round(4)
    array([0.6931, 0.0402])
    """

    name = "entropy"

    def _score(self, block: Activations) -> Floats:
        return entropy_of(split_softmax(block.logits).log_p)


class Doctor(Score):
    """The D_alpha statistic of DOCTOR.

    Notes
    -----
    ``s(x) = (1 - q) / q`` with ``q = sum_y p_y^2``, ``p = softmax(z)`` and z the K logits (temperature 1, no input
    perturbation). 1 - q is summed as p_y (1 - p_y), so that confident rows keep their order. D_beta,
    (1 - max p) / max p, orders rows exactly as MSP and has no score of its own.

    References
    ----------
    .. [1] F. Granese, M. Romanelli, D. Gorla, C. Palamidessi, P. Piantanida, "DOCTOR: A Simple Method for Detecting
       Misclassification Errors", NeurIPS 2021.

    Examples
    --------
    >>> Doctor()(Activations(logits=[[0.0, 0.0], [40.0, 0.0]]))
    array([1.00000000e+00, 8.49670851e-18])
    """

    name = "doctor"

    def _score(self, block: Activations) -> Floats:
        softmax = split_softmax(block.logits)
        p = np.exp(softmax.log_p)
        other = 1.0 - p
        other[np.arange(len(p)), softmax.top] = np.exp(softmax.log_one_minus_top)
        return np.asarray(np.einsum("nk,nk->n", p, other) / np.einsum("nk,nk->n", p, p))


@dataclass(eq=False, repr=False, kw_only=True)
class GEN(Score):
    """Generalised entropy.

    Parameters
    ----------
    gamma : float in (0, 1), default=0.1
        Exponent; the smaller, the more a small probability counts.
    n_largest : int, default=100
        Number M of largest probabilities that count.

    Notes
    -----
    ``s(x) = sum_j p_(j)^gamma (1 - p_(j))^gamma`` over the min(M, K) largest entries p_(j) of ``p = softmax(z)``,
    z the K logits. Taken in log space: a probability below the smallest float64 still counts.

    References
    ----------
    .. [1] X. Liu, Y. Lochman, C. Zach, "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection",
       CVPR 2023.

    Examples
    --------
    >>> GEN()(Activations(logits=[[0.0, 0.0], [40.0, 0.0]])).round(4)
    array([1.7411, 0.0366])
    """

    name = "gen"
    gamma: float = 0.1
    n_largest: int = 100

    def _check_parameters(self) -> None:
        check_number(self.gamma, "gamma", 0.0, 1.0, closed="neither")
        check_count(self.n_largest, "n_largest")

    def _score(self, block: Activations) -> Floats:
        softmax = split_softmax(block.logits)
        first = np.exp(self.gamma * (softmax.log_p.max(axis=1) + softmax.log_one_minus_top))
        log_p = without_top(softmax.log_p)  # the largest has its own term, computed without cancellation
        others = min(self.n_largest, block.n_classes) - 1
        if others == 0:
            return np.asarray(first)
        largest = np.partition(log_p, block.n_classes - others, axis=1)[:, block.n_classes - others :]
        terms = np.exp(self.gamma * (largest + np.log1p(-np.exp(largest))))
        return np.asarray(first + terms.sum(axis=1))


class KLMatching(Score):
    """Smallest KL divergence between the softmax and the class templates.

    Attributes
    ----------
    log_templates_ : ndarray of shape (C, K)
        Logarithm of the mean softmax of the ID rows predicted as each class, for classes that were predicted.

    Notes
    -----
    ``s(x) = min_c sum_y p_y log(p_y / q_cy)`` with ``p = softmax(z)``, z the K logits, and q_c the mean of p over
    the ID rows whose predicted class is c. Labels are not used.

    References
    ----------
    .. [1] D. Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", ICML 2022.

    Examples
    --------
    >>> score = KLMatching().fit(Activations(logits=[[2.0, 0.0], [0.0, 2.0]]))
    >>> score(Activations(logits=[[2.0, 0.0], [0.0, 0.0]])).round(4) + 0.0
    array([0.    , 0.4338])
    """

    name = "kl_matching"
    needs = fit_needs = ("logits",)

    def _fit(self, activations: Activations) -> None:
        n_classes = activations.n_classes
        totals, counts = np.zeros((n_classes, n_classes)), np.zeros(n_classes)
        for _, block in blocks(activations.logits):
            softmax = split_softmax(block)
            member = np.zeros((n_classes, len(block)))
            member[softmax.top, np.arange(len(block))] = 1.0
            totals += member @ np.exp(softmax.log_p)
            counts += member.sum(axis=1)
        seen = counts > 0
        # An entry that underflowed is tiny, not impossible: its logarithm stays finite.
        templates = np.maximum(totals[seen] / counts[seen, None], np.finfo(np.float64).tiny)
        self.log_templates_ = np.log(templates)

    def _score(self, block: Activations) -> Floats:
        log_p = split_softmax(block.logits).log_p
        cross = np.exp(log_p) @ self.log_templates_.T
        return np.asarray(np.maximum(-entropy_of(log_p) - cross.max(axis=1), 0.0))


class Margin(Score):
    """Gap between the largest and the second largest logit, negated.

    Notes
    -----
    ``s(x) = -(z_(1) - z_(2))`` with z_(1) >= z_(2) the two largest of the K >= 2 logits.

    References
    ----------
    .. [1] T. Scheffer, C. Decomain, S. Wrobel, "Active Hidden Markov Models for Information Extraction", IDA 2001.

    Examples
    --------
    >>> Margin()(Activations(logits=[[1.0, 4.0, 2.0], [5.0, 0.0, 0.0]]))
    array([-2., -5.])
    """

    name = "margin"

    def _score(self, block: Activations) -> Floats:
        if block.n_classes < 2:
            raise InvalidInputError("Score 'margin' needs logits of at least two classes, got one.")
        return np.asarray(without_top(block.logits).max(axis=1) - block.logits.max(axis=1), dtype=np.float64)
