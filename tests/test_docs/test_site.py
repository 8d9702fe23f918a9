"""The site: built without a warning, no link into nothing, every public name in the reference exactly once."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from poscod.cli._main import COMMANDS, build_parser

ROOT = Path(__file__).resolve().parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_site" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


pages, links = load("generated_pages"), load("check_links")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; the first build of the run pays for all tests here."""
    pytest.importorskip("mkdocs", reason="needs the dependency group docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def public_objects():
    """Every name of every ``__all__`` of a public module, by import: the slow way the generator avoids."""
    for module in pages.modules():
        try:
            loaded = importlib.import_module(module)
        except ImportError:  # a back end whose package is not installed
            continue
        for name in getattr(loaded, "__all__", []):
            if not name.startswith("__"):
                yield module, name, getattr(loaded, name)


def test_every_public_object_has_one_entry():
    entries = {(n.module, n.name) for n in pages.public_names()}
    assert len(entries) >= 100
    exporters: dict[object, set[tuple[str, str]]] = {}
    for module, name, value in public_objects():
        key = id(value) if inspect.isclass(value) or inspect.isfunction(value) else (name, id(value))
        exporters.setdefault(key, set()).add((module, name))
    for places in exporters.values():
        assert len(places & entries) == 1, places


def test_every_entry_appears_once_on_the_site(site):
    found = Counter()
    for page in (site / "api").glob("*.html"):
        found.update(re.findall(r'<h2 id="([\w.]+)"', page.read_text(encoding="utf-8")))
    expected = {f"{n.module}.{n.name}" for n in pages.public_names()}
    assert found == Counter(expected)


def test_every_command_has_its_options_on_the_site(site):
    text = (site / "commands.html").read_text(encoding="utf-8")
    found = re.findall(r'<h2 id="([\w-]+)"', text)
    assert found == [command.prog.replace(" ", "-") for command in pages.commands(build_parser())]
    assert {f"poscod-{name}" for name in COMMANDS} <= set(found)
    for option in ("--target", "--tpr-min", "--scheduler", "--fail-on", "--backbone"):
        assert option in text


def test_every_link_leads_somewhere(site):
    assert len(list(site.rglob("*.html"))) >= 30
    assert links.check_site(site) == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_files_outside_the_site(name):
    assert links.check_markdown(ROOT / name) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.md").write_text("[x](nowhere.md) and [y](https:/broken)")
    assert len(links.check_markdown(tmp_path / "a.md")) == 2


def test_pages_do_not_speak_of_files_that_are_not_there():
    """Tests, benchmarks and source files named in the docs exist."""
    named = re.compile(r"`((?:tests|benchmarks|examples|src|docs)/[\w./-]+\.\w+)(?:::(\w+))?`")
    found = [
        (page, match)
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for match in named.finditer(page.read_text(encoding="utf-8"))
    ]
    assert len(found) >= 5
    for page, match in found:
        path = ROOT / match.group(1)
        assert path.is_file(), f"{page.name} names {match.group(1)}"
        if match.group(2):
            assert f"def {match.group(2)}(" in path.read_text(encoding="utf-8"), f"{page.name} names {match.group(0)}"


def test_the_map_shows_every_folder_and_public_file():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    units = {path.name + "/" for path in pages.SOURCE.iterdir() if (path / "__init__.py").is_file()}
    units |= {path.name for path in pages.SOURCE.glob("[!_]*.py")}
    assert len(units) >= 15
    assert {unit for unit in units if f"-- {unit}" not in text} == set()


def test_install_lines_work_from_a_clone():
    """The package is on no registry: pages and messages install the clone, with extras that exist, and first pages the same ones."""
    extras = set(
        re.findall(
            r"^(\w+) = \[",
            (ROOT / "pyproject.toml")
            .read_text(encoding="utf-8")
            .split("[project.optional-dependencies]")[1]
            .split("[project.scripts]")[0],
            re.M,
        )
    )
    texts = {
        page.name: page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    }
    installed = {name: re.findall(r"pip install '([^']+)'", text) for name, text in texts.items()}
    assert installed["README.md"][0] == installed["start.md"][0]
    for name, targets in installed.items():
        for target in targets:
            assert re.fullmatch(r"\.\[[\w,]+\]", target), f"{name} installs {target}"
            assert set(target[2:-1].split(",")) <= extras, f"{name} installs {target}"
