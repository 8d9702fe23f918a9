"""The page as a person meets it, in real headless Chromium: the sliders, looks, reading aids, and hostile names."""

from __future__ import annotations

import itertools
import re
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from poscod import POSCOD
from poscod.exceptions import InfeasibleProblemError
from poscod.metrics import Interval
from poscod.model import read_sample, tally, unlabeled_evaluation_of
from poscod.model._evaluate import evaluation_of
from poscod.problem import ScodProblem
from poscod.ratio import CorrectedSigmoid
from poscod.report import render, summarise, write
from poscod.report._explorer import SCALES, _embed, rank_of
from poscod.report._format import MISSING, fixed, percent
from poscod.review import queue
from poscod.selector import tpr_threshold
from poscod.strategies import rejection_score
from test_report._cases import CASES, COSTS, WORLD, Case, fitted

SHARES = ("tpr", "fpr", "accepted", "free_fpr")

# Set the sliders as a hand would, wait until the page has drawn, read every number.
MOVE = """async (positions) => {
  const found = [];
  for (const [alpha, tpr, scale] of positions) {
    for (const [id, value] of [["alpha", alpha], ["tpr_min", tpr], ["scale", scale]]) {
      const slider = document.getElementById(id);
      slider.value = String(value);
      slider.dispatchEvent(new Event("input", {bubbles: true}));
    }
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    found.push(READ());
  }
  return found;
}"""
READ = """() => {
  const rows = {}, outcomes = {};
  for (const row of document.querySelectorAll("#what-if tbody tr")) {
    const now = row.querySelectorAll("td")[1];
    rows[row.dataset.row] = [now.dataset.value, now.textContent];
  }
  for (const row of document.querySelectorAll("#outcomes tbody tr")) {
    outcomes[row.dataset.group] = [...row.querySelectorAll("td")].map((cell) => cell.dataset.value);
  }
  const line = document.getElementById("line").dataset;
  return {rows, outcomes, threshold: line.threshold, infeasible: !document.getElementById("infeasible").hidden};
}"""


def opened(page, summary, folder, name="report.html"):
    """Write the report, open it from disk and wait for the explorer."""
    target = folder / name
    write(summary, target)
    page.goto(target.as_uri())
    if summary["explorer"] is not None:
        page.wait_for_selector("html[data-ready=true]")
    return target


def python_says(case: Case, alpha: float, tpr_min: float, scale: float, prior: Interval) -> dict | None:
    """What the estimator itself answers at another setting; None where the promise cannot be made.

    The OOD share of the traffic does not depend on the setting; its bootstrap is not repeated at each.
    """
    loss = None if scale == 1.0 else scale * case.model.rule_.problem.loss_matrix(3)
    try:
        other = case.model.at(alpha=alpha, tpr_min=tpr_min, loss=loss)
    except InfeasibleProblemError:
        return None
    # The class mix that rates are for does not depend on the setting either.
    mix = read_sample(case.model, case.X, case.y, case.X_ood, case.X_unlabeled).mix
    known, strange, traffic = (other.decide(rows) for rows in (case.X, case.X_ood, case.X_unlabeled))
    values = np.unique(other.rule_.problem.loss_matrix(3))
    losses = other.rule_.problem.losses(case.y, known.label, 3)
    counts = tally(known.accept, losses, values, case.y, 3)
    result = evaluation_of(counts, tally(strange.accept), alpha, 0.95, loss_values=values, mix=mix)
    if mix is None or mix is case.model.calibration_.mix:
        assert repr(result) == repr(other.evaluate(case.X, case.y, case.X_ood))  # NaN is not equal to itself
    free = unlabeled_evaluation_of(counts, tally(traffic.accept), prior, alpha, 0.95, loss_values=values, mix=mix)
    return {
        "tpr": result.tpr.estimate,
        "fpr": result.fpr.estimate,
        "selective_risk": result.selective_risk.estimate,
        "risk": result.risk.estimate,
        "accepted": free.accepted.estimate,
        "free_fpr": free.fpr.estimate,
        "free_risk": free.risk.estimate,
        "model": other,
    }


def share_of(case: Case) -> Interval:
    return case.model.evaluate_unlabeled(case.X, case.y, case.X_unlabeled).ood_prior


def compare(got: dict, want: dict | None, case: Case) -> None:
    if want is None:
        assert got["infeasible"]
        assert {text for _, text in got["rows"].values()} == {MISSING}
        return
    model = want.pop("model")
    assert float(got["threshold"]) == pytest.approx(model.threshold_, rel=1e-12)
    assert set(got["rows"]) == set(want)
    for key, value in want.items():
        number, text = got["rows"][key]
        assert float(number) == pytest.approx(value, rel=1e-12, nan_ok=True), key
        shown = None if np.isnan(value) else value
        assert text == (percent(shown) if key in SHARES else fixed(shown, 4)), key
    for name, rows in (("id", case.X), ("ood", case.X_ood)):
        reasons = model.decide(rows).reason
        names = ("accepted", "ambiguous", "unfamiliar", "both")
        assert got["outcomes"][name] == [str(int(np.sum(reasons == reason))) for reason in names]


def places(explorer, wanted):
    """Positions of the sliders nearest to (alpha, tpr_min, scale), and the values that stand there."""
    found = []
    for values in wanted:
        spots = [
            int(np.argmin(np.abs(np.array(explorer[name]["positions"]) - value)))
            for name, value in zip(("alpha", "tpr_min", "scale"), values, strict=True)
        ]
        found.append(
            (spots, [explorer[n]["positions"][i] for n, i in zip(("alpha", "tpr_min", "scale"), spots, strict=True)])
        )
    return found


@pytest.mark.parametrize("name", CASES)
def test_sliders_give_the_numbers_of_python(page, tmp_path, name):
    """Over a grid of both sliders with its ends, the page shows what `at` and `evaluate` return."""
    case = fitted(name)
    summary = case.summary()
    opened(page, summary, tmp_path)
    grid = list(itertools.product((0.0, 0.01, 0.3, 0.77, 1.0), (0.01, 0.5, 0.85, 0.996, 1.0), (1.0,)))
    grid += [(1 / 3, 0.9, 1.0), (0.3, 0.85, 1.0)]
    moves = places(summary["explorer"], grid)
    found = page.evaluate(MOVE.replace("READ", f"({READ})"), [m[0] for m in moves])
    prior = share_of(case)
    for (_, values), got in zip(moves, found, strict=True):
        compare(got, python_says(case, *values, prior), case)


@pytest.mark.parametrize("name", ["empirical", "matrix"])
def test_loss_scale_gives_the_numbers_of_a_scaled_loss(page, tmp_path, name):
    case = fitted(name)
    summary = case.summary()
    opened(page, summary, tmp_path)
    grid = [(alpha, tpr, scale) for scale in SCALES for alpha, tpr in ((0.2, 0.6), (0.9, 0.95))]
    moves = places(summary["explorer"], grid)
    found = page.evaluate(MOVE.replace("READ", f"({READ})"), [m[0] for m in moves])
    prior = share_of(case)
    for (_, values), got in zip(moves, found, strict=True):
        assert values[2] in SCALES
        compare(got, python_says(case, *values, prior), case)


def test_keyboard_moves_both_sliders(page, tmp_path, case, summary):
    opened(page, summary, tmp_path)
    explorer = summary["explorer"]
    first = page.evaluate(READ)
    compare(first, python_says(case, 0.3, 0.85, 1.0, share_of(case)), case)
    page.focus("#alpha")
    for key in ("ArrowRight", "ArrowRight", "PageUp", "ArrowLeft"):
        page.keyboard.press(key)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "tpr_min"
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    spots = [int(page.input_value(f"#{name}")) for name in ("alpha", "tpr_min")]
    assert spots[0] > explorer["alpha"]["start"] + 1
    assert spots[1] == explorer["tpr_min"]["start"] - 3
    values = [explorer["alpha"]["positions"][spots[0]], explorer["tpr_min"]["positions"][spots[1]]]
    compare(page.evaluate(READ), python_says(case, *values, 1.0, share_of(case)), case)
    assert page.get_attribute("#tpr_min", "aria-valuetext") == percent(values[1])
    # Not wait_for_function: its polling evaluates strings in the page, which the page's policy forbids.
    page.locator("#said", has_text="SCOD risk").wait_for(state="attached")
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    page.click("#reset")
    assert page.evaluate(READ) == first
    assert page.is_disabled("#reset")


def test_start_column_stays(page, tmp_path, summary):
    opened(page, summary, tmp_path)
    page.evaluate(MOVE.replace("READ", f"({READ})"), [[90, 20, 3]])
    start = page.evaluate(
        "[...document.querySelectorAll('#what-if tbody tr')].map((r) => r.querySelector('td').dataset.value)"
    )
    assert float(start[0]) == summary["rates"]["tpr"]["estimate"]
    assert float(start[1]) == summary["rates"]["fpr"]["estimate"]


def test_a_rule_that_is_not_on_the_sliders_is_told_apart(page, tmp_path, case):
    """After a budget the page says so, and its first column is the rule at which the sliders start, not the budget's."""
    model = case.model.budget(0.5)
    summary = summarise(model, X=case.X, y=case.y, X_ood=case.X_ood, X_unlabeled=case.X_unlabeled)
    opened(page, summary, tmp_path)
    assert page.is_visible("#elsewhere")
    assert str(model.rule_) in page.inner_text("#rule")
    start = [summary["explorer"][n]["positions"][summary["explorer"][n]["start"]] for n in ("alpha", "tpr_min")]
    assert start == [0.3, summary["required_tpr"]]
    compare(page.evaluate(READ), python_says(case, *start, 1.0, share_of(case)), case)


def test_the_line_moves_in_the_picture(page, tmp_path, summary):
    opened(page, summary, tmp_path)
    picture = "document.getElementById('live').toDataURL()"
    before = page.evaluate(picture)
    page.evaluate(MOVE.replace("READ", f"({READ})"), [[95, 30, 3]])
    assert page.evaluate(picture) != before


@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_the_window_and_can_be_read(page, tmp_path, summary, width, scheme):
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    opened(page, summary, tmp_path)
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    contrasts = page.evaluate(CONTRAST)
    assert len(contrasts) > 100
    low = [entry for entry in contrasts if entry[1] < 4.5]
    assert not low, low[:5]
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(v) for v in dark.removeprefix("rgb(").removesuffix(")").split(",")) < 150) == (scheme == "dark")


CONTRAST = """() => {
  const part = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = (node) => {
    for (let n = node; n; n = n.parentElement) {
      const c = numbers(getComputedStyle(n).backgroundColor);
      if (c.length === 3 || c[3] > 0.99) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!text || ["SCRIPT", "NOSCRIPT", "TITLE", "DESC", "title", "desc"].includes(node.tagName) || node.disabled) continue;
    if (!node.getClientRects().length) continue;
    const style = getComputedStyle(node), inSvg = node.namespaceURI.includes("svg");
    const [a, b] = [light(numbers(inSvg ? style.fill : style.color)), light(behind(node))];
    found.push([node.textContent.slice(0, 40), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
  }
  return found;
}"""


def test_pictures_have_words_and_numbers(page, tmp_path, summary):
    opened(page, summary, tmp_path)
    silent = page.evaluate(
        """() => [...document.querySelectorAll("svg, canvas")].filter((n) => {
          if (n.getAttribute("aria-hidden") === "true") return false;
          const ids = (n.getAttribute("aria-labeledby") || "").split(" ").filter(Boolean);
          const label = n.getAttribute("aria-label") || ids.map((id) => document.getElementById(id).textContent).join(" ");
          return n.getAttribute("role") !== "img" || label.length < 20;
        }).length"""
    )
    assert silent == 0
    figures = page.evaluate(
        "[...document.querySelectorAll('figure')].map((f) => f.querySelectorAll('table tbody tr').length)"
    )
    assert len(figures) >= 8
    assert min(figures) >= 2
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert page.get_attribute("html", "lang") == "en"
    unlabeled = page.evaluate("[...document.querySelectorAll('input')].filter((i) => !i.labels.length).length")
    assert unlabeled == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((n) => n.id)")
    assert len(ids) == len(set(ids))
    for link in page.evaluate("[...document.querySelectorAll('nav a')].map((a) => a.hash.slice(1))"):
        assert link in ids


def test_asks_for_nothing_but_itself(page, tmp_path, summary):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    target = opened(page, summary, tmp_path)
    assert asked == [target.as_uri()]


def test_without_embedded_rows_there_is_no_script(page, tmp_path, case):
    opened(page, case.summary(explorer=False), tmp_path)
    assert page.evaluate("document.scripts.length") == 0
    assert page.is_visible("#plane-chart-t, #plane svg")


def test_thinned_rows_are_said_to_be_thinned(page, tmp_path, case):
    opened(page, case.summary(max_points=100), tmp_path)
    assert "Only 100 of 500 rows" in page.inner_text("#explorer")


HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    "\"'><svg onload=alert(3)>",
    "{{ 7 * 7 }}{% raw %}",
    "line\u2028separator\u2029end",
    "x" * 400,
    "<!--<script>",
]


def test_hostile_names_stay_text(page, tmp_path):
    """Class names, column names, values, file names and titles are shown letter by letter and run nothing."""
    X, y = WORLD.sample_id(900, random_state=0)
    classes = np.array([HOSTILE[0], HOSTILE[2], HOSTILE[3]])
    frame = pd.DataFrame({HOSTILE[1]: X[:, 0], HOSTILE[5]: X[:, 1]})
    traffic = pd.DataFrame(WORLD.sample_mixture(400, pi=0.3, random_state=1)[0], columns=frame.columns)
    model = POSCOD(ratio=CorrectedSigmoid("paper"), tpr_min=0.85, random_state=0).fit(frame, classes[y], traffic)
    cells = {HOSTILE[6]: [HOSTILE[i % len(HOSTILE)] for i in range(len(frame))], HOSTILE[4]: [HOSTILE[0]] * len(frame)}
    summary = summarise(
        model,
        X=frame,
        y=classes[y],
        X_unlabeled=traffic,
        title=HOSTILE[0],
        created=HOSTILE[1],
        names={"model": HOSTILE[2], "id": HOSTILE[0], "unlabeled": HOSTILE[6]},
        columns={"id": cells},
    )
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        opened(page, summary, tmp_path, "a'b\"<i>&.html")
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        page.wait_for_timeout(100)
        shown = page.evaluate("document.body.textContent")
        for text in (*HOSTILE[:4], HOSTILE[6]):
            assert text in shown, text
        assert not re.search(r"(?<![\d.])49(?!\d)", page.inner_text("#fitted"))
        assert page.title() == HOSTILE[0]
        assert page.evaluate("document.images.length") == 0
        assert page.evaluate("document.scripts.length") == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_policy_stops_foreign_scripts(browser, tmp_path, summary):
    html = render(summary).replace(
        "</main>", "<script>window.taken = 1</script><img src=x onerror='window.taken = 2'></main>"
    )
    target = tmp_path / "report.html"
    target.write_text(html, encoding="utf-8")
    context = browser.new_context()
    tab = context.new_page()
    refused = []
    tab.on("console", lambda message: refused.append(message.text))
    tab.goto(target.as_uri())
    tab.wait_for_selector("html[data-ready=true]")
    assert tab.evaluate("window.taken") is None
    assert any("Content Security Policy" in text for text in refused)
    context.close()


def test_a_hundred_thousand_rows(page, tmp_path, capsys):
    X, y = WORLD.sample_id(9000, random_state=0)
    traffic, _ = WORLD.sample_mixture(3000, pi=0.3, random_state=1)
    model = POSCOD(ratio=CorrectedSigmoid("paper"), alpha=0.3, tpr_min=0.85, calibration=0.8, random_state=0)
    model.fit(X, y, traffic)
    X_test, y_test = WORLD.sample_id(60_000, random_state=2)
    case = Case(
        model,
        X_test,
        y_test,
        WORLD.sample_ood(15_000, random_state=3),
        WORLD.sample_mixture(25_000, pi=0.2, random_state=4)[0],
    )
    summary = case.summary()
    target = tmp_path / "report.html"
    write(summary, target)
    start = time.perf_counter()
    page.goto(target.as_uri())
    page.wait_for_selector("html[data-ready=true]")
    loaded = time.perf_counter() - start
    start = time.perf_counter()
    spots, values = places(summary["explorer"], [(0.6, 0.7, 1.0)])[0]
    got = page.evaluate(MOVE.replace("READ", f"({READ})"), [spots])[0]
    moved = time.perf_counter() - start
    with capsys.disabled():
        sys.stdout.write(
            f"\n100,000 rows, {target.stat().st_size / 1e6:.1f} MB: loaded in {loaded:.2f} s, one move of the sliders {moved:.2f} s\n"
        )
    compare(got, python_says(case, *values, share_of(case)), case)
    assert loaded < 20.0  # a hang, not a speed: the number is printed above


def test_the_cost_matrix_is_not_symmetric():
    """The matrix case would prove little if rows and columns could be swapped."""
    assert not np.array_equal(COSTS, COSTS.T)


def drawn(rng, n):
    """Rows with many ties, zeros and infinities: r from a short list, log g from one with both ends."""
    risk = rng.choice([0.0, 1e-30, 0.1, 0.1 + 0.2, 0.3, 0.5, 1.0], n)
    log_ratio = rng.choice([-np.inf, -1000.0, -745.0, -1.0, 0.0, np.log(2.0), 700.0, 1000.0, np.inf], n)
    return SimpleNamespace(risk=risk, log_ratio=log_ratio)


def test_any_rows_give_the_numbers_of_the_library(page, tmp_path, case, summary):
    """The same on arrays no model would give, and on samples of one to five rows, against the library's functions alone."""
    rng = np.random.default_rng(8)
    for m, n, k in ((1, 1, 1), (2, 3, 1), (5, 4, 2), (60, 40, 30), (333, 100, 90), (1000, 700, 400)):
        groups = {"calibration": drawn(rng, m), "id": drawn(rng, n), "ood": drawn(rng, k), "unlabeled": drawn(rng, k)}
        loss = rng.choice([0.0, 1.0, 2.5], n)
        columns = {name: {"risk": g.risk, "log_ratio": g.log_ratio} for name, g in groups.items()}
        columns["id"]["loss"] = loss
        explorer = dict(summary["explorer"], groups={name: _embed(c, None) for name, c in columns.items()})
        targets = np.array(explorer["tpr_min"]["positions"])
        explorer["rank"] = [rank_of(m, target, None) for target in targets.tolist()]
        opened(page, dict(summary, explorer=explorer), tmp_path)
        moves = places(explorer, itertools.product((0.0, 0.3, 0.99, 1.0), (0.01, 0.5, 0.93, 1.0), (0.2, 1.0, 5.0)))
        found = page.evaluate(MOVE.replace("READ", f"({READ})"), [spots for spots, _ in moves])
        for (_, (alpha, tpr_min, scale)), got in zip(moves, found, strict=True):
            beta = ScodProblem(alpha, tpr_min).beta
            score = {name: rejection_score(scale * g.risk, g.log_ratio, beta) for name, g in groups.items()}
            rule = tpr_threshold(score["calibration"], tpr_min)
            accept = {name: values <= rule.threshold for name, values in score.items()}
            assert float(got["threshold"]) == pytest.approx(rule.threshold, rel=1e-12)
            for name, key in (("id", "tpr"), ("ood", "fpr"), ("unlabeled", "accepted")):
                assert float(got["rows"][key][0]) == accept[name].mean()
            mean = float(np.mean(scale * loss[accept["id"]])) if accept["id"].any() else float("nan")
            assert float(got["rows"]["selective_risk"][0]) == pytest.approx(mean, rel=1e-12, nan_ok=True)
            total = ScodProblem(alpha).risk(mean, float(accept["ood"].mean()))
            assert float(got["rows"]["risk"][0]) == pytest.approx(total, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_to_look_at(page, tmp_path, reviewed, width):
    """The queue and what verdicts say, with names that are no markup, and nothing wider than the page."""
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, reviewed, tmp_path)
    assert page.locator("nav a[href='#review']").count() == 1
    rows = page.locator("#queue tbody tr")
    assert rows.count() == len(reviewed["review"]["queue"]) == 40
    page.locator("#review summary").click()
    first = reviewed["review"]["queue"][0]
    text = rows.first.inner_text()
    assert first["why"] in text
    assert first["verdict"] in text
    assert "<b>x</b>" in page.locator("#queue thead").inner_text()
    share = reviewed["review"]["assessment"]["ood_prior"]
    shown = page.locator("#assessment tbody tr").first.inner_text()
    assert percent(share["estimate"]) in shown
    assert percent(share["high"]) in shown
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def reviewed(case):
    chosen = queue(case.model, case.X_unlabeled, 40)
    said = [
        "ood" if row[0] + row[1] > 4.0 else int(np.argmax([0.0, row[0], row[1]]))
        for row in case.X_unlabeled[chosen.index]
    ]
    columns = {"unlabeled": {"<b>x</b>": case.X_unlabeled[:, 0], "y": case.X_unlabeled[:, 1]}}
    return case.summary(review=chosen, verdicts=said, columns=columns, explorer=False)
