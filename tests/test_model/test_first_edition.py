"""Files of protocol 1, written by the first edition: they load, decide the same, and promise what they promised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from poscod import POSCOD, Activations
from poscod.problem import Budget, CostProblem, ScodProblem

FILES = Path(__file__).parent / "first_edition"
FACTS = json.loads((FILES / "facts.json").read_text())
# What each file promises: quantity, bound and confidence, or nothing.
PROMISES = {
    "default": ("tpr", 0.9, None),
    "guaranteed": ("tpr", 0.9, 0.9),
    "at": ("tpr", 0.7, None),
    "budget": None,
    "risk_bound": None,  # the first edition did not write down what it had promised
    "cost": None,
    "bounded": ("tpr", 0.7, None),
    "coverage": None,
    "no_traffic": ("tpr", 0.95, None),
    "network": ("tpr", 0.8, None),
    "frame": ("tpr", 0.95, None),
    "shell_table": ("tpr", 0.9, None),
    "shell_logits": ("tpr", 0.95, None),
    "dask": ("tpr", 0.9, None),
}


def rows_of(name, decisions):
    rows, logits = decisions["rows"], decisions["network_logits"]
    if name == "network":
        return Activations(rows, logits)
    if name == "shell_logits":
        return Activations(rows[:, :2], logits, table=True)
    if name == "frame":
        return pd.DataFrame({"a": rows[:, 0], "b": rows[:, 1], "side": np.where(rows[:, 2] > 0, "left", "right")})
    return rows


@pytest.fixture(scope="module")
def decisions():
    with np.load(FILES / "decisions.npz") as file:
        return dict(file)


def test_every_file_is_known():
    assert set(PROMISES) == set(FACTS) == {path.stem for path in FILES.glob("*.poscod")}


@pytest.mark.parametrize("name", FACTS)
def test_decisions_are_those_of_the_first_edition(name, decisions, tmp_path):
    model = POSCOD.load(FILES / f"{name}.poscod")
    model.save(tmp_path / "again.poscod")
    for loaded in (model, POSCOD.load(tmp_path / "again.poscod")):
        found = loaded.decide(rows_of(name, decisions))
        for column in ("accept", "label", "reason"):
            np.testing.assert_array_equal(
                np.asarray(getattr(found, column)).astype(str), decisions[f"{name}__{column}"].astype(str)
            )
        for column in ("risk", "log_ratio", "score"):
            # Another machine may round the last bits of a product otherwise.
            np.testing.assert_allclose(getattr(found, column), decisions[f"{name}__{column}"], rtol=1e-10, atol=1e-12)
        assert loaded.threshold_ == FACTS[name]["threshold"]
        assert loaded.beta_ == FACTS[name]["beta"]
        assert loaded.ood_prior_ == FACTS[name]["ood_prior"]


@pytest.mark.parametrize("name", FACTS)
def test_promises_are_those_of_the_first_edition(name):
    rule = POSCOD.load(FILES / f"{name}.poscod").rule_
    promise = rule.promise
    assert (None if promise is None else (promise.quantity, promise.bound, promise.confidence)) == PROMISES[name]
    assert rule.rows == {"network": 80, "frame": 240, "shell_logits": 120, "dask": 1000}.get(name, 60)


def test_thresholds_that_were_moved_are_budgets_of_what_they_reject():
    budget, bound = (POSCOD.load(FILES / f"{name}.poscod") for name in ("budget", "risk_bound"))
    assert budget.rule_.problem == Budget(0.25, ScodProblem(0.3, 0.9))
    assert bound.rule_.problem.ranking == ScodProblem(0.3, 0.9)
    assert 0.0 < bound.rule_.problem.share < 1.0


def test_the_asked_problem_survives_clone_and_other_costs():
    cost = POSCOD.load(FILES / "cost.poscod")
    assert clone(cost).problem == cost.rule_.problem == CostProblem(0.2, 1.5, pi=0.2)
    at = POSCOD.load(FILES / "at.poscod")
    assert at.at(alpha=0.1).rule_.problem == ScodProblem(0.1, 0.7, "absolute")
    assert clone(at).tpr_min == 0.7


def test_columns_of_the_shell_become_a_schema():
    table, logits, frame, network = (
        POSCOD.load(FILES / f"{name}.poscod").schema_ for name in ("shell_table", "shell_logits", "frame", "network")
    )
    assert (table.kind, table.features, table.target, table.id) == ("table", ("a", "b", "c"), "kind", "name")
    assert (logits.kind, logits.logits, logits.classes) == ("network", ("logit_cat", "logit_dog"), ("cat", "dog"))
    assert (frame.kind, frame.features) == ("frame", ("a", "b", "side"))
    assert (network.kind, network.n_features, network.n_logits) == ("network", 3, 2)
