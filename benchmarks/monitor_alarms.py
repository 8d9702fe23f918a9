"""Does the monitor keep its word? Coverage of OOD shares over a year, false alarms, and days until a change is noticed.

The world is finite: 2,500 kinds of input with exact shares under ID and OOD, so that windows are multinomial counts and the
truth is known. The reference is drawn anew in every run. Run with ``python -m benchmarks monitor_alarms``.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from poscod import POSCOD
from poscod.decision import Decisions, rejection_reason
from poscod.metrics import Interval
from poscod.model import estimate_share
from poscod.monitor import Monitor, Reference
from poscod.monitor._bets import log_capital, log_gains
from poscod.monitor._partitions import codes
from poscod.monitor._sequential import watches
from poscod.monitor._share import adjusted_count, likelihood_share
from poscod.problem import ScodProblem
from poscod.ratio import CorrectedSigmoid
from poscod.rule import Promise, Rule
from poscod.theory import GaussianWorld

PROBLEM = ScodProblem(alpha=0.3, tpr_min=0.95)
DAYS = 365
CODES = ("PSC001", "PSC002", "PSC003", "PSC004")


class World(NamedTuple):
    """Kinds of input: what the rule says of each, and their shares under ID and OOD."""

    label: Any
    risk: Any
    log_ratio: Any
    score: Any
    p: Any
    q: Any

    def decisions(self, kinds: Any, threshold: float) -> Decisions:
        """Decide on kinds of input."""
        accept = self.score[kinds] <= threshold
        reason = rejection_reason(self.risk[kinds], self.score[kinds], accept)
        return Decisions(self.label[kinds], accept, reason, self.risk[kinds], self.log_ratio[kinds], self.score[kinds])

    def laws(self, reference: Reference, name: str) -> tuple[Any, Any]:
        """Exact shares of the cells of a partition under ID and OOD."""
        everything = self.decisions(np.arange(len(self.p)), reference.cells.threshold)
        code = codes(everything, reference.cells)[name]
        size = len(reference.rejected(name))
        return tuple(np.bincount(code, weights=w, minlength=size) for w in (self.p, self.q))


def make_world(distance: float = 3.0) -> World:
    world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, distance]], weight_id=[0.7, 0.3])
    X, finite = world.discretise(size=2500)
    rng = np.random.default_rng(0)
    log_ratio = world.log_ratio(X) + 1e-6 * rng.standard_normal(len(X))  # no ties: grids are symmetric
    risk = world.conditional_risk(X, PROBLEM)
    score = risk + PROBLEM.beta * np.exp(log_ratio)
    return World(world.posterior(X).argmax(axis=1), risk, log_ratio, score, finite.p_id, finite.p_ood)


def draw_reference(world: World, m: int, n: int, rng: Any, pi: float = 1.0, *, known_share: bool = True) -> Reference:
    """Draw m calibration rows, which set the threshold, and n clean OOD rows, or traffic whose OOD share pi is known or estimated."""
    known = rng.choice(len(world.p), m, p=world.p)
    threshold = float(np.sort(world.score[known])[math.ceil(PROBLEM.tpr_min * m) - 1])
    mixed = rng.choice(len(world.p), n, p=(1 - pi) * world.p + pi * world.q)
    return Reference.from_decisions(
        world.decisions(known, threshold),
        rng.random(m) < world.risk[known],
        world.decisions(mixed, threshold),
        prior=Interval(pi, pi, pi, 0.95)
        if known_share
        else estimate_share(world.log_ratio[known], world.log_ratio[mixed], 0.95),
        source="ood" if pi == 1.0 else "unlabeled",
        rule=Rule(PROBLEM, PROBLEM.beta, threshold, Promise("tpr", PROBLEM.tpr_min), m),
        classes=[0, 1],
        created="2026-01-01",
    )


def capital_of(
    world: World, reference: Reference, pi: Any, n: int, limit: float, rng: Any, codes: Any = CODES
) -> dict[str, Any]:
    """Capital minus what an alarm needs, day by day, for a year with the shares pi."""
    kept = watches(reference, limit, 0.05)
    out = {}
    for code in codes:
        gains = []
        for name, payoffs in kept[code].payoffs.items():
            p, q = world.laws(reference, name)
            counts = rng.multinomial(n, np.outer(1 - pi, p) + np.outer(pi, q))
            gains.append(log_gains(counts, payoffs))
        out[code] = log_capital(np.concatenate(gains, axis=1), np.arange(len(pi))) + math.log(kept[code].alpha)
    return out


SETTINGS = ((5000, 500, 200), (50, 2000, 1000), (1000, 2000, 1000), (20000, 2000, 1000), (1000, 20000, 10000))
"""Rows per window, ID rows and OOD rows of the reference."""
PATTERNS = {
    "none": lambda day: np.full(len(day), 0.0),
    "constant 5 %": lambda day: np.full(len(day), 0.05),
    "steps 2 / 20 / 5 %": lambda day: np.select([day < 120, day < 180], [0.02, 0.20], 0.05),
    "season 1 to 11 %": lambda day: 0.06 + 0.05 * np.sin(2 * np.pi * day / 365),
}


def coverage_table(world: World, runs: int) -> None:
    print(f"\nCoverage of nominal 95 % intervals, {runs} years of {DAYS} windows, reference drawn anew for every year")
    print(
        "| OOD share | rows per window | reference (ID, OOD rows) | adjusted count | mean width | likelihood | mean width |"
    )
    print("|---|---|---|---|---|---|---|")
    day = np.arange(DAYS)
    for name, pattern in PATTERNS.items():
        for n, m, n_ood in SETTINGS:
            rng = np.random.default_rng(1)
            pi, hits, widths = pattern(day), np.zeros(2), np.zeros(2)
            for _ in range(runs):
                reference = draw_reference(world, m, n_ood, rng)
                p, q = world.laws(reference, "ratio")
                counts = rng.multinomial(n, np.outer(1 - pi, p) + np.outer(pi, q))
                accepted = counts[:, ~reference.rejected("ratio")].sum(axis=1)
                pairs = [
                    (int(c["label"][:-1].sum()), int(c["label"].sum()))
                    for c in (reference.id_counts, reference.mixed_counts)
                ]
                shares = (
                    adjusted_count(accepted, np.full(DAYS, n), *pairs, reference.prior, 0.95),
                    likelihood_share(
                        counts, reference.id_counts["ratio"], reference.mixed_counts["ratio"], reference.prior, 0.95
                    ),
                )
                hits += [np.mean((s.low <= pi) & (pi <= s.high)) for s in shares]
                widths += [np.mean(s.high - s.low) for s in shares]
            a, b = hits / runs
            print(
                f"| {name} | {n} | {m}, {n_ood} | {a:.3f} | {widths[0] / runs:.3f} | {b:.3f} | {widths[1] / runs:.3f} |",
                flush=True,
            )


def alarm_table(world: World, runs: int) -> None:
    print(
        "\nFalse alarms in stationary years, promised at most 5 % of years (all findings together), reference drawn anew"
    )
    print(
        "| reference (ID, second sample) | rows per window | OOD share = limit | years with any false alarm | "
        + " | ".join(CODES)
        + " |"
    )
    print("|---|---|---|---|" + "---|" * len(CODES))
    for m, n_ood, prior, known_share, n, pi in (
        (500, 200, 1.0, True, 200, 0.05),
        (2000, 1000, 1.0, True, 1000, 0.02),
        (2000, 2000, 0.2, True, 1000, 0.1),
        (2000, 2000, 0.2, False, 1000, 0.1),
        (2000, 1000, 1.0, True, 20000, 0.3),
    ):
        rng = np.random.default_rng(2)
        alarms = np.zeros(len(CODES))
        any_ = 0
        years = runs if known_share else max(1, runs // 10)  # to estimate the share takes a bootstrap
        for _ in range(years):
            reference = draw_reference(world, m, n_ood, rng, prior, known_share=known_share)
            capital = capital_of(world, reference, np.full(DAYS, pi), n, pi, rng)
            hit = [capital[code].max() >= 0.0 for code in CODES]
            alarms += hit
            any_ += any(hit)
        second = "clean OOD" if prior == 1.0 else f"traffic, {prior:.0%} OOD, {'known' if known_share else 'estimated'}"
        print(
            f"| {m}, {n_ood} {second} | {n} | {pi:.0%} | {any_} of {years} | "
            + " | ".join(f"{a:.0f}" for a in alarms)
            + " |",
            flush=True,
        )


def delay_table(world: World, runs: int) -> None:
    print(f"\nWindows until PSC001, after 100 windows at 1 % OOD = limit; {runs} runs; mean (90 % quantile)")
    print("| reference (ID, OOD rows) | rows per window | + 1 % | + 5 % | + 20 % | false alarms before |")
    print("|---|---|---|---|---|---|")
    horizon = 200
    for m, n_ood in ((500, 200), (2000, 1000), (20000, 10000), (200000, 20000)):
        for n in (1000, 10000):
            cells, early = [], 0
            for jump in (0.01, 0.05, 0.20):
                rng = np.random.default_rng(3)
                pi, delays = np.repeat([0.01, 0.01 + jump], [100, horizon]), []
                for _ in range(runs):
                    reference = draw_reference(world, m, n_ood, rng)
                    capital = capital_of(world, reference, pi, n, 0.01, rng, ("PSC001",))["PSC001"]
                    early += int((capital[:100] >= 0.0).any())
                    late = np.flatnonzero(capital[100:] >= 0.0)
                    delays.append(late[0] + 1 if len(late) else np.inf)
                found = np.array(delays)[np.isfinite(delays)]
                if len(found) == runs:
                    cells.append(f"{found.mean():.1f} ({np.quantile(found, 0.9):.0f})")
                else:
                    cells.append(f"{len(found) / runs:.0%} found within {horizon}")
            print(f"| {m}, {n_ood} | {n} | " + " | ".join(cells) + f" | {early} of {3 * runs} |", flush=True)


def second_sample_table(runs: int) -> None:
    """Coverage through a fitted model, whose second sample has an OOD share that is known, estimated, or seen by the ratio."""
    world, pis, size, windows = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 3.0]]), (0.0, 0.03, 0.2), 300, 10
    print(
        f"\nCoverage and mean width by second sample: {runs} models of 1,600 labeled and 1,000 unlabeled rows (20 % OOD)"
    )
    print(f"The calibration rows are 400; {windows} windows of {size} rows each\n")
    print(
        "| second sample | "
        + " | ".join(f"pi = {pi:g}: covered, width" for pi in pis)
        + " |\n|---|"
        + "---|" * len(pis)
    )
    found: dict[tuple[str, float], list[tuple[bool, float]]] = {}
    for seed in range(runs):
        X, y = world.sample_id(1600, random_state=seed)
        model = POSCOD(ratio=CorrectedSigmoid("paper"), tpr_min=0.9, random_state=seed)
        model.fit(X, y, X_unlabeled=world.sample_mixture(1000, 0.2, random_state=10_000 + seed)[0])
        samples: dict[str, dict[str, Any]] = {
            "300 clean OOD rows": {"ood": world.sample_ood(300, random_state=20_000 + seed)},
            "1,000 rows of fresh traffic": {
                "unlabeled": world.sample_mixture(1000, 0.2, random_state=30_000 + seed)[0]
            },
            "the traffic of the fit": {},
        }
        for pi in pis:
            rows = world.sample_id(size * windows, random_state=40_000 + seed)[0]
            if pi > 0.0:
                rows = world.sample_mixture(size * windows, pi, random_state=50_000 + seed)[0]
            decisions = model.decide(rows)
            for name, sample in samples.items():
                monitor = Monitor(Reference.from_model(model, created="2026-03-01", **sample), window=size)
                monitor.update(decisions, at=np.arange(float(len(rows))))
                shares = [window.pi for window in monitor.windows()]
                found.setdefault((name, pi), []).extend((s.low <= pi <= s.high, s.high - s.low) for s in shares)
    for name in samples:
        cells = [np.mean(found[name, pi], axis=0) for pi in pis]
        print(f"| {name} | " + " | ".join(f"{covered:.3f}, {width:.3f}" for covered, width in cells) + " |")


def main(*, quick: bool = False) -> None:
    world = make_world()
    delay_table(world, 5 if quick else 100)
    alarm_table(world, 5 if quick else 1000)
    coverage_table(world, 2 if quick else 50)
    second_sample_table(2 if quick else 200)


if __name__ == "__main__":
    main()
