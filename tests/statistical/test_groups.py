"""Guarantees and intervals with several rows per user or session: counted."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from benchmarks.copies import coverage, misses


def most(n, p):
    """What is exceeded once in a thousand times where the probability is p."""
    return binom.ppf(0.999, n, p) / n


@pytest.mark.parametrize("draws", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_guarantee_holds_for_a_random_row_of_a_fresh_user(draws):
    assert misses(draws, True) <= most(draws, 0.1)


@pytest.mark.slow
def test_a_guarantee_that_counts_rows_does_not():
    assert misses(1000, False) > most(1000, 0.1)


@pytest.mark.parametrize("models", [2, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", [3, 10])
def test_intervals_of_windows_with_sessions_hold(size, models):
    # Windows of one model share its reference: they are not independent.
    assert coverage(size, True, models, 20) >= (0.85 if models == 2 else 0.92)


@pytest.mark.slow
def test_intervals_that_count_rows_do_not():
    assert coverage(3, False, 10, 20) < 0.9
    assert coverage(10, False, 10, 20) < 0.7
