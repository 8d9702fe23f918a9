"""References: exact counts of what the model decides, and nothing else."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.metrics import Interval
from poscod.model import estimate_share
from poscod.monitor import Monitor, Reference
from poscod.monitor._sequential import watches
from poscod.problem import BoundedProblem, CostProblem, ScodProblem
from poscod.theory import GaussianWorld


def test_counts_are_those_of_the_model(model, world, reference):
    clean = model.decide(world.sample_ood(400, random_state=2))
    assert reference.n_id == len(model.calibration_.codes)
    assert reference.fpr().estimate == pytest.approx(clean.accept.mean())
    assert reference.tpr().estimate == pytest.approx(0.9, abs=1 / reference.n_id)
    for side, n in ((reference.id_counts, reference.n_id), (reference.mixed_counts, 400)):
        for name, counts in side.items():
            assert counts.sum() == n
            accepted = counts[..., ~reference.layouts[name].rejected].sum()
            assert accepted == side["label"][..., :-1].sum()
    assert reference.loss_counts.sum() == reference.id_counts["label"][:, :-1].sum()


def test_id_rows_are_counted_by_true_class_and_answer(model, reference):
    rows = model.calibration_
    decisions = model.rule_.decide(rows.known("zero_one"))
    for name, layout in reference.layouts.items():
        assert reference.id_counts[name].sum(axis=1).tolist() == np.bincount(rows.codes).tolist()
        if name == "label":
            continue
        for k in range(2):
            for a in range(2):
                here = (rows.codes == k) & (decisions.label == a)
                counts = reference.id_counts[name][k, layout.answer == a]
                assert counts.sum() == here.sum()
                rejected = layout.rejected[layout.answer == a]
                assert counts[rejected].sum() == (here & ~decisions.accept).sum()


def test_json_keeps_everything(reference):
    again = Reference.from_dict(json.loads(json.dumps(reference.to_dict(), allow_nan=False)))
    assert again.to_dict() == reference.to_dict()
    assert again.fingerprint == reference.fingerprint


def test_the_model_file_is_enough(model, tmp_path):
    model.save(tmp_path / "m.poscod")
    first, second = (Reference.from_model(m, created="2026-01-01") for m in (model, POSCOD.load(tmp_path / "m.poscod")))
    assert first.fingerprint == second.fingerprint
    assert first.source == "fit"


def test_fresh_traffic_finds_the_rates(model, world):
    traffic, _ = world.sample_mixture(4000, 0.3, random_state=11)
    reference = Reference.from_model(model, unlabeled=traffic, pi=0.3)
    truth = model.decide(world.sample_ood(20000, random_state=12)).accept.mean()
    fpr = reference.fpr(0.999)
    assert fpr.low <= truth <= fpr.high
    assert 0.2 < Reference.from_model(model, unlabeled=traffic).prior.estimate < 0.4


def test_without_traffic_nothing_is_known_of_ood(world):
    X, y = world.sample_id(1000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = POSCOD(tpr_min=0.9, random_state=0).fit(X, y)
    reference = Reference.from_model(model)
    assert reference.source == "none"
    assert np.isnan(reference.fpr().estimate)
    assert Reference.from_dict(json.loads(json.dumps(reference.to_dict(), allow_nan=False))).source == "none"
    clean = Reference.from_model(model, ood=world.sample_ood(300, random_state=2))
    assert clean.source == "ood"
    assert 0.0 <= clean.fpr().estimate <= 1.0


def test_a_loss_matrix_and_texts_as_labels():
    world = GaussianWorld([[0.0], [2.0], [4.0]], [[9.0]])
    X, y = world.sample_id(900, random_state=0)
    cost = [[0, 1, 4], [1, 0, 1], [9, 1, 0]]
    model = POSCOD(loss=cost, tpr_min=0.8, random_state=0).fit(
        X, np.array(["a", "b", "c"])[y], X_unlabeled=world.sample_mixture(600, 0.3, random_state=1)[0]
    )
    reference = Reference.from_model(model)
    assert reference.loss_counts.shape == (3, 4)  # losses 0, 1, 4 and 9
    assert reference.loss_counts[1, 2:].sum() == 0  # nothing costs more than 1 in the second class
    again = Reference.from_dict(json.loads(json.dumps(reference.to_dict())))
    assert again.fingerprint == reference.fingerprint
    assert (again.loss_matrix == np.array(cost)).all()


def test_wrong_input_is_refused(model, world):
    rows = world.sample_ood(10, random_state=0)
    with pytest.raises(InvalidInputError, match="both"):
        Reference.from_model(model, ood=rows, unlabeled=rows)
    with pytest.raises(InvalidInputError, match="created"):
        Reference.from_model(model, created="yesterday")
    with pytest.raises(InvalidInputError, match="fitted"):
        Reference.from_model(POSCOD())
    X, y = world.sample_id(600, random_state=0)
    weighted = POSCOD(class_mix="labeled", random_state=0).fit(
        X, y, X_unlabeled=world.sample_mixture(300, 0.3, random_state=1)[0], sample_weight=np.full(len(y), 2.0)
    )
    with pytest.raises(InvalidInputError, match="sample_weight"):
        Reference.from_model(weighted)


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": 9},
        {"id_counts": {}},
        {"cells": {}},
        {"prior": [1]},
        {"loss": None},
        {"rule": {}},
        {"rule": {"threshold": 1.0}},
    ],
)
def test_damaged_references_are_refused(reference, damage):
    with pytest.raises(InvalidInputError, match="reference"):
        Reference.from_dict({**reference.to_dict(), **damage})


def test_references_of_earlier_formats_are_refused_with_what_to_do(reference):
    first = {**reference.to_dict(), "schema": 2}
    with pytest.raises(InvalidInputError, match=r"schema 3, got 2: make it again .* begin a new state"):
        Reference.from_dict(first)


RULES = {
    "as fitted": (lambda m: m, 0.9),
    "g alone": (lambda m: m.at(alpha=1.0), 0.9),
    "r alone": (lambda m: m.at(alpha=0.0), 0.9),
    "accept all ID": (lambda m: m.at(tpr_min=1.0), 1.0),
    "another problem": (lambda m: m.with_rule(ScodProblem(0.2, 0.8)), 0.8),
    "bounded": (lambda m: m.with_rule(BoundedProblem(tpr_min=0.8, fpr_max=0.3)), 0.8),
    "budget": (lambda m: m.budget(0.3), None),
    "risk control": (lambda m: m.control_risk(0.2), None),
    "costs": (lambda m: m.with_rule(CostProblem(accept_ood=1.0, reject_id=0.3)), None),
}


@pytest.mark.parametrize("name", RULES)
def test_a_reference_says_what_the_rule_says(model, world, name):
    """What was asked and what is promised are the rule's own words; a TPR is watched against a promise only where there is one."""
    change, promised = RULES[name]
    other = change(model)
    made = Reference.from_model(other, created="2026-01-01")
    again = Reference.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False)))
    assert made.rule == again.rule == other.rule_.to_dict()
    assert made.tpr_promised == again.tpr_promised == other.rule_.tpr_promised == promised
    assert Monitor(made).summary()["reference"]["rule"]["sentence"] == str(other.rule_)
    rows = other.calibration_
    decisions = other.rule_.decide(rows.known(other.rule_.problem.loss))
    assert made.id_counts["label"][:, -1].sum() == np.sum(~decisions.accept)
    (payoff,) = watches(made, 0.1, 0.05)["PSC005"].payoffs["labeled"]
    # A rejected ID row wins what is promised: the smaller of the promise and what calibration could have missed.
    low = made.tpr(1.0 - 0.05 / 9.0).low
    assert payoff[1] == pytest.approx(low if promised is None else min(promised, low))


@pytest.mark.parametrize(
    "change", [v[0] for k, v in RULES.items() if k != "as fitted"], ids=[k for k in RULES if k != "as fitted"]
)
def test_other_rules_of_the_same_model_have_references_of_their_own(model, world, reference, change):
    """Whatever the rule accepts, the likelihood ratio finds the OOD share: 0.2 of 2,000 rows."""
    other = change(model)
    made = Reference.from_model(other, ood=world.sample_ood(400, random_state=2), created="2026-01-01")
    made = Reference.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False)))
    assert made.fingerprint != reference.fingerprint
    monitor = Monitor(made, level=0.999).update(
        other.decide(world.sample_mixture(2000, 0.2, random_state=4)[0]), at=0.0
    )
    (window,) = monitor.windows()
    assert window.pi.low <= 0.2 <= window.pi.high
    assert window.pi.high - window.pi.low < 0.2
    json.dumps(monitor.summary(), allow_nan=False)


def test_the_share_has_an_interval_of_every_level(model, world):
    traffic = world.sample_mixture(800, 0.3, random_state=4)[0]
    reference = Reference.from_model(model, unlabeled=traffic, created="2026-01-01")
    known = model.decide(traffic).log_ratio
    own = estimate_share(model.calibration_.log_ratio, known, 0.99)
    at = reference.prior_at(0.99)
    assert (at.low, at.high) == (pytest.approx(own.low, abs=0.03), pytest.approx(own.high, abs=0.03))
    assert at.low < reference.prior.low
    assert reference.prior_at(0.5)[:3] == reference.prior[:3]  # more than sampling error is in it
    assert reference.prior_at(0.95) == reference.prior
    decisions = model.decide(world.sample_mixture(20000, 0.3, random_state=5)[0])
    widths = []
    for prior in (reference.prior, Interval(*reference.prior[:3], 0.999)):
        monitor = Monitor(replace(reference, prior=prior), level=0.999).update(decisions, at="2026-02-01")
        widths.append(monitor.windows()[0].pi.high - monitor.windows()[0].pi.low)
    assert widths[0] > 1.2 * widths[1]
