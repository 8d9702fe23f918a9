"""Blocks marked `console` in README and docs are run: `$` lines as commands, the rest as what they print.

A line `...` stands for any lines. Words must be the same; numbers may differ by a tenth (or 0.05), because machines do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"\d+(?:\.\d+)?")
BLOCK = re.compile(r"^```console\n(.*?)^```", re.M | re.S)
LONG = {"cli", "texts"}
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if BLOCK.search(page.read_text(encoding="utf-8"))
]


def sessions(text: str) -> list[tuple[str, list[str]]]:
    """Commands and the lines expected after each."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.startswith("> ") and not found[-1][1]:
                found[-1] = (found[-1][0] + "\n" + line[2:], [])
            else:
                found[-1][1].append(line.rstrip())
    return found


def alike(expected: str, got: str) -> bool:
    """Same words, similar numbers."""
    if NUMBER.sub("#", " ".join(expected.split())) != NUMBER.sub("#", " ".join(got.split())):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(got), strict=True)
    return all(abs(float(a) - float(b)) <= max(0.05, 0.1 * abs(float(a))) for a, b in pairs)


def matches(expected: list[str], got: list[str]) -> bool:
    if not expected:
        return not got
    if expected[0] == "...":
        return any(matches(expected[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and alike(expected[0], got[0]) and matches(expected[1:], got[1:])


@pytest.fixture
def shell(tmp_path):
    """Run a command in an empty folder, with `poscod` and `python` of this environment first on the path."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, call in {"poscod": f'"{sys.executable}" -m poscod', "python": f'"{sys.executable}"'}.items():
        (binaries / name).write_text(f'#!/bin/sh\nexec {call} "$@"\n')
        (binaries / name).chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples")
    added = {"PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100"}
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | added | one_thread
        return subprocess.run(
            ["bash", "-c", command], cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    return run


def test_pages_were_found():
    assert ROOT / "docs" / "start.md" in PAGES


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.stem in LONG else ()) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_console_blocks(page, shell):
    for command, expected in sessions(page.read_text(encoding="utf-8")):
        done = shell(command)
        printed = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
        assert done.returncode == 0 or any("error:" in line for line in expected), f"{command}\n{done.stderr}"
        assert not expected or matches(expected, printed), f"{command}\nprinted:\n" + "\n".join(printed)


def test_the_comparison_is_not_blind():
    assert alike("TPR 0.90 of 200", "TPR 0.91  of 201")
    assert not alike("TPR 0.90", "FPR 0.90")
    assert not alike("share 39.6 %", "share 12.0 %")
    assert matches(["a", "...", "c"], ["a", "b", "b", "c"])
    assert not matches(["a", "...", "d"], ["a", "b", "c"])
