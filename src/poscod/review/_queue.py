# SPDX-License-Identifier: BSD-3-Clause
"""Which inputs of a log a person should look at, with what chance each of them was drawn, and why.

Convention: every input lies in one stratum (answered or rejected, near the threshold or not, ...), and a fixed number of inputs is drawn from each
stratum, all with the same chance. So the chance of an input is exactly that number over the size of its stratum, and it is never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from poscod import _show
from poscod._optional import require
from poscod._validation import Floats, check_choice, check_count, check_number, check_vector, refusal
from poscod.activations import Activations
from poscod.decision import Decisions
from poscod.ratio import p_ood
from poscod.review._log import columns_of, log_of

AUDIT = "random audit"
# A stratum needs some rows of its own, in the log and among those that are looked at: its variance is found from them.
_ROWS_OF_STRATUM, _LOOKS_OF_STRATUM, _LEAST_LOOKS = 5, 6, 3
# Spread that is granted to inputs of which the model is certain: it may be wrong.
_LEAST_SPREAD = 0.05
_MOST_GROUPS, _CLUSTERED = 8, 4000
_NEAR, _CONFLICT, _STRANGERS, _REST = "near the threshold", "r and g disagree", "likely OOD", "the rest"
# Bands of one side, the ones with most doubt per input first; with few looks only the first names, and the last one, are used.
_ANSWERED, _REJECTED = (_NEAR, "in some doubt", "in little doubt", _REST), (_STRANGERS, "in doubt", _REST)
_PARTS = tuple(dict.fromkeys([*_ANSWERED, *_REJECTED, _CONFLICT]))
# Looks and shares depend on each other: after so many turns they stand still.
_TURNS = 20


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

    def _repr_html_(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        return _show.first_rows(shown, f"{len(self):,} of {self.n_rows:,} inputs, in random order")

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


def queue(model: Any, X: Any, n: int, *, aim: str = "numbers", audit: float = 0.5, random_state: Any = 0) -> Queue:
    """Choose inputs for a person to look at: a random audit, and inputs that pay.

    Parameters
    ----------
    model : POSCOD
        Fitted.
    X : like the rows given to `POSCOD.fit`, or DaskLog
        The log. Rows that the model was fitted on may be among them.
    n : int
        Number of inputs to look at; all of a shorter log.
    aim : {"numbers", "refit"}, default="numbers"
        What verdicts are for. "numbers": narrow intervals of `assess`. "refit": OOD inputs for the next fit, which learns most from them; intervals hold as
        well, and are wider.
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
    With omega(x) the model's probability of OOD and r(x) its risk, an input is in doubt by ``sqrt(q (1 - q))``: q = 1 - (1 - omega)(1 - r) where it was
    answered (is the answer right?), q = omega where it was rejected (is it a stranger?). Answered inputs are split by their score into up to four bands that
    carry the same sum of doubt, rejected ones by omega into up to three; answered inputs where r and g disagree (one in the highest tenth, the other in the lower
    half) are a stratum of their own. Of the n looks, the share `audit` is given out by the size N_h of the strata, the rest in proportion to
    ``N_h sqrt(sum_k V_hk / V_k)`` (Neyman's allocation): V_hk is the variance in stratum h of what an input adds to OOD share, TPR, FPR and error of the
    answers, V_k that in the whole log, both by the model's own probabilities after one more verdict for and one against them. With the aim "refit" it is in
    proportion to the OOD inputs that a stratum is expected to hold. Likely OOD inputs are drawn at equal steps through groups of similar ones (k-means), so that every group of at least 1 / probability inputs is looked at.

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
    log = log_of(model, X)
    n, total = check_count(n, "n"), len(log)
    audit = check_number(audit, "audit", 0.0, 1.0, closed="right")
    wishes = check_choice(aim, "aim", AIMS)
    if total == 0:
        raise refusal("X", "must hold at least one row, got none.")
    rng = check_random_state(random_state)
    n = min(n, total)
    decisions = log.decisions
    omega, wrong = _chances(model, decisions)
    unfamiliar, unsure = _disagree(decisions)
    names, codes = _strata(decisions, omega, wrong, (unfamiliar | unsure) & decisions.accept, n)
    sizes = np.bincount(codes)
    ood, bad, accept = (
        np.bincount(codes, values) / sizes for values in (omega, (1.0 - omega) * wrong, decisions.accept)
    )
    looks = _share_out(sizes, wishes(sizes, ood, bad, accept, n, audit), n)
    even = np.round(audit * n * sizes / total).astype(int)
    found, why = [], []
    for code, name in enumerate(names):
        rows = rng.permutation(np.flatnonzero(codes == code))
        group = _groups(log, rows, rng) if name.endswith(_STRANGERS) else np.zeros(len(rows), dtype=np.int64)
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
        stratum=np.array(names, dtype=object)[codes[index]],
        answer=decisions.label[index],
        accept=decisions.accept[index],
        reason=decisions.reason[index],
    )


def _chances(model: Any, decisions: Decisions) -> tuple[Floats, Floats]:
    """Return the model's own probabilities that each input is OOD, and that the answer is wrong if it is known."""
    pi = float(np.clip(model.calibration_.ood_prior, 0.01, 0.99)) if model.scorer_.ratio is not None else 0.01
    omega = p_ood(decisions.log_ratio, pi)
    largest = float(model.rule_.problem.loss_matrix(len(model.scorer_.classes)).max())
    return omega, np.clip(decisions.risk / largest, 0.0, 1.0)


def _strata(
    decisions: Decisions, omega: Floats, wrong: Floats, conflict: NDArray[np.bool_], n: int
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the strata by name, as many as n looks can serve, and the number of each input's own."""
    accept, most = decisions.accept, n // _LOOKS_OF_STRATUM
    if most < 2:
        return ["all inputs"], np.zeros(len(decisions), dtype=np.int64)
    doubt = np.where(accept, 1.0 - (1.0 - omega) * (1.0 - wrong), omega)
    worth = np.maximum(np.sqrt(doubt * (1.0 - doubt)), _LEAST_SPREAD)
    part = np.full(len(decisions), _PARTS.index(_REST), dtype=np.int8)
    apart = (
        conflict if most > len(_ANSWERED) + len(_REJECTED) and conflict.sum() >= _ROWS_OF_STRATUM else conflict & False
    )
    part[apart] = _PARTS.index(_CONFLICT)
    for mask, key, names, bands in (
        (accept & ~apart, decisions.score, _ANSWERED, (most + 1) // 2),
        (~accept, omega, _REJECTED, most // 2),
    ):
        rows = np.flatnonzero(mask)
        chosen = (*names[: min(bands, len(names)) - 1], names[-1])
        _cut(part, rows[np.argsort(-key[rows], kind="stable")], worth, chosen)
    every = [f"{side}, {name}" for name in _PARTS for side in ("answered", "rejected")]
    found, codes = np.unique(2 * part + ~accept, return_inverse=True)
    order = np.argsort([every[code] for code in found.tolist()], kind="stable")
    return [every[found[code]] for code in order.tolist()], np.argsort(order)[codes]


def _cut(part: NDArray[np.int8], order: NDArray[np.int64], worth: Floats, names: tuple[str, ...]) -> None:
    """Give a number to the bands of ordered inputs that carry equal parts of their worth; a band of a few inputs joins the next one."""
    carried = np.cumsum(worth[order])
    ends = (
        np.searchsorted(carried, carried[-1:] * np.arange(1, len(names)) / len(names))
        if len(order)
        else np.zeros(0, int)
    )
    start = 0
    for name, end in zip(names, [*ends.tolist(), len(order)], strict=False):
        if end - start >= _ROWS_OF_STRATUM and (name == names[-1] or len(order) - end >= _ROWS_OF_STRATUM):
            part[order[start:end]] = _PARTS.index(name)
            start = end


def _disagree(decisions: Decisions) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where only g, and where only r, is in its highest tenth while the other is in its lower half."""
    n = len(decisions)
    if np.isneginf(decisions.log_ratio).all():
        return np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    risk, ratio = (stats.rankdata(values) / n for values in (decisions.risk, decisions.log_ratio))
    return (ratio > 0.9) & (risk <= 0.5), (risk > 0.9) & (ratio <= 0.5)


def _wish(sizes: NDArray[np.int64], ood: Floats, wrong: Floats, accept: Floats, n: int, audit: float) -> Floats:
    """Return the looks of each stratum that make the intervals narrow, as far as the model knows, by its shares of OOD, wrong and answered inputs."""
    weight = sizes / sizes.sum()
    looks = n * weight
    for _ in range(_TURNS):
        # A share of which nothing was seen in n_h looks is not zero: one verdict more each way, as the intervals add one.
        o = (looks * ood + 1.0) / (looks + 2.0)
        w = np.minimum((looks * wrong + accept) / (looks + 2.0), 1.0 - o)
        pi, answered = weight @ o, weight @ accept
        fpr, tpr, error = (
            weight @ (accept * o) / pi,
            weight @ (accept * (1.0 - o)) / (1.0 - pi),
            weight @ (accept * (o + w)),
        )
        spread = o * (1.0 - o)
        ratios = [
            (spread, pi * (1.0 - pi)),
            (spread * np.where(accept > 0.5, 1.0 - tpr, tpr) ** 2, (1.0 - pi) * tpr * (1.0 - tpr)),
            (spread * np.where(accept > 0.5, 1.0 - fpr, fpr) ** 2, pi * fpr * (1.0 - fpr)),
            (accept * (o + w) * (1.0 - o - w), error * (1.0 - error / answered) if answered else 0.0),
        ]
        wish = weight * np.sqrt(sum((own / whole for own, whole in ratios if whole > 0.0), np.zeros(len(sizes))))
        looks = n * (audit * weight + (1.0 - audit) * (wish / wish.sum() if wish.any() else weight))
    return looks


def _expected(sizes: NDArray[np.int64], ood: Floats, wrong: Floats, accept: Floats, n: int, audit: float) -> Floats:
    """Return looks of each stratum in proportion to the OOD inputs that it should hold."""
    return np.asarray(n * (audit * sizes / sizes.sum() + (1.0 - audit) * sizes * ood / (sizes @ ood)))


AIMS = {"numbers": _wish, "refit": _expected}
"""What verdicts are for, and how looks are shared out among strata for it."""


def _share_out(sizes: NDArray[np.int64], wish: Floats, n: int) -> NDArray[np.int64]:
    """Return how many inputs of each stratum are looked at: n together, some of each, never more than there are."""
    least = np.minimum(sizes, min(_LEAST_LOOKS, n // len(sizes)))
    looks = np.clip(np.floor(wish).astype(np.int64), least, sizes)
    while (gap := n - looks.sum()) != 0:
        free = looks < sizes if gap > 0 else looks > least
        short = np.where(free, (wish - looks) * np.sign(gap), -np.inf)
        looks[np.argmax(short)] += np.sign(gap)
    return looks


def _groups(log: Any, rows: NDArray[np.int64], rng: Any) -> NDArray[np.int64]:
    """Return groups of similar rows, numbered in random order; rows come in random order, and the first of them say what is similar."""
    some = columns_of(log.view(rows[:_CLUSTERED]))
    scale = np.median(some, axis=0), np.where((spread := some.std(axis=0)) > 0.0, spread, 1.0)
    scaled = _scaled(some, *scale)
    most = min(_MOST_GROUPS, len(np.unique(scaled, axis=0)), max(1, len(rows) // _ROWS_OF_STRATUM))
    if most == 1:
        return np.zeros(len(rows), dtype=np.int64)
    means = KMeans(most, n_init=1, random_state=rng.randint(2**31 - 1)).fit(scaled)
    return np.asarray(rng.permutation(most)[log.mapped(partial(_nearest, means, *scale), rows)], dtype=np.int64)


def _scaled(columns: Floats, middle: Floats, spread: Floats) -> Floats:
    """Return columns in their own units; values from nowhere must not make every other row one group."""
    return np.asarray(np.clip((columns - middle) / spread, -5.0, 5.0))


def _nearest(means: KMeans, middle: Floats, spread: Floats, view: Activations) -> NDArray[np.int64]:
    return np.asarray(means.predict(_scaled(columns_of(view), middle, spread)))


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
    if part in _ANSWERED[:-1]:
        return [f"answered, {part}"] * len(decisions)
    return [AUDIT] * len(decisions)
