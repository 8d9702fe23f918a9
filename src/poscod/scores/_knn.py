# SPDX-License-Identifier: BSD-3-Clause
"""KNN: distance to the k-th nearest ID row.

Convention: higher = reject sooner; the published confidence is minus the distance.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._nearest import check_enough, check_neighbours, draw_rows, kth_squared_distance, unit_rows
from poscod.scores._score import Score


@final
class KNN(Score):
    """Euclidean distance to the k-th nearest ID row, on features of norm one.

    Parameters
    ----------
    k : int, default=50
        Number of neighbours.
    bank_size : int, default=None
        ID rows kept, drawn without replacement; None keeps all.
    backend : {"auto", "blas", "faiss"}, default="auto"
        "blas" uses blocked matrix products, "faiss" an exact search in float32 (extra ``faiss``), "auto" the
        latter when it is installed and the bank is float32.
    random_state : int, Generator or None, default=0
        Seed of the draw.

    Attributes
    ----------
    bank_ : ndarray of shape (m, d)
        Features of the kept ID rows, scaled to norm one, in the dtype they came in.

    Notes
    -----
    ``s(x) = |u(x) - u_(k)|`` with ``u = phi / |phi|`` the d features scaled to norm one and u_(k) the k-th nearest
    of the ID rows. Float32 features are compared in float32: a distance below about 1e-3 is then rounding.

    References
    ----------
    .. [1] Y. Sun, Y. Ming, X. Zhu, Y. Li, "Out-of-Distribution Detection with Deep Nearest Neighbors", ICML 2022.

    Examples
    --------
    >>> train = Activations(features=[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    >>> KNN(k=2).fit(train)(Activations(features=[[5.0, 0.0], [-1.0, 0.0]])).round(4)
    array([0., 2.])
    """

    name: ClassVar[str] = "knn"
    needs: ClassVar[tuple[str, ...]] = ("features",)
    fit_needs: ClassVar[tuple[str, ...]] = ("features",)
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Sun et al., ICML 2022"

    def __init__(
        self, *, k: int = 50, bank_size: int | None = None, backend: str = "auto", random_state: Any = 0
    ) -> None:
        self.k = k
        self.bank_size = bank_size
        self.backend = backend
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_neighbours(self.k, self.bank_size, self.backend)

    def _fit(self, activations: Activations) -> None:
        rows = draw_rows(len(activations), self.bank_size, self.random_state)
        bank = activations.features[rows]
        check_enough(self.k, len(bank))
        self.bank_ = unit_rows(bank)

    def _score(self, block: Activations) -> Floats:
        # k may have been changed since fit.
        check_enough(self.k, len(self.bank_))
        queries = unit_rows(block.features)
        return np.asarray(np.sqrt(kth_squared_distance(queries, self.bank_, self.k, self.backend)))
