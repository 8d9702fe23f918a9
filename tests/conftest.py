"""Shared fixtures: where the optional material beside the project lies, and Hypothesis' profile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("poscod", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("poscod")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder beside the project with reference outputs and real data; absent in an ordinary clone."""
    if not SHARED.is_dir():
        pytest.skip("needs the folder ../shared with reference outputs and real data, which is not here")
    return SHARED


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240929)
