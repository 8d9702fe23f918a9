"""Worlds, selectors and slow oracles shared by the tests of `poscod.theory`."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from poscod import ScodProblem
from poscod.theory import FiniteWorld

ALPHAS = (0.0, 0.1, 0.37, 0.9, 1.0)


def random_world(seed: int, n: int = 30, k: int = 3, *, zeros: bool = True) -> FiniteWorld:
    """Return a world with unequal masses; with zeros, some points have no ID mass, no OOD mass, or neither."""
    rng = np.random.default_rng(seed)
    p_id, p_ood = rng.dirichlet(np.full(n, 0.5)), rng.dirichlet(np.full(n, 0.5))
    if zeros:
        p_id[:3], p_ood[2:7] = 0.0, 0.0
    return FiniteWorld(p_id / p_id.sum(), p_ood / p_ood.sum(), rng.dirichlet(np.full(k, 0.4), size=n))


@st.composite
def problems(draw, k):
    """Draw a problem with any loss for k classes."""
    matrix = st.lists(st.integers(1, 9), min_size=k * k, max_size=k * k).map(
        lambda v: np.array(v, dtype=float).reshape(k, k) * (1 - np.eye(k))
    )
    loss = draw(st.one_of(st.sampled_from(["zero_one", "absolute"]), matrix))
    tpr_min = draw(st.one_of(st.sampled_from([0.05, 0.25, 0.5, 0.77, 0.95, 1.0]), st.floats(0.01, 1.0)))
    return ScodProblem(alpha=draw(st.sampled_from(ALPHAS)), tpr_min=tpr_min, loss=loss)


@st.composite
def cases(draw):
    """Draw (world, problem, classifier): small whole numbers as masses make atoms, zeros and tied scores common."""
    n, k = draw(st.integers(1, 8)), draw(st.integers(2, 4))
    mass = st.lists(st.integers(0, 6), min_size=n, max_size=n).filter(any)
    row = st.lists(st.integers(0, 4), min_size=k, max_size=k).filter(any)
    p_id, p_ood = (np.array(draw(mass), dtype=float) for _ in range(2))
    posterior = np.array(draw(st.lists(row, min_size=n, max_size=n)), dtype=float)
    world = FiniteWorld(p_id / p_id.sum(), p_ood / p_ood.sum(), posterior / posterior.sum(axis=1, keepdims=True))
    label = st.lists(st.integers(0, k - 1), min_size=n, max_size=n)
    return world, draw(problems(k)), draw(st.one_of(st.none(), label))


def oracle_risk_at_points(world, problem, classifier=None):
    """Conditional risk by two loops."""
    loss = problem.loss_matrix(world.n_classes)
    out = []
    for x, row in enumerate(world.posterior):
        answers = range(world.n_classes) if classifier is None else [classifier[x]]
        out.append(min(sum(row[y] * loss[y, a] for y in range(world.n_classes)) for a in answers))
    return np.array(out)


def oracle_evaluate(world, accept, problem, classifier=None):
    """Return (SCOD risk, TPR, FPR, selective risk) by their definitions; accept may hold one selector per row."""
    risk = oracle_risk_at_points(world, problem, classifier)
    accept = np.asarray(accept)
    tpr, fpr = accept @ world.p_id, accept @ world.p_ood
    selective = accept @ (world.p_id * risk) / tpr
    return (1 - problem.alpha) * selective + problem.alpha * fpr, tpr, fpr, selective


def oracle_optimum(p_id, p_ood, risk, alpha, t):
    """Smallest SCOD risk in exact rational arithmetic: try every vertex of {c in [0, 1]^n : TPR = t}.

    All arguments are Fractions. A vertex has at most one coordinate strictly between 0 and 1.
    """
    n, best = len(p_id), None
    for j in range(n):
        others = [i for i in range(n) if i != j]
        for size in range(n):
            for chosen in combinations(others, size):
                missing = t - sum((p_id[i] for i in chosen), Fraction(0))
                if p_id[j] == 0:
                    if missing != 0:
                        continue
                    part = Fraction(0)
                else:
                    part = missing / p_id[j]
                    if not 0 <= part <= 1:
                        continue
                c = [Fraction(i in chosen) for i in range(n)]
                c[j] = part
                value = (1 - alpha) * sum(p * r * a for p, r, a in zip(p_id, risk, c, strict=True)) / t
                value += alpha * sum(p * a for p, a in zip(p_ood, c, strict=True))
                best = value if best is None else min(best, value)
    return best


def raise_tpr(accept, p_id, t):
    """Mix selectors (one per row) with "accept all" just enough to reach TPR >= t."""
    tpr = accept @ p_id
    share = np.clip((t - tpr) / np.maximum(1 - tpr, 1e-300), 0.0, 1.0)[:, None]
    return accept + (1 - accept) * share


def greedy(score, p_id, t):
    """Accept along each row of scores, lowest first, until TPR is exactly t."""
    order = np.argsort(score, axis=1)
    mass = p_id[order]
    before = np.cumsum(mass, axis=1) - mass
    part = np.clip((np.broadcast_to(t, (len(score),))[:, None] - before) / np.maximum(mass, 1e-300), 0.0, 1.0)
    accept = np.empty_like(part)
    np.put_along_axis(accept, order, part, axis=1)
    return accept


def exchange(accept, p_id, rng, m):
    """Move ID mass between two random points of one selector, m times: TPR stays exactly."""
    known = np.flatnonzero(p_id > 0)
    giver, taker = rng.choice(known, m), rng.choice(known, m)
    room = np.minimum(accept[giver] * p_id[giver], (1 - accept[taker]) * p_id[taker])
    amount = room * rng.uniform(size=m) ** 4 * (giver != taker)
    out = np.tile(accept, (m, 1))
    rows = np.arange(m)
    out[rows, giver] -= amount / p_id[giver]
    out[rows, taker] += amount / p_id[taker]
    return np.clip(out, 0.0, 1.0)
