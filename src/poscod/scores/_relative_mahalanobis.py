# SPDX-License-Identifier: BSD-3-Clause
"""Relative Mahalanobis: the class distance minus the distance to all ID data as one Gaussian.

Convention: higher = reject sooner; the published confidence is minus this difference.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._mahalanobis import nearest_class_distance
from poscod.scores._moments import class_means, classes_of, covariance, mean, whitening
from poscod.scores._score import Score


@final
class RelativeMahalanobis(Score):
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

    name: ClassVar[str] = "relative_mahalanobis"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    fit_needs: ClassVar[tuple[str, ...]] = ("features",)
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Ren et al., arXiv:2106.09022"

    def _fit(self, activations: Activations) -> None:
        features = activations.features
        _, self.means_, of_row = class_means(features, classes_of(activations, f"Fitting the score '{self.name}'"))
        self.whitening_ = whitening(covariance(features, self.means_, of_row))
        overall = mean(features)
        self.background_mean_ = overall[None, :]
        self.background_whitening_ = whitening(covariance(features, overall))

    def _score(self, block: Activations) -> Floats:
        features = np.asarray(block.features, dtype=np.float64)
        background = nearest_class_distance(features, self.background_mean_, self.background_whitening_)
        return nearest_class_distance(features, self.means_, self.whitening_) - background
