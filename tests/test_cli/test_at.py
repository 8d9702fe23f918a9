"""Other costs later, in the shell: the models are those of Python, and what they promise is said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poscod import POSCOD
from poscod.model import choices_document
from poscod.problem import Budget, ScodProblem
from test_cli._world import columns_of

MOVES = {
    "alpha": (["--alpha", "0.2"], lambda m: m.at(alpha=0.2)),
    "tpr_min": (["--tpr-min", "0.8", "--alpha", "0.3"], lambda m: m.at(alpha=0.3, tpr_min=0.8)),
    "loss": (["--loss", "absolute"], lambda m: m.at(loss="absolute")),
    "budget": (["--budget", "0.4"], lambda m: m.budget(0.4)),
    "budget at other costs": (["--budget", "0.4", "--alpha", "0.2"], lambda m: m.at(alpha=0.2).budget(0.4)),
    "error": (["--max-error", "0.08", "--delta", "0.2"], lambda m: m.control_risk(0.08, delta=0.2)),
}


@pytest.mark.parametrize("move", MOVES)
def test_the_model_is_that_of_python(shell, model_file, tables, tmp_path, move):
    words, python = MOVES[move]
    run = shell("at", model_file, *words, "-o", tmp_path / "m.poscod", "--json")
    assert run.code == 0, run.err
    old, new = POSCOD.load(model_file), POSCOD.load(tmp_path / "m.poscod")
    assert new.rule_ == python(old).rule_
    assert new.schema_ == old.schema_
    document = json.loads(run.out)
    assert document["old_rule"] == old.rule_.to_dict()
    assert document["rule"] == new.rule_.to_dict() != old.rule_.to_dict()
    assert shell("predict", tmp_path / "m.poscod", f"{tables}/ood.csv", "-o", tmp_path / "d.csv").code == 0


def test_words_for_people(shell, model_file, tmp_path):
    """The rules say themselves what they are; the shell adds which is old and which is new."""
    for words in (["--alpha", "0.2"], ["--budget", "0.4"], ["--max-error", "0.15"]):
        lines = shell("at", model_file, *words, "-o", tmp_path / "m.poscod").out.splitlines()
        old, new = POSCOD.load(model_file), POSCOD.load(tmp_path / "m.poscod")
        assert lines[:2] == [f"Old rule: {old.rule_}", f"New rule: {new.rule_}"]
        assert lines[-1] == f"Saved: {tmp_path / 'm.poscod'}"
        told = {line["name"]: line["text"] for line in choices_document(new)["lines"]}
        assert all(any(name in line and text in line for line in lines) for name, text in told.items())
    assert "At most 15 % of the accepted ID inputs are answered wrongly, with probability 95 %" in lines[1]


def test_a_budget_is_kept_on_the_traffic_of_the_fit(shell, model_file, tmp_path):
    assert shell("at", model_file, "--budget", "0.4", "-o", tmp_path / "m.poscod").code == 0
    columns = columns_of("unlabeled")
    accepted = POSCOD.load(tmp_path / "m.poscod").decide(np.column_stack([columns["größe"], columns["width"]])).accept
    assert accepted.mean() == pytest.approx(0.6, abs=0.01)


def test_several_rules_are_promised_at_once(shell, model_file, tmp_path):
    """More compared rules, a stricter threshold for each."""
    risks = []
    for k in (1, 4):
        words = ["--max-error", "0.15", "--rules", k, "-o", tmp_path / "m.poscod"]
        run = shell("at", model_file, *words)
        assert run.code == 0, run.err
        risks.append(POSCOD.load(tmp_path / "m.poscod").rule_)
    assert "for 4 compared rules at once" in run.out
    assert (risks[0].promise.rules, risks[1].promise.rules) == (1, 4)
    assert risks[1].threshold < risks[0].threshold


def test_a_loss_in_a_file_and_its_bound(shell, model_file, tmp_path):
    (tmp_path / "loss.csv").write_text("truth,dog,cat\ndog,0,4\ncat,1,0\n")
    words = ["--loss", tmp_path / "loss.csv", "--max-error", "1.5", "-o", tmp_path / "m.poscod"]
    run = shell("at", model_file, *words)
    assert run.code == 0, run.err
    assert "The mean loss of accepted ID inputs is at most 1.5, with probability 95 %" in run.out
    assert POSCOD.load(tmp_path / "m.poscod").rule_.problem.loss == ((0.0, 1.0), (4.0, 0.0))


def test_a_bound_needs_rows_that_nothing_was_fitted_on(shell, tables, tmp_path):
    words = ["--target", "animal", "--features", "größe", "--ratio", "paper"]
    files = [f"{tables}/labeled.csv", f"{tables}/unlabeled.csv"]
    assert shell("fit", *files, *words, "-o", tmp_path / "folds.poscod").code == 0
    run = shell("at", tmp_path / "folds.poscod", "--max-error", "0.2", "-o", tmp_path / "m.poscod")
    assert run.code == 2
    assert (
        "needs unweighted rows that nothing was fitted on: fit with --threshold='guaranteed' or with a share as --calibration"
        in run.err
    )
    assert not (tmp_path / "m.poscod").exists()


def test_a_budget_and_a_bound_at_fit(shell, tables, tmp_path):
    """They are those of `poscod at`, chosen before the rows were looked at; a bound keeps rows for itself."""
    files = [f"{tables}/labeled.csv", f"{tables}/unlabeled.csv"]
    words = ["--target", "animal", "--features", "größe", "--features", "width", "--ratio", "paper", "--alpha", "0.3"]
    run = shell("fit", *files, *words, "--budget", "0.4", "-o", tmp_path / "b.poscod", "--json")
    assert run.code == 0, run.err
    document, model = json.loads(run.out), POSCOD.load(tmp_path / "b.poscod")
    assert model.rule_.problem == Budget(0.4, ScodProblem(0.3, 0.95))
    assert document["estimates"]["accepted"]["estimate"] == pytest.approx(0.6, abs=0.01)
    assert document["rule"]["promise"] is None
    run = shell("fit", *files, *words, "--max-error", "0.15", "--delta", "0.2", "-o", tmp_path / "e.poscod")
    assert run.code == 0, run.err
    promise = POSCOD.load(tmp_path / "e.poscod").rule_.promise
    assert (promise.quantity, promise.bound, promise.confidence) == ("selective_risk", 0.15, 0.8)
    assert not promise.chosen_later
    run = shell("fit", *files, *words, "--max-error", "0.0001", "-o", tmp_path / "no.poscod")
    assert run.code == 2
    assert "raise --max-error or --delta" in run.err
    assert not (tmp_path / "no.poscod").exists()
    run = shell("fit", *files, *words, "--max-error", "0.1", "--budget", "0.2", "-o", tmp_path / "no.poscod")
    assert run.code == 2
    run = shell("fit", *files, *words, "--budget", "1.5", "-o", tmp_path / "no.poscod")
    assert run.code == 2
    assert "--budget must be" in run.err
