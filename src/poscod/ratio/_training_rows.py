# SPDX-License-Identifier: BSD-3-Clause
"""Whether labeled rows look like rows that the classifier was trained on, by three traces that training leaves.

Convention: nothing here asks how sure the classifier is as such, so that neither an over- nor an under-confident one is accused. A trace is
reported with its numbers; that none is found proves nothing.

* **Balance.** Training ends where the errors p - y of its rows cancel against every direction it could still move in. Over fresh rows they cancel no better
  than with random signs.
* **Between.** Trees and other learners by heart are surer at their rows than half-way between two rows of a class. Fresh rows lie no higher than what is between them.
* **Hard rows.** Another learner, which has not seen a row, finds some rows hard. A classifier that has seen them is sure of them, and hardly ever of hard rows of the
  traffic. Over fresh rows at least the ID part of the traffic is like them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve
from scipy.spatial.distance import cdist
from scipy.special import softmax
from scipy.stats import binom
from sklearn.neighbors import NearestNeighbors

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.ratio._ratio import SeenByClassifierWarning

# Rows that are looked at: more cost time and tell little more. With fewer than the least nothing is said.
MOST, LEAST = 1000, 40
DIRECTIONS, FLIPS, BALANCE_LEVEL = 20, 400, 0.005
# Columns with no more values than this (categories, counts) have no middle: one of the two ends is taken. What is put together so may be rare by itself, which makes a
# peak of rows that nobody has seen, too: the limit, in standard errors, is wider where all columns are such.
NEIGHBOURS, FEW_VALUES, BETWEEN_LIMITS, EXCESS_LIMIT, NO_TRAFFIC_LIMIT = 3, 12, (3.5, 5.0), 2.0, 8.0
# Up to this share of the traffic may be OOD, and of none of it the classifier be sure, before the hard rows say anything.
FOLDS, HARD_SHARES, SURE, RIDGE, OOD_MOST, HARD_LEVEL = 5, (0.1, 0.2), 0.25, 0.3, 0.4, 0.02

Ask = Callable[[Floats], NDArray[Any]]
WHAT_TO_DO = "give rows that were held out of its training, or the classifier unfitted, so that it is cross-fitted."


class Sides(NamedTuple):
    """What is looked at: features (or None), probabilities and classes of labeled rows, features and probabilities of the traffic (or None)."""

    features: Floats | None
    probability: Floats
    codes: NDArray[np.int64]
    traffic: Floats | None
    traffic_probability: Floats | None


class Trace(NamedTuple):
    """A trace of training: its name, what was found as a template, and the facts in it."""

    name: str
    found: str
    facts: dict[str, Any]

    def warning(self, rows: str, promise: str = "") -> SeenByClassifierWarning:
        """Return it as a warning about an argument, with what becomes of the promise."""
        text = f"{{{rows}}} looks like rows the classifier was trained on{promise}, because {self.found}: {WHAT_TO_DO}"
        return SeenByClassifierWarning(text, trace=self.name, **self.facts)


def training_trace(
    known: Activations, codes: NDArray[np.int64], traffic: Activations | None = None, ask: Ask | None = None
) -> Trace | None:
    """Look for traces of training on labeled rows; `ask` returns probabilities at any features. None where there is none."""
    if len(codes) < LEAST or known.logits is None:
        return None
    rng = np.random.default_rng(0)
    own = np.sort(rng.permutation(len(codes))[:MOST])
    other = None if traffic is None else np.sort(rng.permutation(len(traffic))[: 2 * MOST])
    sides = Sides(_finite(known, own), _posterior(known, own), codes[own], None, None)
    if traffic is not None and other is not None and len(other):
        sides = sides._replace(traffic=_finite(traffic, other), traffic_probability=_posterior(traffic, other))
    found = _balance(sides, rng)
    if found is None and ask is not None and sides.features is not None:
        found = _between(sides, ask, rng)
    if found is None and sides.traffic_probability is not None:
        found = _hard_rows(sides, rng)
    return found


def _finite(rows: Activations, at: NDArray[np.intp]) -> Floats | None:
    """Return features where all are finite numbers."""
    if rows.features is None:
        return None
    features = np.asarray(rows.features[at], dtype=np.float64)
    return features if np.isfinite(features).all() else None


def _posterior(rows: Activations, at: NDArray[np.intp]) -> Floats:
    return np.asarray(softmax(np.asarray(rows.logits)[at].astype(np.float64), axis=1))


def _balance(sides: Sides, rng: np.random.Generator) -> Trace | None:
    """Compare the sums of errors along the main directions of the features with those under random signs."""
    p = sides.probability
    n, k = p.shape
    error = p - np.eye(k)[sides.codes]
    features = sides.features
    if features is None:
        features = np.log(np.maximum(p, 1e-12))
        features = features - features.mean(axis=1, keepdims=True)
    psi = np.column_stack([np.ones(n), _main_directions(features, max(1, min(DIRECTIONS, n // 10)))])
    spread = np.sqrt((psi**2).T @ error**2)
    used = spread > 0.0  # an error that is zero in every row has no balance
    if not used.any():
        return None

    def imbalance(sums: Floats) -> float:
        z2 = (sums[used] / spread[used]) ** 2
        return float(np.mean(z2 / (1.0 + z2)))

    own = imbalance(psi.T @ error)
    flipped = np.array([imbalance((psi * signs[:, None]).T @ error) for signs in rng.choice([-1.0, 1.0], (FLIPS, n))])
    if (1 + np.sum(flipped <= own)) / (FLIPS + 1) > BALANCE_LEVEL:
        return None
    text = "over {rows} rows its errors cancel more evenly than those of fresh rows do (imbalance {imbalance:.2f} instead of about {fresh:.2f})"
    return Trace("balance", text, {"rows": n, "imbalance": own, "fresh": float(flipped.mean())})


def _main_directions(features: Floats, most: int) -> Floats:
    """Return the first principal components of standardised columns, with variance one."""
    scaled = features - features.mean(axis=0)
    spread = scaled.std(axis=0)
    scaled = scaled[:, spread > 0.0] / spread[spread > 0.0]
    n, d = scaled.shape
    if d == 0:
        return np.zeros((n, 0))
    gram = scaled.T @ scaled if d <= n else scaled @ scaled.T
    size = len(gram)
    value, vector = eigh(gram, subset_by_index=[max(0, size - most), size - 1])
    vector = vector[:, value > 1e-10 * value[-1]]
    made = scaled @ vector if d <= n else vector
    return np.asarray(made * (np.sqrt(n) / np.linalg.norm(made, axis=0)))


class Peak(NamedTuple):
    """Mean probability of a class at rows and between them, and the standard error of the difference."""

    at: float
    between: float
    error: float


def _between(sides: Sides, ask: Ask, rng: np.random.Generator) -> Trace | None:
    """Compare the peak at labeled rows with none, and with that at rows of the traffic, which nobody has learned by heart."""
    x = sides.features
    assert x is not None
    few = np.array([len(np.unique(column)) <= FEW_VALUES for column in x.T])
    scale = np.where(x.std(axis=0) > 0.0, x.std(axis=0), 1.0)
    own = _peak(x, sides.probability, sides.codes, ask, few, scale, rng)
    if own is None:
        return None
    # Classes like shells have other classes between their rows, and a peak at every row: the traffic shows it, too.
    limit, excess = NO_TRAFFIC_LIMIT, np.inf
    if sides.traffic is not None and sides.traffic_probability is not None:
        t, q = sides.traffic[: len(x)], sides.traffic_probability[: len(x)]
        other = _peak(t, q, q.argmax(axis=1), ask, few, scale, rng)
        if other is not None:
            limit = float(np.interp(few.mean(), (0.0, 1.0), BETWEEN_LIMITS))
            excess = (own.at - own.between - other.at + other.between) / np.hypot(own.error, other.error)
    if not own.at - own.between > limit * own.error or not excess > EXCESS_LIMIT:
        return None
    text = "it gives their class a probability of {at:.3f} at {rows} rows and of {between:.3f} half-way between two of them, where fresh rows show no such peak"
    return Trace("between", text, {"rows": len(x), "at": own.at, "between": own.between})


def _peak(
    x: Floats,
    p: Floats,
    codes: NDArray[np.int64],
    ask: Ask,
    few: NDArray[np.bool_],
    scale: Floats,
    rng: np.random.Generator,
) -> Peak | None:
    """Ask for the probability of a class at rows and half-way to the nearest rows of the class."""
    pairs = []
    for code in np.unique(codes):
        own = np.flatnonzero(codes == code)
        if len(own) > NEIGHBOURS:
            near = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(x[own] / scale).kneighbors(return_distance=False)
            pairs.append(np.stack([np.repeat(own, NEIGHBOURS), own[near].ravel()]))
    if not pairs:
        return None
    a, b = np.concatenate(pairs, axis=1)
    middle = (x[a] + x[b]) / 2.0
    first = rng.random((len(a), int(few.sum()))) < 0.5
    middle[:, few] = np.where(first, x[a][:, few], x[b][:, few])
    between = np.asarray(ask(middle))[np.arange(len(a)), codes[a]]
    at_rows = (p[a, codes[a]] + p[b, codes[a]]) / 2.0
    drop = at_rows - between
    # The pairs of a row are not independent.
    error = float(np.sqrt(np.sum(np.bincount(a, drop - drop.mean()) ** 2))) / len(drop)
    return Peak(float(at_rows.mean()), float(between.mean()), max(error, 1e-12))


def _hard_rows(sides: Sides, rng: np.random.Generator) -> Trace | None:
    """Compare how often the classifier is sure of rows that another learner finds hard, among labeled rows and in the traffic."""
    p, q = sides.probability, sides.traffic_probability
    assert q is not None
    shares: tuple[float, ...] = HARD_SHARES
    if sides.features is None or sides.traffic is None:
        margins, shares = (np.zeros(len(p)), np.zeros(len(q))), (1.0,)
    else:
        margins = _margins(sides, rng)
    sure, sure_traffic = p.max(axis=1), q.max(axis=1)
    n, m = len(p), len(q)
    # Answers of the traffic count as often as among labeled rows, so that another class mix is no trace.
    answers, answers_traffic = (np.bincount(r.argmax(axis=1), minlength=p.shape[1]) / len(r) for r in (p, q))
    weight = np.clip(answers / np.maximum(answers_traffic, 1e-12), 0.0, 4.0)[q.argmax(axis=1)]
    weight /= weight.mean()
    for share in shares:
        cut = np.quantile(margins[0], share)
        hard, hard_traffic = margins[0] <= cut, margins[1] <= cut
        level = float(np.quantile(sure[hard], SURE))
        count = int(np.sum(hard & (sure >= level)))
        like = float(weight[hard_traffic & (sure_traffic >= level)].sum())
        expected = (1.0 - OOD_MOST) * m
        if binom.cdf(np.floor(like), count + int(like), expected / (expected + n)) < HARD_LEVEL / len(shares):
            text = (
                "it is {level:.3f} sure or more of {count} rows in {rows} that are hard to tell without having seen them, and of {like:.0f} in {traffic} rows of the "
                "traffic, fewer than if {most:.0%} of the traffic were OOD"
            )
            facts = {"level": level, "count": count, "rows": n, "like": like, "traffic": m, "most": OOD_MOST}
            return Trace("hard_rows", text, facts)
    return None


def _margins(sides: Sides, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return by how much a learner that has not seen a row prefers the classifier's answer there: ridge regression on a Gaussian kernel, in folds."""
    x, t = sides.features, sides.traffic
    assert x is not None
    assert t is not None
    assert sides.traffic_probability is not None
    centre, spread = x.mean(axis=0), np.where(x.std(axis=0) > 0.0, x.std(axis=0), 1.0)
    x, t = (np.clip((rows - centre) / spread, -6.0, 6.0) for rows in (x, t))
    distance = cdist(x, x, "sqeuclidean")
    positive = distance[distance > 0.0]
    width = float(np.median(positive)) if len(positive) else 1.0
    kernel, across = np.exp(-distance / width), np.exp(-cdist(t, x, "sqeuclidean") / width)
    target = np.eye(sides.probability.shape[1])[sides.codes]
    target -= target.mean(axis=0)
    votes = [np.empty((len(rows), target.shape[1])) for rows in (x, t)]
    folds = [rng.permutation(len(rows)) % FOLDS for rows in (x, t)]
    for fold in range(FOLDS):
        outside = np.flatnonzero(folds[0] != fold)
        system = kernel[np.ix_(outside, outside)] + RIDGE * np.eye(len(outside))
        weights = solve(system, target[outside], assume_a="pos")
        for vote, own, grid in zip(votes, folds, (kernel, across), strict=True):
            vote[own == fold] = grid[np.ix_(own == fold, outside)] @ weights
    both = []
    for vote, p in zip(votes, (sides.probability, sides.traffic_probability), strict=True):
        at, answer = np.arange(len(p)), p.argmax(axis=1)
        own = vote[at, answer].copy()
        vote[at, answer] = -np.inf
        both.append(own - vote.max(axis=1))
    return both[0], both[1]
