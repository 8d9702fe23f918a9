# SPDX-License-Identifier: BSD-3-Clause
"""EMRatio: the latent-variable likelihood of the mixture around any classifier that takes sample weights.

Convention: an unlabeled row is OOD with probability ``pi g / (1 - pi + pi g)`` (E-step, from a model that has not seen the
row) and enters the fit twice, as OOD and as ID with those weights (M-step). ``log g = logit q(x) + log((1 - pi_U pi) /
(pi_U pi))`` with q the classifier's probability of OOD.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from poscod._validation import Floats
from poscod.exceptions import InvalidInputError
from poscod.ratio._crossfit import InMemory, Table, held_out_losses, recalibrate
from poscod.ratio._prior import CERTIFIED, PRIORS, Acceptance, acceptance, scott
from poscod.ratio._ratio import Folds, Ratio
from poscod.ratio._rows import Rows, check_foldable, content_folds, independent_rows

# Probabilities of trees reach 0 and 1; a log-ratio beyond +-14 is not learned from rows.
CLIP = 1e-6


@final
@dataclass(eq=False, repr=False)
class EMRatio(Ratio):
    """Likelihood ratio by expectation-maximisation around a scikit-learn classifier.

    Parameters
    ----------
    estimator : classifier
        Has ``fit(X, y, sample_weight)`` and ``predict_proba``; it is cloned, never changed.
    ood_prior : float in (0, 1) or None, default=None
        Known share of OOD rows in the mixture; None estimates it on out-of-sample scores.
    prior : {"mean", "bbe", "lcb_grid", "scott"}, default="mean"
        Estimator of the share (key of `PRIORS`). It is not part of the likelihood: with a flexible classifier the
        likelihood does not determine it.
    max_iter : int, default=10
        Most EM steps; they stop early when the held-out likelihood no longer improves.
    n_folds : int, default=5
        Folds of cross-fitting.
    random_state : int, default=0
        Seeds the folds.

    Attributes
    ----------
    ood_prior_ : float
        Never below its certified bound at level 0.95, unless it was given.
    ood_prior_estimate_ : float
        What the estimator of the share said; less than ``ood_prior_`` where the certified bound contradicts it.
    models_ : list of fitted classifiers
        One per fold; log_ratio is the mean over them, recalibrated on held-out rows.
    n_iter_ : int
        EM step that was kept; 0 is the start (ID against mixture, constant subtracted).
    losses_ : list of float
        Held-out log-loss of every step.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X_id = rng.normal(0, 1, (1000, 2))
    >>> X_unlabeled = np.vstack([rng.normal(0, 1, (700, 2)), rng.normal(4, 1, (300, 2))])
    >>> est = EMRatio(LogisticRegression()).fit(X_id, X_unlabeled)
    >>> abs(est.ood_prior_ - 0.3) < 0.05
    True
    """

    min_iter: ClassVar[int] = 0
    prior_ends: ClassVar[str] = "neither"
    estimator: Any
    _: KW_ONLY
    ood_prior: float | None = None
    prior: str = "mean"
    max_iter: int = 10
    n_folds: int = 5
    random_state: int = 0

    def _check_parameters(self) -> None:
        if not hasattr(self.estimator, "predict_proba") or not has_fit_parameter(self.estimator, "sample_weight"):
            raise InvalidInputError(
                "estimator must have predict_proba and a fit that takes sample_weight, got "
                f"{type(self.estimator).__name__}: e.g. HistGradientBoostingClassifier() or LogisticRegression()."
            )
        super()._check_parameters()

    @property
    def cross_fits(self) -> bool:
        """Whether one fit with given folds scores every row out of sample."""
        return True

    def _fit(
        self,
        rows_id: Rows,
        rows_u: Rows,
        weight_id: Floats,
        weight_u: Floats,
        folds: Folds | None = None,
        deciding: bool = False,
    ) -> tuple[Floats, Floats]:
        n_folds = self.n_folds if folds is None else int(folds[0].max()) + 1
        check_foldable(rows_id, rows_u, n_folds, "add rows.")
        if folds is None:
            first, second = (rows.keys(self.random_state) for rows in (rows_id, rows_u))
            folds = content_folds(first, second, n_folds)
        fold = np.concatenate(folds)
        x = np.concatenate([rows_id.features, rows_u.features])
        z = np.repeat([False, True], [len(rows_id), len(rows_u)])
        weight = np.concatenate([weight_id, weight_u])
        table = Table(InMemory(x), len(rows_id), weight, fold, n_folds)
        n_id, n_u = (independent_rows(w, rows.group) for w, rows in ((weight_id, rows_id), (weight_u, rows_u)))

        def curve(values: Floats) -> Acceptance:
            return acceptance(values[~z], values[z], weight[~z], weight[z])._replace(n_id=n_id, n_unlabeled=n_u)

        odds = table.log_odds_u
        # Start: ID against mixture gives rho = p_U / p_I; g = (rho - (1 - pi)) / pi, cut at a small positive number.
        models, score = self._cross_fit(x, z.astype(np.float64), weight, fold)
        pi = self.ood_prior
        if pi is None:
            rho = score - odds
            estimate = PRIORS[self.prior](curve(rho))
            pi = float(np.clip(estimate, 1e-3, 0.999))
        # The stacked sample has OOD mass pi_U pi and ID mass 1 - pi_U pi.
        mass = pi / (1.0 + np.exp(-odds))
        self.ood_prior_ = pi
        self._offsets = (odds, odds + float(np.log(pi)), float(np.log((1.0 - mass) / mass)))
        u = self._u(score, start=True)
        self.losses_ = [float(held_out_losses(u, table, pi).sum())]
        kept: tuple[int, list[Any], Floats] = (0, models, u)
        for step in range(1, self.max_iter + 1):
            posterior = np.where(z, expit(u - self._offsets[1] + logit(pi)), 0.0)
            models, score = self._cross_fit(x, posterior, weight, fold)
            u = self._u(score, start=False)
            self.losses_.append(float(held_out_losses(u, table, pi).sum()))
            if self.losses_[-1] < min(self.losses_[:-1]):
                kept = (step, models, u)
            elif step - kept[0] >= 2:
                break
        self.n_iter_, self.models_, u = kept
        self.kappa_, self.shift_ = recalibrate(u, table, pi)
        self._start = self.n_iter_ == 0
        u = self.kappa_ * u + self.shift_
        self.acceptance_ = curve(u)
        self.ood_prior_estimate_ = pi
        if self.ood_prior is None:
            # What was learned is pi g, whatever pi is.
            self.ood_prior_ = max(pi, scott(self.acceptance_, delta=CERTIFIED))
            raised = float(np.log(self.ood_prior_ / pi))
            u, self.shift_ = u - raised, self.shift_ - raised
        return u[~z] - self._offsets[1], u[z] - self._offsets[1]

    def _cross_fit(self, x: NDArray[Any], ood: Floats, weight: Floats, fold: NDArray[Any]) -> tuple[list[Any], Floats]:
        """Fit on the rows outside each fold with soft labels; return models and out-of-sample logits."""
        models, score = [], np.empty(len(x))
        for k in range(int(fold.max()) + 1):
            train, test = fold != k, fold == k
            soft = np.flatnonzero(train & (ood > 0.0))
            hard = np.flatnonzero(train & (ood < 1.0))
            rows = np.concatenate([hard, soft])
            label = np.repeat([0, 1], [len(hard), len(soft)])
            mass = np.concatenate([weight[hard] * (1.0 - ood[hard]), weight[soft] * ood[soft]]) * len(x)
            model = clone(self.estimator).fit(x[rows], label, sample_weight=mass)
            models.append(model)
            if test.any():
                score[test] = _logit(model, x[test])
        return models, score

    def _log_ratio(self, rows: Rows) -> Floats:
        score = np.mean([_logit(model, rows.features) for model in self.models_], axis=0)
        u = self._u(score, start=self._start)
        return np.asarray(self.kappa_ * u + self.shift_ - self._offsets[1])

    def _u(self, score: Floats, *, start: bool) -> Floats:
        """Return u = log g + odds + log pi from the logits of a fit, in which e^u = odds * (rho - (1 - pi)) at the start."""
        odds, shift, constant = self._offsets
        if not start:
            return score + constant + shift
        pi = float(np.exp(shift - odds))
        return np.asarray(odds + np.log(np.maximum(np.exp(np.minimum(score - odds, 50.0)) - (1.0 - pi), 0.01 * pi)))


def _logit(model: Any, x: NDArray[Any]) -> Floats:
    """Return the classifier's log-odds of the OOD class, cut where trees claim certainty."""
    probability = np.asarray(model.predict_proba(x), dtype=np.float64)
    column = int(np.flatnonzero(np.asarray(model.classes_) == 1)[0])
    return np.asarray(logit(np.clip(probability[:, column], CLIP, 1.0 - CLIP)))
