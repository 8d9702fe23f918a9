# SPDX-License-Identifier: BSD-3-Clause
"""From counts to findings.

Convention: an alarm is active while the capital after the last window is enough, and past if it was enough after an earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from poscod._json import plain
from poscod.monitor._bets import likely_begin, log_capital, log_gains, shares
from poscod.monitor._estimate import estimate
from poscod.monitor._findings import Finding
from poscod.monitor._ledger import Ledger
from poscod.monitor._mix import unchanged
from poscod.monitor._sequential import Watch
from poscod.monitor._times import Width, age_in_days, window_start

WIDEST_TPR = 0.04
"""Widest 95 % interval of TPR that is not called uncertain: no OOD share can be known much better."""
CLOSEST_RATES = 0.05
"""Smallest certain difference of TPR and FPR at which acceptance says something of OOD."""
RECENT = 500
"""Decisions that the latest windows must hold together to speak of their class mix; fewer where there are no more."""
NAMED = 3
"""Classes that are named, those whose shares moved most."""


def sequential(
    ledger: Ledger, watches: dict[str, Watch], width: Width, origin: int, ood_limit: float
) -> Iterator[Finding]:
    """Yield the alarms of sequential tests."""
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
        need = -math.log(watch.alpha)
        alarms = np.flatnonzero(capital >= need)
        if not len(alarms):
            continue
        active = bool(capital[-1] >= need)
        last = len(order) if active else int(alarms[-1]) + 1
        begin = likely_begin(table[:last], number[:last])
        rows = {name: ledger.table(name)[begin:last].sum(axis=0) for name in ("label", "labeled")}
        evidence: dict[str, Any] = {
            "log10_evidence": round(float(capital[last - 1]) / math.log(10.0), 3),
            "log10_needed": round(need / math.log(10.0), 3),
            "since": window_start(order[begin], width),
            "until": window_start(order[last - 1] + 1, width),
            "first_alarm": window_start(order[int(alarms[0])], width),
            "decisions": int(rows["label"].sum()),
            "accepted": int(rows["label"][:-1].sum()),
        }
        if code == "PSC001":
            evidence["ood_limit"] = ood_limit
        if code == "PSC012":
            ratio, label = (ledger.table(name)[begin:last].sum(axis=0, keepdims=True) for name in ("ratio", "label"))
            mix = estimate(ledger.reference, ratio, label, 0.95).mix.estimate[0]
            rows_of = ledger.reference.tally.counts
            rate = rows_of[:, 1] / np.maximum(rows_of[:, 0], 1)
            evidence["tpr_of_mix"] = round(float(np.nansum(mix * rate)), 4)
        if code in ("PSC005", "PSC006", "PSC012"):
            evidence["tpr_promised"] = ledger.reference.tpr_promised
        if code in ("PSC005", "PSC006"):
            evidence |= {"labeled_id": int(rows["labeled"][:2].sum()), "accepted_id": int(rows["labeled"][0])}
        yield Finding(code, _sentence(code, evidence, active), evidence, active)


def mix_moved(ledger: Ledger, share: float, width: Width, origin: int, level: float) -> Iterator[Finding]:
    """Yield that the class mix of the latest windows is not the one that is served: a test a window, with levels that sum to the share."""
    order, label = ledger.order(), ledger.table("label")
    size = label.sum(axis=1)
    held = np.flatnonzero(size)
    if not len(held):
        return
    enough = np.cumsum(size[::-1])[::-1] >= RECENT
    begin = int(np.flatnonzero(enough)[-1]) if enough.any() else int(held[0])
    ratio, label = (ledger.table(name)[begin:].sum(axis=0, keepdims=True) for name in ("ratio", "label"))
    reference = ledger.reference
    found = estimate(reference, ratio, label, level)
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
    }[code]
    since, until = (str(evidence[name]).removesuffix("T00:00:00Z") for name in ("since", "until"))
    rows = f"({evidence['decisions']:,} decisions, {100.0 * share:.1f} % accepted)"
    if active:
        return f"Since {since} {text} {rows}."
    return f"From {since} to {until} {text} {rows}; later windows no longer show it."
