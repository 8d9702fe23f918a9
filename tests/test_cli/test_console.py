"""Words for people, one JSON document for programs, progress for a terminal."""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stderr

import numpy as np
import pytest

from poscod._json import plain
from poscod.cli import _console
from poscod.cli._console import Console


class Terminal:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """A stream to redirect standard error to, inside the test: pytest puts its own back before each phase."""
    monkeypatch.setattr(_console, "_PATIENCE", 0.05)
    return Terminal()


def test_json_is_the_only_thing_on_standard_output(capsys):
    console = Console(json=True)
    console.answer({"tpr": np.float32(0.5), "bad": np.inf, "label": np.array(["a"])}, "another word")
    out, err = capsys.readouterr()
    assert json.loads(out) == {"tpr": 0.5, "bad": None, "label": ["a"]}
    assert err == ""


def test_quiet_says_nothing_but_still_gives_the_document(capsys):
    Console(quiet=True).answer({"a": 1}, "a word")
    assert capsys.readouterr() == ("", "")
    Console(quiet=True, json=True).answer({"a": 1})
    assert capsys.readouterr().out == '{"a": 1}\n'


def test_a_table_on_standard_output_sends_words_to_standard_error(capsys):
    Console(taken=True).answer({}, "a word")
    assert capsys.readouterr() == ("", "a word\n")


def test_named_tuples_and_unknown_objects():
    from poscod.metrics import Interval

    document = plain({"i": Interval(0.5, 0.25, float("nan"), 0.95), "when": np.datetime64("2024-01-01")})
    assert document["i"] == {"estimate": 0.5, "low": 0.25, "high": None, "level": 0.95}
    assert document["when"] == "2024-01-01"


def test_progress_is_shown_on_a_terminal_after_a_while(terminal):
    with redirect_stderr(terminal), Console().progress("deciding", 1000) as advance:
        for _ in range(5):
            time.sleep(0.06)
            advance(200)
    assert "deciding" in terminal.text
    assert "rows" in terminal.text


def test_short_work_shows_nothing(terminal, monkeypatch):
    monkeypatch.setattr(_console, "_PATIENCE", 60.0)
    with redirect_stderr(terminal), Console().progress("deciding", 10) as advance:
        advance(10)
    with redirect_stderr(terminal), Console().working("fitting"):
        pass
    assert terminal.text.strip() == ""


def test_uncountable_work_shows_its_seconds(terminal):
    with redirect_stderr(terminal), Console().working("fitting"):
        time.sleep(0.2)
    assert "fitting: 0 s" in terminal.text


@pytest.mark.parametrize("quiet", [False, True])
def test_no_progress_without_a_terminal_or_with_quiet(terminal, monkeypatch, quiet):
    if not quiet:
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    with redirect_stderr(terminal), Console(quiet=quiet).progress("deciding", 10) as advance:
        time.sleep(0.1)
        advance(10)
    with redirect_stderr(terminal), Console(quiet=quiet).working("fitting"):
        time.sleep(0.1)
    assert terminal.text == ""


def test_no_bar_is_no_reason_not_to_work(terminal, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with redirect_stderr(terminal), Console().progress("deciding", 10) as advance:
        advance(10)
    assert terminal.text == ""
