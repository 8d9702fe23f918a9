# SPDX-License-Identifier: BSD-3-Clause
"""CorrectedSigmoid: the likelihood ratio g = p_O / p_I from labeled ID rows and an unlabeled mixture.

Convention: ``p(z = I | x) = 1 / (1 + a + exp(u(x)))`` with ``a = pi_U / (1 - pi_U) * (1 - pi)`` and
``log g = u + log((1 - pi_U) / (pi_U pi))``: no subtraction, finite for every row (errata 3, 7).

References
----------
.. [1] V. Franc, J. Paplham, D. Prusa, "SCOD: From Heuristics to Theory", ECCV 2024, Theorem 4.
.. [2] K. Jaskie, C. Elkan, A. Spanias, "A Modified Logistic Regression for Positive and Unlabeled Learning", 2019.
.. [3] P. Teisseyre, J. Mielniczuk, M. Lazecka, "Different Strategies of Fitting Logistic Regression for Positive and
   Unlabeled Data", ICCS 2020.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import clone

from poscod._validation import Floats, check_choice, check_number, refusal
from poscod.exceptions import warn_caller
from poscod.ratio._likelihood import STARTS, maximise, penalised
from poscod.ratio._linear import (
    Chosen,
    Joint,
    choose_l2,
    linear_data,
    prior_standard_error,
    to_ratio,
    wald_interval,
)
from poscod.ratio._ratio import Folds, Ratio, Refitted, UndeterminedPriorWarning
from poscod.ratio._rows import Rows, as_rows, check_foldable, columns_of
from poscod.ratio._strong_recipe import StrongFit, fit_strong

RECIPES: dict[str, str] = {
    "strong": "prior estimated apart, features plus ID-only evidence, candidates weighed by held-out likelihood",
    "paper": "joint maximum likelihood of theta and a on the given features, nothing added",
}
EDGE = 1e-3
# The smallest prior that a refit with verdicts starts from.
LEAST_PRIOR = 1e-3
# A standard error of logit(pi) above this spans a factor of fifty in the odds.
LOOSE = 2.0


@final
@dataclass(eq=False, repr=False)
class CorrectedSigmoid(Ratio):
    """The paper's corrected sigmoid, and the stronger recipe built on it.

    Parameters
    ----------
    recipe : {"strong", "paper"}, default="strong"
        "paper" is the joint likelihood of theta and a on the given features. "strong" estimates the prior apart on
        out-of-sample scores, adds ID-only evidence to the features, weighs candidates by held-out likelihood,
        recalibrates, and falls back to an ID-only rule where the mixture shows no OOD rows.
    l2 : float, "cv" or None, default=None
        Penalty ``0.5 * l2 * |theta|^2`` beside the mean log-loss, for standardised columns, of the paper's recipe: None is no
        penalty, "cv" chooses by held-out likelihood, on at most 20,000 rows of each side and with ``l2 * rows`` kept for all of
        them. The strong recipe always chooses its penalties so.
    ood_prior : float in (0, 1] or None, default=None
        Known share of OOD rows in the mixture; None estimates it.
    prior : {"mean", "bbe", "lcb_grid", "scott"}, default="mean"
        Estimator of the share in the strong recipe (key of `PRIORS`).
    n_folds : int, default=5
        Folds of cross-fitting.
    gate_level : float in (0, 1) or None, default=0.05
        Level of the test of "no OOD rows" in the strong recipe; None always fits.
    unseen_share : float in [0, 1) or None, default=None
        Share of OOD inputs, in what decides, that are taken to be of kinds the mixture does not hold and so to follow the ID-only rule. None is the largest of
        0.02 to 0.2 that costs little on the kinds it holds; 0.5 guards against new kinds nearly as well as the ID-only rule does, and costs a few
        percent on the known ones.
    max_iter : int, default=300
        Iterations of L-BFGS of one start of the paper's recipe.
    random_state : int, default=0
        Seeds the folds, which depend on the content of the rows and not on their order.

    Attributes
    ----------
    ood_prior_ : float
        Estimated (or given) share of OOD rows in the mixture; 0 when the gate is closed. An estimate is never below its certified bound at level 0.95.
    ood_prior_estimate_ : float
        What the estimator of the share said, in the strong recipe; less than ``ood_prior_`` where the certified bound contradicts it.
    a_ : float
        ``pi_U / (1 - pi_U) * (1 - ood_prior_)``.
    gate_open_ : bool
        Whether the ratio was learned from the mixture; False means the ID-only rule.
    gate_p_value_ : float
        p-value of the test of pi = 0 (0 when no test was made).
    candidates_ : dict of str to float
        Weight of each candidate of the strong recipe.

    Notes
    -----
    The model is ``p(z = I | x) = 1 / (1 + a + exp(u))``, ``u = theta^T [phi; 1]``, z = I for labeled and z = U for unlabeled
    rows, pi_U the share of unlabeled rows and pi the OOD prior. The likelihood is not convex in (theta, a): a joint
    fit starts from several priors, from small ones upwards, and keeps the best.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X_id = rng.normal(0.0, 1.0, (2000, 2))
    >>> X_unlabeled = np.vstack([rng.normal(0.0, 1.0, (1400, 2)), rng.normal(3.0, 1.0, (600, 2))])
    >>> est = CorrectedSigmoid().fit(X_id, X_unlabeled)
    >>> abs(est.ood_prior_ - 0.3) < 0.03
    True
    >>> (est.log_ratio([[0.0, 0.0], [3.0, 3.0]]) > 0).tolist()
    [False, True]
    """

    l2_words: ClassVar[tuple[str | None, ...]] = ("cv", None)
    recipe: str = "strong"
    _: KW_ONLY
    l2: float | str | None = None
    ood_prior: float | None = None
    prior: str = "mean"
    n_folds: int = 5
    gate_level: float | None = 0.05
    unseen_share: float | None = None
    max_iter: int = 300
    random_state: int = 0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.recipe, "recipe", RECIPES)
        if self.gate_level is not None:
            check_number(self.gate_level, "gate_level", 0.0, 1.0, closed="neither")
        if self.unseen_share is not None:
            check_number(self.unseen_share, "unseen_share", 0.0, 1.0, closed="left")
            if self.recipe == "paper":
                raise refusal(
                    "unseen_share",
                    "must be None with {recipe}='paper', got {got:g}: the paper's ratio has no part for kinds that the mixture does not hold.",
                    got=self.unseen_share,
                )

    @property
    def cross_fits(self) -> bool:
        """Whether one fit with given folds scores every row out of sample."""
        return self.recipe == "strong"

    def _fit(
        self,
        rows_id: Rows,
        rows_u: Rows,
        weight_id: Floats,
        weight_u: Floats,
        folds: Folds | None = None,
        deciding: bool = False,
    ) -> tuple[Floats, Floats] | None:
        own = None
        if self.recipe == "paper":
            chosen = self.penalty(
                (len(rows_id), len(rows_u)),
                lambda side: (rows_id, rows_u)[side].keys(self.random_state),
                lambda at: ((rows_id[at[0]], rows_u[at[1]]), (weight_id[at[0]], weight_u[at[1]])),
            )
            self.fit_joint(linear_data(rows_id, rows_u, weight_id, weight_u).joint, chosen, columns_of(rows_id))
        else:
            fit = self._fit_strong(rows_id, rows_u, weight_id, weight_u, folds)
            own = fit.deciding if deciding else fit.own
        self.a_ = float(weight_u.sum() / weight_id.sum() * (1.0 - self.ood_prior_))
        return own

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
        """Learn again what people have looked at, too; see `Ratio.with_verdicts`."""
        if self.recipe != "strong":
            return None
        again = clone(self).set_params(ood_prior=float(np.clip(pi, LEAST_PRIOR, 0.999)))
        own = again._learn(X_id, X_unlabeled, *weights, groups, said=said, folds=folds, deciding=True)
        # The interval and what is certified rest on the score that no verdict has formed.
        again.set_params(ood_prior=self.ood_prior)
        again.acceptance_, again.gate_p_value_, again.ood_prior_estimate_ = (
            self.acceptance_,
            self.gate_p_value_,
            self.ood_prior_estimate_,
        )
        return Refitted(again, own)

    def penalty(self, lengths: tuple[int, int], hashes: Any, bring: Any) -> Chosen:
        """Return the penalty of the paper's recipe, given or chosen on some rows wherever they are; see `poscod.ratio._linear.choose_l2`."""
        self._check_parameters()
        if self.l2 != "cv":
            return Chosen(0.0 if self.l2 is None else float(self.l2))
        return choose_l2(lengths, hashes, bring, pi=self.ood_prior, n_folds=self.n_folds, seed=self.random_state)

    def fit_joint(self, data: Joint, chosen: Chosen, columns: dict[str, int]) -> CorrectedSigmoid:
        """Fit the paper's joint likelihood on sums over rows, wherever they are, with a given penalty; see `columns_of`."""
        self._check_parameters()
        penalty = np.full(len(data.scaler.mean), float(chosen.l2))
        start = chosen.start(data)
        # From the edge of the priors nothing leads back: there a part of the rows says nothing about where to start.
        warm = start if start is not None and (self.ood_prior is not None or EDGE < start.pi < 1.0 - EDGE) else None
        starts = STARTS if warm is None else (warm.pi,)

        def evaluate(params: Floats) -> tuple[float, Floats]:
            return penalised(data.loss(params, self.ood_prior), params, penalty)

        fit = maximise(
            evaluate,
            len(penalty),
            data.log_odds_u,
            pi=self.ood_prior,
            starts=starts,
            warm=warm,
            max_iter=self.max_iter,
        )
        error = np.inf if self.ood_prior is not None else prior_standard_error(data.information(fit), data.size)
        self.l2_, self.ood_prior_, self._prior_se = float(chosen.l2), fit.pi, error
        self.a_ = float(np.exp(data.log_odds_u) * (1.0 - fit.pi))
        self.model_ = to_ratio(fit, data.scaler, data.log_odds_u)
        self.gate_open_, self.gate_p_value_, self.candidates_ = True, 0.0, {"paper": 1.0}
        self.columns_, self.n_features_in_ = columns, columns["features"]
        if self.ood_prior is None and (not EDGE < fit.pi < 1.0 - EDGE or error > LOOSE):
            warn_caller(
                UndeterminedPriorWarning(
                    "The joint likelihood does not determine the OOD prior ({ood_prior_} = {got:.2g}) and so not the scale of the ratio: "
                    "use {recipe}='strong', set {l2} or pass {ood_prior}.",
                    got=fit.pi,
                )
            )
        return self

    def _fit_strong(
        self,
        rows_id: Rows,
        rows_u: Rows,
        weight_id: Floats,
        weight_u: Floats,
        folds: Folds | None,
    ) -> StrongFit:
        n_folds = self.n_folds if folds is None else int(folds[0].max()) + 1
        check_foldable(rows_id, rows_u, n_folds, "add rows, or use {recipe}='paper'.")
        fit = fit_strong(
            (rows_id, rows_u),
            (weight_id, weight_u),
            prior=self.prior,
            pi=self.ood_prior,
            n_folds=n_folds,
            gate_level=self.gate_level if self.ood_prior is None else None,
            seed=self.random_state,
            folds=folds,
            broad=self.unseen_share,
        )
        self.model_ = fit.ratio
        self.ood_prior_, self.ood_prior_estimate_ = fit.pi, fit.estimated
        self.gate_open_, self.gate_p_value_ = fit.pi > 0.0, fit.p_value
        self.acceptance_, self.candidates_ = fit.acceptance, fit.weights
        return fit

    @property
    def realigns(self) -> bool:
        """Whether `realign` does anything: evidence of the strong recipe is the classifier's, too."""
        return self.recipe == "strong"

    def realign(self, X: Any, X_served: Any) -> None:
        """Take the difference between two views of the same rows out of the evidence of new rows; see `Ratio.realign`."""
        if self.realigns:
            sides = (
                as_rows(rows, name, minimum=0, like=self.columns_) for rows, name in ((X, "X"), (X_served, "X_served"))
            )
            self.model_.representation.realign(*sides)

    def _deciding(self, rows: Rows) -> Floats:
        return np.asarray(self.model_(rows, deciding=True)) if self.recipe == "strong" else self._log_ratio(rows)

    def _interval(self, level: float) -> tuple[float, float]:
        if self.ood_prior is not None:
            return self.ood_prior_, self.ood_prior_
        if self.recipe == "paper":
            return wald_interval(self.ood_prior_, self._prior_se, float(norm.ppf(0.5 + 0.5 * level)))
        return super()._interval(level)
