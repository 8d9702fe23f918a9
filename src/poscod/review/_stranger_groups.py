# SPDX-License-Identifier: BSD-3-Clause
"""What strangers are: groups of similar ones, how many there are of each, and what sets them apart from known inputs.

Convention: a row is a likely stranger where p(OOD | x) > 1/2. Groups are a description and promise nothing; sizes count the known inputs that such rows hold by what ID rows
reach, as a list with a promise does.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import silhouette_score
from sklearn.utils import check_random_state

from poscod import _show
from poscod._json import plain
from poscod._validation import Floats, check_count, check_number, refusal
from poscod.activations import Activations
from poscod.metrics import Interval
from poscod.model import estimate_share, names_of
from poscod.ratio import p_ood
from poscod.review._log import columns_of, log_of
from poscod.review._strangers import evidence

# Rows that a group has at least, groups that are tried, directions in which rows are compared, and rows by which groups are chosen.
_LEAST, _MOST_GROUPS, _DIRECTIONS, _CLUSTERED = 8, 15, 10, 1500
# Samples without groups that rows must beat, by how much, and standard deviations beyond which a value is only far.
_REFERENCES, _MARGIN, _FARTHEST = 3, 0.03, 5.0
_DRAWS = 4000
# Rows of the log, and of its likely strangers, whose columns are looked at.
_SEEN = 20_000
# Seconds of the periods in which a rate is told: the longest one that the log fills.
_PERIODS = {"week": 604_800.0, "day": 86_400.0, "hour": 3_600.0}
# Columns whose middle moved less than so many standard deviations set nothing apart, and columns that are named.
_APART, _NAMED = 0.5, 3
# And the least standard deviation that is taken for that of known inputs, as a part of that of the log.
_LEAST_SPREAD = 0.1


@dataclass(frozen=True, eq=False, repr=False)
class StrangerGroup:
    """Likely strangers that are alike.

    Parameters
    ----------
    index : ndarray of shape (n,), int
        Rows in the log, from 0, the most typical first.
    size : Interval
        How many of them are strangers.
    apart : tuple of (str, float)
        Columns that set the group apart: its middle, in standard deviations of known inputs; none where columns mean nothing, as in a network's layer.
    answer : object
        The classifier's most frequent answer: the class that the group resembles most.
    answer_share : float
        How often it is given.
    nearest : ndarray of shape (k,), int
        Rows of likely known inputs that are nearest to the middle of the group.
    first, last : object
        Its first and last time; None where no times are given.
    rate : Interval or None
        Strangers of the group in a `period`, on average over the time of the log; None where times are no dates, or less than an hour apart.
    period : str or None
        "week", "day" or "hour".
    """

    index: NDArray[np.int64]
    size: Interval
    apart: tuple[tuple[str, float], ...]
    answer: Any
    answer_share: float
    nearest: NDArray[np.int64]
    first: Any = None
    last: Any = None
    rate: Interval | None = None
    period: str | None = None

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"StrangerGroup({self.sentence()})"

    def _repr_html_(self) -> str:
        return _show.paragraph(self.sentence())

    def sentence(self) -> str:
        """Return the group in words.

        Returns
        -------
        text : str
        """
        low, high = round(self.size.low), round(self.size.high)
        words = ", ".join(f"{name} ({shift:+.1f} sd)" for name, shift in self.apart)
        often = "" if self.rate is None else f", {rate_words(self.rate.estimate, str(self.period))}"
        times = "" if self.first is None else f", from {self.first} to {self.last}"
        like = f"{'set apart by ' + words + ', ' if words else ''}answered {self.answer} in {100 * self.answer_share:.0f} % of cases"
        return f"about {round(self.size.estimate):,} strangers ({low:,} to {high:,}) among {len(self):,} inputs that are alike{often}: {like}{times}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON.

        Returns
        -------
        document : dict
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        times = {name: None if values[name] is None else str(values[name]) for name in ("first", "last")}
        document: dict[str, Any] = plain(
            {**values, **times, "apart": [{"column": name, "shift": shift} for name, shift in self.apart]}
        )
        return {**document, "sentence": self.sentence()}


def rate_words(rate: float, period: str) -> str:
    """Say how often something comes.

    Examples
    --------
    >>> rate_words(339.6, "week"), rate_words(2.5, "hour")
    ('340 a week', '2.5 an hour')
    """
    shown = f"{rate:,.0f}" if rate >= 9.95 else f"{rate:.1f}".removesuffix(".0")
    return f"{shown} {'an' if period == 'hour' else 'a'} {period}"


def stranger_groups(
    model: Any,
    X: Any,
    *,
    times: Any = None,
    X_id: Any = None,
    level: float = 0.95,
    most: int = _MOST_GROUPS,
    random_state: Any = 0,
) -> list[StrangerGroup]:
    """Find groups among the likely strangers of a log.

    Parameters
    ----------
    model : POSCOD
        Fitted with unlabeled traffic.
    X : like the rows given to `POSCOD.fit`, or DaskLog
        The log: a new one, or the traffic of the fit.
    times : array-like of shape (n,), default=None
        When each row came: numbers, dates or texts that sort by time. Dates, also as ISO texts, give a rate.
    X_id : like X, default=None
        Known inputs that are not rows of the fit; see `strangers`.
    level : float in (0, 1), default=0.95
        Coverage of the interval of each size.
    most : int, default=15
        Largest number of groups.
    random_state : int, RandomState or None, default=0
        Seed of k-means.

    Returns
    -------
    groups : list of StrangerGroup
        The largest first; empty where fewer than eight rows are likely strangers.

    Notes
    -----
    Likely strangers are compared as the ratio sees them: the first ten principal components of their features, scaled to unit variance over the log, or, of a network's
    layer, to unit length. k-means by silhouette chooses the number of groups; one group stays where it does no better than on
    Gaussian rows of the same covariance. Of a log with more than 20,000 rows, or as many likely strangers, columns of that many are looked at. How many known inputs there are among all likely strangers is read from ID rows that the ratio has not seen. The estimate of a size
    deals them out to the groups in proportion to the sum of 1 - p(OOD | x); the lower end of its interval is the size that is left if all of them were in this group.

    Examples
    --------
    >>> from poscod import POSCOD
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 7.0], [1.5, -7.0]])
    >>> X, y = world.sample_id(600, random_state=0)
    >>> log, _ = world.sample_mixture(500, pi=0.2, random_state=1)
    >>> model = POSCOD(random_state=0).fit(X, y, X_unlabeled=log)
    >>> groups = stranger_groups(model, log)
    >>> len(groups), sorted(round(group.apart[0][1] / abs(group.apart[0][1])) for group in groups)
    (2, [-1, 1])
    """
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    most, rng = check_count(most, "most"), check_random_state(random_state)
    log = log_of(model, X)
    if times is not None and len(times) != len(log):
        raise refusal("times", "must have as many rows as X ({allowed}), got {got}.", allowed=len(log), got=len(times))
    score, known, _ = evidence(model, log, X_id, rng)
    share = estimate_share(known, score, level)
    pi = float(np.clip(share.estimate, 1e-6, 1.0 - 1e-6))
    strange = p_ood(score, pi)
    rows = np.flatnonzero(strange > 0.5)
    if len(rows) < _LEAST:
        return []
    some, some_rows = (_some(places, rng) for places in (np.arange(len(log)), rows))
    view = log.view(some)
    columns, strange_columns = columns_of(view), columns_of(log.view(some_rows))
    scale = None if model.scorer_.network and not view.table else _scale(columns)
    place = PCA(min(_DIRECTIONS, columns.shape[1], len(rows) - 1), random_state=0).fit(_scaled(strange_columns, scale))
    space = log.mapped(partial(_placed, place, scale), rows)
    member = _cluster(space, most, rng)
    reached = int((p_ood(known, pi) > 0.5).sum())
    estimate, low, high = (len(score) * (1.0 - value) for value in (share.estimate, share.high, share.low))
    sizes = _sizes(member, strange[rows], Interval(estimate, low, high, level), (reached, len(known)), rng)
    answer = log.decisions.label
    names = _names(model, columns.shape[1]) if view.features is not None else None
    calm = np.flatnonzero(strange[some] <= 0.5)
    calm_space = place.transform(_scaled(columns[calm], scale)) if len(calm) else space[:0]
    periods = None if times is None else _periods(np.asarray(times))
    found = []
    for code, size in enumerate(sizes):
        inside = member == code
        own, middle = rows[inside], space[inside].mean(axis=0)
        own = own[np.argsort(((space[inside] - middle) ** 2).sum(axis=1), kind="stable")]
        labels, count = np.unique(answer[own], return_counts=True)
        near = some[calm[np.argsort(((calm_space - middle) ** 2).sum(axis=1), kind="stable")[:_NAMED]]]
        when = None if times is None else np.sort(np.asarray(times)[own])
        theirs = strange_columns[np.isin(some_rows, own)]
        found.append(
            StrangerGroup(
                index=own,
                size=size,
                apart=() if names is None or not len(theirs) else _apart(columns, theirs, 1.0 - strange[some], names),
                answer=labels[count.argmax()].item(),
                answer_share=float(count.max() / len(own)),
                nearest=near,
                first=None if when is None else when[0],
                last=None if when is None else when[-1],
                rate=None if periods is None else _per(size, periods[1]),
                period=None if periods is None else periods[0],
            )
        )
    return sorted(found, key=lambda group: -group.size.estimate)


def _some(rows: NDArray[np.int64], rng: Any) -> NDArray[np.int64]:
    """Return rows whose columns are looked at: all of them, or a random part of many."""
    return rows if len(rows) <= _SEEN else np.sort(rng.choice(rows, _SEEN, replace=False))


def _scale(columns: Floats) -> tuple[Floats, Floats]:
    """Return middle and spread of each column."""
    spread = columns.std(axis=0)
    return np.median(columns, axis=0), np.where(spread > 0.0, spread, 1.0)


def _scaled(columns: Floats, scale: tuple[Floats, Floats] | None) -> Floats:
    """Return rows as they are compared: by direction in a network's layer, which has no scale."""
    if scale is None:
        return np.asarray(columns / np.maximum(np.linalg.norm(columns, axis=1, keepdims=True), 1e-300))
    return np.asarray(np.clip((columns - scale[0]) / scale[1], -_FARTHEST, _FARTHEST))


def _placed(place: PCA, scale: tuple[Floats, Floats] | None, view: Activations) -> Floats:
    return np.asarray(place.transform(_scaled(columns_of(view), scale)))


def _periods(times: NDArray[Any]) -> tuple[str, float] | None:
    """Return the longest period that times fill, and how many of them; None where times are no dates, or too near to each other."""
    try:
        first, last = (_moment(value) for value in np.sort(times)[[0, -1]])  # texts have no minimum in numpy
    except (TypeError, ValueError):
        return None
    seconds = (last - first).total_seconds()
    return next(((name, seconds / unit) for name, unit in _PERIODS.items() if seconds >= unit), None)


def _per(size: Interval, periods: float) -> Interval:
    return Interval(size.estimate / periods, size.low / periods, size.high / periods, size.level)


def _moment(value: Any) -> datetime.datetime:
    """Return a date as Python has it; numbers have no unit, and are refused."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):  # Python 3.10 does not know the Z of UTC
        value = datetime.datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime.datetime):
        raise TypeError(type(value).__name__)
    return value if value.tzinfo is not None else value.replace(tzinfo=datetime.timezone.utc)


def _cluster(space: Floats, most: int, rng: Any) -> NDArray[np.int64]:
    """Return the group of each row, from 0."""
    some = space if len(space) <= _CLUSTERED else space[np.sort(rng.permutation(len(space))[:_CLUSTERED])]
    spread = np.cov(some, rowvar=False).reshape(some.shape[1], some.shape[1])
    best, means = _best(some, range(2, most + 1), rng)
    if means is None:
        return np.zeros(len(space), dtype=np.int64)
    # Rows without groups split best into few, so that few numbers of groups are enough to compare with.
    few = {2, 3, means.n_clusters}
    draws = (rng.multivariate_normal(np.zeros(len(spread)), spread, size=len(some)) for _ in range(_REFERENCES))
    if best <= max(_best(draw, few, rng)[0] for draw in draws) + _MARGIN:
        return np.zeros(len(space), dtype=np.int64)
    return np.unique(means.predict(space), return_inverse=True)[1]


def _best(space: Floats, sizes: Iterable[int], rng: Any) -> tuple[float, KMeans | None]:
    """Return the best silhouette of k-means and what reaches it; None where rows do not split into groups of some size."""
    found: tuple[float, KMeans | None] = (-1.0, None)
    for k in (k for k in sizes if k <= len(space) // _LEAST):
        means = KMeans(k, n_init=3, random_state=rng.randint(2**31 - 1))
        with np.errstate(all="ignore"):
            labels = means.fit_predict(space)
        if np.bincount(labels, minlength=k).min() >= _LEAST and (score := silhouette_score(space, labels)) > found[0]:
            found = float(score), means
    return found


def _sizes(
    member: NDArray[np.int64], strange: Floats, known: Interval, reached: tuple[int, int], rng: Any
) -> list[Interval]:
    """Return how many strangers each group holds: its rows less its part of the known inputs that reach so far, and less all of them at worst."""
    above, n = reached
    total, doubt = np.bincount(member), np.bincount(member, 1.0 - strange).astype(np.float64)
    part = doubt / max(float(doubt.sum()), 1e-300)
    # The law of the share of known inputs that reach so far, and of how many there are then: an urn, as for a list of strangers.
    drawn = rng.binomial(round(known.high), rng.beta(above + 1.0, max(n - above, 1e-9), size=_DRAWS))
    worst = float(np.quantile(drawn, known.level, method="higher"))
    return [
        Interval(max(rows - own, rows - worst, 0.0), max(rows - worst, 0.0), float(rows), known.level)
        for rows, own in zip(total.tolist(), (known.estimate * above / max(n, 1) * part).tolist(), strict=True)
    ]


def _names(model: Any, n: int) -> list[str] | None:
    """Return names of the columns that the ratio sees; None where they mean nothing to people."""
    if model.scorer_.network and not model.schema_.table:
        return None
    made = names_of(model.scorer_.classifier) if model.scorer_.transforms else list(model.schema_.numbers)
    return made if made is not None and len(made) == n else [f"column {j}" for j in range(n)]


def _apart(columns: Floats, own: Floats, known: Floats, names: list[str]) -> tuple[tuple[str, float], ...]:
    """Return the columns whose middle moved farthest among a group's own rows, in standard deviations of likely known rows."""
    middle = np.average(columns, axis=0, weights=known)
    spread = np.sqrt(np.average((columns - middle) ** 2, axis=0, weights=known))
    # What nearly all known inputs share has hardly a standard deviation: a part of that of the log stands in.
    spread = np.maximum(spread, _LEAST_SPREAD * columns.std(axis=0))
    shift = (own.mean(axis=0) - middle) / np.where(spread > 0.0, spread, np.inf)
    order = np.argsort(-np.abs(shift), kind="stable")[:_NAMED]
    return tuple((names[j], float(shift[j])) for j in order.tolist() if abs(shift[j]) >= _APART)
