# SPDX-License-Identifier: BSD-3-Clause
"""What the numbers of a summary mean, in sentences.

Convention: a sentence says only what the summary holds; shares are told per 1,000 inputs to people who do not read intervals,
and as percentages with intervals to those who do.
"""

from __future__ import annotations

from typing import Any

from poscod.plot import RULE_NAMES
from poscod.ratio import finding_words
from poscod.report._format import MISSING, count, fixed, interval, percent
from poscod.report._review import assessment_rows, decision_words, review_words
from poscod.report._strangers import strangers_page

GROUP_NAMES = {"id": "known (ID)", "ood": "unknown (OOD)", "unlabeled": "unlabeled traffic"}
REASON_NAMES = {
    "ambiguous": "ambiguous: the classifier is likely wrong here",
    "unfamiliar": "unfamiliar: unlike the training data",
    "both": "a bit of both",
    "accepted, but wrong": "accepted, but the answer was wrong",
}
MIX_CLASSES = 12
"""Classes of which the class mix is shown."""
_VERDICTS = {"held": "The promise held", "open": "The promise is not contradicted", "missed": "The promise was missed"}


def words(summary: dict[str, Any]) -> dict[str, Any]:
    """Return everything that a report says in sentences."""
    return {
        "title": summary["title"],
        "short": headline(summary),
        "promise": promise_sentence(summary["promise"], summary["rows"]["id"]),
        "mix_words": mix_words(summary["class_mix"]) or [summary["class_mix"]["at_fit"]["sentence"]],
        "mix_classes": mix_classes(summary["class_mix"]),
        "ratio_words": ratio_words(summary["ratio"]),
        "risk_words": risk_words(summary["reliability"], summary["level"]),
        "review_words": review_words(review := summary["review"]),
        "assessed": assessment_rows(review["assessment"]) if review and review["assessment"] else [],
        "decision_words": decision_words,
        **strangers_page(summary.get("strangers")),  # summaries of earlier versions have none
        "rule_names": RULE_NAMES,
        "group_names": GROUP_NAMES,
        "reason_names": REASON_NAMES,
    }


def thousand(share: float | None) -> str:
    """Return a share as a number of 1,000."""
    return MISSING if share is None else fixed(1000.0 * share, 0)


def _thousands(share: dict[str, Any]) -> str:
    """Return the ends of an interval as numbers of 1,000."""
    return f"{thousand(share['low'])} to {thousand(share['high'])}"


def headline(summary: dict[str, Any]) -> list[str]:
    """Return the manager's summary: a handful of plain sentences.

    Parameters
    ----------
    summary : dict
        Of `summarise`.

    Returns
    -------
    sentences : list of str
    """
    rates = summary["rates"]
    tpr = rates["tpr"]["estimate"]
    sentences = [
        f"Of 1,000 inputs like the known ones, about {thousand(tpr)} are answered and {thousand(1.0 - tpr)} are handed on "
        f"(interval {_thousands(rates['tpr'])} answered; measured on {count(summary['rows']['id'])} fresh rows)."
    ]
    mistake, every = rates["selective_risk"]["estimate"], rates["loss_of_all"]["estimate"]
    if mistake is None:
        sentences.append("No known input was answered here, so nothing can be said about wrong answers.")
    elif rates["zero_one"]:
        sentences.append(
            f"Of 1,000 answers given to known inputs, about {thousand(mistake)} are wrong (interval {_thousands(rates['selective_risk'])}); if everything "
            f"were answered, it would be {thousand(every)}."
        )
    else:
        sentences.append(
            f"An answer given to a known input costs {fixed(mistake)} on average; if everything were answered, {fixed(every)}."
        )
    if rates["fpr"] is not None:
        sentences.append(
            f"Of 1,000 inputs of an unknown kind, about {thousand(rates['fpr']['estimate'])} slip through and get an answer "
            f"(interval {_thousands(rates['fpr'])}; measured on {count(summary['rows']['ood'])} rows known to be OOD)."
        )
    if rates["free_fpr"] is not None:
        sentences.append(_free_sentence(summary))
    sentences.append(promise_sentence(summary["promise"], summary["rows"]["id"]))
    sentences += mix_words(summary["class_mix"])
    if summary["drift"] is not None:
        sentences.append(f"At fit: {summary['drift']['sentence']}")
    return [*sentences, *_rival_sentence(summary)]


def promise_sentence(promise: dict[str, Any], rows: int) -> str:
    """Return what was promised and what came of it on so many fresh ID rows."""
    got = f"{fixed(promise['measured']['estimate'])} (interval {interval(promise['measured'], 'fixed')})"
    if promise["verdict"] == "none":
        return f"Nothing is promised about the share of known inputs accepted; on {count(rows)} fresh rows it is {got}."
    what = "TPR of all classes together" if promise.get("over") == "classes" else "it"
    return f"{_VERDICTS[promise['verdict']]}: {promise['words']}, and on {count(rows)} fresh rows {what} is {got}."


def mix_words(mix: dict[str, Any]) -> list[str]:
    """Return what the class mix is, where it is not that of the labeled rows, and for which mix rates are; nothing where all are the same."""
    fit, here = mix["at_fit"], mix["here"]
    found = ([fit["sentence"]] if fit["changed"] else []) + ([] if here is None else [here["sentence"]])
    if not found:
        return []
    if mix["of"] == "labeled":
        return [*found, "Rates of known inputs are for the rows measured as they come, not for that class mix."]
    whose = "that the model serves" if here is None else "of this traffic"
    return [*found, f"Rates of known inputs are for the class mix {whose}, whatever that of the rows measured is."]


def mix_classes(mix: dict[str, Any]) -> list[int] | None:
    """Return the places of the classes that differ most, at most `MIX_CLASSES`; None where the traffic's mix is neither estimated nor given."""
    fit, here = mix["at_fit"], mix["here"]
    documents = [fit] if here is None else [fit, here]
    if not any(document["estimated"] or document["changed"] for document in documents):
        return None

    def gap(k: int) -> float:
        return max(abs(d["classes"][k]["traffic"] - d["classes"][k]["labeled"]) for d in documents)

    return sorted(range(len(fit["classes"])), key=lambda k: -gap(k))[:MIX_CLASSES]


def ratio_words(ratio: dict[str, Any] | None) -> list[str]:
    """Return what the checks of g say."""
    if ratio is None:
        return ["No unlabeled rows were given at fit, so g is not known and the rule uses the conditional risk alone."]
    fit = ratio["at_fit"]
    found = [
        f"In the traffic seen at fit an estimated {percent(fit['estimate'])} of inputs are OOD (interval {interval(fit)}). Data "
        f"certify at least {percent(ratio['certified'])}; no data certify an upper end, because OOD inputs that look like known ones leave no trace."
    ]
    diagnosis = ratio["diagnosis"]
    if diagnosis is None:
        return [*found, "g itself was not checked here: that takes fresh unlabeled rows."]
    inverse, mean = diagnosis["mean_inverse_rho"], diagnosis["mean_ratio_id"]
    found.append(
        f"On {count(diagnosis['n_id'])} known and {count(diagnosis['n_unlabeled'])} unlabeled fresh rows two means should be 1: that of g over "
        f"known inputs is {fixed(mean[0])} ± {fixed(mean[1])}; that of 1/rho over the traffic, rho being traffic to known inputs as g says it "
        f"(1 - pi + pi g), is {fixed(inverse[0])} ± {fixed(inverse[1])}. The latter supposes the OOD share pi seen at fit."
    )
    found.append(
        f"{percent(diagnosis['flips'])} of the traffic would change between “more likely OOD” and “more likely known” if the OOD share "
        "moved within its interval."
    )
    found += finding_words(diagnosis)
    return found if diagnosis["findings"] else [*found, "No check of g failed."]


def risk_words(reliability: dict[str, Any], level: float) -> list[str]:
    """Return what the check of r says."""
    r, loss = reliability["mean_risk"], reliability["mean_loss"]
    agrees = reliability["p_value"] > 1.0 - level
    side = "agrees with" if agrees else "is too low for" if r < loss else "is too high for"
    return [
        f"On average r predicts a loss of {fixed(r, 4)}, which {side} the {fixed(loss, 4)} that happened (p = {fixed(reliability['p_value'])}).",
        f"The mean distance between predicted and observed loss over bins is {fixed(reliability['error'], 4)}.",
    ]


def _free_sentence(summary: dict[str, Any]) -> str:
    rates, share = summary["rates"], summary["ratio"]["here"] if summary["ratio"] else None
    start = ""
    if share is not None:
        start = (
            f"In the unlabeled traffic an estimated {percent(share['estimate'])} of inputs are of an unknown kind "
            f"(interval {interval(share)}); "
        )
    if rates["free_fpr"]["estimate"] is None:
        return f"{start}how many of them slip through cannot be said: {rates['free_fpr_note']}"
    return (
        f"{start}without a single OOD label, about {thousand(rates['free_fpr']['estimate'])} of 1,000 of them are estimated to slip "
        f"through (interval {_thousands(rates['free_fpr'])})."
    )


def _rival_sentence(summary: dict[str, Any]) -> list[str]:
    """Compare with the classifier's own confidence at the same required TPR, whoever wins."""
    by_name = {rule["name"]: rule for rule in summary["rules"]}
    own, rival = by_name["poscod"], by_name.get("risk")
    key = "fpr" if own["fpr"] is not None else "free_fpr"
    if rival is None or own[key] is None or None in (own[key]["estimate"], rival[key]["estimate"]):
        return []
    return [
        f"The classifier's own confidence alone, asked for the same share of known inputs, would let {thousand(rival[key]['estimate'])} of "
        f"1,000 unknown inputs through instead of {thousand(own[key]['estimate'])}."
    ]
