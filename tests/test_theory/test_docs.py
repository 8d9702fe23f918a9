import re
from pathlib import Path

from poscod.problem import NOTATION

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "theory.md").read_text(encoding="utf-8")


def test_notation_table_is_the_one_of_the_problem():
    rows = dict(re.findall(r"^\| `(.+?)` \| (.+?) \|$", PAGE, flags=re.MULTILINE))
    table = {symbol: meaning.replace("\\|", "|") for symbol, meaning in rows.items()}
    assert {symbol: table.get(symbol) for symbol in NOTATION} == NOTATION


def test_every_named_test_exists():
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)
    assert len(named) >= 20
    for file, name in named:
        assert f"def {name}(" in (HERE / file).read_text(encoding="utf-8"), (file, name)


def test_every_theorem_names_its_tests():
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    theorems = [section for section in sections if section.startswith("Theorem")]
    assert len(theorems) == 4
    assert all("*Checked by*" in section for section in theorems)
