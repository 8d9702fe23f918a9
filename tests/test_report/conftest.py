"""The first case and its summary, made once."""

from __future__ import annotations

import pytest

from test_report._cases import fitted


@pytest.fixture(scope="session")
def case():
    return fitted("empirical")


@pytest.fixture(scope="session")
def summary(case):
    return case.summary(title="A test", created="2026-01-02", names={"model": "m.poscod", "id": "test.csv"})
