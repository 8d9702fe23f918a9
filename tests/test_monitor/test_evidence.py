"""Capital: equal to the sum that defines it, fair by enumeration, and a function of counts alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from poscod.monitor._evidence import STAKES, Laws, above, likely_begin, log_capital, log_gains, unexplained

P, U = np.array([0.6, 0.3, 0.08, 0.02]), np.array([0.1, 0.2, 0.3, 0.4])
KNOWN = Laws(P, U, np.inf, np.inf, 1.0)
REJECTED = np.array([0.0, 0.0, 1.0, 1.0])


def test_capital_is_the_sum_over_beginnings_and_bets(rng):
    counts, index = rng.integers(0, 9, (6, 4)), np.array([1, 2, 5, 6, 9, 10])
    payoffs = [above(KNOWN, REJECTED, 0.1, 0.01), above(KNOWN, -REJECTED, 0.0, 0.01)]
    bets = np.concatenate([np.outer(STAKES, payoff) for payoff in payoffs])
    found = np.exp(log_capital(log_gains(counts, payoffs), index))
    for t in range(len(index)):
        total = 0.0
        for begin, bet in itertools.product(range(1, index[t] + 1), bets):
            rows = counts[: t + 1][index[: t + 1] >= begin].sum(axis=0)
            total += np.prod((1 + bet) ** rows) / (begin * (begin + 1)) / len(bets)
        assert found[t] == pytest.approx(total, rel=1e-9)


def test_capital_starts_later_where_windows_were_dropped(rng):
    counts = rng.integers(0, 9, (3, 4))
    gains = log_gains(counts, [above(KNOWN, REJECTED, 0.1, 0.01)])
    all_, kept = (np.exp(log_capital(gains, [7, 8, 9], first=first)) for first in (1, 7))
    assert (kept < all_).all()


@pytest.mark.parametrize("rho", [0.0, 0.05, 0.1])
def test_the_limit_payoff_is_fair_up_to_the_limit(rho):
    payoff = above(KNOWN, REJECTED, 0.1, 0.01)
    assert payoff.min() == pytest.approx(-1.0)
    assert KNOWN.mean(payoff, rho) <= 1e-12
    assert KNOWN.mean(payoff, 0.2) > 0.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_residual_payoff_is_fair_for_every_share(sign):
    payoff = unexplained(KNOWN, sign * np.array([1.0, 0.0, 0.0, 0.0]), REJECTED, 0.01)
    assert payoff.min() == pytest.approx(-1.0)
    for rho in (0.0, 0.3, 1.0):
        assert KNOWN.mean(payoff, rho) == pytest.approx(0.0, abs=1e-12)
    drifted = np.array([0.6 + 0.1 * sign, 0.3 - 0.1 * sign, 0.08, 0.02])
    assert drifted @ payoff > 0.0


@pytest.mark.parametrize("rho_max", [1.0, 5.0])
def test_margins_cover_the_errors_of_the_samples(rng, rho_max):
    """True means are positive for some rho in at most 1 % of references; 4 % of 500 would be 6.7 standard errors more."""
    mixture = (1 - 1 / rho_max) * P + U / rho_max
    bad = 0
    for _ in range(500):
        p, u = rng.multinomial(800, P) / 800, rng.multinomial(600, mixture) / 600
        payoff = unexplained(Laws(p, u, 800, 600, rho_max), np.array([1.0, 0.0, 0.0, 0.0]), REJECTED, 0.01)
        truth = Laws(P, mixture, np.inf, np.inf, rho_max)
        bad += max(truth.mean(payoff, rho) for rho in (0.0, 0.5, 1.0, rho_max)) > 0.0
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
        mean += np.prod(law[list(rows)]) * np.exp(log_capital(log_gains(counts, [payoff]), [1, 2])[-1])
    assert mean == pytest.approx(1 / 2 + 1 / 6, rel=1e-9)  # shares of the two windows that have begun


def test_the_beginning_is_found(rng):
    counts = np.concatenate([rng.multinomial(300, P, size=20), rng.multinomial(300, 0.7 * P + 0.3 * U, size=6)])
    gains = log_gains(counts, [above(KNOWN, REJECTED, 0.05, 0.01)])
    assert abs(likely_begin(gains, np.arange(1, 27)) - 20) <= 1
