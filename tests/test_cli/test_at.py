"""Other costs later, in the shell: the models are those of Python, and what they promise is said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from poscod import POSCOD
from test_cli._world import columns_of


def rule(model):
    return model.alpha, model.tpr_min, model.beta_, model.threshold_


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
    assert rule(new) == rule(python(old))
    assert new.columns_ == old.columns_
    document = json.loads(run.out)
    assert document["old"]["threshold"] == old.threshold_
    assert document["new"]["threshold"] == new.threshold_ != old.threshold_ or move == "loss"
    assert document["new"]["beta"] == new.beta_
    assert shell("predict", tmp_path / "m.poscod", f"{tables}/ood.csv", "-o", tmp_path / "d.csv").code == 0


def test_words_for_people(shell, model_file, tmp_path):
    lines = shell("at", model_file, "--alpha", "0.2", "-o", tmp_path / "m.poscod").out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["Old rule", "Promise", "New rule", "Promise", "Saved"]
    assert lines[0].endswith("(alpha = 0.5, tpr_min = 0.9).")
    assert lines[2].endswith("(alpha = 0.2, tpr_min = 0.9).")
    lines = shell("at", model_file, "--budget", "0.4", "-o", tmp_path / "m.poscod").out.splitlines()
    assert lines[2].endswith("(alpha = 0.5).")
    assert lines[3] == "Budget: 40.0 % of the traffic seen at fit is rejected."
    model, columns = POSCOD.load(tmp_path / "m.poscod"), columns_of("unlabelled")
    accepted = model.decide(np.column_stack([columns["größe"], columns["width"]])).accept
    assert accepted.mean() == pytest.approx(0.6, abs=0.01)
    assert lines[4].startswith(
        "No share of ID inputs is promised: the threshold was chosen for something else. It accepts "
    )
    lines = shell("at", model_file, "--max-error", "0.15", "-o", tmp_path / "m.poscod").out.splitlines()
    assert lines[3] == "Promise: at most 15.0 % of accepted ID inputs are answered wrongly, with probability 95.0 %."


def test_a_loss_in_a_file_and_its_bound(shell, model_file, tmp_path):
    (tmp_path / "loss.csv").write_text("truth,dog,cat\ndog,0,4\ncat,1,0\n")
    words = ["--loss", tmp_path / "loss.csv", "--max-error", "1.5", "-o", tmp_path / "m.poscod"]
    run = shell("at", model_file, *words)
    assert run.code == 0, run.err
    assert "Promise: a mean loss of at most 1.5 on accepted ID inputs, with probability 95.0 %." in run.out
    assert POSCOD.load(tmp_path / "m.poscod").problem_.loss == ((0.0, 1.0), (4.0, 0.0))


def test_a_bound_needs_a_share_as_calibration(shell, tables, tmp_path):
    words = ["--target", "animal", "--features", "größe", "--ratio", "linear", "--calibration", "3"]
    files = [f"{tables}/labelled.csv", f"{tables}/unlabelled.csv"]
    assert shell("fit", *files, *words, "-o", tmp_path / "folds.poscod").code == 0
    run = shell("at", tmp_path / "folds.poscod", "--max-error", "0.2", "-o", tmp_path / "m.poscod")
    assert run.code == 2
    assert "was fitted with folds: fit with a share, e.g. --calibration 0.5" in run.err
    assert not (tmp_path / "m.poscod").exists()
