# SPDX-License-Identifier: BSD-3-Clause
"""For people: what a fitted rule does, in one page.

`summarise` measures and returns a plain dictionary, `render_html` and `render_markdown` turn it into text, and `write` chooses
by the file's extension. The summary never formats and the page never computes a statistic that Python has not defined: its
what-if explorer repeats `POSCOD.at` and `POSCOD.evaluate` on embedded arrays. `write_monitor` does the same for what a monitor saw.
"""

from poscod.report._monitor import MONITOR_FORMATS, render_monitor_html, render_monitor_markdown, write_monitor
from poscod.report._render import render_html, render_json, render_markdown
from poscod.report._summary import SCHEMA, summarise
from poscod.report._words import headline
from poscod.report._write import FORMATS, write

__all__ = [
    "FORMATS",
    "MONITOR_FORMATS",
    "SCHEMA",
    "headline",
    "render_html",
    "render_json",
    "render_markdown",
    "render_monitor_html",
    "render_monitor_markdown",
    "summarise",
    "write",
    "write_monitor",
]
