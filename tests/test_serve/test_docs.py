"""The shell lines of docs/serving.md work as they stand, on the columns of the demo's model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.naive_bayes import GaussianNB

from poscod import POSCOD
from poscod.cli import main
from poscod.datasets import load_open_digits
from poscod.model import Schema
from poscod.ratio import CorrectedSigmoid

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
LINES = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)[0].splitlines()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl, which is not here")
def test_curl_lines(serve, tmp_path):
    digits = load_open_digits()
    names = [f"pixel_{i:02d}" for i in range(64)]
    model = POSCOD(
        GaussianNB(var_smoothing=1e-2), CorrectedSigmoid("paper", l2=1e-2, ood_prior=0.35), tpr_min=0.9, random_state=0
    )
    model.fit(digits.labeled, digits.y_labeled, X_unlabeled=digits.traffic)
    model.with_schema(Schema(tuple(names), n_features=64)).save(tmp_path / "model.poscod")
    (tmp_path / "demo-output").mkdir()
    table = [names, *digits.log[:100].astype(str).tolist()]
    (tmp_path / "demo-output" / "new.csv").write_text("\n".join(",".join(line) for line in table) + "\n")
    running = serve(tmp_path / "model.poscod")
    assert sum(line.startswith("curl ") for line in LINES) >= 8
    answers = []
    for line in LINES:
        command = line.replace("localhost:8000", f"127.0.0.1:{running.port}").replace("curl ", "curl --fail-with-body ")
        command = command.replace("python ", f"'{sys.executable}' ")
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        answers.append(done.stdout)
    assert json.loads(answers[2])["ids"] == ["a", "b"]
    assert json.loads(answers[0])["inputs"]["features"] == names
    assert "poscod_decisions_total" in answers[-1]


def test_every_metric_and_option_that_is_named_exists(server, eventually, capsys):
    text = PAGE.read_text(encoding="utf-8")
    server.decide([[0.0, 0.0]])
    eventually(lambda: "poscod_window_decisions" in server.client.get("/metrics").text)
    shown = server.client.get("/metrics").text
    names = set(re.findall(r"poscod_[a-z_]+", text))
    assert len(names) > 15
    assert not {name for name in names if name not in shown} - {
        "poscod_decisions",
        "poscod_decisions_latest",
        "poscod_verdicts",
        "poscod_verdicts_withdrawn_total",
    }  # tables of the log and an index, and what is counted where there is one
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    words = capsys.readouterr().out
    options = set(re.findall(r"--[a-z][a-z-]+", text)) - {"--minutes"}  # of the benchmark
    assert len(options) > 10
    assert not {option for option in options if option not in words}
