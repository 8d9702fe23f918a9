# SPDX-License-Identifier: BSD-3-Clause
"""FixedLinear: a ratio that was learned elsewhere, such as the head of a fine-tuned network.

Convention: ``log g = weight^T phi + intercept``; `fit` looks at the rows and changes neither.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, final

import numpy as np

from poscod._validation import Floats, check_number, check_vector
from poscod.exceptions import InvalidInputError
from poscod.ratio._design import Scaler
from poscod.ratio._linear import LinearRatio
from poscod.ratio._prior import acceptance
from poscod.ratio._ratio import Ratio
from poscod.ratio._rows import Rows


@final
@dataclass(eq=False, repr=False)
class FixedLinear(Ratio):
    """A known linear log-ratio, to be used like one that is learned.

    Parameters
    ----------
    weight : array-like of shape (d,)
        Coefficients of the features.
    intercept : float, default=0.0
        Constant term of log g.
    ood_prior : float in (0, 1], default=0.5
        Share of OOD rows in the mixture it was learned from.

    Attributes
    ----------
    ood_prior_ : float
        The share given.

    Notes
    -----
    Rows given to `fit` (by `POSCOD`, for one) must be rows the ratio was **not** learned from: thresholds and intervals are made
    from its values there.

    Examples
    --------
    >>> ratio = FixedLinear([2.0, 0.0], -1.0, ood_prior=0.2).fit([[0.0, 1.0], [0.1, 2.0]], [[0.0, 0.0], [1.0, 3.0]])
    >>> ratio.log_ratio([[1.0, 5.0]])
    array([1.])
    """

    min_rows: ClassVar[int] = 1
    weight: Any
    intercept: float = 0.0
    _: KW_ONLY
    ood_prior: float = 0.5

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_vector(self.weight, "weight", allow_inf=False)
        check_number(self.intercept, "intercept", -np.inf, np.inf, closed="neither")

    def _fit(self, rows_id: Rows, rows_u: Rows, weight_id: Floats, weight_u: Floats) -> None:
        weight = check_vector(self.weight, "weight", allow_inf=False)
        d = rows_id.features.shape[1]
        if len(weight) != d:
            raise InvalidInputError(f"weight must have one number per feature ({d}), got {len(weight)}.")
        self.model_ = LinearRatio(Scaler(np.zeros(d), np.ones(d)), weight, float(self.intercept))
        self.ood_prior_ = float(self.ood_prior)
        self.acceptance_ = acceptance(self.model_(rows_id), self.model_(rows_u), weight_id, weight_u)
