"""What fit says beside its numbers: said where there is a reason, and only there."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from poscod import POSCOD
from poscod.cli._notes import SEPARATES, _some, column_notes
from poscod.model import choices_document
from test_cli._world import WORLD, columns_of, write_table

USED = ("größe", "width", "animal")
FAST = ["--ratio", "paper"]


def noted(known, traffic):
    return column_notes(known, traffic, known)


@pytest.fixture
def notes(shell, tmp_path):
    """Fit on tables with changed columns and return the notes."""

    def run(*words, labeled=None, unlabeled=None):
        for name, changes in (("labeled", labeled), ("unlabeled", unlabeled)):
            columns = {k: v for k, v in columns_of(name).items() if k in USED}
            write_table(tmp_path / f"{name}.csv", {**columns, **(changes or {})})
        files = [tmp_path / "labeled.csv", tmp_path / "unlabeled.csv"]
        fit = shell("fit", *files, "--target", "animal", *words, "-o", tmp_path / "m.poscod")
        assert fit.code == 0, fit.err
        run.lines = fit.out.splitlines()
        said = [line.removeprefix("Note: ") for line in run.lines if line.startswith("Note: ")]
        # What is doubtful about the rule has tests of its own.
        return [note for note in said if note not in choices_document(POSCOD.load(tmp_path / "m.poscod"))["doubts"]]

    return run


def test_a_row_number_that_goes_on_is_named(notes):
    changes = {  # few rows: tables that are wholly apart take long to fit
        name: {k: v[::6] for k, v in columns_of(name).items() if k in USED} for name in ("labeled", "unlabeled")
    }
    changes["labeled"]["id"], changes["unlabeled"]["id"] = np.arange(80), np.arange(50_000, 50_040)
    found = notes(*FAST, **changes)
    assert found[0] == (
        "column 'id' alone tells the labeled rows from the traffic (its values do not overlap): a row number or a time? --row-id id or "
        "--exclude id leaves it out."
    )
    # Tables that are wholly apart leave the share open, which is said instead of a share that is nearly all.
    assert found[2].startswith("the share is uncertain (its interval starts at 0)")
    assert "does not determine" in found[1]
    assert "use --ratio='strong'" in found[1]


def test_a_row_number_that_begins_again_is_named():
    known = {"my id": np.arange(480), "b": np.arange(480) % 7, "one": np.ones(480)}
    traffic = {"my id": np.arange(240), "b": np.arange(240) % 7, "one": np.ones(240)}
    assert noted(known, traffic) == [
        "column 'my id' counts the rows of both tables: a row number? --row-id 'my id' or --exclude 'my id' leaves it out."
    ]


def test_strangers_alone_do_not_make_a_column_suspicious():
    """Nine in ten rows of the traffic are strangers beyond every known value: still no note."""
    rng = np.random.default_rng(0)
    known, m = rng.normal(0.0, 1.0, 1000), 500
    for pi in (0.3, 0.9):
        traffic = np.where(np.arange(m) < pi * m, rng.uniform(10.0, 11.0, m), rng.normal(0.0, 1.0, m))
        assert noted({"x": known}, {"x": traffic}) == []


@pytest.mark.parametrize("sign", [1, -1])
def test_a_column_that_separates_nearly_is_named(sign):
    rng = np.random.default_rng(1)
    for shift, expected in ((4.0, True), (2.0, False)):
        found = noted({"t": sign * rng.normal(0, 1, 2000)}, {"t": sign * rng.normal(shift, 1, 2000)})
        assert bool(found) == expected
    # Phi(4 / sqrt(2)) = 0.9977 and Phi(2 / sqrt(2)) = 0.9214 are on either side.
    assert 0.9214 < SEPARATES < 0.9977


def test_many_rows_are_sampled_with_their_ends():
    some = _some(np.random.default_rng(2).permutation(30_001).astype(float))
    assert len(some) < 12_000
    assert (some.min(), some.max()) == (0.0, 30_000.0)
    assert noted({"matrix": np.zeros((50, 2))}, {"matrix": np.ones((50, 2))}) == []


def test_nearly_all_strangers_is_said(notes):
    X, _ = WORLD.sample_mixture(240, pi=0.95, random_state=7)
    found = notes(unlabeled={"größe": X[:, 0], "width": X[:, 1]})
    assert found == []
    assert any(line.startswith("Drift: Most of the traffic is not like the labeled rows") for line in notes.lines)


def rarer():
    """Traffic with 220 rows of one class and 20 of the other, where the labeled rows have 240 each: no stranger among them."""
    X, y = WORLD.sample_id(2000, random_state=8)
    chosen = np.r_[np.flatnonzero(y == 0)[:220], np.flatnonzero(y == 1)[:20]]
    return {"größe": X[chosen, 0], "width": X[chosen, 1]}


def test_a_class_that_is_rarer_is_served_and_said_once(notes, tmp_path):
    found = notes(unlabeled=rarer())
    told = [line for line in notes.lines if "class mix" in line]
    assert len(told) == 2  # the mix, and the rule's sentence
    assert re.fullmatch(
        r"Adapted to the traffic's class mix: (cat [45]\d\.\d % -> 9\d\.?\d? %, dog [45]\d\.\d % -> \d\.?\d* %|dog .*, cat .*)\.",
        told[0],
    ), told[0]
    assert "in the class mix of the traffic" in told[1]
    # What was called strangers before is none: the mix explains the traffic.
    assert not any("class mix" in note or "part of the OOD share" in note for note in found)
    assert "not shown (0.0 %)" in notes.lines[1]
    model = POSCOD.load(tmp_path / "m.poscod")
    assert model.calibration_.mix.traffic == pytest.approx([220 / 240, 20 / 240], abs=0.04)


def test_the_mix_of_the_labeled_rows_or_known_shares_can_be_asked_for(notes, shell, tmp_path):
    notes("--class-mix", "labeled", *FAST, unlabeled=rarer())
    assert not any("class mix" in line for line in notes.lines)
    notes("--class-mix", "dog=0.1,cat=0.9", *FAST, unlabeled=rarer())
    assert "Serves the class mix that was given: cat 50 % -> 90 %, dog 50 % -> 10 %." in [
        re.sub(r"(\d+\.\d) % ->", "50 % ->", line) for line in notes.lines
    ]
    (tmp_path / "mix.csv").write_text("class,share\ndog,0.25\ncat,0.75\n")
    notes("--class-mix", tmp_path / "mix.csv", *FAST, unlabeled=rarer())
    np.testing.assert_allclose(POSCOD.load(tmp_path / "m.poscod").traffic_class_prior_, [0.75, 0.25])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("cat=0.3", "must give each class ('cat', 'dog') one share, got no share of 'dog'"),
        ("cat=0.3,dog=0.3,cow=0.4", "got 'cow'"),
        ("cat=0.3,dog=0.3", "must give shares that sum to 1, got 0.6"),
        ("cat=a,dog=0.3", "shares such as cat=0.3,dog=0.7, got 'cat=a'"),
        ("traffic", "must be auto, labeled, a table, or shares"),
    ],
)
def test_a_bad_class_mix_is_refused_in_a_sentence(shell, tables, tmp_path, given, sentence):
    words = ["--target", "animal", "--features", "width", "--class-mix", given, "-o", tmp_path / "m.poscod"]
    fit = shell("fit", tables / "labeled.csv", tables / "unlabeled.csv", *words)
    assert fit.code == 2
    assert sentence in fit.err


def test_strangers_far_beyond_one_class_are_no_mix_of_classes(notes):
    """They are answered 'dog' with confidence; g tells them from dogs."""
    X, _ = WORLD.sample_id(240, random_state=9)
    X[::4] = np.array([9.0, 0.0]) + np.random.default_rng(9).normal(size=(60, 2))
    found = notes(unlabeled={"größe": X[:, 0], "width": X[:, 1]})
    assert not any(word in note for note in found for word in ("mix of classes", "column", "nearly all"))


def test_traffic_without_strangers_is_told_in_rows_and_options(notes):
    X, _ = WORLD.sample_id(240, random_state=10)
    found = notes(unlabeled={"größe": X[:, 0], "width": X[:, 1]})
    assert re.fullmatch(
        r"the unlabeled table cannot be told from the labeled rows that the ratio sees by distance from ID rows, a linear score or boosted trees \(p = [01]\.\d\d\).* the OOD share is 0.* 240 rows .* "
        r"share of 0\.\d+.*; a share of 0\.\d+ needs .*\d+.*\.",
        found[0],
    )
    assert len(found) == 1  # the ratio sees every labeled row: there is nothing to advise
    assert notes.lines[1] == "Estimated share of OOD inputs among the unlabeled rows: not shown (0.0 %)."
    shares = notes("--calibration", "0.5", unlabeled={"größe": X[:, 0], "width": X[:, 1]})
    assert shares[1] == "the ratio sees about 120 of your 480 labeled rows; --calibration auto gives it more."
    assert len(shares) == 2


def test_drift_is_said_with_the_names_of_the_table_and_refused_where_asked(shell, tmp_path):
    rng = np.random.default_rng(0)
    centres = rng.normal(0.0, 1.2, (3, 8))

    def table(name, moved):
        y = rng.integers(0, 3, 1500)
        rows = pd.DataFrame(centres[y] + rng.normal(size=(1500, 8)), columns=[f"x{j}" for j in range(8)])
        rows["x4"] += moved
        rows.assign(label=y).to_csv(tmp_path / name, index=False)

    table("lab.csv", 0.0)
    table("log.csv", 0.6)
    given = "fit", tmp_path / "lab.csv", tmp_path / "log.csv", "--target", "label", "-o", tmp_path / "m.poscod"
    run = shell(*given, "--on-drift", "raise")
    assert run.code == 2
    assert "most of all x4" in run.err
    assert not (tmp_path / "m.poscod").exists()
    run = shell(*given)
    assert run.code == 0
    assert "Drift: Known inputs of the traffic seem to have moved, as drift does (most of all x4 (+0.3" in run.out
    assert run.out.count("Note:") == run.out.count("Note: the rule is not shown to catch wrong answers") == 1
    # Fresh rows: the model is asked again, of another log.
    still = shell("evaluate", tmp_path / "m.poscod", "--id", tmp_path / "lab.csv", "--unlabeled", tmp_path / "lab.csv")
    assert "of this traffic" not in still.out
    assert "This traffic differs" not in still.out
    run = shell("evaluate", tmp_path / "m.poscod", "--id", tmp_path / "lab.csv", "--unlabeled", tmp_path / "log.csv")
    assert "Note: Known inputs of this traffic seem to have moved" in run.out
    assert "Most of all x4 (+0.3" in run.out
