# SPDX-License-Identifier: BSD-3-Clause
"""Write requirements.lock: every package that `make test` installs, with its version and the hash of its file.

``make lock`` runs it. pip resolves what pyproject.toml asks for at the versions of constraints.txt, without installing anything, and says which
files it would take. The file holds for the Python and the platform that it was made with; its first lines name them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "requirements.lock"
# What builds the package itself, beside what it and its tests need.
BUILD = ["pip", "hatchling", "editables"]


def tag() -> str:
    """Name the Python and the platform."""
    return f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}-{sysconfig.get_platform()}"


def main(extras: str) -> None:
    """Resolve and write."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    wanted = [f".[{extras}]", "--group", "dev", *BUILD, "--constraint", "constraints.txt"]
    run = subprocess.run([*command, *wanted], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    lines = []
    for item in json.loads(run.stdout)["install"]:
        name, info = item["metadata"]["name"], item["download_info"]
        if "dir_info" in info:
            continue  # the package itself
        lines.append(
            f"{name.lower()}=={item['metadata']['version']} --hash=sha256:{info['archive_info']['hashes']['sha256']}\n"
        )
    head = f"# {tag()}\n# Made by `make lock` from pyproject.toml and constraints.txt; not edited by hand.\n"
    TARGET.write_text(head + "".join(sorted(lines)))


if __name__ == "__main__":
    if sys.argv[1] != "here":
        main(sys.argv[1])
    elif TARGET.read_text().startswith(f"# {tag()}\n"):  # the Makefile asks whether the file is for this machine
        sys.stdout.write(f"{TARGET.name}\n")
