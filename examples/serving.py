"""The rule behind HTTP: ask, get a decision and its reason, change the costs.

Fits and saves a model, starts `poscod serve` on a free port of this machine, and asks it as any client would, with the standard library
alone: a few rows as JSON, then a grid of 2,500 inputs, whose answers are the picture. The service is asked once more at other costs; nothing is fitted
again. It ends with the script.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from _picture import figure, folder_from_command_line, save
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

COLOURS = {"accepted": "#cfe3ee", "ambiguous": "#8d99a6", "unfamiliar": "#e9b3bb", "both": "#5c6770"}


def ask(url: str, document: Any = None) -> Any:
    data = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def main(folder: Path) -> None:
    world = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])
    X, y = world.sample_id(2000, random_state=0)
    traffic, _ = world.sample_mixture(2000, pi=0.2, random_state=1)
    ratio = CorrectedSigmoid("paper", l2="cv")  # linear: decides many times faster than the default
    model = POSCOD(LogisticRegression(), ratio, alpha=0.1, tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=traffic)
    path = Path(tempfile.mkdtemp(), "model.poscod")
    model.save(path)

    command = [sys.executable, "-m", "poscod", "serve", str(path), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as service:
        try:
            assert service.stdout is not None
            lines = iter(service.stdout.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            answer = ask(f"{url}/v1/decide", {"rows": [[0.0, 0.0], [1.5, 0.2], [1.5, 4.5]]})["decisions"]
            for label, reason, risk in zip(answer["prediction"], answer["reason"], answer["risk"], strict=True):
                print(f"answer {label:>2}, {reason}, risk {risk:.2f}")
            axis_x, axis_y = np.linspace(-3, 6, 50), np.linspace(-3, 7, 50)
            grid = np.stack(np.meshgrid(axis_x, axis_y), axis=-1).reshape(-1, 2)
            rules = {
                "alpha = 0.1": ask(f"{url}/v1/decide", {"rows": grid.tolist()}),
                "alpha = 0.9": ask(f"{url}/v1/at", {"rows": grid.tolist(), "alpha": 0.9}),
            }
        finally:
            service.terminate()

    fig, axes = figure(columns=2, width=8.4, height=3.8)
    for ax, (name, found) in zip(axes, rules.items(), strict=True):
        reason = np.array(found["decisions"]["reason"])
        codes = np.array([list(COLOURS).index(key) for key in reason]).reshape(50, 50)
        ax.imshow(
            codes, cmap=ListedColormap(list(COLOURS.values())), vmin=0, vmax=3, origin="lower", extent=(-3, 6, -3, 7)
        )
        ax.plot(traffic[:150, 0], traffic[:150, 1], ".", color="black", ms=2)
        ax.set_title(name)
        print(f"{name}: " + ", ".join(f"{key} {np.mean(reason == key):.0%}" for key in COLOURS))
    patches = [Patch(color=colour, label=key) for key, colour in COLOURS.items()]
    axes[1].legend(handles=patches, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, __file__)


if __name__ == "__main__":
    main(folder_from_command_line())
