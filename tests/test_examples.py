"""Every example runs, without a warning, and leaves the picture that the docs show."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))
SHOWN = ROOT / "docs" / "images" / "examples"
# The quickstart is the demo of the shell and has tests of its own.
SCRIPTS = [path for path in EXAMPLES if path.stem != "quickstart"]
LONG = {"class_mix", "dask_scaling", "serving", "text_intents"}


def test_examples_were_found():
    assert len(SCRIPTS) >= 6


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow if path.stem in LONG else ()) for path in SCRIPTS],
    ids=lambda path: path.stem,
)
def test_example_runs_and_draws(path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode and done.stderr.startswith("needs "):
        assert not (ROOT.parent / "shared").is_dir(), done.stderr
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3, "an example says what it found"
    (picture,) = tmp_path.glob(f"{path.stem}.*")
    size = ElementTree.parse(picture).getroot().get("viewBox").split()
    assert float(size[2]) > 300
    assert picture.stat().st_size < 200_000


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_has_a_title_a_reason_and_a_picture(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    title, _, rest = docstring.partition("\n")
    assert title.endswith(".")
    assert rest.strip(), "below the title: what data, what is shown"
    assert path.stem == "quickstart" or (SHOWN / f"{path.stem}.svg").is_file(), "run `make examples`"
