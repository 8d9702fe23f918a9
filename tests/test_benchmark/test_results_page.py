"""The page of results holds the committed numbers, and only those."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from poscod.benchmark import read_spec

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCKS = re.findall(r"<!-- table (\w+) -->\n(.*?)<!-- end -->", (DOCS / "results.md").read_text(), re.S)


def test_the_page_has_its_tables_and_the_numbers_are_small():
    assert {name for name, _ in BLOCKS} == {
        "estimators",
        "prior",
        "single",
        "contemporary",
        "sigmoid",
        "clean",
        "alpha",
        "pi",
    }
    assert sum(path.stat().st_size for path in (DOCS / "results").glob("*.csv")) < 300_000


@pytest.mark.parametrize(("name", "text"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_tables_of_the_page_are_the_committed_numbers(name, text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    split = [[cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    header, body = split[0], split[2:]
    with (DOCS / "results" / f"{name}.csv").open(newline="") as file:
        reader = csv.reader(file)
        columns = next(reader)
        n_labels = columns.index("column") - 1
        committed = {}
        for row in reader:
            labels, (column, mean, sd, _, best) = tuple(row[1 : 1 + n_labels]), row[1 + n_labels :]
            words = f"{float(mean):.2f}" + (f" ± {float(sd):.2f}" if sd else "")
            committed[labels, column] = f"**{words}**" if best == "1" else words
    shown = {
        (tuple(row[:n_labels]), column): cell
        for row in body
        for column, cell in zip(header[n_labels:], row[n_labels:], strict=True)
        if cell
    }
    assert len(shown) >= 20
    assert shown == committed


def test_the_command_of_the_page_runs_what_it_says():
    spec = read_spec(DOCS / "results" / "cifar10_resnet56.toml")
    assert len(spec.score_names) == 26
    assert (min(spec.pis), max(spec.pis), min(spec.alphas), max(spec.alphas)) == (0.02, 0.5, 0.1, 0.9)
    assert len(spec.seeds) == 5
    assert spec.tuned
