"""What unknown inputs are, in a report: the groups are those of Python and of the shell, with rows of the user's table, on the page and in Markdown."""

from __future__ import annotations

import re

import numpy as np
import pytest

from poscod import POSCOD
from poscod._json import plain
from poscod.exceptions import InvalidInputError
from poscod.report import render
from poscod.report._strangers import strangers_section, strangers_words
from poscod.review import stranger_groups, strangers
from test_report._cases import WORLD


def test_groups_are_those_of_python(case, summary):
    groups = stranger_groups(case.model, case.X_unlabeled, level=summary["level"])
    found = strangers(case.model, case.X_unlabeled)
    section = summary["strangers"]
    assert section["list"]["rows"] == len(found)
    assert section["list"]["known_at_most"] == found.false_discoveries()
    assert [group["rows"] for group in section["groups"]] == [len(group) for group in groups]
    assert len(groups) >= 1
    for told, group in zip(section["groups"], groups, strict=True):
        assert told["size"]["low"] == pytest.approx(group.size.low)
        assert [example["row"] for example in told["examples"]] == group.index[: len(told["examples"])].tolist()


def test_the_page_and_the_text_show_them(summary):
    page, text = render(summary, ".html"), render(summary, ".md")
    n = len(summary["strangers"]["groups"])
    assert len(re.findall(r"<h3>Group \d+: about [\d,]+ inputs like these</h3>", page)) == n
    assert '<a href="#strangers">' in page
    assert len(re.findall(r"^- Group \d+\. About", text, re.MULTILINE)) == n
    without = {**summary, "strangers": None}
    assert "What they are" not in render(without, ".html") + render(without, ".md")
    old = {key: value for key, value in summary.items() if key != "strangers"}  # of an earlier version
    assert render(old, ".html") == render(without, ".html")


def test_fresh_rows_serve_where_the_model_keeps_none_that_can(case):
    model = POSCOD(tpr_min=0.9, calibration=0.5, random_state=0).fit(case.X, case.y, X_unlabeled=case.X_unlabeled)
    fresh = WORLD.sample_id(200, random_state=77)[0]
    how = (model, case.X_unlabeled, ["a", "b", "c"], {}, (3, 3), 0.95)
    told = strangers_section(*how, X_id=fresh)
    with pytest.raises(InvalidInputError, match="X_id"):
        strangers(model, case.X_unlabeled)
    assert told["list"]["rows"] == len(strangers(model, case.X_unlabeled, X_id=fresh))
    for rows, words in ((None, "must not hold rows that the ratio was fitted on"), (case.X, "hold no rows of the fit")):
        (sentence,) = strangers_words(strangers_section(*how, X_id=rows))
        assert sentence.startswith("Nothing is said of groups: the ")
        assert words in sentence


def test_how_often_they_come(case, summary):
    """With times a group has a rate, a first and a last one, on the page and in Markdown; without them it has none."""
    n = len(case.X_unlabeled)
    times = np.datetime64("2026-03-02", "s") + np.arange(n) * np.timedelta64(14 * 86400 // n, "s")
    section = strangers_section(case.model, case.X_unlabeled, ["a", "b", "c"], {}, (3, 3), 0.95, times=times)
    group = section["groups"][0]
    weeks = (times[-1] - times[0]) / np.timedelta64(1, "W")
    assert group["period"] == "week"
    assert group["rate"].estimate == pytest.approx(group["size"].estimate / weeks)
    shown = {**summary, "strangers": plain(section)}
    often = f"{group['rate'].estimate:,.0f} a week"
    page, text = render(shown, ".html"), render(shown, ".md")
    assert f"inputs like these, {often}</h3>" in page
    for form in (page, text):
        assert f"that are alike, {often}: a new class?" in form
        assert f"They came from {group['first']} to {group['last']}." in form
        assert group["first"].startswith("2026-03-0")
    assert "a week" not in render(summary, ".html")


def test_none_is_said_where_none_are(summary):
    few = {"list": {"level": 0.1, "rows": 0, "known_at_most": 0, "least": 9}, "groups": []}
    for form in (".html", ".md"):
        text = " ".join(render({**summary, "strangers": few}, form).split())
        assert "No list of unknown inputs can be given" in text
        assert "Too few inputs are likely unknown to form groups." in text
