# SPDX-License-Identifier: BSD-3-Clause
"""For people: what a fitted rule does, in one page.

`summarise` measures and returns a plain dictionary; `render` turns it, or what a monitor saw, into text, and `write` into a file whose
extension says in which form. The summary never formats and the page never computes a statistic that Python has not defined: its
what-if explorer repeats `POSCOD.at` and `POSCOD.evaluate` on embedded arrays.
"""

from poscod.plot import RULE_NAMES
from poscod.report._render import FORMATS, render, write
from poscod.report._review import assessed_words, assessment_rows, decision_words
from poscod.report._sections import mix_section, promise_section
from poscod.report._strangers import strangers_section, strangers_words
from poscod.report._summary import summarise
from poscod.report._words import headline, mix_words, promise_sentence

__all__ = ["FORMATS", "headline", "render", "summarise", "write"]
