"""The demo tells its story in ten lines, and README says the same."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from poscod import POSCOD
from poscod.cli import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What the demo prints and writes, run once."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["demo", "-o", str(folder)]) == 0
    return folder, out.getvalue()


def table_of(lines):
    """Numbers of the printed table by rule."""
    start = next(i for i, line in enumerate(lines) if line.startswith("rule "))
    return {re.split(r"\s{2,}", line)[0]: re.split(r"\s{2,}", line)[1:] for line in lines[start + 1 : start + 4]}


def test_the_story(demo):
    folder, text = demo
    lines = text.splitlines()
    story = lines[: lines.index("")]
    assert len(story) == 10  # and the last line says what to do next
    assert lines[-1].startswith(f"Open {folder}/report.html; then try: poscod predict ")
    assert max(map(len, lines)) < 400
    table = table_of(lines)
    assert list(table) == ["r alone", "SIRC(r, g)", "poscod"]
    risk = {name: float(values[3]) for name, values in table.items()}
    assert risk["poscod"] < risk["SIRC(r, g)"] < risk["r alone"]


def test_the_files(demo):
    folder, _ = demo
    assert {path.name for path in folder.iterdir()} >= {
        "report.html",
        "model.poscod",
        "labeled.csv",
        "new.csv",
    }
    page = (folder / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "A digit classifier that knows when not to answer" in page
    assert POSCOD.load(folder / "model.poscod").rule_.problem.alpha == 0.5


def test_the_commands_go_on_from_there(demo, shell, tmp_path):
    folder, text = demo
    words = text.splitlines()[-1].partition("try: poscod ")[2].split()
    assert shell(*words).code == 0
    fit = ["fit", folder / "labeled.csv", folder / "unlabeled.csv", "--target", "digit", "-o", tmp_path / "m.poscod"]
    assert shell(*fit, "--ratio", "paper").code == 0
    evaluate = ["evaluate", folder / "model.poscod", "--id", folder / "test.csv", "--ood", folder / "ood.csv"]
    run = shell(*evaluate, "--json")
    assert run.code == 0, run.err
    own = next(row for row in json.loads(run.out)["rules"] if row["rule"] == "poscod")
    printed = table_of(text.splitlines())["poscod"]
    assert f"{100 * own['tpr']['estimate']:.1f} %" == printed[0]
    assert f"{100 * own['fpr']['estimate']:.1f} %" == printed[1]


def test_readme_says_what_the_demo_prints(demo):
    _, text = demo
    printed = table_of(text.splitlines())
    readme = (ROOT / "README.md").read_text().replace("**", "")
    rows = {
        cells[0]: cells[1:] for cells in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", readme, re.M)
    }
    for rule, values in printed.items():
        assert list(rows[rule]) == values[:4], f"README's row of {rule}"


def test_a_file_in_the_way(shell, tmp_path):
    (tmp_path / "file").write_text("x")
    run = shell("demo", "-o", tmp_path / "file")
    assert run.code == 2
    assert run.err.count("\n") == 1
    assert "it is a file" in run.err


def test_the_example_runs(capsys):
    runpy.run_path(str(ROOT / "examples/quickstart.py"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Unknown digits in the log: about ")
    assert lines[-2].startswith("poscod ")
