# SPDX-License-Identifier: BSD-3-Clause
"""The class mix that a model serves: estimated together with the OOD share, by turns.

Convention: a ratio is fitted to labeled rows that are weighted to the mix as it is thought to be; it says how probable it is that an unlabeled row is ID; rows
that count by that probability say what the mix is. The first mix takes all traffic for ID; two turns are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from poscod._threads import one_thread
from poscod._validation import Floats, check_vector, refusal
from poscod.activations import Activations
from poscod.exceptions import PoscodWarning, warn_caller
from poscod.mix import ClassMix, Likely, effective, most_likely, rows_needed, served, shares_of
from poscod.model._parts import Labeled, Unlabeled
from poscod.model._plan import Keys
from poscod.model._reviewed import Reviewed
from poscod.model._rows import take
from poscod.ratio import PRIORS, Quick, Side, acceptance, learn, one_of_each, p_ood, quick_ratio, row_hash

LEVEL = 0.05
"""Error probability of the test of "the class mix is unchanged"."""
CLEAR = 0.3
"""P-value of that test with all traffic taken for ID above which nothing else is looked at."""
TURNS = 2
MIX_ROWS = 20_000
"""Rows of either side that a mix is estimated from."""
UNKNOWN = 0.1
"""OOD share that verdicts start from where unlabeled rows show none."""
NAMED = 5
SPREAD_DRAWS = 40


class ClassMixWarning(PoscodWarning):
    """The ID part of the traffic has another class mix than the labeled rows, and the model serves it; or that cannot be told."""


class Seen(NamedTuple):
    """What a classifier says of labeled and of unlabeled rows that it has not seen, with the folds of a cross-fit if there are any."""

    known: Activations
    rows: Labeled
    traffic: Activations | None
    unlabeled: Unlabeled
    folds: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None


def check_mix(class_mix: Any) -> str | Floats:
    """Return how the mix is found: "auto", "labeled" or known shares."""
    if isinstance(class_mix, str):
        if class_mix in ("auto", "labeled"):
            return class_mix
    elif class_mix is not None and np.ndim(class_mix) == 1:
        shares = check_vector(class_mix, "class_mix")
        if len(shares) and shares.min() >= 0.0 and abs(shares.sum() - 1.0) < 1e-6:
            return shares / shares.sum()
    raise refusal(
        "class_mix", "must be 'auto', 'labeled' or the share of each class, which sum to 1, got {got!r}.", got=class_mix
    )


def find_mix(
    class_mix: str | Floats,
    rows: Labeled,
    look: Callable[[], Seen],
    temperature: float,
    classes: NDArray[Any],
    reviewed: Reviewed | None = None,
) -> ClassMix:
    """Return the mix to serve, and say where it is not that of the labeled rows; rows are looked at where the traffic has a say, and so have verdicts."""
    k = len(classes)
    labeled = shares_of(rows.codes, np.ones(len(rows.codes)) if rows.weight is None else rows.weight, k)
    if isinstance(class_mix, np.ndarray):
        return _known(class_mix, labeled)
    if class_mix == "labeled" or (seen := look()).traffic is None:
        return ClassMix.unchanged(labeled)
    part, chosen = _some(seen)
    own = np.ones(len(part.rows.codes)) if part.rows.weight is None else part.rows.weight
    assert part.traffic is not None
    other = np.ones(len(part.traffic)) if part.unlabeled.weight is None else part.unlabeled.weight
    needed = rows_needed(np.bincount(part.rows.codes, own, k))
    if min(effective(own), effective(other)) < needed:
        warn_caller(
            ClassMixWarning(
                "Whether the traffic has the class mix of the labeled rows cannot be told from {n_id} labeled and {n_unlabeled} unlabeled rows; it is taken "
                "to have it: {needed} of each are needed at least.",
                n_id=len(own),
                n_unlabeled=len(other),
                needed=needed,
            )
        )
        return ClassMix.unchanged(labeled)
    eta, traffic = (softmax(np.asarray(rows.logits) / temperature, axis=1) for rows in (part.known, part.traffic))
    with one_thread("blas"):  # matrices of so many classes are too small to share
        found = _turns(part, eta, own, traffic, other)
        if reviewed is not None and found.p_value <= LEVEL:
            found = _by_verdicts(found, part, eta, own, traffic, other, reviewed.among(chosen))
    mix = served(found, labeled, test_level=LEVEL, level=0.95, rows=effective(other))
    if mix.changed:
        _tell(mix, classes)
    return mix


def in_mix(mix: ClassMix, rows: Labeled) -> Floats | None:
    """Return weights with which labeled rows stand for the ID part of the traffic; None where all are equal."""
    if not mix.changed:
        return rows.weight
    by_class = mix.weight[rows.codes]
    return by_class if rows.weight is None else by_class * rows.weight


def bias_of(mix: ClassMix) -> Floats | None:
    """Return what is added to calibrated logits for the posterior in the mix: log w."""
    return np.log(mix.weight) if mix.changed else None


def _turns(part: Seen, eta: Floats, own: Floats, traffic: Floats, other: Floats) -> Likely:
    """Return the most likely mix, with the p-value of "unchanged", which OOD rows alone must not explain as well."""
    codes = part.rows.codes
    closed = most_likely(eta, codes, own, traffic, other)
    # Nothing to explain: neither another mix nor OOD rows moved the answers, nor do they cancel.
    if closed.p_value > CLEAR:
        return closed

    def turn(weight: Floats) -> _Turn | None:
        ratio = quick_ratio(part.known, part.traffic, weight[codes] * own, other, part.folds)
        if ratio is None:
            return None
        fit = 0.0
        odds = np.log(other.sum() / own.sum())
        for posterior, log_ratio, mass, sign in ((eta, ratio.known, own, 1.0), (traffic, ratio.traffic, other, -1.0)):
            density = np.log(np.maximum(posterior @ weight, 1e-300))
            if ratio.pi > 0.0:
                density += np.logaddexp(np.log1p(-ratio.pi), np.log(ratio.pi) + log_ratio)
            fit -= float(mass @ np.logaddexp(0.0, sign * (odds + density)))
        if ratio.pi == 0.0:
            return _Turn(None, fit)
        # The probability of being ID: (1 - pi) / (1 - pi + pi g).
        h = expit(np.log1p(-ratio.pi) - np.log(ratio.pi) - ratio.traffic)
        return _Turn(most_likely(eta, codes, own, traffic, h * other), fit)

    found, last = closed, None
    for _ in range(TURNS):
        last = turn(found.weight)
        if last is None or last.mix is None:
            break
        found = last.mix
    still = turn(np.ones(len(closed.weight)))
    if last is None or still is None:
        return found
    # OOD rows next to a class look like more of that class. Where the old mix and OOD rows explain both samples as well, they come first: a mix must win by more
    # than its free shares win by chance, on average. A mix that needs no OOD rows at all comes before one that does.
    chance = 0 if last.mix is None else found.dimension
    if still.mix is None or 2.0 * (last.fit - still.fit) > chance:
        return found
    again = still if still.mix.p_value > LEVEL else turn(still.mix.weight)
    return still.mix if again is None or again.mix is None else again.mix


def _by_verdicts(
    found: Likely, part: Seen, eta: Floats, own: Floats, traffic: Floats, other: Floats, reviewed: Reviewed
) -> Likely:
    """Return the most likely mix by what people say, of a mix that is another one without it: OOD rows that lie where a class lies look like more of that class.

    The chance of each row to be OOD is what verdicts make of it, without the stillness of known inputs, which another mix would break. Rows with a verdict are what it says.
    """
    there = reviewed.places >= 0
    places, is_ood, codes = reviewed.places[there], reviewed.is_ood[there], reviewed.codes[there]
    if not len(places) or part.traffic is None:
        return found
    weight = found.weight[part.rows.codes] * own
    quick = quick_ratio(part.known, part.traffic, weight, other, part.folds)
    if quick is None or quick.pi == 0.0:  # nothing is known of them but verdicts
        quick = Quick(UNKNOWN, np.zeros(len(eta)), np.zeros(len(traffic)))
    sides = Side(part.known, quick.known, weight), Side(part.traffic, quick.traffic, other)
    looked = Side(part.traffic[places], quick.traffic[places])
    learned = learn(*sides, looked, is_ood, quick.pi, doubt=None, places=places)
    h = 1.0 - p_ood(learned.correction(part.traffic, quick.traffic), learned.pi)
    h[places] = ~is_ood
    traffic = traffic.copy()
    traffic[places[~is_ood]] = np.eye(eta.shape[1])[codes[~is_ood]]
    return most_likely(eta, part.rows.codes, own, traffic, h * other)


class _Turn(NamedTuple):
    """The mix that a ratio leads to, None where it sees no OOD rows, and the log-likelihood of which side a row is from, out of sample."""

    mix: Likely | None
    fit: float


def mix_weights(mix: ClassMix, codes: NDArray[np.integer], weight: Floats | None = None) -> Floats:
    """Return weights with which labeled rows of any class mix have a given one; their mean is one. Sample weights count within a class."""
    own = np.ones(len(codes)) if weight is None else weight
    count = np.bincount(codes, own, len(mix.traffic))
    share = np.where(count > 0.0, mix.traffic, 0.0)
    share = share if share.sum() > 0.0 else count
    by_class = share / share.sum() * len(codes) / np.where(count > 0.0, count, 1.0)
    return np.asarray(by_class[codes] * own)


def prior_spread(id_: Floats, codes: NDArray[np.integer], traffic: Floats, mix: ClassMix, weight: Any = None) -> float:
    """Return the standard error of the OOD prior that comes from the error of the class mix: the prior from log-ratios, with mixes as they might be."""
    if mix.covariance is None:
        return 0.0
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(mix.traffic, mix.covariance, SPREAD_DRAWS, method="eigh")
    found = []
    for q in np.maximum(draws, 0.0):
        own = mix_weights(replace(mix, traffic=q / q.sum()), codes, weight)
        found.append(PRIORS["mean"](acceptance(id_, traffic, own)))
    return float(np.std(found))


def carry_error(ratio: Any, mix: ClassMix, log_ratio: Floats, rows: Labeled, log_traffic: Floats) -> None:
    """Add the error of the class mix to the interval of a ratio's OOD prior."""
    curve = getattr(ratio, "acceptance_", None)
    if curve is not None and mix.changed and len(log_traffic):
        step = [-(-len(values) // MIX_ROWS) for values in (log_ratio, log_traffic)]
        weight = None if rows.weight is None else rows.weight[:: step[0]]
        own = log_ratio[:: step[0]], rows.codes[:: step[0]], log_traffic[:: step[1]]
        ratio.acceptance_ = curve._replace(spread=prior_spread(*own, mix, weight))


def fresh_mix(
    model: Any, sides: tuple[Any, Any], codes: NDArray[np.integer], log_ratio: tuple[Floats, Floats], pi: float | None
) -> ClassMix | None:
    """Return the class mix of fresh traffic: the one that the model serves, or, where a test rejects that, its own; None for the rows as they come."""
    mix: ClassMix | None = model.calibration_.mix
    if mix is None or not isinstance(model.class_mix, str) or model.class_mix == "labeled":
        return mix if mix is not None and mix.changed else None
    served_mix = mix if mix.changed else None
    weight = mix_weights(mix, codes)
    if min(effective(weight), len(log_ratio[1])) < rows_needed(np.bincount(codes, weight, len(mix.traffic))):
        return served_mix
    chosen = [np.arange(0, len(values), -(-len(values) // MIX_ROWS)) for values in log_ratio]
    eta, seen = (model.scorer_.posterior(take(X, at)) for X, at in zip(sides, chosen, strict=True))
    own, place = weight[chosen[0]], codes[chosen[0]]
    first, second = (values[at] for values, at in zip(log_ratio, chosen, strict=True))
    # The served mix is an estimate itself.
    spread = mix.covariance
    if not mix.changed:
        spread = (np.diag(mix.labeled) - np.outer(mix.labeled, mix.labeled)) / len(model.calibration_)
    found, shares = None, mix.traffic
    for _ in range(1 + TURNS):
        # g is against the mix that is served; against another one it is g / v.
        w = np.where(mix.traffic > 0.0, shares / np.maximum(mix.traffic, 1e-300), 1.0)
        there, here = (
            values - np.log(np.maximum(posterior @ w, 1e-12)) for values, posterior in ((first, eta), (second, seen))
        )
        share = pi if pi is not None else 0.0
        if pi is None and np.isfinite(here).all() and np.isfinite(there).all():
            share = PRIORS["mean"](acceptance(there, here, mix_weights(replace(mix, traffic=shares), place)))
        h = expit(np.log1p(-share) - np.log(share) - here) if 0.0 < share < 1.0 else np.ones(len(here))
        found = most_likely(eta, place, own, seen, h, spread)
        if found.p_value > LEVEL:
            return served_mix
        shares = found.share
    assert found is not None
    new = served(found, mix.traffic, test_level=LEVEL, level=0.95, rows=float(len(seen)))
    return replace(new, labeled=mix.labeled) if new.changed else served_mix


def _known(shares: Floats, labeled: Floats) -> ClassMix:
    """Return a mix that is given."""
    if len(shares) != len(labeled):
        raise refusal(
            "class_mix",
            "must hold one share for each of the {allowed} classes, got {got}.",
            allowed=len(labeled),
            got=len(shares),
        )
    if (shares[labeled == 0.0] > 0.0).any():
        raise refusal("class_mix", "must be 0 for classes without labeled rows, got {got}.", got=shares.tolist())
    # Rows of a class that is said to be gone still count a little: a weight of zero would make its answer impossible.
    traffic = np.where(labeled > 0.0, np.maximum(shares, 1e-4 * labeled), 0.0)
    traffic = traffic / traffic.sum()
    return ClassMix(labeled, traffic, traffic, traffic, changed=not np.allclose(traffic, labeled), p_value=0.0)


def _some(seen: Seen) -> tuple[Seen, NDArray[np.intp]]:
    """Return no more rows of either side than a mix needs, chosen by what they hold, and the places of those of the traffic; one of each group stands for all of it."""
    assert seen.traffic is not None
    sides, groups = (seen.known, seen.traffic), (seen.rows.group, seen.unlabeled.group)
    if max(map(len, sides)) <= MIX_ROWS and all(group is None for group in groups):
        return seen, np.arange(len(seen.traffic))
    weights = [
        weight if group is None else _of_group(weight, group)
        for weight, group in zip((seen.rows.weight, seen.unlabeled.weight), groups, strict=True)
    ]
    first, second = (_chosen(rows, group) for rows, group in zip(sides, groups, strict=True))
    part = Seen(
        seen.known[first],
        seen.rows._replace(weight=weights[0], group=None).take(first),
        seen.traffic[second],
        Unlabeled(weights[1]).take(second),
        None if seen.folds is None else (seen.folds[0][first], seen.folds[1][second]),
    )
    return part, second


def _chosen(rows: Activations, group: Keys | None) -> NDArray[np.intp]:
    """Return the places of so many rows, of no two in a group, by what they hold."""
    hashes = row_hash(np.asarray(rows.logits), 0)
    places = np.arange(len(hashes)) if group is None else one_of_each(group, hashes)
    return np.sort(places[np.argsort(hashes[places], kind="stable")[:MIX_ROWS]])


def _of_group(weight: Floats | None, group: Keys) -> Floats:
    """Return the weight of all rows of a row's group."""
    place = np.unique(group, return_inverse=True)[1]
    return np.asarray(np.bincount(place, weight)[place], dtype=np.float64)


def _tell(mix: ClassMix, classes: NDArray[Any]) -> None:
    names, moved = classes.tolist(), mix.moved if len(mix.moved) else np.argsort(-np.abs(mix.traffic - mix.labeled))[:1]
    words = [
        f"{names[k]!r} {100 * mix.labeled[k]:.3g} % -> {100 * mix.traffic[k]:.3g} %" for k in moved[:NAMED].tolist()
    ]
    more = f" and {len(moved) - NAMED} more" if len(moved) > NAMED else ""
    warn_caller(
        ClassMixWarning(
            "The ID part of the traffic has another class mix than the labeled rows, and the model is adapted to it ({moved}{more}): "
            "{class_mix}='labeled' serves the mix of the labeled rows.",
            moved=", ".join(words),
            more=more,
            p_value=mix.p_value,
        )
    )
