"""What `make test` installs: pinned with hashes in one file, and under licences that are known and allow it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[1]
LINES = (ROOT / "requirements.lock").read_text().splitlines()
LOCKED = dict(
    re.fullmatch(r"([a-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}", line).groups()  # type: ignore[union-attr]
    for line in LINES
    if not line.startswith("#")
)
# Words of which a licence must hold one; other licences are looked at by a person and listed below.
FREE = (
    "MIT",
    "BSD",
    "Apache",
    "PSF",
    "Python Software Foundation",
    "ISC",
    "HPND",
    "CNRI",
    "Unlicense",
    "0BSD",
    "MPL",
    "Mozilla",
)
# Only called or linked, never copied, and not part of what poscod needs to run.
LOOKED_AT = {"psycopg": "LGPL", "psycopg-binary": "LGPL", "skops": "OSI Approved"}  # the last: MIT, says its LICENSE


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_line_is_a_version_and_a_hash():
    assert len(LOCKED) > 100
    assert LINES[0].startswith("# cpython-3.")


def test_the_lock_follows_the_constraints():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if found := re.match(r"([a-zA-Z0-9._-]+)==([^;\s]+)", line):
            locked = {canonical(name): version for name, version in LOCKED.items()}.get(canonical(found[1]), "")
            assert locked.partition("+")[0] == found[2], f"{found[1]}: run `make lock`"


def test_everything_that_is_asked_for_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *chain(*project["project"]["optional-dependencies"].values())]
    asked += [item for group in project["dependency-groups"].values() for item in group if isinstance(item, str)]
    asked += project["build-system"]["requires"]
    names = {canonical(re.match(r"[A-Za-z0-9._-]+", item)[0]) for item in asked if "python_version < " not in item}  # type: ignore[index]
    assert names - {"poscod"} <= {canonical(name) for name in LOCKED}, "run `make lock`"


def licence(name: str) -> str:
    about = metadata.metadata(name)
    classes = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License ::")]
    return about.get("License-Expression") or ", ".join(classes) or (about.get("License") or "").partition("\n")[0]


def test_licences_are_known_and_allow_it():
    installed = {canonical(found.metadata["Name"]) for found in metadata.distributions()}
    strange = {}
    for name in LOCKED:
        if canonical(name) not in installed:
            continue
        words = licence(name)
        if not any(word in words for word in FREE) and LOOKED_AT.get(canonical(name), "?") not in words:
            strange[name] = words or "none named"
    assert not strange


def test_make_checks_hashes_where_the_lock_is_for_this_machine():
    here = subprocess.run([sys.executable, ROOT / "tools/lock.py", "here"], capture_output=True, text=True, check=True)
    command = ["make", "--dry-run", f"PYTHON={sys.executable}", "VENV=none", "none/.dev"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.count("--require-hashes") == (2 if here.stdout else 0)
    assert ("hashes are not checked" in run.stdout) == (not here.stdout)
    if LINES[0] == f"# cpython-{sys.version_info.major}.{sys.version_info.minor}-{sysconfig.get_platform()}":
        assert here.stdout == "requirements.lock\n"


@pytest.mark.slow
@pytest.mark.skipif(
    "POSCOD_FRESH" not in os.environ,
    reason="installs everything for minutes, as make test does itself; set POSCOD_FRESH",
)
def test_a_fresh_environment_takes_nothing_but_what_is_locked(tmp_path):
    """Some minutes: every file is fetched and compared."""
    if (
        sysconfig.get_platform() not in LINES[0]
        or f"{sys.version_info.major}.{sys.version_info.minor}-" not in LINES[0]
    ):
        pytest.skip("the lock is for another Python or platform")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r"]
    subprocess.run([*pip, ROOT / "requirements.lock"], check=True)
