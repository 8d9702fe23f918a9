# SPDX-License-Identifier: BSD-3-Clause
"""Which inputs of a log a person should look at, with what chance each of them was drawn, and why.

Convention: every input lies in one stratum (answered or rejected, near the threshold or not, ...), and a fixed number of inputs is drawn from each
stratum, all with the same chance. So the chance of an input is exactly that number over the size of its stratum, and it is never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from poscod._optional import require
from poscod._validation import Floats, check_count, check_number, check_vector, refusal
from poscod.decision import Decisions
from poscod.model import n_rows, take

AUDIT = "random audit: drawn from all inputs, so that the numbers hold"
# A stratum needs some rows of its own, in the log and among those that are looked at: its variance is found from them.
_ROWS_OF_STRATUM, _LOOKS_OF_STRATUM, _LEAST_LOOKS = 5, 6, 3
# Spread that is granted to inputs of which the model is certain: it may be wrong.
_LEAST_SPREAD = 0.05
_MOST_GROUPS, _CLUSTERED = 8, 4000
_NEAR, _CONFLICT, _STRANGERS, _REST = "near the threshold", "r and g disagree", "strangers", "the rest"


@dataclass(frozen=True, eq=False, repr=False)
class Queue:
    """Inputs to look at, column by column, in random order: whoever stops early has seen a smaller sample of the same kind.

    Parameters
    ----------
    index : ndarray of shape (n,), int
        Row of the input in the log, from 0.
    why : ndarray of shape (n,), str
        Why it is here, in words.
    probability : ndarray of shape (n,)
        Chance with which it was drawn.
    stratum : ndarray of shape (n,), str
        What it was drawn from; all inputs of a stratum have the same chance.
    answer : ndarray of shape (n,)
        The classifier's answer, also where it is rejected.
    accept : ndarray of shape (n,), bool
        Whether the answer stands.
    reason : ndarray of shape (n,), str
        Reason of the decision.

    Examples
    --------
    >>> Queue(index=[4, 0], why=["random audit", "near the threshold"], probability=[0.5, 0.5], stratum=["all", "all"],
    ...       answer=["cat", "dog"], accept=[True, False], reason=["accepted", "both"])
    Queue(2 of 4 inputs)
    """

    index: NDArray[np.int64]
    why: NDArray[np.str_]
    probability: Floats
    stratum: NDArray[np.str_]
    answer: NDArray[Any]
    accept: NDArray[np.bool_]
    reason: NDArray[np.str_]

    def __post_init__(self) -> None:
        n = len(self.index)
        index = check_vector(self.index, "index", allow_inf=False, minimum=0.0)
        if len(np.unique(index)) < n or (index != np.floor(index)).any():
            raise refusal(
                "index", "must hold every row once, as whole numbers: keep the rows of the queue as they are."
            )
        probability = check_vector(self.probability, "probability", n=n, like="index", minimum=0.0)
        if n and not 0.0 < probability.min() <= probability.max() <= 1.0:
            raise refusal(
                "probability",
                "must hold chances in (0, 1], got {got:g}.",
                got=probability[np.argmax(probability - 1.0)],
            )
        own = {"index": index.astype(np.int64), "probability": probability, "accept": np.asarray(self.accept, bool)}
        for field in fields(self):
            values = own.get(field.name, np.asarray(getattr(self, field.name)))
            if len(values) != n:
                raise refusal(
                    field.name, "must have as many rows as index ({allowed}), got {got}.", allowed=n, got=len(values)
                )
            object.__setattr__(self, field.name, values)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Queue:
        """Return the queue that a table holds, such as a data frame that was written and read back.

        Parameters
        ----------
        columns : mapping of str to array-like, or data frame
            With the columns of a queue; others are ignored.

        Returns
        -------
        queue : Queue
        """
        names = [field.name for field in fields(cls)]
        if missing := [name for name in names if name not in columns]:
            raise refusal(
                "columns", "must hold {allowed}, got none of the name {got!r}.", allowed=names, got=missing[0]
            )
        return cls(**{name: np.asarray(columns[name]) for name in names})

    @property
    def n_rows(self) -> int:
        """Number of inputs that the queue stands for: all of the log."""
        return round(float((1.0 / self.probability).sum()))

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"Queue({len(self):,} of {self.n_rows:,} inputs)"

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as plain lists, ready for JSON.

        Returns
        -------
        columns : dict of str to list
        """
        return {field.name: getattr(self, field.name).tolist() for field in fields(self)}

    def frame(self) -> Any:
        """Return the columns as a table.

        Returns
        -------
        frame : pandas.DataFrame
        """
        pandas = require("pandas", extra="files", feature="Queue.frame")
        return pandas.DataFrame({field.name: getattr(self, field.name) for field in fields(self)})


def queue(model: Any, X: Any, n: int, *, audit: float = 0.5, random_state: Any = 0) -> Queue:
    """Choose inputs for a person to look at: a random audit, and inputs that pay.

    Parameters
    ----------
    model : POSCOD
        Fitted.
    X : like the rows given to `POSCOD.fit`
        The log. Rows that the model was fitted on may be among them.
    n : int
        Number of inputs to look at; all of a shorter log.
    audit : float in (0, 1], default=0.5
        Share of the work that is spread evenly over the log; the rest goes where the model says that a look pays. No input has a smaller chance than
        about audit times that of plain random review.
    random_state : int, RandomState or None, default=0
        Seed of the draw.

    Returns
    -------
    queue : Queue
        Inputs in random order, each with the chance with which it was drawn and the reason in words.

    Notes
    -----
    With omega(x) the model's probability of OOD and r(x) its risk, an input is worth ``sqrt(q (1 - q))``: q = 1 - (1 - omega)(1 - r) where it was answered
    (is the answer right?), q = omega where it was rejected (is it a stranger?). Answered and rejected inputs are split at the inputs
    nearest to the threshold that carry half of that sum; inputs where r and g disagree (one in the highest tenth, the other in the lower half) and rejected
    strangers are strata of their own. The n looks are shared by the size of a stratum times ``audit + (1 - audit)`` times its mean worth over that of the
    log (Neyman's allocation, held back by the audit). Strangers are drawn at equal steps through groups of similar ones (k-means), so that every group of at
    least 1 / probability inputs is looked at.

    Examples
    --------
    >>> from poscod import POSCOD
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    >>> X, y = world.sample_id(600, random_state=0)
    >>> log, _ = world.sample_mixture(500, pi=0.1, random_state=1)
    >>> model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=log)
    >>> chosen = queue(model, log, 50)
    >>> chosen, bool(chosen.probability.min() > 0.04)
    (Queue(50 of 500 inputs), True)
    """
    n, total = check_count(n, "n"), n_rows(X)
    audit = check_number(audit, "audit", 0.0, 1.0, closed="right")
    if total == 0:
        raise refusal("X", "must hold at least one row, got none.")
    rng = check_random_state(random_state)
    n = min(n, total)
    decisions = model.decide(X)
    worth = _worth(model, decisions)
    unfamiliar, unsure = _disagree(decisions)
    stratum = _strata(decisions, worth, unfamiliar | unsure, n)
    names, codes, sizes = np.unique(stratum, return_inverse=True, return_counts=True)
    looks = _share_out(sizes, np.asarray(np.bincount(codes, worth), dtype=np.float64), n, audit)
    even = np.round(audit * n * sizes / total).astype(int)
    found, why = [], []
    for code, name in enumerate(names.tolist()):
        rows = rng.permutation(np.flatnonzero(codes == code))
        group = _groups(model, X, rows, rng) if name.endswith(_STRANGERS) else np.zeros(len(rows), dtype=np.int64)
        # Equal steps through rows that are sorted by group and in random order within: each row has the same chance, and no group is passed by.
        rows, group = rows[order := np.argsort(group, kind="stable")], group[order]
        steps = (rng.uniform() + np.arange(looks[code])) * (len(rows) / looks[code])
        places = rng.permutation(np.minimum(steps.astype(np.int64), len(rows) - 1))
        found.append(rows[places])
        sizes_of = np.bincount(group)[group[places]]
        words = _why(name, decisions[found[-1]], sizes_of, unfamiliar[found[-1]], model.rule_.threshold)
        why += [AUDIT if i < even[code] else word for i, word in enumerate(words)]
    index = np.concatenate(found)
    mixed = rng.permutation(len(index))
    index = index[mixed]
    return Queue(
        index=index,
        why=np.array(why)[mixed],
        probability=(looks / sizes)[codes[index]],
        stratum=stratum[index],
        answer=decisions.label[index],
        accept=decisions.accept[index],
        reason=decisions.reason[index],
    )


def _worth(model: Any, decisions: Decisions) -> Floats:
    """Return how much a look at each input is worth, as far as the model knows."""
    pi = float(np.clip(model.calibration_.ood_prior, 0.01, 0.99)) if model.scorer_.ratio is not None else 0.01
    omega = special.expit(decisions.log_ratio + special.logit(pi))
    largest = float(model.rule_.problem.loss_matrix(len(model.scorer_.classes)).max())
    wrong = 1.0 - (1.0 - omega) * (1.0 - np.clip(decisions.risk / largest, 0.0, 1.0))
    doubt = np.where(decisions.accept, wrong, omega)
    return np.maximum(np.sqrt(doubt * (1.0 - doubt)), _LEAST_SPREAD)


def _strata(decisions: Decisions, worth: Floats, conflict: NDArray[np.bool_], n: int) -> NDArray[Any]:
    """Return the stratum of each input; as many as n looks can serve."""
    total, accept = len(decisions), decisions.accept
    most = n // _LOOKS_OF_STRATUM
    if most < 2:
        return np.full(total, "all inputs", dtype=object)
    side = np.where(accept, "answered", "rejected").astype(object)
    part = np.full(total, _REST, dtype=object)
    cuts = [
        (_NEAR, _nearest_half(-decisions.score, worth, accept)),
        (_NEAR, _nearest_half(decisions.score, worth, ~accept)),
        (_STRANGERS, ~accept & (decisions.reason != "ambiguous")),
        (_CONFLICT, conflict & ~accept),
        (_CONFLICT, conflict & accept),
    ]
    strata = len(np.unique(side))
    for name, mask in cuts:
        free = mask & (part == _REST)
        rest = (part == _REST) & (side == side[np.argmax(free)]) & ~free
        if free.sum() < _ROWS_OF_STRATUM:
            continue
        if rest.sum() < _ROWS_OF_STRATUM:
            part[free | rest] = name  # a few others do not make a stratum
        elif strata < most:
            part[free] = name
            strata += 1
    return side + ", " + part


def _nearest_half(distance: Floats, worth: Floats, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the inputs of one side nearest to the threshold that carry half of its worth, at most half of them."""
    near, rows = np.zeros(len(distance), dtype=bool), np.flatnonzero(mask)
    if len(rows):
        order = rows[np.argsort(distance[rows], kind="stable")]
        carried = np.cumsum(worth[order])
        near[order[: min(int(np.searchsorted(carried, carried[-1] / 2.0)), len(order) // 2)]] = True
    return near


def _disagree(decisions: Decisions) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where only g, and where only r, is in its highest tenth while the other is in its lower half."""
    n = len(decisions)
    if np.isneginf(decisions.log_ratio).all():
        return np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    risk, ratio = (stats.rankdata(values) / n for values in (decisions.risk, decisions.log_ratio))
    return (ratio > 0.9) & (risk <= 0.5), (risk > 0.9) & (ratio <= 0.5)


def _share_out(sizes: NDArray[np.int64], worth: Floats, n: int, audit: float) -> NDArray[np.int64]:
    """Return how many inputs of each stratum are looked at: n together, some of each, never more than there are."""
    wish = n * (audit * sizes / sizes.sum() + (1.0 - audit) * worth / worth.sum())
    least = np.minimum(sizes, min(_LEAST_LOOKS, n // len(sizes)))
    looks = np.clip(np.floor(wish).astype(np.int64), least, sizes)
    while (gap := n - looks.sum()) != 0:
        free = looks < sizes if gap > 0 else looks > least
        short = np.where(free, (wish - looks) * np.sign(gap), -np.inf)
        looks[np.argmax(short)] += np.sign(gap)
    return looks


def _groups(model: Any, X: Any, rows: NDArray[np.int64], rng: Any) -> NDArray[np.int64]:
    """Return groups of similar rows, numbered in random order."""
    view = model.scorer_.view(take(X, rows))
    columns = np.asarray(view.logits if view.features is None else view.features, dtype=np.float64)
    spread = columns.std(axis=0)
    # Values from nowhere must not make every other row one group.
    scaled = np.clip((columns - np.median(columns, axis=0)) / np.where(spread > 0.0, spread, 1.0), -5.0, 5.0)
    most = min(_MOST_GROUPS, len(np.unique(scaled, axis=0)), max(1, len(rows) // _ROWS_OF_STRATUM))
    if most == 1:
        return np.zeros(len(rows), dtype=np.int64)
    means = KMeans(most, n_init=1, random_state=rng.randint(2**31 - 1)).fit(scaled[:_CLUSTERED])
    return np.asarray(rng.permutation(most)[means.predict(scaled)], dtype=np.int64)


def _why(
    stratum: str, decisions: Decisions, sizes: NDArray[np.int64], unfamiliar: NDArray[np.bool_], threshold: float
) -> list[str]:
    """Say of rows of one stratum why they are worth a look."""
    side, _, part = stratum.partition(", ")
    if part == _STRANGERS:
        return [f"one of about {size:,} similar rejected inputs" for size in sizes]
    if part == _NEAR:
        return [f"near the threshold: {side} at {score:.3g}, threshold {threshold:.3g}" for score in decisions.score]
    if part == _CONFLICT:
        words = "unsure of a familiar input", "sure of an unfamiliar input"
        return [f"r and g disagree: the classifier is {words[int(far)]}" for far in unfamiliar]
    if side == "rejected":
        return [f"rejected as {reason}" for reason in decisions.reason]
    return [AUDIT] * len(decisions)
