"""The summary: plain, complete, and equal to what the estimator says of itself."""

from __future__ import annotations

import base64
import copy
import inspect
import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import pytest

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.problem import BoundedProblem, CostProblem, ScodProblem
from poscod.ratio import FINDINGS, _diagnose
from poscod.report import render, summarise
from poscod.report._charts import mix_chart
from poscod.report._explorer import SCALES, TARGETS, floors, rank_of
from poscod.report._words import mix_classes
from poscod.review import queue
from poscod.risk import reliability
from poscod.selector import guaranteed_threshold, tpr_threshold
from test_report._cases import WORLD, Case, fitted


def decoded(text):
    return np.frombuffer(base64.b64decode(text), dtype="<f8")


def plain_only(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain_only(entry) for key, entry in value.items())
    if isinstance(value, list):
        return all(plain_only(entry) for entry in value)
    return value is None or type(value) in (str, bool, int, float)


def test_keys_are_documented_and_values_are_plain(summary):
    assert list(summary) == re.findall(r"^ *\* (\w+): ", summarise.__doc__, re.M)
    assert plain_only(summary)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_rates_are_those_of_evaluate(case, summary):
    want = case.model.evaluate(case.X, case.y, case.X_ood)
    free = case.model.evaluate_unlabeled(case.X, case.y, case.X_unlabeled)
    rates = summary["rates"]
    for key in ("tpr", "fpr", "selective_risk", "risk"):
        assert rates[key] == getattr(want, key)._asdict(), key
    assert rates["accepted"] == free.accepted._asdict()
    assert rates["free_risk"]["estimate"] == free.risk.estimate
    assert (rates["free_fpr"]["low"], rates["free_fpr"]["high"]) == (free.fpr.low, free.fpr.high)
    assert summary["ratio"]["here"] == free.ood_prior._asdict()
    assert summary["rates"]["loss_of_all"]["estimate"] == np.mean(case.model.predict_id(case.X) != case.y)


def test_rules_share_the_required_tpr(case, summary):
    by_name = {rule["name"]: rule for rule in summary["rules"]}
    assert list(by_name) == ["poscod", "risk", "ratio", "sirc"]
    for name, alpha in (("poscod", 0.3), ("risk", 0.0), ("ratio", 1.0)):
        want = case.model.at(alpha=alpha).evaluate(case.X, case.y, case.X_ood)
        assert by_name[name]["tpr"]["estimate"] == want.tpr.estimate
        assert by_name[name]["fpr"]["estimate"] == want.fpr.estimate


def test_what_was_fitted(case, summary):
    model = summary["model"]
    assert summary["rule"] == case.model.rule_.to_dict()
    assert (summary["alpha"], summary["required_tpr"], model["held_out"]) == (0.3, 0.85, False)
    assert "LogisticRegression" in model["classifier"]
    assert model["ratio"] == "CorrectedSigmoid"
    assert summary["rows"] == {
        "calibration": len(case.model.calibration_.codes),
        "id": 500,
        "ood": 220,
        "unlabeled": 360,
    }
    assert summary["created"] == "2026-01-02"
    assert summary["classes"] == ["0", "1", "2"]


def test_no_date_is_invented(case):
    assert case.summary(explorer=False)["created"] is None


@pytest.mark.parametrize(
    ("accepted", "n", "verdict"), [(980, 1000, "held"), (855, 1000, "open"), (800, 1000, "missed")]
)
def test_verdict_compares_the_interval_with_the_promise(case, accepted, n, verdict):
    decisions = case.model.decide(case.X)
    yes, no = np.flatnonzero(decisions.accept)[0], np.flatnonzero(~decisions.accept)[0]
    chosen = np.repeat([yes, no], [accepted, n - accepted])
    found = summarise(case.model, X=case.X[chosen], y=case.y[chosen], explorer=False)["promise"]
    assert (found["verdict"], found["measured"]["estimate"]) == (verdict, accepted / n)
    assert (found["quantity"], found["bound"], found["confidence"]) == ("tpr", 0.85, None)


def test_guaranteed_promise_states_its_confidence():
    found = fitted("guaranteed").summary(explorer=False)["promise"]
    assert (found["quantity"], found["bound"], found["confidence"]) == ("tpr", 0.8, pytest.approx(0.9))


def test_a_promised_risk_is_judged_as_a_risk():
    """The bound of a risk is an upper one: held where the whole interval lies below it."""
    case = fitted("guaranteed")
    for risk_max, mistakes, verdict in ((0.2, 0, "held"), (0.2, 200, "open"), (0.2, 400, "missed")):
        model = case.model.control_risk(risk_max)
        decisions = model.decide(case.X)
        right, wrong = (np.flatnonzero(decisions.accept & ((decisions.label == case.y) == k))[0] for k in (True, False))
        chosen = np.repeat([right, wrong], [1000 - mistakes, mistakes])
        found = summarise(model, X=case.X[chosen], y=case.y[chosen], explorer=False)["promise"]
        assert (found["quantity"], found["verdict"]) == ("selective_risk", verdict)
        assert found["measured"]["estimate"] == mistakes / 1000


def test_thresholds_that_promise_no_tpr(case):
    """Budgets and other problems move the threshold: competitors are then asked for the TPR that comes out."""
    moved = case.model.budget(0.4)
    found = Case(moved, case.X, case.y, case.X_ood).summary(explorer=False)
    assert found["promise"]["verdict"] == "none"
    assert found["promise"]["quantity"] is None
    known = moved.calibration_.known("zero_one")
    score = known.risk + moved.beta_ * np.exp(known.log_ratio)
    assert found["required_tpr"] == np.mean(score <= moved.threshold_)
    bounded = case.model.with_rule(BoundedProblem(tpr_min=0.8, fpr_max=0.05))
    found = Case(bounded, case.X, case.y, case.X_ood).summary()
    assert (found["rule"]["problem"]["kind"], found["required_tpr"]) == ("BoundedProblem", 0.8)
    assert found["promise"]["verdict"] != "none"


def test_rejections_and_examples(case, summary):
    decisions = case.model.decide(case.X)
    group = summary["rejections"]["id"]
    assert group["total"]["accepted"] == int(decisions.accept.sum())
    for k, entry in enumerate(group["classes"]):
        assert sum(entry["count"].values()) == int(np.sum(case.y == k))
    for example in summary["examples"]:
        if example["group"] == "id":
            i = example["row"]
            assert example["score"] == decisions.score[i]
            assert example["truth"] == str(case.y[i])
            if example["reason"] in ("ambiguous", "unfamiliar", "both"):
                assert decisions.reason[i] == example["reason"]
            else:
                assert decisions.accept[i]
                assert decisions.label[i] != case.y[i]
    kinds = {(e["group"], e["reason"]) for e in summary["examples"]}
    assert {("id", "accepted, but wrong"), ("ood", "unfamiliar"), ("unlabeled", "unfamiliar")} <= kinds


def test_examples_name_what_lies_outside(case):
    X = case.X.copy()
    X[0] = [1e6, 0.0]
    found = summarise(case.model, X=X, y=case.y, X_ood=case.X_ood, explorer=False)
    (mine,) = (example for example in found["examples"] if example["group"] == "id" and example["row"] == 0)
    assert mine["reason"] == "unfamiliar"
    assert re.match(r"column 0 = 1,000,000: .* in similar rows, largest seen ", mine["detail"])
    assert mine["detail"] in unescape(render(found))
    assert mine["detail"] in render(found, ".md").replace("\\", "")
    assert all(example["detail"] == "" for example in found["examples"] if example["reason"] == "ambiguous")


def test_example_rows_show_the_users_columns(case):
    frame = pd.DataFrame(case.X, columns=["height", "width"])
    traffic = pd.DataFrame(WORLD.sample_mixture(300, pi=0.25, random_state=8)[0], columns=["height", "width"])
    model = POSCOD(ratio=case.model.ratio, alpha=0.3, tpr_min=0.8, random_state=0).fit(frame, case.y, traffic)
    found = summarise(model, X=frame, y=case.y, explorer=False)
    first = found["examples"][0]
    assert first["cells"] == {"height": case.X[first["row"], 0], "width": case.X[first["row"], 1]}
    ids = {"ticket": [f"T{i}" for i in range(len(frame))], "width": frame["width"]}
    found = summarise(model, X=frame, y=case.y, columns={"id": ids}, max_columns=1, n_examples=1, explorer=False)
    assert found["examples"][0]["cells"] == {"ticket": f"T{found['examples'][0]['row']}"}
    assert not summarise(model, X=frame, y=case.y, n_examples=0, explorer=False)["examples"]


def test_reliability_and_diagnosis(case, summary):
    decisions = case.model.decide(case.X)
    want = reliability(decisions.risk, decisions.label != case.y, n_bins=10)
    assert summary["reliability"]["p_value"] == want.p_value
    assert summary["reliability"]["bins"]["observed"] == want.observed.tolist()
    assert summary["ratio"]["diagnosis"]["n_unlabeled"] == 360
    assert summary["ratio"]["at_fit"]["estimate"] == case.model.ood_prior_


def test_every_finding_has_words():
    source = inspect.getsource(_diagnose)
    names = set(re.findall(r'\.append\(\s*"(\w+)"\s*\)', source))
    assert len(names) >= 5
    assert names <= set(FINDINGS)


def test_without_ood_and_traffic(case):
    found = summarise(case.model, X=case.X, y=case.y)
    assert found["rates"]["fpr"] is found["rates"]["free_fpr"] is None
    assert found["ratio"]["diagnosis"] is None
    assert set(found["explorer"]["groups"]) == {"calibration", "id"}
    assert set(found["curves"]["risk"]) == {None}


def test_without_a_ratio(case):
    with pytest.warns(UserWarning, match="No unlabeled rows"):
        model = POSCOD(tpr_min=0.9, random_state=0).fit(case.X, case.y)
    found = Case(model, case.X, case.y, case.X_ood).summary()
    assert found["ratio"] is None
    assert [rule["name"] for rule in found["rules"]] == ["poscod", "risk"]


def test_known_prior_has_no_interval(case):
    found = case.summary(pi=0.25, explorer=False)
    want = case.model.evaluate_unlabeled(case.X, case.y, case.X_unlabeled, pi=0.25)
    assert found["rates"]["free_fpr"]["estimate"] == want.fpr.estimate
    assert found["ratio"]["here"] == {"estimate": 0.25, "low": 0.25, "high": 0.25, "level": 0.95}


def test_explorer_embeds_the_arrays_to_the_last_bit(case, summary):
    decisions = case.model.decide(case.X)
    group = summary["explorer"]["groups"]["id"]
    np.testing.assert_array_equal(decoded(group["risk"]), decisions.risk)
    np.testing.assert_array_equal(decoded(group["log_ratio"]), decisions.log_ratio)
    np.testing.assert_array_equal(decoded(group["loss"]), decisions.label != case.y)
    assert "loss" not in summary["explorer"]["groups"]["ood"]
    kept = summary["explorer"]["groups"]["calibration"]
    np.testing.assert_array_equal(decoded(kept["log_ratio"]), case.model.calibration_.log_ratio)
    for name, value in (("alpha", 0.3), ("tpr_min", 0.85), ("scale", 1.0)):
        slider = summary["explorer"][name]
        assert slider["positions"][slider["start"]] == value
        assert slider["positions"] == sorted(set(slider["positions"]))
    assert summary["explorer"]["scale"]["positions"] == list(SCALES)


def test_explorer_can_be_thinned_or_left_out(case):
    thin = case.summary(max_points=90)["explorer"]["groups"]
    assert (thin["id"]["rows"], thin["id"]["embedded"]) == (500, 84)  # every sixth
    assert thin["calibration"]["embedded"] == thin["calibration"]["rows"]
    np.testing.assert_array_equal(decoded(thin["id"]["risk"]), case.model.decide(case.X).risk[::6])
    assert case.summary(explorer=False)["explorer"] is None
    with pytest.raises(InvalidInputError, match="max_points"):
        case.summary(max_points=0)


@pytest.mark.parametrize("m", [1, 7, 60, 100, 333, 1000])
def test_ranks_are_those_of_the_thresholds(m):
    """The k-th smallest of 0, 1, ..., m - 1 is k - 1: the threshold itself says which rank Python takes."""
    places = np.arange(float(m))
    got = [rank_of(m, t, None) for t in TARGETS.tolist()]
    assert got == [tpr_threshold(places, t).threshold + 1 for t in TARGETS.tolist()]
    for t in TARGETS.tolist():
        rank = rank_of(m, t, 0.1)
        if rank is None:
            assert t == 1.0 or t**m > 0.1
        else:
            assert rank == guaranteed_threshold(places, t, delta=0.1).threshold + 1


def test_floors_reach_the_weight():
    weight = np.array([0.1] * 10)
    got = floors(weight, np.array([0.3, 1.0]))
    running = np.cumsum(weight)
    assert [int(np.searchsorted(running, floor)) for floor in got] == [2, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ["a", "b"]}, "class_names must name 3 classes, got 2"),
        ({"level": 1.0}, "level must be a number in"),
        ({"pi": 0.0}, "pi must be a number in"),
        ({"n_examples": -1}, "n_examples must be a whole number >= 0"),
        ({"columns": {"id": {"a": [1, 2]}}}, "must have as many rows as that table"),
    ],
)
def test_bad_options_are_refused(case, options, message):
    with pytest.raises(InvalidInputError, match=message):
        case.summary(**options)


ELSEWHERE = {
    "budget": lambda m: m.budget(0.5),
    "risk": lambda m: fitted("guaranteed").model.control_risk(0.3),
    "costs": lambda m: m.with_rule(CostProblem(accept_ood=1.0, reject_id=0.3)),
    "bounded": lambda m: m.with_rule(BoundedProblem(tpr_min=0.8, fpr_max=0.05)),
}


def starts(explorer):
    return tuple(explorer[name]["positions"][explorer[name]["start"]] for name in ("alpha", "tpr_min", "scale"))


def test_the_sliders_start_at_the_rule(case):
    """Also after the problem was changed: not at the parameters of the first fit."""
    assert starts(case.summary()["explorer"]) == (0.3, 0.85, 1.0)
    moved = case.model.with_rule(ScodProblem(0.2, 0.8))
    for model in (moved, moved.at(alpha=0.37), case.model.at(alpha=0.37, tpr_min=0.8)):
        found = summarise(model, X=case.X, y=case.y, X_ood=case.X_ood)
        assert found["explorer"]["own"]
        assert starts(found["explorer"]) == (model.rule_.problem.alpha, 0.8, 1.0)
        assert (found["alpha"], found["required_tpr"]) == (model.rule_.problem.alpha, 0.8)
        assert 'id="elsewhere"' not in render(found)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_rules_that_are_not_on_the_sliders_say_so(case, name):
    model = ELSEWHERE[name](case.model)
    found = summarise(model, X=case.X, y=case.y, X_ood=case.X_ood)
    assert not found["explorer"]["own"]
    assert starts(found["explorer"]) == (model.rule_.problem.alpha, found["required_tpr"], 1.0)
    html = render(found)
    assert 'id="elsewhere">The sliders do not start at this model' in html
    for text in (html, render(found, ".md").replace("\\", "")):
        assert unescape(text).count(str(model.rule_)) >= 1


def test_a_model_of_which_not_all_rows_are_kept_is_not_on_the_sliders(case):
    """As on a cluster: the threshold comes from more rows than the page has."""
    model = copy.copy(case.model)
    model.rule_ = replace(model.rule_, rows=10 * model.rule_.rows)
    assert not summarise(model, X=case.X, y=case.y)["explorer"]["own"]


def test_a_guarantee_for_several_rules_is_not_on_the_sliders():
    """Its threshold is looser than that of the one rule which the sliders show."""
    case = fitted("guaranteed")
    for rules in (1, 4):
        model = case.model.at(tpr_min=0.7, rules=rules)
        assert summarise(model, X=case.X, y=case.y)["explorer"]["own"] == (rules == 1)


def test_empty_tables_are_refused(case):
    with pytest.raises(InvalidInputError, match="X_ood must hold at least one row"):
        summarise(case.model, X=case.X, y=case.y, X_ood=case.X_ood[:0])


@pytest.mark.parametrize("name", ["empirical", "mix", "fresh mix"])
def test_the_class_mix_of_fit_and_of_fresh_traffic(name):
    """What is served, what the fresh traffic has, and for which of them rates are."""
    case = fitted(name)
    summary = case.summary(class_names=["cat", "dog", "owl"], explorer=False)
    mix, own = summary["class_mix"], case.model.calibration_.mix
    assert [row["class"] for row in mix["at_fit"]["classes"]] == ["cat", "dog", "owl"]
    assert mix["at_fit"]["changed"] == own.changed == (name != "empirical")
    assert (mix["here"] is not None) == (name == "fresh mix")
    text = " ".join(summary["class_mix"]["at_fit"]["sentence"].split())
    html = render(summary)
    if name == "empirical":
        assert mix["of"] == "labeled"
        assert text.startswith("The traffic was not found to have another class mix than the labeled rows (p = ")
        return
    assert mix["of"] == "traffic"
    assert text.startswith("Adapted to the traffic's class mix: cat 3")
    assert 'id="mix-chart-t"' in html
    assert "Class mix" in render(summary, ".md")
    # Rates by hand: a class counts by its share in the traffic.
    decisions = case.model.decide(case.X)
    share = own.traffic if mix["here"] is None else [row["traffic"] for row in mix["here"]["classes"]]
    tpr = sum(q * decisions.accept[case.y == k].mean() for k, q in enumerate(share))
    assert summary["rates"]["tpr"]["estimate"] == pytest.approx(tpr)
    # The promise is judged in the mix that it speaks of, whatever the fresh traffic is.
    promised = sum(q * decisions.accept[case.y == k].mean() for k, q in enumerate(own.traffic))
    assert summary["promise"]["measured"]["estimate"] == pytest.approx(promised)
    if name == "fresh mix":
        assert mix["here"]["sentence"].startswith(
            "This traffic has another class mix than the one that the model serves: "
        )
        assert mix["here"]["classes"][2]["traffic"] == pytest.approx(0.8, abs=0.1)
    labeled = case.summary(class_mix="labeled", explorer=False)
    assert labeled["rates"]["tpr"]["estimate"] == pytest.approx(decisions.accept.mean())
    assert labeled["class_mix"]["of"] == "labeled"


def test_many_classes_show_those_that_differ_most():
    rows = [{"class": f"c{k}", "labeled": 0.02, "traffic": 0.02, "low": 0.01, "high": 0.03} for k in range(50)]
    rows[7] |= {"traffic": 0.3, "low": 0.25, "high": 0.35}
    fit = {"estimated": True, "changed": True, "level": 0.95, "classes": rows, "sentence": "", "p_value": 0.0}
    mix = {"of": "traffic", "at_fit": fit, "here": None}
    assert mix_classes(mix)[0] == 7
    assert len(mix_classes(mix)) == 12
    chart = mix_chart(mix)
    assert [tick["label"] for tick in chart["y"]["ticks"]][:2] == ["c7", "c0"]
    assert mix_chart({**mix, "at_fit": {**fit, "estimated": False, "changed": False}}) is None


def test_review_is_about_the_traffic(case):
    chosen = queue(case.model, case.X_unlabeled, 30)
    summary = case.summary(review=chosen, explorer=False)
    assert [row["row"] for row in summary["review"]["queue"]] == chosen.index.tolist()
    assert summary["review"]["assessment"] is None
    assert all(row["verdict"] is None for row in summary["review"]["queue"])
    with pytest.raises(InvalidInputError, match="verdicts must come with review"):
        case.summary(verdicts=[0])
    with pytest.raises(InvalidInputError, match="review must come with X_unlabeled"):
        summarise(case.model, X=case.X, y=case.y, review=chosen)
    with pytest.raises(InvalidInputError, match="must be a Queue"):
        case.summary(review=30)
