"""A world with strangers far enough to be listed, and the models that lists are asked of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from poscod import POSCOD
from poscod.theory import GaussianWorld


class Case(NamedTuple):
    """Labeled rows, the traffic of the fit, a later log and fresh known inputs; which rows are OOD."""

    world: GaussianWorld
    X: np.ndarray
    y: np.ndarray
    own: np.ndarray
    own_ood: np.ndarray
    new: np.ndarray
    new_ood: np.ndarray
    fresh: np.ndarray


@pytest.fixture(scope="session")
def case() -> Case:
    world = GaussianWorld(
        [[0.0, 0.0, 0.0], [3.0, 0.0, 1.0]],
        [[1.5, 6.0, 0.0], [1.5, -6.0, 0.0]],
        weight_id=[0.7, 0.3],
        weight_ood=[0.4, 0.6],
    )
    X, y = world.sample_id(400, random_state=0)
    own, new = (world.sample_mixture(300, pi=0.2, random_state=seed) for seed in (11, 12))
    return Case(world, X, y, *own, *new, world.sample_id(300, random_state=3)[0])


@pytest.fixture(scope="session")
def crossed(case: Case) -> POSCOD:
    return POSCOD(alpha=0.3, tpr_min=0.9, random_state=0).fit(case.X, case.y, X_unlabeled=case.own)


@pytest.fixture(scope="session")
def held(case: Case) -> POSCOD:
    return POSCOD(alpha=0.3, tpr_min=0.9, threshold="guaranteed", random_state=0).fit(
        case.X, case.y, X_unlabeled=case.own
    )


@pytest.fixture(scope="session")
def shared_out(case: Case) -> POSCOD:
    return POSCOD(alpha=0.3, tpr_min=0.9, calibration=0.5, random_state=0).fit(case.X, case.y, X_unlabeled=case.own)
