"""Capital: equal to the sum that defines it, fair by enumeration, and a function of counts alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poscod.monitor._bets import STAKES, Laws, above, likely_begin, log_capital, log_gains, shares, unexplained

P, U = np.array([0.6, 0.3, 0.08, 0.02]), np.array([0.1, 0.2, 0.3, 0.4])
KNOWN = Laws(P, U, np.inf, np.inf, 1.0)
REJECTED = np.array([0.0, 0.0, 1.0, 1.0])


def weight(j):
    """Share of the gamblers who begin in window j, as the definition has it."""
    k = np.where(j >= 0, j + 1, -j)
    return 1.0 / (2.0 * k * (k + 1.0))


def test_shares_are_sums_of_weights_and_of_one_in_all():
    every = np.arange(-2_000_000, 2_000_001)
    assert weight(every).sum() == pytest.approx(1.0, abs=1e-6)
    for low, high in ((-7, -3), (-3, 0), (-1, 4), (0, 1), (5, 90)):
        between = weight(every[(every > low) & (every <= high)]).sum()
        assert shares([low], [high]) == pytest.approx([between], rel=1e-12)
    assert shares([-np.inf], [-4]) == pytest.approx([weight(every[every <= -4]).sum()], abs=1e-6)
    assert shares([2**52 - 1], [2**52]) > 0.0


def test_capital_is_the_sum_over_beginnings_and_bets(rng):
    counts, index = rng.integers(0, 9, (6, 4)), np.array([-4, -1, 0, 1, 4, 5])
    payoffs = [above(KNOWN, REJECTED, 0.1, 0.01), above(KNOWN, -REJECTED, 0.0, 0.01)]
    bets = np.concatenate([np.outer(STAKES, payoff) for payoff in payoffs])
    found, kept = (np.exp(log_capital(log_gains(counts, payoffs), index, dropped=d)) for d in (False, True))
    for t in range(len(index)):
        total = dropped = 0.0
        for begin, bet in itertools.product(range(-4, index[t] + 1), bets):
            rows = counts[: t + 1][index[: t + 1] >= begin].sum(axis=0)
            won = np.prod((1 + bet) ** rows) / len(bets)
            dropped += weight(begin) * won
            # Whoever began before the first window with rows has what the gambler of that window has.
            total += (1 / 8 if begin == -4 else weight(begin)) * won
        assert found[t] == pytest.approx(total, rel=1e-9)
        assert kept[t] == pytest.approx(dropped, rel=1e-9)


@pytest.mark.parametrize("late", [-100, -1, 0, 3, 6])
def test_a_row_that_comes_late_is_fair(late):
    """The mean capital over all outcomes of a row in an earlier window is not above the capital before."""
    payoff = above(KNOWN, REJECTED, 0.1, 0.01)
    law, seen = (1 - 0.1) * P + 0.1 * U, {5: np.array([1, 2, 9, 9]), 6: np.array([2, 0, 4, 3])}
    before = log_capital(log_gains(np.array(list(seen.values())), [payoff]), list(seen))[-1]
    mean = 0.0
    for cell in range(4):
        windows = {**seen, late: seen.get(late, np.zeros(4, dtype=int)) + np.eye(4, dtype=int)[cell]}
        order = sorted(windows)
        mean += law[cell] * np.exp(log_capital(log_gains(np.array([windows[i] for i in order]), [payoff]), order)[-1])
    assert before > 3.0
    assert mean <= np.exp(before) * (1 + 1e-12)


@pytest.mark.parametrize("eta", [0.0, 0.05, 0.1])
def test_the_limit_payoff_is_fair_up_to_the_limit(eta):
    payoff = above(KNOWN, REJECTED, 0.1, 0.01)
    assert payoff.min() == pytest.approx(-1.0)
    assert KNOWN.mean(payoff, eta) <= 1e-12
    assert KNOWN.mean(payoff, 0.2) > 0.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_residual_payoff_is_fair_for_every_share(sign):
    payoff = unexplained(KNOWN, sign * np.array([1.0, 0.0, 0.0, 0.0]), REJECTED, 0.01)
    assert payoff.min() == pytest.approx(-1.0)
    for eta in (0.0, 0.3, 1.0):
        assert KNOWN.mean(payoff, eta) == pytest.approx(0.0, abs=1e-12)
    drifted = np.array([0.6 + 0.1 * sign, 0.3 - 0.1 * sign, 0.08, 0.02])
    assert drifted @ payoff > 0.0


@pytest.mark.parametrize("eta_max", [1.0, 5.0])
def test_margins_cover_the_errors_of_the_samples(rng, eta_max):
    """True means are positive for some eta in at most 1 % of references; 4 % of 500 would be 6.7 standard errors more."""
    mixture = (1 - 1 / eta_max) * P + U / eta_max
    bad = 0
    for _ in range(500):
        p, u = rng.multinomial(800, P) / 800, rng.multinomial(600, mixture) / 600
        payoff = unexplained(Laws(p, u, 800, 600, eta_max), np.array([1.0, 0.0, 0.0, 0.0]), REJECTED, 0.01)
        truth = Laws(P, mixture, np.inf, np.inf, eta_max)
        bad += max(truth.mean(payoff, eta) for eta in (0.0, 0.5, 1.0, eta_max)) > 0.0
    assert bad / 500 < 0.04


def test_capital_is_fair_by_enumeration():
    """The mean capital over all outcomes of three rows in two windows is the capital that has been put in."""
    payoff = above(KNOWN, REJECTED, 0.1, 0.01)
    law = (1 - 0.1) * P + 0.1 * U
    mean = 0.0
    for rows in itertools.product(range(4), repeat=3):
        counts = np.zeros((2, 4))
        counts[0, rows[0]] += 1
        counts[1, rows[1]] += 1
        counts[1, rows[2]] += 1
        mean += np.prod(law[list(rows)]) * np.exp(log_capital(log_gains(counts, [payoff]), [0, 1])[-1])
    assert mean == pytest.approx(1 / 2 + 1 / 4 + 1 / 12, rel=1e-9)  # shares of the two windows that have begun


def test_the_beginning_is_found(rng):
    counts = np.concatenate([rng.multinomial(300, P, size=20), rng.multinomial(300, 0.7 * P + 0.3 * U, size=6)])
    gains = log_gains(counts, [above(KNOWN, REJECTED, 0.05, 0.01)])
    assert abs(likely_begin(gains, np.arange(26)) - 20) <= 1
