# SPDX-License-Identifier: BSD-3-Clause
"""Rows of the traffic that people have looked at: what they say of g, of pi, of r and of where the known inputs have gone.

Convention: a verdict is a number as in `poscod.verdict`. Rows were chosen by what they hold and by chance: what a verdict says *given the row* counts, how many there are of a
kind does not. A reviewed row that is in the traffic, too, has the log g there, by parts that have not seen it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from poscod._validation import Floats, refusal
from poscod.activations import Activations
from poscod.exceptions import InvalidInputError
from poscod.model._parts import DISTINCT, Labeled, temperature_of
from poscod.model._plan import Indices
from poscod.model._rows import as_indexable, n_rows, take
from poscod.model._scorer import all_finite, log_ratio_of, unchecked
from poscod.ratio import DOUBT, EVEN, Ratio, ReviewedRatio, Side, learn, p_ood
from poscod.selector import Drift, are_strangers
from poscod.verdict import NOT_REVIEWED, STRANGER, verdict_codes

# Labeled rows stand for known inputs of the traffic that have moved with weights no larger than this.
LARGEST_WEIGHT = 20.0


class Reviewed(NamedTuple):
    """Rows with a verdict, the verdicts as numbers, and where the rows are in the traffic (-1: nowhere)."""

    rows: Any
    codes: NDArray[np.int64]
    places: Indices

    @property
    def is_ood(self) -> NDArray[np.bool_]:
        """Which of them are OOD."""
        return self.codes == STRANGER

    def view(self, seen: Activations, traffic: Activations) -> Activations:
        """Return what was seen of them: as in the traffic where they are there, and by the classifier that new rows are seen through otherwise."""
        there = self.places >= 0

        def both(own: Any, other: Any) -> Any:
            if other is None:
                return None
            values = np.array(own)
            values[there] = other[self.places[there]]
            return values

        parts = both(seen.features, traffic.features), both(seen.logits, traffic.logits)
        return unchecked(*parts) if seen.table else Activations(*parts)

    def log_ratio(self, ratio: Any, rows: Activations, traffic: Side) -> Floats:
        """Return their log g, by parts that have not seen them where they are in the traffic."""
        values, there = np.array(log_ratio_of(ratio, rows)), self.places >= 0
        values[there] = traffic.log_ratio[self.places[there]]
        return values

    def chance(self, log_ratio: Floats, pi: float, weight: Floats | None) -> Floats:
        """Return the chance of each row of the traffic to be known, which is certain where people have looked, times its weight."""
        known, there = 1.0 - p_ood(log_ratio, pi), self.places >= 0
        known[self.places[there]] = ~self.is_ood[there]
        return np.asarray(known if weight is None else known * weight)

    def said(self, n: int) -> NDArray[np.int8]:
        """Return what people said of each of n rows of the traffic: 1 OOD, -1 known, 0 nothing."""
        out, there = np.zeros(n, dtype=np.int8), self.places >= 0
        out[self.places[there]] = np.where(self.is_ood[there], 1, -1)
        return out

    def among(self, rows: Indices) -> Reviewed:
        """Return the same with places among some rows of the traffic."""
        at = np.minimum(np.searchsorted(rows, self.places), len(rows) - 1)
        return self._replace(places=np.where((self.places >= 0) & (rows[at] == self.places), at, -1))

    def temperature(
        self, temperature: float, logits: Floats, codes: NDArray[np.int64], rows: Activations, mix: Any
    ) -> float:
        """Return the temperature by labeled rows and class verdicts; that of labeled rows alone where the class mix differs, for which their posterior is not."""
        known = self.codes >= 0
        if mix.changed or not known.any():
            return temperature
        return temperature_of(np.concatenate([logits, np.asarray(rows.logits)[known]]), np.r_[codes, self.codes[known]])


class Learned(NamedTuple):
    """The ratio with what verdicts say, the drift that they settle, whether known inputs have moved, and log g of labeled rows and traffic out of sample."""

    ratio: Any
    drift: Drift | None
    moved: bool
    log_ratio: tuple[Floats, Floats]

    def weight(self, before: Floats, after: Floats, own: Floats | None) -> Floats | None:
        """Return weights with which labeled rows stand for the known inputs of the traffic, from log g of them without and with verdicts.

        The density of known inputs of the traffic over that of labeled rows is rho (1 - p(O | x)): rho = p_U / p_I is what was learned without verdicts, and
        rests on no stillness; p(O | x) is what they say.
        """
        if not self.moved:
            return own
        pi = float(np.clip(np.nan_to_num(self.ratio.base.ood_prior_), 0.0, 0.999))
        density = np.logaddexp(np.log1p(-pi), np.log(pi) + before) if pi > 0.0 else np.zeros(len(before))
        known = 1.0 - p_ood(after, self.ratio.ood_prior_)
        weight = np.minimum(np.exp(np.minimum(density, 50.0)) * known, LARGEST_WEIGHT) + 1e-9
        return np.asarray(weight if own is None else weight * own)


def learn_from(
    reviewed: Reviewed,
    rows: Activations,
    known: Side,
    traffic: Side,
    ratio: Any,
    drift: Drift | None,
    folds: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    align: Callable[[Any], None] | None = None,
) -> Learned:
    """Return what verdicts say of a fitted ratio; folds are those that it was cross-fitted in, if it was, and a ratio that is fitted again is aligned."""
    pi, before = float(ratio.ood_prior_), (known.log_ratio, traffic.log_ratio)
    log_ratio = reviewed.log_ratio(ratio, rows, traffic)
    if pi == 0.0 and not reviewed.is_ood.any():
        return Learned(ratio, drift, False, before)  # nothing was found, and nothing is
    given = getattr(ratio, "ood_prior", None)
    doubt = DOUBT if drift is None else EVEN if drift.said == "undecided" else None
    how: dict[str, Any] = {"doubt": doubt, "places": reviewed.places, "given": given}
    chance = p_ood(log_ratio, pi)
    likely = chance > 0.5
    if drift is not None and doubt is None:
        strange = float(chance[likely].mean()) if likely.any() else 0.0
        if likely.sum() < replace(drift, strange=strange).look[0]:
            # Fewer than the drift asks for settle nothing, and one of them must not move pi to 0.
            return Learned(ratio, drift, False, before)
    found = learn(known, traffic, Side(rows, log_ratio), reviewed.is_ood, pi, **how)
    if found.moved:
        drift = Drift("drift", (), (), (), 0.0, 0.0, False, False) if drift is None else drift
        drift = replace(drift, said="drift", verdicts=len(reviewed.codes))
    elif drift is not None and are_strangers(
        int(reviewed.is_ood[likely].sum()), int(likely.sum()), float(chance[likely].mean() if likely.any() else 0.0)
    ):
        drift, ratio.moved_ = None, False  # what could not be told is settled
    again = None
    if not found.moved and isinstance(ratio, Ratio):
        weights, groups = (known.weight, traffic.weight), (known.group, traffic.group)
        said = reviewed.said(len(traffic.log_ratio))
        again = ratio.with_verdicts(known.rows, traffic.rows, folds, said, found.pi, weights, groups)
    if again is not None:
        # Known inputs stand still, so that verdicts have their say in the whole likelihood; what it has no place for is corrected as before.
        again.ratio.moved_, ratio = ratio.moved_, again.ratio
        if align is not None:
            align(ratio)
        known, traffic = (
            side._replace(log_ratio=own) for side, own in zip((known, traffic), again.log_ratio, strict=True)
        )
        log_ratio = reviewed.log_ratio(ratio, rows, traffic)
        how["doubt"] = np.inf
        found = learn(known, traffic, Side(rows, log_ratio), reviewed.is_ood, float(ratio.ood_prior_), **how)
    after = found.correction(known.rows, known.log_ratio), found.correction(traffic.rows, traffic.log_ratio)
    return Learned(ReviewedRatio(ratio, found.correction, found.pi, found.moved), drift, found.moved, after)


def check_finite(rows: Activations) -> None:
    """Refuse gaps where the ratio sees features: a cell that got lost in a spreadsheet must not take them from it."""
    if rows.features is not None and not all_finite([rows]):
        raise refusal("X_reviewed", "must hold finite numbers like {X}, got gaps: fill or drop such rows.")


def read_reviewed(
    pair: tuple[Any, Any], engine: Any, rows: Labeled, classes: NDArray[Any], n_unlabeled: int
) -> Reviewed | None:
    """Return rows with a verdict; None where none are given."""
    R, verdicts = pair
    if R is None and verdicts is None:
        return None
    if R is None or verdicts is None:
        here, lacking = ("y_reviewed", "X_reviewed") if R is None else ("X_reviewed", "y_reviewed")
        raise refusal(
            here, "needs {lacking} beside it, got none: give reviewed rows and their verdicts.", lacking=lacking
        )
    if not n_unlabeled:
        raise refusal(
            "X_reviewed", "are rows of the traffic with a verdict, and there is no traffic: pass {X_unlabeled}, too."
        )
    R = R if isinstance(R, Activations) else as_indexable(R)
    codes = verdict_codes(verdicts, classes, "y_reviewed", n_rows(R), like="X_reviewed")
    at = np.flatnonzero(codes != NOT_REVIEWED)
    if not len(at):
        raise refusal(
            "y_reviewed",
            "must hold a verdict, a class or poscod.OOD (in a table: ood), got {got} empty ones.",
            got=len(codes),
        )
    R, codes = take(R, at), codes[at]
    _refuse_contradiction(engine, rows, classes, R, codes, at)
    key, other = engine.keys(None, R)
    order = np.argsort(key, kind="stable")
    place = np.minimum(np.searchsorted(key[order], other), len(key) - 1)
    places = np.where(key[order][place] == other, order[place], -1)
    return Reviewed(R, codes, places.astype(np.intp))


def _refuse_contradiction(
    engine: Any, rows: Labeled, classes: NDArray[Any], R: Any, codes: NDArray[np.int64], at: Indices
) -> None:
    """Refuse a reviewed row that is labeled, too, and otherwise."""
    key, other = engine.keys(rows.at, R)
    if len(np.unique(key)) < DISTINCT * len(key):  # equal rows have several classes then
        return
    labels: dict[int, set[int]] = {}
    again = np.flatnonzero(np.isin(key, other))
    for number, code in zip(key[again].tolist(), rows.codes[again].tolist(), strict=True):
        labels.setdefault(number, set()).add(code)
    for i, (number, code) in enumerate(zip(other.tolist(), codes.tolist(), strict=True)):
        if number in labels and code not in labels[number]:
            raise InvalidInputError(
                "{X_reviewed} holds at row {row} an input that is labeled {label!r} in {X}, and its verdict is {got!r}: correct one of them.",
                row=int(at[i]),
                label=classes[min(labels[number])],
                got="ood" if code == STRANGER else classes[code],
            )
