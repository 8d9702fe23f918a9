"""Does the monitor keep its word? Coverage of OOD shares over a year, false alarms, and days until a change is noticed.

The world is finite: 2,500 kinds of input with exact shares under ID and OOD, so that windows are multinomial counts and the
truth is known, class by class. The reference is drawn anew in every run. Run with ``python -m benchmarks monitor_alarms``.
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
from poscod.monitor._estimate import estimate
from poscod.monitor._partitions import codes
from poscod.monitor._sequential import watches
from poscod.problem import ScodProblem
from poscod.ratio import CorrectedSigmoid
from poscod.rule import Promise, Rule
from poscod.theory import GaussianWorld

PROBLEM = ScodProblem(alpha=0.3, tpr_min=0.95)
DAYS = 365
CODES = ("PSC001", "PSC002", "PSC003", "PSC012")


class World(NamedTuple):
    """Kinds of input: what the rule says of each, their shares in each class and under OOD, and the class mix of the labeled rows."""

    label: Any
    risk: Any
    log_ratio: Any
    score: Any
    by_class: Any
    q: Any
    mix: Any

    def decisions(self, kinds: Any, threshold: float) -> Decisions:
        """Decide on kinds of input."""
        accept = self.score[kinds] <= threshold
        reason = rejection_reason(self.risk[kinds], self.score[kinds], accept)
        return Decisions(self.label[kinds], accept, reason, self.risk[kinds], self.log_ratio[kinds], self.score[kinds])

    def laws(self, reference: Reference, name: str) -> Any:
        """Exact shares of the cells of a partition in each class, and, in the last row, under OOD."""
        everything = self.decisions(np.arange(len(self.q)), reference.cells.threshold)
        code = codes(everything, reference.cells)[name]
        size = len(reference.layouts[name].answer)
        return np.stack([np.bincount(code, weights=w, minlength=size) for w in (*self.by_class, self.q)])

    def draw(self, n: int, pi: float, rng: Any) -> tuple[Any, Any]:
        """Kinds and classes of n rows; the number of classes marks OOD."""
        y = np.where(rng.random(n) < pi, len(self.mix), rng.choice(len(self.mix), n, p=self.mix))
        kinds = np.empty(n, dtype=np.int64)
        for k, law in enumerate((*self.by_class, self.q)):
            kinds[y == k] = rng.choice(len(law), int((y == k).sum()), p=law)
        return kinds, y


def make_world(distance: float = 3.0, classes: int = 2) -> World:
    """Two classes, or more on a circle with OOD inputs beside the first two, which are rejected most."""
    if classes == 2:
        world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, distance]], weight_id=[0.7, 0.3])
    else:
        turn, radius = 2 * np.pi * np.arange(classes) / classes, max(2.5, 1.4 * classes / np.pi)
        weight = np.arange(classes, 0.0, -1.0) + 2.0
        means = radius * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        world = GaussianWorld(means, [[radius + distance - 0.4, 1.0]], weight_id=weight / weight.sum())
    how = "quadrature" if classes <= 10 else "monte_carlo"
    X, finite = world.discretise(size=2500, method=how, random_state=0)
    rng = np.random.default_rng(0)
    log_ratio = world.log_ratio(X) + 1e-6 * rng.standard_normal(len(X))  # no ties: grids are symmetric
    risk = world.conditional_risk(X, PROBLEM)
    score = risk + PROBLEM.beta * np.exp(log_ratio)
    joint = finite.p_id[:, None] * world.posterior(X)
    mix = joint.sum(axis=0)
    return World(joint.argmax(axis=1), risk, log_ratio, score, (joint / mix).T, finite.p_ood, mix / mix.sum())


def draw_reference(world: World, m: int, n: int, rng: Any, pi: float = 1.0, *, known_share: bool = True) -> Reference:
    """Draw m calibration rows, which set the threshold, and n clean OOD rows, or traffic whose OOD share pi is known or estimated."""
    known, y = world.draw(m, 0.0, rng)
    threshold = float(np.sort(world.score[known])[math.ceil(PROBLEM.tpr_min * m) - 1])
    mixed, _ = world.draw(n, pi, rng)
    return Reference.from_decisions(
        world.decisions(known, threshold),
        y,
        world.decisions(mixed, threshold),
        prior=Interval(pi, pi, pi, 0.95)
        if known_share
        else estimate_share(world.log_ratio[known], world.log_ratio[mixed], 0.95),
        source="ood" if pi == 1.0 else "unlabeled",
        rule=Rule(PROBLEM, PROBLEM.beta, threshold, Promise("tpr", PROBLEM.tpr_min), m),
        classes=list(range(len(world.mix))),
        created="2026-01-01",
    )


def windows_of(laws: Any, pi: Any, mixes: Any, n: int, rng: Any) -> Any:
    """Draw counts of windows with the shares pi and the class mixes."""
    law = np.column_stack([(1 - pi)[:, None] * mixes, pi]) @ laws
    return rng.multinomial(n, law / law.sum(axis=1, keepdims=True))


def capital_of(
    world: World, reference: Reference, pi: Any, n: int, limit: float, rng: Any, codes: Any = CODES, mixes: Any = None
) -> dict[str, Any]:
    """Capital minus what an alarm needs, day by day, with the shares pi and the class mixes."""
    kept, out = watches(reference, limit, 0.05), {}
    mixes = np.tile(world.mix, (len(pi), 1)) if mixes is None else mixes
    for code in codes:
        gains = [
            log_gains(windows_of(world.laws(reference, name), pi, mixes, n, rng), payoffs)
            for name, payoffs in kept[code].payoffs.items()
            if payoffs
        ]
        out[code] = np.full(len(pi), -np.inf)
        if gains:
            out[code] = log_capital(np.concatenate(gains, axis=1), np.arange(len(pi))) + math.log(kept[code].alpha)
    return out


def wobble(world: World, days: int, rng: Any, strength: float = 0.5) -> Any:
    """Return a class mix that comes back every week: classes have phases of their own."""
    phase = rng.random(len(world.mix))
    mixes = world.mix * np.exp(strength * np.sin(2 * np.pi * (np.arange(days)[:, None] / 7 + phase)))
    return mixes / mixes.sum(axis=1, keepdims=True)


WOBBLES = (
    (2, 2000, 1000, 1.0),
    (2, 2000, 2000, 0.2),
    (3, 2000, 1000, 1.0),
    (5, 2000, 1000, 1.0),
    (10, 2000, 1000, 1.0),
    (10, 5000, 1000, 1.0),
)
"""Classes, ID rows of the reference, rows of the second sample and their OOD share."""


def wobble_table(runs: int, settings: Any = WOBBLES) -> None:
    print("\nStreams of 120 windows of 1,000 decisions, OOD share = limit = 5 %, the class mix wobbles by week")
    print("Then, in as many streams, the mix changes for good (Dirichlet) and the OOD share jumps to 10 % at once")
    print(
        "| classes | reference (ID, second sample) | streams | "
        + " | ".join(CODES)
        + " | lowest TPR of a window | jump found in 60 windows | windows until then, median (90 %) |"
    )
    print("|---|---|---|" + "---|" * (len(CODES) + 3))
    for classes, m, n_ood, prior in settings:
        streams = runs if classes <= 3 else max(1, runs // 5)  # more classes take more time
        world, rng = make_world(classes=classes), np.random.default_rng(4)
        alarms, delays, lowest = np.zeros(len(CODES)), [], []
        for _ in range(streams):
            reference = draw_reference(world, m, n_ood, rng, prior)
            mixes = wobble(world, 120, rng)
            capital = capital_of(world, reference, np.full(120, 0.05), 1000, 0.05, rng, mixes=mixes)
            alarms += [capital[code].max() >= 0.0 for code in CODES]
            accepted = world.laws(reference, "label")[:-1, :-1].sum(axis=1)
            lowest.append((mixes @ accepted).min())
            mixes = np.repeat([world.mix, rng.dirichlet(np.ones(classes))], [20, 60], axis=0)
            pi = np.repeat([0.05, 0.1], [20, 60])
            capital = capital_of(world, reference, pi, 1000, 0.05, rng, ("PSC001",), mixes)
            late = np.flatnonzero(capital["PSC001"][20:] >= 0.0)
            delays.append(late[0] + 1 if len(late) else np.inf)
        found = np.isfinite(delays)
        second = f"{n_ood} clean OOD" if prior == 1.0 else f"{n_ood} of traffic, {prior:.0%} OOD"
        print(
            f"| {classes} | {m}, {second} | {streams} | "
            + " | ".join(f"{a:.0f}" for a in alarms)
            + f" | {np.mean(lowest):.3f} | {found.mean():.0%} | {np.quantile(delays, 0.5, method='inverted_cdf'):.0f} ({np.quantile(delays, 0.9, method='inverted_cdf'):.0f}) |",
            flush=True,
        )


def mix_coverage_table(runs: int) -> None:
    print(
        f"\nCoverage and mean width of nominal 95 % intervals, {runs} references, five windows each with class mixes from Dirichlet(1)"
    )
    print(
        "| classes | ID rows | rows per window | OOD share | OOD share covered | width | class share covered | width |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for classes, m in ((2, 2000), (5, 2000), (10, 3000)):
        world = make_world(classes=classes)
        for n in (50, 1000, 20000):
            for share in (0.0, 0.05, 0.3):
                rng, hits, widths = np.random.default_rng(5), np.zeros(2), np.zeros(2)
                for _ in range(runs):
                    reference = draw_reference(world, m, 1000, rng)
                    mixes, pi = rng.dirichlet(np.ones(classes), 5), np.full(5, share)
                    ratio = windows_of(world.laws(reference, "ratio"), pi, mixes, n, rng)
                    found = estimate(reference, ratio, labels_of(reference, ratio), 0.95)
                    for i, (part, truth) in enumerate(((found.pi, pi), (found.mix, mixes))):
                        hits[i] += np.mean((part.low <= truth) & (truth <= part.high))
                        widths[i] += np.mean(part.high - part.low)
                a, b = hits / runs
                wide, wider = widths / runs
                print(
                    f"| {classes} | {m} | {n} | {share:.0%} | {a:.3f} | {wide:.3f} | {b:.3f} | {wider:.3f} |",
                    flush=True,
                )


def labels_of(reference: Reference, ratio: Any) -> Any:
    """Return counts of accepted answers, from those of log g by answers."""
    layout, k = reference.layouts["ratio"], len(reference.cells.classes)
    accepted = [ratio[:, (layout.answer == a) & ~layout.rejected].sum(axis=1) for a in range(k + 1)]
    return np.column_stack([*accepted, ratio[:, layout.rejected].sum(axis=1)])


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
        "| OOD share | rows per window | reference (ID, OOD rows) | from acceptance | mean width | from the ratio | mean width |"
    )
    print("|---|---|---|---|---|---|---|")
    day = np.arange(DAYS)
    for name, pattern in PATTERNS.items():
        for n, m, n_ood in SETTINGS:
            rng = np.random.default_rng(1)
            pi, hits, widths = pattern(day), np.zeros(2), np.zeros(2)
            for _ in range(runs):
                reference = draw_reference(world, m, n_ood, rng)
                counts = windows_of(world.laws(reference, "ratio"), pi, np.tile(world.mix, (DAYS, 1)), n, rng)
                found = estimate(reference, counts, labels_of(reference, counts), 0.95)
                shares = found.pi_count, found.pi
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


SECOND = {
    "500 clean OOD rows": {"n": 500},
    "2,000 of traffic, 20 % OOD, estimated": {"n": 2000, "pi": 0.2, "known_share": False},
    "none": {"n": 0, "pi": 0.0, "known_share": False},
}
"""What the reference knows of OOD inputs."""
STEPS = ((0.02, 0.05), (0.02, 0.10), (0.02, 0.25), (0.03, 0.25))
PAST = ("PSC014", "PSC015", "PSC016")


def stream(world: World, reference: Reference, pi: Any, n: int, rng: Any, mixes: Any = None) -> Monitor:
    """Count windows of n decisions with the shares pi and the class mixes."""
    monitor = Monitor(reference, window=1.0)
    laws = np.stack([*world.by_class, world.q])
    mixes = np.tile(world.mix, (len(pi), 1)) if mixes is None else mixes
    law = np.column_stack([(1 - pi)[:, None] * mixes, pi]) @ laws
    for day, share in enumerate(law):
        kinds = rng.choice(len(share), n, p=share / share.sum())
        monitor.update(world.decisions(kinds, reference.cells.threshold), at=float(day))
    return monitor


def past_table(runs: int) -> None:
    """Print how soon a rise is seen against the stream's own past (PSC014), beside the limit (PSC001)."""
    print(
        f"\n18 windows of 500 decisions, then 30 after a step; limit 10 %, 3,000 ID rows in the reference; {runs} runs"
    )
    print("found within 3 windows, median delay (90 %) of PSC014; of PSC001; other alarms of the past before the step")
    print("| classes | what is known of OOD inputs | step | PSC014 | PSC001 | alarms before |")
    print("|---|---|---|---|---|---|")
    for classes, distance in ((2, 3.0), (26, 1.6)):
        world = make_world(distance, classes)
        for name, second in SECOND.items():
            for low, high in STEPS:
                rng, delays, early = np.random.default_rng(5), {"PSC014": [], "PSC001": []}, 0
                for _ in range(runs):
                    reference = draw_reference(world, 3000, rng=rng, **second)
                    found = stream(world, reference, np.repeat([low, high], [18, 30]), 500, rng).findings()
                    first = {f.code: f.evidence["first_alarm"] - 17.0 for f in found if "first_alarm" in f.evidence}
                    for code, values in delays.items():
                        values.append(first.get(code, np.inf))
                    early += any(first.get(code, 1.0) < 1.0 for code in PAST)
                cells = []
                for values in delays.values():
                    middle, most = (np.quantile(values, q, method="inverted_cdf") for q in (0.5, 0.9))
                    cells.append(f"{np.mean(np.array(values) <= 3):.0%}, {middle:.0f} ({most:.0f})")
                print(
                    f"| {classes} | {name} | {low:.0%} to {high:.0%} | " + " | ".join(cells) + f" | {early} |",
                    flush=True,
                )


def calm_table(runs: int) -> None:
    """Print how often a calm stream raises an alarm against its own past."""
    print(f"\nStreams of 120 windows of 500 decisions without a step, 3 % OOD, {runs} runs: alarms")
    print("| classes | class mix | what is known of OOD inputs | " + " | ".join(PAST) + " |")
    print("|---|---|---|" + "---|" * len(PAST))
    for classes in (2, 5, 26):
        world = make_world(classes=classes)
        for mix in ("stays", "wobbles by week", "changes once (Dirichlet)"):
            for name in ("500 clean OOD rows", "none"):
                rng, alarms = np.random.default_rng(6), dict.fromkeys(PAST, 0)
                for _ in range(runs):
                    reference = draw_reference(world, 3000, rng=rng, **SECOND[name])
                    mixes = np.tile(world.mix, (120, 1)) if mix == "stays" else wobble(world, 120, rng)
                    if mix.startswith("changes"):
                        mixes = np.repeat([world.mix, rng.dirichlet(np.ones(classes))], [40, 80], axis=0)
                    for found in stream(world, reference, np.full(120, 0.03), 500, rng, mixes).findings():
                        if found.code in alarms:
                            alarms[found.code] += 1
                print(
                    f"| {classes} | {mix} | {name} | " + " | ".join(f"{a}" for a in alarms.values()) + " |", flush=True
                )


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
    past_table(2 if quick else 100)
    calm_table(1 if quick else 200)
    wobble_table(5 if quick else 1000)
    mix_coverage_table(2 if quick else 100)
    delay_table(world, 5 if quick else 100)
    alarm_table(world, 5 if quick else 1000)
    coverage_table(world, 2 if quick else 50)
    second_sample_table(2 if quick else 200)


if __name__ == "__main__":
    main()
