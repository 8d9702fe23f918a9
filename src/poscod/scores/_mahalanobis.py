# SPDX-License-Identifier: BSD-3-Clause
"""Mahalanobis: distance to the nearest class mean under one shared covariance.

Convention: higher = reject sooner; the published confidence is minus this distance.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._moments import class_means, classes_of, covariance, whitening
from poscod.scores._score import Score


@final
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

    name: ClassVar[str] = "mahalanobis"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    fit_needs: ClassVar[tuple[str, ...]] = ("features",)
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Lee et al., NeurIPS 2018"

    def _fit(self, activations: Activations) -> None:
        classes = classes_of(activations, f"Fitting the score '{self.name}'")
        _, self.means_, of_row = class_means(activations.features, classes)
        self.whitening_ = whitening(covariance(activations.features, self.means_, of_row))

    def _score(self, block: Activations) -> Floats:
        return nearest_class_distance(np.asarray(block.features, dtype=np.float64), self.means_, self.whitening_)


def nearest_class_distance(features: Floats, means: Floats, whitener: Floats) -> Floats:
    """Return the smallest squared Mahalanobis distance to any class mean."""
    # Distances are taken around the centre of the means: less cancellation in |z|^2 - 2 z m + |m|^2.
    centre = means.mean(axis=0)
    points = (features - centre) @ whitener
    targets = (means - centre) @ whitener
    nearest = (points @ targets.T - 0.5 * np.einsum("cr,cr->c", targets, targets)).argmax(axis=1)
    gap = points - targets[nearest]
    return np.asarray(np.einsum("nr,nr->n", gap, gap))
