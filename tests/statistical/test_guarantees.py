"""Promised probabilities, counted: every promise is checked by an exact calculation where there is one, and by simulation.

Seeds are fixed, so a test either always passes or always fails on given code. The rates below say how often right code would
fail with a fresh seed. ``at_most(count, n, p)`` fails with probability below 3.2e-5 if the true rate is p (four standard errors
above), ``about(count, n, p)`` with probability below 6.4e-5 if it is exactly p.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from poscod.exceptions import InfeasibleProblemError
from poscod.selector import (
    RISK_CONTROL,
    certified_tpr,
    fpr_bound,
    guaranteed_threshold,
    risk_controlled_threshold,
    rows_needed,
    selective_risk_bound,
    tpr_threshold,
    unlabeled_ausrt,
    unlabeled_fpr,
    unlabeled_scod_curve,
)

DELTA = 0.05
DRAWS = 2000


def at_most(count: int, n: int, p: float) -> bool:
    return bool(count / n <= p + 4.0 * math.sqrt(p * (1.0 - p) / n))


def about(count: int, n: int, p: float, slack: float = 0.0) -> bool:
    return bool(abs(count / n - p) <= slack + 4.0 * math.sqrt(p * (1.0 - p) / n))


# --- TPR ----------------------------------------------------------------------------------------------------------------

CONFIGURATIONS = list(itertools.product([60, 300, 2000], [0.8, 0.95, 0.99]))


@pytest.mark.parametrize(("m", "share"), CONFIGURATIONS)
@pytest.mark.parametrize("levels", [None, 7, 40], ids=["continuous", "7 values", "40 values"])
def test_guaranteed_tpr_holds_as_often_as_promised(m, share, levels):
    """2,000 calibrations each; the share that holds is also the one that exact arithmetic gives (both within 4 sigma)."""
    if m < rows_needed(share, delta=DELTA):
        with pytest.raises(InfeasibleProblemError, match=f"needs at least {rows_needed(share, delta=DELTA)}"):
            guaranteed_threshold(np.arange(m), share, delta=DELTA)
        assert (m, share) == (60, 0.99)
        return
    rng = np.random.default_rng([m, round(100 * share), levels or 0])
    held = 0
    for _ in range(DRAWS):
        score = rng.random(m) if levels is None else rng.integers(levels, size=m)
        chosen = guaranteed_threshold(score, share, delta=DELTA)
        tpr = chosen.threshold if levels is None else (chosen.threshold + 1.0) / levels
        held += tpr >= share
    below = share if levels is None else (math.ceil(share * levels) - 1) / levels  # P(s < q), q the quantile of s
    exact = 1.0 - special.betainc(chosen.rank, m - chosen.rank + 1, below)
    assert exact >= 1.0 - DELTA
    assert exact >= chosen.confidence - 1e-12
    assert about(held, DRAWS, exact, slack=1e-9)
    assert at_most(DRAWS - held, DRAWS, DELTA)


@pytest.mark.parametrize(("m", "share"), CONFIGURATIONS)
def test_plain_order_statistic_misses_in_about_half_of_all_draws(m, share):
    """Counted, and by the Beta law of an order statistic; the guarantee is what removes it."""
    rng = np.random.default_rng(m)
    missed = sum(tpr_threshold(rng.random(m), share).threshold < share for _ in range(DRAWS))
    k = math.ceil(share * m - 1e-9)
    exact = special.betainc(k, m - k + 1, share)
    assert about(missed, DRAWS, exact)
    assert 0.45 < exact < 0.66


@pytest.mark.parametrize("n", [1, 17, 60, 300])
def test_certificates_cover_exactly(n):
    """No simulation: the probability that a bound is wrong, summed over all counts, for 200 true rates."""
    counts = np.arange(n + 1)
    low = np.array([certified_tpr(int(k), n, delta=DELTA) for k in counts])
    high = np.array([fpr_bound(int(k), n, delta=DELTA) for k in counts])
    for rate in np.linspace(0.003, 0.997, 200):
        mass = stats.binom.pmf(counts, n, rate)
        assert mass[low > rate].sum() <= DELTA + 1e-12
        assert mass[high < rate].sum() <= DELTA + 1e-12


# --- selective risk at a given rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 25])
def test_bounded_loss_bound_covers_exactly(n):
    """Losses 0, 1/2, 1: all outcomes of n rows, weighted by their probability, for several laws with the same support."""
    outcomes = [(a, b) for a in range(n + 1) for b in range(n + 1 - a)]
    bound = np.array(
        [selective_risk_bound(np.repeat([1.0, 0.5, 0.0], [a, b, n - a - b]), loss_max=1.0) for a, b in outcomes]
    )
    counts = np.array([(a, b, n - a - b) for a, b in outcomes])
    for one, half in [(0.01, 0.0), (0.0, 0.1), (0.1, 0.3), (0.3, 0.3), (0.0, 0.9), (0.6, 0.4)]:
        mass = stats.multinomial.pmf(counts, n, [one, half, 1.0 - one - half])
        assert mass[bound < one + half / 2 - 1e-12].sum() <= DELTA


def test_bound_below_an_order_statistic_of_the_same_rows():
    """The rows strictly below lambda are independent draws of s < lambda: the bound at the guaranteed threshold covers."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(DRAWS):
        score = rng.random(150)
        loss = (rng.random(150) < 0.4 * score).astype(float)
        threshold = guaranteed_threshold(score, 0.8).threshold
        wrong += selective_risk_bound(loss[score < threshold]) < 0.2 * threshold
    assert at_most(wrong, DRAWS, DELTA)


# --- risk control -----------------------------------------------------------------------------------------------------------


class Steps:
    """Scores uniform on [0, 1), or the number of the step; the risk is constant on each of the steps."""

    def __init__(self, risk, *, discrete=False, mass=None, bounded=False):
        self.risk, self.discrete, self.bounded = np.asarray(risk, dtype=float), discrete, bounded
        self.mass = np.full(len(risk), 1.0 / len(risk)) if mass is None else np.asarray(mass, dtype=float)
        self.edge = np.append(0.0, np.cumsum(self.mass))
        self.lost = np.append(0.0, np.cumsum(self.mass * self.risk))

    def draw(self, rng, m):
        uniform = rng.random(m)
        step = np.minimum(np.searchsorted(self.edge, uniform, side="right") - 1, len(self.mass) - 1)
        risk = self.risk[step]
        # Bounded losses: half of the risk comes from losses of 1, half from losses of 1/4.
        losses = [0.25, 1.0] if self.bounded else [1.0]
        loss, cut = np.zeros(m), rng.random(m)
        start = np.zeros(m)
        for value in losses:
            width = risk / len(losses) / value
            loss[(cut >= start) & (cut < start + width)] = value
            start += width
        return (step.astype(float) if self.discrete else uniform), loss

    def selective_risk(self, threshold):
        if self.discrete:
            last = int(np.clip(np.floor(threshold), -1, len(self.mass) - 1)) + 1
            return self.lost[last] / self.edge[last]
        threshold = min(threshold, 1.0)
        return np.interp(threshold, self.edge, self.lost) / threshold


RISK = 0.1
BARELY = RISK * 1.0001
# Cumulative risk that crosses 0.1 again and again: dear and free steps in turn.
WAVES = np.tile([0.22, 0.0], 10)
WAVES[0] = 0.1
# Well below 0.1, above it, below it again, above it at the end: the walk gets there and must not step on the hump.
HUMP = np.repeat([0.03, 0.6, 0.0, 0.3], [10, 2, 4, 4])
WORLDS = {
    "barely too high everywhere": Steps([BARELY]),
    "growing": Steps(np.linspace(0.0, 0.4, 20)),
    "steep": Steps(np.repeat([0.02, 0.5], [6, 4])),
    "waves": Steps(WAVES),
    "hump": Steps(HUMP),
    "worst at the strict end": Steps([0.35, 0.05, 0.02, 0.02, 0.02, 0.25, 0.25]),
    "barely too high, bounded losses": Steps([BARELY], bounded=True),
    "steep, bounded losses": Steps(np.repeat([0.01, 0.4], [6, 4]), bounded=True),
    "hump, bounded losses": Steps(np.repeat([0.01, 0.38, 0.0, 0.35], [8, 4, 4, 4]), bounded=True),
    "hump of ties": Steps([0.03, 0.6, 0.0, 0.3], discrete=True, mass=[0.5, 0.1, 0.2, 0.2]),
    "fine ties": Steps(HUMP, discrete=True),
    "rare ties": Steps([0.02, 0.12, 0.9, 0.0, 0.9, 0.5], discrete=True, mass=[0.5, 0.2, 0.06, 0.1, 0.004, 0.136]),
    "saturated": Steps([0.102, 0.09, 0.11, 0.12], discrete=True, mass=[0.6, 0.1, 0.1, 0.2]),
    "ties, bounded losses": Steps([0.01, 0.1, 0.4], discrete=True, mass=[0.5, 0.2, 0.3], bounded=True),
}
MOSTLY_FEASIBLE = {name for name in WORLDS if name.split()[0].strip(",") in ("steep", "hump", "fine", "rare")}


@pytest.mark.parametrize("method", RISK_CONTROL)
@pytest.mark.parametrize("name", WORLDS)
def test_controlled_risk_is_exceeded_no_more_often_than_promised(name, method):
    """2,000 calibrations in worlds with monotone and non-monotone risk, ties, and losses between 0 and 1."""
    world, m = WORLDS[name], 300
    rng = np.random.default_rng([len(name), m])
    loss_max = 1.0 if world.bounded else None
    broken = found = 0
    for _ in range(DRAWS):
        score, loss = world.draw(rng, m)
        try:
            chosen = risk_controlled_threshold(score, loss, RISK, delta=DELTA, method=method, loss_max=loss_max)
        except InfeasibleProblemError:
            continue
        found += 1
        broken += world.selective_risk(chosen.threshold) > RISK + 1e-12
    assert at_most(broken, DRAWS, DELTA)
    if name in MOSTLY_FEASIBLE and method == "fixed_sequence":  # a rule that always refuses breaks no promise either
        assert found > DRAWS / 2


@pytest.mark.parametrize("name", ["hump", "fine ties", "barely too high everywhere"])
def test_controlled_risk_on_a_grid(name):
    world, m = WORLDS[name], 250
    rng = np.random.default_rng(m)
    grid = np.arange(6, 20) if world.discrete else np.linspace(0.3, 1.0, 36)
    broken = 0
    for _ in range(DRAWS):
        score, loss = world.draw(rng, m)
        try:
            chosen = risk_controlled_threshold(score, loss, RISK, delta=DELTA, grid=grid)
        except InfeasibleProblemError:
            continue
        broken += world.selective_risk(chosen.threshold) > RISK + 1e-12
    assert at_most(broken, DRAWS, DELTA)


def test_the_level_is_used_up_in_the_worst_case():
    """With the risk barely too high everywhere and one start, the first test decides: its exact size is nearly spent."""
    world, m, start = WORLDS["barely too high everywhere"], 200, 150
    rng = np.random.default_rng(9)
    broken = 0
    for _ in range(DRAWS):
        try:
            broken += risk_controlled_threshold(*world.draw(rng, m), RISK, delta=DELTA, start=start).n_accepted > 0
        except InfeasibleProblemError:
            continue
    errors = np.arange(start + 1)
    size = stats.binom.pmf(errors, start, BARELY)[stats.binom.cdf(errors, start, RISK) <= DELTA].sum()
    assert 0.02 < size <= DELTA
    assert about(broken, DRAWS, size)


def test_picking_the_loosest_threshold_by_its_own_bound_breaks_the_promise():
    """The shortcut that the sequence avoids: the bound at each threshold is right, the best of all of them is not."""
    world, m = WORLDS["barely too high everywhere"], 250
    rng = np.random.default_rng(3)
    broken = 0
    for _ in range(DRAWS):
        score, loss = world.draw(rng, m)
        errors = np.cumsum(loss[np.argsort(score)])
        broken += (stats.binom.cdf(errors, np.arange(1, m + 1), RISK) <= DELTA).any()
    assert broken / DRAWS > 3 * DELTA


def test_fixed_sequence_covers_more_than_sgr():
    world = WORLDS["growing"]
    rng = np.random.default_rng(2)
    covered = {method: [] for method in RISK_CONTROL}
    for _ in range(200):
        score, loss = world.draw(rng, 1000)
        for method in RISK_CONTROL:
            try:
                covered[method].append(risk_controlled_threshold(score, loss, RISK, method=method).tpr)
            except InfeasibleProblemError:
                covered[method].append(0.0)
    gain = np.subtract(covered["fixed_sequence"], covered["sgr"])
    assert gain.mean() > 4.0 * gain.std() / math.sqrt(len(gain))


# --- without OOD labels -----------------------------------------------------------------------------------------------------

LABEL_FREE = [
    # pi, standard error of pi, T, F
    (0.02, 0.0, 0.95, 0.4),
    (0.05, 0.0, 0.95, 0.3),
    (0.1, 0.0, 0.8, 0.02),
    (0.5, 0.0, 0.99, 0.7),
    (0.1, 0.01, 0.95, 0.3),
    (0.1, 0.03, 0.95, 0.3),
    (0.3, 0.08, 0.9, 0.05),
    (0.3, 0.02, 0.5, 0.6),
    (0.9, 0.02, 0.95, 0.1),
]


@pytest.mark.parametrize(("pi", "error", "tpr", "fpr"), LABEL_FREE)
def test_label_free_fpr_interval_covers_at_its_level(pi, error, tpr, fpr):
    """2,000 draws; the interval is asymptotic, so its true level may be off by 0.01 besides the 4 sigma of counting."""
    m, n = 1000, 3000
    rng = np.random.default_rng([round(1e4 * v) for v in (pi, error, tpr, fpr)])
    accepted = (1.0 - pi) * tpr + pi * fpr
    covered = 0
    for k, j, p in zip(
        rng.binomial(m, tpr, DRAWS), rng.binomial(n, accepted, DRAWS), rng.normal(pi, error, DRAWS), strict=True
    ):
        got = unlabeled_fpr(int(k), m, int(j), n, float(np.clip(p, 0.0, 1.0)), pi_variance=error**2)
        covered += got.low <= fpr <= got.high
    assert about(covered, DRAWS, 0.95, slack=0.01)


def test_delta_method_would_cover_too_little():
    """Where pi is uncertain by 0.4 pi: 91 % by the delta method, 95 % by Fieller's interval (4 sigma and 0.01 each)."""
    m, n, pi, error, tpr, fpr = 1000, 3000, 0.1, 0.04, 0.95, 0.3
    rng = np.random.default_rng(8)
    rows = rng.binomial(m, tpr, DRAWS), rng.binomial(n, (1.0 - pi) * tpr + pi * fpr, DRAWS)
    covered = np.zeros(2)
    for k, j, p in zip(*rows, rng.normal(pi, error, DRAWS), strict=True):
        got = unlabeled_fpr(int(k), m, int(j), n, float(np.clip(p, 1e-6, 1.0)), pi_variance=error**2)
        covered += abs(got.unclipped - fpr) <= 1.96 * got.standard_error, got.low <= fpr <= got.high
    assert about(int(covered[0]), DRAWS, 0.91, slack=0.01)
    assert about(int(covered[1]), DRAWS, 0.95, slack=0.01)


@pytest.mark.parametrize("fpr", [0.0, 0.3, 0.9])
def test_label_free_fpr_with_the_prior_from_the_same_rows(fpr):
    """pi = 1 - A/T at a strict threshold that no OOD row passes, on the same rows: the errors offset each other.

    Never below the level (4 sigma and 0.01 for asymptotics).
    """
    m, n, pi, strict, loose = 1500, 3000, 0.2, 0.6, 0.95
    rng = np.random.default_rng(round(10 * fpr))
    id_cells = [strict, loose - strict, 1.0 - loose]
    mixture_cells = (1.0 - pi) * np.array(id_cells) + pi * np.array([0.0, fpr, 1.0 - fpr])
    covered = 0
    for i, u in zip(rng.multinomial(m, id_cells, DRAWS), rng.multinomial(n, mixture_cells, DRAWS), strict=True):
        t, a = i[0] / m, u[0] / n
        estimate = 1.0 - a / t
        variance = (a * (1.0 - a) / n + (a / t) ** 2 * t * (1.0 - t) / m) / t**2
        got = unlabeled_fpr(int(i[:2].sum()), m, int(u[:2].sum()), n, max(0.0, estimate), pi_variance=variance)
        covered += got.low <= fpr <= got.high
    assert at_most(DRAWS - covered, DRAWS, 0.06)


def test_upper_bound_for_every_prior_covers_where_the_rule_prefers_id():
    """F <= A: the exact bound of A fails to cover F less often than it fails to cover A."""
    rng = np.random.default_rng(0)
    n, tpr, fpr, pi = 400, 0.9, 0.85, 0.9
    accepted = (1.0 - pi) * tpr + pi * fpr
    wrong = sum(unlabeled_fpr(360, 400, int(j), n, 0.5).upper_any_prior < fpr for j in rng.binomial(n, accepted, DRAWS))
    assert at_most(wrong, DRAWS, DELTA)


ALPHA, SLOPE, SHIFT = 0.3, 0.3, 1.5
OOD_ACCEPTED = 1.0 - stats.norm.cdf(SHIFT / math.sqrt(2.0))  # 1 - AUROC


def draw_normal_world(rng, m, n, pi):
    """ID scores standard normal with risk SLOPE * Phi(s), so that R_S = SLOPE * TPR / 2; OOD scores shifted."""
    score = rng.normal(size=m)
    loss = (rng.random(m) < SLOPE * stats.norm.cdf(score)).astype(float)
    return score, loss, rng.normal(size=n) + SHIFT * (rng.random(n) < pi)


def test_label_free_curve_covers_the_true_risk():
    """500 draws of an exact world: F and the SCOD risk of the rule at its own threshold, both at the level (4 sigma, 0.01)."""
    rng = np.random.default_rng(1)
    targets, pi, error, draws = [0.3, 0.8, 0.95], 0.25, 0.02, 500
    covered = np.zeros((2, len(targets)))
    for _ in range(draws):
        p = float(np.clip(rng.normal(pi, error), 0.0, 1.0))
        curve = unlabeled_scod_curve(
            *draw_normal_world(rng, 1500, 3000, pi), p, alpha=ALPHA, tpr=targets, pi_variance=error**2
        )
        tpr, fpr = stats.norm.cdf(curve.threshold), stats.norm.cdf(curve.threshold - SHIFT)
        risk = (1.0 - ALPHA) * SLOPE * tpr / 2.0 + ALPHA * fpr
        covered[0] += (curve.fpr_low <= fpr) & (fpr <= curve.fpr_high)
        covered[1] += (curve.risk_low <= risk) & (risk <= curve.risk_high)
    assert all(about(int(count), draws, 0.95, slack=0.01) for count in covered.ravel())


def test_label_free_area_is_unbiased_and_its_interval_covers():
    """200 draws of an exact world: the mean within 4 standard errors and the strip 1/m, coverage within 4 sigma and 0.02."""
    rng = np.random.default_rng(4)
    m, n, pi, error, draws = 400, 800, 0.3, 0.03, 200
    truth = (1.0 - ALPHA) * SLOPE / 4.0 + ALPHA * OOD_ACCEPTED
    known, covered = [], 0
    for _ in range(draws):
        arrays = draw_normal_world(rng, m, n, pi)
        known.append(unlabeled_ausrt(*arrays, pi, alpha=ALPHA, n_resamples=1, random_state=0).estimate)
        p = float(rng.normal(pi, error))
        area = unlabeled_ausrt(*arrays, p, alpha=ALPHA, pi_variance=error**2, n_resamples=150, random_state=0)
        covered += area.low <= truth <= area.high
    assert abs(np.mean(known) - truth) <= 4.0 * np.std(known) / math.sqrt(draws) + 1.0 / m
    assert about(covered, draws, 0.95, slack=0.02)
