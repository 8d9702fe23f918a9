"""Tables: means, deviations, the best, escaping; nothing recomputed."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from pathlib import Path

import pytest

from poscod.benchmark import FORMATS, TABLES, compare, read_results, read_spec, render, run, table
from poscod.benchmark._compare import paper_numbers
from poscod.benchmark._results import COLUMNS
from poscod.benchmark._tables import Table, TableCell
from poscod.exceptions import InvalidInputError


def row(**changes):
    base = dict.fromkeys(COLUMNS, "") | {
        "seed": 0,
        "pi": None,
        "alpha": None,
        "value": 0.0,
        "n_id": 9000,
        "n_ood": 9000,
    }
    return (
        base | {"id_set": "cifar10", "ood_set": "svhn", "group": "far", "kind": "score", "strategy": "single"} | changes
    )


def single(method, seed, aurc, auroc, ausrt, ood_set="svhn", group="far"):
    shared = {"method": method, "seed": seed, "ood_set": ood_set, "group": group}
    return [
        row(**shared, metric="aurc", value=aurc),
        row(**shared, metric="auroc", value=auroc),
        row(**shared, metric="ausrt", alpha=0.5, value=ausrt),
    ]


ROWS = [
    *single("msp", 0, 0.01, 0.90, 0.055),
    *single("msp", 1, 0.03, 0.92, 0.055),
    *single("knn", 0, 0.02, 0.95, 0.035),
    *single("knn", 1, 0.02, 0.97, 0.025),
    *single("msp", 0, 0.01, 0.7, 0.155, "cifar100", "near"),
    *single("knn", 0, 0.02, 0.7, 0.16, "cifar100", "near"),
]


def test_single_score_table_by_hand():
    made = table("single", ROWS)
    assert made.header == (
        "score",
        "AuRC",
        "cifar100 AuROC",
        "cifar100 AuSRT",
        "svhn AuROC",
        "svhn AuSRT",
    )  # near first
    assert [labels for labels, _ in made.body] == [("knn",), ("msp",)]  # by mean AuSRT
    (_, knn), (_, msp) = made.body
    assert knn[3].mean == pytest.approx(96.0)
    assert knn[3].sd == pytest.approx(math.sqrt(2.0))
    assert [c.best for c in knn] == [False, True, False, True, True]
    assert [c.best for c in msp] == [True, True, True, False, False]  # a tie in print is bold twice
    assert math.isnan(knn[1].sd)  # one value has no deviation


def test_an_alpha_or_pi_without_results_is_refused():
    with pytest.raises(InvalidInputError, match=r"alpha must be one of 0.5, which the results have, got 0.4"):
        table("single", ROWS, alpha=0.4)
    with pytest.raises(InvalidInputError, match="pi must be one of"):
        table("single", ROWS, pi=0.4)
    with pytest.raises(InvalidInputError, match="name must be one of"):
        table("singles", ROWS)


NASTY = Table(
    "t",
    "50 % of a_b",
    "A note: **bold**.",
    ("score", r"a|b\c", "x & y"),
    [(("ash_s",), (TableCell(1.005, 0.25, 3, True), None)), (("<b>",), ("no: 5 #", TableCell(2.0, math.nan, 1)))],
)


def test_markdown_escapes_what_would_break_a_table():
    lines = render(NASTY).splitlines()
    body = [line for line in lines if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line) for line in body]
    assert {len(c) for c in cells} == {5}
    assert r"a\|b\\c" in body[0]
    assert "**1.00 ± 0.25**" in body[2] or "**1.01 ± 0.25**" in body[2]
    assert r"ash\_s" in body[2]
    assert r"\<b>" in body[3]


def test_latex_escapes_every_special_character():
    text = render(NASTY, "latex")
    assert r"50 \% of a\_b" in text
    assert r"a|b\textbackslash{}c & x \& y \\ \hline" in text
    assert r"\textbf{1.0" in text
    assert r"$\pm$ 0.25}" in text
    assert "**" not in text
    assert r"no: 5 \#" in text
    specials = re.sub(r"\\[&%#_$]|\$\\pm\$", "", text)
    assert not re.search(r"[%#$_]", specials)
    assert text.count(r"\begin{") == text.count(r"\end{")


def test_csv_is_long_and_reads_back():
    read = list(csv.DictReader(io.StringIO(render(NASTY, "csv"))))
    assert read[0] == {
        "table": "t",
        "score": "ash_s",
        "column": r"a|b\c",
        "mean": "1.005",
        "sd": "0.25",
        "n": "3",
        "best": "1",
    }
    assert (read[1]["mean"], read[2]["sd"]) == ("no: 5 #", "")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    spec = dataclasses.replace(
        read_spec("digits"),
        scores=("msp", "ebo", "knn"),
        ratios=("strong", "paper", "standard", "clean_lr"),
        tuned=True,
        n_test=150,
        grid="reference",
        seeds=(0,),
    )
    run(spec, folder)
    return read_results(folder)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("form", FORMATS)
def test_every_table_is_filled_from_a_run(results, name, form):
    made = table(name, results, alpha=0.25)
    assert len(made.body) >= 3
    assert all(len(labels) + len(cells) == len(made.header) for labels, cells in made.body)
    assert render(made, form).count("\n") >= len(made.body)


@pytest.mark.parametrize("name", ["alpha", "pi"])
def test_every_ablation_is_filled_from_a_run(results, name):
    made = table(name, results)
    assert {labels[0] for labels, _ in made.body} == {"digits_6_9", "shuffled"}
    assert any("0.25" in column for column in made.header) == (name == "alpha")


def test_tables_hold_the_values_of_the_run(results):
    made = table("sigmoid", results, alpha=0.25, pi=0.1)
    labels, cells = made.body[1]
    assert labels == ("strong", "linear")
    wanted = {
        "method": "strong",
        "setting": "plugin",
        "strategy": "linear",
        "pi": 0.1,
        "alpha": 0.25,
        "ood_set": "digits_6_9",
    }
    (value,) = [r["value"] for r in results if all(r[k] == v for k, v in wanted.items())]
    assert cells[0].mean == pytest.approx(100 * value)


def test_tuned_never_loses_to_the_plugin_of_the_same_pair(results):
    """The heuristic setting of SIRC is not on the reference's grid, but the grid holds its neighbours."""
    tuned, plugin = (dict(table(n, results).body) for n in ("tuned", "plugin"))
    for labels, cells in tuned.items():
        if labels[0] == "linear":
            assert all(a.mean <= b.mean + 0.05 for a, b in zip(cells, plugin[labels], strict=True))


def test_comparison_needs_an_id_set_of_the_paper(results):
    with pytest.raises(InvalidInputError, match="nothing to compare"):
        compare(results)


def test_comparison_says_yes_only_to_the_same_thing():
    same = [
        {**r, "fold": fold, "network": "resnet18_32x32", "n_ood": 26032 if r["ood_set"] == "svhn" else 9000}
        for r in ROWS
        for fold in ("s0", "s1", "s2")
    ]
    verdicts = {labels[1:5]: cells[2] for labels, cells in compare(same).body}
    assert verdicts["svhn", "single", "knn", "ausrt"] == "yes"
    other = compare([{**r, "network": "resnet56", "n_ood": 2000} for r in same])
    verdicts = {labels[1:5]: cells[2] for labels, cells in other.body}
    assert (
        verdicts["svhn", "single", "knn", "ausrt"]
        == "no: network resnet56 instead of resnet18_32x32; 2000 of 26032 OOD rows"
    )
    numbers = {labels[1:5]: cells[:2] for labels, cells in other.body}
    ours, paper = numbers["svhn", "single", "knn", "ausrt"]
    assert (round(ours.mean, 6), paper.mean, paper.sd) == (3.0, 3.94, 0.13)


def test_learned_ratios_are_never_called_comparable():
    learned = row(
        kind="ratio",
        method="strong",
        strategy="linear",
        setting="plugin",
        metric="ausrt",
        alpha=0.5,
        pi=0.5,
        network="resnet18_32x32",
    )
    (line,) = compare([{**learned, "fold": f, "n_ood": 26032} for f in ("s0", "s1", "s2")]).body
    assert line[1][2].startswith("no: ratio learned on frozen features")


def test_the_papers_numbers_are_those_of_its_tables():
    """Every shipped number stands in the parsed tables, under its table, and the identity of single scores holds."""
    tables = json.loads((Path(__file__).resolve().parents[1] / "golden" / "paper_tables.json").read_text())

    def numbers(value):
        if isinstance(value, dict):
            if "mean" in value:
                yield value["mean"], value["std"]
            else:
                for item in value.values():
                    yield from numbers(item)

    there = {name: {n for r in t for n in numbers(r)} for name, t in tables.items()}
    rows = paper_numbers()
    assert len(rows) > 1000
    assert all((r["mean"], r["sd"]) in there[r["table"]] for r in rows)


def test_single_score_numbers_of_the_paper_obey_the_identity():
    rows = [r for r in paper_numbers() if r["table"].endswith("_single") and r["method"] != "ash"]
    value = {(r["id_set"], r["ood_set"], r["method"], r["metric"]): r["mean"] for r in rows}
    checked = 0
    for (id_set, ood_set, method, metric), ausrt in value.items():
        if metric == "ausrt":
            aurc, auroc = value[id_set, "", method, "aurc"], value[id_set, ood_set, method, "auroc"]
            assert ausrt == pytest.approx(0.5 * aurc + 0.5 * (100 - auroc), abs=0.011)
            checked += 1
    assert checked == 40 + 48 + 48


def test_results_of_an_earlier_version_are_read_under_the_new_name(tmp_path):
    cells = {
        **row(method="corrected", kind="ratio", metric="ood_prior", pi=0.2, value=0.25),
        "benchmark": "old",
        "scores": "corrected",
    }
    words = ["" if cell is None else str(cell) for cell in cells.values()]
    (tmp_path / "results.csv").write_text(",".join(cells) + "\n" + ",".join(words) + "\n")
    (found,) = read_results(tmp_path)
    assert found["method"] == "strong"
    assert (found["pi"], found["alpha"], found["value"]) == (0.2, None, 0.25)


def test_results_without_a_column_or_with_words_for_numbers_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="is not there"):
        read_results(tmp_path)
    path = tmp_path / "results.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInputError, match="has no column"):
        read_results(path)
    path.write_text(",".join(COLUMNS) + "\n" + ",".join("x" for _ in COLUMNS) + "\n")
    with pytest.raises(InvalidInputError, match="not a number"):
        read_results(path)
