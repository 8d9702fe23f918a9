# SPDX-License-Identifier: BSD-3-Clause
"""What verdicts add to log g: a correction that is linear in log g itself, in what the logits say, and in the features.

Convention: people look at rows of the traffic that were chosen by what they hold and by chance. So the share of OOD rows among them says nothing about pi, but a
verdict at x is a toss with p(O | x) = pi g / (1 - pi + pi g), whatever the choice. A candidate is a penalty, a set of columns, and whether labeled rows and
traffic have their say beside the verdicts, which rests on the stillness of known inputs. No correction is a candidate, too. Candidates count by the likelihood of
verdicts that they have not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit, softmax
from threadpoolctl import threadpool_limits

from poscod._validation import Floats
from poscod.activations import Activations
from poscod.ratio._evidence import TINY, logit_evidence
from poscod.ratio._ratio import LOG_LIMIT, Ratio

# Penalties 0.5 l2 |theta|^2 of coefficients of standardised columns, beside a sum over verdicts, from strong to weak. Constants of this file were chosen on textures, on MNIST,
# and on CIFAR-10 with two classes hidden.
PENALTIES = (300.0, 100.0, 30.0, 10.0, 3.0)
FOLDS = 5
# Fewer verdicts than this do not show that there are no OOD inputs where none of them is one: of 50, none excludes a share above 6 %.
FEW_VERDICTS = 50
# Standardised columns count up to here, and log g up to there: farther is no farther.
CORRECTION_BOUND, CORRECTED_UP_TO = 8.0, 50.0
# Columns before the features: log g and what the logits say.
FEW = 6
# Labeled rows, and rows of the traffic, that have their say.
ROWS = 4000
ITERATIONS = 200
# Stillness is the rule: candidates without it start with this much less log-likelihood, or with no less where unlabeled rows could not tell. Known inputs are taken to have
# moved from this weight of theirs on.
DOUBT, EVEN, REFUTED = 3.0, 0.0, 0.9
# Gains in log-likelihood count by this much: a mean over more candidates is steadier than those that happen to be ahead.
TEMPER = 0.5


class Side(NamedTuple):
    """Some rows: what was seen of them, their log g by parts that have not seen them, weights and groups."""

    rows: Activations
    log_ratio: Floats
    weight: Floats | None = None
    group: NDArray[np.uint64] | None = None


@dataclass(frozen=True, eq=False)
class Correction:
    """What is added to log g of a row, and how its columns are standardised.

    Parameters
    ----------
    mean, scale : ndarray of shape (d,)
        Of the columns: log g, five statistics of the logits, features.
    theta : ndarray of shape (d,)
        Coefficients of the standardised columns.
    intercept : float
        Added to their sum.
    """

    mean: Floats
    scale: Floats
    theta: Floats
    intercept: float

    @property
    def sees_features(self) -> bool:
        """Whether features are among the columns."""
        return len(self.theta) > FEW

    def __call__(self, rows: Activations, log_ratio: Floats) -> Floats:
        """Return log g of rows, from their log g without verdicts."""
        x = _standardised(_columns(rows, log_ratio), self.mean, self.scale)
        # Below, the likelihood has read no farther: a correction by tens must not be lost on a log g of minus hundreds.
        return np.asarray(np.maximum(log_ratio, -CORRECTED_UP_TO) + x @ self.theta + self.intercept)


class Learned(NamedTuple):
    """What verdicts say.

    Attributes
    ----------
    correction : Correction
        Of log g.
    pi : float
        OOD prior of the traffic.
    moved : bool
        Whether known inputs of the traffic have moved: known before, or because verdicts speak against their stillness.
    """

    correction: Correction
    pi: float
    moved: bool


@dataclass(frozen=True, eq=False)
class ReviewedRatio:
    """A fitted ratio with the correction that verdicts give it.

    Parameters
    ----------
    base : estimator
        A fitted ratio.
    correction : Correction
        What is added to its log g.
    ood_prior_ : float
        Share of OOD rows in the traffic.
    moved_ : bool
        Whether verdicts say that known inputs of the traffic have moved: nothing about OOD rows is certified then.
    """

    base: Any
    correction: Correction = field(repr=False)
    ood_prior_: float
    moved_: bool

    @property
    def columns_(self) -> dict[str, int]:
        """Columns of features and logits seen at fit."""
        return dict(self.base.columns_)

    def log_ratio(self, X: Any) -> Floats:
        """Return log g(x) of rows with the logits of the classifier and, where the ratio was fitted on some, features."""
        own = self.base.log_ratio(X, deciding=True) if isinstance(self.base, Ratio) else self.base.log_ratio(X)
        return np.clip(self.correction(X, np.asarray(own)), -LOG_LIMIT, LOG_LIMIT)

    def ratio(self, X: Any) -> Floats:
        """Return g(x)."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.log_ratio(X)))

    def ood_prior_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval without verdicts, stretched to what they say; `poscod.review.assess` has one that trusts nothing but them."""
        low, high = self.base.ood_prior_interval(level)
        return 0.0 if self.moved_ else min(low, self.ood_prior_), max(high, self.ood_prior_)

    def ood_prior_lower_bound(self, level: float = 0.95) -> float:
        """Return what is certified of the OOD share without verdicts, as far as they do not contradict."""
        return 0.0 if self.moved_ else min(float(self.base.ood_prior_lower_bound(level)), self.ood_prior_)


def learn(
    known: Side,
    traffic: Side,
    reviewed: Side,
    is_ood: NDArray[np.bool_],
    pi: float,
    *,
    doubt: float | None,
    places: NDArray[np.intp],
    given: float | None = None,
) -> Learned:
    """Return what verdicts say.

    Parameters
    ----------
    known, traffic, reviewed : Side
        Labeled rows, the traffic, and the rows with a verdict.
    is_ood : ndarray of bool
        Verdict of each reviewed row.
    pi : float
        OOD prior without verdicts.
    doubt : float or None
        Log-likelihood with which candidates that do not rest on the stillness of known inputs start behind the others; None where known inputs have moved,
        infinite where they have not.
    places : ndarray of int
        Place of each reviewed row in the traffic, -1 where it is not there.
    given : float or None
        The OOD prior, where it is known.
    """
    sides = _some(known), _some(traffic), reviewed
    columns = [_columns(side.rows, side.log_ratio) for side in sides]
    both = np.concatenate(columns[:2])
    mean, scale = both.mean(axis=0), both.std(axis=0)
    scale = np.where(scale > 1e-9 * (1.0 + np.abs(mean)), scale, np.inf)
    start = float(np.clip(np.nan_to_num(pi, nan=0.1), 0.5 / len(traffic.log_ratio), 0.99))
    x = [_standardised(values, mean, scale) for values in columns]
    with threadpool_limits(1, user_api="blas"):  # products are small
        params, moved = _weighed(x, sides, is_ood, start, doubt)
    theta, shift = params[:-2], float(params[-2])
    # log odds of OOD in the traffic; pi is their mean, and g is what makes them of it.
    plain = Correction(mean, scale, theta, shift + float(logit(start)))
    ood = expit(plain(traffic.rows, np.clip(traffic.log_ratio, -CORRECTED_UP_TO, CORRECTED_UP_TO)))
    ood[places[places >= 0]] = is_ood[places >= 0]
    share = float(np.average(ood, weights=traffic.weight)) if given is None else given
    found = float(np.clip(share, 0.5 / len(ood), 0.999))
    return Learned(Correction(mean, scale, theta, plain.intercept - float(logit(found))), found, moved)


class Candidate(NamedTuple):
    """Penalties of the columns that it uses, the first ones, and whether labeled rows and traffic have their say."""

    l2: Floats
    still: bool


def _candidates(width: int, doubt: float | None) -> Iterator[Candidate]:
    """Iterate over all but no correction, from strong penalties to weak ones."""
    for own in (False,) if doubt is None else (True,) if np.isinf(doubt) else (True, False):
        yield Candidate(np.zeros(0), own)
        for used in (FEW, width) if width > FEW else (FEW,):
            yield from (Candidate(np.full(used, penalty), own) for penalty in PENALTIES)


def _weighed(
    x: list[Floats], sides: tuple[Side, Side, Side], is_ood: NDArray[np.bool_], pi: float, doubt: float | None
) -> tuple[Floats, bool]:
    """Return (theta, shift, logit pi), a mean over the candidates by what verdicts of other folds say of them, and whether known inputs have moved."""
    likelihood, width, still = _Likelihood(x, sides, is_ood, pi), x[0].shape[1], doubt is not None
    fold = _folds(is_ood)
    none = before = np.r_[np.zeros(width + 1), logit(pi)]
    fits, gains, own = [none], [float(likelihood.verdicts(none).sum())], [still]
    for candidate in _candidates(width, doubt):
        before = likelihood.fit(candidate, before if len(candidate.l2) > FEW else none, np.ones(len(fold)))
        held = [
            likelihood.verdicts(likelihood.fit(candidate, before, (fold != k) * 1.0))[fold == k] for k in range(FOLDS)
        ]
        fits.append(before)
        gains.append(float(np.concatenate(held).sum()))
        own.append(candidate.still)
    stands, gain = np.array(own), np.array(gains)
    behind = np.where(stands, 0.0, doubt or 0.0)
    moved = not still or bool(softmax(gain - behind)[~stands].sum() > REFUTED)
    # Where stillness is refuted, what rests on it has no say.
    weight = softmax(np.where(stands & moved, -np.inf, TEMPER * gain - behind))
    return np.asarray(weight @ np.array(fits)), moved


def _folds(is_ood: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return folds with their share of either verdict."""
    fold = np.empty(len(is_ood), dtype=np.int64)
    for verdict in (False, True):
        at = np.random.default_rng(0).permutation(np.flatnonzero(is_ood == verdict))
        fold[at] = np.arange(len(at)) % FOLDS
    return fold


class _Likelihood:
    """Log-likelihood of verdicts, labeled rows and traffic, with l the log odds of OOD in the traffic, which start at log g + logit(pi)."""

    def __init__(self, x: list[Floats], sides: tuple[Side, Side, Side], is_ood: NDArray[np.bool_], pi: float) -> None:
        self._x = np.concatenate(x[:2]), x[2]
        start = [np.clip(side.log_ratio, -CORRECTED_UP_TO, CORRECTED_UP_TO) + logit(pi) for side in sides]
        self._start, self._ood = (np.concatenate(start[:2]), start[2]), is_ood
        weights = [np.ones(len(s.log_ratio)) if s.weight is None else s.weight / s.weight.mean() for s in sides[:2]]
        self._mass, self._n = np.concatenate(weights), len(start[0])
        self._odds = float(np.log(weights[1].sum() / weights[0].sum()))

    def verdicts(self, params: Floats) -> Floats:
        """Return the log-likelihood of each verdict."""
        log_odds = self._start[1] + self._x[1] @ params[:-2] + params[-2]
        return np.asarray(np.where(self._ood, log_expit(log_odds), log_expit(-log_odds)))

    def fit(self, candidate: Candidate, start: Floats, weight: Floats) -> Floats:
        """Return the parameters of the largest penalised likelihood, with verdicts weighted."""
        d = len(candidate.l2)
        used = np.r_[np.arange(d), len(start) - 2, len(start) - 1]
        options: Any = {"maxiter": ITERATIONS, "ftol": 1e-7}
        found = minimize(self._loss, start[used], (candidate, weight), jac=True, method="L-BFGS-B", options=options).x
        out = np.r_[np.zeros(len(start) - 1), start[-1]]
        out[used] = found
        return out

    def _loss(self, part: Floats, candidate: Candidate, weight: Floats) -> tuple[float, Floats]:
        theta, shift, prior = part[:-2], part[-2], part[-1]
        d = len(theta)
        log_odds = self._start[1] + self._x[1][:, :d] @ theta + shift
        value = -float(weight @ np.where(self._ood, log_expit(log_odds), log_expit(-log_odds)))
        chance = expit(log_odds)
        toss = weight * (chance - self._ood)
        if not candidate.still and len(weight) < FEW_VERDICTS:
            # Nothing else says how many are OOD, and a few verdicts that are all alike would make every input so: one more verdict each way, of no row in particular.
            n = float(weight.sum())
            mean = float(np.clip(weight @ chance / n, TINY, 1.0 - TINY))
            value -= float(np.log(mean) + np.log1p(-mean))
            toss += (1.0 / (1.0 - mean) - 1.0 / mean) / n * weight * chance * (1.0 - chance)
        slope = np.r_[self._x[1][:, :d].T @ toss, toss.sum(), 0.0]
        if candidate.still:
            # p_U / p_I = (1 - pi) (1 + e^l): which side a row is from is a toss with these odds times those of the sides.
            log_odds = self._start[0] + self._x[0][:, :d] @ theta + shift
            side = self._odds + log_expit(-prior) - log_expit(-log_odds)
            sign = np.where(np.arange(len(side)) < self._n, 1.0, -1.0)
            value += float(self._mass @ -log_expit(-sign * side))
            by_side = self._mass * sign * expit(sign * side)
            by_row = by_side * expit(log_odds)
            slope += np.r_[self._x[0][:, :d].T @ by_row, by_row.sum(), -expit(prior) * by_side.sum()]
        return value + 0.5 * float(candidate.l2 @ theta**2), slope + np.r_[candidate.l2 * theta, 0.0, 0.0]


def _some(side: Side) -> Side:
    """Return no more rows than have their say, at equal steps."""
    at = np.arange(0, len(side.log_ratio), max(1, -(-len(side.log_ratio) // ROWS)))
    return Side(side.rows[at], side.log_ratio[at], None if side.weight is None else side.weight[at])


def _columns(rows: Activations, log_ratio: Floats) -> Floats:
    """Return what a correction sees of rows."""
    parts = [np.clip(log_ratio, -CORRECTED_UP_TO, CORRECTED_UP_TO)[:, None], logit_evidence(np.asarray(rows.logits))]
    if rows.features is not None:
        parts.append(np.asarray(rows.features, dtype=np.float64))
    return np.concatenate(parts, axis=1)


def _standardised(values: Floats, mean: Floats, scale: Floats) -> Floats:
    """Return standardised columns, bounded; a constant one is zero."""
    return np.clip((values - mean) / scale, -CORRECTION_BOUND, CORRECTION_BOUND)
