# SPDX-License-Identifier: BSD-3-Clause
"""The skeleton every ratio estimator shares: checks at the door, log space inside, an interval for the prior.

Convention: ``log_ratio`` is log g = log p_O / p_I, finite for every row; ``ratio`` is its exponential. A subclass is
final, declares its parameters as fields of a dataclass (which writes an ``__init__`` that assigns them) and writes `_fit`; it
keeps what maps rows to log g as ``model_``, or writes `_log_ratio`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from poscod._validation import Floats, check_choice, check_count, check_number
from poscod.exceptions import PoscodWarning
from poscod.ratio._prior import PRIORS, Acceptance, prior_interval, scott
from poscod.ratio._rows import Rows, as_rows, columns_of, pair_weights

if TYPE_CHECKING:
    from typing_extensions import Self

BLOCK_ROWS = 16384
SERIAL_NUMBERS = 2**24
# Beyond this a ratio is "certainly OOD" or "certainly ID": the cap keeps sums of logs finite in float64.
LOG_LIMIT = 1e6


class NoOODEvidenceWarning(PoscodWarning):
    """The mixture cannot be told from ID data: the ID-only rule is used instead of a fitted ratio."""


class UndeterminedPriorWarning(PoscodWarning):
    """The joint likelihood does not determine the prior: its estimate and the scale of the ratio mean nothing."""


class SeenByClassifierWarning(PoscodWarning):
    """The ID rows look like rows the classifier was trained on: thresholds and ratios fitted there do not hold."""


class ClassPriorShiftWarning(PoscodWarning):
    """The mix of classes differs between ID rows and traffic: part of the estimated OOD share may be that shift."""


class Ratio(BaseEstimator, ABC):  # type: ignore[misc]
    """Estimator of the likelihood ratio g = p_O / p_I from ID rows and an unlabeled mixture.

    Attributes
    ----------
    ood_prior_ : float
        Estimated share of OOD rows in the mixture.
    columns_ : dict of str to int
        Columns of features (and logits) seen at fit.
    """

    min_rows: ClassVar[int] = 2
    min_iter: ClassVar[int] = 1
    prior_ends: ClassVar[str] = "right"  # of (0, 1]: whether a given prior may be 1
    l2_words: ClassVar[tuple[str | None, ...]] = ()  # what l2 may be instead of a number
    model_: Any

    def fit(
        self, X_id: Any, X_unlabeled: Any, *, sample_weight_id: Any = None, sample_weight_unlabeled: Any = None
    ) -> Self:
        """Learn the ratio.

        Parameters
        ----------
        X_id : array-like of shape (m, d) or Activations
            ID rows the classifier was **not** trained on. float32 and memory maps are read as they are.
        X_unlabeled : array-like of shape (n, d) or Activations
            The mixture: unlabeled rows, some of them OOD.
        sample_weight_id, sample_weight_unlabeled : array-like, default=None
            Non-negative row weights. The share of unlabeled weight is pi_U.

        Returns
        -------
        self : Ratio
        """
        self._check_parameters()
        self.__dict__.pop("acceptance_", None)  # not every recipe keeps one
        rows_id = as_rows(X_id, "X_id", minimum=self.min_rows)
        rows_u = as_rows(X_unlabeled, "X_unlabeled", minimum=self.min_rows, like=columns_of(rows_id))
        weight_id, weight_u = pair_weights(sample_weight_id, sample_weight_unlabeled, len(rows_id), len(rows_u))
        # Thousands of small products: BLAS threads would wait for each other at every one, tens of times longer than
        # they compute where the machine has other work.
        numbers = (len(rows_id) + len(rows_u)) * rows_id.features.shape[1]
        with threadpool_limits(1 if numbers <= SERIAL_NUMBERS else None, user_api="blas"):
            self._fit(rows_id, rows_u, weight_id, weight_u)
        self.columns_ = columns_of(rows_id)
        self.n_features_in_ = self.columns_["features"]
        return self

    def log_ratio(self, X: Any) -> Floats:
        """Return log g(x) = log p_O(x) / p_I(x) for every row.

        Parameters
        ----------
        X : array-like of shape (n, d) or Activations
            Of the kind given to `fit`.

        Returns
        -------
        log_ratio : ndarray of shape (n,), float64
            Higher = more like OOD; always finite.
        """
        check_is_fitted(self, "columns_")
        rows = as_rows(X, "X", minimum=0, like=self.columns_)
        out = np.empty(len(rows))
        for start in range(0, len(rows), BLOCK_ROWS):
            out[start : start + BLOCK_ROWS] = self._log_ratio(rows[start : start + BLOCK_ROWS])
        return np.clip(out, -LOG_LIMIT, LOG_LIMIT)

    def ratio(self, X: Any) -> Floats:
        """Return g(x); rows far outside ID data may overflow to infinity, `log_ratio` never does.

        Parameters
        ----------
        X : array-like of shape (n, d) or Activations
            Inputs, of the kind given to `fit`.

        Returns
        -------
        ratio : ndarray of shape (n,), float64
        """
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.log_ratio(X)))

    def ood_prior_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval for the share of OOD rows in the mixture.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Probability with which the interval holds the share.

        Returns
        -------
        low, high : float

        Notes
        -----
        The lower end can be certified from data (`ood_prior_lower_bound`), the upper end cannot: OOD rows that look
        exactly like ID rows leave no trace. It assumes that the score's log-ratio is close to linear or that some
        region holds ID rows only.
        """
        check_is_fitted(self, "columns_")
        return self._interval(check_number(level, "level", 0.0, 1.0, closed="neither"))

    def ood_prior_lower_bound(self, level: float = 0.95) -> float:
        """Return a lower bound of the OOD share that needs no assumption on the OOD data.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Coverage.

        Returns
        -------
        lower : float
            Zero where the estimator keeps no out-of-sample score.
        """
        check_is_fitted(self, "columns_")
        level = check_number(level, "level", 0.0, 1.0, closed="neither")
        curve: Acceptance | None = getattr(self, "acceptance_", None)
        return 0.0 if curve is None else scott(curve, delta=1.0 - level)

    def _check_parameters(self) -> None:
        """Check hyper-parameters, each by its name."""
        given = self.get_params(deep=False)
        for name, least in (("n_folds", 2), ("max_iter", self.min_iter), ("random_state", 0)):
            if name in given:
                check_count(given[name], name, least)
        if "prior" in given:
            check_choice(given["prior"], "prior", PRIORS)
        if given.get("ood_prior") is not None:
            check_number(given["ood_prior"], "ood_prior", 0.0, 1.0, closed=self.prior_ends)
        if "l2" in given and given["l2"] not in self.l2_words:
            hint = f"Or pass {' or '.join(map(repr, self.l2_words))}." if self.l2_words else ""
            check_number(given["l2"], "l2", 0.0, np.inf, closed="left", hint=hint)

    @abstractmethod
    def _fit(self, rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> None:
        """Learn from checked rows; weights of both sides sum to one together."""

    def _log_ratio(self, rows: Rows) -> Floats:
        """Return log g of one block of rows."""
        return np.asarray(self.model_(rows))

    def _interval(self, level: float) -> tuple[float, float]:
        """Return the interval from the out-of-sample score kept at fit."""
        return prior_interval(self.acceptance_, PRIORS["mean"], self.ood_prior_, level)
