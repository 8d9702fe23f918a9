"""What the pictures of the examples share: colours, and SVG files that are the same in every run.

SPDX-License-Identifier: BSD-3-Clause
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

BLUE, RED, GREY, GREEN = "#2e86ab", "#d1495b", "#8d99a6", "#3a7d44"
plt.rcParams.update(
    {
        "svg.hashsalt": "poscod",  # names inside the file do not depend on the run
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.use": True,
    }
)


def figure(columns: int = 1, width: float = 7.0, height: float = 3.4) -> tuple[Any, Any]:
    """Return a figure and its axes."""
    return plt.subplots(1, columns, figsize=(width, height))


def save(fig: Any, folder: Path, script: str) -> Path:
    """Write a figure as SVG under the name of the script that drew it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(script).stem}.svg"
    fig.savefig(path, metadata={"Date": None})
    plt.close(fig)
    print(f"Picture: {path}")
    return path


def folder_from_command_line() -> Path:
    """Return the folder named after the script on the command line, or demo-output."""
    return Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output")
