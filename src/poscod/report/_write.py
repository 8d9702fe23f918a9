# SPDX-License-Identifier: BSD-3-Clause
"""A report in a file; the extension says in which form."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from poscod._files import replacing
from poscod._validation import check_choice
from poscod.report._render import render_html, render_json, render_markdown

FORMATS: dict[str, Callable[[dict[str, Any]], str]] = {
    ".html": render_html,
    ".md": render_markdown,
    ".json": render_json,
}
"""Extension -> how a summary becomes text."""


def write(summary: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a report; either the whole file appears or nothing changes.

    Parameters
    ----------
    summary : dict
        Of `summarise`.
    path : str or path-like
        Ends in .html, .md or .json.
    """
    target = Path(path)
    text = check_choice(target.suffix.lower(), "The extension of a report", FORMATS)(summary)
    with replacing(target) as file:
        file.write(text.encode("utf-8"))
