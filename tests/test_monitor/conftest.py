"""A small world of decisions with known laws, and references of it."""

from __future__ import annotations

import numpy as np
import pytest

from poscod import POSCOD
from poscod.decision import Decisions, rejection_reason
from poscod.monitor import Reference
from poscod.theory import GaussianWorld


@pytest.fixture(scope="session")
def world():
    return GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]], weight_id=[0.7, 0.3])


@pytest.fixture(scope="session")
def model(world):
    X, y = world.sample_id(3000, random_state=0)
    return POSCOD(alpha=0.3, tpr_min=0.9, calibration=0.5, random_state=0).fit(
        X, y, X_unlabeled=world.sample_mixture(1500, 0.3, random_state=1)[0]
    )


@pytest.fixture(scope="session")
def reference(model, world):
    return Reference.from_model(model, ood=world.sample_ood(400, random_state=2), created="2026-01-01")


@pytest.fixture(scope="session")
def make_decisions(reference):
    """Decisions made up from scores: shapes and flags are right, numbers are the caller's."""

    def make(score, *, label=None, log_ratio=None, risk=None):
        score = np.asarray(score, dtype=np.float64)
        n = len(score)
        accept = score <= reference.cells.threshold
        risk = np.full(n, 0.1) if risk is None else np.asarray(risk, dtype=np.float64)
        log_ratio = np.log(np.maximum(score, 1e-9)) if log_ratio is None else np.asarray(log_ratio, dtype=np.float64)
        label = np.zeros(n, dtype=int) if label is None else np.asarray(label)
        return Decisions(label, accept, rejection_reason(risk, score, accept), risk, log_ratio, score)

    return make
