# SPDX-License-Identifier: BSD-3-Clause
"""StandardSigmoid: logistic regression between ID rows and other rows (a = 0).

Convention: the other rows count as OOD, all of them. Given clean OOD rows, ``log g`` is the paper's "clean LR";
given a mixture it is the paper's "standard sigmoid", whose ratio is p_U / p_I and not p_O / p_I.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from poscod._validation import Floats
from poscod.ratio._linear import linear_data, select_l2, to_ratio
from poscod.ratio._ratio import Ratio
from poscod.ratio._rows import Rows


@final
@dataclass(eq=False, repr=False, kw_only=True)
class StandardSigmoid(Ratio):
    """Logistic regression of "OOD" against "ID" on the given features.

    Parameters
    ----------
    l2 : float or "cv", default="cv"
        Penalty beside the mean log-loss, for standardised columns; "cv" chooses by held-out likelihood.
    n_folds : int, default=5
        Folds of that choice.
    max_iter : int, default=300
        Iterations of L-BFGS.
    random_state : int, default=0
        Seeds the folds.

    Attributes
    ----------
    ood_prior_ : float
        Always 1: every unlabeled row counts as OOD.
    l2_ : float
        The penalty used.

    Notes
    -----
    ``p(z = I | x) = 1 / (1 + exp(u))``, ``log g = u + log((1 - pi_U) / pi_U)`` with pi_U the share of the other rows.
    ``CorrectedSigmoid(ood_prior=1.0)`` is the same model on the strong representation.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> est = StandardSigmoid().fit(rng.normal(0, 1, (500, 1)), rng.normal(2, 1, (300, 1)))
    >>> bool(abs(est.log_ratio([[1.0]])[0]) < 0.3)
    True
    """

    l2_words: ClassVar[tuple[str | None, ...]] = ("cv",)
    l2: float | str = "cv"
    n_folds: int = 5
    max_iter: int = 300
    random_state: int = 0

    def _fit(self, rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> None:
        data = linear_data(rows_id, rows_u, weight_id, weight_u)
        l2 = select_l2(data, data.folds(self.n_folds, self.random_state), 1.0) if self.l2 == "cv" else float(self.l2)
        fit = data.fit(l2, pi=1.0, max_iter=self.max_iter)
        self.l2_, self.ood_prior_ = l2, 1.0
        self.model_ = to_ratio(fit, data.scaler, data.log_odds_u)

    def _interval(self, level: float) -> tuple[float, float]:
        return 1.0, 1.0
