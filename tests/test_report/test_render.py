"""Texts made of a summary: HTML, Markdown, JSON, and files that appear whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poscod import POSCOD, Activations
from poscod.exceptions import InvalidInputError
from poscod.model import NoUnlabeledDataWarning
from poscod.ratio import CorrectedSigmoid
from poscod.report import FORMATS, render, summarise, write
from poscod.report._charts import Axis, frame, series
from poscod.report._format import fixed, interval, markdown_text, percent
from poscod.report._words import headline, ratio_words, risk_words
from test_report._cases import fitted

TEMPLATES = {"report.html.j2", "charts.html.j2", "report.md.j2", "page.html.j2", "page.css", "explorer.js"}


def test_templates_are_part_of_the_package():
    assert {entry.name for entry in (files("poscod.report") / "templates").iterdir()} >= TEMPLATES


def test_page_needs_nothing_from_outside(summary):
    html = render(summary)
    assert not re.search(r"https?:/|url\(|@import|<link|<iframe|<img|<object|src=", html)
    assert set(re.findall(r'href="(.)', html)) == {"#"}
    assert html.startswith("<!doctype html>")
    assert " style=" not in html
    assert not re.search(r"\son\w+=", html)


def test_policy_allows_exactly_what_is_there(summary):
    html = render(summary)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html).group(1)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for kind, body in (
        ("style-src", re.search(r"<style>(.*?)</style>", html, re.S).group(1)),
        ("script-src", re.search(r"<script>(.*?)</script>", html, re.S).group(1)),
    ):
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy.replace("&#39;", "'")


def test_same_numbers_in_all_forms(summary):
    html, markdown = render(summary), render(summary, ".md")
    assert json.loads(render(summary, ".json")) == summary
    for rule in summary["rules"]:
        for text in (percent(rule["tpr"]["estimate"]), interval(rule["fpr"])):
            assert text in html
            assert text in markdown
    for sentence in headline(summary):
        assert sentence in markdown


def test_a_summary_that_was_json_renders_the_same(summary):
    again = json.loads(render(summary, ".json"))
    assert render(again) == render(summary)
    assert render(again, ".md") == render(summary, ".md")


@pytest.mark.parametrize("missing", ["all", "ood", "unlabeled", "explorer"])
def test_pages_with_fewer_tables(case, missing):
    found = summarise(
        case.model,
        X=case.X,
        y=case.y,
        X_ood=None if missing in ("all", "ood") else case.X_ood,
        X_unlabeled=None if missing in ("all", "unlabeled") else case.X_unlabeled,
        explorer=missing != "explorer",
    )
    html, markdown = render(found), render(found, ".md")
    assert ("explorer-data" in html) == (missing != "explorer")
    assert ("slip through" in markdown) == (missing != "all")
    assert "None" not in re.sub(r"<script.*?</script>", "", html, flags=re.S)
    assert "None" not in markdown
    assert "nan" not in markdown.lower().replace("unanswered", "")


@pytest.mark.parametrize("name", ["guaranteed", "matrix", "ties", "steep"])
def test_pages_of_other_models(name):
    found = fitted(name).summary(explorer=False)
    text = render(found, ".md")
    assert ("with probability 90 % over" in text) == (name == "guaranteed")
    assert ("costs" in headline(found)[1]) == (name == "matrix")
    assert "matrix" in render(found) or name != "matrix"


def test_headline_is_plain(summary):
    sentences = headline(summary)
    assert 5 <= len(sentences) <= 6
    tpr = summary["rates"]["tpr"]["estimate"]
    assert f"about {fixed(1000 * tpr, 0)} are answered" in sentences[0]
    assert any("same share of known inputs" in s for s in sentences)
    unknown = dict(summary["rates"]["selective_risk"], estimate=None)
    none = dict(summary, rates=dict(summary["rates"], selective_risk=unknown))
    assert "No known input was answered here" in headline(none)[1]


def test_words_of_checks(summary):
    assert ratio_words(None)[0].startswith("No unlabeled rows")
    found = dict(summary["ratio"], diagnosis=dict(summary["ratio"]["diagnosis"], findings=["few_ood_rows"]))
    assert "fewer than 30" in ratio_words(found)[-1]
    off = dict(summary["reliability"], mean_risk=0.1, mean_loss=0.3, p_value=1e-9)
    assert "too low" in risk_words(off, 0.95)[0]
    assert "too high" in risk_words(dict(off, mean_risk=0.5), 0.95)[0]
    assert "agrees" in risk_words(dict(off, p_value=0.4), 0.95)[0]


def test_files_appear_whole_or_not_at_all(tmp_path, summary):
    for extension in FORMATS:
        target = tmp_path / f"report{extension.upper()}"
        write(summary, target)
        assert target.read_text(encoding="utf-8") == render(summary, extension)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(
        InvalidInputError, match=r"extension of a report must be one of '\.html', '\.json', '\.md', got '\.pdf'"
    ):
        write(summary, tmp_path / "report.pdf")
    with pytest.raises(InvalidInputError, match="must be a dictionary made by"):
        write({"schema": 1}, tmp_path / "other.html")
    with pytest.raises(OSError, match="No such file"):
        write(summary, tmp_path / "nowhere" / "report.html")
    assert sorted(tmp_path.iterdir()) == before


@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_fixed_is_half_up_and_never_minus_zero(value, digits):
    text = fixed(value, digits).replace("\u2212", "-")
    assert abs(float(text) - value) <= 0.5 * 10.0**-digits * (1 + 1e-9)
    assert not re.fullmatch(r"-0(\.0*)?", text)


@given(st.text(max_size=60))
def test_markdown_text_starts_nothing(text):
    out = markdown_text(text)
    assert "\n" not in out
    assert not re.search(r"<|>|(?<!\\)(?:\\\\)*[|`*_\[\]]", out)


@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e4))
def test_ticks_lie_on_the_axis(low, width):
    axis = Axis(low, low + width, 0.0, 100.0)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 12
    assert all(0.0 <= tick["at"] <= 100.0 for tick in ticks)
    assert len({tick["label"] for tick in ticks}) == len(ticks)


def test_paths_break_where_values_are_missing():
    chart = frame((0.0, 1.0), (0.0, 1.0), ("x", "y"))
    at = [{"x": x, "estimate": y, "low": y, "high": 1.0} for x, y in ((0.0, 0.1), (0.2, 0.3), (0.5, None), (1.0, 0.7))]
    series(chart, "poscod", at, "a")
    assert [line["class"] for line in chart["lines"]] == ["poscod", "poscod whisker", "poscod"]
    assert [line["d"].count("L") for line in chart["lines"]] == [1, 0, 0]
    assert len(chart["bands"]) == 2
    assert frame((1.0, 1.0), (2.0, 2.0), ("x", "y"))["x"]["ticks"]


def network(n, seed, shift=0.0, classes=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes)) + 2.0 * np.eye(classes)[y]
    return Activations(rng.normal(size=(n, 6)) + shift, logits), y


def odd(case, name):
    """Models and rows at the edges of what can be asked."""
    rows = {"X": case.X, "y": case.y, "X_ood": case.X_ood, "X_unlabeled": case.X_unlabeled}
    if name == "no ratio":
        with pytest.warns(NoUnlabeledDataWarning):
            return POSCOD(random_state=0).fit(case.X, case.y), rows
    if name == "one row":
        return case.model, {key: value[:1] for key, value in rows.items()}
    if name == "network":
        (X, y), (ood, _), (traffic, _) = network(600, 0), network(90, 1, 3.0), network(300, 2)
        mixed = Activations(np.r_[traffic.features, ood.features], np.r_[traffic.logits, ood.logits])
        model = POSCOD(ratio=CorrectedSigmoid("paper"), random_state=0).fit(X, y, X_unlabeled=mixed)
        X, y = network(200, 3)
        return model, {"X": X, "y": y, "X_ood": network(50, 4, 3.0)[0], "X_unlabeled": network(100, 5)[0]}
    if name == "folds":
        model = POSCOD(ratio=CorrectedSigmoid("paper"), calibration=3, random_state=0)
        return model.fit(case.X, case.y, case.X_unlabeled), rows
    other = {"alpha 0": {"alpha": 0.0}, "alpha 1": {"alpha": 1.0}, "all": {"tpr_min": 1.0}, "few": {"tpr_min": 0.002}}
    return case.model.at(**other[name]), rows


@pytest.mark.parametrize("name", ["no ratio", "one row", "network", "folds", "alpha 0", "alpha 1", "all", "few"])
def test_odd_models_and_rows(case, name):
    model, rows = odd(case, name)
    found = summarise(model, **rows)
    markdown, html = render(found, ".md"), render(found)
    for text in (markdown, re.sub(r"<(script|style).*?</\1>", "", html, flags=re.S)):
        assert not re.search(r"\b(None|nan|NaN|inf)\b", text)
    json.loads(render(found, ".json"))
    want = model.evaluate(rows["X"], rows["y"], rows["X_ood"])
    assert found["rates"]["risk"]["estimate"] == pytest.approx(want.risk.estimate)
    assert ("Accept where g &lt;=" in markdown) == (name == "alpha 1")
    if name in ("no ratio", "one row"):
        assert "cannot be said" in markdown


def test_points_at_infinity_are_drawn_at_the_edge(case):
    """Without a ratio log g is minus infinity everywhere, which JSON cannot hold."""
    model, rows = odd(case, "no ratio")
    found = summarise(model, **rows, explorer=False)["plane"]
    assert set(found["points"]["log_ratio"]) == {found["window"][0]}


def test_lines_that_break_off_are_explained():
    rare = fitted("rare")
    for ood, unlabeled in ((None, rare.X_unlabeled), (rare.X_ood, rare.X_unlabeled), (None, None)):
        found = summarise(rare.model, X=rare.X, y=rare.y, X_ood=ood, X_unlabeled=unlabeled, explorer=False)
        free = ood is None and unlabeled is not None
        assert ('id="breaks"' in render(found)) == free
        assert not free or None in found["curves"]["risk"]


def test_numbers_of_an_axis_do_not_lie_under_its_title():
    for top in (1.0, 0.2, 0.012, 0.0004):
        chart = frame((0.0, 1.0), (0.0, top), ("x", "y"))
        widest = max(len(tick["label"]) for tick in chart["y"]["ticks"])
        # The title takes 4 to 17 of the left margin, a digit at most 7.5 and the gap to the frame 7.
        assert chart["box"]["left"] - 7 - 7.5 * widest >= 17
        assert chart["axes"][0].start == chart["box"]["left"]


def test_nothing_but_our_own_style_and_script_is_written_unescaped():
    """What a browser test cannot show: no other place of any page could."""
    folders = [files("poscod.report") / "templates", files("poscod.serve") / "page"]
    texts = {path.name: path.read_text(encoding="utf-8") for folder in folders for path in folder.iterdir()}
    assert len(texts) >= 9
    unescaped = [found for text in texts.values() for found in re.findall(r"\w+ *\| *safe|autoescape", text)]
    assert sorted(unescaped) == ["script | safe", "style | safe"]
    for name, text in texts.items():
        assert not re.search(r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), name
