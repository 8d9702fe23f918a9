# SPDX-License-Identifier: BSD-3-Clause
"""Drift or strangers: whether what makes the traffic differ is a part of it where ID is rare, or known inputs that have moved, or cannot be told.

Convention: unlabeled rows alone cannot prove either. Rows that only strangers reach are set aside first: those whose log g is above nearly all labeled rows. What is left of both sides
lies where labeled rows lie. A smooth score of its columns is learned by cross-fitting, and its density ratio is read as ``rho = 1 - p + p exp(c + d t)``: strangers are a small share p far
out (large d) over a floor 1 - p, moved inputs a tilt of the whole without a floor. The likelihood says which it is, and where it says neither clearly, neither is said. Log g is out of sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.metrics import auroc
from poscod.ratio._quick import quick_ratio

# AUROC between labeled rows and the part of the traffic that differs, from which on it is strange; and the share of the traffic up to which it is a part.
STRANGE, PART = 0.85, 0.55
# Twice the log-likelihood by which one of two explanations must be better to be told from the other, or to be taken for likely.
CLEAR, LIKELY = 6.0, 4.0
# The same between "something differs among rows like labeled ones" and "nothing does": less does no harm.
DIFFERS = 15.0
# Share of what log g explains of the difference that columns must explain, for their reading to be the one that counts.
EXPLAINED = 0.7
# An OOD share from which on strangers that are not strange are worth a word.
CONSIDERABLE = 0.1
# Certified OOD share above which hardly anything of the traffic is like the labeled rows, whatever explains it.
NEARLY_ALL = 0.8
# With fewer rows of a side, or fewer columns, drift is possible, never certain: a sum over columns fits strangers near the labeled rows too badly.
LEAST_ROWS, LEAST_COLUMNS = 200, 5
# With fewer rows than this nothing is looked at.
FEWEST = 40
# Share of labeled rows with the largest log g that are set aside, with all traffic beyond.
ASIDE = 0.02
# Rows of a side, and columns, that a score is learned from; its penalties; and the range of labeled rows that it sees.
ROWS, COLUMNS, PENALTIES, RANGE = 4000, 400, (1e-3, 1e-2, 1e-1), (0.005, 0.995)
# Values of d and p that are tried; no row counts for more than a loss of 4: one cell far away would else decide.
SLOPES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0])
PARTS = np.array([0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0])  # fmt: skip
LARGEST_LOSS = 4.0
# A closed gate says -inf.
LARGEST_LOG = 700.0
# Labeled rows stand for moved ones with weights of a tilt no larger than this. Less than the first share of the traffic left over is nothing. Strangers are there if the second share of it is OOD with
# a probability of SURE or more, and farther out than labeled rows but for a share of FARTHEST: a tilt that fits badly leaves rows over that are not sure, and drift over the border of
# a column rows that are sure, and not far from the others. No column counts for more than so many standard deviations.
LARGEST_WEIGHT, LEAST_LEFT, LEAST_SURE, SURE, FARTHEST, FAR = 20.0, 0.02, 0.03, 0.9, 0.01, 6.0
# Columns that are named.
NAMED = 3


class Moved(NamedTuple):
    """What unlabeled rows tell of known inputs that moved.

    Attributes
    ----------
    said : {"drift", "undecided"}
        Whether they seem to have moved, or cannot be told from strangers.
    columns : tuple of int
        Columns that differ most, first the one that differs most of all.
    shift, spread : tuple of float
        How far the middle of each moved in standard deviations of the labeled rows, and by which factor it spreads wider.
    whole : bool
        Whether most of the traffic is certainly not like the labeled rows.
    strangers : bool or None
        Whether strangers are there beside drift; None where that cannot be told.
    """

    said: str
    columns: tuple[int, ...]
    shift: tuple[float, ...]
    spread: tuple[float, ...]
    whole: bool
    strangers: bool | None


class Reading(NamedTuple):
    """How well two explanations of a difference do, as twice the gain in log-likelihood over "nothing differs"."""

    moved: float
    strangers: float

    @property
    def favor(self) -> float:
        """By how much drift explains it better than strangers do."""
        return self.moved - self.strangers

    @property
    def gain(self) -> float:
        """What the better one gains."""
        return max(self)


def find_moved(
    views: tuple[Activations, Activations],
    log_ratios: tuple[Floats, Floats],
    weights: tuple[Floats | None, Floats | None],
    folds: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    pi: float,
    certified: float,
) -> Moved | None:
    """Return what moved, or None where nothing shows that known inputs did.

    Parameters
    ----------
    views : tuple of Activations
        What the ratio saw of labeled and unlabeled rows: their features are compared, or their logits where there are none.
    log_ratios : tuple of ndarray
        log g of both, by parts that have not seen the row.
    weights : tuple of ndarray or None
        Weights with which labeled rows have the class mix of the traffic, and those of the traffic.
    folds : tuple of ndarray or None
        Folds of both, if there are any.
    pi, certified : float
        Share of OOD rows in the traffic as estimated, and what is certain of it if nothing moved.

    Returns
    -------
    moved : Moved or None
    """
    at = tuple(np.arange(0, len(v), max(1, -(-len(v) // ROWS))) for v in log_ratios)
    if min(map(len, at)) < FEWEST:
        return None
    own, other = (
        np.ones(len(i)) if w is None else w[i] * (len(i) / w[i].sum()) for i, w in zip(at, weights, strict=True)
    )
    first, second = (np.clip(v[i], -LARGEST_LOG, LARGEST_LOG) for v, i in zip(log_ratios, at, strict=True))
    values = first, second
    known, traffic = (_columns_of(view, i) for view, i in zip(views, at, strict=True))
    fold = tuple(np.arange(len(i)) % 5 if folds is None else folds[k][i] for k, i in enumerate(at))
    bulk = [v <= np.quantile(values[0], 1.0 - ASIDE) for v in values]
    if min(int(part.sum()) for part in bulk) < FEWEST:  # nothing of the traffic is where labeled rows are
        bulk = [np.ones(len(v), dtype=bool) for v in values]
    tilt = _Tilt((known, traffic), (own, other), fold, bulk)
    inside = own[bulk[0]], other[bulk[1]]
    by_ratio = read(np.concatenate([v[part] for v, part in zip(values, bulk, strict=True)]), len(inside[0]), inside)
    reading = tilt.reading if tilt.reading.gain >= EXPLAINED * by_ratio.gain else by_ratio
    differs = reading.gain >= DIFFERS
    few = min(map(len, at)) < LEAST_ROWS or known.shape[1] < LEAST_COLUMNS
    drift = certified > NEARLY_ALL or (differs and reading.favor >= CLEAR and not few)
    if not drift:
        strange = strangeness(values, own, p_ood(values[1], pi) * other) if 0.0 < pi < 1.0 else 1.0
        whole = read(np.concatenate(values), len(own), (own, other))
        left = differs and reading.favor > -CLEAR and whole.favor > -LIKELY
        if not (left or certified > PART or (pi >= CONSIDERABLE and strange < STRANGE)):
            return None
    said, strangers = "undecided", None
    if drift:
        said, strangers = (
            "drift",
            _strangers_left(tilt, (views[0][at[0]], views[1][at[1]]), (known, traffic), own, other, fold),
        )
    most = _most_moved(_all_columns(views[0]), _all_columns(views[1]), weights)
    return Moved(said, *most, certified > PART, strangers)


def strangeness(log_ratios: tuple[Floats, Floats], weight: Floats, ood: Floats) -> float:
    """Return the AUROC of log g between labeled rows and the OOD part of the traffic, in which rows count by p(O | x)."""
    return float(auroc(*log_ratios, weight_id=weight, weight_ood=np.maximum(ood, 1e-12)))


def p_ood(log_ratio: Floats, pi: float) -> Floats:
    """Return p(O | x) in traffic with a share pi of OOD rows."""
    return np.asarray(expit(log_ratio + logit(pi)))


def read(score: Floats, n: int, weights: tuple[Floats, Floats]) -> Reading:
    """Read the density ratio along a score of labeled rows (the first n) and of the traffic as drift and as strangers."""
    own, other = (w / w.sum() for w in weights)
    mean = own @ score[:n]
    t = np.clip((score - mean) / max(float(np.sqrt(own @ (score[:n] - mean) ** 2)), 1e-12), -6.0, 8.0)
    order = np.argsort(t[:n], kind="stable")
    below = np.cumsum(own[order]) - 0.5 * own[order]
    found = {True: 0.0, False: 0.0}  # no difference at all is at the border of both
    for d in SLOPES:
        g = np.exp(d * t)
        g /= own @ g[:n]
        far = float(below @ (g[:n] * own)[order]) >= STRANGE
        rho = np.maximum(1.0 + np.multiply.outer(PARTS, g - 1.0), 1e-6)
        one = np.log1p(rho)
        gain = 0.5 * (
            np.maximum(np.log(2.0) - one[:, :n], -LARGEST_LOSS) @ own
            + np.maximum(np.log(2.0) + np.log(rho[:, n:]) - one[:, n:], -LARGEST_LOSS) @ other
        )
        for strange in (True, False):
            fits = (far & (PARTS <= PART)) == strange
            found[strange] = max(found[strange], *gain[fits].tolist()) if fits.any() else found[strange]
    size = [float(w.sum() ** 2 / (w @ w)) for w in weights]  # rows of unequal weight say as much as fewer equal ones
    scale = 8.0 / (1.0 / size[0] + 1.0 / size[1])
    return Reading(scale * found[False], scale * found[True])


class _Tilt:
    """A score of the columns, as normal scores of their ranks and squares of these, learned from rows that are not set aside; out of sample."""

    def __init__(self, sides: Any, weights: tuple[Floats, Floats], folds: Any, bulk: list[NDArray[np.bool_]]) -> None:
        self.n = len(sides[0])
        low, high = np.quantile(sides[0], RANGE, axis=0)
        x = rankdata(np.clip(np.concatenate(sides), low, high), axis=0)
        x = ndtri((x - 0.5) / len(x))
        x = np.concatenate([x, x**2], axis=1)
        x -= x.mean(axis=0)
        x /= np.maximum(x.std(axis=0), 1e-12)
        kept = np.concatenate(bulk)
        inside = weights[0][bulk[0]], weights[1][bulk[1]]
        weight = np.concatenate([np.where(part, w, 0.0) / w[part].sum() for w, part in zip(weights, bulk, strict=True)])
        side = np.repeat([-0.5, 0.5], [len(part) for part in sides])
        self.reading, self.log_odds = Reading(0.0, 0.0), np.zeros(len(x))
        for score in _scores(x, weight, side, np.concatenate(folds)):
            reading = read(score[kept], int(bulk[0].sum()), inside)
            if reading.gain > self.reading.gain:
                self.reading, self.log_odds = reading, _line(score, weight, side)


def _scores(x: Floats, weight: Floats, side: Floats, fold: NDArray[Any]) -> Iterator[Floats]:
    """Yield least-squares scores of each row by the other folds, one for each penalty."""
    scaled = x * weight[:, None]
    gram, moment = x.T @ scaled, scaled.T @ side
    out = np.empty((len(PENALTIES), len(x)))
    for k in np.unique(fold):
        inside = fold == k
        rest, along = gram - x[inside].T @ scaled[inside], moment - scaled[inside].T @ side[inside]
        for j, penalty in enumerate(PENALTIES):
            out[j, inside] = x[inside] @ solve(rest + 2.0 * penalty * np.eye(len(rest)), along, assume_a="pos")
    yield from out


def _line(score: Floats, weight: Floats, side: Floats) -> Floats:
    """Return log p_U / p_I as a line in a score, of the largest likelihood."""
    design = np.stack([np.ones(len(score)), score / max(float(score.std()), 1e-12)], axis=1)
    line = np.zeros(2)
    for _ in range(25):
        p = expit(design @ line)
        slope = design.T @ (weight * ((side > 0.0) - p))
        curve = (design * (weight * p * (1.0 - p))[:, None]).T @ design + 1e-9 * np.eye(2)
        line = line + np.clip(np.linalg.solve(curve, slope), -2.0, 2.0)
    return np.asarray(design @ line)


def _strangers_left(
    tilt: _Tilt, views: Any, columns: tuple[Floats, Floats], own: Floats, other: Floats, folds: Any
) -> bool | None:
    """Tell whether labeled rows that are weighted like the moved ones still leave strangers: yes, none, or not to be told."""
    weight = own * np.minimum(np.exp(tilt.log_odds[: tilt.n]), LARGEST_WEIGHT)
    found = quick_ratio(views[0], views[1], weight / weight.mean(), other, folds)
    if found is None or not found.pi >= LEAST_LEFT:
        return False
    mean, sd = columns[0].mean(axis=0), np.maximum(columns[0].std(axis=0), 1e-12)
    near, far = (np.sum(np.minimum(np.abs(rows - mean) / sd, FAR) ** 2, axis=1) for rows in columns)
    sure = (p_ood(found.traffic, found.pi) >= SURE) & (far > np.quantile(near, 1.0 - FARTHEST))
    return True if float(other[sure].sum() / other.sum()) >= LEAST_SURE else None


def _all_columns(view: Activations) -> NDArray[Any]:
    """Return what of rows is compared: their features, or their logits where there are none."""
    return np.asarray(view.logits if view.features is None else view.features)


def _columns_of(view: Activations, at: NDArray[Any]) -> Floats:
    """Return some rows with no more columns than a score is learned from."""
    rows = _all_columns(view)
    columns = np.arange(0, rows.shape[1], max(1, -(-rows.shape[1] // COLUMNS)))
    return np.asarray(rows[np.ix_(at, columns)], dtype=np.float64)


def _most_moved(
    known: NDArray[Any], traffic: NDArray[Any], weights: tuple[Floats | None, Floats | None]
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """Return the columns whose distributions lie farthest apart, with shifts and spreads."""
    mass = [
        np.full(len(side), 1.0 / len(side)) if w is None else w / w.sum()
        for side, w in zip((known, traffic), weights, strict=True)
    ]
    step = np.concatenate([mass[0], -mass[1]])
    apart = np.empty(known.shape[1])
    for j in range(len(apart)):
        both = np.concatenate([known[:, j], traffic[:, j]])
        order = np.argsort(both, kind="stable")
        last = np.append(np.diff(both[order]) > 0.0, True)
        apart[j] = np.abs(np.cumsum(step[order])[last]).max()
    first = [j for j in np.argsort(-apart, kind="stable")[:NAMED].tolist() if apart[j] >= 0.5 * apart.max()]
    shift, spread = [], []
    for j in first:
        a, b = np.asarray(known[:, j], dtype=np.float64), np.asarray(traffic[:, j], dtype=np.float64)
        middle = [float(np.mean(np.clip(v, *np.quantile(v, RANGE)))) for v in (a, b)]
        shift.append((middle[1] - middle[0]) / max(float(np.std(a)), 1e-12))
        width = [float(np.subtract(*np.quantile(v, (0.84, 0.16)))) for v in (a, b)]
        spread.append(width[1] / width[0] if min(width) > 0.0 else 1.0)
    return tuple(first), tuple(shift), tuple(spread)


def moved_words(shift: float, spread: float) -> str:
    """Return how a column moved: by its middle or by its spread, whichever is more."""
    if abs(shift) >= abs(math.log(max(spread, 1e-12))):
        return f"{shift:+.2g} sd"
    return f"spread x {spread:.2g}"
