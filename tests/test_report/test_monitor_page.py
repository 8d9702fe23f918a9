"""The monitor's page: true to its numbers, whole in one file, read by people and machines, in a real browser."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from poscod import POSCOD
from poscod.exceptions import InvalidInputError
from poscod.monitor import Monitor, Reference
from poscod.report import FORMATS, render, write
from poscod.report._format import percent
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])


@pytest.fixture(scope="module")
def model():
    X, y = WORLD.sample_id(3000, random_state=0)
    return POSCOD(tpr_min=0.9, random_state=0).fit(X, y, X_unlabeled=WORLD.sample_mixture(800, 0.3, random_state=1)[0])


@pytest.fixture(scope="module")
def monitor(model):
    """Twenty calm days, four without traffic, ten bad ones."""
    out = Monitor(
        Reference.from_model(model, ood=WORLD.sample_ood(400, random_state=2), created="2026-01-01"), ood_limit=0.08
    )
    for day in (*range(20), *range(24, 34)):
        rows, _ = WORLD.sample_mixture(200, 0.02 if day < 24 else 0.4, random_state=day)
        out.update(model.decide(rows), at=np.datetime64("2026-02-01") + np.timedelta64(day, "D"))
    return out


@pytest.fixture(scope="module")
def summary(monitor):
    return monitor.summary()


def test_formats_say_the_same(summary, tmp_path):
    for suffix in FORMATS:
        write(summary, tmp_path / f"r{suffix}", title="Shop")
        text = (tmp_path / f"r{suffix}").read_text()
        assert "PSC001" in text
        assert "2026-02-25" in text
    assert json.loads((tmp_path / "r.json").read_text()) == summary
    with pytest.raises(InvalidInputError, match=r"\.html"):
        write(summary, tmp_path / "r.pdf")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "r.json", "r.md"]


def test_the_page_is_one_file_without_addresses(summary):
    html = render(summary)
    assert not re.search(r"https?://|src=|<script|<link", html)
    assert "default-src 'none'" in html


def test_hostile_titles_are_text(summary):
    html = render(summary, title="</title><script>alert(1)</script>")
    assert "<script>" not in html
    assert "<script>" not in render(summary, ".md", title="<script>alert(1)</script>")


def test_wrong_summaries_are_refused():
    with pytest.raises(InvalidInputError, match=r"Monitor\.summary"):
        render({"windows": []}, ".md")


def test_an_empty_monitor_has_a_page(monitor):
    empty = Monitor(monitor.reference).summary()
    html = render(empty)
    assert "No decisions have been counted yet." in html
    assert "<svg" not in html


def test_one_window_and_numbered_windows_have_a_page(monitor, model):
    rows, _ = WORLD.sample_mixture(30, 0.1, random_state=0)
    one = Monitor(monitor.reference, window=100).update(model.decide(rows))
    html = render(one.summary())
    assert html.count('<svg viewBox="0 0 960') == 3
    assert "NaN" not in re.sub(r">NaN<", "", html)


def test_the_page_in_a_browser(page, summary, tmp_path):
    write(summary, tmp_path / "monitor.html", title="Shop <b>")
    page.goto((tmp_path / "monitor.html").as_uri())
    assert page.title() == "Shop <b>"
    rows = page.locator("#windows tbody tr")
    assert rows.count() == len(summary["windows"])
    last = summary["windows"][-1]
    cells = rows.first.locator("th, td").all_inner_texts()
    assert cells[0] == last["start"][:10]
    assert cells[1:4] == [f"{last['n']:,}", percent(last["accepted"] / last["n"]), percent(last["pi"]["estimate"])]
    assert page.locator("#findings .finding").first.locator(".badge").inner_text() == "error"
    assert page.locator("#findings .finding").first.evaluate("e => e.id") == "psc001"
    # The line of the chart has one point per window and a gap where there was no traffic.
    drawn = page.locator("#share path.line.share").evaluate_all("es => es.map(e => e.getAttribute('d'))")
    assert [len(re.findall("[ML]", d)) for d in drawn[:2]] == [20, 10]
    assert page.locator("#share svg").first.evaluate("e => e.getAttribute('role')") == "img"
    assert "were OOD" in page.locator("#pi-d").text_content()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ink, paper = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
        light = [sum(int(v) for v in re.findall(r"\d+", colour)[:3]) for colour in (ink, paper)]
        assert (light[0] < light[1]) == (scheme == "light")
    for width in (1280, 380):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


HOSTILE = ["</script><img src=x onerror=alert(1)>", "<script>alert(2)</script>", "\"'><svg onload=alert(3)>"]


def test_hostile_class_names_stay_text_in_a_browser(page, tmp_path):
    """Another class mix names classes in the short version, in findings and in a table: letter by letter, and none of it runs."""
    X, y = WORLD.sample_id(1500, random_state=0)
    names = np.array(HOSTILE[:2])
    model = POSCOD(tpr_min=0.9, random_state=0).fit(
        X, names[y], X_unlabeled=WORLD.sample_mixture(800, 0.3, random_state=1)[0]
    )
    watch = Monitor(Reference.from_model(model, ood=WORLD.sample_ood(400, random_state=2), created="2026-01-01"))
    rows, classes = WORLD.sample_id(6000, random_state=7)
    watched = model.decide(rows[classes == 1])
    for day in range(12):
        part = slice(200 * day, 200 * (day + 1))
        decisions = type(watched)(**{name: values[part] for name, values in vars(watched).items()})
        users = [f"{HOSTILE[2]} {row}" for row in range(200)]  # names of groups are counted and never shown
        watch.update(decisions, at=np.datetime64("2026-02-01") + np.timedelta64(day, "D"), groups=users)
    write(watch.summary(), tmp_path / "page.html", title=HOSTILE[2])
    opened: list[str] = []
    page.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
    page.goto((tmp_path / "page.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.title() == HOSTILE[2]
    assert HOSTILE[1] in page.evaluate("document.body.textContent")
    assert page.evaluate("document.images.length + document.scripts.length") == 0
    assert users[7] not in page.evaluate("document.documentElement.outerHTML")
    assert not opened


def test_the_short_version_names_the_worst_also_when_it_is_over(summary):
    (alarm,) = [f for f in summary["findings"] if f["code"] == "PSC001"]
    assert f"<p>{alarm['sentence']}</p>" in render(summary).split('id="findings"')[0]
    over = {**summary, "findings": [{**alarm, "active": False, "severity": "info", "sentence": "It was bad."}]}
    assert "It was bad." in render(over).split('id="findings"')[0]
    calm = "No alarm, which is no proof: up to 12 % may be OOD."
    quiet = {**summary, "findings": [], "totals": {**summary["totals"], "no_alarm": calm}}
    assert summary["totals"]["no_alarm"] is None
    assert calm in render(quiet).split('id="findings"')[0]


def test_markdown_holds_whole_sentences_and_what_they_mean(summary):
    assert summary["findings"]
    text = render(summary, ".md")
    for finding in summary["findings"]:
        assert finding["sentence"] in text.replace("\\", "").replace("&gt;", ">")
        assert finding["meaning"] in text
    first = text.split("\n\n")[1]
    assert first.startswith(f"Over all {len(summary['windows'])} windows ")
    assert f"of {summary['totals']['kept']:,} inputs were OOD on average" in first


def test_the_class_mix_stands_against_the_served_one(summary):
    html, text = render(summary), render(summary, ".md")
    assert 'id="mix"' in html
    assert "## Class mix of the ID inputs" in text
    last = summary["windows"][-1]["mix"]
    for k, row in enumerate(summary["reference"]["mix"]["classes"]):
        line = next(
            line for line in text.splitlines() if line.startswith(f"| {row['class']} | {percent(row['traffic'])}")
        )
        assert percent(last["estimate"][k]) in line
