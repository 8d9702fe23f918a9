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
from scipy.stats import norm

from poscod._validation import Floats, check_choice, check_number
from poscod.exceptions import warn_caller
from poscod.ratio._likelihood import maximise, penalised
from poscod.ratio._linear import (
    Joint,
    linear_data,
    prior_standard_error,
    select_l2,
    to_ratio,
    wald_interval,
)
from poscod.ratio._ratio import Ratio, UndeterminedPriorWarning
from poscod.ratio._rows import Rows, check_foldable, columns_of
from poscod.ratio._strong_recipe import fit_strong

RECIPES: dict[str, str] = {
    "strong": "prior estimated apart, features plus ID-only evidence, candidates weighed by held-out likelihood",
    "paper": "joint maximum likelihood of theta and a on the given features, nothing added",
}
EDGE = 1e-3
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
        penalty, "cv" chooses by held-out likelihood. The strong recipe always chooses its penalties so.
    ood_prior : float in (0, 1] or None, default=None
        Known share of OOD rows in the mixture; None estimates it.
    prior : {"mean", "bbe", "lcb_grid", "scott"}, default="mean"
        Estimator of the share in the strong recipe (key of `PRIORS`).
    n_folds : int, default=5
        Folds of cross-fitting.
    gate_level : float in (0, 1) or None, default=0.05
        Level of the test of "no OOD rows" in the strong recipe; None always fits.
    max_iter : int, default=300
        Iterations of L-BFGS of one start of the paper's recipe.
    random_state : int, default=0
        Seeds the folds, which depend on the content of the rows and not on their order.

    Attributes
    ----------
    ood_prior_ : float
        Estimated (or given) share of OOD rows in the mixture; 0 when the gate is closed.
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
    max_iter: int = 300
    random_state: int = 0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.recipe, "recipe", RECIPES)
        if self.gate_level is not None:
            check_number(self.gate_level, "gate_level", 0.0, 1.0, closed="neither")

    def _fit(self, rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> None:
        if self.recipe == "paper":
            data = linear_data(rows_id, rows_u, weight_id, weight_u)
            l2: Any = 0.0 if self.l2 is None else self.l2
            if l2 == "cv":
                l2 = select_l2(data, data.folds(self.n_folds, self.random_state), self.ood_prior)
            self.fit_joint(data.joint, l2, columns_of(rows_id))
        else:
            self._fit_strong(rows_id, rows_u, weight_id, weight_u)
        self.a_ = float(weight_u.sum() / weight_id.sum() * (1.0 - self.ood_prior_))

    def fit_joint(self, data: Joint, l2: float, columns: dict[str, int]) -> CorrectedSigmoid:
        """Fit the paper's joint likelihood on sums over rows, wherever they are, with a given penalty; see `columns_of`."""
        self._check_parameters()
        penalty = np.full(len(data.scaler.mean), float(l2))

        def evaluate(params: Floats) -> tuple[float, Floats]:
            return penalised(data.loss(params, self.ood_prior), params, penalty)

        fit = maximise(evaluate, len(penalty), data.log_odds_u, pi=self.ood_prior, max_iter=self.max_iter)
        error = np.inf if self.ood_prior is not None else prior_standard_error(data.information(fit), data.size)
        self.l2_, self.ood_prior_, self._prior_se = float(l2), fit.pi, error
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

    def _fit_strong(self, rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> None:
        check_foldable(rows_id, rows_u, self.n_folds, "add rows, or use {recipe}='paper'.")
        fit = fit_strong(
            (rows_id, rows_u),
            (weight_id, weight_u),
            prior=self.prior,
            pi=self.ood_prior,
            n_folds=self.n_folds,
            gate_level=self.gate_level if self.ood_prior is None else None,
            seed=self.random_state,
        )
        self.model_ = fit.ratio
        self.ood_prior_ = fit.pi
        self.gate_open_, self.gate_p_value_ = fit.pi > 0.0, fit.p_value
        self.acceptance_, self.candidates_ = fit.acceptance, fit.weights

    def _interval(self, level: float) -> tuple[float, float]:
        if self.ood_prior is not None:
            return self.ood_prior_, self.ood_prior_
        if self.recipe == "paper":
            return wald_interval(self.ood_prior_, self._prior_se, float(norm.ppf(0.5 + 0.5 * level)))
        return super()._interval(level)
