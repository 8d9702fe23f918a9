"""A class mix that moves is told from OOD inputs: information, not an alarm; false alarms are counted over streams whose mix wobbles."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from poscod import POSCOD
from poscod.decision import Decisions, rejection_reason
from poscod.metrics import Interval
from poscod.model import ClassMixWarning
from poscod.monitor import FINDINGS, Monitor, Reference
from poscod.monitor._bets import log_capital, log_gains
from poscod.monitor._partitions import codes
from poscod.monitor._sequential import watches
from poscod.problem import ScodProblem
from poscod.rule import Promise, Rule
from poscod.theory import GaussianWorld

PROBLEM = ScodProblem(alpha=0.3, tpr_min=0.95)
MIX = np.array([0.5, 0.3, 0.2])
# Three classes; the first is nearest to the OOD inputs, so that it is rejected most.
WORLD = GaussianWorld([[0.0, 0.0], [4.0, 0.0], [2.0, -4.0]], [[-1.0, 3.6]], weight_id=MIX)
ALARMS = ("PSC001", "PSC002", "PSC003", "PSC012")
DAY = 86400.0
START = 20454  # 2026-01-01


class Kinds:
    """The world in 1,600 kinds of input: exact laws of every class."""

    def __init__(self, world):
        X, finite = world.discretise(size=1600)
        self.risk = world.conditional_risk(X, PROBLEM)
        self.log_ratio = world.log_ratio(X) + 1e-6 * np.random.default_rng(0).standard_normal(len(X))
        self.score = self.risk + PROBLEM.beta * np.exp(self.log_ratio)
        joint = finite.p_id[:, None] * world.posterior(X)
        self.label = joint.argmax(axis=1)
        self.by_class, self.ood = (joint / joint.sum(axis=0)).T, finite.p_ood

    def decide(self, kinds, threshold):
        risk, score = self.risk[kinds], self.score[kinds]
        accept = score <= threshold
        return Decisions(
            self.label[kinds], accept, rejection_reason(risk, score, accept), risk, self.log_ratio[kinds], score
        )

    def draw(self, rng, n, pi, mix):
        """Kinds and true classes of n rows; -1 for OOD ones."""
        y = np.where(rng.random(n) < pi, -1, rng.choice(3, n, p=mix))
        laws = np.vstack([self.by_class, self.ood])
        kinds = np.empty(n, dtype=int)
        for k in range(-1, 3):
            kinds[y == k] = rng.choice(laws.shape[1], int((y == k).sum()), p=laws[k])
        return kinds, y

    def reference(self, rng, m, n, pi=1.0):
        known, y = self.draw(rng, m, 0.0, MIX)
        threshold = float(np.sort(self.score[known])[math.ceil(0.95 * m) - 1])
        return Reference.from_decisions(
            self.decide(known, threshold),
            y,
            self.decide(self.draw(rng, n, pi, MIX)[0], threshold),
            prior=Interval(pi, pi, pi, 0.95),
            source="ood" if pi == 1.0 else "unlabeled",
            rule=Rule(PROBLEM, PROBLEM.beta, threshold, Promise("tpr", 0.95), m),
            classes=[0, 1, 2],
            created="2026-01-01",
        )

    def capital(self, rng, reference, pi, mixes, n, limit, which=ALARMS):
        """Capital, less what an alarm needs, window by window."""
        kept, out = watches(reference, limit, 0.05), {}
        place = codes(self.decide(np.arange(len(self.risk)), reference.cells.threshold), reference.cells)
        for code in which:
            gains = []
            for name, payoffs in kept[code].payoffs.items():
                size = len(reference.layouts[name].answer)
                laws = np.stack([np.bincount(place[name], p, size) for p in (*self.by_class, self.ood)])
                law = np.column_stack([(1 - pi)[:, None] * mixes, pi]) @ laws
                if payoffs:
                    gains.append(log_gains(rng.multinomial(n, law / law.sum(axis=1, keepdims=True)), payoffs))
            out[code] = np.full(len(pi), -np.inf)
            if gains:
                capital = log_capital(np.concatenate(gains, axis=1), np.arange(len(pi)))
                out[code] = capital + math.log(kept[code].alpha)
        return out


@pytest.fixture(scope="module")
def kinds():
    return Kinds(WORLD)


@pytest.fixture(scope="module")
def drawn(kinds):
    return kinds.reference(np.random.default_rng(0), 4000, 1500)


def wobble(days, strength=0.5, period=7):
    """A mix whose classes take turns, day by day of a week."""
    q = MIX * np.exp(strength * np.sin(2 * np.pi * (np.arange(days)[:, None] / period + np.arange(3) / 3)))
    return q / q.sum(axis=1, keepdims=True)


def watched(kinds, reference, pi, mixes, n=800, seed=1, **parameters):
    rng = np.random.default_rng(seed)
    monitor = Monitor(reference, **{"ood_limit": 0.05, **parameters})
    for day, (share, mix) in enumerate(zip(pi, mixes, strict=True)):
        rows, _ = kinds.draw(rng, n, share, mix)
        monitor.update(kinds.decide(rows, reference.cells.threshold), at=DAY * (START + day))
    return monitor


OTHER = np.array([0.2, 0.2, 0.6])


def test_a_change_of_mix_alone_is_information(kinds, drawn):
    mixes = np.repeat([MIX, OTHER], [15, 15], axis=0)
    monitor = watched(kinds, drawn, np.full(30, 0.04), mixes)
    (finding,) = monitor.findings()
    assert (finding.code, finding.severity, finding.active) == ("PSC004", "info", True)
    moved = {row["class"]: row for row in finding.evidence["classes"]}
    assert (moved[2]["served"], moved[0]["served"]) == (pytest.approx(0.2, abs=0.03), pytest.approx(0.5, abs=0.03))
    assert moved[2]["low"] <= 0.6 <= moved[2]["high"]
    assert moved[0]["low"] <= 0.2 <= moved[0]["high"]
    assert "2 2" in finding.sentence
    assert finding.evidence["since"][:10] == "2026-01-30"  # the latest window
    json.dumps(finding.to_dict(), allow_nan=False)
    # When the mix comes back there is nothing to tell.
    assert watched(kinds, drawn, np.full(31, 0.04), np.vstack([mixes, MIX])).findings() == []


def test_a_jump_of_ood_under_another_mix_is_called_ood(kinds, drawn):
    mixes = np.repeat([MIX, OTHER], [15, 15], axis=0)
    monitor = watched(kinds, drawn, np.repeat([0.05, 0.1], 15), mixes)
    found = {finding.code: finding for finding in monitor.findings()}
    assert set(found) == {"PSC001", "PSC004", "PSC014"}
    assert found["PSC001"].active
    assert "2026-01-14" <= found["PSC001"].evidence["since"][:10] <= "2026-01-19"
    assert found["PSC001"].evidence["first_alarm"] >= "2026-01-16"
    for window, pi, mix in zip(monitor.windows()[13:17], (0.05, 0.05, 0.1, 0.1), mixes[13:17], strict=True):
        assert window.pi.low - 0.02 <= pi <= window.pi.high + 0.02
        assert np.abs(np.array(window.mix.estimate) - mix).max() < 0.08


def test_a_wobbling_mix_raises_no_alarm_and_windows_know_it(kinds, drawn):
    """A year of weeks: each window's interval of each class share covers at about its level."""
    mixes = wobble(364)
    monitor = watched(kinds, drawn, np.full(364, 0.04), mixes, n=300)
    assert not [f for f in monitor.findings() if f.severity != "info" or not f.active]
    shares = np.array([window.mix for window in monitor.windows()])
    covered = (shares[:, 1] <= mixes) & (mixes <= shares[:, 2])
    assert covered.mean() > 0.92
    pi = np.array([window.pi[:3] for window in monitor.windows()])
    assert np.mean((pi[:, 1] <= 0.04) & (pi[:, 2] >= 0.04)) > 0.91


@pytest.fixture(scope="module")
def near():
    """OOD inputs lie nearer to the first class, of which the rule accepts 91 %."""
    kinds = Kinds(GaussianWorld([[0.0, 0.0], [4.0, 0.0], [2.0, -4.0]], [[-0.7, 2.5]], weight_id=MIX))
    return kinds, kinds.reference(np.random.default_rng(0), 4000, 1500)


BAD, GOOD = np.array([0.96, 0.02, 0.02]), np.array([0.1, 0.45, 0.45])


def test_a_mix_of_what_is_rejected_most_breaks_the_promise(near):
    kinds, reference = near
    assert 0.89 < np.divide(*reference.tally.counts[0, 1::-1]) < 0.92
    broken = watched(kinds, reference, np.full(20, 0.03), np.repeat([MIX, BAD], [8, 12], axis=0))
    found = {finding.code: finding for finding in broken.findings()}
    assert set(found) == {"PSC004", "PSC012"}
    assert found["PSC012"].severity == "error"
    assert found["PSC012"].evidence["tpr_of_mix"] < 0.92
    assert "below the promise of 0.95" in found["PSC012"].sentence
    kept = watched(kinds, reference, np.full(20, 0.03), np.repeat([MIX, GOOD], [8, 12], axis=0))
    assert [finding.code for finding in kept.findings()] == ["PSC004"]


def test_a_promise_for_every_class_cannot_be_broken_by_a_mix(near):
    kinds, reference = near
    promise = Promise("tpr", 0.95, 0.95, over="classes").to_dict()
    every = replace(reference, rule={**reference.rule, "promise": promise})
    assert watches(every, 0.05, 0.05)["PSC012"].payoffs["label"] == []
    broken = watched(kinds, every, np.full(20, 0.03), np.repeat([MIX, BAD], [8, 12], axis=0))
    assert "PSC012" not in {finding.code for finding in broken.findings()}


def streams(kinds, runs, *, seed, m=2000, n_second=1000, prior=1.0, n=1000, days=120, pi=0.05):
    """Count streams at the limit whose mix wobbles, by week and by a random amount, that raise each alarm; the reference is drawn anew."""
    rng = np.random.default_rng(seed)
    alarms = dict.fromkeys(ALARMS, 0)
    for _ in range(runs):
        reference = kinds.reference(rng, m, n_second, prior)
        capital = kinds.capital(rng, reference, np.full(days, pi), wobble(days, rng.uniform(0.0, 1.5)), n, pi)
        for code in ALARMS:
            alarms[code] += bool(capital[code].max() >= 0.0)
    return alarms


@pytest.mark.slow
def test_false_alarms_over_wobbling_streams(kinds):
    """At most 5 % of streams are promised: 6 of 40 would be 3 standard errors more. A promise that the wobble breaks is no false alarm."""
    alarms = streams(kinds, 40, seed=1)
    assert sum(alarms[code] for code in ALARMS[:3]) < 6


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "m", "n_second", "prior"), [(2, 2000, 1000, 1.0), (3, 1500, 1500, 0.25)])
def test_false_alarms_over_many_wobbling_streams(kinds, seed, m, n_second, prior):
    """At most 5 % of streams, over all findings; 26 of 300 would be 3 standard errors more (1,000 of them: `python -m benchmarks monitor_alarms`)."""
    alarms = streams(kinds, 300, seed=seed, m=m, n_second=n_second, prior=prior)
    assert sum(alarms[code] for code in ALARMS[:3]) < 26


def test_the_count_of_false_alarms_can_fail(kinds):
    """The same streams five points above the limit raise PSC001 in nearly every run."""
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(10):
        reference = kinds.reference(rng, 4000, 1500)
        mixes = np.repeat([MIX, rng.dirichlet(np.ones(3))], [20, 20], axis=0)
        capital = kinds.capital(rng, reference, np.repeat([0.05, 0.1], 20), mixes, 1000, 0.05, ("PSC001",))
        found += bool((capital["PSC001"][20:] >= 0.0).any())
    assert found >= 9


def test_a_model_that_serves_another_mix_is_watched_in_it():
    """The reference stands for the mix that is served: TPR in it, and no finding on traffic of that mix."""
    X, y = WORLD.sample_id(6000, random_state=0)
    labeled = np.concatenate([np.flatnonzero(y == k)[:size] for k, size in enumerate((800, 900, 900))])
    with pytest.warns(ClassMixWarning):
        model = POSCOD(alpha=0.3, tpr_min=0.95, random_state=0).fit(
            X[labeled], y[labeled], X_unlabeled=WORLD.sample_mixture(2500, 0.1, random_state=1)[0]
        )
    reference = Reference.from_model(model, ood=WORLD.sample_ood(800, random_state=2), created="2026-01-01")
    assert reference.mix.changed
    assert reference.mix.traffic == pytest.approx(MIX, abs=0.05)
    again = Reference.from_dict(json.loads(json.dumps(reference.to_dict(), allow_nan=False)))
    assert again.fingerprint == reference.fingerprint
    truth = model.decide(WORLD.sample_id(20000, random_state=3)[0]).accept.mean()
    tpr = reference.tpr(0.999)
    assert tpr.low <= truth <= tpr.high
    monitor = Monitor(reference, window=500, ood_limit=0.1)
    monitor.update(model.decide(WORLD.sample_mixture(6000, 0.05, random_state=4)[0]))
    assert not [f for f in monitor.findings() if FINDINGS[f.code].severity == "error" or f.code == "PSC004"]
    summary = monitor.summary()
    assert summary["reference"]["mix"]["changed"]
    assert [row["class"] for row in summary["reference"]["mix"]["classes"]] == [0, 1, 2]
    assert len(summary["windows"][0]["mix"]["estimate"]) == 3
