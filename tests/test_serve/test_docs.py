"""The curl lines of docs/serving.md work as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from poscod.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
LINES = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("curl ")]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl, which is not here")
def test_curl_lines(server):
    assert len(LINES) >= 8
    for line in LINES:
        words = shlex.split(line.replace("localhost:8000", f"127.0.0.1:{server.port}"))
        done = subprocess.run([*words, "--fail-with-body"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (line, done.stdout)
    assert "poscod_decisions_total" in done.stdout


def test_every_metric_and_option_that_is_named_exists(server, eventually, capsys):
    text = PAGE.read_text(encoding="utf-8")
    server.decide([[0.0, 0.0]])
    eventually(lambda: "poscod_window_decisions" in server.client.get("/metrics").text)
    shown = server.client.get("/metrics").text
    names = set(re.findall(r"poscod_[a-z_]+", text))
    assert len(names) > 15
    assert not {name for name in names if name not in shown} - {"poscod_decisions"}  # the table of the log
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    words = capsys.readouterr().out
    options = set(re.findall(r"--[a-z][a-z-]+", text)) - {"--minutes"}  # of the benchmark
    assert len(options) > 10
    assert not {option for option in options if option not in words}
