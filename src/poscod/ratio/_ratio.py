# SPDX-License-Identifier: BSD-3-Clause
"""The skeleton every ratio estimator shares: checks at the door, log space inside, an interval for the prior.

Convention: ``log_ratio`` is log g = log p_O / p_I, finite for every row; ``ratio`` is its exponential. A subclass is
final, declares its parameters as fields of a dataclass (which writes an ``__init__`` that assigns them) and writes `_fit`; it
keeps what maps rows to log g as ``model_``, or writes `_log_ratio`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from poscod._threads import few_threads
from poscod._validation import Floats, check_choice, check_count, check_matrix, check_number, check_weight, refusal
from poscod.activations import Activations
from poscod.exceptions import PoscodWarning
from poscod.ratio._prior import PRIORS, Acceptance, prior_interval, scott
from poscod.ratio._rows import Rows, as_rows, columns_of, group_keys, pair_weights

if TYPE_CHECKING:
    from typing_extensions import Self

BLOCK_ROWS = 16384
# Beyond this a ratio is "certainly OOD" or "certainly ID": the cap keeps sums of logs finite in float64.
LOG_LIMIT = 1e6


# The fold of each row of both sides.
Folds: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


class NoOODEvidenceWarning(PoscodWarning):
    """No test told the mixture from ID data: the ID-only rule is used instead of a fitted ratio."""


class UndeterminedPriorWarning(PoscodWarning):
    """The joint likelihood does not determine the prior: its estimate and the scale of the ratio mean nothing."""


class SeenByClassifierWarning(PoscodWarning):
    """The ID rows look like rows the classifier was trained on: thresholds and ratios fitted there do not hold."""


class Refitted(NamedTuple):
    """A ratio that was learned again, and log g of the rows of both sides by parts that have not seen them."""

    ratio: Any
    log_ratio: tuple[Floats, Floats]


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
    moved_: bool = (
        False  # whether known inputs of the mixture seem to have moved: nothing about OOD rows is certain then
    )
    model_: Any

    def fit(
        self,
        X_id: Any,
        X_unlabeled: Any,
        *,
        sample_weight_id: Any = None,
        sample_weight_unlabeled: Any = None,
        groups_id: Any = None,
        groups_unlabeled: Any = None,
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
        groups_id, groups_unlabeled : array-like, default=None
            Group of each row: rows of a group are never in two folds, and count as one where errors are counted.

        Returns
        -------
        self : Ratio
        """
        groups = groups_id, groups_unlabeled
        self._learn(X_id, X_unlabeled, sample_weight_id, sample_weight_unlabeled, groups)
        return self

    @property
    def cross_fits(self) -> bool:
        """Whether one fit with given folds scores every row out of sample: `_fit` then takes ``folds`` and returns log g of both sides."""
        return False

    def cross_fit(
        self,
        X_id: Any,
        X_unlabeled: Any,
        fold_id: Any,
        fold_unlabeled: Any,
        *,
        sample_weight_id: Any = None,
        sample_weight_unlabeled: Any = None,
        groups_id: Any = None,
        groups_unlabeled: Any = None,
        deciding: bool = False,
    ) -> tuple[Floats, Floats]:
        """Learn the ratio from all rows, and score each of them by parts that saw no row of its fold.

        Parameters
        ----------
        X_id, X_unlabeled : array-like or Activations
            As in `fit`. Logits of a fold, on both sides, come from one classifier that has seen no row of it.
        fold_id, fold_unlabeled : array-like of int
            Fold of every row, counted from 0 on both sides together; equal rows should share one.
        sample_weight_id, sample_weight_unlabeled, groups_id, groups_unlabeled : array-like, default=None
            As in `fit`.
        deciding : bool, default=False
            As in `log_ratio`.

        Returns
        -------
        log_ratio_id, log_ratio_unlabeled : ndarray, float64
            log g of the rows of both sides.
        """
        if self.cross_fits:
            folds = check_folds(fold_id, fold_unlabeled, len(X_id), len(X_unlabeled))
            groups = groups_id, groups_unlabeled
            own: tuple[Floats, Floats] = self._learn(
                X_id, X_unlabeled, sample_weight_id, sample_weight_unlabeled, groups, folds=folds, deciding=deciding
            )
            return own
        return cross_fit(
            self,
            X_id,
            X_unlabeled,
            fold_id,
            fold_unlabeled,
            sample_weight_id=sample_weight_id,
            sample_weight_unlabeled=sample_weight_unlabeled,
            groups_id=groups_id,
            groups_unlabeled=groups_unlabeled,
        )

    def with_verdicts(
        self,
        X_id: Any,
        X_unlabeled: Any,
        folds: Folds | None,
        said: NDArray[np.int8],
        pi: float,
        weights: tuple[Any, Any] = (None, None),
        groups: tuple[Any, Any] = (None, None),
    ) -> Refitted | None:
        """Learn again, like `cross_fit` and as it decides, from traffic some rows of which people have looked at; None where the likelihood has no place for that.

        Parameters
        ----------
        X_id, X_unlabeled : Activations
            As in `cross_fit`.
        folds : tuple of ndarray of int, or None
            Folds of both sides; None deals them out by content.
        said : ndarray of int8
            What people said of each unlabeled row: 1 OOD, -1 known, 0 nothing.
        pi : float
            OOD prior by the verdicts.
        weights, groups : tuple, default=(None, None)
            Of the rows of both sides.
        """
        return None

    @property
    def realigns(self) -> bool:
        """Whether `realign` does anything."""
        return False

    def realign(self, X: Any, X_served: Any) -> None:
        """Take into account that the classifier of new rows is not the one that `cross_fit` saw rows through; does nothing where evidence is not its own.

        Parameters
        ----------
        X : Activations
            Unlabeled rows as in `cross_fit`.
        X_served : Activations
            The same rows through the classifier that new rows are seen through.
        """

    def log_ratio(self, X: Any, *, deciding: bool = False) -> Floats:
        """Return log g(x) = log p_O(x) / p_I(x) for every row.

        Parameters
        ----------
        X : array-like of shape (n, d) or Activations
            Of the kind given to `fit`.
        deciding : bool, default=False
            Whether kinds of OOD that the traffic did not hold count, too, as they do in `POSCOD`; the strong recipe has a part for them.

        Returns
        -------
        log_ratio : ndarray of shape (n,), float64
            Higher = more like OOD; always finite.
        """
        check_is_fitted(self, "columns_")
        rows = as_rows(X, "X", minimum=0, like=self.columns_)
        out, part = np.empty(len(rows)), self._deciding if deciding else self._log_ratio
        for start in range(0, len(rows), BLOCK_ROWS):
            out[start : start + BLOCK_ROWS] = part(rows[start : start + BLOCK_ROWS])
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
        low, high = self._interval(check_number(level, "level", 0.0, 1.0, closed="neither"))
        return (0.0 if self.moved_ else low), high

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
        curve: Acceptance | None = None if self.moved_ else getattr(self, "acceptance_", None)
        # Where a test shows no OOD rows there is nothing to certify.
        return 0.0 if curve is None or self.ood_prior_ == 0.0 else scott(curve, delta=1.0 - level)

    def _learn(
        self,
        X_id: Any,
        X_unlabeled: Any,
        sample_weight_id: Any,
        sample_weight_unlabeled: Any,
        groups: tuple[Any, Any],
        said: NDArray[np.int8] | None = None,
        **more: Any,
    ) -> Any:
        """Check rows and weights, learn from them, and return what `_fit` returns."""
        self._check_parameters()
        for kept in ("acceptance_", "ood_prior_estimate_", "moved_"):  # not by every recipe
            self.__dict__.pop(kept, None)
        rows_id = as_rows(X_id, "X_id", minimum=self.min_rows)
        rows_u = as_rows(X_unlabeled, "X_unlabeled", minimum=self.min_rows, like=columns_of(rows_id))
        weight_id, weight_u = pair_weights(sample_weight_id, sample_weight_unlabeled, len(rows_id), len(rows_u))
        names = (("groups_id", "X_id"), ("groups_unlabeled", "X_unlabeled"))
        rows_id, rows_u = (
            replace(rows, group=group_keys(given, *name, len(rows)))
            for rows, given, name in zip((rows_id, rows_u), groups, names, strict=True)
        )
        rows_u = replace(rows_u, said=said)
        with few_threads((len(rows_id) + len(rows_u)) * rows_id.features.shape[1]):  # thousands of small products
            found = self._fit(rows_id, rows_u, weight_id, weight_u, **more)
        self.columns_ = columns_of(rows_id)
        self.n_features_in_ = self.columns_["features"]
        return found

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
    def _fit(self, rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> Any:
        """Learn from checked rows; weights of both sides sum to one together."""

    def _log_ratio(self, rows: Rows) -> Floats:
        """Return log g of one block of rows."""
        return np.asarray(self.model_(rows))

    def _deciding(self, rows: Rows) -> Floats:
        """Return log g of one block of rows as it decides."""
        return self._log_ratio(rows)

    def _interval(self, level: float) -> tuple[float, float]:
        """Return the interval from the out-of-sample score kept at fit."""
        return prior_interval(self.acceptance_, PRIORS["mean"], self.ood_prior_, level)


def cross_fit(
    ratio: Any,
    X_id: Any,
    X_unlabeled: Any,
    fold_id: Any,
    fold_unlabeled: Any,
    *,
    sample_weight_id: Any = None,
    sample_weight_unlabeled: Any = None,
    groups_id: Any = None,
    groups_unlabeled: Any = None,
) -> tuple[Floats, Floats]:
    """Fit any ratio with ``fit`` and ``log_ratio`` on all rows, and return log g of both sides from fits without the fold of a row, on its scale."""
    sides = tuple(
        rows if isinstance(rows, Activations) else check_matrix(rows, name)
        for rows, name in ((X_id, "X_id"), (X_unlabeled, "X_unlabeled"))
    )
    folds = check_folds(fold_id, fold_unlabeled, len(sides[0]), len(sides[1]))
    given = {"sample_weight_id": sample_weight_id, "sample_weight_unlabeled": sample_weight_unlabeled}
    checked = [check_weight(values, name, len(side)) for (name, values), side in zip(given.items(), sides, strict=True)]
    weights: dict[str, NDArray[Any]] = {
        name: values for name, values in zip(given, checked, strict=True) if values is not None
    }
    places = {name: side for side, name in enumerate(given)}
    for side, (name, like, values) in enumerate(
        (("groups_id", "X_id", groups_id), ("groups_unlabeled", "X_unlabeled", groups_unlabeled))
    ):
        keys = group_keys(values, name, like, len(sides[side])) if isinstance(ratio, Ratio) else None
        if keys is not None:
            weights[name], places[name] = keys, side
    ratio.fit(*sides, **weights)
    whole = np.asarray(ratio.log_ratio(sides[1]))
    out = np.empty(len(sides[0])), np.empty(len(sides[1]))
    for k in range(int(folds[0].max()) + 1):
        outside = [np.flatnonzero(fold != k) for fold in folds]
        with warnings.catch_warnings():
            # The fit on all rows has said what there is to say.
            warnings.simplefilter("ignore", PoscodWarning)
            part = clone(ratio).fit(
                *(rows[chosen] for rows, chosen in zip(sides, outside, strict=True)),
                **{name: values[outside[places[name]]] for name, values in weights.items()},
            )
        # Fits on other rows differ in the scale of log g. On the scale of the fit on all rows scores of different folds, and of new rows, are comparable.
        known = outside[1]
        own, target = np.asarray(part.log_ratio(sides[1][known])), whole[known]
        slope = target.std() / own.std() if own.std() > 0.0 and target.std() > 0.0 else 1.0
        for rows, fold, scores in zip(sides, folds, out, strict=True):
            inside = np.flatnonzero(fold == k)
            if len(inside):
                scores[inside] = target.mean() + slope * (part.log_ratio(rows[inside]) - own.mean())
    return out


def check_folds(fold_id: Any, fold_unlabeled: Any, n_id: int, n_unlabeled: int) -> Folds:
    """Check the folds of both sides: 0, ..., K - 1, each with ID rows, and none with all rows of a side."""
    found = []
    for given, name, n in ((fold_id, "fold_id", n_id), (fold_unlabeled, "fold_unlabeled", n_unlabeled)):
        fold = np.asarray(given)
        if fold.shape != (n,) or fold.dtype.kind not in "iu":
            raise refusal(name, "must hold the fold of each of the {allowed} rows as a whole number.", allowed=n)
        if n and int(fold.min()) < 0:
            raise refusal(name, "must count folds from 0, got {got}.", got=int(fold.min()))
        if len(np.unique(fold)) < 2:
            raise refusal(name, "must hold at least two folds, got {got}.", got=np.unique(fold).tolist())
        found.append(fold.astype(np.int64))
    k = int(max(fold.max() for fold in found)) + 1
    if len(np.unique(found[0])) < k:
        raise refusal("fold_id", "must hold rows of every fold 0, ..., {last}.", last=k - 1)
    return found[0], found[1]
