# SPDX-License-Identifier: BSD-3-Clause
"""What verdicts say of a rule on a log: estimates weighted by chances, with intervals that do not trust the model.

Convention: everything is about the inputs of this log. Chance is in the draw of the queue alone, so nothing is assumed of the model or of where inputs
come from; the model only decides which inputs are drawn more often.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod import _show
from poscod._json import plain
from poscod._validation import Floats, check_choice, check_number, refusal
from poscod.labels import codes_of
from poscod.metrics import Interval
from poscod.review._log import log_of
from poscod.review._queue import Queue
from poscod.verdict import NOT_REVIEWED, STRANGER, verdict_codes

# The ends of an interval are quantiles of so many draws: what they add to its level is 0.2 %.
_DRAWS = 8000
_MISSING = {"worst": True, "random": False}
QUANTITIES: dict[str, str] = {
    "ood_prior": "OOD among all inputs (pi)",
    "tpr": "known inputs answered (TPR)",
    "fpr": "OOD inputs answered (FPR)",
    "error": "wrong or OOD among answers",
    "selective_risk": "loss of answered known inputs",
    "risk": "SCOD risk",
}
"""What is estimated, in words."""


@dataclass(frozen=True, repr=False)
class Assessment:
    """What verdicts say of a rule on a log.

    Parameters
    ----------
    ood_prior : Interval
        Share pi of OOD inputs in the log.
    tpr, fpr : Interval
        Share of its known inputs, and of its OOD inputs, that were answered.
    error : Interval
        Share of the answers that are wrong, given to an OOD input or to a known one of another class.
    selective_risk : Interval
        Mean loss of the answers to known inputs.
    risk : Interval
        SCOD risk (1 - alpha) R_S + alpha FPR, with alpha of the rule.
    level : float
        Coverage of each interval.
    rows : int
        Inputs of the log.
    reviewed, missing : int
        Inputs of the queue with and without a verdict.
    """

    ood_prior: Interval
    tpr: Interval
    fpr: Interval
    error: Interval
    selective_risk: Interval
    risk: Interval
    level: float
    rows: int
    reviewed: int
    missing: int

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in QUANTITIES}
        words = (f"{name} {value.estimate:.3g} [{value.low:.3g}, {value.high:.3g}]" for name, value in shown.items())
        return f"Assessment({', '.join(words)}; {self.reviewed:,} verdicts of {self.rows:,} inputs)"

    def _repr_html_(self) -> str:
        shown = {name: getattr(self, name) for name in QUANTITIES}
        note = f"{self.reviewed:,} verdicts of {self.rows:,} inputs; {self.missing:,} rows of the queue have none."
        return _show.paragraph(note) + _show.quantities(shown, self.level)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON.

        Returns
        -------
        document : dict
        """
        document: dict[str, Any] = plain({field.name: getattr(self, field.name) for field in fields(self)})
        return document


class _Kind(NamedTuple):
    """What an input turned out to be: whether it was answered, is OOD, and what the answer costs if it is known."""

    accept: bool
    ood: bool
    loss: float

    @property
    def parts(self) -> tuple[float, ...]:
        """What one such input adds to: OOD answered, OOD rejected, known answered, known rejected, loss of answers, wrong answers."""
        known = self.accept and not self.ood
        return (
            float(self.accept and self.ood),
            float(self.ood and not self.accept),
            float(known),
            float(not self.accept and not self.ood),
            self.loss if self.accept else 0.0,
            float(self.accept and (self.ood or self.loss > 0.0)),
        )


class _Stratum(NamedTuple):
    """Inputs drawn from one stratum: its size, how often each kind was seen, unseen ones by whether they were answered, and whether any were and were not."""

    size: int
    seen: dict[_Kind, int]
    missing: dict[bool, int]
    sides: tuple[bool, ...]


def assess(
    model: Any, X: Any, queue: Queue, verdicts: Any, *, level: float = 0.95, missing: str = "worst"
) -> Assessment:
    """Estimate what a rule does on a log, from verdicts on a queue of its inputs.

    Parameters
    ----------
    model : POSCOD
        Fitted: the one that made the queue, or any other one whose rule is to be judged by the same verdicts, unless it was fitted with them.
    X : like the rows given to `POSCOD.fit`, or DaskLog
        The log that the queue was drawn from.
    queue : Queue
        Of `queue`, with all of its rows.
    verdicts : array-like of shape (n,)
        For each row of the queue a class, `poscod.OOD` (or "ood"), or None where nobody has looked yet.
    level : float in (0, 1), default=0.95
        Coverage of each interval.
    missing : {"worst", "random"}, default="worst"
        What rows without a verdict are. "worst": anything, and intervals hold whatever they are; this is right where people leave out hard cases. "random":
        rows like the others of their stratum; this is right where somebody went through the queue in its order and stopped.

    Returns
    -------
    assessment : Assessment
        Of the inputs of this log; with every input reviewed, intervals have no width. Where a share has nothing to be a share of, such as FPR without a
        single OOD verdict, its estimate is NaN.

    Notes
    -----
    In stratum h, n_h of N_h inputs were looked at, so each stands for N_h / n_h inputs: estimates are ratios of such weighted sums. That is the
    prediction-powered estimate whose prediction is constant on strata, where the weight of the prediction cancels. For intervals, what is not known is
    drawn: shares of the kinds of input in a stratum from a Dirichlet law with mean and variance of the observed ones (concentration n_h - 2), and the
    N_h - n_h other inputs from these shares. The ends are quantiles, the lowest and highest over all ways to add one more verdict to one stratum. That phantom
    is what makes them hold with few verdicts: in a single stratum they are those of Clopper and Pearson, and with several those of
    Fay and Feuer (1997) with binomial instead of Poisson counts.

    Examples
    --------
    >>> import numpy as np
    >>> from poscod import OOD, POSCOD
    >>> from poscod.review import queue
    >>> from poscod.theory import GaussianWorld
    >>> world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    >>> X, y = world.sample_id(600, random_state=0)
    >>> log, is_ood = world.sample_mixture(500, pi=0.1, random_state=1)
    >>> model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=log)
    >>> chosen = queue(model, log, 100)
    >>> said = [OOD if is_ood[i] else int(log[i, 0] > 1.5) for i in chosen.index]   # a person looks
    >>> found = assess(model, log, chosen, said)
    >>> bool(found.ood_prior.low < is_ood.mean() < found.ood_prior.high)
    True
    """
    if not isinstance(queue, Queue):
        raise refusal("queue", "must be a Queue, got {got}: use Queue.of for a table.", got=type(queue).__name__)
    level = check_number(level, "level", 0.0, 1.0, closed="neither")
    worst = check_choice(missing, "missing", _MISSING)
    log = log_of(model, X)
    if len(log) != queue.n_rows or int(queue.index.max(initial=0)) >= len(log):
        raise refusal(
            "queue",
            "must be drawn from X and whole: its chances stand for {got:,} inputs, X has {allowed:,}; keep every row of the queue, with or without a verdict.",
            got=queue.n_rows,
            allowed=len(log),
        )
    classes, problem = model.scorer_.classes, model.rule_.problem
    codes = verdict_codes(verdicts, classes, "verdicts", len(queue), like="queue")
    if (codes == NOT_REVIEWED).all():
        raise refusal("verdicts", "must hold at least one verdict, got none: look at some rows of the queue first.")
    every = log.decisions
    decisions = every[queue.index]
    answer = codes_of(classes, decisions.label)
    known = codes >= 0
    loss = np.zeros(len(codes))
    loss[known] = problem.losses(codes[known], answer[known], len(classes))
    inside = bool((decisions.accept == queue.accept).all()) and _answered(queue) == int(every.accept.sum())
    strata = _strata_of(queue, codes, decisions.accept, loss, worst, inside)
    largest = float(problem.loss_matrix(len(classes)).max())
    low, high = _limits(strata, problem.alpha, largest, level)
    middle = _quantities(_weighted(strata)[None, :], problem.alpha)
    # Where rows without a verdict can be anything, an interval may lie beside the estimate of the others.
    found = {
        name: Interval(
            value := float(middle[name][0]), min(low[name], _or(value, 1.0)), max(high[name], _or(value, 0.0)), level
        )
        for name in QUANTITIES
    }
    reviewed = int((codes != NOT_REVIEWED).sum())
    return Assessment(**found, level=level, rows=len(log), reviewed=reviewed, missing=len(queue) - reviewed)


def _answered(queue: Queue) -> int:
    """Return the number of inputs in strata of answered ones."""
    return round(float((1.0 / queue.probability[np.char.startswith(queue.stratum.astype(str), "answered")]).sum()))


def _or(value: float, instead: float) -> float:
    return instead if np.isnan(value) else value


def _strata_of(
    queue: Queue, codes: NDArray[np.int64], accept: NDArray[np.bool_], loss: Floats, worst: bool, inside: bool
) -> list[_Stratum]:
    """Count kinds of input by stratum; `inside` where strata hold answered or rejected inputs only."""
    strata = []
    for name in np.unique(queue.stratum):
        rows = np.flatnonzero(queue.stratum == name)
        chances = np.unique(queue.probability[rows])
        size = len(rows) / chances[0]
        if np.ptp(chances) > 1e-9 or abs(size - round(size)) > 1e-6 * size:
            raise refusal(
                "queue",
                "must hold every row that was drawn, got {got} of stratum {name!r} with chances from {low:g} to {high:g}: keep rows without a verdict, too.",
                got=len(rows),
                name=str(name),
                low=chances[0],
                high=chances[-1],
            )
        seen: dict[_Kind, int] = {}
        unseen = {True: 0, False: 0}
        for i in rows.tolist():
            if codes[i] == NOT_REVIEWED:
                unseen[bool(accept[i])] += 1
                continue
            kind = _Kind(bool(accept[i]), bool(codes[i] == STRANGER), float(loss[i]) if accept[i] else 0.0)
            seen[kind] = seen.get(kind, 0) + 1
        # Of a stratum without any verdict nothing is known, whatever is said of missing ones.
        left = unseen if worst or not seen else {True: 0, False: 0}
        strata.append(_Stratum(round(size), seen, left, (bool(accept[rows[0]]),) if inside else (True, False)))
    return strata


def _limits(
    strata: list[_Stratum], alpha: float, largest: float, level: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the ends of the intervals: the lowest and highest quantiles over phantoms and over what missing verdicts may be."""
    low, high = dict.fromkeys(QUANTITIES, np.inf), dict.fromkeys(QUANTITIES, -np.inf)
    tail = (1.0 - level) / 2.0
    largest_of = {"selective_risk": largest, "risk": (1.0 - alpha) * largest + alpha}

    def note(totals: Floats) -> None:
        for name, values in _quantities(totals, alpha).items():
            # A share of nothing may be anything.
            most = largest_of.get(name, 1.0)
            below, above = np.nan_to_num(values, nan=0.0), np.minimum(np.nan_to_num(values, nan=most), most)
            low[name] = min(low[name], float(np.quantile(below, tail, method="lower")))
            high[name] = max(high[name], float(np.quantile(above, 1.0 - tail, method="higher")))

    answered = [_Kind(True, True, 0.0), _Kind(True, False, 0.0), _Kind(True, False, largest)]
    rejected = [_Kind(False, True, 0.0), _Kind(False, False, 0.0)]
    unseen = {side: any(stratum.missing[side] for stratum in strata) for side in (True, False)}
    # A missing verdict may be both, OOD for the FPR and wrong for the loss: more than can be, so that sums of the two hold as well.
    fills = [*answered, _Kind(True, True, largest)] if unseen[True] else answered[:1]
    for fill in itertools.product(fills, rejected if unseen[False] else rejected[:1]):
        filled = [_filled(stratum, fill) for stratum in strata]
        rng = np.random.default_rng(0)
        drawn = [_drawn(size, seen, None, rng) for size, seen in filled]
        total = np.sum(drawn, axis=0)
        note(total)
        for own, (size, seen), stratum in zip(drawn, filled, strata, strict=True):
            if sum(seen.values()) < size:
                for phantom in answered * (True in stratum.sides) + rejected * (False in stratum.sides):
                    note(total - own + _drawn(size, seen, phantom, rng))
    return low, high


def _filled(stratum: _Stratum, fill: tuple[_Kind, _Kind]) -> tuple[int, dict[_Kind, int]]:
    """Return size and counts of a stratum whose missing verdicts are of these kinds."""
    seen = dict(stratum.seen)
    for kind in fill:
        if stratum.missing[kind.accept]:
            seen[kind] = seen.get(kind, 0) + stratum.missing[kind.accept]
    return stratum.size, seen


def _drawn(size: int, seen: dict[_Kind, int], phantom: _Kind | None, rng: np.random.Generator) -> Floats:
    """Draw what all inputs of a stratum may be, given those that were seen, and return their sums."""
    kinds = list(dict.fromkeys([*seen, *([] if phantom is None else [phantom])]))
    counts = np.array([seen.get(kind, 0) for kind in kinds])
    n, parts = int(counts.sum()), np.array([kind.parts for kind in kinds])
    if phantom is not None:
        shape = counts + (np.arange(len(kinds)) == kinds.index(phantom))
    else:
        shape = counts * max(n - 2, 0) / n  # of this concentration the variance is the unbiased one
    if len(kinds) == 1:
        share = np.ones((_DRAWS, 1))
    elif not shape.any():
        share = rng.multinomial(1, counts / n, size=_DRAWS).astype(np.float64)
    else:
        share = rng.dirichlet(shape, size=_DRAWS)
    others = rng.multinomial(max(size - n, 0), share)
    return np.asarray((others + counts) @ parts)


def _weighted(strata: list[_Stratum]) -> Floats:
    """Return the sums over all inputs as the verdicts estimate them."""
    total = np.zeros(6)
    for stratum in strata:
        n = sum(stratum.seen.values())
        for kind, count in stratum.seen.items():
            total += stratum.size * count / n * np.array(kind.parts)
    return total


def _quantities(totals: Floats, alpha: float) -> dict[str, Floats]:
    """Return what is estimated from sums over all inputs; NaN for shares of nothing."""
    ood_in, ood_out, known_in, known_out, loss, wrong = totals.T
    with np.errstate(invalid="ignore", divide="ignore"):
        fpr, selective = ood_in / (ood_in + ood_out), loss / known_in
        selective = np.where(known_in > 0.0, selective, np.nan)
        # A term without weight may be unknown.
        risk = (1.0 - alpha) * selective if alpha < 1.0 else np.zeros_like(fpr)
        risk = risk + alpha * fpr if alpha > 0.0 else risk
        return {
            "ood_prior": (ood_in + ood_out) / (ood_in + ood_out + known_in + known_out),
            "tpr": known_in / (known_in + known_out),
            "fpr": fpr,
            "error": wrong / (ood_in + known_in),
            "selective_risk": selective,
            "risk": risk,
        }
