"""The dashboard in a real browser, with live traffic."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from poscod import POSCOD
from poscod.ratio import CorrectedSigmoid
from poscod.theory import GaussianWorld

WORLD = GaussianWorld([[0.0, 0.0], [3.0, 0.0]], [[1.5, 4.0]])


def traffic(n: int, seed: int, pi: float = 0.6) -> list[list[float]]:
    return WORLD.sample_mixture(n, pi=pi, random_state=seed)[0].tolist()


def test_live_traffic_shows_without_a_reload(page, server):
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(server.url + "/")
    page.wait_for_selector("#model dd")
    assert "No decisions yet" in page.inner_text("#share")
    assert server.decide(traffic(400, 1)).status_code == 200
    page.wait_for_selector("#share svg", timeout=30_000)
    page.wait_for_selector("#now dd:text-is('400')", timeout=30_000)
    label = page.get_attribute("#share svg", "aria-label")
    assert "OOD share" in label
    assert "interval" in label
    assert "PSC001" in page.inner_text("#findings")  # 60 % of this traffic is OOD
    assert "error" in page.inner_text("#findings")
    assert server.decide(traffic(100, 2)).status_code == 200
    page.wait_for_selector("#now dd:text-is('500')", timeout=30_000)
    row = page.inner_text("#windows tr:first-child").split("\t")
    window = server.client.get("/v1/monitor").json()["windows"][-1]
    assert row[1] == str(window["n"])
    assert row[2] == str(window["accepted"])
    loaded = server.service.holder.current
    assert loaded.sha256 in page.inner_text("#model")
    assert str(loaded.model.rule_) in page.inner_text("#model")
    assert all(url.startswith((server.url, "data:")) for url in requests)


def test_narrow_dark_and_readable_by_machines(page, server):
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    server.decide(traffic(50, 3))
    page.goto(server.url + "/")
    page.wait_for_selector("#share svg", timeout=30_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("svg[role=img][aria-label]").count() == 2
    assert page.locator("h1").count() == 1
    assert page.locator("th[scope=col]").count() == 8


def test_a_token_is_asked_for_and_kept_in_the_page(browser, serve, model_file):
    token = "a-token-of-enough-characters"
    running = serve(model_file, tokens=(token,))
    page = browser.new_page()  # the first answers are 401, which the console of the page fixture would call errors
    page.goto(running.url + "/")
    page.wait_for_selector("#token-section:not([hidden])")
    assert "token" in page.inner_text("#status")
    page.fill("#token", token)
    page.click("#token-button")
    page.wait_for_selector("#model dd", timeout=30_000)
    page.wait_for_selector("#token-section", state="hidden", timeout=30_000)
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0
    page.close()


def test_a_service_that_is_gone_is_named(browser, serve, model_file):
    running = serve(model_file)
    page = browser.new_page()
    page.goto(running.url + "/")
    page.wait_for_selector("#model dd")
    running.stop()
    page.wait_for_selector("#status:has-text('No answer')", timeout=30_000)
    page.close()


def test_hostile_names_stay_text(page, serve, tmp_path):
    """Names of classes, columns, the file and the reject label, and what callers send, are shown letter by letter and run nothing."""
    names = [f"<img src=x onerror=alert({i})>" for i in range(4)]
    X, y = WORLD.sample_id(600, random_state=0)
    frame, more = (
        pd.DataFrame(part, columns=names[:2]) for part in (X, WORLD.sample_mixture(300, pi=0.3, random_state=1)[0])
    )
    model = POSCOD(LogisticRegression(), CorrectedSigmoid("paper", l2=1e-3), reject_label=names[0], random_state=0)
    path = tmp_path / "<script>alert(9)<" / "script>.poscod"
    path.parent.mkdir()
    model.fit(frame, np.array(names[2:])[y], X_unlabeled=more).save(path)
    running = serve(path)
    bad = {"columns": {names[0]: [0.0], names[3]: [1.0]}, "ids": ["<svg onload=alert(8)>"]}
    assert running.client.post("/v1/decide", json=bad).status_code == 422
    good = {"columns": {names[0]: [0.0] * 50, names[1]: [1.0] * 50}}
    assert running.client.post("/v1/decide", json=good).status_code == 200
    page.goto(running.url + "/")
    page.wait_for_selector("#model dd")
    page.wait_for_selector("#now dd:text-is('50')", timeout=30_000)
    assert page.evaluate("document.images.length + document.querySelectorAll('[onerror], [onload]').length") == 0
    assert page.evaluate("document.scripts.length") == 1
    assert "script>.poscod" in page.evaluate("document.body.textContent")
