# SPDX-License-Identifier: BSD-3-Clause
"""From a summary to text: HTML, Markdown, JSON, for a report and for what a monitor saw.

Convention: templates are files; every value passes Jinja's escaping; a page is one file without any address in it, and its
content security policy allows exactly the style sheet and the script that stand in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any

from poscod._files import replacing
from poscod._optional import require
from poscod._validation import check_choice
from poscod.exceptions import InvalidInputError
from poscod.report import _monitor as monitor
from poscod.report._charts import pictures
from poscod.report._format import FILTERS
from poscod.report._summary import SCHEMA
from poscod.report._words import words

FORMATS: dict[str, str] = {".html": "a page", ".md": "Markdown", ".json": "the summary itself"}
"""Extension -> form of a report."""
_VIEWS = {"report": (words, pictures), "monitor": (monitor.words, monitor.pictures)}
"""Kind of summary -> what its templates say, and what they draw."""


def render(summary: dict[str, Any], form: str = ".html", *, title: str | None = None) -> str:
    """Return a summary as text.

    Parameters
    ----------
    summary : dict
        Of `summarise` or of `poscod.monitor.Monitor.summary`, possibly read back from JSON.
    form : {".html", ".md", ".json"}, default=".html"
        One self-contained page, Markdown with the same sentences and tables but no pictures, or the summary itself.
    title : str, default=None
        Title of the page; None takes that of the summary.

    Returns
    -------
    text : str
    """
    check_choice(form, "form", FORMATS)
    kind = _kind(summary)
    if form == ".json":
        return json.dumps(summary, indent=1, allow_nan=False) + "\n"
    say, draw = _VIEWS[kind]
    values = {"s": summary, **say(summary)} | ({} if title is None else {"title": title})
    if form == ".html":
        style, script = _file("page.css"), _file("explorer.js") if summary.get("explorer") else ""
        values |= {"style": style, "script": script, "hash": _hash, **draw(summary)}
    text: str = _template(f"{kind}{form}.j2").render(values)
    return text


def write(summary: dict[str, Any], path: str | os.PathLike[str], *, title: str | None = None) -> None:
    """Write a report; either the whole file appears or nothing changes.

    Parameters
    ----------
    summary : dict
        Of `summarise` or of `poscod.monitor.Monitor.summary`.
    path : str or path-like
        Ends in .html, .md or .json.
    title : str, default=None
        Title of the page; None takes that of the summary.
    """
    target = Path(path)
    form = target.suffix.lower()
    check_choice(form, "The extension of a report", FORMATS)
    text = render(summary, form, title=title)
    with replacing(target) as file:
        file.write(text.encode("utf-8"))


def _kind(summary: Any) -> str:
    """Return which kind of summary something is, or refuse it."""
    if isinstance(summary, dict) and summary.get("schema") == SCHEMA and "rates" in summary:
        return "report"
    if isinstance(summary, dict) and set(summary) - {"strangers"} == monitor.KEYS:
        return "monitor"
    raise InvalidInputError(
        "summary must be a dictionary made by poscod.report.summarise or Monitor.summary of this version, got something else: make it "
        "again."
    )


def _template(name: str) -> Any:
    jinja2 = require("jinja2", extra="report", feature="A report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=".html" in name,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(FILTERS)
    return environment.get_template(name)


def _file(name: str) -> str:
    return (files("poscod.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
