"""Shared fixtures: where the optional material beside the project lies, a real browser, and Hypothesis' profile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("poscod", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("poscod")

# Long tests that share nothing: any worker takes any of them, last. All others stay with their file, so that one worker alone makes its fixtures.
APART = ("tests/statistical/", "tests/test_examples.py", "tests/test_docs/test_console_blocks.py")
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a file to one worker, but for long tests that are apart; groups of pytest-xdist 3.8 mean nothing to pytest 9.2."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(APART) else super()._split_scope(nodeid)

    return Files(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder beside the project with reference outputs and real data; absent in an ordinary clone."""
    if not SHARED.is_dir():
        pytest.skip("needs the folder ../shared with reference outputs and real data, which is not here")
    return SHARED


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240929)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium of the machine; one per module, because Playwright's event loop blocks `asyncio.run` while it is open."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium (apt-get install chromium), which is not here")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright, which is not here")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """An empty page, 1280 px wide; a console error, an uncaught error or a dialog in it fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened, problems = context.new_page(), []

    def refuse(dialog: Any) -> None:
        problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    opened.on("console", lambda m: problems.append(f"console {m.type}: {m.text}") if m.type == "error" else None)
    opened.on("pageerror", lambda error: problems.append(f"uncaught: {error}"))
    opened.on("dialog", refuse)
    yield opened
    context.close()
    assert not problems, "\n".join(problems)
