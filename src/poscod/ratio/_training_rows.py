# SPDX-License-Identifier: BSD-3-Clause
"""Whether labeled rows look like rows that the classifier was trained on, by three traces that training leaves, or may be such.

Convention: nothing here asks how sure the classifier is as such, so that neither an over- nor an under-confident one is accused. A trace is
reported with its numbers; that none is found proves nothing.

* **Balance.** Training ends where the errors p - y of its rows cancel against every direction it could still move in, up to a pull along its weights where these are shrunken, or
  still growing because every row is right. Over fresh rows they cancel no better than at random.
* **Between.** Trees and other learners by heart are surer at their rows than half-way between two rows of a class. Fresh rows lie no higher than what is between them.
* **Hard rows.** Another learner, which has not seen a row, finds some rows hard. A classifier that has seen them is sure of them, and hardly ever of hard rows of the
  traffic. Over fresh rows at least the ID part of the traffic is like them.

A few of very many training rows leave none of these. Where the classifier answers labeled rows almost without an error and doubts much of the traffic near them, they may be such rows, or the
task may be easy and hold OOD inputs near the known ones: outputs alone cannot tell, and that is what is said.
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
# Rows given together balance, some of them do not: all are looked at, up to so many numbers and operations.
DIRECTIONS, FLIPS, BALANCE_LEVEL, NUMBERS, OPERATIONS = 20, 400, 0.005, 20_000_000, 2e10
# Columns with no more values than this (categories, counts) have no middle: one of the two ends is taken. What is put together so may be rare by itself, which makes a
# peak of rows that nobody has seen, too: the limit, in standard errors, is wider where all columns are such.
NEIGHBOURS, FEW_VALUES, BETWEEN_LIMITS, EXCESS_LIMIT, NO_TRAFFIC_LIMIT = 3, 12, (3.5, 5.0), 2.0, 8.0
# Up to this share of the traffic may be OOD, and of none of it the classifier be sure, before the hard rows say anything.
FOLDS, HARD_SHARES, SURE, RIDGE, OOD_MOST, HARD_LEVEL = 5, (0.1, 0.2), 0.25, 0.3, 0.4, 0.02
# Near is as near as all labeled rows but this share are to each other, doubted is what is less sure than all of them but this share. Labeled rows may be training rows if so much more of the
# traffic is doubted, and its doubts there are so many times the error rate of labeled rows, to which one error is added.
ASIDE, DOUBTED, DOUBTS = 0.02, 0.05, 2.0

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
    """A trace of training: its name, what was found as a template, the facts in it, and whether it is one, or cannot be told from an easy task."""

    name: str
    found: str
    facts: dict[str, Any]
    told: bool = True

    def warning(self, rows: str, promise: str = "") -> SeenByClassifierWarning:
        """Return it as a warning about an argument, with what becomes of the promise."""
        what = "looks like rows" if self.told else "may be rows"
        text = f"{{{rows}}} {what} the classifier was trained on{promise}, because {self.found}: {WHAT_TO_DO}"
        return SeenByClassifierWarning(text, trace=self.name, told=self.told, **self.facts)


def training_trace(
    known: Activations, codes: NDArray[np.int64], traffic: Activations | None = None, ask: Ask | None = None
) -> Trace | None:
    """Look for traces of training on labeled rows; `ask` returns probabilities at any features. None where there is none."""
    if len(codes) < LEAST or known.logits is None:
        return None
    rng = np.random.default_rng(0)
    order = rng.permutation(len(codes))
    found = _balance(_labeled(known, codes, np.sort(order[: _balanced_rows(known)])), rng)
    if found is not None:
        return found
    sides = _labeled(known, codes, np.sort(order[:MOST]))
    if traffic is not None and len(traffic):
        other = np.sort(rng.permutation(len(traffic))[: 2 * MOST])
        sides = sides._replace(traffic=_finite(traffic, other), traffic_probability=_posterior(traffic, other))
    if ask is not None and sides.features is not None:
        found = _between(sides, ask, rng)
    if found is None and sides.traffic_probability is not None:
        found = _hard_rows(sides, rng) or _without_error(sides)
    return found


def _labeled(known: Activations, codes: NDArray[np.int64], at: NDArray[np.intp]) -> Sides:
    return Sides(_finite(known, at), _posterior(known, at), codes[at], None, None)


def _balanced_rows(known: Activations) -> int:
    """Return how many rows the balance is looked for in."""
    k = int(known.n_classes or 1)
    d = k if known.features is None else known.features.shape[1]
    each = DIRECTIONS * k
    return max(MOST, int(min(NUMBERS / max(each, d), OPERATIONS / (FLIPS * each + d * d))))


def _finite(rows: Activations, at: NDArray[np.intp]) -> Floats | None:
    """Return features where all are finite numbers."""
    if rows.features is None:
        return None
    features = np.asarray(rows.features[at], dtype=np.float64)
    return features if np.isfinite(features).all() else None


def _posterior(rows: Activations, at: NDArray[np.intp]) -> Floats:
    return np.asarray(softmax(np.asarray(rows.logits)[at].astype(np.float64), axis=1))


def _balance(sides: Sides, rng: np.random.Generator) -> Trace | None:
    """Compare sums of errors along the main directions of the features, beyond what shrinkage leaves of them, with sums that are random within classes."""
    p = sides.probability
    logits = np.log(np.maximum(p, 1e-12))
    logits -= logits.mean(axis=1, keepdims=True)
    features = logits if sides.features is None else sides.features
    found = _main_directions(features, max(1, min(DIRECTIONS, len(p) // 10)))
    own, flipped = _imbalance(p - np.eye(p.shape[1])[sides.codes], logits, found, sides.codes, rng)
    if not len(flipped) or (1 + np.sum(flipped <= own)) / (FLIPS + 1) > BALANCE_LEVEL:
        return None
    text = "over {rows} rows its errors cancel more evenly than those of fresh rows do (imbalance {imbalance:.2f} instead of about {fresh:.2f})"
    return Trace("balance", text, {"rows": len(p), "imbalance": own, "fresh": float(flipped.mean())})


class Directions(NamedTuple):
    """Values of rows along directions, with variance one; what makes them of columns; and how far they spread, all of standardised columns."""

    values: Floats
    of_columns: Floats
    spread: Floats


def _imbalance(
    error: Floats, logits: Floats, found: Directions, codes: NDArray[np.int64], rng: np.random.Generator
) -> tuple[float, Floats]:
    """Return how far sums of errors are from balance, from 0 to 1, and the same for errors with random signs around the means of their classes."""
    n, k = error.shape
    psi = np.column_stack([np.ones(n), found.values])
    of_class = np.zeros((k, n))
    of_class[codes, np.arange(n)] = 1.0
    size = of_class.sum(axis=1)
    # Training that shrinks weights, or still grows them, ends at sums along the weights; shrunken as columns of variance one, or as columns are.
    # (Means of classes are no such direction: where errors are alike in all rows of a class, sums over fresh rows lie there exactly.)
    weights = found.values.T @ logits / n
    pulls = weights / found.spread[:, None] ** 2, found.of_columns.T @ (found.of_columns @ weights)
    parts = (psi[:, :, None] * error[:, None, :]).reshape(n, -1)
    sums = parts.sum(axis=0)
    # Held-out rows may have been drawn class by class, and a classifier may err alike in all rows of a class: only what is random within classes is noise.
    parts -= ((of_class @ parts) / np.maximum(size, 1.0)[:, None])[codes]
    parts *= np.sqrt(size / np.maximum(size - 1.0, 1.0))[codes, None]
    spread = np.sqrt((parts**2).sum(axis=0))
    used = spread > 1e-9 * max(float(spread.max()), 1e-300)
    if not used.any():
        return 1.0, np.zeros(0)
    along = np.stack([np.r_[np.zeros(k), pull.ravel()] for pull in pulls], axis=1)[used] / spread[used, None]
    basis = np.linalg.qr(along)[0]

    def imbalance(sums: Floats) -> Floats:
        z = sums[..., used] / spread[used]
        z2 = (z - (z @ basis) @ basis.T) ** 2
        return np.asarray(np.mean(z2 / (1.0 + z2), axis=-1))

    flipped = [imbalance(rng.choice([-1.0, 1.0], (FLIPS // 10, n)) @ parts) for _ in range(10)]
    return float(imbalance(sums)), np.concatenate(flipped)


def _main_directions(features: Floats, most: int) -> Directions:
    """Return the first principal components of standardised columns."""
    scaled = features - features.mean(axis=0)
    spread = scaled.std(axis=0)
    kept = spread > 0.0
    scaled = scaled[:, kept] / spread[kept]
    n, d = scaled.shape
    if d == 0:
        return Directions(np.zeros((n, 0)), np.zeros((0, 0)), np.zeros(0))
    gram = scaled.T @ scaled if d <= n else scaled @ scaled.T
    size = len(gram)
    value, vector = eigh(gram, subset_by_index=[max(0, size - most), size - 1])
    vector, value = vector[:, value > 1e-10 * value[-1]], value[value > 1e-10 * value[-1]]
    along = vector if d <= n else scaled.T @ vector / np.sqrt(value)
    wide = np.sqrt(value / n)
    return Directions(scaled @ along / wide, along / spread[kept][:, None] / wide, wide)


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


def _without_error(sides: Sides) -> Trace | None:
    """Compare how often the classifier errs on labeled rows with how much it doubts the traffic that is as near to them as they are to each other."""
    p, q = sides.probability, sides.traffic_probability
    assert q is not None
    n, errors = len(p), int(np.sum(p.argmax(axis=1) != sides.codes))
    near = np.ones(len(q), dtype=bool)
    if sides.features is not None and sides.traffic is not None:
        scale = np.where(sides.features.std(axis=0) > 0.0, sides.features.std(axis=0), 1.0)
        index = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(sides.features / scale)
        own = index.kneighbors()[0].mean(axis=1)
        near = index.kneighbors(sides.traffic / scale)[0].mean(axis=1) <= np.quantile(own, 1.0 - ASIDE)
    doubted = near & (_lead(q) < np.quantile(_lead(p), ASIDE))
    share, doubt = float(doubted.mean()), float((1.0 - q.max(axis=1))[near].mean()) if near.any() else 0.0
    if share < ASIDE + DOUBTED or doubt < DOUBTS * (errors + 1) / n:
        return None
    text = (
        "it answers {errors} of {rows} rows wrongly and doubts {share:.0%} of the traffic that is not far from them more than {usual:.0%} of these; an easy task with OOD inputs near the "
        "known ones looks the same, and outputs cannot tell which it is"
    )
    return Trace("without_error", text, {"errors": errors, "rows": n, "share": share, "usual": 1.0 - ASIDE}, told=False)


def _lead(p: Floats) -> Floats:
    """Return by how much the first class leads the second, as a difference of log-probabilities."""
    first, second = np.partition(p, -2, axis=1)[:, -1], np.partition(p, -2, axis=1)[:, -2]
    return np.asarray(np.log(first) - np.log(np.maximum(second, 1e-300)))
