# SPDX-License-Identifier: BSD-3-Clause
"""From counts to findings.

Convention: an alarm is active while the capital after the last window is enough, and past if it was enough after an earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from poscod._json import plain
from poscod._validation import Floats
from poscod.monitor._bets import likely_begin, log_capital, log_gains, shares
from poscod.monitor._estimate import Estimates, estimate
from poscod.monitor._findings import Finding
from poscod.monitor._ledger import Ledger
from poscod.monitor._mix import unchanged
from poscod.monitor._partitions import Counts
from poscod.monitor._past import joined, rise
from poscod.monitor._sequential import Watch
from poscod.monitor._share import direction
from poscod.monitor._times import Width, age_in_days, window_start

WIDEST_TPR = 0.04
"""Widest 95 % interval of TPR that is not called uncertain: no OOD share can be known much better."""
CLOSEST_RATES = 0.05
"""Smallest certain difference of TPR and FPR at which acceptance says something of OOD."""
RECENT = 500
"""Decisions that the latest windows must hold together to speak of their class mix; fewer where there are no more."""
FALL = 0.02
"""A fall of the share accepted that is none: class mixes that wobble move it, too."""
NAMED = 3
"""Classes that are named, those whose shares moved most."""


def sequential(
    ledger: Ledger, watches: dict[str, Watch], width: Width, origin: int, ood_limit: float
) -> Iterator[Finding]:
    """Yield the alarms of sequential tests against the reference."""
    order = ledger.order()
    if not order:
        return
    number = np.array(order, dtype=np.int64) - origin
    for code, watch in watches.items():
        gains = [log_gains(ledger.table(name), payoffs) for name, payoffs in watch.payoffs.items() if payoffs]
        if not gains:
            continue
        table = np.concatenate(gains, axis=1)
        capital = log_capital(table, number, dropped=ledger.evicted())
        raised = _raised(capital, watch.alpha, partial(_begin, table, number))
        if raised is None:
            continue
        evidence, rows = _evidence(ledger, capital, raised, watch.alpha, width)
        if code == "PSC001":
            evidence["ood_limit"] = ood_limit
        if code == "PSC012":
            mix = _pooled(ledger, raised.begin, raised.last).mix.estimate[0]
            rows_of = ledger.reference.tally.counts
            rate = rows_of[:, 1] / np.maximum(rows_of[:, 0], 1)
            evidence["tpr_of_mix"] = round(float(np.nansum(mix * rate)), 4)
        if code in ("PSC005", "PSC006", "PSC012"):
            evidence["tpr_promised"] = ledger.reference.tpr_promised
        if code in ("PSC005", "PSC006"):
            evidence |= {"labeled_id": int(rows["labeled"][:2].sum()), "accepted_id": int(rows["labeled"][0])}
        yield Finding(code, _sentence(code, evidence, raised.active), evidence, raised.active)


def against_past(
    ledger: Ledger, share: float, width: Width, origin: int, level: float, ood_limit: float
) -> Iterator[Finding]:
    """Yield the alarms of windows that differ from earlier ones of the same stream.

    Notes
    -----
    Half of the share is for OOD inputs, a quarter each for the others. A third of that each is for bounds of the past, for slack and for capital. OOD inputs are told by functions that do not see the class mix but for the reference's noise: slack allows for mixes in
    which every class moves by half of its share, and what a mix that moved further could explain, by the shares of classes before and after, is no alarm.
    """
    order, reference = ledger.order(), ledger.reference
    if len(order) < 2:
        return
    number, alpha = np.array(order, dtype=np.int64) - origin, share / 6.0
    laws = reference.laws("ratio")
    functions = (
        [laws.control, laws.neutral(direction(laws, reference.n_bins, laws.prior))] if laws.known else [laws.control]
    )
    noise = [laws.variance(f) / laws.n for f in functions]  # of the mean in each class
    z, ratio = -float(ndtri(alpha / len(functions))), ledger.table("ratio")
    parts = [
        rise(ratio, f, number, delta=alpha / len(functions), slack=0.5 * z * math.sqrt(laws.mix**2 @ v))
        for f, v in zip(functions, noise, strict=True)
    ]
    label, loss = ledger.table("label"), ledger.table("loss")
    rejected = reference.layouts["label"].rejected.astype(np.float64)
    watched = {
        "PSC014": joined(parts),
        "PSC015": rise(label, rejected, number, delta=alpha / 2.0, slack=FALL),
        "PSC016": rise(loss, ledger.loss_values, number, delta=alpha / 2.0),
    }
    explained = False
    for code, found in watched.items():
        own = alpha if code == "PSC014" else alpha / 2.0
        raised = _raised(found.capital, own, found.begin_before)
        if raised is None or (code == "PSC015" and explained):
            continue
        before, since = _pooled(ledger, 0, raised.begin, level), _pooled(ledger, raised.begin, raised.last, level)
        if code == "PSC014":
            moved = np.nan_to_num(since.mix.estimate[0] - before.mix.estimate[0])[laws.classes]
            gaps = [_mean(ratio[raised.begin : raised.last], f) - _mean(ratio[: raised.begin], f) for f in functions]
            if all(gap <= z * math.sqrt(moved**2 @ v) for gap, v in zip(gaps, noise, strict=True)):
                continue
            explained = raised.active
        evidence, rows = _evidence(ledger, found.capital, raised, own, width)
        earlier = label[: raised.begin].sum(axis=0)
        evidence |= plain(
            {
                "decisions_before": int(earlier.sum()),
                "accepted_before": int(earlier[:-1].sum()),
                "pi": since.pi.intervals(level)[0],
                "pi_before": before.pi.intervals(level)[0],
            }
        )
        if code == "PSC016":
            evidence["loss"] = round(_mean(loss[raised.begin : raised.last], ledger.loss_values), 6)
            evidence["loss_before"] = round(_mean(loss[: raised.begin], ledger.loss_values), 6)
            evidence |= {"accepted_id": int(rows["labeled"][0])}
        mild = code == "PSC014" and bool(since.pi.high[0] < ood_limit)
        yield Finding(code, _sentence(code, evidence, raised.active), evidence, raised.active, mild)


class _Raised(NamedTuple):
    """An alarm: the window in which it likely began, the one after its last, the first in which it was raised, and whether it still is."""

    begin: int
    last: int
    first: int
    active: bool


def _begin(gains: Floats, number: Counts, last: int) -> int:
    return likely_begin(gains[:last], number[:last])


def _raised(capital: Floats, alpha: float, begin: Callable[[int], int]) -> _Raised | None:
    """Return the alarm that capital shows; None where it never was enough."""
    alarms = np.flatnonzero(capital >= -math.log(alpha))
    if not len(alarms):
        return None
    active = bool(alarms[-1] == len(capital) - 1)
    last = int(alarms[-1]) + 1
    return _Raised(begin(last), last, int(alarms[0]), active)


def _evidence(
    ledger: Ledger, capital: Floats, raised: _Raised, alpha: float, width: Width
) -> tuple[dict[str, Any], dict[str, Counts]]:
    """Return what every alarm says of itself, and the rows of its windows."""
    order = ledger.order()
    rows = {name: ledger.table(name)[raised.begin : raised.last].sum(axis=0) for name in ("label", "labeled")}
    return {
        "log10_evidence": round(float(capital[raised.last - 1]) / math.log(10.0), 3),
        "log10_needed": round(-math.log10(alpha), 3),
        "since": window_start(order[raised.begin], width),
        "until": window_start(order[raised.last - 1] + 1, width),
        "first_alarm": window_start(order[raised.first], width),
        "decisions": int(rows["label"].sum()),
        "accepted": int(rows["label"][:-1].sum()),
    }, rows


def _pooled(ledger: Ledger, begin: int, last: int, level: float = 0.95) -> Estimates:
    """Return share and mix over several windows."""
    ratio, label = (ledger.table(name)[begin:last].sum(axis=0, keepdims=True) for name in ("ratio", "label"))
    return estimate(ledger.reference, ratio, label, level)


def _mean(counts: Counts, f: Floats) -> float:
    rows = counts.sum(axis=0)
    return float(rows @ f) / max(1.0, float(rows.sum()))


def mix_moved(ledger: Ledger, share: float, width: Width, origin: int, level: float) -> Iterator[Finding]:
    """Yield that the class mix of the latest windows is not the one that is served: a test a window, with levels that sum to the share."""
    order, label = ledger.order(), ledger.table("label")
    size = label.sum(axis=1)
    held = np.flatnonzero(size)
    if not len(held):
        return
    enough = np.cumsum(size[::-1])[::-1] >= RECENT
    begin = int(np.flatnonzero(enough)[-1]) if enough.any() else int(held[0])
    label, reference = label[begin:].sum(axis=0, keepdims=True), ledger.reference
    found = _pooled(ledger, begin, len(order), level)
    covariance, laws = reference.mix.covariance, reference.laws("label")
    if covariance is not None:
        covariance = covariance[np.ix_(laws.classes, laws.classes)]
    p_value = unchanged(label[0], laws, found.pi, level, covariance)
    last = float(order[int(held[-1])] - origin)
    if p_value > share * float(shares([last - 1.0], [last])[0]):
        return
    served, (now, low, high) = reference.mix.traffic, (values[0] for values in found.mix)
    moved = np.argsort(-np.abs(np.nan_to_num(now - served)), kind="stable")[:NAMED]
    rows = [
        {"class": reference.cells.classes[k], "served": served[k], "now": now[k], "low": low[k], "high": high[k]}
        for k in moved.tolist()
    ]
    since = window_start(order[begin], width)
    words = ", ".join(
        f"{row['class']!r} {100 * row['served']:.3g} % -> {100 * row['now']:.3g} % ({100 * row['low']:.3g} to {100 * row['high']:.3g})"
        for row in rows
    )
    evidence = plain({"since": since, "decisions": int(label.sum()), "p_value": p_value, "classes": rows})
    day = str(since).removesuffix("T00:00:00Z")
    yield Finding("PSC004", f"Since {day} the class mix is another one than the one served: {words}.", evidence)


def facts(ledger: Ledger, width: Width, max_age: float) -> Iterator[Finding]:
    """Yield findings that are not tests."""
    reference = ledger.reference
    tpr, fpr = reference.tpr(), reference.fpr()
    if tpr.high - tpr.low > WIDEST_TPR:
        need = math.ceil(4.0 * 1.96**2 * tpr.estimate * (1.0 - tpr.estimate) / WIDEST_TPR**2)
        yield Finding(
            "PSC007",
            f"TPR is between {tpr.low:.3f} and {tpr.high:.3f}, from {reference.n_id} calibration rows: about {need:,} would do. "
            f"By default they are a quarter of the labeled rows ({4 * need:,}), with a network or a frozen classifier half ({2 * need:,}).",
            {"n_id": reference.n_id, "tpr_low": tpr.low, "tpr_high": tpr.high, "rows_needed": need},
        )
    order = ledger.order()
    age = age_in_days(reference.created, order[-1], width) if order else math.nan
    if age > max_age:
        yield Finding(
            "PSC008",
            f"The calibration of {reference.created} is {age:.0f} days old, more than {max_age:g}.",
            {"created": reference.created, "age_days": age, "max_age_days": max_age},
        )
    if reference.source == "none":
        yield Finding(
            "PSC009", "Nothing is known of OOD inputs, so every OOD share is a lower bound.", {"source": "none"}
        )
    elif tpr.low - fpr.high < CLOSEST_RATES:
        yield Finding(
            "PSC009",
            f"TPR ({tpr.estimate:.3f}) and FPR (between {fpr.low:.3f} and {fpr.high:.3f}) are not surely different.",
            {"tpr": tpr.estimate, "fpr_low": fpr.low, "fpr_high": fpr.high, "source": reference.source},
        )
    invalid, unknown = int(ledger.table("invalid").sum()), int(ledger.table("label")[:, -2].sum())
    if invalid or unknown:
        yield Finding(
            "PSC010",
            f"{invalid} decisions hold NaN and {unknown} accepted ones name classes that the reference does not know.",
            {"nan": invalid, "unknown_class": unknown},
        )
    if reference.source == "fit":
        seen = "the unlabeled rows that fitted the ratio: they look slightly more OOD to it than fresh rows do"
        yield Finding("PSC011", f"What is known of OOD comes from {seen}.", {"source": "fit"})
    if reference.drift is not None:
        yield Finding("PSC013", f"At fit: {reference.drift['sentence']}", {"drift": reference.drift})


def _sentence(code: str, evidence: dict[str, Any], active: bool) -> str:
    share = evidence["accepted"] / max(1, evidence["decisions"])
    earlier = evidence.get("accepted_before", 0) / max(1, evidence.get("decisions_before", 0))
    limit, judged, accepted = (evidence.get(name, 0) for name in ("ood_limit", "labeled_id", "accepted_id"))
    promised = "what calibration showed" if evidence.get("tpr_promised") is None else "its promise"
    was, has = ("is", "have") if active else ("was", "had")
    text = {
        "PSC001": f"more than {100.0 * limit:.3g} % of the inputs {'are' if active else 'were'} OOD",
        "PSC002": f"another share {was} accepted than the inputs' likelihood ratios or the TPR explain",
        "PSC003": f"scores of accepted inputs {has} drifted",
        "PSC005": f"TPR {was} below {promised}, on {judged} labeled ID rows",
        "PSC012": f"the class mix {was} one in which TPR is about {evidence.get('tpr_of_mix', 0.0):.3f}, below the promise of {evidence.get('tpr_promised') or 0.0:g}",
        "PSC006": f"selective risk {was} above what calibration showed, on {accepted} accepted labeled ID rows",
        "PSC014": f"more inputs {'are' if active else 'were'} OOD than before: {_share(evidence.get('pi'))} of them, and {_share(evidence.get('pi_before'))} before",
        "PSC015": f"fewer inputs {'are' if active else 'were'} accepted than before, when it was {100.0 * earlier:.1f} %",
        "PSC016": f"answers {'are' if active else 'were'} wrong more often than before: mean loss {evidence.get('loss', 0.0):.3g}, and {evidence.get('loss_before', 0.0):.3g} before, on {accepted} accepted labeled ID rows",
    }[code]
    since, until = (str(evidence[name]).removesuffix("T00:00:00Z") for name in ("since", "until"))
    rows = f"({evidence['decisions']:,} decisions, {100.0 * share:.1f} % accepted)"
    if active:
        return f"Since {since} {text} {rows}."
    return f"From {since} to {until} {text} {rows}; later windows no longer show it."


def _share(interval: dict[str, Any] | None) -> str:
    """Return an OOD share in words; the dictionary is an interval."""
    if interval is None or interval["estimate"] is None:
        return "an unknown share"
    return f"{100.0 * interval['estimate']:.3g} % ({100.0 * interval['low']:.3g} to {100.0 * interval['high']:.3g})"


def no_alarm(most: float | None, limit: float) -> str:
    """Return what the absence of alarms means: that the limit is kept in the last window, or that nothing is proven.

    Examples
    --------
    >>> no_alarm(0.021, 0.1)
    'No alarm: at most 2.1 % of the inputs of the last window are OOD, and the limit is 10 %.'
    """
    if most is None:
        return "No alarm, because nothing has been counted."
    share = f"{100.0 * most:.3g} % of the inputs of the last window"
    end = f"and the limit is {100.0 * limit:.3g} %."
    return (
        f"No alarm: at most {share} are OOD, {end}"
        if most < limit
        else f"No alarm, which is no proof: up to {share} may be OOD, {end}"
    )
