"""Rates in a class mix: post-stratified shares and their intervals, counted."""

from __future__ import annotations

import numpy as np
import pytest

from poscod.mix import ClassMix
from poscod.model import tally

VALUES = np.array([0.0, 1.0])


def mix_of(shares, covariance=None):
    q = np.asarray(shares, dtype=float)
    return ClassMix(np.full(len(q), 1.0 / len(q)), q, q, q, changed=True, covariance=covariance)


def drawn(rng, sizes, tpr, error):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    accept = rng.random(len(codes)) < np.asarray(tpr)[codes]
    return tally(accept, (rng.random(len(codes)) < error).astype(float), VALUES, codes, len(sizes))


@pytest.mark.parametrize(
    ("sizes", "tpr", "least"),
    [
        ((20, 380), (0.97, 0.97), 0.93),
        ((10, 390), (0.95, 0.8), 0.93),
        ((100, 300), (0.9, 0.97), 0.93),
        ((50, 50, 900), (0.99, 0.9, 0.9), 0.93),
    ],
)
def test_intervals_cover_where_a_frequent_class_has_few_rows(sizes, tpr, least):
    """Nominal 95 %, 500 draws; the first class is most of the mix."""
    rng = np.random.default_rng(0)
    q = np.array([0.9, *[0.1 / (len(sizes) - 1)] * (len(sizes) - 1)])
    mix, truth, hits = mix_of(q), float(q @ tpr), np.zeros(2)
    for _ in range(500):
        found = drawn(rng, sizes, tpr, 0.05)
        rate, loss = found.rate(0.95, mix), found.mean_loss(0.95, VALUES, mix)
        hits += [rate.low <= truth <= rate.high, loss.low <= 0.05 <= loss.high]
    assert (hits / 500 >= least).all(), hits / 500


def test_all_accepted_of_ten_rows_is_not_known_better_than_by_ten_rows():
    found = drawn(np.random.default_rng(0), (10, 990), (1.0, 1.0), 0.0)
    rate = found.rate(0.95, mix_of([0.9, 0.1]))
    assert rate.estimate == 1.0
    assert 0.65 < rate.low < 0.8  # 12.3 rows: 10 of 90 %


def test_a_class_of_the_mix_without_rows_leaves_its_share_open():
    rng = np.random.default_rng(1)
    codes = np.repeat([1, 2], 500)
    found = tally(rng.random(1000) < 0.9, np.zeros(1000), VALUES, codes, 3)
    whole, gap = found.rate(0.95, mix_of([0.0, 0.5, 0.5])), found.rate(0.95, mix_of([0.6, 0.2, 0.2]))
    assert whole.high - whole.low < 0.05
    assert gap.high - gap.low > 0.3
    nothing = found.rate(0.95, mix_of([1.0, 0.0, 0.0]))
    assert nothing.low < 0.1
    assert nothing.high > 0.99


def test_the_error_of_the_mix_is_in_the_interval():
    found = drawn(np.random.default_rng(2), (2000, 2000), (1.0, 0.5), 0.0)
    sure, unsure = mix_of([0.5, 0.5]), mix_of([0.5, 0.5], np.array([[0.01, -0.01], [-0.01, 0.01]]))
    widths = [found.rate(0.95, mix).high - found.rate(0.95, mix).low for mix in (sure, unsure)]
    assert widths[1] == pytest.approx(2 * 1.96 * 0.5 * 0.1, rel=0.15)
    assert widths[0] < 0.05


def test_counts_of_parts_add_up():
    rng = np.random.default_rng(3)
    parts = [drawn(rng, (30, 70), (0.9, 0.8), 0.1) for _ in range(3)]
    total = parts[0] + parts[1] + parts[2]
    assert total.rows == 300
    np.testing.assert_array_equal(total.counts, sum(part.counts for part in parts))
