"""A promise that no class mix can break, counted: 2,000 calibrations each, against the exact probability of a miss.

The worst class mix puts everything on the class with the smallest TPR, so the promise holds for every mix iff that TPR is at least tpr_min. A miss needs
each class's own threshold below the largest of the true quantiles, and classes are drawn independently: its probability is a product of
binomial tails, whatever the laws are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy import special, stats

from poscod.mix import ClassMix
from poscod.problem import ScodProblem
from poscod.selector import Calibration, guaranteed_rank, guaranteed_threshold, rows_needed, solve
from poscod.selector._every_class import every_class_threshold

DRAWS = 2000


def about(count, n, p):
    """Four standard errors of a rate that is exactly p, and one draw."""
    return abs(count - n * p) <= 1.0 + 4.0 * math.sqrt(n * p * (1.0 - p))


class Law(NamedTuple):
    """Scores of one class: what a draw is, P(s <= x) and P(s < x), and the smallest x with P(s <= x) >= t."""

    draw: object
    cdf: object
    below: object
    quantile: object


def continuous(law):
    return Law(lambda rng, m: law.rvs(m, random_state=rng), law.cdf, law.cdf, law.ppf)


def discrete(p):
    """Values 0, 1, ..., with these probabilities."""
    law = stats.rv_discrete(values=(np.arange(len(p)), p))
    return Law(lambda rng, m: rng.choice(len(p), size=m, p=p).astype(float), law.cdf, lambda x: law.cdf(x - 1), law.ppf)


def laws_of(kind, k):
    """K laws: far from each other, all alike, with equal quantiles and other shapes, or with many ties."""
    if kind == "apart":
        return [continuous(stats.norm(12.0 * i, 1.0 + i % 3)) for i in range(k)]
    if kind == "alike":
        return [continuous(stats.expon())] * k
    if kind == "heavy":
        return [continuous((stats.cauchy, stats.norm, stats.uniform)[i % 3](i % 5)) for i in range(k)]
    weights = [np.arange(1.0, 7.0) ** (2.0 - 4.0 * i / k) for i in range(k)]
    return [discrete(w / w.sum()) for w in weights]


def exact_miss(laws, sizes, share, delta):
    """P(max_k lambda_k < max_k q_k), as a product over classes."""
    top = max(float(law.quantile(share)) for law in laws)
    tails = []
    for law, m in zip(laws, sizes, strict=True):
        rank = guaranteed_rank(m, share, delta=delta / len(laws))
        tails.append(float(special.betainc(rank, m - rank + 1, law.below(top))))
    return math.prod(tails)


def count_misses(laws, sizes, share, delta, draws, seed):
    """Draws in which the worst class mix has TPR < share."""
    rng = np.random.default_rng(seed)
    rows = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    drawn = [law.draw(rng, draws * m).reshape(draws, m) for law, m in zip(laws, sizes, strict=True)]
    scores, labels = np.concatenate(drawn, axis=1), np.arange(len(laws))
    chosen = np.array([every_class_threshold(row, rows, share, labels=labels, delta=delta) for row in scores])
    worst = np.min([law.cdf(chosen) for law in laws], axis=0)
    return int(np.sum(worst < share - 1e-12))


CASES = [
    ("apart", 2, "few", 0.95, 0.4),
    ("apart", 2, "many", 0.8, 0.2),
    ("alike", 2, "few", 0.9, 0.5),
    ("heavy", 2, "uneven", 0.9, 0.1),
    ("ties", 2, "few", 0.8, 0.3),
    ("apart", 10, "few", 0.9, 0.5),
    ("heavy", 10, "uneven", 0.8, 0.1),
    ("ties", 10, "many", 0.9, 0.3),
]
MANY = [("apart", 50, "few", 0.8, 0.5), ("heavy", 50, "uneven", 0.9, 0.1), ("ties", 50, "few", 0.8, 0.5)]


@pytest.mark.parametrize(
    ("kind", "k", "size", "share", "delta"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MANY)]
)
def test_no_class_mix_breaks_the_promise_more_often_than_promised(kind, k, size, share, delta):
    """With just as many rows as are needed, with many, and with sizes that differ between classes."""
    least = rows_needed(share, delta=delta / k)
    sizes = {
        "few": [least] * k,
        "many": [5 * least] * k,
        "uneven": [least + (7 * i) % (2 * least) for i in range(k)],
    }[size]
    laws = laws_of(kind, k)
    exact = exact_miss(laws, sizes, share, delta)
    missed = count_misses(laws, sizes, share, delta, DRAWS, seed=[k, least])
    assert exact <= delta / k + 1e-12
    assert about(missed, DRAWS, exact)
    if kind == "apart":  # one class decides, and it misses nearly as often as its share of delta allows
        assert exact > 0.5 * delta / k
        assert missed > 0


def test_a_guarantee_over_all_is_broken_by_a_class_mix():
    """Why `tpr_over` exists: the same rows, the same delta, and a mix of the hard class alone."""
    rng = np.random.default_rng(3)
    easy, hard = stats.norm(0.0, 1.0), stats.norm(2.0, 1.0)
    broken = 0
    for _ in range(200):
        score = np.append(easy.rvs(450, random_state=rng), hard.rvs(50, random_state=rng))
        broken += hard.cdf(guaranteed_threshold(score, 0.9, delta=0.05).threshold) < 0.9
    assert broken == 200


def calibration(log_ratio, codes, k, mix=None):
    """Rows whose score is g alone, at alpha = 1."""
    m = len(log_ratio)
    return Calibration(
        np.arange(k), np.zeros((m, k)), log_ratio, codes, None, np.zeros((0, k)), np.zeros(0), 0.0, mix=mix
    )


@pytest.mark.parametrize("rules", [1, 4])
def test_a_solved_problem_keeps_the_promise_for_every_mix(rules):
    """The whole way through `solve`, with a class mix that differs: the weights of the mix must not matter."""
    rng, k, m, share, delta = np.random.default_rng(11), 3, 120, 0.9, 0.5
    laws = [stats.norm(0.0, 1.0), stats.norm(1.0, 0.5), stats.norm(-1.0, 3.0)]
    codes = np.repeat(np.arange(k), m)
    p = np.full(k, 1.0 / k)
    mix = ClassMix(p, np.array([0.9, 0.1, 0.0]), p, p, changed=True)
    missed = 0
    for _ in range(DRAWS):
        log_ratio = np.concatenate([law.rvs(m, random_state=rng) for law in laws])
        rows = calibration(log_ratio, codes, k, mix)
        rule = solve(ScodProblem(1.0, share), rows, delta=delta, rules=rules, tpr_over="classes")
        missed += min(law.cdf(math.log(rule.threshold)) for law in laws) < share
    assert rule.promise.mix is None
    both = [Law(None, law.cdf, law.cdf, law.ppf) for law in laws]
    assert about(missed, DRAWS, exact_miss(both, [m] * k, share, delta / rules))


def test_order_statistics_meet_the_mix_of_the_traffic():
    """Empirical: TPR in the traffic's mix is tpr_min on average, and that of the worst class with tpr_over="classes"."""
    rng, share, m = np.random.default_rng(7), 0.9, 400
    laws, q = [stats.norm(0.0, 1.0), stats.norm(2.0, 1.0)], np.array([0.2, 0.8])
    codes, p = np.repeat([0, 1], m), np.full(2, 0.5)
    found = {"all": [], "classes": []}
    for _ in range(300):
        log_ratio = np.concatenate([law.rvs(m, random_state=rng) for law in laws])
        for over, values in found.items():
            rows = calibration(log_ratio, codes, 2, ClassMix(p, q, p, p, changed=True))
            rule = solve(ScodProblem(1.0, share), rows, tpr_over=over)
            values.append([law.cdf(math.log(rule.threshold)) for law in laws])
    of_class = {over: np.mean(values, axis=0) for over, values in found.items()}
    assert of_class["all"] @ q == pytest.approx(share, abs=0.004)
    assert of_class["all"] @ p > share + 0.02  # the labeled rows' own mix, which nobody serves
    assert of_class["classes"].min() == pytest.approx(share, abs=0.004)
