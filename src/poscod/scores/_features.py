# SPDX-License-Identifier: BSD-3-Clause
"""Scores of the features: their norms, where they lie among ID features, and how far from decision boundaries.

Convention: higher = reject sooner. Norms, GradNorm, SHE and fDBD are published as confidences and negated here, the
distances as minus a confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, pinv

from poscod._validation import Floats, check_count
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.scores import _moments as moments
from poscod.scores._score import Score
from poscod.scores._softmax import free_energy, split_softmax


class L1Norm(Score):
    """L1 norm of the features, negated.

    Notes
    -----
    ``s(x) = -sum_i |phi_i(x)|`` with phi the d features; the feature half of GradNorm.

    References
    ----------
    .. [1] R. Huang, A. Geng, Y. Li, "On the Importance of Gradients for Detecting Distributional Shifts in the
       Wild", NeurIPS 2021.

    Examples
    --------
    >>> L1Norm()(Activations(features=[[1.0, -2.0], [0.0, 0.5]]))
    array([-3. , -0.5])
    """

    name = "l1_norm"
    needs = ("features",)

    def _score(self, block: Activations) -> Floats:
        return -moments.l1_norms(block.features)


class L2Norm(Score):
    """Euclidean norm of the features, negated.

    Notes
    -----
    ``s(x) = -sqrt(sum_i phi_i(x)^2)`` with phi the d features.

    References
    ----------
    .. [1] S. Vaze, K. Han, A. Vedaldi, A. Zisserman, "Open-Set Recognition: A Good Closed-Set Classifier Is All
       You Need?", ICLR 2022.

    Examples
    --------
    >>> L2Norm()(Activations(features=[[3.0, -4.0], [0.0, 0.5]]))
    array([-5. , -0.5])
    """

    name = "l2_norm"
    needs = ("features",)

    def _score(self, block: Activations) -> Floats:
        return -np.sqrt(moments.square_norms(block.features))


class GradNorm(Score):
    """L1 norm of the gradient of KL(uniform || softmax) with respect to the last weight, negated.

    Notes
    -----
    ``s(x) = -|phi|_1 |p - 1/K|_1`` with phi the features, ``p = softmax(z)``, z the K logits. Derivation: the
    divergence is D = -(1/K) sum_y log p_y + const with z = W phi + b, so that dD/dz = p - 1/K and
    dD/dW = (p - 1/K) phi^T, whose entries have absolute sum |p - 1/K|_1 |phi|_1. No gradient is computed, and the
    bias plays no part (temperature 1, as published). OpenOOD sums instead of averaging over classes: K times this.

    References
    ----------
    .. [1] R. Huang, A. Geng, Y. Li, "On the Importance of Gradients for Detecting Distributional Shifts in the
       Wild", NeurIPS 2021.

    Examples
    --------
    >>> GradNorm()(Activations(features=[[1.0, 2.0], [1.0, 2.0]], logits=[[0.0, 0.0], [50.0, 0.0]])).round(4) + 0.0
    array([ 0., -3.])
    """

    name = "gradnorm"
    needs = ("features", "logits")

    def _score(self, block: Activations) -> Floats:
        probability = np.exp(split_softmax(block.logits).log_p)
        return -moments.l1_norms(block.features) * moments.l1_norms(probability - 1.0 / block.n_classes)


class Mahalanobis(Score):
    """Squared Mahalanobis distance to the nearest class mean, with a tied covariance.

    Attributes
    ----------
    means_ : ndarray of shape (C, d)
        Mean features of the classes that have rows.
    whitening_ : ndarray of shape (d, rank)
        V with V V^T the pseudo-inverse of the tied covariance.

    Notes
    -----
    ``s(x) = min_c (phi - mu_c)^T P (phi - mu_c)`` with phi the d features of x, mu_c the mean of class c over the
    ID rows, and P the pseudo-inverse of the covariance around the own class mean, ``(1/n) sum_i (phi_i - mu_{y_i})
    (phi_i - mu_{y_i})^T``. Classes are the labels of the ID rows; without labels, the predicted classes.

    References
    ----------
    .. [1] K. Lee, K. Lee, H. Lee, J. Shin, "A Simple Unified Framework for Detecting Out-of-Distribution Samples
       and Adversarial Attacks", NeurIPS 2018 (penultimate layer, no input perturbation).

    Examples
    --------
    >>> train = Activations(features=[[0.0], [2.0], [10.0], [12.0]], labels=[0, 0, 1, 1])
    >>> Mahalanobis().fit(train)(Activations(features=[[1.0], [6.0]]))
    array([ 0., 25.])
    """

    name = "mahalanobis"
    needs = fit_needs = ("features",)

    def _fit(self, activations: Activations) -> None:
        classes = moments.classes_of(activations, f"Fitting the score '{self.name}'")
        _, self.means_, of_row = moments.class_means(activations.features, classes)
        self.whitening_ = moments.whitening(moments.covariance(activations.features, self.means_, of_row))

    def _score(self, block: Activations) -> Floats:
        return nearest_class_distance(block, self.means_, self.whitening_)


class RelativeMahalanobis(Mahalanobis):
    """Squared Mahalanobis distance to the nearest class, minus the one to the background.

    Attributes
    ----------
    means_ : ndarray of shape (C, d)
        Mean features of the classes that have rows.
    whitening_ : ndarray of shape (d, rank)
        V with V V^T the pseudo-inverse of the tied covariance.
    background_mean_ : ndarray of shape (1, d)
        Mean of all ID rows.
    background_whitening_ : ndarray of shape (d, rank)
        The same as `whitening_` for the covariance of all ID rows.

    Notes
    -----
    ``s(x) = min_c M_c(x) - M_0(x)``, with M_c the squared Mahalanobis distance to class c (tied covariance) and
    M_0 the one to the mean of all ID rows under their overall covariance. Classes are the labels of the ID rows;
    without labels, the predicted classes.

    References
    ----------
    .. [1] J. Ren et al., "A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection", 2021,
       arXiv:2106.09022.

    Examples
    --------
    >>> train = Activations(features=[[0.0], [2.0], [10.0], [12.0]], labels=[0, 0, 1, 1])
    >>> RelativeMahalanobis().fit(train)(Activations(features=[[1.0], [6.0]])).round(4)
    array([-0.9615, 25.    ])
    """

    name = "relative_mahalanobis"

    def _fit(self, activations: Activations) -> None:
        super()._fit(activations)
        overall = moments.mean(activations.features)
        self.background_mean_ = overall[None, :]
        self.background_whitening_ = moments.whitening(moments.covariance(activations.features, overall))

    def _score(self, block: Activations) -> Floats:
        background = nearest_class_distance(block, self.background_mean_, self.background_whitening_)
        return super()._score(block) - background


def nearest_class_distance(block: Activations, means: Floats, whitener: Floats) -> Floats:
    """Return the smallest squared Mahalanobis distance to any class mean."""
    centre = means.mean(axis=0)  # distances are taken around it: less cancellation
    points = (np.asarray(block.features, dtype=np.float64) - centre) @ whitener
    return np.asarray(np.maximum(moments.squared_distances(points, (means - centre) @ whitener).min(axis=1), 0.0))


@dataclass(eq=False, repr=False, kw_only=True)
class _Subspace(Score):
    """A score of the part of the features that lies outside the principal subspace of ID features."""

    dim: int | None = None

    def _check_parameters(self) -> None:
        if self.dim is not None:
            check_count(self.dim, "dim")

    def _fit(self, activations: Activations) -> None:
        d = activations.n_features
        dim = published_dim(d) if self.dim is None else self.dim
        if dim >= d:
            raise InvalidInputError(f"dim must be below the number of features ({d}), got {dim}.")
        weight, bias = (np.asarray(part, dtype=np.float64) for part in (activations.weight, activations.bias))
        self.origin_: Floats = -np.asarray(pinv(weight), dtype=np.float64) @ bias
        _, vectors = eigh(moments.covariance(activations.features, self.origin_))  # eigenvalues in increasing order
        self.directions_ = np.ascontiguousarray(vectors[:, : d - dim])

    def _outside(self, features: NDArray[Any]) -> Floats:
        """Return the length of the features along the left-over directions."""
        centred = np.asarray(features, dtype=np.float64) - self.origin_
        return np.asarray(np.sqrt(moments.square_norms(centred @ self.directions_)))


def published_dim(n_features: int) -> int:
    """Return the dimension of the principal subspace by the rule of the authors of ViM, extended to small layers."""
    return 1000 if n_features >= 2048 else 512 if n_features >= 768 else n_features // 2


class Residual(_Subspace):
    """Norm of the features outside the principal subspace of ID data.

    Parameters
    ----------
    dim : int, default=None
        Dimension D of the principal subspace; None is the published rule 1000 for d >= 2048, 512 for d >= 768,
        else d / 2, with d the number of features.

    Attributes
    ----------
    origin_ : ndarray of shape (d,)
        The point o whose logits are zero (in the least-squares sense).
    directions_ : ndarray of shape (d, d - D)
        Directions R outside the principal subspace.

    Notes
    -----
    ``s(x) = |R^T (phi - o)|`` with phi the features, ``o = -pinv(W) b``, W and b the last layer, and R the
    eigenvectors of ``(1/n) sum_i (phi_i - o)(phi_i - o)^T`` over ID rows that belong to all but the D largest
    eigenvalues.

    References
    ----------
    .. [1] H. Wang, Z. Li, L. Feng, W. Zhang, "ViM: Out-of-Distribution with Virtual-logit Matching", CVPR 2022.

    Examples
    --------
    >>> head = {"weight": [[1.0, 0.0], [-1.0, 0.0]], "bias": [0.0, 0.0]}
    >>> train = Activations(features=[[4.0, 0.1], [-4.0, 0.1], [3.0, -0.1]], **head)
    >>> Residual().fit(train)(Activations(features=[[5.0, 0.0], [0.0, 2.0]])).round(2)
    array([0.04, 2.  ])
    """

    name = "residual"
    needs = ("features",)
    fit_needs = ("features", "weight", "bias")

    def _score(self, block: Activations) -> Floats:
        return self._outside(block.features)


class ViM(_Subspace):
    """Virtual-logit matching.

    Parameters
    ----------
    dim : int, default=None
        Dimension D of the principal subspace; None is the published rule 1000 for d >= 2048, 512 for d >= 768,
        else d / 2, with d the number of features.

    Attributes
    ----------
    origin_ : ndarray of shape (d,)
        The point o whose logits are zero (in the least-squares sense).
    directions_ : ndarray of shape (d, d - D)
        Directions R outside the principal subspace.
    scale_ : float
        Factor a that gives the virtual logit the mean size of the largest logit on ID rows.

    Notes
    -----
    ``s(x) = a |R^T (phi - o)| - log sum_y exp(z_y)`` with phi the features, z the K logits, o and R as in
    `Residual`, and ``a = mean_i max_y z_y(x_i) / mean_i |R^T (phi_i - o)|`` over ID rows. It orders rows as the
    softmax probability of the virtual logit ``a |R^T (phi - o)|`` does.

    References
    ----------
    .. [1] H. Wang, Z. Li, L. Feng, W. Zhang, "ViM: Out-of-Distribution with Virtual-logit Matching", CVPR 2022.

    Examples
    --------
    >>> head = {"weight": [[1.0, 0.0], [-1.0, 0.0]], "bias": [0.0, 0.0]}
    >>> train = Activations([[4.0, 0.1], [-4.0, 0.1], [3.0, -0.1]], [[4.0, -4.0], [-4.0, 4.0], [3.0, -3.0]], **head)
    >>> test = Activations([[5.0, 0.0], [0.0, 2.0]], [[5.0, -5.0], [0.0, 0.0]])
    >>> ViM().fit(train)(test).round(1)
    array([-3.6, 78.4])
    """

    name = "vim"
    needs = ("features", "logits")
    fit_needs = ("features", "logits", "weight", "bias")

    def _fit(self, activations: Activations) -> None:
        super()._fit(activations)
        total = sum(float(self._outside(block).sum()) for _, block in moments.blocks(activations.features))
        if total == 0.0:
            raise InvalidInputError(
                "Fitting the score 'vim' needs ID features with a part outside the principal subspace, got none: "
                "lower dim."
            )
        self.scale_ = float(activations.logits.max(axis=1).sum(dtype=np.float64)) / total

    def _score(self, block: Activations) -> Floats:
        return self.scale_ * self._outside(block.features) + free_energy(block.logits)


class SHE(Score):
    """Simplified Hopfield energy.

    Attributes
    ----------
    patterns_ : ndarray of shape (K, d)
        Mean features of the correctly classified ID rows of each class; zeros for a class without such a row.

    Notes
    -----
    ``s(x) = -phi^T m_c`` with phi the d features of x, c its predicted class and m_c the stored pattern of c: the mean
    features of ID rows that belong to c and are predicted as c (without labels: that are predicted as c). A class
    that was never seen right has the pattern 0, hence the score 0.

    References
    ----------
    .. [1] J. Zhang et al., "Out-of-Distribution Detection Based on In-Distribution Data Patterns Memorization with
       Modern Hopfield Energy", ICLR 2023.

    Examples
    --------
    >>> train = Activations([[2.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]], labels=[0, 1])
    >>> SHE().fit(train)(Activations([[1.0, 1.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]]))
    array([-2., -6.])
    """

    name = "she"
    needs = fit_needs = ("features", "logits")

    def _fit(self, activations: Activations) -> None:
        classes = moments.classes_of(activations, f"Fitting the score '{self.name}'")
        right = np.where(classes == activations.logits.argmax(axis=1), classes, -1)
        if (right < 0).all():
            raise InvalidInputError(
                f"Fitting the score '{self.name}' needs rows that are classified correctly, got none."
            )
        present, means, _ = moments.class_means(activations.features, right)
        self.patterns_ = np.zeros((activations.n_classes, activations.n_features))
        self.patterns_[present] = means

    def _score(self, block: Activations) -> Floats:
        predicted = block.logits.argmax(axis=1)
        features = np.asarray(block.features, dtype=np.float64)
        return np.asarray(-np.einsum("nd,nd->n", features, self.patterns_[predicted]))


class FDBD(Score):
    """Fast decision-boundary distance.

    Attributes
    ----------
    mean_ : ndarray of shape (d,)
        Mean features of the ID rows.
    gap_ : ndarray of shape (K, K)
        |w_c - w_y| between the rows of the last weight.

    Notes
    -----
    ``s(x) = -(1/(K - 1)) sum_{y != c} (z_c - z_y) / (|w_c - w_y| |phi - mu|)`` with z the K logits, c the predicted
    class, w the rows of the last weight, phi the d features of x and mu their mean over ID rows. The fraction
    (z_c - z_y) / |w_c - w_y| is the distance of phi to the boundary between c and y. A class with the same weights
    as c has no boundary and is left out of the sum.

    References
    ----------
    .. [1] L. Liu, Y. Qin, "Fast Decision Boundary based Out-of-Distribution Detector", ICML 2024.

    Examples
    --------
    >>> head = {"weight": [[1.0, 0.0], [0.0, 1.0]]}
    >>> score = FDBD().fit(Activations([[1.0, 1.0]], [[1.0, 1.0]], **head))
    >>> score(Activations([[2.0, 1.0], [4.0, 4.0]], [[2.0, 1.0], [4.0, 4.0]])).round(4) + 0.0
    array([-0.7071,  0.    ])
    """

    name = "fdbd"
    needs = ("features", "logits")
    fit_needs = ("features", "logits", "weight")

    def _fit(self, activations: Activations) -> None:
        weight = np.asarray(activations.weight, dtype=np.float64)
        if len(weight) < 2:
            raise InvalidInputError("Fitting the score 'fdbd' needs at least two classes, got one.")
        self.mean_ = moments.mean(activations.features)
        # One class at a time: a (K, K, d) array of differences would not fit.
        self.gap_ = np.stack([np.sqrt(moments.square_norms(weight - row)) for row in weight])

    def _score(self, block: Activations) -> Floats:
        logits = np.asarray(block.logits, dtype=np.float64)
        gap = self.gap_[logits.argmax(axis=1)]
        lead = logits.max(axis=1, keepdims=True) - logits
        reach = np.where(gap > 0, lead, 0.0) / np.where(gap > 0, gap, 1.0)
        norm = np.sqrt(moments.square_norms(np.asarray(block.features, dtype=np.float64) - self.mean_))
        # A row at the very centre is as much inside as can be: large, yet finite.
        return np.asarray(-reach.sum(axis=1) / (logits.shape[1] - 1) / np.maximum(norm, 1e-150))
