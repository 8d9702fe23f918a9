# SPDX-License-Identifier: BSD-3-Clause
"""From a summary to a page: HTML, Markdown, JSON.

Convention: templates are files; every value passes Jinja's escaping; the page is one file without any address in it, and its
content security policy allows exactly the style sheet and the script that stand in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from poscod._optional import require
from poscod.exceptions import InvalidInputError
from poscod.report import _charts as charts
from poscod.report import _words as words
from poscod.report._format import FILTERS
from poscod.report._summary import SCHEMA


def render_html(summary: dict[str, Any]) -> str:
    """Return the report as one self-contained HTML page.

    Parameters
    ----------
    summary : dict
        Of `summarise`, possibly read back from JSON.

    Returns
    -------
    html : str
    """
    check_summary(summary)
    style, script = _file("report.css"), _file("explorer.js")
    return _template("report.html.j2", html=True).render(
        s=summary,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        plane=charts.plane_chart(summary),
        curves=[
            ("risk", "SCOD risk", charts.curve_chart(summary, "risk", "SCOD risk")),
            (
                "selective_risk",
                "Mean loss of accepted answers",
                charts.curve_chart(summary, "selective_risk", "mean loss"),
            ),
            ("fpr", "Unknown inputs that slip through", charts.curve_chart(summary, "fpr", "FPR")),
        ],
        histograms=[
            ("risk", charts.histogram_chart(summary, "risk", "conditional risk r")),
            ("log_ratio", charts.histogram_chart(summary, "log_ratio", "log g")),
        ],
        reliability=charts.reliability_chart(summary),
        rejections={name: charts.rejection_rows(group) for name, group in summary["rejections"].items()},
        explorer=_explorer(summary),
        **_words(summary),
    )


def render_markdown(summary: dict[str, Any]) -> str:
    """Return the report as Markdown: the same sentences and tables, no pictures.

    Parameters
    ----------
    summary : dict
        Of `summarise`, possibly read back from JSON.

    Returns
    -------
    markdown : str
    """
    check_summary(summary)
    text: str = _template("report.md.j2", html=False).render(s=summary, **_words(summary))
    return text


def render_json(summary: dict[str, Any]) -> str:
    """Return the summary itself as JSON.

    Parameters
    ----------
    summary : dict
        Of `summarise`.

    Returns
    -------
    json : str
    """
    check_summary(summary)
    return json.dumps(summary, indent=1, allow_nan=False) + "\n"


def check_summary(summary: Any) -> None:
    """Refuse what is not a summary."""
    if not isinstance(summary, dict) or set(summary) != set(SCHEMA) or summary["schema"] != 1:
        raise InvalidInputError(
            "summary must be a dictionary made by poscod.report.summarise of this version, got something else: "
            "summarise the model again."
        )


def _explorer(summary: dict[str, Any]) -> dict[str, Any] | None:
    """Return what the script reads: the explorer's data and the window of the plane."""
    if summary["explorer"] is None:
        return None
    guaranteed = summary["model"]["threshold_kind"] == "guaranteed"
    plane = {key: summary["plane"][key] for key in ("right", "window")}
    return {**summary["explorer"], **plane, "guaranteed": guaranteed}


def _words(summary: dict[str, Any]) -> dict[str, Any]:
    return {
        "headline": words.headline(summary),
        "promise": words.promise_sentence(summary["promise"], summary),
        "ratio_words": words.ratio_words(summary["ratio"]),
        "risk_words": words.risk_words(summary["reliability"], summary["level"]),
        "rule_names": words.RULE_NAMES,
        "group_names": words.GROUP_NAMES,
        "reason_names": words.REASON_NAMES,
    }


def _template(name: str, *, html: bool) -> Any:
    jinja2 = require("jinja2", extra="report", feature="A report")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(FILTERS)
    if not html:
        environment.filters["cell"] = markdown_text
    return environment.get_template(name)


def markdown_text(value: Any, *, whole: bool = False) -> str:
    r"""Return a value as literal text inside Markdown: nothing in it starts a table cell, a link or HTML.

    Examples
    --------
    >>> markdown_text("<b>|a|</b>")
    '&lt;b&gt;\\|a\\|&lt;/b&gt;'
    """
    text = str(value) if whole else FILTERS["shortened"](value)
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{c}" if c in "\\`*_[]|#!~$" else c for c in text)


def _file(name: str) -> str:
    return (files("poscod.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
