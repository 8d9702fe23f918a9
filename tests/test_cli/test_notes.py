"""What fit says beside its numbers: said where there is a reason, and only there."""

from __future__ import annotations

import re

import numpy as np
import pytest

from poscod.cli._notes import SEPARATES, _some, column_notes
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
        return [line.removeprefix("Note: ") for line in run.lines if line.startswith("Note: ")]

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
    assert found == [
        "nearly all traffic is called OOD: something other than strangers differs between the two tables; see "
        "docs/what-can-go-wrong.md."
    ]


def test_a_class_that_is_rarer_is_named(notes):
    """The classes are 240 and 240 of the labeled rows, and 220 and 20 of the traffic: no stranger among them."""
    X, y = WORLD.sample_id(2000, random_state=8)
    chosen = np.r_[np.flatnonzero(y == 0)[:220], np.flatnonzero(y == 1)[:20]]
    found = notes(unlabeled={"größe": X[chosen, 0], "width": X[chosen, 1]})
    assert len(found) == 1
    assert found[0].startswith("the mix of classes differs between the two tables (where the answer is sure, class '")
    assert found[0].endswith("If so, draw the labeled rows in the mix of the traffic: more rows do not help.")


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
        r"the unlabeled table cannot be told from the labeled rows that the ratio sees \(p = 0\.\d\d\).* the OOD share is 0.* 120 rows .* "
        r"share of 0\.\d+.*; a share of 0\.\d+ needs .*\d+.*\.",
        found[0],
    )
    assert found[1] == "the ratio sees about 120 of your 480 labeled rows; --calibration 0.8 gives it more."
    assert len(found) == 2
    assert notes.lines[1] == "Estimated share of OOD inputs among the unlabeled rows: not shown (0.0 %)."
