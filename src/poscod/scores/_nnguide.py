# SPDX-License-Identifier: BSD-3-Clause
"""NNGuide: energy, guided by similar ID rows and their own energy.

Convention: higher = reject sooner; the published product is a confidence, so it is negated.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.scores._energy import free_energy
from poscod.scores._moments import blocks
from poscod.scores._nearest import check_enough, check_neighbours, draw_rows, mean_largest_product, unit_rows
from poscod.scores._score import Score


@final
class NNGuide(Score):
    """Nearest-neighbour guidance of the energy.

    Parameters
    ----------
    k : int, default=10
        Number of neighbours.
    bank_size : int, default=None
        ID rows kept, drawn without replacement; None keeps all (the authors keep 1 % of ImageNet).
    backend : {"auto", "blas", "faiss"}, default="auto"
        "blas" uses blocked matrix products, "faiss" an exact search in float32 (extra ``faiss``), "auto" the
        latter when it is installed and the bank is float32.
    random_state : int, Generator or None, default=0
        Seed of the draw.

    Attributes
    ----------
    bank_ : ndarray of shape (m, d)
        Features of the kept ID rows, scaled to norm one and multiplied by their confidence E.

    Notes
    -----
    ``s(x) = -E(x) (1/k) sum_i E(x_i) u(x)^T u(x_i)``, with ``E = log sum_y exp(z_y)`` the negative energy of the K
    logits z, ``u = phi / |phi|`` the d features scaled to norm one, and the sum over the k ID rows x_i with the
    largest terms.

    References
    ----------
    .. [1] J. Park, Y. G. Jung, A. B. J. Teoh, "Nearest Neighbor Guidance for Out-of-Distribution Detection",
       ICCV 2023.

    Examples
    --------
    >>> train = Activations([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]])
    >>> NNGuide(k=1).fit(train)(Activations([[3.0, 0.0], [-1.0, -1.0]], [[3.0, 0.0], [1.0, 1.0]])).round(4)
    array([-6.4841,  2.5464])
    """

    name: ClassVar[str] = "nnguide"
    needs: ClassVar[tuple[str, ...]] = ("features", "logits")
    fit_needs: ClassVar[tuple[str, ...]] = ("features", "logits")
    needs_fit: ClassVar[bool] = True
    citation: ClassVar[str] = "Park et al., ICCV 2023"

    def __init__(
        self, *, k: int = 10, bank_size: int | None = None, backend: str = "auto", random_state: Any = 0
    ) -> None:
        self.k = k
        self.bank_size = bank_size
        self.backend = backend
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_neighbours(self.k, self.bank_size, self.backend)

    def _fit(self, activations: Activations) -> None:
        kept = activations[draw_rows(len(activations), self.bank_size, self.random_state)]
        check_enough(self.k, len(kept))
        bank = unit_rows(kept.features)
        for rows, logits in blocks(kept.logits):
            bank[rows] *= -free_energy(logits).astype(bank.dtype)[:, None]
        self.bank_ = bank

    def _score(self, block: Activations) -> Floats:
        # k may have been changed since fit.
        check_enough(self.k, len(self.bank_))
        guidance = mean_largest_product(unit_rows(block.features), self.bank_, self.k, self.backend)
        return np.asarray(free_energy(block.logits) * guidance)
