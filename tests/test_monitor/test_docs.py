"""The page about monitoring explains every finding, under the address that findings carry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from poscod.monitor import FINDINGS, SEVERITIES
from poscod.monitor._findings import SEQUENTIAL, Finding

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("code", sorted(FINDINGS))
def test_every_finding_is_explained(code):
    definition = FINDINGS[code]
    page, _, anchor = Finding(code, "", {}).to_dict()["link"].partition("#")
    text = (ROOT / page).read_text()
    assert re.search(rf"^### {anchor}$", text, re.M | re.I)
    section = " ".join(re.split(rf"^### {code}$", text, flags=re.M)[1].split("\n### ")[0].split())
    assert f"**{definition.title}** ({definition.severity})" in section
    assert definition.meaning in section
    assert definition.severity in SEVERITIES
    assert definition.action.endswith(".")


def test_the_page_explains_nothing_that_is_not_there():
    text = (ROOT / "docs/monitoring.md").read_text()
    assert re.findall(r"^### (PSC\d+)$", text, re.M) == list(FINDINGS)
    alarms = [f"PSC{i:03d}" for i in (1, 2, 3, 5, 6, 12, 14, 15, 16)]  # the page says so
    assert alarms == list(SEQUENTIAL)
    assert FINDINGS["PSC004"].severity == "info"  # another class mix is no alarm
